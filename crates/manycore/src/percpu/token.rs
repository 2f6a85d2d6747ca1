//! Thread numbers in a model: the numbers of ended threads are reused, as addresses are.
//!
//! Owns: which numbers are free. Law: a thread that takes a number over has seen all that its last
//! owner did, as a thread that reuses an ended thread's memory has. Taking and leaving are no steps
//! of the model, because they would multiply its steps. A model that needs a number twice waits
//! until it is free ([`in_use`]).

use crate::sync::{Lazy, global};

use std::marker::PhantomData;
use std::sync::Mutex;

/// loom runs at most five threads in a model, over its whole run.
const MOST: usize = 8;

#[derive(Default)]
struct Tokens {
    taken: [bool; MOST],
    /// Gate through which the last owner of each number left.
    gates: [Option<usize>; MOST],
    /// The number of gates used.
    left: usize,
}

global! {
    static TOKENS: Mutex<Tokens> = Mutex::new(Tokens::default());
}

/// Two threads that pass one gate one after the other are ordered. Loom orders a thread that finds
/// a static value after the thread that created it, and does not count that as a step.
static GATES: [Lazy<()>; MOST] = [const { Lazy { init: || (), _p: PhantomData } }; MOST];

/// A number, as its thread has it.
pub(super) struct Token(usize);

impl Token {
    /// Takes the lowest free number.
    pub(super) fn take() -> Self {
        let mut tokens = TOKENS.lock().unwrap();
        let lowest = tokens.taken.iter().position(|taken| !taken).expect("few threads");
        tokens.taken[lowest] = true;
        if let Some(gate) = tokens.gates[lowest] {
            GATES[gate].get();
        }
        Self(lowest)
    }

    /// A multiple of 16, not zero.
    pub(super) fn value(&self) -> usize {
        (self.0 + 1) * 16
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        if crate::sync::model_failed() {
            return;
        }
        let mut tokens = TOKENS.lock().unwrap();
        let gate = tokens.left;
        tokens.left += 1;
        GATES[gate].get();
        tokens.gates[self.0] = Some(gate);
        tokens.taken[self.0] = false;
    }
}

/// Returns how many numbers are taken.
#[cfg(test)]
pub(crate) fn in_use() -> usize {
    TOKENS.lock().unwrap().taken.iter().filter(|taken| **taken).count()
}
