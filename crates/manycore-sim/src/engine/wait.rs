//! Waiting for other threads and for time: futex, join, sleep, and the description of a deadlock.

use std::{collections::VecDeque, fmt};

use super::{Engine, Outcome, ThreadId, events::Event, thread::State};

/// The object that a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum WaitFor {
    /// A wake of the futex at that address.
    Futex {
        /// The futex word.
        address: usize,
    },
    /// The end of a thread.
    Join {
        /// That thread.
        thread: ThreadId,
    },
    /// A time.
    Sleep,
    /// A cache line.
    Line {
        /// Its first byte.
        address: usize,
    },
    /// The thread's own store buffer.
    Stores,
    /// A core.
    Core,
}

/// The reason why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Wakened {
    /// Another thread woke this one.
    ByThread,
    /// The deadline passed.
    ByTime,
}

/// Threads that wait at one futex word, in order of arrival, each with its mask.
pub(super) type Waiters = VecDeque<(u32, u32)>;

/// One thread of a deadlock.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Blocked {
    /// The thread.
    pub thread: ThreadId,
    /// Its core.
    pub core: u32,
    /// The object that it waits for.
    pub waits_for: WaitFor,
    /// When it began to wait, in cycles.
    pub since: u64,
    /// The place in the program where it began to wait.
    pub pc: usize,
}

/// A deadlock: all threads wait, and no timer will wake any of them.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Deadlock {
    /// Every thread that has not ended.
    pub threads: Vec<Blocked>,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "deadlock: {} threads wait, and no thread can wake them", self.threads.len())?;
        for blocked in &self.threads {
            write!(f, "  thread {} on core {} waits for ", blocked.thread.0, blocked.core)?;
            match blocked.waits_for {
                WaitFor::Futex { address } => write!(f, "the futex at {address:#x}")?,
                WaitFor::Join { thread } => write!(f, "the end of thread {}", thread.0)?,
                WaitFor::Line { address } => write!(f, "the line at {address:#x}")?,
                WaitFor::Sleep => f.write_str("a time")?,
                WaitFor::Stores => f.write_str("its stores")?,
                WaitFor::Core => f.write_str("a core")?,
            }
            writeln!(f, " since cycle {}, from {:#x}", blocked.since, blocked.pc)?;
        }
        Ok(())
    }
}

impl Engine {
    /// Makes the running thread wait at a futex word until it is woken or the time `deadline`
    /// comes.
    ///
    /// The caller has compared the word in the thread's [`turn`](Engine::turn) and charged the
    /// access and the system call. `mask` selects the wakes that count; all ones is a plain wait.
    /// When the thread runs again, [`Engine::wakened`] gives the reason.
    pub fn futex_wait(
        &mut self,
        address: usize,
        mask: u32,
        deadline: Option<u64>,
        pc: usize,
    ) -> Outcome {
        self.totals.futex_waits += 1;
        let waiters = self.futexes.entry(address).or_default();
        debug_assert!(
            waiters.iter().all(|waiter| waiter.0 != self.running),
            "a thread waits at a futex twice"
        );
        waiters.push_back((self.running, mask));
        self.set_timer(deadline);
        self.block_for(WaitFor::Futex { address }, pc)
    }

    /// Wakes up to `count` threads that wait at the word with a bit of `mask`, the oldest first.
    /// Returns how many it woke.
    ///
    /// The threads run after the machine's `wake`. The caller first takes its
    /// [`turn`](Engine::turn), and charges the system call.
    pub fn futex_wake(&mut self, address: usize, count: u32, mask: u32) -> u32 {
        let at = self.clock + u64::from(self.machine.wake);
        let mut woken = 0;
        while woken < count {
            let Some(thread) = self.take_waiter(address, |waiter| waiter.1 & mask != 0) else {
                break;
            };
            self.wake(thread, at, false);
            woken += 1;
        }
        self.totals.futex_wakes += u64::from(woken);
        self.refresh();
        woken
    }

    /// Wakes all threads that wait at words in a range of addresses, as the kernel may for no
    /// reason. They look at their words again.
    pub fn wake_waiters_in(&mut self, range: std::ops::Range<usize>) {
        let mut words: Vec<usize> =
            self.futexes.keys().copied().filter(|word| range.contains(word)).collect();
        words.sort_unstable();
        for word in words {
            self.futex_wake(word, u32::MAX, u32::MAX);
        }
    }

