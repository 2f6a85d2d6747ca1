//! Which clock is chosen on which machine: every combination of facts, and this machine.

use std::path::Path;
use std::process::Command;

use super::Random;
use crate::clock::verdict::{Facts, Probe, Request, VARIABLE, Verdict, decide};
use crate::clock::{Clock, FakeClock, Mode, detect};

/// A bare-metal server of today.
fn server() -> Facts {
    Facts {
        request: None,
        instruction: Some("rdtscp"),
        readable: true,
        invariant: true,
        architected: false,
        trusted_clocksource: "tsc",
        clocksource: Some("tsc".to_owned()),
        nominal_hz: None,
        hypervisor: false,
        read_ns: Some(15.0),
        probe: Probe::NotNeeded,
    }
}

const BOUNDED: fn(u64) -> Mode = |skew_ticks| Mode::Bounded { skew_ticks };

#[test]
fn each_kind_of_machine_gets_its_mode_and_a_reason() {
    let clean = Probe::Clean { pairs: 3, min_ticks: 90 };
    let container = || Facts { clocksource: None, probe: clean.clone(), ..server() };
    let arm = || Facts { architected: true, trusted_clocksource: "arch_sys_counter", ..server() };
    let arm_file = Some("arch_sys_counter".to_owned());
    let cases = [
        ("server", server(), Mode::Synchronized, "clocksource tsc"),
        ("guest", Facts { hypervisor: true, ..server() }, Mode::Synchronized, "virtual machine"),
        ("no counter", Facts { instruction: None, ..server() }, Mode::Counter, "no hardware"),
        ("forbidden", Facts { readable: false, ..server() }, Mode::Counter, "forbidden"),
        ("old", Facts { invariant: false, ..server() }, Mode::Counter, "not invariant"),
        ("emulated", Facts { read_ns: Some(2e3), ..server() }, Mode::Counter, "emulated"),
        (
            "distrusted",
            Facts { clocksource: Some("hpet".into()), ..server() },
            Mode::Counter,
            "hpet",
        ),
        ("container", container(), Mode::Synchronized, "no inversion on 3 pairs"),
        (
            "container, apart",
            Facts { probe: Probe::Inverted { by_ticks: 40 }, ..container() },
            BOUNDED(80),
            "40 ticks apart",
        ),
        (
            "container, far apart",
            Facts { probe: Probe::Inverted { by_ticks: 1 << 40 }, ..container() },
            Mode::Counter,
            "ticks apart",
        ),
        (
            "container, one CPU",
            Facts { probe: Probe::Failed("one CPU".into()), ..container() },
            Mode::Counter,
            "one CPU",
        ),
        ("arm", Facts { clocksource: arm_file, ..arm() }, Mode::Synchronized, "arch_sys_counter"),
        ("arm, no file", Facts { clocksource: None, ..arm() }, Mode::Synchronized, "architecture"),
        (
            "arm, 24 MHz",
            Facts { clocksource: None, nominal_hz: Some(24_000_000), ..arm() },
            BOUNDED(0),
            "a tick lasts 41 ns",
        ),
    ];
    for (name, facts, mode, reason) in cases {
        let verdict = decide(&facts);
        assert_eq!(verdict.mode, mode, "{name}: {verdict}");
        assert!(verdict.reasons.iter().any(|r| r.contains(reason)), "{name}: {verdict}");
    }
}

#[test]
fn the_user_overrules_all_but_what_cannot_be() {
    let with =
        |request: &str, facts: Facts| decide(&Facts { request: Some(request.into()), ..facts });
    let old = || Facts { invariant: false, ..server() };
    let blind = || Facts { readable: false, ..server() };
    let coarse = || Facts { nominal_hz: Some(24_000_000), ..server() };
    for (request, facts, mode) in [
        ("tsc", old(), Mode::Synchronized),
        ("tsc", blind(), Mode::Counter),
        ("tsc", coarse(), BOUNDED(0)),
        ("counter", server(), Mode::Counter),
        ("counter", blind(), Mode::Counter),
        ("bounded:500", old(), BOUNDED(500)),
        ("bounded:0", server(), BOUNDED(0)),
        ("bounded:500", blind(), Mode::Counter),
        (" bounded:500\n", server(), BOUNDED(500)),
        ("", server(), Mode::Synchronized),
        ("sundial", server(), Mode::Synchronized),
        ("sundial", old(), Mode::Counter),
    ] {
        let verdict = with(request, facts);
        assert_eq!(verdict.mode, mode, "{request}: {verdict}");
        let told = verdict.reasons[0].contains(VARIABLE);
        assert_eq!(told, !request.is_empty(), "{request}: {verdict}");
    }
    let verdict = with("sun\ndial\u{1b}[31m", server());
    assert!(!verdict.reasons[0].contains(['\n', '\u{1b}']), "{:?}", verdict.reasons[0]);
}

