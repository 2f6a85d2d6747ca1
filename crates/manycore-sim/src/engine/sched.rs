//! Scheduling: turns in virtual time, and threads that share a core.
//!
//! A running thread holds its core until it blocks, ends, or uses up its slice while other threads
//! want the core. A thread that waits for a line keeps its core. If a woken thread's core is taken
//! and the thread is not pinned, it goes to the nearest idle core. A core that goes idle takes the
//! longest-waiting thread of the longest queue.
//!
//! ```text
//! Waking --core free--> Ready <--event--> Running --line, stores--> Stalled --> Ready
//!    |                    ^                 |  |
//!    +--core taken--> Queued <--slice over--+  +--futex, join, sleep--> Blocked --> Waking
//! ```

use super::{
    Engine, Outcome, ThreadId, WaitFor,
    events::Event,
    memory::Progress,
    thread::{State, Thread},
    timeline::Wait,
};

impl Engine {
    /// Creates a thread that is ready to start at time `at`, or now if that is later.
    ///
    /// The thread is pinned to `core`, or placed on the core with the fewest threads. The caller
    /// charges the creator for the system call.
    ///
    /// # Panics
    ///
    /// The core is not one of [`Engine::cores`].
    pub fn spawn(&mut self, core: Option<u32>, at: u64) -> ThreadId {
        let fewest = || {
            let cores = self.cores.iter().enumerate();
            cores.min_by_key(|(_, core)| core.assigned).map_or(0, |(core, _)| core as u32)
        };
        let home = core.unwrap_or_else(fewest);
        self.cores[home as usize].assigned += 1;
        let id = self.threads.len() as u32;
        let at = at.max(self.clock);
        self.threads.push(Thread::new(home as u16, core.is_some(), at));
        self.live += 1;
        self.post(at, Event::Wake(id));
        ThreadId(id)
    }

    /// Ends the running thread and wakes the threads that join it.
    ///
    /// Never returns [`Outcome::Continue`].
    pub fn exit(&mut self) -> Outcome {
        self.leave(State::Done);
        let me = self.running as usize;
        debug_assert!(self.live > 0, "more threads end than there are");
        self.live -= 1;
        self.cores[usize::from(self.threads[me].core)].assigned -= 1;
        let at = self.clock + u64::from(self.machine.wake);
        for joiner in std::mem::take(&mut self.threads[me].joiners) {
            self.wake(joiner, at, false);
        }
        self.hand_over(self.core, self.clock);
        self.dispatch()
    }

    /// Lets others run first: threads of the same time, and threads that want this core
    /// (`sched_yield`).
    ///
    /// The caller charges the system call.
    pub fn yield_now(&mut self) -> Outcome {
        self.me().slice_end = 0;
        self.give_way()
    }

    /// Moves the running thread to a core and pins it there. `None` unpins the thread.
    ///
    /// # Panics
    ///
    /// The core is not one of [`Engine::cores`].
    pub fn set_affinity(&mut self, core: Option<u32>) -> Outcome {
        let from = self.core;
        let to = core.map_or(from, |core| core as u16);
        assert!(usize::from(to) < self.cores.len(), "core {to} of {}", self.cores.len());
        self.me().pinned = core.is_some();
        if to == from {
            return Outcome::Continue;
        }
        self.leave(State::Waking);
        self.me().core = to;
        self.cores[usize::from(from)].assigned -= 1;
        self.cores[usize::from(to)].assigned += 1;
        self.hand_over(from, self.clock);
        self.post(self.clock, Event::Wake(self.running));
        self.dispatch()
    }

    /// Computes how far the running thread may go without asking.
    #[inline]
    pub(super) fn refresh(&mut self) {
        let next = self.events.next_at();
        let slice_end = self.threads[self.running as usize].slice_end;
        self.horizon = next.saturating_add(u64::from(self.machine.quantum)).min(slice_end);
        let drift = u64::from(self.machine.drift);
        self.patience = next.saturating_add(drift).min(slice_end);
        self.fast_until = if self.recorder.is_on() { 0 } else { self.horizon };
    }

