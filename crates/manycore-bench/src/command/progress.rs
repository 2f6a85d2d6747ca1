//! The progress bar. It appears only on stderr, and only if stderr is a terminal.

use std::io::{IsTerminal, Write, stderr};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::runner::{Case, Group, Runner};

/// A bar over all runs of some groups.
pub struct Progress(ProgressBar);

impl Progress {
    /// Returns a bar with one step for each repeat of each case.
    pub fn over_runs<'a>(groups: impl Iterator<Item = &'a Group>, runner: &Runner) -> Self {
        Self::new(groups.map(|group| group.cases.len() * runner.repeats).sum())
    }

    /// Returns a bar with this many steps.
    pub fn new(steps: usize) -> Self {
        let target = if stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(steps as u64), target);
        let style = ProgressStyle::with_template("{bar:30} {percent:>3}% {eta:>4} left  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self(bar)
    }

    /// Moves on to the next run.
    pub fn step(&self, group: &Group, case: &Case) {
        self.0.set_message(format!("{} {} ({})", group.bench, case.impl_name, group.title));
        self.0.inc(1);
    }

    /// Moves on to the next step.
    pub fn next(&self, what: &str) {
        if self.0.is_hidden() {
            // Without a terminal, print a line for each step, for a log.
            let (at, of) = (self.0.position() + 1, self.0.length().unwrap_or(0));
            let _ = writeln!(stderr(), "manycore: {at} of {of}: {what}");
        }
        self.0.set_message(what.to_owned());
        self.0.inc(1);
    }

    /// Prints a message that is not a result, on stderr.
    pub fn note(&self, text: &str) {
        // If stderr is closed, measuring goes on.
        let _ = self.aside(|| writeln!(stderr(), "manycore: {text}"));
    }

    /// Hides the bar while something is printed.
    pub fn aside<R>(&self, print: impl FnOnce() -> R) -> R {
        self.0.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
