//! The bytes of a recording.

use crate::format::head;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};

/// Bytes that are read at a time. That many zeros are taken for a hole: a recording has them only
/// after its end, because a record has at most 2,040 bytes and its first word is not 0.
const PIECE: usize = 64 << 10;

/// The source of a recording: a file, or bytes in memory.
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
    /// Takes a regular file as it is. Reads anything else to its end if `begins` accepts its head.
    pub(crate) fn of_file(
        mut file: File,
        begins: impl FnOnce(&Self) -> io::Result<()>,
    ) -> io::Result<Self> {
        if file.metadata()?.is_file() {
            return Ok(Self::File(file));
        }
        let mut bytes = Vec::new();
        (&mut file).take(8 * head::WORDS as u64).read_to_end(&mut bytes)?;
        let start = Self::Bytes(bytes);
        begins(&start)?; // a source that is not a recording may never end
        let Self::Bytes(mut bytes) = start else { unreachable!("made above") };
        file.read_to_end(&mut bytes)?;
        Ok(Self::Bytes(bytes))
    }

    pub(crate) fn length(&self) -> io::Result<u64> {
        match self {
            Self::File(file) => Ok(file.metadata()?.len()),
            Self::Bytes(bytes) => Ok(bytes.len() as u64),
        }
    }

    /// Returns up to `bytes` bytes from `offset` on: fewer at the end, and before a hole after the
    /// first [`PIECE`]. Memory and time follow what is read, whatever `bytes` says (reader.T4).
    pub(crate) fn bytes(&self, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let mut found = Vec::new();
        while found.len() < bytes {
            let before = found.len();
            let piece = PIECE.min(bytes - before);
            let Some(at) = offset.checked_add(before as u64) else { break };
            match self {
                Self::File(file) => {
                    found.resize(before + piece, 0);
                    let read = read_at(file, &mut found[before..], at)?;
                    found.truncate(before + read);
                }
                Self::Bytes(all) => {
                    let start = usize::try_from(at).unwrap_or(usize::MAX).min(all.len());
                    found
                        .extend_from_slice(&all[start..all.len().min(start.saturating_add(piece))]);
                }
            }
            let read = &found[before..];
            if before > 0 && read.len() == PIECE && read.iter().all(|byte| *byte == 0) {
                found.truncate(before);
                break;
            }
            if read.len() < piece {
                break;
            }
        }
        Ok(found)
    }

    /// Reads up to `count` words from `offset` on.
    pub(crate) fn words(&self, offset: u64, count: usize, to: &mut Vec<u64>) -> io::Result<()> {
        let bytes = self.bytes(offset, count * 8)?;
        to.clear();
        let words = bytes.chunks_exact(8);
        to.extend(words.map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))));
        Ok(())
    }
}

/// Reads until `to` is full or the file ends.
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
