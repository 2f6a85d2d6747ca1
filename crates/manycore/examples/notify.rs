//! A queue of file notifications (OpLog, section 3: inotify): every thread that changes a file
//! reports it, and one reader wants the reports in the order of the changes. Twice: with the
//! library, and with a queue per core by hand.

use std::collections::HashSet;
use std::sync::mpsc;
use std::thread;

/// What happened to which file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Created(u32),
    Modified(u32),
    Deleted(u32),
}

// begin: notify
use manycore::collections::EventQueue;
#[derive(Default)]
struct Notifications(EventQueue<Event>);
impl Notifications {
    fn report(&self, event: Event) {
        self.0.send(event).expect("it is never closed");
    }
    fn read(&self) -> Vec<Event> {
        self.0.drain()
    }
}
// end: notify

/// The same by hand: a queue per core, and a stamp for each event. The reader may not take an event
/// while one with a lower stamp can still appear in another queue: so a sender stamps under its
/// queue's lock, and the reader holds all locks at once. The stamps come from one counter, which
/// every sender writes; a clock of the processor would be faster, and needs proof that the cores'
/// clocks agree.
mod by_hand {
    use super::Event;

    // begin: notify by hand
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    #[repr(align(128))]
    #[derive(Default)]
    struct Shard(Mutex<Vec<(u64, Event)>>);

    impl Shard {
        fn lock(&self) -> MutexGuard<'_, Vec<(u64, Event)>> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

    thread_local! {
        static OWN_SHARD: usize = NEXT_SHARD.fetch_add(1, Ordering::Relaxed);
    }

    pub struct Notifications {
        shards: Vec<Shard>,
        clock: AtomicU64,
    }

    impl Default for Notifications {
        fn default() -> Self {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let shards = (0..cores).map(|_| Shard::default()).collect();
            Self { shards, clock: AtomicU64::new(0) }
        }
    }

    impl Notifications {
        pub fn report(&self, event: Event) {
            let shard = OWN_SHARD.with(|shard| *shard) % self.shards.len();
            let mut queue = self.shards[shard].lock();
            let stamp = self.clock.fetch_add(1, Ordering::AcqRel);
            queue.push((stamp, event));
        }

        pub fn read(&self) -> Vec<Event> {
            let mut queues: Vec<_> = self.shards.iter().map(Shard::lock).collect();
            let mut all: Vec<(u64, Event)> = Vec::new();
            for queue in &mut queues {
                all.append(queue);
            }
            drop(queues);
            all.sort_by_key(|(stamp, _)| *stamp);
            all.into_iter().map(|(_, event)| event).collect()
        }
    }
    // end: notify by hand
}

const FILES: u32 = 20_000;

/// Files are created on one thread, modified on a second and deleted on a third.
fn work(name: &str, report: impl Fn(Event) + Sync, read: impl Fn() -> Vec<Event>) {
    let report = &report;
    let (created, to_modify) = mpsc::sync_channel(64);
    let (modified, to_delete) = mpsc::sync_channel(64);
    let (mut alive, mut seen, mut reads) = (HashSet::new(), 0, 0);
    thread::scope(|scope| {
        scope.spawn(move || {
            for file in 0..FILES {
                report(Event::Created(file));
                created.send(file).unwrap();
            }
        });
        scope.spawn(move || {
            for file in to_modify {
                report(Event::Modified(file));
                modified.send(file).unwrap();
            }
        });
        scope.spawn(move || to_delete.into_iter().for_each(|file| report(Event::Deleted(file))));
        while seen < 3 * FILES {
            for event in read() {
                seen += 1;
                match event {
                    Event::Created(file) => assert!(alive.insert(file)),
                    Event::Modified(file) => assert!(alive.contains(&file), "before its creation"),
                    Event::Deleted(file) => assert!(alive.remove(&file), "before its creation"),
                }
            }
            reads += 1;
            thread::yield_now();
        }
    });
    println!("{name}: {seen} events of three threads, all in order, in {reads} reads");
    assert!(alive.is_empty());
}

fn main() {
    let library = Notifications::default();
    work("library", |event| library.report(event), || library.read());
    let by_hand = by_hand::Notifications::default();
    work("by hand", |event| by_hand.report(event), || by_hand.read());
}
