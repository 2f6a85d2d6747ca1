//! Treiber's stack on sections, as a port from `crossbeam-epoch`: the textbook's code, line by
//! line.
//!
//! A pop may find that another thread has unlinked the node on top while it looked at it. It then
//! reads the node's link although the node is retired. The open section keeps the node's memory,
//! and the exchange of the top fails. It cannot succeed by mistake (the ABA problem): while the
//! section is open, the node's memory is not used for a new node.
//!
//! The stack needs a domain in `Mode::Epoch`, like the global one. It leaves links untagged, which
//! a bounded domain does not allow (`docs/guide/reclamation.md`, rule 3).
//!
//! Source: R. K. Treiber, "Systems Programming: Coping with Parallelism" (IBM RJ 5118, 1986).

use manycore::section::{self, Atomic, Owned};
use std::mem::ManuallyDrop;
use std::thread;

struct Node<T> {
    /// Moved out by the thread that unlinks the node, so freeing the node must not drop it.
    value: ManuallyDrop<T>,
    next: Atomic<Node<T>>,
}

/// A stack that any number of threads push to and pop from.
pub struct Stack<T> {
    top: Atomic<Node<T>>,
}

// SAFETY: a stack owns its values, like a `Vec`; the links are atomic.
unsafe impl<T: Send> Send for Stack<T> {}
// SAFETY: through a shared stack, values go from the threads that push them to those that pop them
// (`T: Send`). No two threads have a reference to the same value.
unsafe impl<T: Send> Sync for Stack<T> {}

impl<T> Stack<T> {
    /// Makes an empty stack.
    pub const fn new() -> Self {
        Self { top: Atomic::null() }
    }

    /// Puts a value on top.
    pub fn push(&self, value: T) {
        let section = section::enter();
        let mut node = Owned::new(Node { value: ManuallyDrop::new(value), next: Atomic::null() });
        loop {
            let top = self.top.load(&section);
            node.next.store(top, &section);
            match self.top.compare_exchange(top, node, &section) {
                Ok(_) => return,
                Err(lost) => node = lost.new, // the node comes back, for the next attempt
            }
        }
    }

    /// Takes the value on top, if there is one.
    pub fn pop(&self) -> Option<T> {
        let section = section::enter();
        loop {
            let top = self.top.load(&section);
            let node = top.as_ref()?;
            let next = node.next.load(&section);
            if self.top.compare_exchange(top, next, &section).is_ok() {
                // SAFETY: the exchange succeeds once for each node, so one thread takes the value.
                let value = unsafe { std::ptr::read(&*node.value) };
                // SAFETY: unlinked just now, by this thread alone; all sections are of the global
                // domain. Any thread may free the node, which drops no `T`: so `T` need not be
                // `Send` here.
                unsafe { section.retire(top) };
                return Some(value);
            }
        }
    }
}

impl<T> Default for Stack<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for Stack<T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

/// Some threads push numbers, others pop them: each number comes out once.
fn main() {
    const PUSHERS: usize = 2;
    const EACH: usize = if cfg!(miri) { 30 } else { 20_000 };
    let stack = Stack::new();
    // (Boxes, so that a number that comes out twice would be freed twice.)
    let mut popped: Vec<Box<usize>> = thread::scope(|scope| {
        let stack = &stack;
        for pusher in 0..PUSHERS {
            let numbers = pusher * EACH..(pusher + 1) * EACH;
            scope.spawn(move || numbers.for_each(|number| stack.push(Box::new(number))));
        }
        let pop_half = || {
            let mut own = Vec::new();
            while own.len() < PUSHERS * EACH / 2 {
                match stack.pop() {
                    Some(number) => own.push(number),
                    None => thread::yield_now(),
                }
            }
            own
        };
        let poppers = [scope.spawn(pop_half), scope.spawn(pop_half)];
        poppers.into_iter().flat_map(|popper| popper.join().unwrap()).collect()
    });
    assert!(stack.pop().is_none());
    popped.sort_unstable();
    assert!(popped.iter().map(|number| **number).eq(0..PUSHERS * EACH));
    println!("{} numbers came out, each once", popped.len());

    // What is left is dropped with the stack.
    (0..10).for_each(|number| stack.push(Box::new(number)));
}
