//! Requests to users that give memory back. Users' code runs with no lock held; `user` has the rule
//! that says which user is asked first.

use super::tree::{Short, Tree};
use super::user::{Callback, Rank, User};
use super::{BudgetTree, lock};
use crate::sync::{self, Backoff, Mutex, seeded_bug};
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

/// How often one charge asks a user that gives all that it is asked for, while others get it. Many
/// times, because each time another charge has succeeded. Not forever, because the user may lie.
const REQUESTS: u32 = 64;
/// Pauses of a charge that waits for calls in other threads: about five seconds in all, because a
/// call may write to a slow disk.
const PATIENCE: u32 = 50_000;

sync::thread_local! {
    /// Number of callbacks that this thread is in.
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}

fn is_inside() -> bool {
    INSIDE.try_with(|inside| inside.get() > 0).unwrap_or(false)
}

/// Next step of a charge that lacks credits.
enum Next {
    /// Call this user, which is marked as running, for this amount.
    Ask(Arc<User>, u64),
    /// Look again when this user's call in another thread is over.
    Wait(Arc<User>),
    GiveUp,
}

/// One charge's requests so far.
#[derive(Default)]
struct Round {
    asked: Vec<(Arc<User>, u32)>,
    pauses: u32,
}

impl Round {
    fn requests(&self, user: &Arc<User>) -> u32 {
        let found = self.asked.iter().find(|(asked, _)| Arc::ptr_eq(asked, user));
        found.map_or(0, |(_, requests)| *requests)
    }

    /// Chooses by the rule (budget.B6). The caller has the tree's lock.
    fn next(&self, tree: &mut Tree, short: Short) -> Next {
        let (mut best, mut running) = (None::<(Rank, Arc<User>)>, None);
        for user in tree.users.clone() {
            let recent = user.recent_uses();
            if !tree.is_below(user.level, short.level) || self.requests(&user) >= REQUESTS {
                continue;
            }
            // BUG: a user that is being asked is asked by another thread too (budget.B7).
            if user.is_running() && !seeded_bug!("reclaim-twice-at-once") {
                running = Some(user);
                continue;
            }
            let holds = tree.used(user.level);
            let rank = user.rank(holds, recent);
            if holds > 0 && best.as_ref().is_none_or(|(best, _)| rank.is_before(*best)) {
                best = Some((rank, user));
            }
        }
        match (best, running) {
            (Some((rank, user)), _) => {
                user.begin_call();
                Next::Ask(user, short.wanted(tree).min(rank.amount))
            }
            (None, Some(user)) => Next::Wait(user),
            (None, None) => Next::GiveUp,
        }
    }

    /// Calls the user. The caller gets its panic.
    fn ask(&mut self, user: Arc<User>, wanted: u64) {
        let running = Running::new(&user);
        let given = user.call(wanted);
        drop(running);
        // budget.B8: the answer decides only whether to ask again.
        let more = if given < wanted { REQUESTS } else { 1 };
        match self.asked.iter_mut().find(|(asked, _)| Arc::ptr_eq(asked, &user)) {
            Some((_, requests)) => *requests += more,
            None => self.asked.push((user, more)),
        }
    }

    /// Waits until the user's call is over. Returns false if the charge has waited for long enough,
    /// or may not wait (budget.B7).
    fn wait(&mut self, user: &User) -> bool {
        let mut backoff = Backoff::new();
        while user.is_running() {
            if is_inside() || self.pauses >= PATIENCE {
                return false;
            }
            self.pauses += 1;
            backoff.pause();
        }
        true
    }
}

/// A running call. Dropping this ends it, also after a panic.
struct Running<'u>(&'u User);

impl<'u> Running<'u> {
    fn new(user: &'u User) -> Self {
        let _ = INSIDE.try_with(|inside| inside.set(inside.get() + 1));
        Self(user)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = INSIDE.try_with(|inside| inside.set(inside.get() - 1));
        self.0.end_call();
    }
}

/// Attempts something that needs credits until it succeeds or no user gives any more.
pub(super) fn attempt<R>(
    tree: &Mutex<Tree>,
    mut once: impl FnMut(&mut Tree) -> Result<R, Short>,
) -> Result<R, Short> {
    let mut round = Round::default();
    loop {
        let (short, next) = {
            let mut tree = lock(tree);
            match once(&mut tree) {
                Ok(done) => return Ok(done),
                Err(short) => (short, round.next(&mut tree, short)),
            }
        };
        match next {
            Next::Ask(user, wanted) => round.ask(user, wanted),
            Next::Wait(user) if round.wait(&user) => (),
            Next::Wait(_) | Next::GiveUp => return Err(short),
        }
    }
}

/// A callback that a [`BudgetTree`] calls for memory, from [`BudgetTree::on_reclaim`]. Dropping
/// this unregisters it.
///
/// The drop waits for a call that runs in another thread, so that what the callback uses can be
/// freed afterwards. So do not drop it under a lock that the callback takes. Within a reclaim
/// callback, its own or another's, the drop does not wait: a call that runs at that moment goes on,
/// and is the last.
///
/// ```
/// use manycore::collections::BudgetTree;
/// use std::sync::{Arc, Mutex};
///
/// let process = BudgetTree::with_batch(100, 0);
/// let cache = process.child_with_batch(100, 0);
/// let buffers = Arc::new(Mutex::new(Vec::new()));
/// let reclaimer = cache.on_reclaim({
///     let buffers = Arc::clone(&buffers);
///     move |wanted| {
///         let mut given = 0;
///         while given < wanted && buffers.lock().unwrap().pop().is_some() {
///             given += 10; // the popped charge is dropped: that gives it back
///         }
///         given
///     }
/// });
/// for _ in 0..10 {
///     let charge = cache.charge(10)?;
///     buffers.lock().unwrap().push(charge);
/// }
/// let query = process.charge(25)?; // three buffers go
/// assert_eq!(buffers.lock().unwrap().len(), 7);
/// drop(reclaimer);
/// assert!(process.charge(25).is_err()); // and none now
/// # drop(query);
/// # Ok::<(), manycore::collections::Exceeded>(())
/// ```
#[must_use = "the callback is unregistered when this is dropped"]
pub struct Reclaimer {
    user: Arc<User>,
    budget: BudgetTree,
}

impl Reclaimer {
    pub(super) fn register(budget: BudgetTree, reclaim: Callback) -> Self {
        let user = Arc::new(User::new(budget.level.number, reclaim));
        lock(&budget.level.tree).users.push(Arc::clone(&user));
        Self { user, budget }
    }

    /// Notes that the memory was used `uses` times. The more a user holds for each of its recent
    /// uses, the sooner it is asked. A hit of a cache is a use.
    ///
    /// Cost: that of an addition to a [`Counter`](crate::collections::Counter).
    #[inline]
    pub fn note_uses(&self, uses: u64) {
        self.user.note_uses(uses);
    }

    /// Sets what the user may hold before others. While another user holds more than its own share,
    /// this one is asked only for what is beyond its share. Zero at first.
    pub fn set_share(&self, share: u64) {
        self.user.set_share(share);
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        if sync::model_failed() {
            return;
        }
        lock(&self.budget.level.tree).users.retain(|user| !Arc::ptr_eq(user, &self.user));
        // BUG: the drop does not wait for a call in another thread (budget.B9).
        if is_inside() || seeded_bug!("unawaited-reclaim") {
            return;
        }
        let mut backoff = Backoff::new();
        while self.user.is_running() {
            backoff.pause();
        }
    }
}

impl fmt::Debug for Reclaimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reclaimer").field("budget", &self.budget).finish_non_exhaustive()
    }
}
