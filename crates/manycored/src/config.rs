//! Options from a file. Each line has one option, by its long or short name on the command line.
//!
//! ```text
//! # A line that begins with a hash mark is a comment.
//! threads = 4
//! listen = 127.0.0.1:11211,[::1]:11211
//! memory-limit = 1024
//! enable-shutdown = yes
//! verbose = 2
//! ```
//!
//! An option without a value may have `yes`, `no` or nothing. The file's options become words
//! before those of the command line. The last word counts, so the command line takes precedence.
//! The value of `extended` is added to the options of `-o`.

use clap::{Arg, ArgAction, Command};

/// The most repetitions of an option that counts them.
const COUNT_MAX: usize = 9;

/// A line of the file, and its words for the command line.
pub(crate) struct Line<'t> {
    /// Its number, from 1 on.
    pub(crate) number: usize,
    /// What was typed.
    pub(crate) text: &'t str,
    /// The words for the command line.
    pub(crate) words: Vec<String>,
}

impl Line<'_> {
    /// Returns a message with the line's number, its text and the error.
    pub(crate) fn wrong(&self, error: &str) -> String {
        format!("line {}: '{}': {error}", self.number, self.text)
    }
}

/// Returns the lines of a file that have options.
///
/// # Errors
/// A message with the line's number, its text and the error.
pub(crate) fn lines<'t>(text: &'t str, command: &Command) -> Result<Vec<Line<'t>>, String> {
    let mut lines = Vec::new();
    for (at, text) in text.lines().enumerate() {
        let mut line = Line { number: at + 1, text: text.trim(), words: Vec::new() };
        if !line.text.is_empty() && !line.text.starts_with('#') {
            line.words = option(line.text, command).map_err(|error| line.wrong(&error))?;
            lines.push(line);
        }
    }
    Ok(lines)
}

fn option(line: &str, command: &Command) -> Result<Vec<String>, String> {
    let (name, value) = match line.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (line, None),
    };
    let is_it = |arg: &&Arg| {
        arg.get_long() == Some(name)
            || arg.get_short().is_some_and(|short| name.chars().eq(std::iter::once(short)))
    };
    let arg = command.get_arguments().find(is_it).filter(|arg| arg.get_id() != "config");
    let arg = arg.ok_or_else(|| format!("there is no option '{name}'"))?;
    let word = match (arg.get_long(), arg.get_short()) {
        (Some(long), _) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
        (None, None) => return Err(format!("there is no option '{name}'")),
    };
    match (arg.get_action(), value) {
        (ArgAction::SetTrue, None | Some("yes" | "true")) => Ok(vec![word]),
        (ArgAction::SetTrue, Some("no" | "false")) => Ok(Vec::new()),
        (ArgAction::SetTrue, Some(_)) => Err(format!("'{name}' is yes or no")),
        (ArgAction::Count, value) => {
            let count = value.map_or(Ok(1), str::parse).ok().filter(|count| *count <= COUNT_MAX);
            let count = count.ok_or_else(|| format!("'{name}' is a number up to {COUNT_MAX}"))?;
            Ok(vec![word; count])
        }
        (ArgAction::Set | ArgAction::Append, Some(value)) if !value.is_empty() => {
            // In one word, so that a value may begin with a minus.
            let joint = if arg.get_long().is_some() { "=" } else { "" };
            Ok(vec![format!("{word}{joint}{value}")])
        }
        (ArgAction::Set | ArgAction::Append, _) => Err(format!("'{name}' needs a value")),
        _ => Err(format!("'{name}' makes no sense in a file")),
    }
}

#[cfg(test)]
mod tests {
    use super::lines;
    use crate::args::Args;
    use clap::CommandFactory;

    fn read(text: &str) -> Result<Vec<String>, String> {
        let lines = lines(text, &Args::command())?;
        Ok(lines.into_iter().flat_map(|line| line.words).collect())
    }

    #[test]
    fn lines_become_the_words_of_a_command_line() {
        let text = "# a comment\n\nthreads = 4\n  m=100  \nlisten = a,b\nverbose = 2\n\
                    enable-shutdown\n\
                    lock-memory = no\ndisable-evictions = yes\nport = -1\n";
        let expected = [
            "--threads=4",
            "--memory-limit=100",
            "--listen=a,b",
            "--verbose",
            "--verbose",
            "--enable-shutdown",
            "--disable-evictions",
            "--port=-1",
        ];
        assert_eq!(read(text).unwrap(), expected);
        assert_eq!(read("").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, words) in [
            ("\nnonsense = 1", "line 2: 'nonsense = 1': there is no option 'nonsense'"),
            ("config = other", "line 1: 'config = other': there is no option 'config'"),
            ("threads", "line 1: 'threads': 'threads' needs a value"),
            ("threads =", "line 1: 'threads =': 'threads' needs a value"),
            ("daemon = 5", "line 1: 'daemon = 5': 'daemon' is yes or no"),
            ("verbose = 10", "line 1: 'verbose = 10': 'verbose' is a number up to 9"),
            ("version", "line 1: 'version': 'version' makes no sense in a file"),
            ("= 1", "line 1: '= 1': there is no option ''"),
        ] {
            assert_eq!(read(text), Err(words.to_owned()), "{text}");
        }
    }

    #[test]
    fn every_option_of_the_command_line_has_a_line() {
        for arg in Args::command().get_arguments() {
            let short = || arg.get_short().unwrap().to_string();
            let name = arg.get_long().map_or_else(short, str::to_owned);
            let known = read(&format!("{name} = 1")).or_else(|_| read(&format!("{name} = yes")));
            let is_none = ["config", "version", "help"].contains(&name.as_str());
            assert_eq!(known.is_err(), is_none, "{name}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_file_panics(text in "(\\PC|\n)*") {
            let _ = read(&text);
        }

        #[test]
        fn no_value_becomes_another_option(value in "[ -~]{1,20}") {
            if let Ok(words) = read(&format!("pidfile = {value}")) {
                proptest::prop_assert_eq!(words.len(), 1);
                proptest::prop_assert!(words[0].starts_with("--pidfile="));
            }
        }
    }
}
