//! A table of sessions that begins as a plain map behind a lock, and becomes a distributed one when
//! the second thread comes, while it is in use (K42, section 4.1: the process object).

use manycore::cluster::Family;
use manycore::collections::ReplicatedMap;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

manycore::family! {
    /// Users by session.
    pub trait Sessions moves Vec<(u64, String)>;
    /// Sessions that all threads share.
    handle SharedSessions;
    calls {
        /// The session's user.
        fn user(&self, session: u64) -> Option<String>;
        /// Ends a session.
        fn end(&self, session: u64) -> bool;
        /// Begins one.
        fn begin(&self, session: u64, user: String);
    }
}

/// For one thread: nothing but a map and its lock.
#[derive(Default)]
struct Plain(Mutex<HashMap<u64, String>>);

impl Sessions for Plain {
    fn user(&self, session: u64) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&session).cloned()
    }
    fn end(&self, session: u64) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&session).is_some()
    }
    fn begin(&self, session: u64, user: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(session, user);
    }
}

impl Family for Plain {
    type Part = Vec<(u64, String)>;
    fn export(&self, _part: usize) -> Self::Part {
        let sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.iter().map(|(session, user)| (*session, user.clone())).collect()
    }
    fn import(&self, sessions: Self::Part) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(sessions);
    }
}

/// For many: a copy near each thread.
#[derive(Default)]
struct Distributed(ReplicatedMap<u64, String>);

impl Sessions for Distributed {
    fn user(&self, session: u64) -> Option<String> {
        self.0.get(&session)
    }
    fn end(&self, session: u64) -> bool {
        self.0.remove(&session).is_some()
    }
    fn begin(&self, session: u64, user: String) {
        self.0.insert(session, user);
    }
}

impl Family for Distributed {
    type Part = Vec<(u64, String)>;
    fn export(&self, _part: usize) -> Self::Part {
        self.0.snapshot()
    }
    fn import(&self, sessions: Self::Part) {
        for (session, user) in sessions {
            self.0.insert(session, user);
        }
    }
}

fn main() {
    let sessions = SharedSessions::new(Plain::default());
    (0..100).for_each(|session| sessions.begin(session, format!("user {session}")));

    let seen = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&seen);
    let watcher = move |_method: &'static str| {
        counter.fetch_add(1, Relaxed);
    };

    sessions.watch(watcher).expect("no other thread exchanges");
    thread::scope(|scope| {
        for thread in 0..2 {
            let sessions = &sessions;
            scope.spawn(move || {
                for round in 0..10_000 {
                    let session = (thread * 50 + round) % 100;
                    assert_eq!(sessions.user(session), Some(format!("user {session}")));
                }
            });
        }
        let swapped = sessions.swap(Arc::new(Distributed::default())).expect("the same");
        println!("exchanged in use; calls waited for {:?} at most", swapped.closed_for);
    });
    sessions.withdraw().expect("the same");
    assert!(sessions.end(7) && sessions.user(7).is_none());
    println!("{} calls were watched; 99 sessions are left", seen.load(Relaxed));
}
