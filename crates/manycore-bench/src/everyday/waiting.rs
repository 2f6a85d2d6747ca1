//! Threads that wait for each other: a stream of words from one to another, and a word that goes
//! back and forth.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::*},
        mpsc,
    },
    thread::{self, Thread},
};

use crate::{
    row::Kind,
    runner::{Control, Subject, Tally},
    workload::Entry,
};

/// A way to hand words to another thread.
trait Way: 'static {
    type To: Send;
    type From: Send;

    fn new() -> (Self::To, Self::From);
    /// Waits for room. False once the other end is gone.
    fn put(to: &mut Self::To, word: u64) -> bool;
    /// Waits for a word. None once the other end is gone and all is taken.
    fn take(from: &mut Self::From) -> Option<u64>;
}

struct Std;

impl Way for Std {
    type To = mpsc::Sender<u64>;
    type From = mpsc::Receiver<u64>;

    fn new() -> (Self::To, Self::From) {
        mpsc::channel()
    }

    fn put(to: &mut Self::To, word: u64) -> bool {
        to.send(word).is_ok()
    }

    fn take(from: &mut Self::From) -> Option<u64> {
        from.recv().ok()
    }
}

struct StdBounded<const ROOM: usize>;

impl<const ROOM: usize> Way for StdBounded<ROOM> {
    type To = mpsc::SyncSender<u64>;
    type From = mpsc::Receiver<u64>;

    fn new() -> (Self::To, Self::From) {
        mpsc::sync_channel(ROOM)
    }

    fn put(to: &mut Self::To, word: u64) -> bool {
        to.send(word).is_ok()
    }

    fn take(from: &mut Self::From) -> Option<u64> {
        from.recv().ok()
    }
}

/// Crossbeam's; without a bound if there is room for none.
struct Crossbeam<const ROOM: usize>;

impl<const ROOM: usize> Way for Crossbeam<ROOM> {
    type To = crossbeam_channel::Sender<u64>;
    type From = crossbeam_channel::Receiver<u64>;

    fn new() -> (Self::To, Self::From) {
        if ROOM == 0 { crossbeam_channel::unbounded() } else { crossbeam_channel::bounded(ROOM) }
    }

    fn put(to: &mut Self::To, word: u64) -> bool {
        to.send(word).is_ok()
    }

    fn take(from: &mut Self::From) -> Option<u64> {
        from.recv().ok()
    }
}

struct Tokio;

impl Way for Tokio {
    type To = tokio::sync::mpsc::UnboundedSender<u64>;
    type From = tokio::sync::mpsc::UnboundedReceiver<u64>;

    fn new() -> (Self::To, Self::From) {
        tokio::sync::mpsc::unbounded_channel()
    }

    fn put(to: &mut Self::To, word: u64) -> bool {
        to.send(word).is_ok()
    }

    fn take(from: &mut Self::From) -> Option<u64> {
        from.blocking_recv()
    }
}

/// A queue with a lock and a condition, as one writes it by hand.
struct ByHand;

#[derive(Default)]
struct Queue {
    words: Mutex<(VecDeque<u64>, bool)>,
    changed: Condvar,
}

/// Its sending end, which closes it.
struct Sending(Arc<Queue>);

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.words.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.0.changed.notify_all();
    }
}

impl Way for ByHand {
    type To = Sending;
    type From = Arc<Queue>;

    fn new() -> (Sending, Arc<Queue>) {
        let queue = Arc::<Queue>::default();
        (Sending(Arc::clone(&queue)), queue)
    }

    fn put(to: &mut Sending, word: u64) -> bool {
        to.0.words.lock().unwrap().0.push_back(word);
        to.0.changed.notify_one();
        true
    }

    fn take(from: &mut Arc<Queue>) -> Option<u64> {
        let mut words = from.words.lock().unwrap();
        loop {
            match words.0.pop_front() {
                None if !words.1 => words = from.changed.wait(words).unwrap(),
                word => return word,
            }
        }
    }
}

/// One word, whose reader parks or yields: 0 is empty, the highest is closed.
struct Slot<const PARKS: bool>;

struct Word {
    word: AtomicU64,
    reader: Mutex<Option<Thread>>,
}

struct Writer<const PARKS: bool>(Arc<Word>);

impl<const PARKS: bool> Writer<PARKS> {
    fn write(&self, word: u64) {
        while self.0.word.load(Acquire) != 0 {
            thread::yield_now();
        }
        self.0.word.store(word, Release);
        if PARKS {
            let reader = self.0.reader.lock().unwrap_or_else(PoisonError::into_inner);
            reader.iter().for_each(Thread::unpark);
        }
    }
}

impl<const PARKS: bool> Drop for Writer<PARKS> {
    fn drop(&mut self) {
        self.write(u64::MAX);
    }
}

