//! Programs without code: closures that call the engine themselves.
//!
//! An actor is one virtual thread. Each time an actor runs, it makes one call of the engine and
//! returns the call's outcome. A workload then takes a few lines: it needs no instrumentation and
//! no second stack. Some figures of papers are tests of this crate that use nothing else.

use crate::engine::{Deadlock, Engine, Outcome, ThreadId};

/// One virtual thread: makes one call of the engine and returns its outcome.
///
/// An actor ends with [`Engine::exit`].
pub type Actor<'a> = Box<dyn FnMut(&mut Engine) -> Outcome + 'a>;

/// Runs the actors, the first on core 0 and so on, until all have ended.
///
/// The actors start together at the time `start`. If there are more actors than cores, they share
/// the cores in turn. The engine must be new.
///
/// # Errors
///
/// The actors wait for each other.
///
/// # Examples
///
/// ```
/// use manycore_sim::{Access, Engine, Machine, drive};
///
/// let mut engine = Engine::new(Machine::named("opteron-8x6").unwrap(), 2, 1).unwrap();
/// let actor = |times: u32| -> drive::Actor<'static> {
///     let mut left = times;
///     Box::new(move |engine| {
///         left -= 1;
///         if left == 0 { engine.exit() } else { engine.access(64, 8, Access::Rmw, 1) }
///     })
/// };
/// drive::run(&mut engine, vec![actor(10), actor(10)], 0).unwrap();
/// assert_eq!(engine.totals().accesses, [0, 0, 18]);
/// ```
pub fn run(engine: &mut Engine, mut actors: Vec<Actor<'_>>, start: u64) -> Result<(), Deadlock> {
    for number in 0..actors.len() as u32 {
        engine.spawn(Some(number % engine.cores()), start);
    }
    let mut joined = 0;
    loop {
        let outcome = match engine.running() {
            ThreadId::MAIN if joined == actors.len() => engine.exit(),
            ThreadId::MAIN => {
                joined += 1;
                engine.join(ThreadId(joined as u32), 0)
            }
            ThreadId(number) => actors[number as usize - 1](engine),
        };
        match outcome {
            Outcome::Continue | Outcome::Switch(_) => {}
            Outcome::Finished => return Ok(()),
            Outcome::Deadlock | Outcome::Idle => return Err(engine.deadlock()),
        }
    }
}
