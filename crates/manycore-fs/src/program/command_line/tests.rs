//! Command lines that are taken, and those that are refused.

use super::*;

fn parsed(words: &str) -> Result<Command, clap::Error> {
    let words = std::iter::once("manycore-fs").chain(words.split_whitespace());
    Arguments::try_parse_from(words).map(|arguments| arguments.command)
}

#[test]
fn sizes_have_units_of_1024() {
    for (text, bytes) in
        [("1", 1), ("4096", 4096), ("1k", 1024), ("3M", 3 << 20), ("2GiB", 2 << 30)]
    {
        assert_eq!(size(text), Ok(bytes), "{text}");
    }
    for text in
        ["", "0", "0G", "G", "-1", "1.5G", "1X", "1MM", "99999999999999999999", "17179869184T"]
    {
        assert!(size(text).is_err(), "{text}");
    }
}

#[test]
fn options_of_the_command_that_runs_are_left_to_it() {
    let Ok(Command::Run(run)) = parsed("run --branch a --commit -- make -j --keep") else {
        panic!()
    };
    assert_eq!(run.branch.as_deref(), Some("a"));
    assert!(run.commit && !run.keep);
    assert_eq!(run.command, ["make", "-j", "--keep"]);
    let Ok(Command::Run(run)) = parsed("run ls -l --abort") else { panic!() };
    assert!(!run.abort);
    assert_eq!(run.command, ["ls", "-l", "--abort"]);
}

#[test]
fn contradictions_and_missing_words_are_refused() {
    for words in [
        "",
        "mount",
        "mount --threads 0 x",
        "mount --memory much x",
        "fork",
        "commit",
        "abort",
        "run",
        "run --keep --commit -- true",
        "unmount --mount a b",
        "list x",
    ] {
        assert!(parsed(words).is_err(), "{words}");
    }
}
