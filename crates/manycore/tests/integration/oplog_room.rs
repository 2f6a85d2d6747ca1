//! The example's log, which has updates that cancel and updates in order. It must show the same
//! room as the sequential type.

#[path = "../../examples/room.rs"]
#[allow(dead_code, reason = "an example has a main function")]
mod room;

use crate::common::calls::{self, Model, Subject};
use crate::common::env;
use crate::common::rng::Rng;
use manycore::oplog::{Deferred, Ordered};
use room::{Room, Say, Shared, say, step};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

const SHARE: Duration = Duration::from_millis(400);

#[test]
fn moves_cancel_and_words_keep_their_order() {
    for logs in [false, true] {
        let room = Shared::new(Room::default());
        assert!(!logs || room.promote());
        step(&room, 1, true);
        for word in 0..3000 {
            say(&room, word.to_string());
            step(&room, 2, true);
            step(&room, 2, false);
        }
        let seen = room.read();
        assert_eq!(seen.inside, [1].into());
        assert!(seen.said.iter().cloned().eq((0..3000).map(|word: u32| word.to_string())));
        drop(seen);
        assert!(!logs || room.stats().applied <= 3001, "a pair reached the room");
    }
}

/// A call about one person waits for the previous call about that person.
#[allow(missing_docs, reason = "public only as the answer of a public trait must be")]
#[derive(Debug, Clone)]
pub enum Call {
    Toggle(u32),
    Say(usize),
    Look,
}

impl Model for Room {
    type Call = Call;
    type Answer = Option<Room>;

    fn call(rng: &mut Rng) -> Call {
        match rng.below(5) {
            0 | 1 => Call::Toggle(rng.below(3) as u32),
            2 | 3 => Call::Say(rng.below(100)),
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
            Call::Say(word) => self.said.push(word.to_string()),
            Call::Look => return Some(self.clone()),
        }
        None
    }
}

struct Subjects {
    room: Shared,
    inside: [Mutex<bool>; 3],
}

impl Subjects {
    fn new(rng: &mut Rng) -> Self {
        let builder = Shared::builder().max_entries(1 + rng.below(8));
        let room = builder.build(Room::default()).expect("valid bounds");
        if rng.once_in(2) {
            room.promote();
        }
        Self { room, inside: Default::default() }
    }
}

impl Subject<Room> for Subjects {
    fn answer(&self, call: &Call) -> Option<Room> {
        match call {
            Call::Toggle(who) => {
                let mut inside = self.inside[*who as usize].lock().unwrap();
                *inside = !*inside;
                step(&self.room, *who, *inside);
            }
            Call::Say(word) => say(&self.room, word.to_string()),
            Call::Look => return Some(self.room.read().clone()),
        }
        None
    }
}

#[test]
fn histories_of_both_kinds_are_linearizable() {
    let _alone = env::alone();
    let until = env::soak(SHARE);
    match calls::check::<Room, _>(env::seed(), until, Subjects::new) {
        Ok(histories) => println!("{histories} histories"),
        Err(report) => panic!("{report}"),
    }
}

/// The checker notices a room that reads people and words one after the other.
#[test]
fn two_objects_that_are_read_in_turn_are_not_linearizable() {
    let _alone = env::alone();
    struct Apart(Subjects, Deferred<Room, Ordered<Say>>);
    impl Subject<Room> for Apart {
        fn answer(&self, call: &Call) -> Option<Room> {
            match call {
                Call::Say(word) => self.1.append(Say(word.to_string())),
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
    let make = |rng: &mut Rng| Apart(Subjects::new(rng), Deferred::default());
    assert!(calls::check::<Room, _>(env::seed(), until, make).is_err());
}
