//! `manycore-bench bench scorecard`: measures the goals of `crate::scorecard` in one run, and
//! says whether they are reached.
//!
//! Owns: running, printing, the outcome.

use std::{
    fmt::Write as _,
    io::{Write, stdout},
};

use manycore_cli::{failure::Failure, save};

use super::{
    args, bench,
    bench_command::{BenchCommand, ScorecardArgs},
    progress::Progress,
};
use crate::{
    machine,
    output::Format,
    scorecard::{ALONE, Effort, GOALS, Goal, Line},
};

/// Runs `manycore-bench bench`.
pub fn bench(command: &BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::Workload(bench) => bench::run(bench),
        BenchCommand::Scorecard(own) => run(own),
    }
}

fn run(own: &ScorecardArgs) -> Result<(), Failure> {
    if manycore_sim::is_simulated() {
        return Err(Failure::usage("the goals are of this machine, not of virtual cores"));
    }
    if let Some(path) = &own.out {
        save::check(path)?;
    }
    let lines = lines(own)?;
    let missed = lines.iter().filter(|line| !line.holds()).count();
    let text = text(own, &lines);
    match &own.out {
        Some(path) => save::whole(path, text.as_bytes())?,
        None => stdout().write_all(text.as_bytes()).map_err(|error| Failure::stdout(&error))?,
    }
    match missed {
        0 => Ok(()),
        _ if own.no_check => Ok(()),
        _ => Err(Failure::run(format_args!("{missed} of {} goals are missed", lines.len()))),
    }
}

/// Returns every line, in the goals' order.
fn lines(own: &ScorecardArgs) -> Result<Vec<Line>, Failure> {
    let is_wanted =
        |subject: &str| own.subjects.is_empty() || own.subjects.iter().any(|name| name == subject);
    let goals: Vec<_> = GOALS.iter().filter(|goal| is_wanted(goal.subject)).collect();
    let alone: Vec<_> = ALONE.iter().filter(|alone| is_wanted(alone.subject)).collect();
    let progress = Progress::new(goals.len() + alone.len());
    let mut lines = Vec::new();
    // These come first, while the process holds nothing yet, because some measure bytes.
    let effort = Effort::new(own.quick);
    for alone in alone {
        progress.next(alone.subject);
        lines.push(alone.line(effort));
    }
    for goal in goals {
        progress.next(&format!("{}: {}", goal.subject, goal.words));
        lines.extend(of_goal(goal, own.quick)?);
    }
    lines.sort_by_key(|line| line.subject);
    Ok(lines)
}

fn of_goal(goal: &Goal, is_quick: bool) -> Result<Vec<Line>, Failure> {
    let args = args::bench(&goal.run(is_quick))?;
    let options = args.options();
    let groups = (args.workload.groups)(&options).map_err(Failure::usage)?;
    let runner = options.runner();
    let mut lines = Vec::new();
    for group in groups.iter().filter(|group| goal.is_about(&group.params)) {
        let rows = runner.run(group, |_| ()).map_err(Failure::run)?;
        lines.extend(goal.line(&rows));
    }
    match lines[..] {
        [] => Err(Failure::run(format_args!("{}: no row to compare", goal.subject))),
        _ => Ok(lines),
    }
}

fn text(own: &ScorecardArgs, lines: &[Line]) -> String {
    let (machine, mut text) = (machine::here(), String::new());
    // Writing to a string cannot fail.
    match own.format.of_output() {
        Format::Table => {
            let _ = writeln!(text, "# {machine}\n{}", Line::head());
            lines.iter().for_each(|line| _ = writeln!(text, "{line}"));
            let reached = lines.iter().filter(|line| line.holds()).count();
            let _ = writeln!(text, "{reached} of {} goals are reached", lines.len());
        }
        Format::Csv => {
            let _ = writeln!(text, "# {machine}\n{}", Line::KEYS);
            lines.iter().for_each(|line| _ = writeln!(text, "{}", line.csv()));
        }
        Format::Json => {
            let json = lines.iter().filter_map(|line| serde_json::to_string(line).ok());
            let first = serde_json::to_string(&machine).into_iter();
            first.chain(json).for_each(|line| _ = writeln!(text, "{line}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_take_only_options_of_their_workloads() {
        for goal in GOALS {
            let words = goal.run(true);
            let args = args::bench(&words);
            let args = args.unwrap_or_else(|failure| panic!("{words:?}: {}", failure.message));
            let groups = (args.workload.groups)(&args.options()).unwrap();
            assert!(groups.iter().any(|group| goal.is_about(&group.params)), "{words:?}");
        }
    }
}
