//! The mounts that this process sees, and which of them are ours.

use super::failure::{Failure, Result};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What a mount of ours is listed as: the kernel's kind of file system, with ours as a part of it.
pub const KIND: &str = "fuse.manycore-fs";

/// A row of the table.
#[derive(PartialEq, Eq, Debug)]
struct Row {
    mountpoint: PathBuf,
    kind: OsString,
}

/// Our mount at this place or around it, or around the current directory.
pub fn find(place: Option<&Path>) -> Result<PathBuf> {
    let table = "/proc/self/mountinfo";
    let rows = parse(&fs::read(table).map_err(|error| Failure::of(table, error))?);
    let place = match place {
        Some(place) => absolute(place)?,
        None => std::env::current_dir()
            .map_err(|error| Failure::new(format!("the current directory: {error}")))?,
    };
    let place_is_given = place.as_path();
    find_in(&rows, &place).ok_or_else(|| {
        Failure::new(format!(
            "{} is not in a mount of manycore-fs: name the mount point, or mount it first",
            place_is_given.display()
        ))
    })
}

/// The path without links, if it can be looked at: below a mount without its daemon it can't.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    match path.canonicalize() {
        Ok(path) => Ok(path),
        Err(_) => std::path::absolute(path).map_err(|error| Failure::of(path, error)),
    }
}

/// The mount on top at this place, if it is ours.
fn find_in(rows: &[Row], place: &Path) -> Option<PathBuf> {
    let around = rows.iter().filter(|row| place.starts_with(&row.mountpoint));
    // Of several at one place, the last is on top.
    let top = around.max_by_key(|row| row.mountpoint.as_os_str().len())?;
    (top.kind == KIND).then(|| top.mountpoint.clone())
}

/// Whether a mount of ours is on top at just this place.
pub fn is_mounted(mountpoint: &Path) -> bool {
    find(Some(mountpoint)).is_ok_and(|found| found == mountpoint)
}

/// Reads the table: fields are separated by spaces, and the kind is after a lone `-`.
fn parse(table: &[u8]) -> Vec<Row> {
    let row = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let mountpoint = PathBuf::from(unescaped(fields.nth(4)?));
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        Some(Row { mountpoint, kind: OsStr::from_bytes(kind).to_owned() })
    };
    table.split(|byte| *byte == b'\n').filter_map(row).collect()
}

/// A space, tab, line feed or backslash is a backslash and three octal digits there.
fn unescaped(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, more)) = rest.split_first() {
        let digits =
            more.get(..3).filter(|digits| digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match digits.filter(|_| *first == b'\\') {
            Some(digits) => {
                out.push(digits.iter().fold(0, |value, digit| (value << 3) | (digit - b'0')));
                rest = &more[3..];
            }
            None => {
                out.push(*first);
                rest = more;
            }
        }
    }
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 0:20 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:40 / /mnt/a rw,nosuid shared:2 - fuse.manycore-fs manycore-fs rw,user_id=0
31 22 0:41 / /mnt/with\\040space rw - fuse.manycore-fs manycore-fs rw
32 30 0:42 / /mnt/a/deep rw - tmpfs tmpfs rw
33 22 0:43 / /mnt/b rw - fuse.manycore-fs manycore-fs rw
34 33 0:44 / /mnt/b rw - tmpfs tmpfs rw
";

    #[test]
    fn mount_around_a_place_is_found() {
        let rows = parse(TABLE.as_bytes());
        assert_eq!(rows.len(), 6);
        let found = |place: &str| find_in(&rows, Path::new(place));
        assert_eq!(found("/mnt/a"), Some("/mnt/a".into()));
        assert_eq!(found("/mnt/a/x/y"), Some("/mnt/a".into()));
        assert_eq!(found("/mnt/with space/x"), Some("/mnt/with space".into()));
        for other in ["/", "/mnt", "/mnt/ab", "/mnt/a/deep/x", "/mnt/b"] {
            assert_eq!(found(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_no_escape_stays() {
        assert_eq!(unescaped(b"a\\134b\\0"), OsStr::new("a\\b\\0"));
        assert_eq!(unescaped(b"\\012\\"), OsStr::new("\n\\"));
    }
}
