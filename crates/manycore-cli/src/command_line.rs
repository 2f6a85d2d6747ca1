//! What this command and `manycore-bench` do alike with their command lines.

use std::{
    ffi::OsString,
    io::{Write, stderr, stdout},
    process::ExitCode,
};

use clap::{CommandFactory, Parser, error::ErrorKind};
use clap_complete::Shell;

use crate::failure::Failure;

/// The part of `--help` on exit codes.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    it is done
  1    the machine cannot do what was asked, or a program or test that was run has failed
  2    the command line makes no sense
  141  the reader of the output has gone, as `head` does; nothing is said";

/// Reads the command line. Prints help and version, and then ends the process.
///
/// # Errors
/// One line that says what is wrong.
pub fn parse<C: Parser>() -> Result<C, Failure> {
    parse_words(std::env::args_os())
}

/// As [`parse`], from these words.
///
/// # Errors
/// As for [`parse`].
pub fn parse_words<C: Parser>(words: impl IntoIterator<Item = OsString>) -> Result<C, Failure> {
    C::try_parse_from(words).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
        _ => Failure::usage(one_line(&error.to_string())),
    })
}

/// Reads a command line from words, of which the first is the name of the command.
///
/// # Errors
/// One line that says what is wrong.
pub fn parse_from<C: Parser>(
    words: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<C, Failure> {
    C::try_parse_from(words).map_err(|error| Failure::usage(one_line(&error.to_string())))
}

/// Returns clap's message on one line, without usage and advice.
fn one_line(message: &str) -> String {
    let parts = message
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .filter(|line| !line.is_empty())
        .map(|line| line.trim_start_matches("error: "));
    let line = parts.collect::<Vec<_>>().join(" ").replace(" tip: ", "; ");
    format!("{line} (try --help)")
}

/// Writes a shell's completions of the command line.
///
/// # Errors
/// If the writer fails.
pub fn completions<C: CommandFactory>(shell: Shell, out: &mut impl Write) -> Result<(), Failure> {
    let mut command = C::command();
    let name = command.get_name().to_owned();
    let mut text = Vec::new(); // clap would panic if the reader has gone
    clap_complete::generate(shell, &mut command, name, &mut text);
    out.write_all(&text).map_err(|error| Failure::stdout(&error))
}

/// Writes the command line as a manual page.
///
/// # Errors
/// If the writer fails.
pub fn manual<C: CommandFactory>(out: &mut impl Write) -> Result<(), Failure> {
    clap_mangen::Man::new(C::command()).render(out).map_err(|error| Failure::stdout(&error))
}

/// Prints a text on standard output.
///
/// # Errors
/// If standard output fails.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| Failure::stdout(&error))
}

/// Prints why a command failed, if it did, and returns its exit code.
pub fn end(command: &str, outcome: Result<(), Failure>) -> ExitCode {
    let Err(Failure { message, code }) = outcome else { return ExitCode::SUCCESS };
    if !message.is_empty() {
        // If stderr is closed, too, there is no other channel.
        let _ = writeln!(stderr(), "{command}: {message}");
    }
    ExitCode::from(code)
}
