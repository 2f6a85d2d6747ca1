//! The `manycore-bench` command. Its code is in the library of this package.

fn main() -> std::process::ExitCode {
    manycore_bench::command::main()
}
