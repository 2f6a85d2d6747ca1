//! Bugs that a test plants, to show that it would find them.
//!
//! Owns: the list of bugs and their names. Ordinary builds contain none of them: there
//! [`seeded_bug`] is a constant `false`.

/// Bugs to plant, each the opposite of a law: a test that passes with its bug in place tests
/// nothing. Loom models, shuttle histories and histories of real threads run once without a bug and
/// once with each that they claim to catch, in a process of its own, because a planted bug may do
/// anything, crash included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Readers collect whatever they find, log after log: no cut in time, no gate for all (D2).
    NoCut,
    /// An update's stamp may be as old as its slot's last update, as if the clock were read before
    /// the loads that come before the update (C1 of the clock).
    UnfencedStamp,
    /// An update's stamp is that of a moment after the update has returned (C1 of the clock).
    LateStamp,
    /// A slot's stamps are what the clock says, also where it goes back (D2).
    UnsteadyStamp,
    /// A reader's cut is taken after it has looked which logs have entries (D2).
    LateCut,
    /// The loads that come after a stamp may have run before it (C1 of the clock).
    #[cfg_attr(not(manycore_loom), allow(dead_code))] // it is in the model's counter
    EarlyLoads,
    /// An update returns before the clocks' skew is over (C4 of the clock).
    Unsettled,
    /// Announcements are plain stores whose reader pays no barrier for them (D1, S6).
    PlainPublish,
    /// A reader takes any answer for one to its own collection (G1 of the gates).
    UnaskedAnswer,
    /// A batch of retired nodes is stamped with no fence after the unlinks (S2): the paper's
    /// Figure 2.
    UnfencedRetire,
    /// A round is stamped after it has looked at the others (S3): the paper's public code.
    LateRound,
    /// Blocks of a slab go home without the order that lets their owner reuse them (B3).
    RelaxedReturn,
    /// A removed id's slot is free at once, while sections may still look at the node (N4).
    EagerReuse,
    /// A slot's next id has the generation of its last one (N5).
    SameGeneration,
    /// An extent's first id is published before the others (`namespace`'s extents).
    HeadFirst,
    /// Rows of a reference count are summed while their owners may be half-way (A4).
    UnfrozenRows,
    /// A reference count is zero when the word says so, whatever the rows hold (A2).
    CentralAlone,
    /// A handle is taken whatever the object's generation has become (A8).
    UncheckedGeneration,
    /// A map's entry is linked before its slot has a tag (H2).
    LinkBeforeTag,
    /// A map's entry loses its tag before its link (H2).
    TagBeforeUnlink,
    /// A waiter takes the round under way when it came for its own (`lock::rounds`, V2).
    OldRound,
    /// A drain reads where its queue goes on after it has let a member go (`ldu`, U3).
    NextAfterClear,
    /// A member is freed while it is queued (`ldu`, U3).
    FreeQueued,
    /// A clustered object's representative is made without the list lock (R1, R2).
    UnlistedRep,
    /// An implementation is exchanged while admitted calls are inside (W2).
    UnsealedTransfer,
    /// A thread inside a call waits at a closed object as all others do (H2).
    UnadmittedInsider,
    /// A call that is let into a closed object does not look at the updates that wait (W5).
    SkippedLog,
    /// The object opens without a last look at the updates that wait (W4).
    HastyOpening,
    /// The sieve of a bounded domain frees what an open section may hold, whatever its birth (E4).
    EagerSieve,
    /// A reader asks whose a lane is before it asks whether anybody is counted there (R4 of the
    /// big-reader lock).
    TokenBeforeCount,
    /// A found value is cached after the root's lock was given up (H5).
    CachedUnlocked,
    /// An element is removed after the locks under which it was looked at were given up (M3 of
    /// `dhash`).
    TornGather,
    /// A whole element is looked at without the part that was used before the table spread (M7 of
    /// `dhash`).
    ForgottenCentre,
    /// A whole element is looked for where the table's form says, not where its holders are (M7 of
    /// `dhash`).
    FormAlone,
    /// A page is loaded without a look whether another thread loads it (G1 of `page_cache`).
    SecondLoad,
    /// A failed load gives its room back after its element has gone (G5 of `page_cache`).
    LateRoom,
    /// A page that was used lately refuses a pin as one in use does (G8 of `page_cache`).
    SparedIsFull,
    /// A stock of credits is emptied by a load and a store (B1 of the budget).
    TornStock,
    /// A pool's new thing is counted after the lock was given up (P1 of the pool).
    LateCount,
    /// A timer's value is taken without a look whether it is there (T1 of the timers).
    TimerTakenTwice,
    /// A shared object's gate is closed, and those inside are not waited for (A2).
    HastyClosing,
    /// An update acts on the mode that it saw before it took the lock (A7).
    UncheckedMode,
    /// A shared object gets logs while its gate is open (A8).
    OpenPromotion,
    /// The thread that fires a timer looks for its handle after it took the value (T2 of timers).
    TimerLateLook,
    /// A waker that makes room for another one is not woken (Q6 of the event queue).
    SilentDisplacement,
    /// A receiver that waits no more says that none does (Q4 of the event queue).
    DeafDisarm,
    /// The waiter that looks at a lock goes to sleep, and the word still says that it looks (K2).
    SilentSpinner,
    /// A thread that was woken says nothing of the others that may sleep (K2).
    ForgottenSleepers,
    /// A private page is written without a look whether a fork has frozen its layer (F2 of
    /// `private_pages`).
    StaleLayer,
    /// A layer is frozen with no fence after it (F3 of `private_pages`).
    UnfencedFreeze,
    /// A layer of private pages counts a frame when it can be found already (F8).
    LateFrameCount,
    /// A private page is written in place without a look whether a thread reads it (F4 of
    /// `private_pages`).
    WrittenUnderReader,
    /// A reader leaves a branch as it is that no helper has claimed (B2 of `oplog`'s tree).
    UnshutBranch,
    /// A helper looks at the branches announced as one who waits, for whom no eviction waits (C10).
    WaitingHelper,
    /// A lock in rounds takes its word before it asks whether the caller shares the object (V4).
    WordBeforeLook,
    /// Whoever gets a lock in rounds does a round though there is nothing to do (V5).
    NeedlessRound,
    /// A change of a set waits for the set's reader although its thread holds another set (`ldu`).
    WaitingHolder,
    /// A leader takes over the limbo of a thread that is inside of a section (S9).
    TakenInside,
    /// A batch that presses is freed when it is closed, with no grace period (S11).
    PressedRipe,
    /// A reader goes to the first branch alone (B2 of `oplog`'s tree).
    ForgottenBranch,
    /// A section that raises its era loads again with no barrier between (E4).
    UnfencedRaise,
    /// A batch is sieved although no round has looked since it was sealed (E4).
    UnlookedSieve,
    /// A core is freed whatever its queue of late updates holds (L5 of `oplog`'s late updates).
    UnsealedLate,
    /// A read that finds no slot dirty does not look at late updates (L2 of the same).
    ForgottenLate,
    /// A cold object's lock is released after a look whether the word has become HOT, not by the
    /// same instruction (W2 of `oplog`).
    BlindUnlock,
    /// An adaptive object gets logs after a look whether updates wait, not under their mutex (A12).
    LateLogs,
}

