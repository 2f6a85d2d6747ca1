//! Knows where the program's code is in memory, so that only code is decoded.
//!
//! After a call that never returns there may be any bytes, and decoding them may show jumps to
//! anywhere. So every address is looked up before it is read.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};

/// Maximal bytes of an instruction.
const INSTRUCTION_BYTES: usize = 15;

/// The readable mappings of this process.
#[derive(Debug, Default)]
pub(crate) struct Code {
    ranges: Vec<Range>,
}

/// One mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) executable: bool,
}

impl Code {
    /// Returns the mapping of `address`. Reads the list of mappings again if no known mapping has
    /// it.
    pub(crate) fn range(&mut self, address: usize) -> Option<Range> {
        if let Some(known) = self.known(address) {
            return Some(known);
        }
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        self.ranges = maps.lines().filter_map(range).collect();
        self.known(address)
    }

    fn known(&self, address: usize) -> Option<Range> {
        let holds = |range: &&Range| (range.start..range.end).contains(&address);
        self.ranges.iter().find(holds).copied()
    }

    /// Returns up to `most` bytes of code from `address` on, or none if it is not code.
    pub(crate) fn bytes(&mut self, address: usize, most: usize) -> &'static [u8] {
        let Some(range) = self.range(address).filter(|range| range.executable) else {
            return &[];
        };
        // SAFETY: the bytes lie in a readable mapping. Code is not unmapped while it may run, and
        // only `patch` changes it, in this thread (threads.S1).
        unsafe { std::slice::from_raw_parts(address as *const u8, most.min(range.end - address)) }
    }

    /// Returns the word at `address`, if it is readable.
    pub(crate) fn word(&mut self, address: usize) -> Option<usize> {
        let range = self.range(address)?;
        if range.end - address < size_of::<usize>() {
            return None;
        }
        // SAFETY: the word lies in a readable mapping.
        Some(unsafe { (address as *const usize).read_unaligned() })
    }

    /// Returns the instruction at `address`, if there is one.
    pub(crate) fn decode(&mut self, address: usize) -> Option<Instruction> {
        let bytes = self.bytes(address, INSTRUCTION_BYTES);
        let mut decoder = Decoder::with_ip(64, bytes, address as u64, DecoderOptions::NONE);
        let instruction = decoder.decode();
        (!instruction.is_invalid()).then_some(instruction)
    }
}

/// Returns true if the instruction queries the system, and so is replaced ([`crate::patch`]).
pub(crate) fn queries_system(instruction: &Instruction) -> bool {
    use Mnemonic::{Cpuid, Rdtsc, Rdtscp, Syscall};
    matches!(instruction.mnemonic(), Rdtsc | Rdtscp | Cpuid | Syscall)
}

/// Returns true if the instruction accesses memory without a callback, and so is replaced too.
///
/// The compiler's pass makes a callback of most locked instructions. It leaves minimum and maximum
/// (`fetch_min`, `fetch_max`) and inline assembly as they are. Of inline assembly, locked
/// instructions, repeated copies and repeated fills are replaced.
pub(crate) fn accesses_untold(instruction: &Instruction) -> bool {
    use Mnemonic::{Movsb, Movsd, Movsq, Movsw, Stosb, Stosd, Stosq, Stosw, Xchg};
    let in_memory = || (0..2).any(|operand| instruction.op_kind(operand) == OpKind::Memory);
    match instruction.mnemonic() {
        Movsb | Movsd | Movsq | Movsw | Stosb | Stosd | Stosq | Stosw => {
            instruction.is_string_instruction() && instruction.has_rep_prefix()
        }
        Xchg => in_memory(),
        _ => instruction.has_lock_prefix(),
    }
}

/// Returns true if a stub replaces the instruction.
pub(crate) fn is_replaced(instruction: &Instruction) -> bool {
    queries_system(instruction) || accesses_untold(instruction)
}

/// Parses a line of /proc/self/maps. Returns `None` if the mapping is not readable.
fn range(line: &str) -> Option<Range> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    let rights = rest.as_bytes();
    let special = rest.ends_with("[vvar]") || rest.ends_with("[vsyscall]");
    (rights.first() == Some(&b'r') && !special).then_some(Range {
        start: number(start)?,
        end: number(end)?,
        executable: rights.get(2) == Some(&b'x'),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_read() {
        let code = range("1000-2000 r-xp 0 00:00 0 /a").unwrap();
        assert_eq!(code, Range { start: 0x1000, end: 0x2000, executable: true });
        assert!(!range("1000-2000 rw-p 0 00:00 0 /a").unwrap().executable);
        assert_eq!(range("1000-2000 ---p 0 00:00 0 /a"), None);
    }

    #[test]
    fn only_code_is_given_as_code() {
        let mut code = Code::default();
        let function = code.bytes(rights_are_read as *const () as usize, 8).to_vec();
        assert_eq!(function.len(), 8);
        let data = Box::new(0_u64);
        assert!(code.bytes(std::ptr::from_ref(&*data) as usize, 8).is_empty());
        assert_eq!(code.word(16), None);
    }
}
