//! PostMark's load on any directory: many small files that come, grow, are read and go, as those of
//! a mail or news server do (J. Katcher, "PostMark: a new file system benchmark", 1997). Each byte
//! that is read is checked. In the manner of the original: sizes from 500 to 9,770 bytes, blocks of
//! 512 bytes without a buffer, as many creations as removals, as many reads as appends.
//!
//! ```text
//! cargo run --release -p manycore-fs --example postmark -- DIRECTORY [FILES [TRANSACTIONS [SEED]]]
//! ```
//!
//! Without words it makes a small run in a temporary directory. K42's paper has 20,000 files and
//! 100,000 transactions, and one instance for each processor.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const SIZES: std::ops::Range<u64> = 500..9771;
const BLOCK: usize = 512;

/// What one run has done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) created: u64,
    pub(crate) removed: u64,
    pub(crate) reads: u64,
    pub(crate) appends: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
}

/// Where the time of a run went.
pub(crate) struct Times {
    pub(crate) creation: Duration,
    pub(crate) transactions: Duration,
    pub(crate) removal: Duration,
}

struct Load<'d> {
    directory: &'d Path,
    /// The number and the length of each file there is.
    files: Vec<(u64, u64)>,
    next: u64,
    random: u64,
    done: Done,
}

/// The byte at an offset of a file.
fn byte(number: u64, offset: u64) -> u8 {
    (number.wrapping_mul(31) + offset / 7) as u8
}

impl Load<'_> {
    /// A number below `limit`, by xorshift.
    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    fn size(&mut self) -> u64 {
        SIZES.start + self.below(SIZES.end - SIZES.start)
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(number.to_string())
    }

    /// Writes bytes at the end of a file, a block at a time.
    fn write(&mut self, mut file: File, number: u64, from: u64, to: u64) -> io::Result<()> {
        let mut offset = from;
        while offset < to {
            let end = to.min(offset + BLOCK as u64);
            let block: Vec<u8> = (offset..end).map(|offset| byte(number, offset)).collect();
            file.write_all(&block)?;
            offset = end;
        }
        self.done.bytes_written += to - from;
        Ok(())
    }

    fn create(&mut self) -> io::Result<()> {
        let (number, size) = (self.next, self.size());
        self.next += 1;
        let file = OpenOptions::new().write(true).create_new(true).open(self.path(number))?;
        self.write(file, number, 0, size)?;
        self.files.push((number, size));
        self.done.created += 1;
        Ok(())
    }

    fn remove(&mut self, at: usize) -> io::Result<()> {
        let (number, _) = self.files.swap_remove(at);
        fs::remove_file(self.path(number))?;
        self.done.removed += 1;
        Ok(())
    }

    fn append(&mut self, at: usize) -> io::Result<()> {
        let (number, size) = self.files[at];
        // A file does not grow without end: one that is long already is read instead.
        if size >= 2 * SIZES.end {
            return self.read(at);
        }
        let file = OpenOptions::new().append(true).open(self.path(number))?;
        let end = size + self.size();
        self.write(file, number, size, end)?;
        self.files[at].1 = end;
        self.done.appends += 1;
        Ok(())
    }

    fn read(&mut self, at: usize) -> io::Result<()> {
        let (number, size) = self.files[at];
        let mut file = File::open(self.path(number))?;
        let mut block = [0; BLOCK];
        let mut offset = 0;
        loop {
            let count = file.read(&mut block)?;
            if count == 0 {
                break;
            }
            for (at, read) in (offset..).zip(&block[..count]) {
                assert_eq!(*read, byte(number, at), "byte {at} of file {number}");
            }
            offset += count as u64;
        }
        assert_eq!(offset, size, "bytes of file {number}");
        self.done.reads += 1;
        self.done.bytes_read += size;
        Ok(())
    }

    /// One of reading and appending, then one of creating and removing.
    fn transaction(&mut self) -> io::Result<()> {
        if !self.files.is_empty() {
            let at = self.below(self.files.len() as u64) as usize;
            if self.below(2) == 0 { self.read(at)? } else { self.append(at)? }
        }
        if self.files.is_empty() || self.below(2) == 0 {
            return self.create();
        }
        let at = self.below(self.files.len() as u64) as usize;
        self.remove(at)
    }
}

/// Runs the load in a new directory below `directory`, which is gone again afterwards.
///
/// # Errors
/// What the file system says.
///
/// # Panics
/// If a file has not the bytes that were written to it.
pub(crate) fn run(
    directory: &Path,
    files: u64,
    transactions: u64,
    seed: u64,
) -> io::Result<(Done, Times)> {
    let own = directory.join(format!("postmark-{}-{seed}", std::process::id()));
    fs::create_dir(&own)?;
    let random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut load =
        Load { directory: &own, files: Vec::new(), next: 0, random, done: Done::default() };
    let begin = Instant::now();
    for _ in 0..files {
        load.create()?;
    }
    let creation = begin.elapsed();
    for _ in 0..transactions {
        load.transaction()?;
    }
    let transactions = begin.elapsed() - creation;
    while let Some(last) = load.files.len().checked_sub(1) {
        load.remove(last)?;
    }
    let removal = begin.elapsed() - creation - transactions;
    let done = load.done;
    fs::remove_dir(&own)?; // which fails if anything is left
    Ok((done, Times { creation, transactions, removal }))
}

fn main() -> io::Result<()> {
    let mut words = std::env::args().skip(1);
    let directory = words.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let mut number = |default: u64| match words.next() {
        None => Ok(default),
        Some(word) => word.parse().map_err(|_| io::Error::other(format!("'{word}' is no number"))),
    };
    let (files, transactions, seed) = (number(100)?, number(500)?, number(42)?);
    let (done, times) = run(&directory, files, transactions, seed)?;
    println!("{done:?}");
    println!(
        "creation {:.3} s, transactions {:.3} s ({:.0} a second), removal {:.3} s",
        times.creation.as_secs_f64(),
        times.transactions.as_secs_f64(),
        transactions as f64 / times.transactions.as_secs_f64(),
        times.removal.as_secs_f64(),
    );
    Ok(())
}
