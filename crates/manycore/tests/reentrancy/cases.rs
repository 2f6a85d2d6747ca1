//! Cases of any walk: each runs under a watchdog; what they come to is a table.

use crate::probe::Answer;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

/// What one case came to: its answers, none if the callback does not run in this state, or what is
/// wrong.
pub type Outcome = Result<Vec<Answer>, String>;

/// A case and what it came to.
pub struct Row {
    /// On which object the callback calls the operation: the heading of a table.
    pub target: &'static str,
    /// The line of that table.
    pub callback: &'static str,
    /// The column.
    pub operation: &'static str,
    /// What one cell tells apart only where its answers differ.
    pub state: &'static str,
    pub outcome: Outcome,
}

impl Row {
    /// What is wrong with the case, if anything.
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

/// Runs a case in a thread of its own. One that hangs keeps its thread, and the walk goes on.
pub fn watched(case: impl FnOnce() -> Outcome + Send + 'static) -> Outcome {
    let (done, end) = mpsc::channel();
    thread::spawn(move || done.send(case()));
    match end.recv_timeout(LIMIT) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => Err("hangs".to_owned()),
        Err(RecvTimeoutError::Disconnected) => Err("the case's thread died".to_owned()),
    }
}

/// Fails if a case does.
pub fn assert_sound(name: &str, rows: &[Row]) {
    let faults: Vec<String> = rows
        .iter()
        .filter_map(|row| {
            let Row { target, callback, operation, state, .. } = row;
            let fault = row.fault()?;
            Some(format!("{name}: {operation} {target}, from {callback}, while {state}: {fault}"))
        })
        .collect();
    assert!(faults.is_empty(), "{} of {} cases:\n{}", faults.len(), rows.len(), faults.join("\n"));
    let reached = |row: &&Row| row.outcome.as_ref().is_ok_and(|answers| !answers.is_empty());
    let reached = rows.iter().filter(reached).count();
    println!("{name}: {} cases, {reached} of them reach their callback", rows.len());
    assert!(reached > 0, "{name}: no case reaches its callback");
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

/// The rows as one table for each target: a line a callback, a column an operation.
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

/// What the states have in common, and behind it the states that differ.
fn cell<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let mut kinds: Vec<(String, Vec<&str>)> = Vec::new();
    for row in rows {
        let Ok(answers) = &row.outcome else { continue };
        if answers.is_empty() {
            continue; // the callback does not run in this state
        }
        let words = answers.iter().map(word).collect::<Vec<_>>().join(" or ");
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
