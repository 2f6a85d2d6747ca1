//! Updates of two kinds in one object: people come and go, and cancel each other in the log of the
//! thread that tells of both; what is said keeps its order, by stamps. One read merges both. (LDU,
//! section 2.7, leaves this combination to future work.)

use manycore::clock::{Clock, Stamp};
use manycore::oplog::{Cancel, Cancelling, Deferred, Log, Op, Ordered};
use std::collections::BTreeSet;
use std::thread;

/// What a read sees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Room {
    /// The people in the room.
    pub inside: BTreeSet<u32>,
    /// What was said, in order.
    pub said: Vec<String>,
}

/// A person comes or goes.
pub struct Move {
    person: u32,
    comes: bool,
}

impl Op<Room> for Move {
    fn apply(self, room: &mut Room) {
        let Self { person, comes } = self;
        let changed = if comes { room.inside.insert(person) } else { room.inside.remove(&person) };
        assert!(changed, "{person} came or went twice");
    }
}

impl Cancel for Move {
    type Key = u32;
    fn key(&self) -> u32 {
        self.person
    }
    fn inserts(&self) -> bool {
        self.comes
    }
}

/// A person says something.
pub struct Say(pub String);

impl Op<Room> for Say {
    fn apply(self, room: &mut Room) {
        room.said.push(self.0);
    }
}

/// An update, of either kind. It takes a stamp only if its order shows.
pub enum Update {
    /// These cancel.
    Move(Move),
    /// These are applied in the order of their stamps.
    Say(Stamp, Say),
}

/// A thread's log: a part for each kind.
#[derive(Default)]
pub struct RoomLog {
    moves: Cancelling<Move>,
    said: Ordered<Say>,
}

impl Log<Room> for RoomLog {
    type Op = Update;
    /// Without stamps, a read stops all updates at one moment. So it sees both kinds as they were
    /// then, and what it misses comes later than what it sees.
    const ORDERED: bool = false;

    fn apply(update: Update, room: &mut Room) {
        match update {
            Update::Move(update) => update.apply(room),
            Update::Say(_, update) => update.apply(room),
        }
    }

    fn push(&mut self, update: Update, unused: Stamp) {
        match update {
            Update::Move(update) => Log::<Room>::push(&mut self.moves, update, unused),
            Update::Say(stamp, update) => self.said.add(update, stamp),
        }
    }

    fn len(&self) -> usize {
        Log::<Room>::len(&self.moves) + Log::<Room>::len(&self.said)
    }

    /// The kinds commute. (If applying could panic, what is left had to go back to the logs.)
    fn merge(logs: &mut [Self], room: &mut Room) -> usize {
        let taken = logs.iter_mut().map(std::mem::take).map(|log| (log.moves, log.said));
        let (mut moves, mut said): (Vec<_>, Vec<_>) = taken.unzip();
        Log::merge(&mut moves, room) + Log::merge(&mut said, room)
    }
}

/// A room that is changed by many and looked at by few.
pub type Shared = Deferred<Room, RoomLog>;

/// Comes in, or goes out.
pub fn step(room: &Shared, person: u32, comes: bool) {
    room.append(Update::Move(Move { person, comes }));
}

/// Says something, after all that was said before this call.
pub fn say(room: &Shared, text: String) {
    let clock = Clock::system();
    let stamp = clock.stamp();
    room.append(Update::Say(stamp, Say(text)));
    clock.commit_wait(stamp);
}

fn main() {
    let room = Shared::new(Room::default());
    room.promote();
    thread::scope(|scope| {
        for person in 0..4 {
            let room = &room;
            scope.spawn(move || {
                for turn in 0..10_000 {
                    step(room, person, true);
                    if turn % 1000 == 0 {
                        say(room, format!("{person}: {turn}"));
                    }
                    step(room, person, false);
                }
            });
        }
    });
    let seen = room.read();
    assert!(seen.inside.is_empty());
    for person in 0..4 {
        let own = seen.said.iter().filter_map(|text| text.strip_prefix(&format!("{person}: ")));
        assert!(own.eq((0..10).map(|turn| (turn * 1000).to_string())), "out of order");
    }
    drop(seen);
    let stats = room.stats();
    println!("80,040 updates, of which {} reached the room", stats.applied);
}
