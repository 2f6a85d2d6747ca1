//! Finds what lies on a cache line: variables of the program, blocks of its heap, stacks.
//!
//! Owns: the variables of the objects that a run had loaded, by the objects' own lists of symbols.
//! The runtime says which block or stack a line belongs to. The address of
//!
//! - a static is its object's first address plus its offset in the object,
//! - a thread-local is its offset in the thread's copy. The copies lie directly below the thread
//!   pointer, the executable's copy next to it.

use std::{collections::BTreeMap, ops::Range};

use manycore_sim::{
    report::Held,
    symbols::{Symbols, variable},
};
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind, elf, read::elf::ProgramHeader};

use super::outcome::{Line, Run};

/// A variable's addresses, or its offsets among the thread-locals, and its name.
type Variable = (Range<u64>, String);

/// The variables of an object.
#[derive(Default)]
struct Variables {
    /// The end of its memory, counted from its first address.
    end: u64,
    statics: Vec<Variable>,
    locals: Vec<Variable>,
    /// Bytes of a thread's copy of the thread-locals, up to the thread pointer.
    local_bytes: u64,
}

impl Variables {
    /// Reads the variables of a file. There are none if it is not an object.
    fn read(path: &str) -> Self {
        let read = || {
            let bytes = std::fs::read(path).ok()?;
            let file = object::read::elf::ElfFile64::<object::Endianness>::parse(&*bytes).ok()?;
            let mut all = Self::default();
            let segments = file.segments().map(|segment| segment.address() + segment.size());
            all.end = segments.max()?;
            for symbol in file.symbols().filter(|symbol| symbol.size() > 0) {
                let of_kind = match symbol.kind() {
                    SymbolKind::Data => &mut all.statics,
                    SymbolKind::Tls => &mut all.locals,
                    _ => continue,
                };
                let (start, name) = (symbol.address(), symbol.name().unwrap_or_default());
                of_kind.push((start..start + symbol.size(), variable(name)));
            }
            let (headers, endian) = (file.elf_program_headers(), file.endian());
            if let Some(tls) = headers.iter().find(|header| header.p_type(endian) == elf::PT_TLS) {
                let (bytes, align) = (tls.p_memsz(endian), tls.p_align(endian).max(1));
                all.local_bytes = bytes.next_multiple_of(align);
            }
            Some(all)
        };
        read().unwrap_or_default()
    }
}

/// The variables of all objects, each read once.
#[derive(Default)]
pub(crate) struct Holders {
    known: BTreeMap<String, Variables>,
}

impl Holders {
    fn of(&mut self, path: &str) -> &Variables {
        self.known.entry(path.to_owned()).or_insert_with_key(|path| Variables::read(path))
    }

    /// Returns what lies on the bytes of a line that cores waited for, in the order of the bytes.
    pub(crate) fn on(&mut self, run: &Run, line: &Line, symbols: &mut Symbols) -> Vec<Held> {
        let whole = line.address..line.address + line.bytes;
        let mut found: Vec<Held> = Vec::new();
        for block in &line.blocks {
            let place = symbols.place(&run.modules, &block.addresses);
            let bytes = block.start..block.start + block.bytes;
            let what = format!("{} allocated at {place} by thread {}", size(&bytes), block.thread);
            found.extend(held(&bytes, &whole, what));
        }
        if found.is_empty() {
            self.statics(run, &whole, &mut found);
        }
        if let Some((thread, below)) = line.stack.filter(|_| found.is_empty()) {
            self.on_stack(run, (thread, below, line.bytes), &mut found);
        }
        let used = line.sites.iter().fold(0, |used, site| used | site.bytes);
        found.retain(|held| held.bytes.clone().any(|byte| byte >= 128 || used >> byte & 1 == 1));
        found.sort_by_key(|held| held.bytes.start);
        found
    }

    fn statics(&mut self, run: &Run, whole: &Range<u64>, found: &mut Vec<Held>) {
        let mut bases: BTreeMap<&str, u64> = BTreeMap::new();
        for module in &run.modules {
            let base = bases.entry(&module.path).or_insert(module.start);
            *base = module.start.min(*base);
        }
        // An object's zero-initialized variables lie behind the mapped part of its file.
        for (path, base) in bases.into_iter().filter(|(_, base)| *base <= whole.start) {
            let variables = self.of(path);
            if whole.start - base >= variables.end {
                continue;
            }
            for (place, name) in &variables.statics {
                let place = place.start + base..place.end + base;
                let what = format!("static {name} ({})", size(&place));
                found.extend(held(&place, whole, what));
            }
        }
    }

