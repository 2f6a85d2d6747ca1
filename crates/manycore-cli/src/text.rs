//! Files of text that are read whole: no more of them than there may be.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// Bytes of a table of figures, of what a run printed, or of a page, at most.
pub(crate) const TABLE: u64 = 64 << 20;
/// Bytes of a machine file, at most: more than `Machine::from_toml` takes, which says so.
pub(crate) const MACHINE: u64 = 1 << 20;

/// Reads a file of at most so many bytes. Memory follows the bytes that are read: a sparse file's
/// length is not believed.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<String> {
    let mut text = String::new();
    let length = File::open(path)?.take(most + 1).read_to_string(&mut text)?;
    if length as u64 > most {
        let words = format!("it has more than {} MiB", most >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, words));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_up_to_a_limit_whatever_their_length() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long");
        std::fs::write(&path, "text").unwrap();
        assert_eq!(read(&path, MACHINE).unwrap(), "text");
        File::options().write(true).open(&path).unwrap().set_len(40 << 30).unwrap();
        assert_eq!(read(&path, MACHINE).unwrap_err().to_string(), "it has more than 1 MiB");
    }
}
