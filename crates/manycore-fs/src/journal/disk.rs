//! The files of a log. All writes go through this file, so that a test sees their order, and can
//! make up what the disk may have after a loss of power.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// The files are the user's alone: they have the bytes of all files.
pub(super) const MODE: u32 = 0o600;

/// A file of a log.
pub(crate) struct LogFile {
    pub(crate) file: File,
    #[cfg(test)]
    seen: super::power_loss::Seen,
}

impl LogFile {
    fn open_with(path: &Path, options: &OpenOptions, _is_new: bool) -> io::Result<LogFile> {
        Ok(LogFile {
            file: options.open(path)?,
            #[cfg(test)]
            seen: super::power_loss::Seen::open(path, _is_new),
        })
    }

    pub(crate) fn open(path: &Path) -> io::Result<LogFile> {
        Self::open_with(path, OpenOptions::new().read(true).write(true), false)
    }

    pub(crate) fn create(path: &Path) -> io::Result<LogFile> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(MODE);
        Self::open_with(path, &options, true)
    }

    pub(crate) fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        #[cfg(test)]
        self.seen.write(offset, bytes);
        self.file.write_all_at(bytes, offset)
    }

    /// Adds a part of another file.
    pub(crate) fn copy(&mut self, from: &LogFile, start: u64, count: u64) -> io::Result<()> {
        let mut from = &from.file;
        from.seek(SeekFrom::Start(start))?;
        #[cfg(test)]
        self.seen.copy(&self.file, from, start, count);
        io::copy(&mut from.take(count), &mut self.file).map(drop)
    }

    pub(crate) fn set_length(&self, length: u64) -> io::Result<()> {
        #[cfg(test)]
        self.seen.set_length(length);
        self.file.set_len(length)
    }

    /// Waits until the bytes are on disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()?;
        #[cfg(test)]
        self.seen.sync();
        Ok(())
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(test)]
        self.seen.write(self.file.stream_position()?, bytes);
        // All, so that what was seen is what was written.
        self.file.write_all(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Gives a file of a folder the name of another one.
pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(test)]
    super::power_loss::renames(from, to);
    fs::rename(from, to)
}

/// Waits until the names of a folder are on disk.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()?;
    #[cfg(test)]
    super::power_loss::synced(path);
    Ok(())
}