#[test]
fn wishes_parse_or_say_what_was_expected() {
    for (text, request) in [
        ("tsc", Ok(Request::Tsc)),
        (" counter ", Ok(Request::Counter)),
        ("bounded:0", Ok(Request::Bounded(0))),
        ("bounded:1073741824", Ok(Request::Bounded(1 << 30))),
        ("bounded:1073741825", Err("beyond")),
        ("bounded:18446744073709551616", Err("expected")),
        ("bounded:-1", Err("expected")),
        ("bounded:", Err("expected")),
        ("bounded", Err("expected")),
        ("bounded:12 ticks", Err("expected")),
        ("TSC", Err("expected")),
        ("tsc,counter", Err("expected")),
        ("\u{fffd}", Err("expected")),
    ] {
        match (Request::parse(text), request) {
            (Ok(parsed), Ok(request)) => assert_eq!(parsed, request, "{text:?}"),
            (Err(problem), Err(part)) => assert!(problem.contains(part), "{text:?}: {problem}"),
            (parsed, request) => panic!("{text:?}: {parsed:?}, not {request:?}"),
        }
    }
}

/// Calls `check` with every combination of facts.
fn for_all(mut check: impl FnMut(&Facts)) {
    let probes = [
        Probe::NotNeeded,
        Probe::Clean { pairs: 1, min_ticks: 1 },
        Probe::Inverted { by_ticks: 1 },
        Probe::Inverted { by_ticks: u64::MAX },
        Probe::Failed("x".to_owned()),
    ];
    let requests = [None, Some("tsc"), Some("counter"), Some("bounded:7"), Some("?")];
    let sources = [None, Some("tsc"), Some("kvm-clock")];
    let rates = [None, Some(0), Some(1_000_000), Some(2_600_000_000)];
    for bits in 0..64_u32 {
        let bit = |index: u32| bits >> index & 1 != 0;
        for request in requests {
            for source in sources {
                for nominal_hz in rates {
                    for probe in &probes {
                        check(&Facts {
                            request: request.map(str::to_owned),
                            instruction: bit(0).then_some("rdtscp"),
                            readable: bit(1),
                            invariant: bit(2),
                            architected: bit(3),
                            trusted_clocksource: "tsc",
                            clocksource: source.map(str::to_owned),
                            nominal_hz,
                            hypervisor: bit(4),
                            read_ns: Some(if bit(5) { 15.0 } else { 1_500.0 }),
                            probe: probe.clone(),
                        });
                    }
                }
            }
        }
    }
}

#[test]
fn no_combination_of_facts_breaks_the_laws_of_the_choice() {
    let mut seen = [0; 3];
    for_all(|facts| {
        let verdict = decide(facts);
        let context = format!("{facts:?}\n{verdict}");
        let can_read = facts.instruction.is_some() && facts.readable;
        let sound = can_read && facts.invariant && facts.read_ns < Some(100.0);
        let asked = matches!(facts.request.as_deref(), Some("tsc" | "bounded:7"));
        let vouched = match facts.clocksource.as_deref() {
            Some(name) => name == "tsc",
            None => facts.architected || matches!(facts.probe, Probe::Clean { .. }),
        };
        assert!(!verdict.reasons.is_empty(), "{context}");
        match verdict.mode {
            Mode::Synchronized => {
                seen[0] += 1;
                assert!(can_read && (asked || sound && vouched), "{context}");
                assert_ne!(facts.request.as_deref(), Some("bounded:7"), "{context}");
                assert!(facts.nominal_hz.is_none_or(|hertz| hertz >= 1 << 29), "{context}");
            }
            Mode::Bounded { skew_ticks } => {
                seen[1] += 1;
                assert!(can_read && (asked || sound), "{context}");
                assert_eq!(
                    facts.request.as_deref() == Some("bounded:7"),
                    skew_ticks == 7,
                    "{context}"
                );
                assert!(skew_ticks < 1 << 20, "{context}");
            }
            Mode::Counter => {
                seen[2] += 1;
                assert!(!can_read || !asked, "{context}");
                assert_eq!(verdict.instruction, "fetch_add on one shared word", "{context}");
            }
            Mode::Fake { .. } => panic!("{context}"),
        }
        if facts.request.as_deref() == Some("counter") {
            assert_eq!(verdict.mode, Mode::Counter, "{context}");
        }
        if facts.request.as_deref() == Some("?") {
            let unasked = decide(&Facts { request: None, ..facts.clone() });
            assert_eq!(verdict.mode, unasked.mode, "{context}");
        }
    });
    assert!(seen.iter().all(|&count| count > 100), "{seen:?}");
}

#[test]
fn missing_clocksource_file_is_told_and_the_probe_decides() {
    let nowhere = Path::new("/nonexistent/manycore");
    assert_eq!(detect::clocksource(nowhere), None);
    let facts = detect::facts(nowhere, None);
    let verdict = decide(&facts);
    assert_eq!(verdict.clocksource, None);
    if facts.instruction.is_some() && facts.invariant && !facts.architected {
        assert!(!matches!(facts.probe, Probe::NotNeeded), "{facts:?}");
        assert!(verdict.reasons.iter().any(|r| r.contains("does not name")), "{verdict}");
        assert!(verdict.reasons.iter().any(|r| r.contains("quick probe")), "{verdict}");
    }
}

