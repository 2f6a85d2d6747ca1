//! The tour: the structures that every programmer knows, beside the library's, on this machine, in
//! less than a minute.
//!
//! Owns: the workloads, implementations and parameters that the tour shows, its words, and the
//! conclusions that it draws from the rows. Does not own: printing, or the page.

use std::time::Duration;

use crate::{
    catalogue, limits,
    output::number,
    row::Row,
    runner::{Group, Runner},
    workload::{self, Options, ReadEvery},
};

/// How often the tour repeats each measurement.
const REPEATS: usize = 5;

/// One part of the tour: a workload, and its explanation for a newcomer.
pub struct Chapter {
    /// The workload.
    pub bench: &'static str,
    /// A heading.
    pub title: &'static str,
    /// What is done, and what to look at.
    pub story: &'static str,
    /// The metric that is plotted: more is better.
    pub plotted: &'static str,
    /// What to run.
    pub groups: Vec<Group>,
}

/// What a chapter found.
pub struct Findings {
    /// The workload.
    pub bench: &'static str,
    /// The chapter's heading.
    pub title: &'static str,
    /// The chapter's words.
    pub story: &'static str,
    /// The metric that is plotted.
    pub plotted: &'static str,
    /// The title and the rows of each group.
    pub groups: Vec<(String, Vec<Row>)>,
}

const LIST: &str = "All threads share one list. Each adds an element of its own and removes it \
    again, as fast as it can: the life of a connection, an open file, a task. A lock hands the \
    list from core to core for every update. A deferred list writes updates to a log of the \
    thread's own and applies them at the next read; an element that came and went in between \
    never touches the list at all. More pairs per millisecond is better; with two threads the \
    figure should be about twice that of one.";

const COUNTER: &str = "All threads add to one counter: requests served, bytes sent. An atomic add \
    on a shared word moves that word's cache line from core to core each time. A counter that is \
    kept per thread moves nothing until the total is read. More additions per second is \
    better.";

/// The lists of the tour: enough to see every approach, few enough for a minute.
const LISTS: [&str; 11] = [
    "oplog-auto",
    "ldu-per-thread",
    "mutex",
    "parking_lot",
    "lamlock",
    "hand-sharded",
    "left-right",
    "concurrent-queue",
    "segqueue",
    "scc",
    "harris",
];

/// The counters.
const COUNTERS: [&str; 4] = ["counter", "mutex", "atomic", "padded"];

/// Ours by the names of their types, where a benchmark has names for variants of them.
const TYPES: [(&str, &str); 3] =
    [("oplog-auto", "Deferred"), ("ldu-per-thread", "DeferredSet"), ("counter", "Counter")];

/// What the tour calls an implementation.
pub fn public_name(implementation: &'static str) -> &'static str {
    TYPES.iter().find(|(name, _)| *name == implementation).map_or(implementation, |(_, name)| name)
}

/// The chapters, and a runner that takes about `budget` for all of them together.
pub fn plan(budget: Duration) -> (Vec<Chapter>, Runner) {
    let threads = thread_counts(limits::cores());
    let options =
        |read_every| Options { threads: threads.clone(), read_every, ..Options::default() };
    let list = Options {
        impls: LISTS.map(str::to_owned).to_vec(),
        ..options(vec![ReadEvery::Never, ReadEvery::Updates(100)])
    };
    let counter =
        Options { impls: COUNTERS.map(str::to_owned).to_vec(), ..options(vec![ReadEvery::Never]) };
    let mut chapters = vec![
        Chapter {
            bench: "list",
            title: "A shared list",
            story: LIST,
            plotted: "throughput",
            groups: groups("list", &list),
        },
        Chapter {
            bench: "counter",
            title: "A shared counter",
            story: COUNTER,
            plotted: "throughput",
            groups: groups("counter", &counter),
        },
    ];
    let cases: usize =
        chapters.iter().flat_map(|chapter| &chapter.groups).map(|g| g.cases.len()).sum();
    let runs = u32::try_from(cases * REPEATS).unwrap_or(u32::MAX).max(1);
    let millis = (budget / runs).as_millis().clamp(5, 1000);
    let duration = Duration::from_millis(millis as u64);
    for group in chapters.iter_mut().flat_map(|chapter| &mut chapter.groups) {
        group.params.insert("duration_ms".into(), workload::millis(duration).into());
    }
    let runner = Runner { duration, repeats: REPEATS, pin: options(Vec::new()).pin };
    (chapters, runner)
}

/// One thread, all cores, and something between where there is much between.
fn thread_counts(cores: usize) -> Vec<usize> {
    let mut counts = vec![1, cores];
    if cores >= 8 {
        counts.insert(1, cores / 2);
    }
    counts.dedup();
    counts
}

fn groups(bench: &str, options: &Options) -> Vec<Group> {
    let workload = catalogue::find(bench).expect("the tour names workloads that exist");
    (workload.groups)(options).expect("the tour names implementations that exist")
}

impl Findings {
    /// The verdicts with the most threads, each with the title of its group.
    pub fn headlines(&self) -> Vec<(&str, Verdict<'_>)> {
        let verdicts = self
            .groups
            .iter()
            .filter_map(|(title, rows)| Some((title.as_str(), Verdict::of(rows, self.plotted)?)));
        let verdicts: Vec<_> = verdicts.collect();
        let most = verdicts.iter().map(|(_, verdict)| verdict.ours.threads).max();
        let with_most = |(_, verdict): &(&str, Verdict<'_>)| Some(verdict.ours.threads) == most;
        verdicts.into_iter().filter(with_most).collect()
    }
}

/// How ours stands against the best general rival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Ours is at least 1.1 times as good.
    Ahead,
    /// Neither.
    Even,
    /// The rival is.
    Behind,
}

impl Standing {
    /// In a word, which is also the style sheet's.
    pub fn word(self) -> &'static str {
        match self {
            Standing::Ahead => "ahead",
            Standing::Even => "even",
            Standing::Behind => "behind",
        }
    }
}

