//! Cases that every walk consists of. Each case runs under a watchdog, here or in a forked child.
//! The outcomes are printed as a table.

use crate::probe::Answer;
use std::fmt;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

/// The outcome of a case: its answers, or what is wrong. There are no answers if the callback does
/// not run in this state.
pub type Outcome = Result<Vec<Answer>, String>;

/// The part of a case that runs once its objects are made.
pub type Made = Box<dyn FnOnce() -> Outcome + Send>;

/// A case of a walk.
pub struct Case {
    pub target: &'static str,
    pub callback: &'static str,
    pub operation: &'static str,
    pub state: &'static str,
    /// Makes the objects of the case, which threads that are gone have used.
    pub make: Box<dyn Fn() -> Made + Send + Sync>,
}

impl Case {
    fn to_row(&self, outcome: Outcome) -> Row {
        let Self { target, callback, operation, state, .. } = *self;
        Row { target, callback, operation, state, outcome }
    }
}

/// Runs all cases.
pub fn here(cases: &[Case]) -> Vec<Row> {
    cases.iter().map(|case| case.to_row(watched((case.make)()))).collect()
}

/// Number of cases for which one child is forked. It is small because the objects of all of them
/// exist at the same time, and may meet in the process's table of logs.
#[cfg(unix)]
const FORKED_FOR: usize = 8;

/// Runs all cases in forked children, with objects made before the fork. Each must have the outcome
/// in `expected`, which has the same order.
#[cfg(unix)]
pub fn in_children(name: &str, cases: &[Case], expected: &[Row]) {
    use crate::common::process::status_of_child;

    /// A child's status if a case has another outcome there.
    const DIFFERS: i32 = 100;

    assert_eq!(cases.len(), expected.len());
    let mut missed = 0;
    for (cases, expected) in cases.chunks(FORKED_FOR).zip(expected.chunks(FORKED_FOR)) {
        // Whether a log or a value is freed within a case is a matter of time, for all cases of one
        // callback alike; so such cases are only counted, of all children together.
        let missed_in_child = |expected: &[Row]| {
            let made: Vec<Made> = cases.iter().map(|case| (case.make)()).collect();
            let status = status_of_child(|| {
                let run = cases.iter().zip(made).map(|(case, made)| case.to_row(watched(made)));
                let (mut differ, mut missed) = (0, 0);
                for (row, expected) in run.zip(expected) {
                    let (found, wanted) = (row.words(), expected.words());
                    if found.is_empty() != wanted.is_empty() {
                        missed += 1;
                    } else if found != wanted {
                        eprintln!("{name}, in a child: {row}: {found}, not {wanted}");
                        differ += 1;
                    }
                }
                if differ == 0 { missed } else { DIFFERS }
            });
            (status < DIFFERS).then_some(status as usize)
        };
        // As in `check`: two objects that share a place may differ, in the parent, too. So the
        // parent runs the cases again.
        let same = missed_in_child(expected)
            .or_else(|| (0..4).find_map(|_| missed_in_child(&here(cases))));
        missed +=
            same.unwrap_or_else(|| panic!("{name}: a child of a fork differs from its parent"));
    }
    let most = cases.len() / 50;
    assert!(missed <= most, "{name}: {missed} callbacks ran in the parent or the child alone");
}

/// A case and its outcome.
pub struct Row {
    /// The object on which the callback calls the operation: the heading of a table.
    pub target: &'static str,
    /// The line of that table.
    pub callback: &'static str,
    /// The column.
    pub operation: &'static str,
    /// The state; a cell names states only if their answers differ.
    pub state: &'static str,
    pub outcome: Outcome,
}

impl Row {
    /// Returns the words about the case in its table cell; empty if the callback does not run.
    fn words(&self) -> String {
        match &self.outcome {
            Ok(answers) => answers.iter().map(word).collect::<Vec<_>>().join(" or "),
            Err(fault) => fault.clone(),
        }
    }

