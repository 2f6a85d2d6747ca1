//! Two threads that each wait for the other's lock.

use std::{
    sync::{Barrier, Mutex},
    thread,
};

fn main() {
    let (left, right, both) = (Mutex::new(()), Mutex::new(()), Barrier::new(2));
    thread::scope(|scope| {
        for (mine, other) in [(&left, &right), (&right, &left)] {
            let both = &both;
            scope.spawn(move || {
                let _mine = mine.lock();
                both.wait();
                let _other = other.lock();
            });
        }
    });
}
