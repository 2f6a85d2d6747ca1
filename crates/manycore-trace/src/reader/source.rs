//! The bytes of a recording.

use std::fmt;
use std::fs::File;
use std::io;

/// A file, or bytes in memory.
pub(crate) enum Source {
    File(File),
    Bytes(Vec<u8>),
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.fmt(f),
            Self::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
        }
    }
}

impl Source {
    /// A regular file as it is; anything else is read to its end.
    pub(crate) fn of_file(mut file: File) -> io::Result<Self> {
        if file.metadata()?.is_file() {
            return Ok(Self::File(file));
        }
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut file, &mut bytes)?;
        Ok(Self::Bytes(bytes))
    }

    pub(crate) fn length(&self) -> io::Result<u64> {
        match self {
            Self::File(file) => Ok(file.metadata()?.len()),
            Self::Bytes(bytes) => Ok(bytes.len() as u64),
        }
    }

    /// Up to `bytes` bytes from `offset` on: fewer at the end.
    pub(crate) fn bytes(&self, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        match self {
            Self::File(file) => {
                let mut found = vec![0; bytes];
                let length = read_at(file, &mut found, offset)?;
                found.truncate(length);
                Ok(found)
            }
            Self::Bytes(all) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(all.len());
                let end = start.saturating_add(bytes).min(all.len());
                Ok(all[start..end].to_vec())
            }
        }
    }

    /// Up to `count` words from `offset` on.
    pub(crate) fn words(&self, offset: u64, count: usize, to: &mut Vec<u64>) -> io::Result<()> {
        let bytes = self.bytes(offset, count * 8)?;
        to.clear();
        let words = bytes.chunks_exact(8);
        to.extend(words.map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))));
        Ok(())
    }
}

/// Reads as much as there is.
fn read_at(file: &File, to: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < to.len() {
        #[cfg(unix)]
        let read = std::os::unix::fs::FileExt::read_at(file, &mut to[done..], offset + done as u64);
        #[cfg(windows)]
        let read =
            std::os::windows::fs::FileExt::seek_read(file, &mut to[done..], offset + done as u64);
        match read {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
