//! Where users come from: the file of `-Y`, or the files that memcached with libsasl reads.
//!
//! With `-S` and without `-Y`, the server takes the first of these:
//!
//! - the file that `MEMCACHED_SASL_PWDB` names,
//! - the database of `saslpasswd2` that `sasldb_path` names in `memcached.conf`, which is in
//!   `SASL_CONF_PATH` or where libsasl looks for it,
//! - `/etc/sasldb2`.
//!
//! The server only reads these files. They may be made after the start, as for memcached.

use super::{User, hash_file, same};
use crate::system;
use memchr::memchr;
use std::borrow::Cow;
use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The most users that a file of `-Y` may have, as in memcached.
pub(super) const USERS_MAX: usize = 8;
/// The largest file that is read. Its users take at most 32 bytes for each of its bytes.
const FILE_MAX: u64 = 16 << 20;
/// The longest line of `MEMCACHED_SASL_PWDB`'s file, as in memcached.
const LINE_MAX: usize = 255;
/// The name of a password in a `sasldb`.
const PASSWORD: &[u8] = b"userPassword";
/// A file that was changed less than this before it was read may change again without getting a
/// later time.
const FRESH: Duration = Duration::from_secs(2);

/// Where users come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// The file of `-Y`.
    Option(PathBuf),
    /// The file that `MEMCACHED_SASL_PWDB` names.
    Pwdb(PathBuf),
    /// A `sasldb`, and the realm of users without one.
    Sasldb(PathBuf, Vec<u8>),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, path) = match self {
            Self::Option(path) => ("-Y", path),
            Self::Pwdb(path) => ("MEMCACHED_SASL_PWDB", path),
            Self::Sasldb(path, _) => ("sasldb", path),
        };
        write!(f, "{name} {}", path.display())
    }
}

/// A file's state. A change of the file changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp(SystemTime, u64);

impl Source {
    /// Returns the source for `-S` alone.
    pub(super) fn of_sasl() -> Result<Self, String> {
        Self::find(|name| env::var_os(name), Path::new("/"))
    }

    /// As [`of_sasl`](Self::of_sasl), with these variables, and with the system's files below
    /// `root`.
    fn find(var: impl Fn(&str) -> Option<OsString>, root: &Path) -> Result<Self, String> {
        if let Some(path) = var("MEMCACHED_SASL_PWDB") {
            return Ok(Self::Pwdb(path.into()));
        }
        let conf = match var("SASL_CONF_PATH") {
            Some(paths) => env::split_paths(&paths).find_map(conf_at),
            None => ["etc/sasl", "etc/sasl2", "usr/lib/sasl2"]
                .into_iter()
                .find_map(|folder| conf_at(root.join(folder))),
        };
        let named = conf.as_deref().map(sasldb_path).transpose()?.flatten();
        let path = named.unwrap_or_else(|| root.join("etc/sasldb2"));
        let host = fs::read(root.join("proc/sys/kernel/hostname")).unwrap_or_default();
        Ok(Self::Sasldb(path, host.trim_ascii().to_ascii_lowercase()))
    }

    fn path(&self) -> &Path {
        let (Self::Option(path) | Self::Pwdb(path) | Self::Sasldb(path, _)) = self;
        path
    }

    /// Returns true if there is no such file.
    pub(super) fn is_missing(&self) -> bool {
        fs::metadata(self.path()).is_err_and(|error| error.kind() == ErrorKind::NotFound)
    }

    /// Returns true if it is reread when it changes, and not only at SIGHUP.
    pub(super) fn is_watched(&self) -> bool {
        !matches!(self, Self::Option(_))
    }

