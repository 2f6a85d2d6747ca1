//! Queues of members: many threads push, and one thread takes everything.
//!
//! Owns: [`Stack`], and the choice between one stack for all threads and one for each slot.
//!
//! Laws:
//! - queue.Q1 The thread that made a member queued pushes it (ldu_word.M1 of `word`), and no other
//!   thread does until a drain has let the member go. So a member is in one stack at most, and
//!   `next` has one writer.
//! - queue.Q2 The order of a stack means nothing: the words say what is to be done.
//! - queue.Q3 If a slot's stack is not empty, its dirty bit is set, or the push is still under way.
//!   The drain clears the bit before it empties the stack.
//!
//! Source: LDU, section 2.4.1 (the queue), 2.5.3 (per-core queues).

use super::links::Links;
use crate::percpu::dirty::DirtyTable;
use crate::percpu::segmented::Segmented;
use crate::percpu::{self, barrier};
use crate::sync::{AtomicPtr, AtomicU64, Ordering};
use std::ptr::{self, NonNull};

/// A stack of members that link to each other.
#[repr(align(128))]
pub(super) struct Stack {
    head: AtomicPtr<Links>,
    /// Number of members pushed so far.
    pushed: AtomicU64,
    /// The value of `pushed` when the stack was last emptied.
    taken: AtomicU64,
    /// When the first of these members was pushed, in raw ticks; kept up only if there is a time
    /// bound.
    pub(super) since: AtomicU64,
}

impl From<usize> for Stack {
    fn from(_: usize) -> Self {
        Self {
            head: AtomicPtr::new(ptr::null_mut()),
            pushed: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            since: AtomicU64::new(0),
        }
    }
}

/// The outcome of a push.
pub(super) struct Pushed {
    /// True if the stack was empty.
    first: bool,
    /// About how many members are in the stack.
    pub(super) len: u64,
}