#[test]
fn clocksource_file_is_read_and_garbage_in_it_is_not_trusted() {
    let root = std::env::temp_dir().join(format!("manycore-clocksource-{}", std::process::id()));
    let file = root.join("clocksource/clocksource0/current_clocksource");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    for (text, name) in [
        (&b"tsc\n"[..], Some("tsc")),
        (b"", None),
        (b"\n", None),
        (b"\xff\xfe", None),
        (b"tsc2\n", Some("tsc2")),
    ] {
        std::fs::write(&file, text).unwrap();
        assert_eq!(detect::clocksource(&root).as_deref(), name);
    }
    std::fs::remove_dir_all(&root).unwrap();
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[test]
fn thread_that_may_not_read_the_counter_counts() {
    let set = |state: libc::c_int| {
        // SAFETY: sets a flag of the calling thread; no memory is passed.
        unsafe { libc::prctl(libc::PR_SET_TSC, state) }
    };
    // On a thread of its own, because the flag is the thread's. Nothing in between may ask for the
    // time: where the kernel reads it from the counter, that would be fatal too.
    let (result, verdict) = crate::sync::thread::spawn(move || {
        let result = set(libc::PR_TSC_SIGSEGV);
        let verdict = detect::verdict();
        let clock = Clock::bounded(10);
        assert!(result != 0 || clock.mode() == Mode::Counter);
        let first = clock.stamp();
        assert!(first < clock.cut());
        set(libc::PR_TSC_ENABLE);
        (result, verdict)
    })
    .join()
    .unwrap();
    if result == 0 {
        assert_eq!(verdict.mode, Mode::Counter);
        assert!(verdict.reasons.iter().any(|r| r.contains("forbidden")), "{verdict}");
    }
}

fn check_text(verdict: &Verdict) {
    let text = verdict.to_string();
    for label in ["mode:", "read by:", "invariant:", "clocksource:", "hypervisor:", "because:"] {
        assert_eq!(text.lines().filter(|line| line.starts_with(label)).count().min(1), 1, "{text}");
    }
    assert!(text.lines().all(|line| line.len() > 15 && !line.ends_with(' ')), "{text}");
}

#[test]
fn verdicts_of_real_clocks_are_complete() {
    let system = Clock::system();
    let verdict = system.verdict();
    check_text(&verdict);
    assert_eq!(verdict.mode, system.mode());
    assert!(verdict.read_ns.is_some_and(|ns| ns > 0.1 && ns < 1e5), "{verdict}");
    assert_eq!(
        verdict.frequency_hz.is_some(),
        verdict.instruction.contains("cntvct") || verdict.instruction.contains("rdtsc")
    );
    for clock in [Clock::counter(), Clock::bounded(5), Clock::fake(&FakeClock::new(), 3)] {
        let verdict = clock.verdict();
        check_text(&verdict);
        assert_eq!(verdict.mode, clock.mode());
        assert_eq!(verdict.reasons, ["chosen by the program"]);
    }
    assert_eq!(Clock::counter().verdict().frequency_hz, None);
}

/// Where [`the_environment_decides_in_a_fresh_process`] tells its child what to find.
const EXPECTED: &str = "MANYCORE_TEST_CLOCK_EXPECTED";

#[test]
fn system_clock_is_as_the_parent_process_expects() {
    let Ok(expected) = std::env::var(EXPECTED) else { return };
    let verdict = Clock::system().verdict();
    assert!(verdict.to_string().contains(&expected), "expected {expected:?} in\n{verdict}");
}

#[test]
fn the_environment_decides_in_a_fresh_process() {
    let test = "clock::tests::decision::system_clock_is_as_the_parent_process_expects";
    let run = |request: &str, expected: &str| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test])
            .env(VARIABLE, request)
            .env(EXPECTED, expected)
            .output()
            .unwrap()
    };
    let mut cases = vec![("counter", "mode:          counter"), ("moon", "moon ignored: expected")];
    if matches!(Clock::bounded(9).mode(), Mode::Bounded { .. }) {
        cases.push(("bounded:9", "mode:          bounded by 9 ticks"));
    }
    for (request, expected) in cases {
        let output = run(request, expected);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        assert!(text.contains("1 passed"), "{text}");
    }
    assert!(!run("counter", "no such text").status.success(), "the child really looks");
}

#[test]
fn any_text_in_the_environment_is_survived() {
    let mut random = Random(17);
    let alphabet: Vec<_> = "tscounterbded:0123456789-+ \n\u{e9}".chars().collect();
    let mut understood = 0;
    for _ in 0..20_000 {
        let mut text = if random.below(2) == 0 { "bounded:".to_owned() } else { String::new() };
        for _ in 0..random.below(8) {
            text.push(alphabet[random.below(alphabet.len() as u64) as usize]);
        }
        let verdict = decide(&Facts { request: Some(text.clone()), ..server() });
        understood += u32::from(Request::parse(&text).is_ok());
        assert!(!verdict.reasons.is_empty(), "{text:?}");
    }
    assert!(understood > 10, "{understood}");
}