    /// Returns the state of the file now. `None` if later changes could go unnoticed.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        let found = fs::metadata(self.path()).ok()?;
        let changed = found.modified().ok()?;
        let is_fresh = changed.elapsed().map_or(true, |age| age < FRESH);
        (!is_fresh).then_some(Stamp(changed, found.len()))
    }

    /// Returns the users.
    pub(super) fn read(&self) -> Result<Vec<User>, String> {
        self.users().map_err(|error| format!("{self}: {error}"))
    }

    fn users(&self) -> Result<Vec<User>, String> {
        self.users_of(&bytes_of(self.path())?)
    }

    /// Returns the users of a file with these bytes.
    pub(super) fn users_of(&self, bytes: &[u8]) -> Result<Vec<User>, String> {
        match self {
            Self::Option(_) => {
                users_of_option(std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8 text")?)
            }
            Self::Pwdb(_) => Ok(users_of_pwdb(bytes)),
            Self::Sasldb(..) => Ok(users_of_sasldb(bytes)?),
        }
    }

    /// Returns true if a client's password is the listed password. In a [`Pwdb`](Self::Pwdb) the
    /// listed password is everything behind the user; as in memcached, the part before any colon in
    /// it is accepted, too.
    pub(super) fn accepts(&self, listed: &[u8], password: &[u8]) -> bool {
        let end = password.len();
        let is_part = matches!(self, Self::Pwdb(_)) && end > 0 && listed.get(end) == Some(&b':');
        same(if is_part { &listed[..end] } else { listed }, password)
    }

    /// Returns a client's name in the form of the list of users. In a `sasldb` a realm follows; it
    /// is the host's name if the client names no realm with an `@`.
    pub(super) fn listed<'a>(&self, user: &'a [u8]) -> Cow<'a, [u8]> {
        let Self::Sasldb(_, host) = self else { return user.into() };
        let mut parts = user.splitn(2, |byte| *byte == b'@');
        let (name, realm) = (parts.next().unwrap_or_default(), parts.next());
        in_realm(name, realm.unwrap_or(host)).into()
    }
}

fn in_realm(name: &[u8], realm: &[u8]) -> Vec<u8> {
    [name, b"\0", realm].concat()
}

/// Reads a whole file, if it is a regular file and not too large.
fn bytes_of(path: &Path) -> Result<Vec<u8>, String> {
    let found = fs::metadata(path).map_err(|error| error.to_string())?;
    if !found.is_file() {
        return Err("it is not a file".into());
    }
    system::file(path, FILE_MAX)
}

/// Returns the configuration for memcached: this file, or a file in this folder.
fn conf_at(path: PathBuf) -> Option<PathBuf> {
    let inside = path.join("memcached.conf");
    [inside.join("memcached.conf"), inside, path].into_iter().find(|path| path.is_file())
}

/// Returns the path of the database in libsasl's configuration, if it names one. A setting that
/// this server can't follow is an error: another source of users, or no `PLAIN`.
fn sasldb_path(conf: &Path) -> Result<Option<PathBuf>, String> {
    let bad = |error: &str| format!("{}: {error}", conf.display());
    let text = bytes_of(conf).map_err(|error| bad(&error))?;
    let text = String::from_utf8_lossy(&text);
    let mut path = None;
    for (at, line) in text.lines().enumerate() {
        let Some((name, value)) = line.split_once(':').filter(|_| !line.starts_with('#')) else {
            continue;
        };
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        let needed = match name.as_str() {
            "sasldb_path" => {
                path = Some(value.into());
                continue;
            }
            "pwcheck_method" => "auxprop",
            "auxprop_plugin" => "sasldb",
            "mech_list" => "plain",
            _ => continue,
        };
        if !value.split_whitespace().any(|word| word.eq_ignore_ascii_case(needed)) {
            let line = at + 1;
            return Err(bad(&format!("line {line}: '{name}: {value}' without {needed}")));
        }
    }
    Ok(path)
}

/// Returns the users of a file's text, which has a line `user:password` for each user.
pub(super) fn users_of_option(text: &str) -> Result<Vec<User>, String> {
    let (mut users, mut count) = (Vec::new(), 0_usize);
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let (user, password) = line
            .split_once(':')
            .filter(|(user, password)| !user.is_empty() && !password.is_empty())
            .ok_or_else(|| format!("line {} is not user:password", number + 1))?;
        count += 1;
        if count <= USERS_MAX {
            users.push((user.into(), password.into()));
        }
    }
    match count {
        0 => Err("there is no user in it".into()),
        1..=USERS_MAX => Ok(users),
        count => Err(format!("{count} users are more than {USERS_MAX}")),
    }
}

/// As [`users_of_option`], but allows any number of users, and ignores other lines.
/// [`Source::accepts`] handles colons in passwords.
fn users_of_pwdb(text: &[u8]) -> Vec<User> {
    let of_line = |line: &[u8]| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let end = memchr(b':', line).filter(|_| line.len() <= LINE_MAX)?;
        let (user, password) = (&line[..end], &line[end + 1..]);
        (!password.is_empty()).then(|| (user.to_vec(), password.to_vec()))
    };
    let lines = || text.split(|byte| *byte == b'\n');
    // Counted first, because a growing list would take twice as much memory.
    let mut users = Vec::with_capacity(lines().filter(|line| line.contains(&b':')).count());
    users.extend(lines().filter_map(of_line));
    users
}

