//! Histories of commands by several workers, checked for linearizability key by key.
//!
//! Each thread speaks the text protocol to a session of its own and notes the moments of its calls
//! and replies; an independent checker looks for an order that explains the replies. Where items
//! are evicted, an eviction is an operation that may stand anywhere in the order: a miss may always
//! be, but from then on the item is gone. So is what has a time to live, and once that is over it
//! must be gone. The same checker must reject histories of servers that are broken on purpose.
//!
//! `MANYCORE_SOAK=60` runs each test for 60 seconds; `MANYCORE_SEED=0x12ab` generates the commands
//! of an earlier run again.

use crate::rng::Rng;
use manycored::server_state::ServerState;
use manycored::session::{Context, Session};
use manycored::store::{Limits, Store};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;

const SHARE: Duration = Duration::from_millis(600);
/// The longest that items with a time to live of one second live.
const LIFE: Duration = Duration::from_millis(1_150);
const THREADS: usize = 4;
const KEYS: usize = 3;
/// Histories whose items expire together.
const BATCH: usize = 3_000;

/// A command and its reply. Values are numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Done {
    /// `gets`: the number and its version.
    Got(Option<(u64, u64)>),
    /// `set`.
    Set(u64, Life),
    /// `add`: whether it was stored.
    Added(u64, bool),
    /// `replace`: whether it was stored.
    Replaced(u64, bool),
    /// `cas` with this version.
    Swapped(u64, u64, Swap),
    /// `incr` by this: what it gave.
    Summed(u64, Option<u64>),
    /// `delete`: whether something was there.
    Deleted(bool),
    /// `touch`: whether something was there.
    Touched(Life, bool),
    /// All times to live are over.
    Expired,
    /// `flush_prefix`, of this history's keys.
    Flushed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Swap {
    Stored,
    Exists,
    NotFound,
}

/// A time to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Life {
    Ever,
    Second,
    Over,
}

impl Life {
    fn random(rng: &mut Rng) -> Self {
        *rng.pick(&[Self::Ever, Self::Ever, Self::Second, Self::Over])
    }

    fn exptime(self) -> i64 {
        match self {
            Self::Ever => 0,
            Self::Second => 1,
            Self::Over => -1,
        }
    }
}

/// What a key has. The version of what was just stored is not known before a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Held {
    number: u64,
    cas: Option<u64>,
    is_mortal: bool,
}

fn held(number: u64, life: Life) -> Option<Held> {
    (life != Life::Over).then_some(Held { number, cas: None, is_mortal: life == Life::Second })
}

/// One key of a store that evicts, or not.
struct Key<const EVICTS: bool>;

impl<const EVICTS: bool> Specification for Key<EVICTS> {
    type State = Option<Held>;
    type Operation = Done;

    fn init() -> Option<Held> {
        None
    }

    fn apply(done: &Done, state: &Option<Held>) -> (bool, Option<Held>) {
        // Gone already, or in this moment: by an eviction, or because its time is over.
        let is_gone = EVICTS || state.is_none_or(|held| held.is_mortal);
        match (*done, *state) {
            (Done::Set(number, life), _) => (true, held(number, life)),
            (Done::Added(number, true), _) => (is_gone, held(number, Life::Ever)),
            (Done::Flushed, _) => (true, None),
            (Done::Expired, state) => (true, state.filter(|held| !held.is_mortal)),
            (
                Done::Got(None)
                | Done::Replaced(_, false)
                | Done::Swapped(_, _, Swap::NotFound)
                | Done::Summed(_, None)
                | Done::Deleted(false)
                | Done::Touched(_, false),
                _,
            ) => (is_gone, None),
            (_, None) => (false, None),
            (done, Some(there)) => found(done, there),
        }
    }
}

