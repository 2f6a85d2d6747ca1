//! Replaces instructions of the program: those that query the system (`rdtsc`, `rdtscp`, `cpuid`,
//! `syscall`), and those that access memory without a callback.
//!
//! This module owns the replacement, in all instrumented code. The program's source needs no
//! change, and a native build costs nothing: a block is decoded before it runs for the first time
//! ([`crate::blocks`]). Three kinds of instructions are replaced by a jump to a stub that asks the
//! simulation. They read the processor's clock, ask which processor this is, or enter the kernel.
//! For an access without a callback, the stub reports the access and then makes it.
//!
//! ```text
//! site:  jmp stub -----> stub: call the routine (ask, or report the access)
//!        (filling)             the access, if it was reported
//! after: ... <---------------- the moved instructions; jmp after
//! ```
//!
//! Law patch.K1: a jump to the stub takes five bytes, so the instructions after the replaced one
//! move to the stub as well. They belong to one block, none is a call, and nothing jumps between
//! them: all code within reach is searched for such a jump. If that is impossible, a breakpoint
//! replaces the instruction's first byte, and the signal's handler goes on at the stub. That takes
//! some microseconds of real time and the same virtual time. If even that is impossible, the
//! instruction is counted ([`Patches::left`]).

use std::ffi::{c_int, c_void};

use std::collections::HashMap;

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, FlowControl, Instruction, InstructionBlock, Mnemonic,
};

use crate::code::{Code, Range, accesses_untold, is_replaced};
use crate::hash::Fixed;
use crate::host;

/// A jump with a distance of 32 bits.
const JUMP_BYTES: usize = 5;
/// A breakpoint.
const INT3: u8 = 0xcc;
/// Room for one stub.
const STUB_BYTES: usize = 128;
/// Stubs in one page.
const STUBS: usize = PAGE / STUB_BYTES;
const PAGE: usize = 4096;
/// How far around an instruction the code is searched for jumps to the moved instructions.
const REACH: usize = 64 << 10;
/// Maximal distance of a stub.
const NEAR: usize = 1 << 30;

/// The beginning of glibc's `ucontext_t`.
#[repr(C)]
pub(crate) struct Context {
    flags: u64,
    link: u64,
    stack: [u64; 3],
    pub(crate) registers: [u64; 23],
}

/// A handler of signals of the type for SA_SIGINFO.
pub(crate) type Handler = extern "C" fn(c_int, *mut c_void, *mut Context);

/// Where replaced instructions lead ([`crate::instruction_stubs`]).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Targets {
    /// Returns the routine that stands for an instruction.
    pub(crate) routine: fn(Mnemonic) -> usize,
    /// Returns the routine that reports an access.
    pub(crate) tells: fn() -> usize,
    /// Handles breakpoints.
    pub(crate) at_breakpoint: Handler,
}

/// The replaced instructions of the program.
#[derive(Debug)]
pub(crate) struct Patches {
    targets: Targets,
    /// Pages for stubs: start, and number of used stubs.
    pages: Vec<(usize, usize)>,
    /// Breakpoints and their stubs.
    traps: Vec<(usize, usize)>,
    /// The accesses that stubs report, by stub.
    told: HashMap<usize, Instruction, Fixed>,
    /// Instructions that could not be replaced.
    pub(crate) left: Vec<usize>,
}

impl Patches {
    pub(crate) fn new(targets: Targets) -> Self {
        Self {
            targets,
            pages: Vec::new(),
            traps: Vec::new(),
            told: HashMap::default(),
            left: Vec::new(),
        }
    }

    /// Returns the stub of the breakpoint at `site`.
    pub(crate) fn behind_trap(&self, site: usize) -> Option<usize> {
        self.traps.iter().find(|trap| trap.0 == site).map(|trap| trap.1)
    }

    /// Returns the instruction whose access is reported by the stub that contains this address.
    pub(crate) fn told(&self, in_stub: usize) -> Instruction {
        self.told[&(in_stub & !(STUB_BYTES - 1))]
    }

    /// Replaces the instruction, or counts it as left.
    pub(crate) fn replace(&mut self, code: &mut Code, instruction: &Instruction) {
        let site = instruction.ip() as usize;
        let done = self.left.contains(&site)
            || self.by_jump(code, instruction).is_some()
            || self.by_trap(instruction).is_some();
        if !done {
            self.left.push(site);
        }
    }