/// Returns the users of a `sasldb` with plain passwords. Its keys are `user NUL realm NUL
/// userPassword`.
fn users_of_sasldb(bytes: &[u8]) -> Result<Vec<User>, &'static str> {
    let mut users = Vec::new();
    hash_file::pairs(bytes, |key, password| {
        let mut parts = key.split(|byte| *byte == 0);
        if let (Some(user), Some(realm), Some(PASSWORD), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
            && !password.is_empty()
        {
            users.push((in_realm(user, realm), password));
        }
    })?;
    Ok(users)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_users_and_passwords() {
        assert_eq!(users_of_option("a:b\n\nc:d:e\n").unwrap().len(), 2);
        for text in ["", "a\n", ":b\n", "a:\n", &"u:p\n".repeat(USERS_MAX + 1)] {
            assert!(users_of_option(text).is_err(), "{text}");
        }
        let long = format!("l:{}\n", "x".repeat(LINE_MAX));
        let text = ["ann:one:two\r\nnonsense\nbob:\ncid:x", &long].join("\n");
        let user = |user: &str, password: &str| (user.into(), password.into());
        let users = [user("ann", "one:two"), user("cid", "x")];
        assert_eq!(users_of_pwdb(text.as_bytes()), users);
        assert_eq!(users_of_pwdb(b""), []);
    }

    #[test]
    fn colons_end_passwords_of_pwdb_alone() {
        let [pwdb, option] = [Source::Pwdb, Source::Option].map(|of| of(PathBuf::new()));
        for (listed, password, is_it) in [
            ("one:two:x", "one", true),
            ("one:two:x", "one:two", true),
            ("one:two:x", "one:two:x", true),
            ("one:two:x", "one:", false),
            ("one:two:x", "on", false),
            ("one:two:x", "", false),
            ("one:two:x", "one:two:x:", false),
            (":x", "", false),
            (":x", ":x", true),
        ] {
            let accepted = |source: &Source| source.accepts(listed.as_bytes(), password.as_bytes());
            assert_eq!(accepted(&pwdb), is_it, "{listed} {password}");
            assert_eq!(accepted(&option), listed == password, "{listed} {password}");
        }
    }

    /// Each line had a user for each of its colons.
    #[test]
    fn lines_of_colons_are_one_user_each() {
        let text = ["u:", &":".repeat(250), "\n"].concat().repeat(1000);
        let users = users_of_pwdb(text.as_bytes());
        assert_eq!(users.iter().map(|(_, password)| password.len()).sum::<usize>(), 250_000);
    }

    /// Makes a system with these files, and returns what is found there with these variables.
    fn found(files: &[(&str, &str)], vars: &[(&str, &str)]) -> Result<String, String> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let place = root.path().to_str().unwrap();
        let var = |name: &str| {
            let found = vars.iter().find(|var| var.0 == name);
            found.map(|var| var.1.replace("ROOT", place).into())
        };
        let source = Source::find(var, root.path());
        source.map(|source| source.to_string().replace(place, "ROOT"))
    }

    #[test]
    fn users_are_looked_for_where_memcached_and_libsasl_do() {
        let (db, conf) = (("etc/sasldb2", ""), "etc/sasl2/memcached.conf");
        let pwdb = ("MEMCACHED_SASL_PWDB", "/p");
        let named = "# sasldb_path: /a\nmech_list: PLAIN cram-md5\nsasldb_path:  /b/c \n";
        assert_eq!(found(&[db, (conf, named)], &[pwdb]).unwrap(), "MEMCACHED_SASL_PWDB /p");
        assert_eq!(found(&[db, (conf, named)], &[]).unwrap(), "sasldb /b/c");
        assert_eq!(found(&[db, (conf, "")], &[]).unwrap(), "sasldb ROOT/etc/sasldb2");
        assert_eq!(found(&[db], &[]).unwrap(), "sasldb ROOT/etc/sasldb2");
        for path in ["ROOT/conf", "ROOT/conf/memcached.conf", "/none:ROOT/conf"] {
            let other = ("conf/memcached.conf", "sasldb_path: /other\n");
            let vars = [("SASL_CONF_PATH", path)];
            assert_eq!(found(&[db, (conf, named), other], &vars).unwrap(), "sasldb /other");
        }
        assert_eq!(found(&[], &[]).unwrap(), "sasldb ROOT/etc/sasldb2");
        for line in ["pwcheck_method: saslauthd", "auxprop_plugin: sql", "mech_list: CRAM-MD5"] {
            let error = found(&[db, (conf, line)], &[]).unwrap_err();
            assert!(error.contains("memcached.conf: line 1: '"), "{error}");
        }
    }
}
