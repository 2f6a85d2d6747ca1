//! Which calls may still enter while an object is closed: one word, and its transitions by name.
//!
//! Owns: the word. Its states, in their order:
//!
//! | Flags | Meaning | What is counted |
//! |---|---|---|
//! | none | open, or closed with announced calls still inside | calls that cannot announce |
//! | DRAINED | closed; every announced call is over | the same; the last one out seals |
//! | SEALED | no call is inside, and none may enter | nothing |
//!
//! - admission.W2 One instruction takes the count to zero and sets SEALED. So no call is inside of
//!   a sealed object, whatever entered or left before.

use crate::sync::{AtomicUsize, Ordering, seeded_bug};

const DRAINED: usize = 1;
const SEALED: usize = 2;
const ONE: usize = 4;

#[derive(Debug)]
pub(super) struct Admission(AtomicUsize);

impl Admission {
    pub(super) fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Changes the word while `next` allows it. Returns the old value, or the value that was
    /// refused.
    fn change(&self, next: impl Fn(usize) -> Option<usize>) -> Result<usize, usize> {
        // ORDER: AcqRel; each change sees what was done before the earlier ones, and publishes to
        // the later ones what its thread did: calls before the transfer, the transfer before calls.
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next)
    }

    /// Counts a call in, unless the object is sealed.
    pub(super) fn admit(&self) -> bool {
        self.change(|word| (word & SEALED == 0).then_some(word + ONE)).is_ok()
    }

    /// Counts a call out. The last one seals a drained object (admission.W2).
    pub(super) fn dismiss(&self) {
        let sealing = |word| if word == DRAINED { DRAINED | SEALED } else { word };
        let left = self.change(|word| Some(sealing(word - ONE)));
        debug_assert!(
            left.is_ok_and(|word| word >= ONE),
            "admission.W2: a call was counted out twice"
        );
    }

    /// Notes that every announced call is over. Seals at once if no call is counted.
    pub(super) fn drained(&self) {
        // BUG: an implementation is exchanged while admitted calls are inside (admission.W2).
        let seals = |word| word < ONE || seeded_bug!("unsealed-transfer");
        let seal = |word| word | DRAINED | if seals(word) { SEALED } else { 0 };
        let before = self.change(|word| Some(seal(word)));
        debug_assert!(before.is_ok_and(|word| word & SEALED == 0), "admission.W2: sealed twice");
    }

    pub(super) fn is_sealed(&self) -> bool {
        // ORDER: Acquire; pairs with Release in `dismiss`: the calls that are over.
        self.0.load(Ordering::Acquire) & SEALED != 0
    }

    /// Gives up the drain, unless the object has been sealed. Returns true if it did.
    pub(super) fn give_up(&self) -> bool {
        self.change(|word| (word & SEALED == 0).then_some(word & !DRAINED)).is_ok()
    }

    /// Admits calls again.
    pub(super) fn unseal(&self) {
        let _ = self.change(|word| Some(word & !(DRAINED | SEALED)));
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn last_one_out_of_a_drained_object_seals_it() {
        let door = Admission::new();
        assert!(door.admit() && door.admit());
        door.drained();
        assert!(!door.is_sealed() && door.admit(), "insiders come in until the count is zero");
        door.dismiss();
        door.dismiss();
        assert!(!door.is_sealed());
        door.dismiss();
        assert!(door.is_sealed() && !door.admit() && !door.give_up());
        door.unseal();
        assert!(door.admit());
    }

    #[test]
    fn given_up_drain_does_not_seal() {
        let door = Admission::new();
        assert!(door.admit());
        door.drained();
        assert!(door.give_up());
        door.dismiss();
        assert!(!door.is_sealed() && door.admit());
    }
}