    fn on_stack(&mut self, run: &Run, stack: (u64, u64, u64), found: &mut Vec<Held>) {
        let (thread, below, bytes) = stack;
        let program = run.modules.first().map_or("", |module| &module.path);
        let variables = self.of(program);
        // Counted from the same distance below the thread pointer as the line.
        let line = variables.local_bytes..variables.local_bytes + bytes;
        for (place, name) in variables.locals.iter().filter(|_| below < u64::from(u32::MAX)) {
            let what = format!("thread-local {name} ({}) of thread {thread}", size(place));
            found.extend(held(&(place.start + below..place.end + below), &line, what));
        }
        if found.is_empty() {
            let what = match thread {
                0 => "the stack of the first thread".to_owned(),
                _ => format!("the stack of thread {thread}"),
            };
            found.push(Held { bytes: 0..bytes as u32, what });
        }
    }
}

/// Returns a size as text.
fn size(place: &Range<u64>) -> String {
    match place.end - place.start {
        1 => "1 byte".to_owned(),
        bytes => format!("{bytes} bytes"),
    }
}

/// Returns the part of a line that lies on these addresses.
fn held(place: &Range<u64>, line: &Range<u64>, what: String) -> Option<Held> {
    let (from, to) = (place.start.max(line.start), place.end.min(line.end));
    let bytes = || (from - line.start) as u32..(to - line.start) as u32;
    (from < to).then(|| Held { bytes: bytes(), what })
}

#[cfg(test)]
mod tests {
    use manycore_sim::symbols::Module;

    use super::*;

    /// Of this test's own program: found by the list of symbols.
    static SLOTS: [std::sync::atomic::AtomicU64; 2] =
        [const { std::sync::atomic::AtomicU64::new(0) }; 2];

    /// Of all bytes of a line.
    const ALL: &str = "site reads 1 9 0 0 ffffffffffffffff - 10\n";

    fn on(run: &Run) -> Vec<(Range<u32>, String)> {
        let found = Holders::default().on(run, &run.lines[0], &mut Symbols::new());
        found.into_iter().map(|held| (held.bytes, held.what)).collect()
    }

    fn with_line(text: &str) -> Run {
        Run::parse(&format!("manycore-sim 2\n{text}")).expect("a run's result")
    }

    #[test]
    fn blocks_are_named_by_their_bytes_of_the_line() {
        let run = with_line(
            "line 1040 64 1 9 0 0\nsite reads 1 9 0 0 ffff0000ffffffff - 10\n\
             block 1030 48 2 10\nblock 1060 8 2 10\nblock 1068 80 0 10\nstack 3 99\n",
        );
        let at = |bytes, thread| format!("{bytes} bytes allocated at an unknown place by {thread}");
        let expected = [(0..32, at(48, "thread 2")), (40..64, at(80, "thread 0"))];
        assert_eq!(on(&run), expected, "not what no core waited for");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn static_is_found_in_the_list_of_symbols() {
        let address = std::ptr::from_ref(&SLOTS) as u64;
        let line = address & !63;
        let mut run = with_line(&format!("line {line:x} 64 1 9 0 0\n{ALL}"));
        run.modules = Module::parse(&std::fs::read_to_string("/proc/self/maps").expect("a list"));
        let found = on(&run);
        let first = (address - line) as u32;
        let last = (first + 16).min(64);
        let is_it = |(bytes, what): &(Range<u32>, String)| {
            *bytes == (first..last) && what.ends_with("holders::tests::SLOTS (16 bytes)")
        };
        assert!(found.iter().any(is_it), "{found:?}");
    }

    #[test]
    fn stack_is_named_by_its_thread() {
        let run = with_line(&format!("line 1040 64 1 9 0 0\n{ALL}stack 3 9000000\n"));
        assert_eq!(on(&run), [(0..64, "the stack of thread 3".to_owned())]);
        let text = format!("line 1040 64 1 9 0 0\n{ALL}stack 0 18446744073709551615\n");
        let run = with_line(&text);
        assert_eq!(on(&run), [(0..64, "the stack of the first thread".to_owned())]);
    }
}
