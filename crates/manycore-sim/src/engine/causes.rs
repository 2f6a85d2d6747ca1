//! Reports misses and hits of lines that several cores use to `sharing`.

use super::{
    Engine,
    cores::NO_CORE,
    line::Request,
    sharing::{Cause, Sharing},
    stats::SiteKey,
    thread::Op,
};

impl Engine {
    /// Returns the cause of a miss. Called before the line is granted.
    pub(super) fn cause(&mut self, at: u32, request: &Request) -> Cause {
        let core = request.core;
        let bytes = self.bytes_of(at, request);
        let line = &mut self.lines[at];
        let owner = line.owner;
        let has_it = |other: u16| other != NO_CORE && other != core;
        let others = has_it(owner) || line.copies().iter().any(has_it);
        if others && line.sharing().is_none() {
            let new = Sharing::new(owner, line.copies());
            line.keep_sharing(new);
        }
        let sharing = line.sharing_mut();
        sharing.map_or(Cause::Own, |sharing| sharing.miss(core, bytes, request.write, others))
    }

    /// Returns the bytes of the line that a request is for.
    pub(super) fn bytes_of(&self, at: u32, request: &Request) -> u128 {
        let thread = &self.threads[request.thread as usize];
        if request.buffered {
            let mut stores = thread.stores.iter();
            return stores.find(|s| s.line == at && s.done == u64::MAX).map_or(0, |s| s.bytes);
        }
        thread.op.map_or(0, |op| op.bytes(self.shift))
    }

    /// Counts a miss of that cause at its site.
    pub(super) fn count(&mut self, at: u32, request: &Request, cause: Cause, done: u64) {
        let waited = done - request.arrived;
        let bytes = self.bytes_of(at, request);
        let key = SiteKey { line: at, pc: request.pc, kind: request.kind };
        let tally = self.sites.entry(key).or_default();
        tally.add(cause, waited);
        tally.bytes |= bytes;
        tally.last = tally.last.max(done);
        tally.by(request.core);
        if let Some(sharing) = self.lines[at].sharing_mut() {
            sharing.remember(key, request.core, cause, waited);
        }
    }

    /// Returns true if hits of the line are still examined.
    #[inline]
    pub(super) fn is_watched(&self, at: u32) -> bool {
        self.lines[at].sharing().is_some_and(Sharing::is_watched)
    }

    /// Examines a hit of the running thread.
    #[inline]
    pub(super) fn watch(&mut self, at: u32, op: &Op, write: bool) {
        if self.is_watched(at) {
            self.look(at, op, write);
        }
    }

    fn look(&mut self, at: u32, op: &Op, write: bool) {
        let (core, bytes) = (self.unit, op.bytes(self.shift));
        let lingers = !self.lines[at].holds(core, write);
        let sharing = self.lines[at].sharing_mut();
        let common = sharing.and_then(|sharing| sharing.hit(core, bytes, write, lingers));
        // `forget_costs` may have removed the miss's counts.
        if let Some((key, waited)) = common
            && let Some(tally) = self.sites.get_mut(&key)
        {
            tally.was_true_sharing(waited);
        }
    }
}
