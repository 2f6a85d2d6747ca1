//! Files of a crate must not name each other in a cycle: what two files need lies below both. A
//! module and its own submodules may name each other, and so may tests.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    paths::{module_of, named},
    walk,
};

type Graph = BTreeMap<String, BTreeSet<String>>;

/// Returns the text without a test module at its end.
fn without_tests(text: &str) -> &str {
    text.find("#[cfg(test)]\nmod tests {").map_or(text, |end| &text[..end])
}

/// Returns whether the file (path below `src`) is compiled for tests only.
fn is_test(path: &str) -> bool {
    path.split('/').any(|part| {
        let part = part.trim_end_matches(".rs");
        part.ends_with("tests") || part.starts_with("loom") || part.starts_with("shuttle")
    })
}

/// Returns the modules that each file of a crate names. `files` are (path below `src`, text).
fn graph(files: &[(&str, &str)]) -> Graph {
    let module = |path: &str| module_of(path).join("::");
    let files: Vec<_> = files.iter().filter(|(path, _)| !is_test(path)).collect();
    let modules: BTreeSet<String> = files.iter().map(|(path, _)| module(path)).collect();
    let mut graph = Graph::new();
    for (path, text) in files {
        let own = module(path);
        let below = |a: &str, b: &str| a.is_empty() || b.starts_with(&format!("{a}::"));
        let mut targets = BTreeSet::new();
        for path in named(without_tests(text), &module_of(path), &[]) {
            if path.parts[0] != "crate" {
                continue;
            }
            let whole = &path.parts[1..];
            let found = (1..=whole.len()).rev().map(|length| whole[..length].join("::"));
            if let Some(target) = found.into_iter().find(|target| modules.contains(target)) {
                if target != own && !below(&target, &own) && !below(&own, &target) {
                    targets.insert(target);
                }
            }
        }
        graph.insert(own, targets);
    }
    graph
}

/// Returns the modules that can be reached from `start`.
fn reach(graph: &Graph, start: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut next = vec![start.to_owned()];
    while let Some(module) = next.pop() {
        for target in graph.get(&module).into_iter().flatten() {
            if found.insert(target.clone()) {
                next.push(target.clone());
            }
        }
    }
    found
}

/// Returns the cycles: sets of modules that reach each other.
fn cycles(graph: &Graph) -> BTreeSet<Vec<String>> {
    let reached: BTreeMap<_, _> =
        graph.keys().map(|module| (module, reach(graph, module))).collect();
    let cycle = |module: &String| -> Vec<String> {
        let both =
            |other: &&String| reached[module].contains(*other) && reached[*other].contains(module);
        graph.keys().filter(both).cloned().collect()
    };
    graph.keys().map(cycle).filter(|modules| !modules.is_empty()).collect()
}

#[test]
fn files_name_each_other_in_no_cycle() {
    let mut crates: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for file in walk::rust_files() {
        let parts = file.path.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/"));
        if let Some((name, path)) = parts {
            crates.entry(name.to_owned()).or_default().push((path.to_owned(), file.text.clone()));
        }
    }
    assert!(crates.len() > 5, "crates were not found");
    let mut found = BTreeSet::new();
    for (name, files) in &crates {
        let files: Vec<_> = files.iter().map(|(path, text)| (&**path, &**text)).collect();
        found.extend(cycles(&graph(&files)).into_iter().map(|modules| (name.clone(), modules)));
    }
    assert_eq!(found, BTreeSet::new(), "cycles");
}

#[test]
fn cycles_are_caught_and_families_are_not() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; use a::A;"),
        ("a.rs", "use crate::b::B;"),
        ("b.rs", "fn f() { crate::c::d::e() }"),
        ("c.rs", "mod d; use d::D;"),
        ("c/d.rs", "use super::C; use crate::a::A;"),
        ("e.rs", "use crate::f::F;"),
        ("f.rs", "use crate::E;\n#[cfg(test)]\nmod tests {\n use crate::e::E; }"),
        ("f/loom_tests.rs", "use crate::e::E;"),
    ];
    let found = cycles(&graph(&files));
    assert_eq!(found, BTreeSet::from([["a", "b", "c::d"].map(str::to_owned).to_vec()]));
}