    /// Replaces it by a jump to a stub, if the instructions after it can move (patch.K1).
    fn by_jump(&mut self, code: &mut Code, instruction: &Instruction) -> Option<()> {
        let site = instruction.ip() as usize;
        let behind = site + instruction.len();
        let Range { start, end, .. } = code.range(site)?;
        let moved = moved(code, behind, JUMP_BYTES.saturating_sub(instruction.len()))?;
        let after = moved.last().map_or(behind, |last| last.next_ip() as usize);
        let taken = after.max(site + JUMP_BYTES);
        let from = site.saturating_sub(REACH).max(start);
        let to = (taken + REACH).min(end);
        if jumps_between(code.bytes(from, to - from), from, site + 1, taken) {
            return None;
        }
        let stub = self.stub(site)?;
        self.write_stub(stub, instruction, &moved, after)?;
        overwrite(site, taken - site, &jump(site, stub)?)
    }

    fn by_trap(&mut self, instruction: &Instruction) -> Option<()> {
        let site = instruction.ip() as usize;
        let stub = self.stub(site)?;
        self.write_stub(stub, instruction, &[], site + instruction.len())?;
        if self.traps.is_empty() {
            catch_breakpoints(self.targets.at_breakpoint)?;
        }
        self.traps.push((site, stub));
        overwrite(site, 1, &[INT3])
    }

    /// Writes the stub: step over the red zone, ask or report, step back, the access if it was
    /// reported, the moved instructions, and the jump to `after`.
    fn write_stub(
        &mut self,
        stub: usize,
        replaced: &Instruction,
        moved: &[Instruction],
        after: usize,
    ) -> Option<()> {
        let is_told = accesses_untold(replaced);
        let routine = match is_told {
            true => (self.targets.tells)(),
            false => (self.targets.routine)(replaced.mnemonic()),
        };
        let mut code = vec![0x48, 0x8d, 0x64, 0x24, 0x80]; // lea rsp, [rsp - 128]
        code.extend([0xff, 0x15]); // call [rip + distance]
        let call_end = code.len() + 4;
        code.extend(((STUB_BYTES - 8 - call_end) as i32).to_le_bytes());
        code.extend([0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]); // lea rsp, [rsp + 128]
        if replaced.mnemonic() == Mnemonic::Syscall {
            // rcx is 0 if the kernel shall answer: jrcxz to `syscall`, otherwise jmp over it.
            code.extend([0xe3, 2, 0xeb, 2, 0x0f, 0x05]);
        }
        let here = (stub + code.len()) as u64;
        let own = is_told.then_some(*replaced);
        let behind: Vec<Instruction> = own.into_iter().chain(moved.iter().copied()).collect();
        let block = InstructionBlock::new(&behind, here);
        code.extend(BlockEncoder::encode(64, block, BlockEncoderOptions::NONE).ok()?.code_buffer);
        code.extend(jump(stub + code.len(), after)?);
        if code.len() > STUB_BYTES - 8 {
            return None;
        }
        code.resize(STUB_BYTES - 8, INT3);
        code.extend(routine.to_le_bytes());
        self.told.extend(own.map(|instruction| (stub, instruction)));
        overwrite(stub, STUB_BYTES, &code)
    }

    /// Returns room for a stub near `site`.
    fn stub(&mut self, site: usize) -> Option<usize> {
        let near = |&(page, used): &(usize, usize)| used < STUBS && page.abs_diff(site) < NEAR;
        if let Some((page, used)) = self.pages.iter_mut().find(|page| near(page)) {
            *used += 1;
            return Some(*page + (*used - 1) * STUB_BYTES);
        }
        for distance in (1..32).map(|step| step * (NEAR / 64)) {
            let page = host::map(site.saturating_sub(distance) & !(PAGE - 1), PAGE) as usize;
            if page != 0 && page.abs_diff(site) < NEAR {
                self.pages.push((page, 1));
                return Some(page);
            }
        }
        None
    }
}

/// Returns the instructions at `from` that make up at least `bytes`, if they can run elsewhere.
/// They may have fewer bytes if they end with a jump or a return and filling follows.
fn moved(code: &mut Code, from: usize, bytes: usize) -> Option<Vec<Instruction>> {
    let mut moved = Vec::new();
    let mut address = from;
    let mut over = false;
    while address < from + bytes {
        let instruction = code.decode(address)?;
        address += instruction.len();
        let fills = matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
        if over && fills {
            continue;
        }
        if over || is_replaced(&instruction) {
            return None;
        }
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::ConditionalBranch => {}
            FlowControl::Return | FlowControl::UnconditionalBranch => over = true,
            _ => return None,
        }
        moved.push(instruction);
    }
    Some(moved)
}