/// What became of something that was there.
fn found(done: Done, there: Held) -> (bool, Option<Held>) {
    match done {
        Done::Got(Some((number, cas))) => {
            let is_it = number == there.number && there.cas.is_none_or(|known| known == cas);
            (is_it, Some(Held { cas: Some(cas), ..there }))
        }
        Done::Replaced(number, _) => (true, held(number, Life::Ever)),
        Done::Swapped(expected, number, Swap::Stored) => {
            (there.cas == Some(expected), held(number, Life::Ever))
        }
        Done::Swapped(expected, ..) => (there.cas != Some(expected), Some(there)),
        Done::Summed(delta, sum) => {
            let number = there.number + delta;
            (sum == Some(number), Some(Held { number, cas: None, ..there }))
        }
        Done::Deleted(_) => (true, None),
        Done::Touched(Life::Over, _) => (true, None),
        Done::Touched(life, _) => (true, Some(Held { is_mortal: life == Life::Second, ..there })),
        Done::Added(..) => (true, Some(there)),
        Done::Got(None) | Done::Set(..) | Done::Expired | Done::Flushed => (false, None),
    }
}

#[derive(Debug, Clone, Copy)]
struct Event {
    thread: usize,
    key: usize,
    call: u64,
    ret: u64,
    done: Done,
}

fn is_linearizable<const EVICTS: bool>(events: &[Event]) -> bool {
    (0..KEYS).all(|key| {
        let mine = events.iter().filter(|event| event.key == key);
        let mut moments: Vec<_> =
            mine.flat_map(|event| [(event.call, false, event), (event.ret, true, event)]).collect();
        moments.sort_by_key(|(time, ..)| *time);
        let action = |(_, returns, event): (u64, bool, &Event)| {
            let done = event.done;
            (event.thread, if returns { Action::Response(done) } else { Action::Call(done) })
        };
        let actions: Vec<_> = moments.into_iter().map(action).collect();
        actions.is_empty()
            || WGLChecker::<Key<EVICTS>>::is_linearizable(History::from_actions(actions))
    })
}

/// A client of one worker.
struct Client<'s> {
    context: Context<'s>,
    session: Session,
    thread: usize,
    moment: &'s AtomicU64,
    out: Vec<u8>,
}

impl<'s> Client<'s> {
    fn new(store: &'s Store, state: &'s ServerState, thread: usize, moment: &'s AtomicU64) -> Self {
        let context = Context::new(store.handle(thread), state);
        Self { context, session: Session::new(1 << 20), thread, moment, out: Vec::new() }
    }

    fn say(&mut self, text: &str) -> String {
        self.out.clear();
        let progress =
            self.session.feed(&mut self.context, text.as_bytes(), &mut self.out, usize::MAX);
        assert_eq!((progress.used, progress.is_paused), (text.len(), false));
        String::from_utf8_lossy(&self.out).trim_end().to_owned()
    }

    /// A command that stores, or not.
    fn store(&mut self, command: &str, key: &str, number: u64, rest: &str) -> String {
        let digits = number.to_string();
        self.say(&format!(
            "{command} {key} 0 {rest}\r\n{digits}\r\n",
            rest = {
                let (life, cas) = rest.split_once(' ').unwrap_or((rest, ""));
                format!("{life} {}{}{cas}", digits.len(), if cas.is_empty() { "" } else { " " })
            }
        ))
    }

    fn gets(&mut self, key: &str) -> Option<(u64, u64)> {
        let reply = self.say(&format!("gets {key}\r\n"));
        let mut lines = reply.lines();
        let cas = lines.next()?.strip_prefix(&format!("VALUE {key} 0 "))?.rsplit(' ').next()?;
        // What has become shorter is filled with spaces, as memcached does.
        Some((lines.next()?.trim_end().parse().ok()?, cas.parse().ok()?))
    }

    /// One random command for this key. `seen` is the version that this client saw last.
    fn call(&mut self, key: &str, rng: &mut Rng, seen: &mut u64) -> Done {
        let number = rng.below(1 << 40) as u64;
        let life = Life::random(rng);
        let said = |reply: &str, yes: &str, no: &str| {
            assert!(reply == yes || reply == no, "{reply}");
            reply == yes
        };
        match rng.below(14) {
            0..4 => {
                let got = self.gets(key);
                *seen = got.map_or(*seen, |(_, cas)| cas);
                Done::Got(got)
            }
            4 | 5 => {
                let reply = self.store("set", key, number, &life.exptime().to_string());
                assert_eq!(reply, "STORED");
                Done::Set(number, life)
            }
            6 => Done::Added(
                number,
                said(&self.store("add", key, number, "0"), "STORED", "NOT_STORED"),
            ),
            7 => Done::Replaced(
                number,
                said(&self.store("replace", key, number, "0"), "STORED", "NOT_STORED"),
            ),
            8 | 9 => {
                let swap = match &*self.store("cas", key, number, &format!("0 {seen}")) {
                    "STORED" => Swap::Stored,
                    "EXISTS" => Swap::Exists,
                    "NOT_FOUND" => Swap::NotFound,
                    reply => panic!("{reply}"),
                };
                Done::Swapped(*seen, number, swap)
            }
            10 | 11 => {
                let delta = 1 + rng.below(9) as u64;
                let reply = self.say(&format!("incr {key} {delta}\r\n"));
                Done::Summed(delta, (reply != "NOT_FOUND").then(|| reply.parse().unwrap()))
            }
            12 => {
                Done::Deleted(said(&self.say(&format!("delete {key}\r\n")), "DELETED", "NOT_FOUND"))
            }
            _ => {
                let reply = self.say(&format!("touch {key} {}\r\n", life.exptime()));
                Done::Touched(life, said(&reply, "TOUCHED", "NOT_FOUND"))
            }
        }
    }

