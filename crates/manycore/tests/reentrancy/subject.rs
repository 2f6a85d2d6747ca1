//! The objects that the walk tests, the states it brings them into, and the operations it calls on
//! them.

use crate::probe::{Answer, Callback, Hook, Ledger, Probe, Update};
use manycore::cluster::Adaptive;
use manycore::cluster::adaptive::Mode;
use manycore::oplog::{Deferred, LogTable, Logs, TryReadError};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

pub type Plain = Deferred<u64, Probe>;
pub type Fitting = Adaptive<u64, Probe>;

/// An object with the ledger of its updates.
pub struct Counted<S> {
    pub object: S,
    pub ledger: Ledger,
    /// The table of the object's logs: it has one place.
    pub table: Arc<LogTable>,
}

impl<S: Subject> Counted<S> {
    /// An update that, when it is applied, makes another one, and so on `more` times.
    pub fn update_chain(self: &Arc<Self>, more: u32) {
        let again = Arc::clone(self);
        let hook: Option<Hook> =
            (more > 0).then(|| Box::new(move || again.update_chain(more - 1)) as Hook);
        self.object.update(Update::hooked(&self.ledger, Callback::Apply, hook));
    }
    pub fn new() -> Arc<Self> {
        let table = Arc::new(LogTable::new(1));
        Arc::new(Self { object: S::new(&table), ledger: Ledger::default(), table })
    }

    pub fn update(&self) {
        self.object.update(Update::plain(&self.ledger));
    }
}

/// An operation that a callback may call.
pub struct Operation<S> {
    pub name: &'static str,
    /// Whether it waits for an object that another thread holds.
    pub waits: bool,
    pub call: fn(&Arc<Counted<S>>) -> Answer,
}

/// Brings an object into a state, and there runs the callback of the updates that `make` makes.
pub struct State<S> {
    pub name: &'static str,
    pub provoke: fn(&Arc<Counted<S>>, &Make),
}

/// Makes an update with the hook of the case.
pub type Make = Arc<dyn Fn() -> Update + Send + Sync>;

pub trait Subject: Sized + Send + Sync + 'static {
    const NAME: &'static str;
    const OPERATIONS: &'static [Operation<Self>];
    const STATES: &'static [State<Self>];

    fn new(table: &Arc<LogTable>) -> Self;
    fn update(&self, update: Update);
    /// The value when all deferred updates have been applied.
    fn settled(&self) -> u64;
    fn with_logs(&self);
    /// Runs `f` while this thread holds the object.
    fn while_held(&self, f: &mut dyn FnMut());
}

fn works<R>(_: R) -> Answer {
    Answer::Works
}

fn unless_false(done: bool) -> Answer {
    if done { Answer::Works } else { Answer::Refuses("false") }
}

fn unless_refused<G>(tried: Result<G, TryReadError>) -> Answer {
    match tried {
        Ok(_) => Answer::Works,
        Err(TryReadError::Busy) => Answer::Refuses("Busy"),
        Err(_) => Answer::Refuses("Poisoned"),
    }
}