/// Returns true if some bytes of `code`, which begins at `base`, could be a jump into `from..to`.
fn jumps_between(code: &[u8], base: usize, from: usize, to: usize) -> bool {
    let near = |at: usize, length: usize, distance: isize| {
        let target = (base + at + length).wrapping_add_signed(distance);
        (from..to).contains(&target)
    };
    let far = |at: usize, length: usize| {
        let bytes = code.get(at + length - 4..at + length)?;
        let distance = i32::from_le_bytes(bytes.try_into().ok()?);
        Some(near(at, length, distance as isize))
    };
    (0..code.len()).any(|at| match code[at] {
        0xeb | 0x70..=0x7f | 0xe0..=0xe3 => {
            code.get(at + 1).is_some_and(|&byte| near(at, 2, isize::from(byte as i8)))
        }
        0xe9 => far(at, 5) == Some(true),
        0x0f if code.get(at + 1).is_some_and(|byte| byte & 0xf0 == 0x80) => {
            far(at, 6) == Some(true)
        }
        _ => false,
    })
}

/// Encodes a jump from `site` to `target`.
fn jump(site: usize, target: usize) -> Option<[u8; JUMP_BYTES]> {
    let distance = i32::try_from(target as isize - (site + JUMP_BYTES) as isize).ok()?;
    let mut code = [0xe9, 0, 0, 0, 0];
    code[1..].copy_from_slice(&distance.to_le_bytes());
    Some(code)
}

/// Writes `new` at `site`, and breakpoints after it up to `bytes`.
fn overwrite(site: usize, bytes: usize, new: &[u8]) -> Option<()> {
    let first = site & !(PAGE - 1);
    let length = (site + bytes).next_multiple_of(PAGE) - first;
    let protect = |rights| {
        // SAFETY: the pages hold code or our stubs and stay executable throughout.
        unsafe { host::call(host::SYS_MPROTECT, [first, length, rights, 0, 0, 0]) }
    };
    let code = host::PROT_READ | host::PROT_EXEC;
    if protect(code | host::PROT_WRITE) != 0 {
        return None;
    }
    // SAFETY: writable for the moment. Only this thread runs the program's code (threads.S1), and
    // it is in this function.
    let old = unsafe { std::slice::from_raw_parts_mut(site as *mut u8, bytes) };
    old.fill(INT3);
    old[..new.len()].copy_from_slice(new);
    protect(code);
    Some(())
}

/// Makes breakpoints call `handler`.
fn catch_breakpoints(handler: Handler) -> Option<()> {
    const SIGTRAP: c_int = 5;
    const SA_SIGINFO: c_int = 4;
    const SA_NODEFER: c_int = 0x4000_0000;
    /// glibc's `struct sigaction`.
    #[repr(C)]
    struct Action {
        handler: Handler,
        mask: [u64; 16],
        flags: c_int,
        restorer: usize,
    }
    unsafe extern "C" {
        fn sigaction(signal: c_int, new: *const Action, old: *mut c_void) -> c_int;
    }
    let flags = SA_SIGINFO | SA_NODEFER;
    let action = Action { handler, mask: [0; 16], flags, restorer: 0 };
    // SAFETY: the handler has the type for SA_SIGINFO (`Handler`) and changes only what it gets.
    (unsafe { sigaction(SIGTRAP, &raw const action, std::ptr::null_mut()) } == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jump_into_what_would_move_is_found() {
        // At 1000, `jmp +3` ends at 1002 and goes to 1005.
        assert!(jumps_between(&[0xeb, 3, 0x90], 1000, 1004, 1006));
        assert!(!jumps_between(&[0xeb, 3, 0x90], 1000, 1006, 1010));
        // At 1000, `je -6` takes six bytes and goes to 1000.
        let backward = [0x0f, 0x84, 0xfa, 0xff, 0xff, 0xff];
        assert!(jumps_between(&backward, 1000, 1000, 1001));
        assert!(!jumps_between(&backward, 1000, 1001, 1004));
    }
}
