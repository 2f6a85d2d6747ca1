//! `manycore sim`: what it refuses, and how it says so. `ci/sim.sh` runs programs with it.

use std::process::{Command, Output};

fn sim(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_manycore"));
    command.arg("sim").args(arguments).output().expect("the command runs")
}

/// The command must refuse this with the exit code, in one line that contains `reason`.
fn refused(arguments: &[&str], code: i32, reason: &str) {
    let output = sim(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert!(said.contains(reason), "{arguments:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
}

#[test]
fn command_lines_without_sense_are_refused() {
    refused(&[], 2, "what to run is missing");
    refused(&["--machine", "pdp-11", "--", "x"], 2, "opteron-8x6");
    refused(&["--machine", "none.toml", "--", "x"], 2, "none.toml");
    refused(&["--cores", "0", "--", "x"], 2, "from 1 to");
    refused(&["--cores", "49", "--", "x"], 2, "--grow");
    refused(&["--set", "hit", "--", "x"], 2, "name=value");
    refused(&["--date", "2023-02-29", "--", "x"], 2, "1970-01-01 to 9999-12-31");
    refused(&["--set", "speed=9", "--", "x"], 2, "no parameter speed");
    // 1,056 cores of 8 MiB have more lines than the engine keeps.
    let large = ["--machine", "graviton4", "--set", "l2_kib=8192", "--grow", "--cores", "1024"];
    let large: Vec<&str> = large.into_iter().chain(["--", "x"]).collect();
    refused(&large, 2, "with 11 sockets (1056 cores), l2_kib is 8192; it must be from 0 to 3971");
    refused(&["--set", "hit=fast", "--", "x"], 2, "hit cannot be fast");
}

#[test]
#[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
fn unknown_program_and_unable_compiler_are_refused() {
    // A compiler that cannot instrument is refused before the name is looked for.
    let output = sim(&["--", "no-such-program"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(2) {
        assert!(said.contains("no-such-program") && said.lines().count() == 1, "{said}");
    } else {
        println!("skipped, this compiler cannot instrument: {said}");
    }
    let with_compiler = |compiler: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_manycore"));
        let output = command.args(["sim", "--", "x"]).env("RUSTC", compiler).output();
        let output = output.expect("the command runs");
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = with_compiler("no-such-compiler");
    assert!(said.contains("cannot run no-such-compiler"), "{said}");
    // A compiler that says what ours says, and then does nothing.
    let folder = tempfile::tempdir().expect("a folder");
    let fake = folder.path().join("rustc");
    let script = "#!/bin/sh\n[ \"$1\" = -vV ] || exec touch \"$5\"\n\
        echo 'rustc 1.0.0'\necho 'host: x86_64-unknown-linux-gnu'\n";
    std::fs::write(&fake, script).expect("a file");
    let runs = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&fake, runs).expect("a mode");
    let said = with_compiler(fake.to_str().expect("a path"));
    assert!(said.contains("__tsan_read8") && said.contains("rustc 1.0.0"), "{said}");
}
