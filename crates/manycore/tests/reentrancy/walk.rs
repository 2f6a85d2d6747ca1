//! The walk of objects with logs. A callback, in a state, calls an operation on an object. A case
//! that does not end in time is a hang. A case that ends with updates not applied has lost an
//! update.

use crate::cases::{Case, Made, Outcome};
use crate::probe::{Answers, CALLBACKS, Callback, Update, message};
use crate::subject::{Counted, Make, Operation, State, Subject};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

/// The object on which the callback calls the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The object that the callback belongs to.
    Same,
    /// A cold object that nothing else uses.
    OtherCold,
    /// An object with logs, in which an update waits.
    OtherLogged,
    /// An object that another thread holds, for some milliseconds more.
    OtherHeld,
    /// An object with logs. An update waits there that calls the operation on the first object.
    CallsBack,
}

pub const TARGETS: [Target; 5] =
    [Target::Same, Target::OtherCold, Target::OtherLogged, Target::OtherHeld, Target::CallsBack];

impl Target {
    pub fn title(self) -> &'static str {
        match self {
            Self::Same => "on the same object",
            Self::OtherCold => "on another object that is cold",
            Self::OtherLogged => "on another object with logs",
            Self::OtherHeld => "on another object that another thread holds",
            Self::CallsBack => "on another object whose update calls back",
        }
    }
}

const HELD_FOR: Duration = Duration::from_millis(5);

/// The object of a case, and another object. Threads that are gone have updated both.
type Objects<S> = [Arc<Counted<S>>; 2];

fn objects<S: Subject>() -> Objects<S> {
    let objects = [Counted::<S>::new(), Counted::<S>::new()];
    thread::scope(|scope| {
        let update = || objects.iter().for_each(|object| object.update());
        scope.spawn(update).join().expect("they can be updated");
    });
    objects
}

fn run<S: Subject>(
    [first, other]: Objects<S>,
    state: &State<S>,
    callback: Callback,
    operation: &'static Operation<S>,
    target: Target,
) -> Outcome {
    let called = if target == Target::Same { Arc::clone(&first) } else { Arc::clone(&other) };
    let answers = Answers::default();
    match target {
        Target::Same | Target::OtherCold | Target::OtherHeld => {}
        Target::OtherLogged => {
            other.object.with_logs();
            other.update();
        }
        Target::CallsBack => {
            other.object.with_logs();
            let (back, answers) = (Arc::clone(&first), answers.clone());
            let hook = move || answers.note(|| (operation.call)(&back));
            let hooked = Update::hooked(&other.ledger, Callback::Apply, Some(Box::new(hook)));
            other.object.update(hooked);
        }
    }
    // Dropping the sender lets the holder go: at once where the operation waits for that, else when
    // the case is over.
    let (held, let_go) = mpsc::channel::<()>();
    let held = Arc::new(Mutex::new(Some(held)));
    let make: Make = {
        let (answers, ledger) = (answers.clone(), Arc::clone(&first));
        let held = Arc::clone(&held);
        Arc::new(move || {
            let (answers, called) = (answers.clone(), Arc::clone(&called));
            let held = Arc::clone(&held);
            let hook = move || {
                if operation.waits {
                    drop(taken(&held));
                }
                answers.note(|| (operation.call)(&called));
            };
            Update::hooked(&ledger.ledger, callback, Some(Box::new(hook)))
        })
    };
    let provoked = catch_unwind(AssertUnwindSafe(|| {
        if target == Target::OtherHeld {
            beside_a_holder(&other, operation.waits, let_go, || {
                let _over = Over(&held);
                (state.provoke)(&first, &make);
            });
        } else {
            (state.provoke)(&first, &make);
        }
    }));
    // What a callback got is noted whether or not the operation that ran it panicked for it.
    provoked.map_err(|panic| format!("the library panicked: {}", message(&*panic)))?;
    let before = answers.distinct();
    for (object, name) in [(&first, "the object"), (&other, "the other object")] {
        let settled = catch_unwind(AssertUnwindSafe(|| settled(object)))
            .map_err(|panic| format!("{name} ends unusable: {}", message(&*panic)))?;
        let appended = object.ledger.appended();
        if settled != appended {
            return Err(format!("{name} has {settled} of {appended} updates"));
        }
    }
    Ok(before)
}

type Sending = Mutex<Option<mpsc::Sender<()>>>;

fn taken(held: &Sending) -> Option<mpsc::Sender<()>> {
    held.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Lets the holder go when the case is over, even if it ends by a panic.
struct Over<'a>(&'a Sending);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        drop(taken(self.0));
    }
}

/// Returns the value when all updates are applied. An update may make another, which a later read
/// applies.
fn settled<S: Subject>(object: &Counted<S>) -> u64 {
    let settled = || object.object.settled();
    (0..20).map(|_| settled()).find(|sum| *sum == object.ledger.appended()).unwrap_or_else(settled)
}

/// Runs `f` while another thread holds the object. The holder lets go when the sender of `let_go`
/// is dropped, and some milliseconds later if the operation waits for that.
fn beside_a_holder<S: Subject>(
    object: &Arc<Counted<S>>,
    waits: bool,
    let_go: mpsc::Receiver<()>,
    f: impl FnOnce(),
) {
    thread::scope(|scope| {
        let (holds, held) = mpsc::channel();
        scope.spawn(move || {
            object.object.while_held(&mut || {
                holds.send(()).expect("the case waits for this");
                // An error says that the case is over.
                let _ = let_go.recv();
                if waits {
                    thread::sleep(HELD_FOR);
                }
            });
        });
        held.recv().expect("the holder says when it has the object");
        f();
    });
}

/// Returns all cases of a type.
pub fn cases<S: Subject>() -> Vec<Case> {
    let mut cases = Vec::new();
    for target in TARGETS {
        for callback in CALLBACKS {
            for state in S::STATES {
                for operation in S::OPERATIONS {
                    let make = move || {
                        let objects = objects::<S>();
                        Box::new(move || run(objects, state, callback, operation, target)) as Made
                    };
                    cases.push(Case {
                        target: target.title(),
                        callback: title(callback),
                        operation: operation.name,
                        state: state.name,
                        make: Box::new(make),
                    });
                }
            }
        }
    }
    cases
}

fn title(callback: Callback) -> &'static str {
    match callback {
        Callback::Apply => "`apply`",
        Callback::Push => "`push`",
        Callback::Len => "`len`",
        Callback::Collect => "`collect`",
        Callback::Merge => "`merge`",
        Callback::DropUpdate => "an update's `Drop`",
        Callback::DropLog => "a log's `Drop`",
    }
}
