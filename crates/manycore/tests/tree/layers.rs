//! Imports go only downward, and only the facade names the items that the model checkers replace.

use std::collections::BTreeSet;

use crate::{
    paths::{module_of, named},
    walk,
};

/// The modules of the library, lowest first. A module may import from the layers listed before its
/// own. It may also import from its own layer, as long as that layer has no cycle.
const LAYERS: &[&[&str]] = &[
    &["sync", "config", "policy"],
    &["clock", "percpu"],
    &["profile"],
    &["lock"],
    &["slab"],
    &["section"],
    &["namespace", "oplog", "ldu", "cluster"],
    &["collections"],
];

/// The only file that may name the items that loom and shuttle replace.
const FACADE: &str = "sync.rs";

/// The paths that the facade hides. A parent of these must not be imported either: it would be a
/// way around.
const HIDDEN: &[&str] = &[
    "std::sync::atomic",
    "core::sync::atomic",
    "std::cell::UnsafeCell",
    "core::cell::UnsafeCell",
    "std::thread",
    "loom",
    "shuttle",
];

/// The model checkers. Besides the facade, only the models may name them: files and folders with a
/// name that begins with the checker's.
const CHECKERS: &[&str] = &["loom", "shuttle"];

/// The crates whose paths are checked.
const ROOTS: &[&str] = &["std", "core", "loom", "shuttle"];

/// The source folder of the library.
const SOURCE: &str = "crates/manycore/src/";