    /// Posts an event while a thread runs.
    pub(super) fn post(&mut self, at: u64, event: Event) {
        self.events.post(at, event);
        self.refresh();
    }

    /// Stops the running thread in the given state.
    pub(super) fn leave(&mut self, state: State) {
        let clock = self.clock;
        let me = self.me();
        debug_assert_eq!(me.state, State::Running, "only the running thread stops");
        debug_assert!(me.clock <= clock, "a thread's clock went back");
        me.state = state;
        me.clock = clock;
    }

    /// Posts the event that lets a thread with a core go on at its own time.
    pub(super) fn goes_on(&mut self, thread: u32) {
        let me = &mut self.threads[thread as usize];
        debug_assert_eq!(
            self.cores[usize::from(me.core)].thread,
            Some(thread),
            "a thread goes on without a core"
        );
        me.state = State::Ready;
        let at = me.clock;
        self.events.post(at, Event::Go(thread));
    }

    /// The running thread waits until all earlier threads have run.
    #[inline(never)]
    pub(super) fn give_way(&mut self) -> Outcome {
        self.leave(State::Ready);
        self.goes_on(self.running);
        self.dispatch()
    }

    /// The running thread blocks and gives up its core.
    pub(super) fn block_for(&mut self, reason: WaitFor, pc: usize) -> Outcome {
        self.leave(State::Blocked(reason));
        let now = self.clock;
        let me = self.me();
        me.blocked_since = now;
        me.blocked_at = pc;
        me.timed_out = false;
        self.hand_over(self.core, now);
        self.dispatch()
    }

    /// A blocked thread can run again at `at`.
    pub(super) fn wake(&mut self, thread: u32, at: u64, timed_out: bool) {
        let me = &mut self.threads[thread as usize];
        debug_assert!(matches!(me.state, State::Blocked(_)), "woken, but not blocked");
        me.waits = me.waits.wrapping_add(1);
        me.timed_out = timed_out;
        let before = std::mem::replace(&mut me.state, State::Waking);
        me.clock = me.clock.max(at);
        let at = me.clock;
        if let State::Blocked(waits_for) = before {
            self.timeline.note(|| Wait {
                thread: ThreadId(thread),
                core: u32::from(me.core),
                waits_for,
                begin: me.blocked_since,
                end: at,
                pc: me.blocked_at,
            });
        }
        self.events.post(at, Event::Wake(thread));
    }

    /// Handles events until a thread can run.
    pub(super) fn dispatch(&mut self) -> Outcome {
        let before = self.running;
        loop {
            if self.live == 0 {
                return Outcome::Finished;
            }
            if self.stops_when_idle && self.events.only_timers() && !self.may_pass {
                // Timers of finished waits may have moved the time on since the last thread
                // stopped.
                self.clock = self.clock.max(self.events.now());
                return Outcome::Idle;
            }
            self.may_pass = false;
            let Some((at, event)) = self.events.pop() else {
                return Outcome::Deadlock;
            };
            match event {
                Event::Serve(line) => self.serve(line, at),
                Event::Wake(thread) => self.arrive(thread, at),
                Event::Timer(thread, wait) => self.timer(thread, wait, at),
                Event::Go(thread) => {
                    if self.resume(thread) {
                        break;
                    }
                }
            }
        }
        if self.running == before {
            return Outcome::Continue;
        }
        self.totals.switches += 1;
        Outcome::Switch(ThreadId(self.running))
    }

    /// Gives the turn to a thread. Returns true if the thread can go on with its own code.
    fn resume(&mut self, thread: u32) -> bool {
        let me = &mut self.threads[thread as usize];
        let (clock, core) = (me.clock, me.core);
        debug_assert_eq!(me.state, State::Ready, "only a thread that is ready resumes");
        if clock >= me.slice_end {
            if !self.cores[usize::from(core)].queue.is_empty() {
                me.state = State::Queued;
                self.cores[usize::from(core)].queue.push_back(thread);
                self.queued += 1;
                self.hand_over(core, clock);
                return false;
            }
            me.slice_end = clock + u64::from(self.machine.slice);
        }
        me.state = State::Running;
        self.stores_until = me.stores_until();
        self.running = thread;
        self.clock = clock;
        self.core = core;
        self.unit = self.unit_of(core);
        self.refresh();
        match self.carry_on() {
            Progress::Done => true,
            Progress::Stalled => false,
            Progress::NotYet => {
                self.leave(State::Ready);
                self.goes_on(thread);
                false
            }
        }
    }

