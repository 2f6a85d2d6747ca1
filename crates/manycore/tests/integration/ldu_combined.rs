//! Members that come and go, and updates whose order shows, in one object.

use crate::common::calls::{self, Model, Subject};
use crate::common::env;
use crate::common::rng::Rng;
use manycore::ldu::{Combined, DeferredSet, Element, Queue, Structure};
use manycore::oplog::Op;
use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const SHARE: Duration = Duration::from_millis(800);

/// Members, and what was said, in order.
#[derive(Debug, Default, Clone, PartialEq, Eq, Hash)]
struct Room {
    inside: BTreeSet<u8>,
    said: Vec<u16>,
}

impl Structure<Element<u8>> for Room {
    fn insert(&mut self, who: &Element<u8>) {
        assert!(self.inside.insert(**who), "{} is told twice", **who);
    }

    fn remove(&mut self, who: &Element<u8>) {
        assert!(self.inside.remove(who), "{} was never told", **who);
    }
}

/// Says a word. Zero is unspeakable.
#[derive(Debug)]
struct Say(u16);

impl Op<Room> for Say {
    fn apply(self, room: &mut Room) {
        assert_ne!(self.0, 0, "unspeakable");
        room.said.push(self.0);
    }
}

type Object = Combined<Room, Element<u8>, Say>;

#[test]
fn members_cancel_and_words_keep_their_order() {
    for logs in [false, true] {
        let room = Object::new(Room::default());
        assert!(!logs || room.promote());
        let ann = room.add(1);
        for word in 1..=5000 {
            room.append(Say(word));
            drop(room.add(2));
        }
        let seen = room.read();
        assert_eq!(seen.inside, [1].into());
        assert!(seen.said.iter().copied().eq(1..=5000));
        drop(seen);
        drop(ann);
        assert!(room.into_inner().inside.is_empty());
    }
}

#[test]
fn object_that_nobody_reads_stays_bounded() {
    static APPLIED: AtomicUsize = AtomicUsize::new(0);
    struct Count;
    impl Op<Nothing> for Count {
        fn apply(self, _: &mut Nothing) {
            APPLIED.fetch_add(1, Relaxed);
        }
    }
    struct Nothing;
    impl Structure<Element<u8>> for Nothing {
        fn insert(&mut self, _: &Element<u8>) {}
        fn remove(&mut self, _: &Element<u8>) {}
    }
    const UPDATES: usize = 100_000;
    let object = Combined::<_, Element<u8>, _>::new(Nothing);
    (0..UPDATES).for_each(|_| object.append(Count));
    assert!(APPLIED.load(Relaxed) > UPDATES / 2, "only {} were applied", APPLIED.load(Relaxed));
    drop(object);
    assert_eq!(APPLIED.load(Relaxed), UPDATES, "what waited is applied at the end");
}

#[test]
fn word_that_panics_poisons_and_loses_no_other() {
    let room = Object::new(Room::default());
    let ann = room.add(1);
    for word in [7, 0, 8] {
        room.append(Say(word));
    }
    assert!(catch_unwind(AssertUnwindSafe(|| drop(room.read()))).is_err());
    assert!(room.is_poisoned() && room.try_read().is_err());
    room.append(Say(9));
    assert_eq!(room.read_poisoned().said, [7]);
    room.clear_poison();
    assert_eq!(room.read().said, [7, 8, 9]);
    drop(ann);
    room.append(Say(0));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(room))).is_err(), "the last panic is not lost");
}

#[test]
fn reading_twice_on_one_thread_is_refused() {
    let room = Object::default();
    let guard = room.read();
    assert!(room.try_read().is_err());
    let again = catch_unwind(AssertUnwindSafe(|| drop(room.read())));
    assert!(again.is_err(), "it would wait for itself");
    drop(guard);
    assert!(!room.is_poisoned());
    assert!(format!("{room:?}").contains("poisoned: false"));
}

