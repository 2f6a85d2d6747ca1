//! Helpers of this crate's loom models.

use loom::thread;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Runs `body` in every interleaving with up to this many preemptions.
pub(crate) fn model(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let body = Arc::new(body);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.max(Some(preemptions));
    builder.max_branches = 50_000;
    let orders = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&orders);
    builder.check(move || {
        counted.fetch_add(1, Relaxed);
        let body = Arc::clone(&body);
        thread::spawn(move || body()).join().unwrap();
        // The threads' locals use globals of the library, which must not be dropped before them.
        loom::stop_exploring();
        (0..100).for_each(|_| thread::yield_now());
    });
    let orders = orders.load(Relaxed);
    assert!(orders > 10, "the model ran in {orders} orders");
    println!("{orders} orders");
}

/// Runs `f` without a context switch, for setup that the model does not test.
pub(crate) fn unexplored<R>(f: impl FnOnce() -> R) -> R {
    loom::stop_exploring();
    let result = f();
    loom::explore();
    result
}

/// Runs a model again with a planted bug, and checks that it fails for the right reason.
pub(crate) fn must_catch(bug: &str, model: &str, signs: &[&str]) {
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", model, "--nocapture"])
        .env("MANYCORE_SEEDED_BUG", bug)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr) + String::from_utf8_lossy(&run.stdout);
    assert!(said.contains("running 1 test"), "{model} is no test:\n{said}");
    assert!(!run.status.success(), "{model} passes with the bug {bug} in place");
    assert!(signs.iter().any(|sign| said.contains(sign)), "another reason:\n{said}");
}
