//! Which crate may depend on which, and which files may name other people's concurrent structures.

use crate::{
    lexer::{lex, tokens},
    walk,
};

/// The crate that compares the library with others. No other crate builds on it.
const BENCH: &str = "manycore-bench";

/// The crate that counts instructions. It compares with small rivals only, and builds in a minute.
const INSTRUCTIONS: &str = "manycore-instructions";

/// Crates that stand below all others of the workspace.
const BASES: &[&str] = &["manycore", DERIVE, "manycore-sim", PAGE];

/// The frame of reports and the derive macro, which know nothing of ours: what a base may build on.
const PAGE: &str = "manycore-page";
const DERIVE: &str = "manycore-derive";

/// Crates that use the library and no other crate of the workspace.
const ON_LIBRARY_ALONE: &[&str] =
    &["manycore-cache", "manycore-metrics", "manycore-trace", "manycore-vm"];

/// Crates that the benchmarks compare with. In a name, `-` and `_` are the same. A name that ends
/// in `-` stands for every name that it begins.
const RIVALS: &[&str] = &[
    "arc-swap",
    "concurrent-queue",
    "contatori",
    "crossbeam",
    "crossbeam-",
    "dashmap",
    "fast-counter",
    "flize",
    "flurry",
    "haphazard",
    "kovan",
    "lamlock",
    "left-right",
    "moka",
    "node-replication",
    "papaya",
    "parking-lot",
    "quick-cache",
    "scc",
    "sdd",
    "seize",
];

fn is_rival(name: &str) -> bool {
    let name = name.replace('_', "-");
    RIVALS.iter().any(
        |rival| {
            if rival.ends_with('-') { name.starts_with(rival) } else { name == *rival }
        },
    )
}

/// Returns the names of the crates that a manifest depends on, in every kind of dependency table.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut listing = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(table) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            let last = table.rsplit('.').next().unwrap_or_default();
            listing = last.ends_with("dependencies");
            let parent = table.strip_suffix(last).unwrap_or_default();
            if parent.ends_with("dependencies.") {
                found.push(last.trim_matches('"').to_string());
            }
        } else if listing && !line.starts_with('#') {
            let name = line.split(['=', '.']).next().unwrap_or_default().trim();
            if !name.is_empty() && line.contains('=') {
                found.push(name.trim_matches('"').to_string());
            }
        }
        if let Some((_, real)) = line.split_once("package = \"").filter(|_| listing) {
            found.push(real.split('"').next().unwrap_or_default().to_string());
        }
    }
    found
}

/// Returns what is wrong with the dependencies of the crate `name`.
fn check_manifest(name: &str, manifest: &str) -> Vec<String> {
    dependencies(manifest)
        .iter()
        .filter_map(|dependency| {
            let is_base = [PAGE, DERIVE].contains(&dependency.as_str());
            let ours = dependency.starts_with("manycore") && !is_base;
            if ours && BASES.contains(&name) {
                Some(format!("{name} depends on {dependency}, which stands above it"))
            } else if ours && ON_LIBRARY_ALONE.contains(&name) && dependency != "manycore" {
                Some(format!("{name} depends on {dependency}: of ours it may use manycore alone"))
            } else if dependency == BENCH {
                Some(format!("{name} depends on {BENCH}: no crate may"))
            } else if is_rival(dependency) && ![BENCH, INSTRUCTIONS].contains(&name) {
                Some(format!("{name} depends on {dependency}: only {BENCH} names rivals"))
            } else {
                None
            }
        })
        .collect()
}

/// Returns rivals named in the code of a Rust file outside the benchmarks. Comments may name them:
/// a reader who knows one learns from that what ours is.
fn check_words(path: &str, source: &str) -> Vec<String> {
    tokens(&lex(source).code)
        .iter()
        .filter(|token| token.is_word() && is_rival(&token.text))
        .map(|token| format!("{path}:{}: names {}: only {BENCH} may", token.line, token.text))
        .collect()
}

/// Splits `crates/NAME/rest` into (NAME, rest).
fn in_crate(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix("crates/")?.split_once('/')
}

