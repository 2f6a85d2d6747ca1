//! `manycore-bench workloads` and `manycore-bench compare`, with which scripts query benchmarks and
//! their files.

use std::fmt::Write as _;

use manycore_cli::{command_line::print, failure::Failure, text};

use super::args::{CompareArgs, WorkloadsArgs};
use crate::{
    catalogue::WORKLOADS,
    compare::{Better, factors, figure_of},
};

/// Prints a line for each implementation of each workload, or for each of its own options.
pub fn workloads(args: &WorkloadsArgs) -> Result<(), Failure> {
    let mut text = String::new();
    // Writing to a string cannot fail.
    for workload in WORKLOADS {
        if args.options {
            for (option, _) in workload.options {
                let _ = writeln!(text, "{} {option}", workload.name);
            }
            continue;
        }
        for about in (workload.impls)() {
            let _ = writeln!(text, "{} {} {}", workload.name, about.name, about.kind.word());
        }
    }
    print(&text)
}

/// Prints the ratios in favour of ours, or one figure.
pub fn run(args: &CompareArgs) -> Result<(), Failure> {
    let CompareArgs { workload, file, metric, less, implementation } = args;
    let csv = text::read(file, text::TABLE)
        .map_err(|error| Failure::run(format_args!("cannot read {}: {error}", file.display())))?;
    let better = if *less { Better::Less } else { Better::More };
    let text = match implementation {
        None => factors(workload, &csv, metric, better),
        Some(name) => figure_of(&csv, metric, name).map_or(String::new(), |it| format!("{it}\n")),
    };
    if text.is_empty() {
        let what = implementation.as_deref().unwrap_or("ours and another implementation");
        return Err(Failure::run(format_args!("{} has no '{metric}' of {what}", file.display())));
    }
    print(&text)
}