    /// Returns true if a thread waits at the futex word with a bit of `mask`.
    pub fn any_waits(&self, address: usize, mask: u32) -> bool {
        let waiters = self.futexes.get(&address);
        waiters.is_some_and(|waiters| waiters.iter().any(|waiter| waiter.1 & mask != 0))
    }

    /// Returns how the last wait of the running thread ended.
    pub fn wakened(&self) -> Wakened {
        if self.threads[self.running as usize].timed_out {
            Wakened::ByTime
        } else {
            Wakened::ByThread
        }
    }

    /// Makes the running thread wait for the end of another thread. Goes on at once if that thread
    /// has ended.
    pub fn join(&mut self, thread: ThreadId, pc: usize) -> Outcome {
        debug_assert_ne!(thread.0, self.running, "a thread joins itself");
        let target = &mut self.threads[thread.0 as usize];
        if target.state == State::Done {
            self.clock = self.clock.max(target.clock);
            return self.turn();
        }
        target.joiners.push(self.running);
        self.block_for(WaitFor::Join { thread }, pc)
    }

    /// Makes the running thread sleep until a time. It then needs the machine's `wake` to run.
    pub fn sleep_until(&mut self, at: u64, pc: usize) -> Outcome {
        self.set_timer(Some(at));
        self.block_for(WaitFor::Sleep, pc)
    }

    /// Chooses what happens when all threads wait.
    ///
    /// If `on`, calls return [`Outcome::Idle`]. Otherwise time passes to the end of the next wait,
    /// or the outcome is [`Outcome::Deadlock`]. Use it if some threads wait for something that is
    /// not simulated.
    pub fn stop_when_idle(&mut self, on: bool) {
        self.stops_when_idle = on;
    }

    /// After [`Outcome::Idle`]: returns when the next timer expires, or `None` if there is no
    /// timer. The timer's wait may have ended before.
    pub fn idle_until(&self) -> Option<u64> {
        Some(self.events.next_at()).filter(|&at| at != u64::MAX)
    }

    /// After [`Outcome::Idle`]: runs the threads that were woken. If there are none, lets time pass
    /// to the end of the next wait.
    pub fn go_on(&mut self) -> Outcome {
        self.may_pass = self.events.only_timers() && self.idle_until().is_some();
        self.dispatch()
    }

    fn set_timer(&mut self, deadline: Option<u64>) {
        if let Some(at) = deadline {
            let wait = self.threads[self.running as usize].waits;
            self.events.post(at.max(self.clock), Event::Timer(self.running, wait));
        }
    }

    /// Handles a timer: wakes the thread unless the timer's wait has ended before.
    pub(super) fn timer(&mut self, thread: u32, wait: u32, at: u64) {
        let me = &self.threads[thread as usize];
        let State::Blocked(reason) = me.state else {
            return;
        };
        if me.waits != wait {
            return;
        }
        if let WaitFor::Futex { address } = reason {
            self.take_waiter(address, |waiter| waiter.0 == thread);
        }
        self.wake(thread, at + u64::from(self.machine.wake), true);
    }

    fn take_waiter(&mut self, address: usize, wanted: impl Fn(&(u32, u32)) -> bool) -> Option<u32> {
        let waiters = self.futexes.get_mut(&address)?;
        let place = waiters.iter().position(wanted)?;
        let taken = waiters.remove(place);
        if waiters.is_empty() {
            self.futexes.remove(&address);
        }
        taken.map(|(thread, _)| thread)
    }

    /// Returns what each thread waits for. After [`Outcome::Deadlock`] this is the reason.
    pub fn deadlock(&self) -> Deadlock {
        let waiting = self.threads.iter().zip(0..).filter_map(|(thread, id)| {
            let waits_for = match thread.state {
                State::Blocked(reason) | State::Stalled(reason) => reason,
                State::Queued | State::Waking => WaitFor::Core,
                State::Running | State::Ready | State::Done => return None,
            };
            Some(Blocked {
                thread: ThreadId(id),
                core: u32::from(thread.core),
                waits_for,
                since: thread.blocked_since,
                pc: thread.blocked_at,
            })
        });
        Deadlock { threads: waiting.collect() }
    }
}