#[test]
fn crates_depend_only_downward() {
    let mut manifests = 0;
    let mut findings = Vec::new();
    for file in walk::files() {
        if let Some((name, "Cargo.toml")) = in_crate(&file.path) {
            manifests += 1;
            findings.extend(check_manifest(name, &file.text));
        }
    }
    assert!(manifests >= 3, "only {manifests} manifests found");
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

/// Returns the rows of a document's table of crates that do not say which of our crates a crate
/// depends on. `manifests` are crates with their manifests.
fn check_crates(document: &str, manifests: &[(&str, &str)]) -> Vec<String> {
    let names = |cell: &str| -> Vec<String> {
        let mut names: Vec<_> = cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        names.sort_unstable();
        names
    };
    let mut rows = document.lines().skip_while(|line| !line.starts_with("| Crate |"));
    rows.next();
    let rows: Vec<Vec<&str>> =
        rows.take_while(|row| row.starts_with('|')).map(|row| row.split('|').collect()).collect();
    let mut findings = Vec::new();
    for (name, manifest) in manifests {
        let mut ours = dependencies(manifest);
        ours.retain(|dependency| dependency.starts_with("manycore"));
        ours.sort_unstable();
        ours.dedup();
        match rows.iter().find(|row| names(row[1]) == [*name]) {
            None => findings.push(format!("{name} has no row")),
            Some(row) if names(row[3]) != ours => {
                findings.push(format!("{name} depends on {ours:?}, not on{}", row[3]));
            }
            Some(_) => {}
        }
    }
    if rows.len() != manifests.len() + 1 {
        findings.push(format!("{} rows for {} crates", rows.len() - 1, manifests.len()));
    }
    findings
}

#[test]
fn architecture_says_which_crate_depends_on_which() {
    let files = walk::files();
    let manifests: Vec<_> = files
        .iter()
        .filter_map(|file| match in_crate(&file.path) {
            Some((name, "Cargo.toml")) => Some((name, file.text.as_str())),
            _ => None,
        })
        .collect();
    let page = files.iter().find(|file| file.path == "ARCHITECTURE.md").expect("the document");
    assert_eq!(check_crates(&page.text, &manifests), Vec::<String>::new());

    let page =
        "| Crate | | Depends on |\n|---|---|---|\n| `a` | | none |\n| `b` | | `manycore` |\n";
    let uses = "[dependencies]\nmanycore.workspace = true";
    assert_eq!(check_crates(page, &[("a", "x"), ("b", uses)]), Vec::<String>::new());
    for wrong in [[("a", "x"), ("b", "x")], [("a", uses), ("b", uses)]] {
        assert_eq!(check_crates(page, &wrong).len(), 1);
    }
    assert_eq!(check_crates(page, &[("a", "x"), ("b", uses), ("c", "x")]).len(), 2);
    assert_eq!(check_crates(page, &[("a", "x")]).len(), 1);
}

#[test]
fn rivals_are_named_only_in_the_benchmarks() {
    let findings: Vec<String> = walk::rust_files()
        .iter()
        .filter(|f| {
            in_crate(&f.path).is_some_and(|(name, _)| ![BENCH, INSTRUCTIONS].contains(&name))
        })
        .flat_map(|f| check_words(&f.path, &f.text))
        .collect();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn every_kind_of_dependency_table_is_read() {
    let manifest = "[package]\nname = \"a\"\n[dependencies]\n# note = 1\nlibc = \"0.2\"\n\
        manycore.workspace = true\nlock = { package = \"parking_lot\", version = \"1\" }\n\
        [dev-dependencies]\nproptest = { version = \"1\" }\n\
        [target.'cfg(unix)'.build-dependencies]\ncc = \"1\"\n[dependencies.scc]\nversion = \"3\"\n\
        [features]\ndefault = []\n";
    let expected = ["libc", "manycore", "lock", "parking_lot", "proptest", "cc", "scc"];
    assert_eq!(dependencies(manifest), expected);
}

#[test]
fn wrong_dependencies_are_caught() {
    let cases = [
        ("manycore", "[dev-dependencies]\nmanycore-bench.workspace = true"),
        ("manycore-cache", "[dependencies]\nmanycore-bench = { path = \"../manycore-bench\" }"),
        ("manycore-cache", "[dev-dependencies]\nmanycore-sim.workspace = true"),
        ("manycore", "[dependencies]\ncrossbeam-utils = \"0.8\""),
        ("manycore-cli", "[dependencies]\nmanycore-bench.workspace = true"),
        ("manycore-cli", "[target.'cfg(unix)'.dependencies]\nparking_lot = \"0.12\""),
        ("manycore-sim", "[dependencies]\nmanycore.workspace = true"),
    ];
    for (name, manifest) in cases {
        assert_eq!(check_manifest(name, manifest).len(), 1, "{name}: {manifest}");
    }
    let rivals = "[dependencies]\nmanycore-cli.workspace = true\npapaya = \"0.2\"";
    assert_eq!(check_manifest(BENCH, rivals), Vec::<String>::new());
}

#[test]
fn rivals_in_code_and_comments_are_caught() {
    let named = check_words("a.rs", "use crossbeam_queue::SegQueue;\nscc::bag();\n");
    assert_eq!(named.len(), 2, "{named:?}");
    let harmless = "let success = \"scc\"; // as in scc\n";
    assert_eq!(check_words("a.rs", harmless), Vec::<String>::new());
}

/// Returns the crates below a manifest's line "The rivals". Leaves out optional crates, and other
/// versions of a crate already listed.
fn rivals(manifest: &str) -> impl Iterator<Item = &str> {
    let section = manifest.split_once("# The rivals.").map_or("", |(_, rest)| rest);
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let lines = lines.filter(|line| !line.starts_with('#') && !line.contains("optional = true"));
    lines
        .filter(|line| !line.contains("package ="))
        .filter_map(|line| Some(line.split_once(" = ")?.0))
}

/// Checks the rivals that a document counts and lists against a manifest's dependencies. The
/// document says "those of 2 rival crates among them: a and b."
fn check_count(text: &str, manifest: &str) -> Vec<String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some((count, names)) = text.split_once("those of ").and_then(|(_, rest)| {
        let (count, rest) = rest.split_once(" rival crates among them: ")?;
        Some((count.to_owned(), rest.split_once('.')?.0.replace(" and ", ", ")))
    }) else {
        return vec!["no list of rival crates".to_owned()];
    };
    let names: Vec<&str> = names.split(", ").collect();
    let ours = dependencies(manifest);
    let strangers = names.iter().filter(|name| !ours.iter().any(|own| own == *name));
    let mut findings: Vec<String> = strangers.map(|name| format!("{name} is no rival")).collect();
    if count.parse() != Ok(names.len()) {
        findings.push(format!("{count} rivals are announced, {} listed", names.len()));
    }
    let missing = rivals(manifest).filter(|rival| !names.contains(rival));
    findings.extend(missing.map(|name| format!("{name} is not listed")));
    findings
}

#[test]
fn virtual_cores_list_rivals_that_there_are() {
    let text = |path: &str| std::fs::read_to_string(walk::top().join(path)).expect("a file");
    let manifest = text(&format!("crates/{BENCH}/Cargo.toml"));
    assert_eq!(check_count(&text("docs/virtual-cores.md"), &manifest), Vec::<String>::new());
}

#[test]
fn wrong_lists_of_rivals_are_caught() {
    let manifest = "[dependencies]\na = \"1\"\nb = \"1\"\n";
    let check = |list: &str| check_count(&format!("x, those of {list}. y"), manifest);
    assert_eq!(check("2 rival\ncrates among them: a and b"), Vec::<String>::new());
    assert_eq!(check("3 rival crates among them: a and b"), ["3 rivals are announced, 2 listed"]);
    assert_eq!(check("2 rival crates among them: a and c"), ["c is no rival"]);
    assert_eq!(check("two").len(), 1);
    let manifest = format!(
        "{manifest}# The rivals.\nb = \"1\"\nc = \"2\"\n# Large.\n\
        d = {{ version = \"1\", optional = true }}\n[lints]\ne = 1"
    );
    let found = check_count("x, those of 2 rival crates among them: a and b. y", &manifest);
    assert_eq!(found, ["c is not listed"]);
}
