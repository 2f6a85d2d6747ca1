//! Models of laws budget.B1, budget.B3, budget.B7 and budget.B9: charges beside releases and
//! stealing; reclaim calls beside each other and beside the end of their registration.

use super::BudgetTree;
use crate::percpu::loom_tests::{model, must_catch};
use crate::sync::{AtomicBool, AtomicU64, Ordering, thread};
use std::sync::Arc;

/// Two threads charge and give back; the model keeps its own count of what is charged.
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

/// Two threads charge what only the user can give; each gets its part, by calls in turn.
#[test]
fn loom_reclaim_serves_two_charges_by_one_call_at_a_time() {
    model(2, || {
        let top = BudgetTree::with_batch(2, 0);
        top.try_charge(2).unwrap();
        let is_inside = Arc::new(AtomicBool::new(false));
        let reclaimer = top.on_reclaim({
            let (own, is_inside) = (top.clone(), Arc::clone(&is_inside));
            move |wanted| {
                assert!(!is_inside.swap(true, Ordering::SeqCst), "a user is called twice at once");
                own.release(wanted);
                is_inside.store(false, Ordering::SeqCst);
                wanted
            }
        });
        let other = {
            let top = top.clone();
            thread::spawn(move || assert!(top.try_charge(1).is_ok(), "the user had enough"))
        };
        assert!(top.try_charge(1).is_ok(), "the user had enough");
        other.join().unwrap();
        drop(reclaimer);
        assert_eq!(top.used(), 2, "what was asked for twice is missing");
    });
}

#[test]
fn loom_user_that_is_called_twice_at_once_is_caught() {
    let test = "loom_reclaim_serves_two_charges_by_one_call_at_a_time";
    let test = format!("collections::budget::loom_tests::{test}");
    must_catch("reclaim-twice-at-once", &test, &["called twice at once"]);
}

/// After the registration is dropped, the callback is not running and is not called again.
#[test]
fn loom_unregistered_callback_is_not_running() {
    model(2, || {
        let top = BudgetTree::with_batch(1, 0);
        top.try_charge(1).unwrap();
        let is_gone = Arc::new(AtomicBool::new(false));
        let reclaimer = top.on_reclaim({
            let (own, is_gone) = (top.clone(), Arc::clone(&is_gone));
            move |wanted| {
                own.release(wanted);
                assert!(!is_gone.load(Ordering::SeqCst), "a callback runs behind its end");
                wanted
            }
        });
        let other = {
            let top = top.clone();
            thread::spawn(move || top.try_charge(1).is_ok())
        };
        drop(reclaimer);
        is_gone.store(true, Ordering::SeqCst);
        other.join().unwrap();
        assert_eq!(top.used(), 1, "either both or neither happened");
    });
}

#[test]
fn loom_unregistration_beside_a_call_is_caught() {
    let test = "collections::budget::loom_tests::loom_unregistered_callback_is_not_running";
    must_catch("unawaited-reclaim", test, &["runs behind its end"]);
}
