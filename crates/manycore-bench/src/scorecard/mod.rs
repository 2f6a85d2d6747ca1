//! Goals against the best general rival, where people measure first: one or two threads, plain
//! loops, everyday mixes.
//!
//! Owns: the goals, the cells of the workloads that they are about, and the comparison of a result
//! with them. Does not own: running (the command does), the workloads.
//!
//! Laws:
//!
//! 1. Every rival of a workload's table takes part, and each line shows the best of all. A goal is
//!    compared with the rivals that it names: those that people choose between for this use, or
//!    all.
//! 2. The library's entry is its default, and is the same in every cell of a goal, unless the goal
//!    says that a setting is its subject.
//! 3. All that one goal compares runs in one process, interleaved ([`crate::runner`]).

mod alone;
mod goals;

use std::{fmt, sync::LazyLock};

use serde::Serialize;

pub use alone::{ALONE, Effort};
pub use goals::GOALS;

use crate::{
    catalogue::{self, Workload},
    compare::Better,
    row::{Kind, Params, Row, plain},
    workload::About,
};

/// What a cell of a workload should reach.
pub struct Goal {
    /// What it is about, for the first column.
    pub subject: &'static str,
    /// The workload and its options, as for `manycore-bench bench`, without `--impl`.
    pub words: &'static str,
    /// What a user gets by default.
    pub ours: &'static str,
    /// What ours is compared with.
    pub against: Against,
    /// The metric of the rows.
    pub metric: &'static str,
    /// Which figure is the better one.
    pub better: Better,
    /// How many times as good as the best other it should be.
    pub goal: f64,
    /// Only cells with these parameters; of all if empty.
    pub only: &'static [(&'static str, &'static str)],
}

/// What ours is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// Every rival.
    Rivals,
    /// Every implementation but the baselines: ours with a fixed choice, too.
    Every,
    /// These rivals.
    These(&'static [&'static str]),
}

/// What one type costs alone, in one thread, that is no workload: bytes, or nanoseconds.
pub struct Alone {
    /// What it is about, for the first column.
    pub subject: &'static str,
    /// What was measured.
    pub metric: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Ours; less is better.
    pub ours: fn(Effort) -> f64,
    /// What it may be at most.
    pub limit: Limit,
}

/// What a figure of one type alone may be at most.
pub enum Limit {
    /// So much.
    AtMost(f64),
    /// So many times as good as this one, which has a name.
    Times(f64, &'static str, fn(Effort) -> f64),
}

/// One line of the scorecard.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// What it is about.
    pub subject: &'static str,
    /// The cell: threads and settings.
    pub cell: String,
    /// The metric and its unit.
    pub metric: String,
    /// Ours.
    pub ours: f64,
    /// The best other, by name.
    pub rival: &'static str,
    /// Its figure.
    pub theirs: f64,
    /// How many times as good ours is.
    pub ratio: f64,
    /// The same of the worst repeat of ours and the best of the other, and the other way round.
    pub spread: (f64, f64),
    /// How many times as good it should be.
    pub goal: f64,
    /// The best of all rivals, and how many times as good ours is.
    pub best: (&'static str, f64),
}

impl Line {
    /// The columns of the table.
    pub fn head() -> String {
        let [cell, ours, best, times] = ["cell, metric", "ours", "the best of", "times (spread)"];
        let (subject, goal) = ("subject", "goal");
        format!("{subject:<12} {cell:<57} {ours:>9} {best:>26} {times:>22} {goal:>4}")
    }

    /// The columns of CSV.
    pub const KEYS: &str =
        "subject,cell,metric,ours,rival,theirs,ratio,low,high,goal,holds,best,best_ratio";

    /// The line as CSV; no name has a comma but the metric's.
    pub fn csv(&self) -> String {
        let Self { subject, cell, ours, rival, theirs, ratio, goal, .. } = self;
        let ((low, high), (best, best_ratio), holds) = (self.spread, self.best, self.holds());
        let metric = self.metric.replace(", ", " in ");
        format!(
            "{subject},{cell},{metric},{ours},{rival},{theirs},{ratio},{low},{high},{goal},{holds},\
             {best},{best_ratio}"
        )
    }

