//! A leader board: a sorted list that any number of threads read without a lock, while others
//! change it.
//!
//! Writers take a mutex. Readers take nothing: they walk the links, perhaps over a node that is
//! being removed under their feet. `manycore::section` says when such a node may be freed.
//!
//!     cargo run --example leader_board

use manycore::section::{Atomic, Domain, Mode, Owned, Section, Shared};
use std::{
    cmp::Reverse,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

/// Best first; of equal scores the smaller player number.
type Rank = (Reverse<u64>, u32);

struct Entry {
    rank: Rank,
    next: Atomic<Entry>,
}

struct LeaderBoard {
    head: Atomic<Entry>,
    /// Writers exclude each other, so no link changes between a writer's look and its change.
    writers: Mutex<()>,
    domain: Domain,
}

impl LeaderBoard {
    fn new() -> Self {
        // In this mode a reader may walk on from a node that was unlinked: its link stays as it
        // was, and what it leads to is freed later than the reader's section ends.
        let domain = Domain::builder().mode(Mode::Epoch).build().expect("nothing contradicts");
        Self { head: Atomic::null(), writers: Mutex::new(()), domain }
    }

    /// The best `count`, as `(player, score)`. Takes no lock, and never waits.
    fn top(&self, count: usize) -> Vec<(u32, u64)> {
        let section = self.domain.enter(); // nothing that we see is freed while it is open
        let mut best = Vec::new();
        let mut here = self.head.load(&section);
        while let Some(entry) = here.as_ref().filter(|_| best.len() < count) {
            let (Reverse(score), player) = entry.rank;
            best.push((player, score));
            here = entry.next.load(&section);
        }
        best
    }

    /// Moves a player from one score, if there was one, to another. A reader may see both or one
    /// of them, never none: the new entry is linked before the old one is unlinked.
    fn update(&self, player: u32, old: Option<u64>, new: u64) {
        let _alone = self.lock();
        let section = self.domain.enter();
        let (link, here) = self.find((Reverse(new), player), &section);
        let entry = Owned::new(Entry { rank: (Reverse(new), player), next: Atomic::null() });
        entry.next.store(here, &section); // complete before a reader can find it
        link.store(entry, &section);
        if let Some(old) = old {
            let (link, here) = self.find((Reverse(old), player), &section);
            let entry = here.as_ref().expect("it was linked by this player's last update");
            link.store(entry.next.load(&section), &section);
            // SAFETY: the store unlinked the only link to the node, and under the mutex no other
            // thread unlinks it, too. (A new reader cannot reach it.)
            unsafe { section.retire(here) };
        }
    }

    /// The link that leads to the first entry that is not ranked before `rank`, and that entry.
    fn find<'s>(
        &'s self,
        rank: Rank,
        section: &'s Section<'_>,
    ) -> (&'s Atomic<Entry>, Shared<'s, Entry>) {
        let (mut link, mut here) = (&self.head, self.head.load(section));
        while let Some(entry) = here.as_ref().filter(|entry| entry.rank < rank) {
            link = &entry.next;
            here = link.load(section);
        }
        (link, here)
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LeaderBoard {
    fn drop(&mut self) {
        let mut link = std::mem::take(&mut self.head);
        // SAFETY: `&mut self`: no other thread is inside, and a linked entry is not retired.
        while let Some(entry) = unsafe { link.into_owned() } {
            link = entry.into_inner().next;
        }
    }
}

const WRITERS: u32 = 2;
const PLAYERS: u32 = 40;
const ROUNDS: u64 = 2_000;

/// The score of a player after a round: some number that goes up and down.
fn score(player: u32, round: u64) -> u64 {
    (u64::from(player) * 7919 + round * 104_729) % 10_007
}

fn main() {
    let board = LeaderBoard::new();
    for player in 0..PLAYERS {
        board.update(player, None, score(player, 0));
    }
    let writing = AtomicU32::new(WRITERS);
    thread::scope(|scope| {
        let (board, writing) = (&board, &writing);
        for writer in 0..WRITERS {
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    for player in (writer..PLAYERS).step_by(WRITERS as usize) {
                        board.update(player, Some(score(player, round - 1)), score(player, round));
                    }
                }
                writing.fetch_sub(1, Ordering::Release);
            });
        }
        for _ in 0..2 {
            scope.spawn(move || {
                let mut reads = 0_u64;
                while writing.load(Ordering::Acquire) > 0 {
                    // A walk may see entries of several moments, but each of them was there.
                    for (player, seen) in board.top(10) {
                        assert!(player < PLAYERS && seen < 10_007);
                    }
                    reads += 1;
                }
                println!("the first ten were read {reads} times");
            });
        }
    });

    let mut expected: Vec<_> = (0..PLAYERS).map(|player| (player, score(player, ROUNDS))).collect();
    expected.sort_by_key(|&(player, score)| (Reverse(score), player));
    assert_eq!(board.top(usize::MAX), expected);
    println!("first is player {}, with {}", expected[0].0, expected[0].1);
}