impl Stack {
    /// # Safety
    /// queue.Q1: the caller made the member queued, and its memory lives until a drain lets it go.
    #[inline(always)]
    unsafe fn push(&self, links: NonNull<Links>, shared: bool) -> Pushed {
        // SAFETY: queue.Q1 - the caller promises that the member lives until a drain has let it go
        // (# Safety). No drain can before the CAS below, and `next` is not used after that.
        let next = unsafe { &(*links.as_ptr()).next };
        // ORDER: Relaxed; the CAS decides. (For loom a guess, as in `Links::load_for_change`.)
        let mut head =
            if cfg!(manycore_loom) { ptr::null_mut() } else { self.head.load(Ordering::Relaxed) };
        loop {
            // ORDER: Relaxed; shown by the CAS.
            next.store(head, Ordering::Relaxed);
            // ORDER: AcqRel; Release pairs with the Acquire of `take`: `next` before the head. The
            // Acquire is for ldu.U6: a push after a drain has found the epoch that the drain
            // raised.
            match self.head.compare_exchange_weak(
                head,
                links.as_ptr(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        debug_assert!(head != links.as_ptr(), "queue.Q1: a member is pushed twice");
        // ORDER: Relaxed (all); an estimate. In a slot's stack, `pushed` has one writer.
        let pushed = if shared {
            self.pushed.fetch_add(1, Ordering::Relaxed) + 1
        } else {
            let pushed = self.pushed.load(Ordering::Relaxed) + 1;
            self.pushed.store(pushed, Ordering::Relaxed);
            pushed
        };
        let taken = self.taken.load(Ordering::Relaxed);
        debug_assert!(
            shared || taken <= pushed,
            "queue.Q1: more members are taken than were pushed"
        );
        let len = pushed.saturating_sub(taken);
        Pushed { first: head.is_null(), len }
    }

    fn is_empty(&self) -> bool {
        // ORDER: Acquire; the caller's fence decides.
        self.head.load(Ordering::Acquire).is_null()
    }

    /// Takes everything, newest first; the drain need not mind the order (queue.Q2).
    fn take(&self) -> Option<NonNull<Links>> {
        // ORDER: AcqRel; pairs with `push`, both ways.
        let head = NonNull::new(self.head.swap(ptr::null_mut(), Ordering::AcqRel));
        // ORDER: Relaxed; an estimate.
        self.taken.store(self.pushed.load(Ordering::Relaxed), Ordering::Relaxed);
        head
    }
}

/// The queues of a set.
#[allow(clippy::large_enum_variant, reason = "a push follows one pointer less")]
pub(super) enum Queues {
    Global(Stack),
    PerThread(Box<PerThread>),
}

/// A queue for each slot, and the bits that say which queues have members.
pub(super) struct PerThread {
    stacks: Segmented<Stack>,
    dirty: DirtyTable,
}

impl Queues {
    pub(super) fn global() -> Self {
        Self::Global(Stack::from(0))
    }

    pub(super) fn per_thread() -> Self {
        Self::PerThread(Box::new(PerThread { stacks: Segmented::new(), dirty: DirtyTable::new() }))
    }

    /// Pushes a member. After this, a drain may let it go, so the caller does not touch it any
    /// more. `timed` notes the time at which a stack stops being empty.
    ///
    /// # Safety
    /// As [`Stack::push`].
    #[inline]
    pub(super) unsafe fn push(
        &self,
        links: NonNull<Links>,
        timed: impl FnOnce(&Stack, bool) -> bool,
    ) -> (Pushed, bool) {
        match self {
            Self::Global(stack) => {
                // SAFETY: queue.Q1 - the caller promises that it made the member queued, and that
                // the member lives until a drain has let it go (# Safety).
                let pushed = unsafe { stack.push(links, true) };
                barrier::full_after_rmw();
                let overdue = timed(stack, pushed.first);
                (pushed, overdue)
            }
            Self::PerThread(own) => percpu::with_own_slot(|slot| {
                let index = slot.index();
                let stack = own.stacks.get_or_init(index);
                // SAFETY: queue.Q1 - the caller promises that it made the member queued, and that
                // the member lives until a drain has let it go (# Safety). The slot is this
                // thread's, as `false` says.
                let pushed = unsafe { stack.push(links, false) };
                if pushed.first {
                    let word = own.dirty.get_or_init(index / 64);
                    // ORDER: AcqRel; queue.Q3, and ldu.U6 as in `push`.
                    word.0.fetch_or(1 << (index % 64), Ordering::AcqRel);
                }
                barrier::full_after_rmw();
                let overdue = timed(stack, pushed.first);
                (pushed, overdue)
            }),
        }
    }

    /// Returns true if no queue has a member with a change that has returned. The caller has passed
    /// a full fence.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Global(stack) => stack.is_empty(),
            // ORDER: Acquire; as in `Stack::is_empty`.
            Self::PerThread(own) => {
                own.dirty.iter().all(|(_, word)| word.0.load(Ordering::Acquire) == 0)
            }
        }
    }

    /// Returns the number of members pushed so far.
    pub(super) fn pushed(&self) -> u64 {
        // ORDER: Relaxed (both); a statistic.
        match self {
            Self::Global(stack) => stack.pushed.load(Ordering::Relaxed),
            Self::PerThread(own) => {
                own.stacks.iter().map(|(_, stack)| stack.pushed.load(Ordering::Relaxed)).sum()
            }
        }
    }

    /// Empties every queue. The caller is the only drain, and has passed a full fence after it
    /// raised the epoch.
    pub(super) fn take_all(&self, chains: &mut Vec<NonNull<Links>>) {
        match self {
            Self::Global(stack) => {
                chains.extend((!stack.is_empty()).then(|| stack.take()).flatten())
            }
            Self::PerThread(own) => {
                for (number, word) in own.dirty.iter() {
                    // ORDER: Acquire; pairs with `push` (queue.Q3).
                    let bits = word.0.load(Ordering::Acquire);
                    let mut left = bits;
                    while left != 0 {
                        let bit = left.trailing_zeros();
                        left &= left - 1;
                        // ORDER: AcqRel; before the swap in `take` (queue.Q3).
                        word.0.fetch_and(!(1 << bit), Ordering::AcqRel);
                        let stack = own.stacks.get_or_init(number * 64 + bit as usize);
                        chains.extend(stack.take());
                    }
                }
            }
        }
    }
}
