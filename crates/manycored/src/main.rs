//! The server's command. Its exit codes are memcached's: 0 after a signal, 64 for wrong options, 67
//! for an unknown user, 71 for an address that cannot be used.

use manycored::args::Args;
use std::process::ExitCode;

/// Wrong options.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let args = match Args::from_command_line(std::env::args_os()) {
        Ok(args) => args,
        Err(error) => {
            // Help and version are no errors. A closed stream is ignored.
            let _ = error.print();
            return if error.use_stderr() { USAGE.into() } else { ExitCode::SUCCESS };
        }
    };
    if args.license {
        println!("{}", manycored::args::LICENSE);
        return ExitCode::SUCCESS;
    }
    let plan = match args.plan() {
        Ok(plan) => plan,
        Err(words) => {
            eprintln!("manycored: {words}");
            return USAGE.into();
        }
    };
    start(&args, plan)
}

#[cfg(target_os = "linux")]
fn start(args: &Args, plan: manycored::args::Plan) -> ExitCode {
    match manycored::server::run(args, plan) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("manycored: {failure}");
            failure.code().into()
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn start(_: &Args, _: manycored::args::Plan) -> ExitCode {
    eprintln!("manycored: the server runs on Linux only");
    USAGE.into()
}
