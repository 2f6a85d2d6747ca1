//! The command from outside: what it prints, where, and with which exit code.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

const KEYS: [&str; 11] = [
    "bench", "impl", "ours", "threads", "params", "metric", "unit", "median", "min", "max",
    "repeats",
];

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_manycore-bench"));
    command.args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    command(args).output().expect("the command starts")
}

/// A short benchmark with these options added.
fn short(args: &[&str]) -> Vec<String> {
    let common = ["--duration", "3ms", "--repeat", "2", "--threads", "1,2"];
    ["bench"].iter().chain(args).chain(&common).map(|arg| (*arg).to_owned()).collect()
}

fn run_short(args: &[&str]) -> Output {
    let args = short(args);
    run(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is text")
}

/// A folder of the test's own.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the test's folder can be made");
    folder
}

#[test]
fn completions_and_the_manual_name_every_command() {
    for args in [&["completions", "bash"][..], &["completions", "zsh"], &["man"]] {
        let output = run(args);
        assert!(output.status.success(), "{args:?}");
        let said = text(&output.stdout);
        for command in ["tour", "bench", "workloads", "compare", "plot", "report"] {
            assert!(said.contains(command), "{args:?} does not name {command}");
        }
    }
    assert_eq!(run(&["completions", "tcsh"]).status.code(), Some(2));
}