    /// A woken thread looks for a core.
    fn arrive(&mut self, thread: u32, at: u64) {
        let me = &self.threads[thread as usize];
        debug_assert_eq!(me.state, State::Waking, "only a woken thread looks for a core");
        let mut core = me.core;
        if self.cores[usize::from(core)].thread.is_some() && !me.pinned {
            core = self.idle_core_near(core).unwrap_or(core);
            self.move_home(thread, core);
        }
        if self.cores[usize::from(core)].thread.is_some() {
            self.threads[thread as usize].state = State::Queued;
            self.cores[usize::from(core)].queue.push_back(thread);
            self.queued += 1;
        } else {
            let free_at = self.cores[usize::from(core)].free_at;
            let at = at.max(free_at);
            self.cores[usize::from(core)].idle += at - free_at;
            self.start_on(thread, core, at);
        }
    }

    fn idle_core_near(&self, core: u16) -> Option<u16> {
        let idle = (0..self.cores.len() as u16).filter(|c| {
            let there = &self.cores[usize::from(*c)];
            there.thread.is_none() && there.queue.is_empty()
        });
        idle.min_by_key(|c| self.transfer(self.unit_of(core), self.unit_of(*c)))
    }

    /// Returns the physical core whose caches a hardware thread uses.
    fn unit_of(&self, core: u16) -> u16 {
        let units = self.complex_of.len() as u16;
        if core < units { core } else { core % units }
    }

    fn move_home(&mut self, thread: u32, core: u16) {
        let me = &mut self.threads[thread as usize];
        self.cores[usize::from(me.core)].assigned -= 1;
        self.cores[usize::from(core)].assigned += 1;
        me.core = core;
    }

    /// Gives the core to the thread from `at` on.
    fn start_on(&mut self, thread: u32, core: u16, at: u64) {
        let before = self.cores[usize::from(core)].thread.replace(thread);
        debug_assert_eq!(before, None, "a core has one thread at most");
        let me = &mut self.threads[thread as usize];
        me.clock = me.clock.max(at);
        me.slice_end = me.clock + u64::from(self.machine.slice);
        self.goes_on(thread);
    }

    /// Frees a core at `at` and gives it to the next thread.
    pub(super) fn hand_over(&mut self, core: u16, at: u64) {
        let there = &mut self.cores[usize::from(core)];
        there.thread = None;
        there.free_at = at;
        if self.queued == 0 {
            return;
        }
        let next = there.queue.pop_front().or_else(|| self.steal_for(core));
        if let Some(next) = next {
            self.queued -= 1;
            let ready = self.threads[next as usize].clock.max(at);
            self.cores[usize::from(core)].idle += ready - at;
            self.start_on(next, core, ready + u64::from(self.machine.context_switch));
        }
    }

    /// Takes an unpinned thread from the longest queue.
    fn steal_for(&mut self, core: u16) -> Option<u32> {
        let movable = |threads: &[Thread], id: u32| !threads[id as usize].pinned;
        let mut longest: Option<(usize, usize)> = None;
        for (victim, there) in self.cores.iter().enumerate() {
            let first = there.queue.iter().position(|id| movable(&self.threads, *id));
            let longer =
                longest.is_none_or(|(best, _)| there.queue.len() > self.cores[best].queue.len());
            if let Some(place) = first.filter(|_| longer) {
                longest = Some((victim, place));
            }
        }
        let (victim, place) = longest?;
        let thread = self.cores[victim].queue.remove(place)?;
        self.move_home(thread, core);
        Some(thread)
    }
}
