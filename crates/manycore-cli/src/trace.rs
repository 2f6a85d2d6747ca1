//! `manycore trace`: records, shows and converts recordings of `manycore-trace`.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufWriter, Write, stdout},
    path::Path,
    process::Command,
    thread,
    time::Duration,
};

use manycore_trace::{
    Account, Record, Trace,
    convert::{self, Filter, Summary},
};

use crate::{
    failure::Failure,
    trace_args::{Format, ShowArgs, TraceCommand},
    trace_page,
};

/// The interval at which `tail` looks for new records.
const LOOK: Duration = Duration::from_millis(200);

/// Runs the subcommand.
pub fn run(command: &TraceCommand) -> Result<(), Failure> {
    match command {
        TraceCommand::Record { out, classes, command } => record(out, classes.as_deref(), command),
        TraceCommand::Tail(show) => tail(show),
        TraceCommand::Show(show) => print_all(show),
        TraceCommand::Stat(show) => stat(show),
        TraceCommand::Convert { show, to, out } => convert(show, *to, out),
    }
}

fn open(path: &Path) -> Result<Trace, Failure> {
    Trace::open(path)
        .map_err(|error| Failure::run(format_args!("cannot read {}: {error}", path.display())))
}

fn record(out: &Path, classes: Option<&str>, command: &[String]) -> Result<(), Failure> {
    let [program, arguments @ ..] = command else {
        return Err(Failure::usage("no program to run"));
    };
    let mut child = Command::new(program);
    child.args(arguments).env("MANYCORE_TRACE", out);
    if let Some(classes) = classes {
        child.env("MANYCORE_TRACE_CLASSES", classes);
    }
    let before = std::fs::metadata(out).and_then(|old| old.modified()).ok();
    let status = child
        .status()
        .map_err(|error| Failure::run(format_args!("cannot run {program}: {error}")))?;
    let after = std::fs::metadata(out).and_then(|new| new.modified()).ok();
    if after.is_none() || after == before {
        return Err(Failure::run(format_args!(
            "{program} has recorded nothing: it does not start `Recorder::from_env`"
        )));
    }
    let account = open(out)?.account();
    let say = || writeln!(stdout(), "{}: {account}", out.display());
    say().map_err(|error| Failure::stdout(&error))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::run(format_args!("{program} has failed: {status}")))
}

fn print(to: &mut impl Write, record: &Record<'_>) -> io::Result<()> {
    let nanos = record.nanos();
    let (sign, nanos) = (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
    let time = format!("{sign}{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    let thread = match record.thread_name() {
        "" => record.thread.to_string(),
        name => name.to_owned(),
    };
    writeln!(to, "{time:>16} {thread:>12} {:?} {record}", record.info.kind)
}

/// Prints the records from these sequence numbers on, and raises the numbers.
fn print_from(
    trace: &mut Trace,
    filter: &Filter,
    next: &mut BTreeMap<u32, u64>,
) -> io::Result<Account> {
    let mut out = BufWriter::new(stdout().lock());
    let mut merge = trace.merge_from(next);
    let mut seen = next.clone();
    while let Some(record) = merge.next() {
        seen.insert(record.slot, record.sequence + 1);
        if filter.takes(&record) {
            print(&mut out, &record)?;
        }
    }
    *next = seen;
    out.flush()?;
    Ok(merge.into_account())
}

fn print_all(show: &ShowArgs) -> Result<(), Failure> {
    let mut trace = open(&show.file)?;
    let account = print_from(&mut trace, &show.filter(), &mut BTreeMap::new())
        .map_err(|error| Failure::stdout(&error))?;
    conclude(&show.file, &account)
}

/// Prints on stderr what is lost, and fails if something is missing.
fn conclude(path: &Path, account: &Account) -> Result<(), Failure> {
    if account.is_closed() {
        if account.lost != 0 {
            let _ = writeln!(io::stderr(), "manycore: {}: {account}", path.display());
        }
        return Ok(());
    }
    Err(Failure::run(format_args!("{} is not whole: {account}", path.display())))
}

fn tail(show: &ShowArgs) -> Result<(), Failure> {
    let filter = show.filter();
    let mut next = BTreeMap::new();
    loop {
        let mut trace = open(&show.file)?;
        let process = trace.process();
        let is_over = trace.drift().is_some() || !is_alive(process);
        let account =
            print_from(&mut trace, &filter, &mut next).map_err(|error| Failure::stdout(&error))?;
        if is_over {
            return conclude(&show.file, &account);
        }
        thread::sleep(LOOK);
    }
}

/// Returns true if the process may still record.
fn is_alive(process: u64) -> bool {
    !cfg!(target_os = "linux") || Path::new(&format!("/proc/{process}")).exists()
}

fn stat(show: &ShowArgs) -> Result<(), Failure> {
    let mut trace = open(&show.file)?;
    let summary = Summary::of(&mut trace, &show.filter());
    let say = || -> io::Result<()> {
        let mut out = stdout().lock();
        write!(out, "{summary}")?;
        if let Some(drift) = trace.drift() {
            writeln!(out, "\nthe system's clock went {drift:+.1} ppm faster")?;
        }
        out.flush()
    };
    say().map_err(|error| Failure::stdout(&error))?;
    let mut account = summary.account;
    account.lost = 0; // the summary has said it
    conclude(&show.file, &account)
}

fn convert(show: &ShowArgs, to: Format, out: &Path) -> Result<(), Failure> {
    let mut trace = open(&show.file)?;
    let filter = show.filter();
    let file = || File::create(out).map(BufWriter::new);
    let written = match to {
        Format::Ctf => convert::ctf(&mut trace, &filter, out),
        Format::Chrome => file().and_then(|file| convert::chrome(&mut trace, &filter, file)),
        Format::Perfetto => file().and_then(|file| convert::perfetto(&mut trace, &filter, file)),
        Format::Html => {
            let title = show.file.display().to_string();
            file().and_then(|file| trace_page::write(&mut trace, &filter, &title, file))
        }
    };
    let account = written.map_err(|error| Failure::file(out, &error))?;
    conclude(&show.file, &account)
}