    /// The same with its moments.
    fn event(&mut self, key: usize, call: impl FnOnce(&mut Self) -> Done) -> Event {
        // A count that all threads share: it orders their calls and returns.
        let before = self.moment.fetch_add(1, Ordering::SeqCst);
        let done = call(self);
        let ret = self.moment.fetch_add(1, Ordering::SeqCst);
        Event { thread: self.thread, key, call: before, ret, done }
    }
}

/// A store, and what its clients need.
struct Bench {
    store: Store,
    state: ServerState,
    moment: AtomicU64,
    evicts: bool,
}

impl Bench {
    fn new(memory: u64) -> Self {
        let limits = Limits { memory, delimiter: Some(b':'), ..Limits::default() };
        let store = Store::new(limits, THREADS);
        let (state, moment) = (ServerState::default(), AtomicU64::new(0));
        Self { store, state, moment, evicts: memory < 1 << 20 }
    }

    fn client(&self, thread: usize) -> Client<'_> {
        Client::new(&self.store, &self.state, thread, &self.moment)
    }

    /// Random commands of a few threads at the keys of history `number`, and at others that push
    /// them out.
    fn history(&self, seed: u64, number: usize) -> Vec<Event> {
        let threads = 2 + number % (THREADS - 1);
        let work = |thread: usize| {
            let mut rng = Rng::part(seed.wrapping_add(number as u64), thread as u64);
            let (mut client, mut seen) = (self.client(thread), [0; KEYS]);
            let mut events = Vec::new();
            for _ in 0..8 {
                if rng.once_in(4) {
                    thread::yield_now();
                }
                if self.evicts && rng.once_in(3) {
                    client.store("set", &format!("other{}", rng.below(1_000)), 0, "0");
                    continue;
                }
                // A set that began before a flush may put something dead in the place of what came
                // later: only where a miss may always be.
                if self.evicts && rng.once_in(12) {
                    let flushed = client.event(0, |client| {
                        assert_eq!(client.say(&format!("flush_prefix h{number}\r\n")), "OK");
                        Done::Flushed
                    });
                    events.extend((0..KEYS).map(|key| Event { key, ..flushed }));
                    continue;
                }
                let key = rng.below(KEYS);
                let name = format!("h{number}:k{key}");
                events
                    .push(client.event(key, |client| client.call(&name, &mut rng, &mut seen[key])));
            }
            events
        };
        thread::scope(|scope| {
            let work = &work;
            let started: Vec<_> = (0..threads).map(|t| scope.spawn(move || work(t))).collect();
            started.into_iter().flat_map(|t| t.join().expect("a worker panicked")).collect()
        })
    }

    /// Lets all times to live pass, and looks at every key once more.
    fn expire(&self, first: usize, histories: &mut [Vec<Event>]) {
        self.store.tick();
        thread::sleep(LIFE);
        self.store.tick();
        let mut client = self.client(0);
        for (at, events) in histories.iter_mut().enumerate() {
            for key in 0..KEYS {
                events.push(client.event(key, |_| Done::Expired));
                let name = format!("h{}:k{key}", first + at);
                events.push(client.event(key, |client| Done::Got(client.gets(&name))));
            }
        }
    }
}

