//! Recording: which core touched which line. Conflict checks use it.

use super::{Access, Engine, ThreadId, hash::Map, thread::Op};

/// One core's reads, or one core's writes, of one recorded line.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Touch {
    /// First byte of the line.
    pub line: usize,
    /// The core.
    pub core: u32,
    /// The thread that touched it first.
    pub thread: ThreadId,
    /// True for writes, false for reads.
    pub wrote: bool,
    /// The bytes of the line, one bit for each of the first 128.
    pub bytes: u128,
    /// The place in the program of the first access.
    pub pc: usize,
    /// The number of accesses.
    pub count: u64,
}

/// The recording.
#[derive(Default)]
pub(super) struct Recorder {
    /// Number of threads that are recorded now.
    active: u32,
    touches: Map<(u64, u16, bool), Touch>,
}

impl Recorder {
    pub(super) fn is_on(&self) -> bool {
        self.active > 0
    }

    pub(super) fn note(&mut self, op: &Op, thread: u32, core: u16, shift: u32) {
        let wrote = op.kind != Access::Read;
        let line = (op.line << shift) as usize;
        let touch = self.touches.entry((op.line, core, wrote)).or_insert_with(|| Touch {
            line,
            core: u32::from(core),
            thread: ThreadId(thread),
            wrote,
            bytes: 0,
            pc: op.pc,
            count: 0,
        });
        touch.bytes |= op.bytes(shift);
        touch.count += 1;
    }
}

impl Engine {
    /// Starts or stops recording the running thread's accesses.
    pub fn record(&mut self, on: bool) {
        let me = self.me();
        if me.recorded != on {
            me.recorded = on;
            self.recorder.active =
                if on { self.recorder.active + 1 } else { self.recorder.active - 1 };
            self.refresh();
        }
    }

    /// Takes the recording since the last call, sorted by line and core.
    pub fn take_recording(&mut self) -> Vec<Touch> {
        let mut touches: Vec<Touch> =
            self.recorder.touches.drain().map(|(_, touch)| touch).collect();
        touches.sort_by_key(|touch| (touch.line, touch.core, touch.wrote));
        touches
    }
}