/// Threads bring members and take them away, and say words between; readers check that no word of a
/// thread is lost or out of order, and take the words with them.
#[test]
fn words_of_each_thread_come_once_and_in_order() {
    let _alone = env::alone();
    const WORDS: u16 = 9000;
    let (room, over) = (&Object::default(), &AtomicUsize::new(0));
    room.promote();
    thread::scope(|scope| {
        for me in 0..3_u8 {
            scope.spawn(move || {
                let mut away = room.add(me).remove();
                for word in 1..=WORDS {
                    let inside = away.insert();
                    room.append(Say(u16::from(me) * 10_000 + word));
                    away = inside.remove();
                }
                over.fetch_add(1, Relaxed);
            });
        }
        let mut last = [0; 3];
        while last != [WORDS; 3] {
            let is_last = over.load(Relaxed) == 3;
            for word in std::mem::take(&mut room.read().said) {
                let (me, word) = (usize::from(word / 10_000), word % 10_000);
                assert_eq!(word, last[me] + 1, "thread {me}");
                last[me] = word;
            }
            assert!(!is_last || last == [WORDS; 3], "words were lost: {last:?}");
            thread::yield_now();
        }
    });
    assert!(room.read().inside.is_empty());
}

/// A room of three, as a model: a call for one member waits for the one before it.
#[derive(Debug, Clone)]
enum Call {
    Toggle(u8),
    Say(u16),
    Look,
}

impl Model for Room {
    type Call = Call;
    type Answer = Option<Room>;

    fn call(rng: &mut Rng) -> Call {
        match rng.below(5) {
            0 | 1 => Call::Toggle(rng.below(3) as u8),
            2 | 3 => Call::Say(1 + rng.below(100) as u16),
            _ => Call::Look,
        }
    }

    fn answer(&mut self, call: &Call) -> Option<Room> {
        match call {
            Call::Toggle(who) => {
                if !self.inside.remove(who) {
                    self.inside.insert(*who);
                }
            }
            Call::Say(word) => self.said.push(*word),
            Call::Look => return Some(self.clone()),
        }
        None
    }
}

struct Shared {
    room: ManuallyDrop<Object>,
    members: [Mutex<(Arc<Element<u8>>, bool)>; 3],
}

impl Shared {
    fn new(rng: &mut Rng) -> Self {
        let queue = *rng.pick(&[Queue::PerThread, Queue::Global]);
        let builder = DeferredSet::builder().queue(queue).max_queued(1 + rng.below(8));
        let room = Object::with_builder(&builder, Room::default()).expect("valid bounds");
        if rng.once_in(2) {
            room.promote();
        }
        let members = [0, 1, 2].map(|who| Mutex::new((Arc::new(Element::new(who)), false)));
        Self { room: ManuallyDrop::new(room), members }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: not used afterwards; the members outlive it.
        unsafe { ManuallyDrop::drop(&mut self.room) };
    }
}

impl Subject<Room> for Shared {
    fn answer(&self, call: &Call) -> Option<Room> {
        match call {
            Call::Toggle(who) => {
                let mut member = self.members[usize::from(*who)].lock().unwrap();
                let place = NonNull::from(&*member.0);
                // SAFETY: the members outlive the room and are in no other; the lock makes calls
                // for one follow each other.
                unsafe {
                    if member.1 {
                        self.room.remove_raw(place);
                    } else {
                        self.room.insert_raw(place);
                    }
                }
                member.1 = !member.1;
            }
            Call::Say(word) => self.room.append(Say(*word)),
            Call::Look => return Some(self.room.read().clone()),
        }
        None
    }
}

#[test]
fn histories_of_both_kinds_are_linearizable() {
    let _alone = env::alone();
    let until = env::deadline("MANYCORE_SOAK", SHARE);
    match calls::check::<Room, _>(env::seed(), until, Shared::new) {
        Ok(histories) => println!("{histories} histories"),
        Err(report) => panic!("{report}"),
    }
}

/// The checker sees a room that looks at members and words one after the other.
#[test]
fn two_objects_that_are_read_in_turn_are_not_linearizable() {
    let _alone = env::alone();
    struct Apart(Shared, manycore::oplog::Deferred<Room, manycore::oplog::Ordered<Say>>);
    impl Subject<Room> for Apart {
        fn answer(&self, call: &Call) -> Option<Room> {
            match call {
                Call::Say(word) => self.1.append(Say(*word)),
                Call::Look => {
                    let said = self.1.read().said.clone();
                    thread::yield_now();
                    let inside = self.0.room.read().inside.clone();
                    return Some(Room { inside, said });
                }
                Call::Toggle(_) => return self.0.answer(call),
            }
            None
        }
    }
    let until = env::deadline("MANYCORE_SOAK", Duration::from_secs(20));
    let make = |rng: &mut Rng| Apart(Shared::new(rng), manycore::oplog::Deferred::default());
    assert!(calls::check::<Room, _>(env::seed(), until, make).is_err());
}