    /// Returns the fault of the case, if it has one.
    fn fault(&self) -> Option<String> {
        match &self.outcome {
            Err(fault) => Some(fault.clone()),
            Ok(answers) => answers.iter().find_map(|answer| match answer {
                Answer::Panics(text) if !text.starts_with("manycore: ") => {
                    Some(format!("panics without a sentence: {text}"))
                }
                _ => None,
            }),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { target, callback, operation, state, .. } = self;
        write!(f, "{operation} {target}, from {callback}, while {state}")
    }
}

/// Runs a case on its own thread. A case that hangs keeps its thread, and the walk goes on.
fn watched(case: impl FnOnce() -> Outcome + Send + 'static) -> Outcome {
    let (done, end) = mpsc::channel();
    let thread = thread::spawn(move || done.send(case()));
    match end.recv_timeout(LIMIT) {
        Ok(outcome) => {
            // The next case's thread gets the slot that this one gives back.
            drop(thread.join());
            outcome
        }
        Err(RecvTimeoutError::Timeout) => Err("hangs".to_owned()),
        Err(RecvTimeoutError::Disconnected) => Err("the case's thread died".to_owned()),
    }
}

/// Fails if any case fails.
pub fn assert_sound(name: &str, rows: &[Row]) {
    let faults: Vec<String> =
        rows.iter().filter_map(|row| Some(format!("{name}: {row}: {}", row.fault()?))).collect();
    assert!(faults.is_empty(), "{} of {} cases:\n{}", faults.len(), rows.len(), faults.join("\n"));
    let reached = |row: &&Row| row.outcome.as_ref().is_ok_and(|answers| !answers.is_empty());
    let reached = rows.iter().filter(reached).count();
    println!("{name}: {} cases, {reached} of them reach their callback", rows.len());
    assert!(reached > 0, "{name}: no case reaches its callback");
}

/// Returns each case with the outcome that most of the walks found. All walks have the same cases.
pub fn usual(walks: &[Vec<Row>]) -> Vec<Row> {
    let of = |case: usize| {
        let outcomes = || walks.iter().map(|rows| &rows[case].outcome);
        let times = |outcome| outcomes().filter(|found| *found == outcome).count();
        let usual = outcomes().max_by_key(|outcome| times(*outcome)).expect("there is a walk");
        Row { outcome: usual.clone(), ..walks[0][case] }
    };
    (0..walks[0].len()).map(of).collect()
}

fn distinct(all: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

/// Formats the rows as one table for each target, with a line for each callback and a column for
/// each operation.
pub fn tables(name: &str, rows: &[Row]) -> String {
    let mut text = format!("## {name}\n");
    for target in distinct(rows.iter().map(|row| row.target)) {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.target == target).collect();
        let operations = distinct(rows.iter().map(|row| row.operation));
        text += &format!("\n### {name}, {target}\n\n| called from |");
        operations.iter().for_each(|operation| text += &format!(" {operation} |"));
        text += &format!("\n|---|{}\n", "---|".repeat(operations.len()));
        for callback in distinct(rows.iter().map(|row| row.callback)) {
            text += &format!("| {callback} |");
            for operation in &operations {
                let of_cell = |row: &&&Row| (row.callback, row.operation) == (callback, *operation);
                text += &format!(" {} |", cell(rows.iter().filter(of_cell).copied()));
            }
            text += "\n";
        }
    }
    text
}

/// Returns what the states have in common, followed by the states that differ.
fn cell<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let mut kinds: Vec<(String, Vec<&str>)> = Vec::new();
    for row in rows {
        let words = row.words();
        if words.is_empty() {
            continue; // the callback does not run in this state
        }
        match kinds.iter_mut().find(|(kind, _)| *kind == words) {
            Some((_, states)) => states.push(row.state),
            None => kinds.push((words, vec![row.state])),
        }
    }
    kinds.sort_by_key(|(_, states)| std::cmp::Reverse(states.len()));
    match &*kinds {
        [] => "-".to_owned(),
        [(only, _)] => only.clone(),
        [(most, _), rest @ ..] => {
            let more = rest.iter().map(|(kind, states)| format!("{}: {kind}", states.join(", ")));
            format!("{most}; {}", more.collect::<Vec<_>>().join("; "))
        }
    }
}

fn word(answer: &Answer) -> String {
    match answer {
        Answer::Works => "works".to_owned(),
        Answer::Refuses(how) => format!("`{how}`"),
        Answer::Panics(_) => "panics".to_owned(),
    }
}
