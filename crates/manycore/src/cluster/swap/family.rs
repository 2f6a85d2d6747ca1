//! The contract between implementations of one interface.

/// Implementations that can replace each other in a [`Swappable`](super::Swappable): an interface,
/// with implementations that agree on what is transferred from one to the next.
///
/// Usually it is a supertrait of the interface, and so each implementation implements it; `dyn
/// Interface` is the family then. All agree on [`Part`](Self::Part), so no exchange fails for lack
/// of a common form. [`family!`](crate::family) generates interface and handle.
///
/// ```
/// use manycore::cluster::{Family, Swappable};
/// use std::sync::{Arc, Mutex, atomic::{AtomicU64, Ordering::Relaxed}};
///
/// trait Count: Family<Part = u64> {
///     fn add(&self, n: u64);
///     fn total(&self) -> u64;
/// }
///
/// #[derive(Default)]
/// struct Locked(Mutex<u64>);
/// impl Family for Locked {
///     type Part = u64;
///     fn export(&self, _part: usize) -> u64 { self.total() }
///     fn import(&self, total: u64) { self.add(total) }
/// }
/// impl Count for Locked {
///     fn add(&self, n: u64) { *self.0.lock().unwrap() += n }
///     fn total(&self) -> u64 { *self.0.lock().unwrap() }
/// }
///
/// #[derive(Default)]
/// struct Atomic(AtomicU64);
/// impl Family for Atomic {
///     type Part = u64;
///     fn export(&self, _part: usize) -> u64 { self.total() }
///     fn import(&self, total: u64) { self.add(total) }
/// }
/// impl Count for Atomic {
///     fn add(&self, n: u64) { self.0.fetch_add(n, Relaxed); }
///     fn total(&self) -> u64 { self.0.load(Relaxed) }
/// }
///
/// let count: Swappable<dyn Count> = Swappable::new(Arc::new(Locked::default()));
/// count.call(|count| count.add(3));
/// count.swap(Arc::new(Atomic::default())).unwrap();
/// assert_eq!(count.call(|count| count.total()), 3);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no family of implementations that can be exchanged",
    label = "lacks `Family`",
    note = "declare the interface with `manycore::family!`, which implements it for `dyn Trait`"
)]
pub trait Family: Send + Sync + 'static {
    /// The state transferred from one implementation to the next, in one or several pieces. Several
    /// threads may move pieces between the same two implementations at once.
    type Part;

    /// Returns how many pieces there are to move now. More than one pays if much is to be copied:
    /// threads that wait for the exchange help. Zero: nothing to move.
    fn parts(&self) -> usize {
        1
    }

    /// Returns the piece with this number, as a copy: if the exchange fails, this implementation
    /// stays in use.
    ///
    /// No other thread calls the implementation during the transfer, except helpers that export
    /// other pieces. It must not call exchangeable objects.
    fn export(&self, part: usize) -> Self::Part;

    /// Adds a piece. No thread calls this implementation before the last piece is in. It must not
    /// call exchangeable objects.
    fn import(&self, part: Self::Part);
}
