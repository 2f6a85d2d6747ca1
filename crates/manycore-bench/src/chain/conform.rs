//! Checks that chains report the members of each set, and that the load removes what it added.

use std::{
    collections::HashSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::{Chains, DEPTH, Worker};
use crate::{
    conform::on_threads,
    workload::{ReadEvery, Shape},
};

/// Threads of each test.
const THREADS: usize = 3;

/// Lines of processes that each thread makes.
const LINES: usize = 60;

/// The chains by themselves, and under the load.
pub(super) fn conform<C: Chains>() -> Result<(), String> {
    knows_who_is_where::<C>()?;
    load_takes_out_what_it_put_in::<C>()
}

/// Three threads make lines; each set has exactly those of a thread's own that are linked into it,
/// after each fork and after each exit.
fn knows_who_is_where<C: Chains>() -> Result<(), String> {
    let chains = &C::new();
    on_threads(THREADS, |thread| {
        let thread = thread as u32;
        let mut own = chains.own();
        for line in 0..LINES as u32 {
            let first = thread << 16 | line << 3;
            let sets: Vec<_> = (0..3).map(|_| chains.set()).collect();
            let at = |level: usize| level.checked_sub(1).map(|place| &sets[place]);
            // The members at each level: the n-th process in the root's set and the first n + 1.
            let mut there = Vec::new();
            for process in 0..3 {
                for level in 0..process + 2 {
                    let link = chains.link(&mut own, at(level), first + process as u32);
                    there.push((level, first + process as u32, link));
                }
                look(chains, thread, at, &there)?;
            }
            while !there.is_empty() {
                let (level, _, link) = there.swap_remove((line as usize * 7) % there.len());
                chains.unlink(&mut own, at(level), link);
                look(chains, thread, at, &there)?;
            }
        }
        Ok(())
    })?;
    root_is_empty(chains)
}

fn look<'a, 's, C: Chains>(
    chains: &'a C,
    thread: u32,
    at: impl Fn(usize) -> Option<&'s C::Set<'a>>,
    there: &[(usize, u32, C::Link<'a>)],
) -> Result<(), String>
where
    'a: 's,
{
    for level in 0..4 {
        let mut seen = Vec::new();
        chains.for_each(at(level), |process| seen.push(process));
        if level == 0 {
            seen.retain(|process| process >> 16 == thread); // the others are elsewhere
        }
        seen.sort_unstable();
        let mut own: Vec<_> =
            there.iter().filter(|link| link.0 == level).map(|link| link.1).collect();
        own.sort_unstable();
        if seen != own {
            return Err(format!("set {level} has {seen:x?} in place of {own:x?}"));
        }
    }
    Ok(())
}

/// Each link that is taken out was there, none is left, and there are as many as forks ask for.
fn load_takes_out_what_it_put_in<C: Chains>() -> Result<(), String> {
    let checked = Checked::<C>::new();
    let shape = Shape { threads: THREADS, read_every: ReadEvery::Updates(3), spin: 0 };
    let forks = AtomicU64::new(0);
    on_threads(THREADS, |thread| {
        let mut worker = Worker::new(&checked, shape, thread);
        (0..LINES).for_each(|_| {
            forks.fetch_add(worker.run(), Relaxed);
        });
        Ok(())
    })?;
    let books = checked.books.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(wrong) = &books.wrong {
        return Err(wrong.clone());
    }
    if !books.present.is_empty() {
        return Err(format!("the load left {:?}", books.present));
    }
    let forks = forks.into_inner();
    if books.own != forks || books.deepest != DEPTH {
        return Err(format!(
            "{} sets were begun by {forks} forks, {} deep",
            books.own, books.deepest
        ));
    }
    root_is_empty(&checked.chains)
}

fn root_is_empty<C: Chains>(chains: &C) -> Result<(), String> {
    let mut left = 0;
    chains.for_each(None, |_| left += 1);
    if left == 0 { Ok(()) } else { Err(format!("{left} processes were left at the end")) }
}

/// What checked chains have been told.
#[derive(Default)]
struct Books {
    /// Set and process; the root's set is 0.
    present: HashSet<(u64, u32)>,
    /// Processes that were the first in their own set.
    own: u64,
    /// The most sets, the root's apart, that a process was in.
    deepest: usize,
    wrong: Option<String>,
}

/// Chains that keep books.
struct Checked<C> {
    chains: C,
    sets: AtomicU64,
    books: Mutex<Books>,
}

/// A set with a number of its own. It cannot be dropped with links in it.
struct CheckedSet<'a, C: Chains> {
    set: C::Set<'a>,
    number: u64,
    checked: &'a Checked<C>,
}

impl<C: Chains> Drop for CheckedSet<'_, C> {
    fn drop(&mut self) {
        self.checked.note(|books| {
            let left = books.present.iter().any(|(set, _)| *set == self.number);
            left.then(|| format!("set {} was dropped with links in it", self.number))
        });
    }
}

impl<C: Chains> Checked<C> {
    fn note(&self, what: impl FnOnce(&mut Books) -> Option<String>) {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let wrong = what(&mut books);
        books.wrong = books.wrong.take().or(wrong);
    }
}

impl<C: Chains> Chains for Checked<C> {
    type Set<'a> = CheckedSet<'a, C>;
    type Link<'a> = (u32, C::Link<'a>);
    type Own<'a> = C::Own<'a>;

    fn new() -> Self {
        Self { chains: C::new(), sets: AtomicU64::new(1), books: Mutex::default() }
    }

    fn own(&self) -> C::Own<'_> {
        self.chains.own()
    }

    fn set(&self) -> CheckedSet<'_, C> {
        let number = self.sets.fetch_add(1, Relaxed);
        CheckedSet { set: self.chains.set(), number, checked: self }
    }

    fn link<'a>(
        &'a self,
        own: &mut C::Own<'a>,
        set: Option<&CheckedSet<'a, C>>,
        process: u32,
    ) -> Self::Link<'a> {
        let number = set.map_or(0, |set| set.number);
        self.note(|books| {
            let is_first = !books.present.iter().any(|(set, _)| *set == number);
            books.own += u64::from(number != 0 && is_first);
            let fresh = books.present.insert((number, process));
            let links = books.present.iter().filter(|(_, other)| *other == process).count();
            books.deepest = books.deepest.max(links - 1);
            (!fresh).then(|| format!("{process} came to set {number} twice"))
        });
        (process, self.chains.link(own, set.map(|set| &set.set), process))
    }

    fn unlink<'a>(
        &'a self,
        own: &mut C::Own<'a>,
        set: Option<&CheckedSet<'a, C>>,
        (process, link): Self::Link<'a>,
    ) {
        self.chains.unlink(own, set.map(|set| &set.set), link);
        let number = set.map_or(0, |set| set.number);
        self.note(|books| {
            let was_there = books.present.remove(&(number, process));
            (!was_there).then(|| format!("{process} was not in set {number}"))
        });
    }

    fn for_each<'a>(&'a self, set: Option<&CheckedSet<'a, C>>, f: impl FnMut(u32)) {
        self.chains.for_each(set.map(|set| &set.set), f);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::rivals, *};

    type Right = rivals::EachLocked<rivals::StdMutex>;
    type OneSet = std::sync::Mutex<rivals::Tree>;

    /// Chains with a fault: what happens instead of a link, and of its end.
    macro_rules! faulty {
        ($name:ident, $link:expr, $unlink:expr) => {
            struct $name(Right);

            impl Chains for $name {
                type Set<'a> = OneSet;
                type Link<'a> = u32;
                type Own<'a> = ();

                fn new() -> Self {
                    Self(Right::new())
                }
                fn own(&self) {}
                fn set(&self) -> OneSet {
                    self.0.set()
                }
                fn link(&self, (): &mut (), set: Option<&OneSet>, process: u32) -> u32 {
                    let link: fn(&Right, Option<&OneSet>, u32) = $link;
                    link(&self.0, set, process);
                    process
                }
                fn unlink(&self, (): &mut (), set: Option<&OneSet>, process: u32) {
                    let unlink: fn(&Right, Option<&OneSet>, u32) = $unlink;
                    unlink(&self.0, set, process);
                }
                fn for_each(&self, set: Option<&OneSet>, f: impl FnMut(u32)) {
                    self.0.for_each(set, f);
                }
            }
        };
    }

    fn link(chains: &Right, set: Option<&OneSet>, process: u32) {
        chains.link(&mut (), set, process);
    }

    fn unlink(chains: &Right, set: Option<&OneSet>, process: u32) {
        chains.unlink(&mut (), set, process);
    }

    faulty!(Sound, link, unlink);
    faulty!(Forgets, link, |chains, set, process| {
        if process % 8 != 2 {
            unlink(chains, set, process);
        }
    });
    faulty!(
        NoInheritance,
        |chains, set, process| link(chains, set.filter(|_| false), process),
        |chains, set, process| { unlink(chains, set.filter(|_| false), process) }
    );
    faulty!(
        Loses,
        |chains, set, process| {
            if set.is_some() || process % 8 != 1 {
                link(chains, set, process);
            }
        },
        unlink
    );

    #[test]
    fn chains_with_a_fault_are_found() {
        conform::<Sound>().unwrap();
        conform::<Forgets>().unwrap_err();
        conform::<NoInheritance>().unwrap_err();
        conform::<Loses>().unwrap_err();
    }

    #[test]
    fn a_load_that_errs_is_found_in_the_books() {
        let checked = Checked::<Right>::new();
        let wrong = || checked.books.lock().unwrap().wrong.take();
        let set = checked.set();
        checked.link(&mut (), Some(&set), 1);
        assert_eq!(wrong(), None);
        let again = checked.link(&mut (), Some(&set), 1);
        assert!(wrong().unwrap().contains("twice"));
        checked.unlink(&mut (), None, again);
        assert!(wrong().unwrap().contains("not in set 0"));
        drop(set);
        assert!(wrong().unwrap().contains("dropped with links"));
    }
}
