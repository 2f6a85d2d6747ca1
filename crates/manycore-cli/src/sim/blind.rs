//! Finds the code that ran without making callbacks: its objects, and its share of the run.
//!
//! Owns: the judgement of addresses at which the runtime found the program. An address is in an
//! instrumented function if a block of that function has made a callback. The object's symbols tell
//! functions apart. An object without symbols (a system's library) counts as instrumented as a
//! whole, or not at all.

use std::collections::BTreeMap;

use manycore_sim::{report::Blind, symbols::Module};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

use super::outcome::{Run, Seen};

/// The least number of looks for a judgement.
const LOOKS_MIN: u64 = 40;
/// The most functions of an object that are named.
const FUNCTIONS: usize = 4;

/// The name of a table of jumps.
const JUMPS: &str = "jumps";

/// The functions of an object: their beginnings, ends and names.
type Functions = BTreeMap<u64, (u64, String)>;

fn functions(path: &str) -> Functions {
    let Ok(bytes) = std::fs::read(path) else { return Functions::new() };
    let Ok(file) = object::File::parse(&*bytes) else { return Functions::new() };
    let symbols = file.symbols().chain(file.dynamic_symbols());
    let functions = symbols.filter(|symbol| symbol.kind() == SymbolKind::Text);
    let sized = functions.filter(|symbol| symbol.size() > 0);
    // Jumps to other objects, including the jumps to the callbacks.
    let jumps = file.sections().filter(|s| s.name().is_ok_and(|name| name.starts_with(".plt")));
    let jumps = jumps.map(|s| (s.address(), (s.address() + s.size(), JUMPS.to_owned())));
    sized
        .map(|symbol| {
            let (start, name) = (symbol.address(), symbol.name().unwrap_or_default());
            (start, (start + symbol.size(), name.to_owned()))
        })
        .chain(jumps)
        .collect()
}

/// Returns the name of the function around an address, and true if the function has one of the
/// blocks.
fn judge(functions: &Functions, seen: &Seen, base: u64) -> (bool, Option<String>) {
    let at = seen.address.wrapping_sub(base);
    let found = functions.range(..=at).next_back().filter(|(_, (end, _))| at < *end);
    let Some((start, (end, name))) = found else { return (false, None) };
    // These jumps, and the compiler's shims of the allocator, go straight on to other code.
    if name.contains("___rustc") || name == JUMPS {
        return (true, None);
    }
    let holds = |block: &u64| (*start..*end).contains(&block.wrapping_sub(base));
    (seen.blocks.iter().any(holds), Some(name.clone()))
}

/// Returns the uninstrumented code of all runs together, largest share first. `None` if they were
/// too short to tell.
pub(crate) fn of<'a>(runs: impl Iterator<Item = &'a Run> + Clone) -> Option<Vec<Blind>> {
    let module_of = |run: &'a Run, seen: &Seen| {
        let here = |module: &&Module| (module.start..module.end).contains(&seen.address);
        run.modules.iter().find(here)
    };
    // Code without a file is the runtime's own code, which replaces single instructions.
    let in_files = runs.flat_map(|run| {
        let of_module = move |seen| module_of(run, seen).map(|module| (run, seen, module));
        run.seen.iter().filter_map(of_module)
    });
    let all: u64 = in_files.clone().map(|(_, seen, _)| seen.count).sum();
    if all < LOOKS_MIN {
        return None;
    }
    let mut known: BTreeMap<&str, Functions> = BTreeMap::new();
    let mut counts: BTreeMap<&str, BTreeMap<Option<String>, u64>> = BTreeMap::new();
    for (run, seen, module) in in_files {
        let path = module.path.as_str();
        let base = run.modules.iter().filter(|module| module.path == path).map(|m| m.start).min();
        let functions = known.entry(path).or_insert_with(|| functions(path));
        let (is_instrumented, name) = judge(functions, seen, base.unwrap_or(0));
        if !is_instrumented {
            *counts.entry(path).or_default().entry(name).or_default() += seen.count;
        }
    }
    let mut found: Vec<Blind> = counts
        .into_iter()
        .map(|(path, counts)| {
            let count: u64 = counts.values().sum();
            let mut names: Vec<(u64, String)> =
                counts.into_iter().filter_map(|(name, count)| Some((count, name?))).collect();
            names.sort_unstable_by(|a, b| b.cmp(a));
            Blind {
                object: path.rsplit('/').next().unwrap_or(path).to_owned(),
                functions: names.into_iter().take(FUNCTIONS).map(|(_, name)| name).collect(),
                share: count as f64 / all as f64,
            }
        })
        .collect();
    found.sort_by(|a, b| b.share.total_cmp(&a.share));
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_with_a_block_is_instrumented_and_one_beside_it_is_not() {
        let functions: Functions =
            [(0x10, (0x20, "rust".to_owned())), (0x20, (0x30, "c".to_owned()))].into();
        let seen = |address, before, behind| Seen { address, count: 1, blocks: [before, behind] };
        let base = 0x1000;
        // Before its first block, and behind it.
        assert_eq!(judge(&functions, &seen(0x1011, 0, 0x1014), base), (true, Some("rust".into())));
        assert_eq!(judge(&functions, &seen(0x1018, 0x1014, 0), base), (true, Some("rust".into())));
        assert_eq!(judge(&functions, &seen(0x1021, 0x1014, 0), base), (false, Some("c".into())));
        assert_eq!(judge(&functions, &seen(0x1040, 0x1014, 0), base), (false, None));
    }

    #[test]
    fn shares_are_of_all_looks_and_few_looks_say_nothing() {
        let module = Module { start: 0x1000, end: 0x2000, path: "/no/such/libz.so".to_owned() };
        let seen = Seen { address: 0x1100, count: 60, blocks: [0, 0] };
        let elsewhere = Seen { address: 0x9100, count: 20, ..seen };
        let other = Module { start: 0x3000, end: 0x4000, path: "/no/such/libm.so".to_owned() };
        let there = Seen { address: 0x3100, ..elsewhere };
        let modules = vec![module, other];
        let run = Run { modules, seen: vec![seen, there, elsewhere], ..Run::default() };
        let found = of([&run].into_iter()).unwrap();
        let named = |at: usize| (found[at].object.as_str(), found[at].share);
        assert_eq!((named(0), named(1)), (("libz.so", 0.75), ("libm.so", 0.25)));
        assert_eq!(found.len(), 2, "code without a file is the runtime's own");
        let few = Run { seen: vec![Seen { count: 39, ..seen }, elsewhere], ..run };
        assert!(of([&few].into_iter()).is_none());
        let pooled = of([&few, &few].into_iter()).expect("enough looks of two short runs");
        assert_eq!((&pooled[0].object[..], pooled[0].share), ("libz.so", 1.0));
    }
}