/// Ours against the best general rival in one group of rows.
#[derive(Clone, Copy, Debug)]
pub struct Verdict<'a> {
    /// The best of ours.
    pub ours: &'a Row,
    /// The best general rival.
    pub rival: &'a Row,
    /// The best of what was made by hand for this workload, if there is any.
    pub by_hand: Option<&'a Row>,
}

impl<'a> Verdict<'a> {
    /// Of the rows of a metric where more is better; none if ours or a rival is missing.
    pub fn of(rows: &'a [Row], metric: &str) -> Option<Self> {
        let best = |kind: &str| {
            let chosen = rows.iter().filter(|row| row.metric == metric && row.kind() == kind);
            chosen.max_by(|a, b| a.median.total_cmp(&b.median))
        };
        Some(Self { ours: best("ours")?, rival: best("rival")?, by_hand: best("by-hand") })
    }

    /// Whether ours is ahead by more than the runs of one case differ, or behind.
    pub fn standing(&self) -> Standing {
        match self.times() {
            times if times >= 1.1 => Standing::Ahead,
            times if times <= 0.9 => Standing::Behind,
            _ => Standing::Even,
        }
    }

    /// How many times the rival's figure ours is.
    pub fn times(&self) -> f64 {
        self.ours.median / self.rival.median.max(f64::MIN_POSITIVE)
    }

    /// In a sentence.
    pub fn sentence(&self) -> String {
        let Self { ours, rival, by_hand } = self;
        let figure = |row: &Row| format!("{} ({})", row.impl_name, number(row.median));
        let mut text = format!(
            "{} is {} times the best general rival, {}; in {}.",
            figure(ours),
            number(self.times()),
            figure(rival),
            ours.unit
        );
        if let Some(by_hand) = by_hand {
            text.push_str(&format!(" By hand for this workload alone: {}.", figure(by_hand)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Standing, TYPES, Verdict, plan, public_name, thread_counts};
    use crate::row::{Params, Row};

    fn row(kind: &str, median: f64) -> Row {
        let mut params = Params::new();
        params.insert("kind".into(), kind.into());
        Row {
            bench: "list",
            impl_name: "x",
            ours: kind == "ours",
            threads: 2,
            params,
            metric: "throughput",
            unit: "pairs/ms",
            median,
            min: median,
            max: median,
            repeats: 1,
        }
    }

    #[test]
    fn verdict_compares_with_the_best_general_rival_only() {
        let rows = [row("ours", 30.0), row("rival", 5.0), row("rival", 10.0), row("by-hand", 60.0)];
        let verdict = Verdict::of(&rows, "throughput").unwrap();
        assert_eq!(verdict.times(), 3.0);
        assert_eq!(verdict.by_hand.unwrap().median, 60.0);
        assert!(Verdict::of(&rows[1..], "throughput").is_none());
    }

    #[test]
    fn standing_is_even_where_runs_of_one_case_may_differ_as_much() {
        let of = |ours| {
            let rows = [row("ours", ours), row("rival", 10.0)];
            Verdict::of(&rows, "throughput").unwrap().standing()
        };
        assert_eq!(
            [5.0, 9.5, 10.5, 20.0].map(of),
            [Standing::Behind, Standing::Even, Standing::Even, Standing::Ahead]
        );
    }

    /// Each name of a variant is one that the workloads have.
    #[test]
    fn types_have_their_own_names() {
        let (chapters, _) = plan(Duration::from_secs(30));
        let cases = || chapters.iter().flat_map(|c| &c.groups).flat_map(|g| &g.cases);
        for (variant, name) in TYPES {
            assert!(cases().any(|case| case.impl_name == variant), "{variant}");
            assert_eq!(public_name(variant), name);
        }
    }

    #[test]
    fn plan_keeps_to_its_budget() {
        let budget = Duration::from_secs(30);
        let (chapters, runner) = plan(budget);
        let cases: usize = chapters.iter().flat_map(|c| &c.groups).map(|g| g.cases.len()).sum();
        let total = runner.duration * (cases * runner.repeats) as u32;
        assert!(total <= budget && total > budget / 2, "{total:?}");
    }

    #[test]
    fn thread_counts_start_at_one_and_end_at_all_cores() {
        assert_eq!(thread_counts(1), [1]);
        assert_eq!(thread_counts(2), [1, 2]);
        assert_eq!(thread_counts(48), [1, 24, 48]);
    }
}