fn histories<const EVICTS: bool>(memory: u64) {
    let _alone = crate::env::alone();
    let (seed, until) = (crate::env::seed(), crate::env::soak(SHARE));
    let bench = Bench::new(memory);
    let mut number = 0;
    while number == 0 || Instant::now() < until {
        let (first, mut batch) = (number, Vec::new());
        while batch.len() < BATCH && (batch.is_empty() || Instant::now() < until) {
            bench.store.tick();
            batch.push(bench.history(seed, number));
            number += 1;
        }
        bench.expire(first, &mut batch);
        for (at, events) in batch.iter().enumerate() {
            assert!(
                is_linearizable::<EVICTS>(events),
                "history {} of seed {seed:#x} has no order:\n{events:#?}",
                first + at
            );
        }
    }
    let evictions = bench.store.cache_stats().evictions;
    println!("{number} histories, {evictions} evictions, seed {seed:#x}");
    assert_eq!(evictions > 0, EVICTS, "seed {seed:#x}");
}

#[test]
fn histories_of_a_store_with_room_are_those_of_a_map_whose_items_expire() {
    histories::<false>(1 << 30);
}

#[test]
fn histories_under_eviction_lose_items_and_nothing_else() {
    histories::<true>(8 << 10);
}

// ---- tests of the test: broken on purpose, without luck in the interleaving ----

/// A number to which one client adds in two steps, while another adds between these.
fn lost_update(is_broken: bool) -> Vec<Event> {
    let bench = Bench::new(1 << 30);
    let (mut one, mut other) = (bench.client(0), bench.client(1));
    let mut events = Vec::new();
    events.push(one.event(0, |client| {
        client.store("set", "n", 10, "0");
        Done::Set(10, Life::Ever)
    }));
    let sum = |client: &mut Client<'_>| Done::Summed(1, client.say("incr n 1\r\n").parse().ok());
    let call = one.moment.fetch_add(1, Ordering::SeqCst);
    let before = one.gets("n").unwrap().0;
    events.push(other.event(0, sum));
    let done = if is_broken {
        one.store("set", "n", before + 1, "0");
        Done::Summed(1, Some(before + 1))
    } else {
        sum(&mut one)
    };
    let ret = one.moment.fetch_add(1, Ordering::SeqCst);
    events.push(Event { thread: 0, key: 0, call, ret, done });
    events
}

#[test]
fn checker_rejects_a_sum_in_two_steps() {
    assert!(is_linearizable::<false>(&lost_update(false)));
    assert!(!is_linearizable::<false>(&lost_update(true)));
    assert!(!is_linearizable::<true>(&lost_update(true)), "no eviction explains it");
}

/// Events one after the other.
fn sequence(dones: &[Done]) -> Vec<Event> {
    let event = |(at, done): (usize, &Done)| {
        let call = 2 * at as u64;
        Event { thread: at % 2, key: 0, call, ret: call + 1, done: *done }
    };
    dones.iter().enumerate().map(event).collect()
}

#[test]
fn checker_rejects_what_no_eviction_explains() {
    let set = Done::Set(7, Life::Ever);
    let mortal = Done::Set(7, Life::Second);
    let (got, miss) = (Done::Got(Some((7, 1))), Done::Got(None));
    for (dones, is_right_without, is_right_with) in [
        (&[set, got, miss][..], false, true),
        (&[set, miss, got], false, false), // it comes back
        (&[set, Done::Set(8, Life::Ever), got], false, false), // it is old
        (&[set, got, Done::Swapped(1, 9, Swap::Stored), got], false, false),
        (&[set, got, Done::Swapped(2, 9, Swap::Stored)], false, false),
        (&[set, Done::Deleted(true), got], false, false),
        (&[set, Done::Touched(Life::Over, true), got], false, false),
        (&[set, Done::Flushed, got], false, false),
        (&[set, Done::Added(8, true)], false, true),
        (&[Done::Added(8, false)], false, false),
        (&[mortal, miss], true, true),
        (&[mortal, Done::Expired, miss], true, true),
        (&[mortal, Done::Expired, got], false, false), // it outlives its time
        (&[mortal, Done::Touched(Life::Ever, true), Done::Expired, got], true, true),
    ] {
        let events = sequence(dones);
        assert_eq!(is_linearizable::<false>(&events), is_right_without, "{dones:?}");
        assert_eq!(is_linearizable::<true>(&events), is_right_with, "{dones:?}");
    }
}
