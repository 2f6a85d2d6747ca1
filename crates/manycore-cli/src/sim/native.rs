//! Instrumentation of C and C++ in a project's dependencies. The system's compiler instruments
//! them, if their build scripts take its flags from the variables that the crate `cc` reads.
//!
//! Owns: those variables. The compiler is tried out first, like Rust's compiler. If it can't
//! instrument, C code stays uninstrumented, and the runtime counts how much of it runs.

use std::process::Command;

use super::toolchain::{TARGET, missing};

/// The flags for the passes that Rust code gets, too: calls at each access, atomic operation,
/// function and block.
const FLAGS: &str = "-fsanitize=thread -fsanitize-coverage=trace-pc";

const PROBE: &str = "long probe(long *from, long n, long *to) {\n\
    for (long at = 0; at < n; at++) to[at] = __atomic_fetch_add(from + at, 1, __ATOMIC_RELAXED);\n\
    return from[n] + to[n];\n}\n";

/// Returns the names that `cc` looks for. The first existing name counts.
fn names(of: &str) -> [String; 4] {
    let target = TARGET.replace('-', "_");
    // The target is the platform that it is built on, which the crate calls `HOST`.
    [format!("{of}_{TARGET}"), format!("{of}_{target}"), format!("HOST_{of}"), of.to_owned()]
}

fn variable(of: &str) -> Option<String> {
    names(of).iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

/// Makes build scripts instrument what they compile. Returns the reason if they can't.
pub(crate) fn instrument(cargo: &mut Command) -> Result<(), String> {
    let compiler = variable("CC").unwrap_or_else(|| "cc".to_owned());
    probe(&compiler)?;
    for of in ["CFLAGS", "CXXFLAGS"] {
        let own = variable(of).unwrap_or_default();
        cargo.env(&names(of)[0], format!("{own} {FLAGS}").trim_start());
    }
    Ok(())
}

fn probe(compiler: &str) -> Result<(), String> {
    let said = |error: std::io::Error| format!("{compiler}: {error}");
    let folder = tempfile::tempdir().map_err(said)?;
    let (source, object) = (folder.path().join("probe.c"), folder.path().join("probe.o"));
    std::fs::write(&source, PROBE).map_err(said)?;
    let mut parts = compiler.split_whitespace();
    let mut command = Command::new(parts.next().unwrap_or("cc"));
    command.args(parts).args(FLAGS.split(' ')).args(["-O2", "-c", "-o"]).args([&object, &source]);
    let output = command.output().map_err(said)?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{compiler}: {}", text.lines().next().unwrap_or("it fails")));
    }
    let found = missing(&std::fs::read(&object).map_err(said)?);
    if found.is_empty() { Ok(()) } else { Err(format!("{compiler}: no {}", found.join(", "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_come_behind_the_user_s_in_the_variable_that_counts() {
        let mut cargo = Command::new("cargo");
        match instrument(&mut cargo) {
            Ok(()) => {
                let all: Vec<_> = cargo.get_envs().collect();
                assert_eq!(all.len(), 2);
                for (name, value) in all {
                    let value = value.expect("a value").to_string_lossy();
                    assert!(name.to_string_lossy().ends_with(TARGET) && value.ends_with(FLAGS));
                }
            }
            Err(reason) => eprintln!("skipped, no C compiler that can instrument: {reason}"),
        }
        assert!(probe("no-such-compiler").is_err());
    }
}
