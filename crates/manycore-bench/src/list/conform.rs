//! The conformance test of every list.
//!
//! Threads add and remove elements of their own at random. Each read must return exactly those of
//! the reader's own elements that are in the list, and no element that was never added. At the end
//! the list must hold exactly what was left in it.

use std::{collections::BTreeSet, thread};

use super::{Element, ListHandle, ListImpl, OWN_ELEMENTS, first_element};

const STEPS: u32 = 3_000;

type Elements = BTreeSet<Element>;

/// Tries a list with so many threads.
pub(super) fn run<L: ListImpl>(threads: usize) -> Result<(), String> {
    let list = &L::new(threads);
    // Thread 0 is this one, so that a list that lives in its handle can be read at the end.
    let mut own = list.handle(0);
    let left = thread::scope(|scope| {
        let start = |index| scope.spawn(move || churn(&mut list.handle(index), index, threads));
        let others: Vec<_> = (1..threads).map(start).collect();
        let mut left = churn(&mut own, 0, threads)?;
        for other in others {
            left.extend(other.join().map_err(|_| "a thread panicked")??);
        }
        Ok::<_, String>(left)
    })?;
    let last = distinct(contents(&mut own))?;
    if left == last {
        return Ok(());
    }
    Err(format!("at the end the list holds {last:?} instead of {left:?}"))
}

fn churn(handle: &mut impl ListHandle, thread: usize, threads: usize) -> Result<Elements, String> {
    let own = first_element(thread)..first_element(thread + 1);
    let mut present = Elements::new();
    let mut random = 0x9E37_79B9_u32.wrapping_add(own.start);
    for _ in 0..STEPS {
        // A linear congruence: its high bits are random enough, and every run is the same.
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let element = own.start + (random >> 24) % OWN_ELEMENTS;
        if present.remove(&element) {
            handle.remove(element);
        } else {
            present.insert(element);
            handle.add(element);
        }
        if (random >> 16) % 8 == 0 {
            let seen = contents(handle);
            // Strangers may come back during the walk and be met again; own elements may not.
            let seen_own = seen.iter().copied().filter(|element| own.contains(element));
            let seen_own = distinct(seen_own.collect())?;
            if seen_own != present {
                return Err(format!("thread {thread} saw {seen_own:?} of its own {present:?}"));
            }
            let end = first_element(threads);
            if let Some(stranger) = seen.iter().find(|element| **element >= end) {
                return Err(format!("a read saw {stranger}, which was not added"));
            }
        }
    }
    Ok(present)
}

fn contents(handle: &mut impl ListHandle) -> Vec<Element> {
    let mut seen = Vec::new();
    handle.for_each(|element| seen.push(element));
    seen
}

fn distinct(elements: Vec<Element>) -> Result<Elements, String> {
    let set: Elements = elements.iter().copied().collect();
    if set.len() == elements.len() {
        return Ok(set);
    }
    Err(format!("a read saw an element twice: {elements:?}"))
}
