//! The command `manycore-fs`: mounts a file system that forks, and works with its branches.

#[cfg(target_os = "linux")]
mod program;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    program::main()
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    eprintln!("manycore-fs: a mount needs Linux; the library manycore-fs works here, too");
    std::process::ExitCode::FAILURE
}
