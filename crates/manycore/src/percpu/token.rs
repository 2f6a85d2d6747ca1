//! Numbers of threads in a model: those of ended threads come back, as addresses do.
//!
//! Owns: which numbers are free. Law: who takes a number over has seen all that its last owner did,
//! as the thread that gets an ended one's memory has. Taking and leaving are no steps of the model,
//! which they would multiply; a model that wants a number twice waits until it is free
//! ([`in_use`]).

use crate::sync::{Lazy, global};

use std::marker::PhantomData;
use std::sync::Mutex;

/// loom runs five threads in a model, from first to last.
const MOST: usize = 8;

#[derive(Default)]
struct Tokens {
    taken: [bool; MOST],
    /// By which gate each was left last.
    gates: [Option<usize>; MOST],
    /// Gates used.
    left: usize,
}

global! {
    static TOKENS: Mutex<Tokens> = Mutex::new(Tokens::default());
}

/// Who passes through one after another has seen what that one did: loom orders who finds a static
/// value after who made it, and makes no step of it.
static GATES: [Lazy<()>; MOST] = [const { Lazy { init: || (), _p: PhantomData } }; MOST];

/// A number in its thread's hands.
pub(super) struct Token(usize);

impl Token {
    /// Takes the lowest free one.
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

/// How many are taken.
#[cfg(test)]
pub(crate) fn in_use() -> usize {
    TOKENS.lock().unwrap().taken.iter().filter(|taken| **taken).count()
}