    /// Whether the goal is reached. Not by an object of no bytes: what an allocator has kept for
    /// itself is not seen, so nothing was measured.
    pub fn holds(&self) -> bool {
        self.ours > 0.0 && self.ratio >= self.goal
    }
}

impl Goal {
    /// The words of the run, as for `manycore-bench bench`: in full, or once and short.
    pub fn run(&self, is_quick: bool) -> Vec<String> {
        let names = self.names().join(",");
        let [duration, repeats] = if is_quick { ["2ms", "1"] } else { ["150ms", "5"] };
        let own = ["--impl", &names, "--duration", duration, "--repeat", repeats];
        let mut words: Vec<_> = self.words.split(' ').chain(own).collect();
        // Those that take long although the time is short.
        for option in [["--ops", "20000"], ["--keys", "1000"], ["--warm-up", "1ms"]] {
            if is_quick && self.takes(&option[0][2..]) {
                if let Some(at) = words.iter().position(|word| *word == option[0]) {
                    words.drain(at..at + 2);
                }
                words.extend(option);
            }
        }
        words.into_iter().map(str::to_owned).collect()
    }

    fn takes(&self, option: &str) -> bool {
        self.workload().is_some_and(|it| it.options.iter().any(|(name, _)| *name == option))
    }

    fn workload(&self) -> Option<&'static Workload> {
        self.words.split(' ').next().and_then(catalogue::find)
    }

    /// The implementations that take part.
    fn names(&self) -> Vec<&'static str> {
        let all = self.workload().map(|workload| (workload.impls)()).unwrap_or_default();
        let takes_part = |about: &About| about.name == self.ours || self.is_other(about.kind);
        all.into_iter().filter(takes_part).map(|about| about.name).collect()
    }

    fn is_other(&self, kind: Kind) -> bool {
        match self.against {
            Against::Every => kind == Kind::Rival || kind == Kind::Ours,
            Against::Rivals | Against::These(_) => kind == Kind::Rival,
        }
    }

    /// Whether it is about cells with these parameters.
    pub fn is_about(&self, params: &Params) -> bool {
        let has = |(key, value): &(&str, &str)| {
            params.get(*key).is_some_and(|found| plain(found) == *value)
        };
        self.only.iter().all(has)
    }

    /// The line of a group's rows, if they have the goal's metric.
    pub fn line(&self, rows: &[Row]) -> Option<Line> {
        let mine = |row: &&Row| row.metric == self.metric;
        let ours = rows.iter().filter(mine).find(|row| row.impl_name == self.ours)?;
        let others = [Kind::Rival, Kind::Ours].map(|kind| (kind.word(), self.is_other(kind)));
        let is_other =
            |row: &&Row| row.impl_name != self.ours && others.contains(&(row.kind(), true));
        let best = |is_asked: &dyn Fn(&&Row) -> bool| {
            let others = rows.iter().filter(mine).filter(is_other).filter(is_asked);
            others.max_by(|one, other| match self.better {
                Better::More => one.median.total_cmp(&other.median),
                Better::Less => other.median.total_cmp(&one.median),
            })
        };
        let other = best(&|row| match self.against {
            Against::These(names) => names.contains(&row.impl_name),
            Against::Rivals | Against::Every => true,
        })?;
        let best = best(&|_| true)?;
        let times = |own: f64, other: f64| match self.better {
            Better::More => own / other,
            Better::Less => other / own,
        };
        let (low, high) = (times(ours.min, other.max), times(ours.max, other.min));
        Some(Line {
            subject: self.subject,
            cell: cell(ours),
            metric: format!("{}, {}", ours.metric, ours.unit),
            ours: ours.median,
            rival: other.impl_name,
            theirs: other.median,
            ratio: times(ours.median, other.median),
            spread: (low.min(high), low.max(high)),
            goal: self.goal,
            best: (best.impl_name, times(ours.median, best.median)),
        })
    }
}

/// Threads and settings, without what is the same in every cell.
fn cell(row: &Row) -> String {
    let same = ["kind", "duration_ms", "pin", "ops", "slots", "pass", "spin", "work", "nodes"];
    let own = row.params.iter().filter(|(key, _)| !same.contains(&key.as_str()));
    let words = own.map(|(key, value)| format!(" {key}={}", plain(value)));
    format!("threads={}{}", row.threads, words.collect::<String>())
}