impl Subject for Plain {
    const NAME: &'static str = "Deferred";
    const OPERATIONS: &'static [Operation<Self>] = &[
        Operation { name: "append", waits: false, call: |on| works(on.update()) },
        Operation { name: "append a chain", waits: false, call: |on| works(on.update_chain(5)) },
        Operation { name: "read", waits: true, call: |on| works(*on.object.read()) },
        Operation {
            name: "try_read",
            waits: false,
            call: |on| unless_refused(on.object.try_read()),
        },
        Operation { name: "promote", waits: true, call: |on| unless_false(on.object.promote()) },
        Operation { name: "demote", waits: true, call: |on| works(on.object.demote()) },
        Operation { name: "stats", waits: true, call: |on| works(on.object.stats()) },
        Operation { name: "is_poisoned", waits: false, call: |on| works(on.object.is_poisoned()) },
        Operation { name: "clear_poison", waits: true, call: |on| works(on.object.clear_poison()) },
    ];
    const STATES: &'static [State<Self>] = &[
        State { name: "cold", provoke: |on, make| on.object.append(make()) },
        State { name: "reserved", provoke: reserved },
        State { name: "promoting", provoke: promoting },
        State {
            name: "hot",
            provoke: |on, make| {
                on.object.promote();
                on.object.append(make());
                drop(on.object.read());
            },
        },
        State {
            name: "full",
            provoke: |on, make| {
                on.object.promote();
                (0..9).for_each(|_| on.object.append(make()));
            },
        },
        State {
            name: "demoting",
            provoke: |on, make| {
                on.object.promote();
                on.object.append(make());
                on.object.demote();
            },
        },
        State {
            name: "idle",
            provoke: |on, make| {
                on.object.promote();
                for _ in 0..20 {
                    on.object.append(make());
                    drop(on.object.read());
                }
            },
        },
        State { name: "evicted", provoke: evicted },
        State { name: "held", provoke: held },
        State { name: "poisoned", provoke: poisoned },
        State { name: "thread exit", provoke: at_thread_exit },
    ];

    fn new(table: &Arc<LogTable>) -> Self {
        Self::builder()
            .max_entries(4)
            .table(Arc::clone(table))
            .build(0)
            .expect("settings that can work")
    }
    fn update(&self, update: Update) {
        self.append(update);
    }
    fn settled(&self) -> u64 {
        self.clear_poison();
        (0..8).for_each(|_| drop(self.read()));
        *self.read()
    }
    fn with_logs(&self) {
        assert!(self.promote());
    }
    fn while_held(&self, f: &mut dyn FnMut()) {
        let _guard = self.read();
        f();
    }
}

/// Appends to a cold object within its own update, which makes its logs under the lock. The update
/// appended is the update of the case.
fn promoting(on: &Arc<Counted<Plain>>, make: &Make) {
    let (object, make) = (Arc::clone(on), Arc::clone(make));
    let first = move || object.object.append(make());
    let hook = Some(Box::new(first) as _);
    on.object.append(Update::hooked(&on.ledger, Callback::Apply, hook));
    drop(on.object.read());
}

/// Makes an object lose its place in the table to another object.
fn evicted(on: &Arc<Counted<Plain>>, make: &Make) {
    let builder = Plain::builder().logs(Logs::Always).table(Arc::clone(&on.table));
    let newcomer = builder.build(0).expect("settings that can work");
    assert!(on.object.promote());
    on.object.append(make());
    newcomer.append(Update::plain(&Ledger::default()));
    assert_eq!(newcomer.settled(), 1);
}

/// How often one thread must use an object alone before the object is reserved for it.
const USES: usize = 2_100;

/// Uses an object only on this thread for so long that it is reserved for the thread.
fn reserved<S: Subject>(on: &Arc<Counted<S>>, make: &Make) {
    (0..USES).for_each(|_| on.object.while_held(&mut || ()));
    on.object.update(make());
}

fn held<S: Subject>(on: &Arc<Counted<S>>, make: &Make) {
    on.object.while_held(&mut || on.object.update(make()));
}

fn poisoned(on: &Arc<Counted<Plain>>, make: &Make) {
    let hook: Hook = Box::new(|| panic!("planned"));
    let broken = Update::hooked(&Ledger::default(), Callback::Apply, Some(hook));
    assert!(catch_unwind(AssertUnwindSafe(|| on.object.append(broken))).is_err());
    assert!(on.object.is_poisoned());
    on.object.append(make());
    on.object.clear_poison();
    drop(on.object.read());
}

thread_local! {
    static AT_EXIT: RefCell<AtExit> = const { RefCell::new(AtExit(None)) };
}

struct AtExit(Option<Box<dyn FnOnce()>>);

impl Drop for AtExit {
    fn drop(&mut self) {
        if let Some(last) = self.0.take() {
            last();
        }
    }
}