/// Each bug with the name by which `MANYCORE_SEEDED_BUG` plants it.
#[cfg(any(manycore_loom, manycore_shuttle, manycore_seeded_bugs))]
const BUGS: &[(&str, Bug)] = &[
    ("no-cut", Bug::NoCut),
    ("unfenced-stamp", Bug::UnfencedStamp),
    ("late-stamp", Bug::LateStamp),
    ("unsteady-stamp", Bug::UnsteadyStamp),
    ("late-cut", Bug::LateCut),
    ("early-loads", Bug::EarlyLoads),
    ("unsettled", Bug::Unsettled),
    ("plain-publish", Bug::PlainPublish),
    ("unasked-answer", Bug::UnaskedAnswer),
    ("unfenced-retire", Bug::UnfencedRetire),
    ("late-round", Bug::LateRound),
    ("relaxed-return", Bug::RelaxedReturn),
    ("eager-reuse", Bug::EagerReuse),
    ("same-generation", Bug::SameGeneration),
    ("head-first", Bug::HeadFirst),
    ("unfrozen-rows", Bug::UnfrozenRows),
    ("central-alone", Bug::CentralAlone),
    ("unchecked-generation", Bug::UncheckedGeneration),
    ("link-before-tag", Bug::LinkBeforeTag),
    ("tag-before-unlink", Bug::TagBeforeUnlink),
    ("old-round", Bug::OldRound),
    ("next-after-clear", Bug::NextAfterClear),
    ("free-queued", Bug::FreeQueued),
    ("unlisted-rep", Bug::UnlistedRep),
    ("unsealed-transfer", Bug::UnsealedTransfer),
    ("unadmitted-insider", Bug::UnadmittedInsider),
    ("skipped-log", Bug::SkippedLog),
    ("hasty-opening", Bug::HastyOpening),
    ("eager-sieve", Bug::EagerSieve),
    ("token-before-count", Bug::TokenBeforeCount),
    ("cached-unlocked", Bug::CachedUnlocked),
    ("torn-gather", Bug::TornGather),
    ("forgotten-centre", Bug::ForgottenCentre),
    ("form-alone", Bug::FormAlone),
    ("second-load", Bug::SecondLoad),
    ("late-room", Bug::LateRoom),
    ("spared-is-full", Bug::SparedIsFull),
    ("torn-stock", Bug::TornStock),
    ("late-count", Bug::LateCount),
    ("timer-taken-twice", Bug::TimerTakenTwice),
    ("hasty-closing", Bug::HastyClosing),
    ("unchecked-mode", Bug::UncheckedMode),
    ("open-promotion", Bug::OpenPromotion),
    ("timer-late-look", Bug::TimerLateLook),
    ("silent-displacement", Bug::SilentDisplacement),
    ("deaf-disarm", Bug::DeafDisarm),
    ("silent-spinner", Bug::SilentSpinner),
    ("forgotten-sleepers", Bug::ForgottenSleepers),
    ("stale-layer", Bug::StaleLayer),
    ("unfenced-freeze", Bug::UnfencedFreeze),
    ("late-frame-count", Bug::LateFrameCount),
    ("written-under-reader", Bug::WrittenUnderReader),
    ("unshut-branch", Bug::UnshutBranch),
    ("waiting-helper", Bug::WaitingHelper),
    ("word-before-look", Bug::WordBeforeLook),
    ("needless-round", Bug::NeedlessRound),
    ("waiting-holder", Bug::WaitingHolder),
    ("taken-inside", Bug::TakenInside),
    ("pressed-ripe", Bug::PressedRipe),
    ("forgotten-branch", Bug::ForgottenBranch),
    ("unfenced-raise", Bug::UnfencedRaise),
    ("unlooked-sieve", Bug::UnlookedSieve),
    ("unsealed-late", Bug::UnsealedLate),
    ("forgotten-late", Bug::ForgottenLate),
    ("blind-unlock", Bug::BlindUnlock),
    ("late-logs", Bug::LateLogs),
];

/// Whether `bug` is planted: the environment variable `MANYCORE_SEEDED_BUG` holds its name. In
/// ordinary builds there is no such variable.
#[cfg(any(manycore_loom, manycore_shuttle, manycore_seeded_bugs))]
pub(crate) fn seeded_bug(bug: Bug) -> bool {
    static PLANTED: std::sync::OnceLock<Option<Bug>> = std::sync::OnceLock::new();
    let planted = PLANTED.get_or_init(|| {
        let planted = std::env::var("MANYCORE_SEEDED_BUG").ok()?;
        match BUGS.iter().find(|(name, _)| *name == planted) {
            Some(&(_, bug)) => Some(bug),
            None => panic!("MANYCORE_SEEDED_BUG: there is no bug {planted:?}"),
        }
    });
    *planted == Some(bug)
}
#[cfg(not(any(manycore_loom, manycore_shuttle, manycore_seeded_bugs)))]
#[inline(always)]
pub(crate) const fn seeded_bug(_bug: Bug) -> bool {
    false
}