impl Alone {
    /// Measures, and compares.
    pub fn line(&self, effort: Effort) -> Line {
        let ours = (self.ours)(effort);
        let (rival, theirs, goal) = match self.limit {
            Limit::AtMost(most) => ("limit", most, 1.0),
            Limit::Times(goal, name, rival) => (name, rival(effort), goal),
        };
        let ratio = theirs / ours;
        Line {
            subject: self.subject,
            cell: "alone".to_owned(),
            metric: format!("{}, {}", self.metric, self.unit),
            ours,
            rival,
            theirs,
            ratio,
            spread: (ratio, ratio),
            goal,
            best: (rival, ratio),
        }
    }
}

/// What can be asked for by name, each once.
pub static SUBJECTS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let of_goals = GOALS.iter().map(|goal| goal.subject);
    let mut subjects: Vec<_> = of_goals.chain(ALONE.iter().map(|alone| alone.subject)).collect();
    subjects.sort_unstable();
    subjects.dedup();
    subjects
});

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cell = format!("{} {}", self.cell, self.metric);
        let (ours, theirs) = (manycore_page::number(self.ours), manycore_page::number(self.theirs));
        let verdict = if self.holds() { "holds" } else { "misses" };
        let Self { subject, rival, ratio, spread: (low, high), goal, best, .. } = self;
        let spread = format!("({low:.2} to {high:.2})");
        write!(
            f,
            "{subject:<12} {cell:<57} {ours:>9} {theirs:>9} {rival:<16} {ratio:>6.2} \
             {spread:<15} {goal:>4.2} {verdict}"
        )?;
        match best {
            (name, _) if name == rival => Ok(()),
            (name, ratio) => write!(f, "; of all: {name}, {ratio:.2}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Against, GOALS, Goal};
    use crate::{
        catalogue,
        compare::Better,
        row::{Params, Row},
    };

    const GOAL: Goal = Goal {
        subject: "a list",
        words: "list --threads 2",
        ours: "oplog-auto",
        against: Against::Rivals,
        metric: "throughput",
        better: Better::More,
        goal: 1.0,
        only: &[("read_every", "10")],
    };

    fn row(impl_name: &'static str, kind: &str, read_every: &str, median: f64) -> Row {
        let mut params = Params::new();
        params.insert("kind".into(), json!(kind));
        params.insert("read_every".into(), json!(read_every));
        let (min, max, ours) = (median / 2.0, median * 2.0, kind == "ours");
        let (bench, metric, unit) = ("list", "throughput", "pairs/ms");
        Row {
            bench,
            impl_name,
            ours,
            threads: 2,
            params,
            metric,
            unit,
            median,
            min,
            max,
            repeats: 3,
        }
    }

    #[test]
    fn best_rival_of_the_cell_is_found() {
        let rows = [
            row("unshared", "baseline", "10", 900.0),
            row("oplog-auto", "ours", "10", 30.0),
            row("oplog-local", "ours", "10", 60.0),
            row("mutex", "rival", "10", 20.0),
            row("lamlock", "rival", "10", 40.0),
            row("hand-sharded", "by-hand", "10", 80.0),
        ];
        let line = GOAL.line(&rows).unwrap();
        assert_eq!((line.rival, line.ratio, line.holds()), ("lamlock", 0.75, false));
        assert_eq!(line.spread, (0.1875, 3.0));
        assert_eq!(line.cell, "threads=2 read_every=10");
        let these = Goal { against: Against::These(&["mutex"]), ..GOAL }.line(&rows).unwrap();
        assert_eq!((these.rival, these.ratio, these.best), ("mutex", 1.5, ("lamlock", 0.75)));
        let every = Goal { against: Against::Every, ..GOAL };
        assert_eq!(every.line(&rows).unwrap().rival, "oplog-local");
        let less = Goal { better: Better::Less, ..GOAL };
        assert_eq!(
            less.line(&rows).map(|line| (line.rival, line.ratio)),
            Some(("mutex", 2.0 / 3.0))
        );
        assert!(GOAL.line(&rows[1..2]).is_none(), "nothing to compare with");
        assert!(GOAL.is_about(&rows[0].params));
        assert!(!GOAL.is_about(&row("mutex", "rival", "2", 1.0).params), "another cell");
    }

    #[test]
    fn goals_name_what_is_there() {
        for goal in GOALS {
            let name = goal.words.split(' ').next().unwrap();
            let workload = catalogue::find(name).unwrap_or_else(|| panic!("no workload {name}"));
            let ours = (workload.impls)().into_iter().find(|about| about.name == goal.ours);
            assert!(ours.is_some(), "{name} has no {}", goal.ours);
            assert!(goal.names().len() > 1, "{}: nothing to compare with", goal.subject);
        }
    }
}
