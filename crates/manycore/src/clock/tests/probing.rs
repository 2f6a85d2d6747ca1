//! The experiment on this machine, and the judgement of its outcome.

use std::time::Duration;

use crate::clock::probe::{PairDelta, ProbeError, Progress, judge, pairs, quick};
use crate::clock::verdict::Probe;
use crate::clock::{Clock, Mode};
use crate::percpu::pin::{self, Pinned};
use crate::sync::thread;

fn delta(min_ticks: i64) -> PairDelta {
    PairDelta { from: 0, to: 1, min_ticks, rounds: 1 }
}

#[test]
fn every_pair_of_allowed_cpus_is_tried_both_ways() {
    let Ok(cpus) = pin::allowed() else { return };
    let mut steps = Vec::new();
    let deltas = match pairs(2_000, &mut |step| steps.push(step)) {
        Ok(deltas) => deltas,
        Err(ProbeError::NoCounter) => return,
        Err(error) => panic!("{error}"),
    };
    let total = cpus.len() * (cpus.len() - 1) / 2;
    assert_eq!(steps, (0..=total).map(|done| Progress { done, total }).collect::<Vec<_>>());
    assert!(deltas.is_sorted_by_key(|delta| (delta.from, delta.to)));
    for delta in &deltas {
        assert!(cpus.contains(&delta.from) && cpus.contains(&delta.to) && delta.from != delta.to);
        assert!((1..=2_000).contains(&delta.rounds), "{delta:?}");
        if Clock::detect().mode() == Mode::Synchronized {
            assert!(delta.min_ticks > 0, "the counters disagree: {delta:?}");
        }
    }
    // A pair may be missing only where other work kept its CPUs for all of its time.
    assert!(deltas.len() <= 2 * total);
    assert_eq!(pin::allowed().unwrap(), cpus, "the caller may run where it might before");
}

#[test]
fn one_cpu_has_no_pairs_and_proves_nothing() {
    let Ok(pinned) = pin::current_cpu().and_then(Pinned::to) else { return };
    match pairs(10, &mut |step| assert_eq!(step, Progress { done: 0, total: 0 })) {
        Ok(deltas) => assert_eq!(deltas, []),
        Err(error) => assert!(matches!(error, ProbeError::NoCounter), "{error}"),
    }
    assert!(matches!(quick(), Probe::Failed(_)), "no pair, no proof");
    drop(pinned);
}

#[test]
fn no_rounds_means_one() {
    if let (Ok(deltas), Ok(cpus)) = (pairs(0, &mut |_| ()), pin::allowed()) {
        // Few CPUs have seconds for each pair, so that none is missing.
        assert!(cpus.len() == 1 || cpus.len() > 16 || !deltas.is_empty());
        assert!(deltas.iter().all(|delta| delta.rounds == 1), "{deltas:?}");
    }
}

#[test]
fn quick_probe_is_quick_and_leaves_the_thread_free() {
    let before = pin::allowed().ok();
    // The least of a few tries: other tests run beside this one.
    let least = (0..20)
        .map(|_| {
            let start = std::time::Instant::now();
            let probe = quick();
            assert!(!matches!(probe, Probe::NotNeeded));
            start.elapsed()
        })
        .min()
        .unwrap();
    assert!(least < Duration::from_millis(50), "{least:?}");
    assert_eq!(pin::allowed().ok(), before);
}

#[test]
fn several_threads_may_probe_at_once() {
    thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| pairs(200, &mut |_| ()).map(|deltas| deltas.len()).ok());
        }
    });
}

#[test]
fn the_least_delta_decides() {
    assert!(matches!(
        judge(&[delta(80), delta(90), delta(70), delta(99)], 2),
        Probe::Clean { pairs: 2, min_ticks: 70 }
    ));
    assert!(matches!(judge(&[delta(80), delta(-5)], 1), Probe::Inverted { by_ticks: 5 }));
    assert!(matches!(judge(&[delta(80), delta(0)], 1), Probe::Inverted { by_ticks: 1 }));
    assert!(matches!(
        judge(&[delta(i64::MIN)], 1),
        Probe::Inverted { by_ticks: 0x8000_0000_0000_0000 }
    ));
    assert!(matches!(judge(&[delta(80), delta(90)], 2), Probe::Failed(_)), "a pair is missing");
    assert!(matches!(judge(&[], 1), Probe::Failed(_)));
    assert!(matches!(judge(&[], 0), Probe::Failed(_)));
}

#[test]
fn errors_name_the_cpu_and_the_cause() {
    let cause = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
    let error = ProbeError::Pin { cpu: 7, error: cause };
    assert!(error.to_string().starts_with("cannot keep a thread on CPU 7: "), "{error}");
    assert!(std::error::Error::source(&error).is_some());
}
