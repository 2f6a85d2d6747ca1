//! Recording: which core touched which line, for checks that two operations do not meet.

use super::{Access, Engine, ThreadId, hash::Map, thread::Op};

/// One core's reads, or writes, of one line while recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Touch {
    /// First byte of the line.
    pub line: usize,
    /// The core.
    pub core: u32,
    /// The thread that came first.
    pub thread: ThreadId,
    /// Whether it wrote.
    pub wrote: bool,
    /// Which bytes of the line, one bit for each byte of the first 128.
    pub bytes: u128,
    /// Where in the program the first access was.
    pub pc: usize,
    /// How many accesses.
    pub count: u64,
}

/// What has been recorded.
#[derive(Default)]
pub(super) struct Recorder {
    /// Threads that are recorded now.
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
    /// Starts or stops recording what the running thread touches.
    pub fn record(&mut self, on: bool) {
        let me = self.me();
        if me.recorded != on {
            me.recorded = on;
            self.recorder.active =
                if on { self.recorder.active + 1 } else { self.recorder.active - 1 };
            self.refresh();
        }
    }

    /// Takes what has been recorded since the last time, in the order of lines and cores.
    pub fn take_recording(&mut self) -> Vec<Touch> {
        let mut touches: Vec<Touch> =
            self.recorder.touches.drain().map(|(_, touch)| touch).collect();
        touches.sort_by_key(|touch| (touch.line, touch.core, touch.wrote));
        touches
    }
}
