//! Models of laws budget.B1 and budget.B3: charges beside releases and stealing.

use super::BudgetTree;
use crate::percpu::loom_tests::{model, must_catch};
use crate::sync::{AtomicU64, Ordering, thread};
use std::sync::Arc;

/// Two threads charge and give back; the model's own count knows what is charged.
#[test]
fn loom_budget_limit_is_not_passed_and_nothing_is_lost() {
    model(2, || {
        let shared = Arc::new((BudgetTree::with_batch(3, 1), AtomicU64::new(0)));
        let charge = |shared: &(BudgetTree, AtomicU64)| {
            let (budget, charged) = shared;
            if budget.try_charge(2).is_ok() {
                let sum = charged.fetch_add(2, Ordering::SeqCst) + 2;
                assert!(sum <= 3, "more is charged than the limit");
                charged.fetch_sub(2, Ordering::SeqCst);
                budget.release(2);
            }
        };
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || charge(&shared))
        };
        charge(&shared);
        other.join().unwrap();
        assert_eq!(shared.0.used(), 0, "credits were lost");
        assert!(shared.0.try_charge(3).is_ok(), "credits were lost");
        assert!(shared.0.try_charge(1).is_err(), "there are more credits than the limit");
    });
}

/// Credits that one thread puts back while another collects them.
#[test]
fn loom_stock_emptied_in_two_steps_is_caught() {
    let test = "loom_budget_limit_is_not_passed_and_nothing_is_lost";
    let test = format!("collections::budget::loom_tests::{test}");
    let signs = ["more credits than the limit", "more is charged", "credits were lost"];
    must_catch("torn-stock", &test, &signs);
}