fn rank(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// Returns the wrong imports of one file, and the pairs of modules within one layer that it adds.
fn check_imports(path_in_src: &str, source: &str) -> (Vec<String>, BTreeSet<(String, String)>) {
    let mut findings = Vec::new();
    let mut sideways = BTreeSet::new();
    let module = module_of(path_in_src);
    let Some(own) = module.first() else {
        return (findings, sideways); // lib.rs, the front page, shows all layers
    };
    let Some(own_rank) = rank(own) else {
        return (vec![format!("{path_in_src}: module {own} has no layer in LAYERS")], sideways);
    };
    for path in named(source, &module, ROOTS).iter().filter(|p| p.parts[0] == "crate") {
        let Some(target) = path.parts.get(1).filter(|t| t.as_str() != own) else {
            continue;
        };
        let (line, text) = (path.line, path.text());
        match rank(target) {
            None => findings.push(format!(
                "{path_in_src}:{line}: {text} is no module: name the layer, not the front page"
            )),
            Some(there) if there > own_rank => {
                findings.push(format!("{path_in_src}:{line}: {own} imports upward: {text}"));
            }
            Some(there) if there == own_rank => {
                sideways.insert((own.clone(), target.clone()));
            }
            Some(_) => {}
        }
    }
    (findings, sideways)
}

/// Returns pairs of modules of one layer that import each other, directly or through others.
fn cycles(sideways: &BTreeSet<(String, String)>) -> Vec<String> {
    let mut reach = sideways.clone();
    loop {
        let more: BTreeSet<_> = reach
            .iter()
            .flat_map(|(a, b)| {
                sideways.iter().filter(move |(c, _)| c == b).map(|(_, d)| (a.clone(), d.clone()))
            })
            .filter(|pair| !reach.contains(pair))
            .collect();
        if more.is_empty() {
            break;
        }
        reach.extend(more);
    }
    reach.iter().filter(|(a, b)| a == b).map(|(a, _)| format!("{a} imports itself")).collect()
}

/// Returns modules without a layer, and layers without a module. `entries` are the names of files
/// and folders.
fn check_modules(entries: &[&str]) -> Vec<String> {
    let modules: BTreeSet<&str> = entries
        .iter()
        .map(|entry| entry.trim_end_matches(".rs"))
        .filter(|module| *module != "lib")
        .collect();
    let layers: BTreeSet<&str> = LAYERS.iter().flat_map(|layer| layer.iter().copied()).collect();
    let strangers = modules.difference(&layers).map(|m| format!("{m} has no layer in LAYERS"));
    let missing = layers.difference(&modules).map(|m| format!("LAYERS: there is no module {m}"));
    strangers.chain(missing).collect()
}

/// Checks that the layers in a document are those of [`LAYERS`]. The rows of its table of modules
/// have the top layer first, and the module's name as the first word in code marks.
fn check_table(path: &str, text: &str) -> Vec<String> {
    let Some((_, table)) = text.split_once("\n| Module | ") else {
        return vec![format!("{path}: no table of modules")];
    };
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let named: Vec<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    let ours: Vec<&str> = LAYERS.iter().rev().flat_map(|layer| layer.iter().copied()).collect();
    let ranks: Vec<_> = named.iter().map(|module| rank(module)).collect();
    let mut findings: Vec<String> = named
        .iter()
        .filter(|module| rank(module).is_none())
        .map(|module| format!("{path}: there is no module {module}"))
        .collect();
    let missing = ours.iter().filter(|module| !named.contains(module));
    findings.extend(missing.map(|module| format!("{path}: {module} is missing")));
    if !ranks.is_sorted_by(|above, below| above >= below) {
        findings.push(format!("{path}: the modules are not in the order of LAYERS"));
    }
    findings
}

/// Returns the layers as a document writes them in one line, lowest first.
fn chain() -> String {
    let names = |layer: &&[&str]| {
        layer.iter().map(|module| format!("`{module}`")).collect::<Vec<_>>().join(", ")
    };
    LAYERS.iter().map(names).collect::<Vec<_>>().join(" < ")
}

/// Returns the paths that one file names although only the facade may.
fn check_facade(path_in_src: &str, source: &str) -> Vec<String> {
    if path_in_src == FACADE {
        return Vec::new();
    }
    let is_model_of = |checker: &str| {
        path_in_src
            .split('/')
            .any(|part| part.strip_prefix(checker).is_some_and(|rest| rest.starts_with(['_', '.'])))
    };
    let below = |path: &str, parent: &str| {
        path.strip_prefix(parent).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    named(source, &module_of(path_in_src), ROOTS)
        .iter()
        .filter(|path| !(CHECKERS.contains(&path.parts[0].as_str()) && is_model_of(&path.parts[0])))
        .filter(|path| {
            let text = path.text();
            let text = text.trim_end_matches("::*");
            HIDDEN.iter().any(|&h| below(text, h) || (path.imported && below(h, text)))
        })
        .map(|path| format!("{path_in_src}:{}: {} belongs to {FACADE}", path.line, path.text()))
        .collect()
}

/// Returns the files of the library as (path below src, text).
fn library() -> Vec<(String, String)> {
    let found: Vec<_> = walk::rust_files()
        .into_iter()
        .filter_map(|f| Some((f.path.strip_prefix(SOURCE)?.to_string(), f.text)))
        .collect();
    assert!(found.iter().any(|(path, _)| path == FACADE), "the facade was not found");
    found
}

#[test]
fn imports_go_downward() {
    let mut findings = Vec::new();
    let mut sideways = BTreeSet::new();
    for (path, text) in library() {
        let (wrong, pairs) = check_imports(&path, &text);
        findings.extend(wrong);
        sideways.extend(pairs);
    }
    findings.extend(cycles(&sideways));
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn each_module_has_a_layer_and_each_layer_its_module() {
    let folder = walk::top().join(SOURCE);
    let entries: Vec<String> = std::fs::read_dir(folder)
        .expect("the library's folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    let findings = check_modules(&entries.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn documents_draw_the_layers_as_they_are() {
    let text = |path: &str| std::fs::read_to_string(walk::top().join(path)).expect("a document");
    let findings = check_table("ARCHITECTURE.md", &text("ARCHITECTURE.md"));
    assert!(findings.is_empty(), "{}", findings.join("\n"));
    let guide = text("CONTRIBUTING.md").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(guide.contains(&chain()), "CONTRIBUTING.md does not say: {}", chain());
}

#[test]
fn modules_without_a_layer_and_layers_without_a_module_are_caught() {
    let all: Vec<&str> = LAYERS.iter().flat_map(|layer| layer.iter().copied()).collect();
    assert_eq!(check_modules(&all), Vec::<String>::new());
    assert_eq!(check_modules(&[&all[1..], &["sync.rs", "lib.rs"]].concat()), Vec::<String>::new());
    assert_eq!(check_modules(&all[1..]), ["LAYERS: there is no module sync"]);
    assert_eq!(check_modules(&[&all[..], &["misc"]].concat()), ["misc has no layer in LAYERS"]);

    let table = |modules: &[&str]| {
        let row = |module: &&str| format!("| [`{module}`](there) | owns `sync` |\n");
        format!("x\n| Module | Owns |\n|-|-|\n{}\ny", modules.iter().map(row).collect::<String>())
    };
    let down: Vec<&str> = all.iter().rev().copied().collect();
    assert_eq!(check_table("a.md", &table(&down)), Vec::<String>::new());
    assert_eq!(check_table("a.md", &table(&down[1..])), ["a.md: collections is missing"]);
    assert_eq!(check_table("a.md", &table(&all)).len(), 1);
    assert_eq!(check_table("a.md", &table(&[&["misc"], &down[..]].concat())).len(), 2);
    assert_eq!(check_table("a.md", "no table").len(), 1);
}

#[test]
fn only_the_facade_names_what_checkers_replace() {
    let findings: Vec<String> =
        library().iter().flat_map(|(path, text)| check_facade(path, text)).collect();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn upward_imports_are_caught_in_every_spelling() {
    let spellings = [
        "use crate::oplog::Deferred;",
        "use crate::{sync::fence, oplog::{self}};",
        "fn f() { crate::oplog::helper() }",
        "use super::oplog;",
        "mod tests { use super::super::oplog::Deferred; }",
        "pub use crate::collections::*;",
    ];
    for spelling in spellings {
        let (findings, _) = check_imports("clock/mod.rs", spelling);
        assert_eq!(findings.len(), 1, "{spelling}: {findings:?}");
        assert!(findings[0].contains("imports upward"), "{spelling}: {findings:?}");
    }
    let nested = check_imports("clock/probe.rs", "use super::super::collections::Counter;").0;
    assert_eq!(nested.len(), 1, "{nested:?}");
}

#[test]
fn downward_imports_and_own_parts_pass() {
    let source =
        "use crate::{clock::Stamp, sync, config};\nuse super::log;\n// crate::collections\n";
    let (findings, sideways) = check_imports("oplog/merge.rs", source);
    assert!(findings.is_empty() && sideways.is_empty(), "{findings:?} {sideways:?}");
}

#[test]
fn detours_over_the_front_page_and_unknown_modules_are_caught() {
    let detour = check_imports("clock/mod.rs", "use crate::Counter;").0;
    assert!(detour[0].contains("name the layer"), "{detour:?}");
    let stranger = check_imports("misc/mod.rs", "").0;
    assert!(stranger[0].contains("has no layer"), "{stranger:?}");
}

#[test]
fn one_way_between_neighbours_passes_but_a_cycle_is_caught() {
    let mut pairs = check_imports("clock/mod.rs", "use crate::percpu::pin;").1;
    assert_eq!(pairs.len(), 1);
    assert!(cycles(&pairs).is_empty());
    pairs.extend(check_imports("percpu/mod.rs", "use crate::clock::Stamp;").1);
    assert!(!cycles(&pairs).is_empty());
}

#[test]
fn ways_around_the_facade_are_caught_in_every_spelling() {
    let spellings = [
        "use std::sync::atomic::AtomicU64;",
        "use std::{sync::{Arc, atomic}, time};",
        "fn f() { core::sync::atomic::fence(o) }",
        "use std::sync;",
        "use std::sync::{self, Arc};",
        "use std::sync::*;",
        "use std as s;",
        "use std::cell::UnsafeCell as Cell;",
        "static A: ::std::cell::UnsafeCell<u8> = b;",
        "std::thread::spawn(f);",
        "use std::thread;",
        "use loom::sync::Arc;",
        "shuttle::check_dfs(f, None);",
    ];
    for spelling in spellings {
        let findings = check_facade("oplog/mod.rs", spelling);
        assert_eq!(findings.len(), 1, "{spelling}: {findings:?}");
    }
}

#[test]
fn harmless_neighbours_of_hidden_names_pass() {
    let source = concat!(
        "use std::{sync::Arc, cell::Cell, time::Duration};\n",
        "use crate::sync::{fence, UnsafeCell};\n",
        "// std::thread\n",
        "let a = std::sync::Arc::new(1); use std::sync::Weak;",
    );
    assert_eq!(check_facade("oplog/mod.rs", source), Vec::<String>::new());
    assert_eq!(check_facade(FACADE, "use std::sync::atomic::AtomicU64;"), Vec::<String>::new());
}

#[test]
fn models_may_name_their_checker_and_nothing_else_of_what_is_hidden() {
    for path in ["percpu/loom_tests.rs", "oplog/loom_tests/mod.rs"] {
        assert_eq!(check_facade(path, "loom::model(f);"), Vec::<String>::new());
        assert_eq!(check_facade(path, "use std::thread; use shuttle::rand;").len(), 2);
    }
    assert_eq!(check_facade("oplog/bloom_tests.rs", "loom::model(f);").len(), 1);
    assert_eq!(
        check_facade("oplog/shuttle_tests.rs", "shuttle::replay(f, s);"),
        Vec::<String>::new()
    );
}
