//! Reading of whole text files, up to a limit.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// The most bytes of a table of figures, of a run's output, or of a page.
pub const TABLE: u64 = 64 << 20;
/// The most bytes of a machine file. It is more than `Machine::from_toml` takes, so that function
/// reports the error.
pub const MACHINE: u64 = 1 << 20;

/// Reads a file of at most `most` bytes. Memory grows with the bytes that are read, so the length
/// of a sparse file does no harm.
pub fn read(path: &Path, most: u64) -> io::Result<String> {
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
