//! The `manycore` command. All of it is in the library of this package.

fn main() -> std::process::ExitCode {
    manycore_cli::main()
}