#[test]
fn plot_draws_each_curve_and_refuses_what_is_not_in_the_file() {
    let folder = folder("plot");
    let csv = folder.join("list.csv");
    let rows = "list,a,true,1,kind=ours,throughput,pairs/ms,5,4,6,1\n\
                list,a,true,48,kind=ours,throughput,pairs/ms,9,4,6,1\n\
                list,b,false,1,kind=rival,throughput,pairs/ms,3,4,6,1\n";
    std::fs::write(&csv, format!("# machine\n{rows}")).unwrap();
    let (csv, out) = (csv.to_str().unwrap(), folder.join("list.svg"));
    let common = ["--heading", "A list", "--y", "pairs/ms", "--out", out.to_str().unwrap()];
    let output = run(&[&["plot", csv, "a=Ours & others", "b"][..], &common].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let picture = std::fs::read_to_string(&out).unwrap();
    assert!(picture.contains("Ours &amp; others") && picture.contains(", 48: 9.00"), "{picture}");
    assert_eq!(picture.matches("<polyline").count(), 2);
    let output = run(&[&["plot", csv, "c"][..], &common].concat());
    assert_refused(&output, 1, &["c", "throughput"]);
}

#[test]
fn report_keeps_a_page_that_it_cannot_read() {
    let folder = folder("report");
    let page = folder.join("page.md");
    fs::write(&page, b"\xff of another kind").unwrap();
    let at = |name: &str| folder.join(name).display().to_string();
    let (runs, html, markdown) = (at("runs"), at("page.html"), at("page.md"));
    let files = ["report", "--runs", &runs, "--html", &html, "--markdown", &markdown];
    let output = run(&[&files[..], &["--figures", "oplog-2"]].concat());
    assert_refused(&output, 1, &["cannot read", "page.md"]);
    assert_eq!(fs::read(&page).unwrap(), b"\xff of another kind");
}

/// Nothing on stdout, one line on stderr, this exit code.
#[track_caller]
fn assert_refused(output: &Output, code: i32, words: &[&str]) {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(words.iter().all(|word| error.contains(word)), "{error}");
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn json_has_the_machine_first_and_rows_with_exactly_the_keys() {
    let reads = &["--read-every", "never,10"][..];
    for (bench, own) in
        [("list", reads), ("coherence", &[]), ("map", &["--update", "0,50,100", "--keys", "1000"])]
    {
        let output = run_short(&[&[bench, "--format", "json"], own].concat());
        assert!(output.status.success(), "{bench}: {}", text(&output.stderr));
        let mut lines = BufReader::new(&output.stdout[..]).lines();
        let machine: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(machine["bench"], "machine");
        assert!(["cpu", "cores", "clock", "revision"].iter().all(|key| !machine[key].is_null()));
        let mut rows = 0;
        for line in lines {
            let row: Value = serde_json::from_str(&line.unwrap()).unwrap();
            let keys: Vec<_> = row.as_object().unwrap().keys().map(String::as_str).collect();
            let mut expected = KEYS;
            expected.sort_unstable();
            assert_eq!(keys, expected, "{row}");
            assert_eq!((&row["bench"], &row["repeats"]), (&bench.into(), &2.into()));
            let figure = |key: &str| row[key].as_f64().unwrap();
            assert!(0.0 <= figure("min") && figure("min") <= figure("median"), "{row}");
            assert!(figure("median") <= figure("max"), "{row}");
            rows += 1;
        }
        assert!(rows > 10, "{bench}: only {rows} rows");
    }
}

#[test]
fn the_one_thread_baseline_is_in_every_group() {
    let output =
        run_short(&["list", "--impl", "mutex", "--format", "json", "--read-every", "never,10"]);
    let rows: Vec<Value> = text(&output.stdout)
        .lines()
        .skip(1)
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    // Two thread counts, two reading rates; in each the lock and the baseline.
    assert_eq!(rows.len(), 8);
    for pair in rows.chunks(2) {
        assert_eq!((&pair[0]["impl"], &pair[0]["threads"]), (&"unshared".into(), &1.into()));
        assert_eq!(pair[1]["impl"], "mutex");
        assert_eq!(pair[0]["params"]["read_every"], pair[1]["params"]["read_every"]);
    }
}

#[test]
fn a_stalled_reader_is_measured_instead_of_the_other_passes() {
    let output = run_short(&["smr", "--impl", "rwlock", "--stall", "0.02", "--format", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows: Vec<Value> = text(&output.stdout)
        .lines()
        .skip(1)
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(!rows.is_empty() && rows.iter().all(|row| row["params"]["pass"] == "stall"));
    let stalled = |row: &&Value| row["impl"] == "rwlock" && row["metric"] == "rate-stalled";
    // A reader that holds the lock blocks all updates but one or two that had begun.
    assert!(rows.iter().filter(stalled).all(|row| row["median"].as_f64().unwrap() < 0.01));
    assert_eq!(rows.iter().filter(stalled).count(), 2);
}

#[test]
fn ours_chooses_ours_and_says_so() {
    for bench in ["list", "counter", "notify", "registry", "smr"] {
        let own = if bench == "smr" { &["--ops", "2000"][..] } else { &[] };
        let output = run_short(&[&[bench, "--impl", "ours", "--format", "json"], own].concat());
        let rows: Vec<Value> = text(&output.stdout)
            .lines()
            .skip(1)
            .map(|line| serde_json::from_str(line).unwrap())
            .filter(|row: &Value| row["params"]["kind"] != "baseline")
            .collect();
        assert!(!rows.is_empty() && rows.iter().all(|row| row["ours"] == true), "{bench}");
    }
}

#[test]
fn table_and_csv_start_with_a_comment_on_the_machine() {
    for format in ["table", "csv"] {
        let output = run_short(&["counter", "--impl", "atomic", "--format", format]);
        assert!(output.status.success());
        let out = text(&output.stdout);
        assert!(out.starts_with("# machine: ") && out.contains("; revision: "), "{out}");
        assert!(out.contains("atomic") && out.contains("unshared"), "{out}");
        assert_eq!(text(&output.stderr), "", "no progress bar without a terminal");
    }
}

#[test]
fn out_writes_the_whole_file_and_nothing_else() {
    let folder = folder("out");
    let file = folder.join("rows.csv");
    let path = file.to_str().unwrap();
    let rows = ["counter", "--impl", "atomic", "--format", "csv", "--read-every", "never,10"];
    let output = run_short(&[&rows[..], &["--out", path]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "");
    let lines = std::fs::read_to_string(&file).unwrap().lines().count();
    // Machine, names; 2 thread counts, 2 rates, 2 implementations, 2 metrics.
    assert_eq!(lines, 2 + 16);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn share_of_updates_is_a_read_after_so_many() {
    let shares = ["--update-pct", "50,75,85,99.9,100", "--format", "json"];
    let run_at = ["bench", "spawn", "--impl", "mutex", "--threads", "1", "--duration", "1ms"];
    let output = run(&[&run_at[..], &shares, &["--repeat", "1"]].concat());
    let every: Vec<_> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|row| row["impl"] == "mutex" && row["metric"] == "time")
        .map(|row| row["params"]["read_every"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(every, ["1", "3", "6", "999", "never"]);
    let both = run(&["bench", "spawn", "--read-every", "3", "--update-pct", "75"]);
    assert_refused(&both, 2, &["--read-every", "--update-pct"]);
}

#[test]
fn unknown_names_are_refused_with_the_valid_ones() {
    assert_refused(
        &run(&["bench", "list", "--impl", "mutex,nosuch"]),
        2,
        &["'nosuch'", "all", "ours", "mutex", "hand-sharded"],
    );
    assert_refused(&run(&["bench", "nosuch"]), 2, &["'nosuch'", "list", "registry"]);
    assert_refused(&run(&["bench"]), 2, &["WORKLOAD"]);
    assert_refused(&run(&["nosuch"]), 2, &["nosuch"]);
}

#[test]
fn bad_numbers_are_refused_in_one_line() {
    for (workload, option, value) in [
        ("list", "--threads", "0"),
        ("list", "--threads", "1,x"),
        ("list", "--threads", "-1"),
        ("list", "--read-every", "0"),
        ("list", "--update-pct", "49.9"),
        ("list", "--update-pct", "90,100.5"),
        ("list", "--update-pct", "nan"),
        ("list", "--repeat", "0"),
        ("list", "--duration", "0s"),
        ("list", "--duration", "soon"),
        ("list", "--spin", "9999999999999"),
        ("list", "--format", "xml"),
        ("smr", "--update", "101"),
        ("smr", "--update", "50,-1"),
        ("smr", "--update", "half"),
        ("smr", "--ops", "0"),
        ("smr", "--ops", "9999999999999"),
        ("smr", "--read", "all"),
        ("smr", "--stall", "0"),
        ("smr", "--stall", "1s"),
        ("smr", "--stall", "nan"),
        ("adaptive-sweep", "--share", "100.1"),
        ("adaptive-sweep", "--share", "-1"),
    ] {
        assert_refused(&run(&["bench", workload, option, value]), 2, &[option]);
    }
}

#[test]
fn options_of_other_workloads_are_refused_with_those_that_take_them() {
    let output = run(&["bench", "list", "--update", "50"]);
    assert_refused(&output, 2, &["list has no option '--update'", "map", "smr"]);
    let listed = text(&run(&["workloads", "--options"]).stdout);
    assert!(listed.contains("\nsmr stall\n") && !listed.contains("list update\n"), "{listed}");
}

#[test]
#[cfg(target_os = "linux")]
fn more_threads_than_the_system_allows_are_refused() {
    let output = run(&["bench", "list", "--threads", "10000000"]);
    assert_refused(&output, 1, &["10000000", "this system allows"]);
    let output = run(&["bench", "counter", "--threads", "1,18446744073709551615"]);
    assert_refused(&output, 1, &["18446744073709551615"]);
}

#[test]
fn a_closed_pipe_ends_the_run_in_silence() {
    let args = short(&["counter", "--impl", "atomic"]);
    let mut child = command(&args.iter().map(String::as_str).collect::<Vec<_>>())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    // The reader takes one line and goes, as `head -1` does.
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("# machine: "), "{first}");
    let output = child.wait_with_output().unwrap();
    let error = text(&output.stderr);
    assert_eq!((output.status.code(), &*error), (Some(141), ""));
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_ends_the_run_with_one_line() {
    let full = || Stdio::from(std::fs::File::options().write(true).open("/dev/full").unwrap());
    let args = short(&["counter", "--impl", "atomic"]);
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let output = command(&args).stdout(full()).stderr(Stdio::piped()).output().unwrap();
    assert_refused(&output, 1, &["standard output", "No space left"]);
    let output = run_short(&["counter", "--impl", "atomic", "--out", "/dev/full"]);
    assert_refused(&output, 1, &["/dev/full", "No space left"]);
    // A device must stay a device.
    assert!(!std::fs::metadata("/dev/full").unwrap().is_file());
}

#[test]
fn a_page_that_cannot_be_written_is_refused_before_measuring() {
    let folder = folder("page-refused");
    for path in [folder.join("missing").join("tour.html"), folder.clone()] {
        let output = run(&["tour", "--html", path.to_str().unwrap()]);
        assert_refused(&output, 1, &["cannot write"]);
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
#[cfg(unix)]
fn a_read_only_folder_is_refused_before_measuring() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder("read-only");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o555)).unwrap();
    if std::fs::write(folder.join("probe"), "").is_ok() {
        // The superuser may write everywhere: take a folder that the kernel itself keeps.
        let output = run(&["tour", "--html", "/proc/manycore-tour.html"]);
        return assert_refused(&output, 1, &["cannot write", "/proc/manycore-tour.html"]);
    }
    let page = folder.join("tour.html");
    let output = run(&["tour", "--html", page.to_str().unwrap()]);
    assert_refused(&output, 1, &["cannot write"]);
}

#[test]
#[cfg(target_os = "linux")]
fn a_page_on_a_full_disk_fails_after_the_tables() {
    let output = run(&["tour", "--budget", "300ms", "--html", "/dev/full"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.lines().count() == 1 && error.contains("No space left"), "{error}");
    assert!(text(&output.stdout).contains("A shared counter"));
}

#[test]
fn tour_leaves_a_page_in_the_current_folder() {
    let folder = folder("tour");
    // What was there before is replaced as a whole.
    std::fs::write(folder.join("manycore-tour.html"), "old".repeat(100_000)).unwrap();
    let output = command(&["tour", "--no-virtual", "--budget", "300ms"])
        .current_dir(&folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let out = text(&output.stdout);
    for words in
        ["# machine: ", "A shared list", "A shared counter", "times the best general rival"]
    {
        assert!(out.contains(words), "{words} not in {out}");
    }
    let page = std::fs::read_to_string(folder.join("manycore-tour.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert!(page.matches("<svg").count() >= 3 && page.contains("unshared"));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn help_names_every_workload_and_implementation() {
    let all = text(&run(&["bench", "--help"]).stdout);
    for (workload, words) in [
        ("list", "hand-sharded"),
        ("counter", "thread-local"),
        ("coherence", "fetch-add-private"),
        ("registry", "mutex-slab"),
    ] {
        assert!(all.contains(&format!("\n  {workload} ")), "{workload} not in {all}");
        let out = text(&run(&["bench", workload, "--help"]).stdout);
        assert!(out.contains(words) && out.contains("Usage"), "{words} not in {out}");
        assert!(!out.contains("--trace"), "an option of another workload in {out}");
    }
}

#[test]
fn trace_is_run_through_and_a_bad_line_is_told() {
    let folder = folder("trace");
    let (good, bad) = (folder.join("good"), folder.join("bad"));
    // Each of 500 keys ten times in a row: nine of ten gets hit, however little there is room for.
    let requests: String = (0..5_000).map(|n| format!("get key{}\n", n / 10)).collect();
    std::fs::write(&good, requests).unwrap();
    std::fs::write(&bad, "get a\nget b\nfetch c\n").unwrap();
    let [good, bad] = [&good, &bad].map(|path| path.to_str().unwrap());
    let common = ["kv", "--impl", "cache,quick_cache", "--format", "json", "--trace"];
    let output = run_short(&[&common[..], &[good]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut hits = 0;
    for line in text(&output.stdout).lines().skip(1) {
        let row: Value = serde_json::from_str(line).unwrap();
        if row["metric"] == "hits" && row["params"]["order"] == "trace" && row["threads"] == 1 {
            assert_eq!(row["median"], 90.0, "{line}");
            hits += 1;
        }
    }
    assert!(hits >= 4, "two caches, two capacities: {hits}");
    assert_refused(&run_short(&[&common[..], &[bad]].concat()), 2, &["line 3", "'fetch'"]);
    assert_refused(&run_short(&[&common[..], &["no-such-file"]].concat()), 2, &["--trace"]);
}