/// Uses the object in the destructor of a thread-local variable, when the library's own data for
/// the thread is gone.
fn at_thread_exit<S: Subject>(on: &Arc<Counted<S>>, make: &Make) {
    let (object, make) = (Arc::clone(on), Arc::clone(make));
    let thread = thread::spawn(move || {
        let inside = Arc::clone(&object);
        let last = move || {
            inside.object.with_logs();
            inside.object.update(make());
            inside.object.settled();
        };
        AT_EXIT.with(|exit| exit.borrow_mut().0 = Some(Box::new(last)));
        object.update();
    });
    thread.join().expect("the thread ends without a panic");
}

impl Subject for Fitting {
    const NAME: &'static str = "Adaptive";
    const OPERATIONS: &'static [Operation<Self>] = &[
        Operation { name: "update", waits: false, call: |on| works(on.update()) },
        Operation { name: "update a chain", waits: false, call: |on| works(on.update_chain(5)) },
        Operation { name: "read", waits: true, call: |on| works(*on.object.read()) },
        Operation {
            name: "try_read",
            waits: false,
            call: |on| unless_refused(on.object.try_read()),
        },
        Operation { name: "change", waits: true, call: |on| works(on.object.change(|sum| *sum)) },
        Operation {
            name: "pin",
            waits: true,
            call: |on| unless_false(on.object.pin(Mode::Shared)),
        },
        Operation { name: "unpin", waits: true, call: |on| works(on.object.unpin()) },
        Operation { name: "stats", waits: true, call: |on| works(on.object.stats()) },
        Operation { name: "is_poisoned", waits: false, call: |on| works(on.object.is_poisoned()) },
    ];
    const STATES: &'static [State<Self>] = &[
        State { name: "never pinned", provoke: |on, make| on.object.update(make()) },
        State { name: "reserved", provoke: reserved },
        State { name: "held while never pinned", provoke: held },
        State {
            name: "unpinned",
            provoke: |on, make| {
                on.object.pin(Mode::Logs);
                on.object.unpin();
                in_any_mode(on, make);
            },
        },
        State { name: "direct", provoke: |on, make| in_mode(on, make, Mode::Direct) },
        State { name: "logs", provoke: |on, make| in_mode(on, make, Mode::Logs) },
        State { name: "shared", provoke: |on, make| in_mode(on, make, Mode::Shared) },
        State { name: "logs to direct", provoke: |on, make| from_logs(on, make, Mode::Direct) },
        State { name: "logs to shared", provoke: |on, make| from_logs(on, make, Mode::Shared) },
        State {
            name: "held in direct",
            provoke: |on, make| {
                on.object.pin(Mode::Direct);
                held(on, make);
                on.object.settled();
            },
        },
        State {
            name: "held in shared",
            provoke: |on, make| {
                on.object.pin(Mode::Shared);
                held(on, make);
                on.object.settled();
            },
        },
        State { name: "thread exit", provoke: at_thread_exit },
    ];

    fn new(_: &Arc<LogTable>) -> Self {
        Self::new(0)
    }
    fn update(&self, update: Update) {
        Self::update(self, update);
    }
    fn settled(&self) -> u64 {
        self.repair(|_| ());
        (0..8).for_each(|_| drop(self.read()));
        *self.read()
    }
    fn with_logs(&self) {
        self.pin(Mode::Logs);
    }
    fn while_held(&self, f: &mut dyn FnMut()) {
        let _guard = self.read();
        f();
    }
}

fn in_mode(on: &Arc<Counted<Fitting>>, make: &Make, mode: Mode) {
    on.object.pin(mode);
    in_any_mode(on, make);
}

fn in_any_mode(on: &Arc<Counted<Fitting>>, make: &Make) {
    on.object.update(make());
    drop(on.object.read());
}

fn from_logs(on: &Arc<Counted<Fitting>>, make: &Make, mode: Mode) {
    on.object.pin(Mode::Logs);
    on.object.update(make());
    on.object.pin(mode);
    drop(on.object.read());
}