impl<const PARKS: bool> Way for Slot<PARKS> {
    type To = Writer<PARKS>;
    type From = Arc<Word>;

    fn new() -> (Writer<PARKS>, Arc<Word>) {
        let word = Arc::new(Word { word: AtomicU64::new(0), reader: Mutex::new(None) });
        (Writer(Arc::clone(&word)), word)
    }

    fn put(to: &mut Writer<PARKS>, word: u64) -> bool {
        to.write(word + 1);
        true
    }

    fn take(from: &mut Arc<Word>) -> Option<u64> {
        let reader = || from.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if PARKS && reader().is_none() {
            *reader() = Some(thread::current());
        }
        loop {
            match from.word.load(Acquire) {
                0 if PARKS => thread::park(),
                0 => thread::yield_now(),
                u64::MAX => return None,
                word => {
                    from.word.store(0, Release);
                    return Some(word - 1);
                }
            }
        }
    }
}

/// What one of two threads has, until it is taken.
type Ends<W> = Mutex<Option<(<W as Way>::To, <W as Way>::From)>>;

/// For each pair of threads: from the even one to the odd one, and, where words come back, back.
struct Pairs<W: Way, const BACK: bool>(Vec<[Ends<W>; 2]>);

impl<W: Way, const BACK: bool> Pairs<W, BACK> {
    fn new(threads: usize) -> Self {
        let pair = |_| {
            let ((there_to, there_from), (back_to, back_from)) = (W::new(), W::new());
            [(there_to, back_from), (back_to, there_from)].map(|ends| Mutex::new(Some(ends)))
        };
        Self((0..threads.div_ceil(2)).map(pair).collect())
    }

    fn ends(&self, index: usize) -> (W::To, W::From) {
        self.0[index / 2][index % 2].lock().unwrap().take().expect("each end is taken once")
    }

    fn send(&self, index: usize, control: &Control) -> Tally {
        let (mut to, mut from) = self.ends(index);
        let mut word = 0;
        control.drive(|| {
            assert!(W::put(&mut to, word), "the other thread is gone");
            if BACK {
                assert_eq!(W::take(&mut from), Some(word));
            }
            word += 1;
            u64::from(BACK)
        })
    }

    fn receive(&self, index: usize, control: &Control) -> Tally {
        let (mut to, mut from) = self.ends(index);
        let mut next = 0;
        let mut one = || {
            let word = W::take(&mut from)?;
            assert_eq!(word, next, "a word was lost");
            next += 1;
            Some(BACK && W::put(&mut to, word))
        };
        let tally = control.drive(|| u64::from(one().is_some() && !BACK));
        while one().is_some() {}
        tally
    }
}

impl<W: Way, const BACK: bool> Subject for Pairs<W, BACK> {
    fn workers(&self, threads: usize) -> usize {
        // One alone has no other to wait for.
        threads.next_multiple_of(2)
    }

    fn work(&self, index: usize, control: &Control) -> Tally {
        if index.is_multiple_of(2) {
            self.send(index, control)
        } else {
            self.receive(index, control)
        }
    }
}

fn conform<W: Way>() -> Result<(), String> {
    let (mut to, mut from) = W::new();
    let sender = thread::spawn(move || (0..100).all(|word| W::put(&mut to, word)));
    let came = (0..100).all(|word| W::take(&mut from) == Some(word));
    let closed = sender.join().is_ok_and(|sent| sent) && W::take(&mut from).is_none();
    if came && closed { Ok(()) } else { Err("words were lost".to_owned()) }
}

const fn entry<W: Way, const BACK: bool>(name: &'static str, about: &'static str) -> Entry<usize> {
    let build = |threads| -> Box<dyn Subject> { Box::new(Pairs::<W, BACK>::new(threads)) };
    Entry::new(name, Kind::Rival, about, build, conform::<W>)
}

/// The cases.
pub(super) static ENTRIES: &[Entry<usize>] = &[
    entry::<Std, false>("stream-std", "std channel"),
    entry::<StdBounded<64>, false>("stream-std-bounded", "std sync_channel of 64"),
    entry::<Crossbeam<0>, false>("stream-crossbeam", "crossbeam's channel"),
    entry::<Crossbeam<64>, false>("stream-crossbeam-bounded", "crossbeam's channel of 64"),
    entry::<Tokio, false>("stream-tokio", "tokio's channel, blocking"),
    entry::<ByHand, false>("stream-by-hand", "VecDeque, Mutex and Condvar"),
    entry::<Std, true>("back-std", "std channels there and back"),
    entry::<Crossbeam<0>, true>("back-crossbeam", "crossbeam's channels"),
    entry::<ByHand, true>("back-by-hand", "VecDeque, Mutex and Condvar"),
    entry::<Slot<true>, true>("back-park", "a word and park"),
    entry::<Slot<false>, true>("back-yield", "a word and yield_now"),
];
