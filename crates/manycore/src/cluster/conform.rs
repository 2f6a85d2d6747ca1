//! One test suite for all implementations of a family: each alone, and exchanged for each other
//! while the suite runs.
//!
//! Owns: which implementations run when. Source: the K42 paper names the concern, section 4.4: many
//! implementations of one interface, drifting apart.

use super::{Family, Swappable};
use std::sync::Arc;

/// Makes an empty implementation.
pub type Maker<'a, F> = (&'a str, &'a dyn Fn() -> Arc<F>);

/// Runs `suite` on every implementation of a family: on each by itself, and for each pair on an
/// object that is exchanged. That object goes from one implementation to the other, or back,
/// whenever the suite calls its second argument.
///
/// The suite asserts what the interface promises. It runs in the calling thread, and may start its
/// own threads that use the object concurrently; the second argument stays with the calling thread.
///
/// # Panics
/// If the suite panics. Prints with which implementations it did.
///
/// ```
/// use manycore::cluster::conform;
/// # manycore::family! {
/// #     /// A sum.
/// #     pub trait Sum moves u64;
/// #     /// A shared sum.
/// #     handle SharedSum;
/// #     calls { fn total(&self) -> u64; }
/// #     updates { fn add(&self, n: u64); }
/// # }
/// # use manycore::cluster::Family;
/// # use std::sync::{Arc, Mutex, atomic::{AtomicU64, Ordering::Relaxed}};
/// # #[derive(Default)] struct Locked(Mutex<u64>);
/// # impl Family for Locked {
/// #     type Part = u64;
/// #     fn export(&self, _: usize) -> u64 { self.total() }
/// #     fn import(&self, n: u64) { self.add(n) }
/// # }
/// # impl Sum for Locked {
/// #     fn add(&self, n: u64) { *self.0.lock().unwrap() += n }
/// #     fn total(&self) -> u64 { *self.0.lock().unwrap() }
/// # }
/// # #[derive(Default)] struct Atomic(AtomicU64);
/// # impl Family for Atomic {
/// #     type Part = u64;
/// #     fn export(&self, _: usize) -> u64 { self.total() }
/// #     fn import(&self, n: u64) { self.add(n) }
/// # }
/// # impl Sum for Atomic {
/// #     fn add(&self, n: u64) { self.0.fetch_add(n, Relaxed); }
/// #     fn total(&self) -> u64 { self.0.load(Relaxed) }
/// # }
/// conform::<dyn Sum>(
///     &[
///         ("locked", &|| Arc::new(Locked::default())),
///         ("atomic", &|| Arc::new(Atomic::default())),
///     ],
///     |sum, exchange| {
///         for n in 1..=4 {
///             sum.call(|sum| sum.add(n));
///             exchange();
///             assert_eq!(sum.call(|sum| sum.total()), n * (n + 1) / 2);
///         }
///     },
/// );
/// ```
pub fn conform<F: Family + ?Sized>(
    implementations: &[Maker<'_, F>],
    suite: impl Fn(&Swappable<F>, &mut dyn FnMut()),
) {
    for first in implementations {
        let running = Running(first.0, None);
        suite(&Swappable::new((first.1)()), &mut || ());
        drop(running);
        for second in implementations {
            let running = Running(first.0, Some(second.0));
            run_exchanged(first, second, &suite);
            drop(running);
        }
    }
}

fn run_exchanged<F: Family + ?Sized>(
    first: &Maker<'_, F>,
    second: &Maker<'_, F>,
    suite: &impl Fn(&Swappable<F>, &mut dyn FnMut()),
) {
    let object = Swappable::new((first.1)());
    let mut next = [second, first].into_iter().cycle();
    suite(&object, &mut || {
        let (name, make) = next.next().expect("a cycle has no end");
        if let Err(error) = object.swap(make()) {
            panic!("manycore: no exchange for {name}: {error}");
        }
    });
}

/// Prints which implementations ran, if the suite panics.
struct Running<'a>(&'a str, Option<&'a str>);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if crate::sync::panicking() {
            let Self(first, second) = self;
            match second {
                None => eprintln!("manycore: {first} does not conform"),
                Some(second) => eprintln!("manycore: {first} and {second} do not conform"),
            }
        }
    }
}
