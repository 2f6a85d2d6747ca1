//! The resources that this process uses, as the system reports them; and reading of small files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// What the process has used so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// Seconds of processor time in the program itself.
    pub user: f64,
    /// Seconds of processor time in the system, for it.
    pub system: f64,
    /// Bytes of memory that are resident now.
    pub resident: u64,
    /// Files and sockets that are open now.
    pub files: u64,
    /// The most that may be open; 0 if there is no limit.
    pub files_max: u64,
}

/// Returns the current usage. Values that the system does not report are 0.
#[cfg(target_os = "linux")]
#[must_use]
pub fn usage() -> Usage {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike;
    let times = getrusage(UsageWho::RUSAGE_SELF).map_or((0.0, 0.0), |used| {
        let seconds = |time: nix::sys::time::TimeVal| time.num_microseconds() as f64 / 1e6;
        (seconds(used.user_time()), seconds(used.system_time()))
    });
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.as_deref().and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    let files = std::fs::read_dir("/proc/self/fd").map_or(0, |all| all.count() as u64);
    Usage {
        user: times.0,
        system: times.1,
        resident: pages.unwrap_or(0) * rustix::param::page_size() as u64,
        // Reading the list opens one descriptor itself.
        files: files.saturating_sub(1),
        files_max: rustix::process::getrlimit(rustix::process::Resource::Nofile)
            .current
            .unwrap_or(0),
    }
}

/// Reads a whole file of at most `most` bytes. It reads no more, whatever length the system
/// reports.
pub(crate) fn file(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 <= most {
        Ok(bytes)
    } else {
        Err(format!("it is larger than {most} bytes"))
    }
}

/// Returns zeros, because the server runs only on Linux.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn usage() -> Usage {
    Usage::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_up_to_a_limit_whatever_their_length() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long");
        std::fs::write(&path, "1234").unwrap();
        assert_eq!(file(&path, 4).unwrap(), b"1234");
        assert_eq!(file(&path, 3).unwrap_err(), "it is larger than 3 bytes");
        File::create(&path).unwrap().set_len(40 << 30).unwrap();
        assert!(file(&path, 1 << 16).unwrap_err().starts_with("it is larger"));
        assert!(file(&folder.path().join("none"), 4).unwrap_err().starts_with("No such file"));
    }
}
