//! Authentication: users and passwords from a file (`-Y`), as in memcached's text protocol.
//!
//! A client first sends `set KEY FLAGS TIME LENGTH` with `user password` as the value. The key, the
//! flags and the time are ignored. Until the credentials are accepted, every other request is
//! refused. Refusals are counted (`auth_errors`) and, with `-v`, logged. In the binary protocol the
//! same users authenticate with SASL `PLAIN`. With `-S` alone, the users are those of SASL's own
//! files (`auth/source.rs`). Nothing is encrypted: this prevents mistakes, not eavesdropping.

mod hash_file;
mod source;

use crate::protocol::{Words, strict_short};
use memchr::memchr;
use source::{Source, Stamp};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The longest line of an unauthenticated client.
const LINE_MAX: usize = 2048;
/// The longest value of such a client.
const VALUE_MAX: usize = 16 << 10;
/// The shortest line, without its end, of a client that speaks this protocol.
const LINE_MIN: usize = 6;

const UNAUTHENTICATED: &str = "CLIENT_ERROR unauthenticated";
const VALUE_TOO_LONG: &str = "CLIENT_ERROR auth token too long";
const VALUE_UNENDED: &str = "CLIENT_ERROR bad command line termination";
const NO_PASSWORD: &str = "CLIENT_ERROR bad authentication token format";

/// A user, and the password.
type User = (Vec<u8>, Vec<u8>);

/// The users.
pub struct Auth {
    source: Source,
    users: Mutex<Users>,
}

#[derive(Default)]
struct Users {
    list: Vec<User>,
    /// The state of the file when it was read, if a later change of the file can be noticed.
    stamp: Option<Stamp>,
}

impl fmt::Debug for Auth {
    /// Without passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth").field("source", &self.source).finish_non_exhaustive()
    }
}

/// A message of an unauthenticated client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AuthStep {
    /// It is not complete.
    Incomplete,
    /// A user and a password: the bytes of the message, and whether they are right.
    Credentials(usize, bool),
    /// Another message: its bytes, and the error reply.
    Refused(usize, &'static str),
    /// Not a message of this protocol. The connection is closed.
    Invalid,
}

/// Returns true if two texts are equal. Its time depends only on their lengths.
fn same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differences) == 0
}

impl Auth {
    /// Reads the users of this file.
    ///
    /// # Errors
    /// A message that says what is wrong with the file.
    pub fn read(path: PathBuf) -> Result<Self, String> {
        Self::of(Source::Option(path))
    }

    /// Reads the users of SASL's files. If there is no file, warns, and has no users until a file
    /// appears.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_sasl(warnings: &mut Vec<String>) -> Result<Self, String> {
        Self::of_sasl(Source::of_sasl()?, warnings)
    }

    fn of_sasl(source: Source, warnings: &mut Vec<String>) -> Result<Self, String> {
        if source.is_missing() {
            warnings.push(format!(
                "-S: {source} does not exist: there are no users until it is made, with \
                 saslpasswd2 or another program (or name their file with -Y)"
            ));
            return Ok(Self { source, users: Mutex::default() });
        }
        Self::of(source)
    }

    fn of(source: Source) -> Result<Self, String> {
        let auth = Self { source, users: Mutex::default() };
        auth.reload()?;
        Ok(auth)
    }

    fn users(&self) -> MutexGuard<'_, Users> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rereads the file. On an error, the old users stay.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn reload(&self) -> Result<(), String> {
        self.read_into(&mut self.users())
    }

    fn read_into(&self, users: &mut Users) -> Result<(), String> {
        // Taken before the file is read, so that a change meanwhile is noticed later.
        let stamp = self.source.stamp();
        let list = self.source.read()?;
        *users = Users { list, stamp };
        Ok(())
    }

    /// Rereads the files of SASL if they have changed.
    ///
    /// # Errors
    /// As [`reload`](Self::reload).
    pub(crate) fn refresh(&self) -> Result<(), String> {
        if !self.source.is_watched() {
            return Ok(());
        }
        // Locked during the read, so that only one of several workers reads, with one descriptor.
        let mut users = self.users();
        let is_same = users.stamp.is_some() && users.stamp == self.source.stamp();
        if is_same { Ok(()) } else { self.read_into(&mut users) }
    }

    /// Returns true if there is such a user with this password.
    pub(crate) fn knows(&self, user: &[u8], password: &[u8]) -> bool {
        let user = self.source.listed(user);
        // Compares all users, for constant time.
        let known =
            |known, (u, p): &User| known | (same(u, &user) & self.source.accepts(p, password));
        self.users().list.iter().fold(false, known)
    }

    /// Returns the message at the beginning of the input.
    pub(crate) fn next_step(&self, input: &[u8]) -> AuthStep {
        let Some(end) = memchr(b'\n', &input[..input.len().min(LINE_MAX + 1)]) else {
            return if input.len() <= LINE_MAX { AuthStep::Incomplete } else { AuthStep::Invalid };
        };
        if end < LINE_MIN {
            return AuthStep::Invalid;
        }
        let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
        let is_set = line.starts_with(b"set");
        let length = Words::new(line).nth(4).and_then(strict_short).filter(|_| is_set);
        let Some(length) = length.map(|length| length as usize) else {
            return AuthStep::Refused(end + 1, UNAUTHENTICATED);
        };
        if length > VALUE_MAX {
            return AuthStep::Refused(end + 1, VALUE_TOO_LONG);
        }
        let used = end + 1 + length + 2;
        let Some(value) = input.get(end + 1..used) else { return AuthStep::Incomplete };
        let Some(value) = value.strip_suffix(b"\r\n") else {
            return AuthStep::Refused(used, VALUE_UNENDED);
        };
        let Some(space) = memchr(b' ', value) else { return AuthStep::Refused(used, NO_PASSWORD) };
        let (user, password) = (&value[..space], &value[space + 1..]);
        AuthStep::Credentials(used, self.knows(user, password))
    }
}

/// A name and a password.
#[doc(hidden)]
pub type Credentials = (Vec<u8>, Vec<u8>);

/// Returns the users of a file with these bytes: a file of `-Y` (0), a file of
/// `MEMCACHED_SASL_PWDB` (1), or a `sasldb` (2). For a fuzzer.
#[doc(hidden)]
pub fn users_of(kind: u8, bytes: &[u8]) -> Result<Vec<Credentials>, String> {
    let source = match kind {
        1 => Source::Pwdb(PathBuf::new()),
        2 => Source::Sasldb(PathBuf::new(), Vec::new()),
        _ => Source::Option(PathBuf::new()),
    };
    source.users_of(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auth(text: &str) -> Auth {
        let list = source::users_of_option(text).unwrap();
        let users = Mutex::new(Users { list, stamp: None });
        Auth { source: Source::Option(PathBuf::new()), users }
    }

    #[test]
    fn users_of_a_sasldb_have_realms_and_are_read_again_when_the_file_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sasldb2");
        let write = |bytes: &[u8]| std::fs::write(&path, bytes).unwrap();
        write(include_bytes!("auth/data/saslpasswd2.db"));
        let auth = Auth::of(Source::Sasldb(path.clone(), b"example.org".into())).unwrap();
        for user in [&b"user30"[..], b"user30@example.org"] {
            assert!(auth.knows(user, b"pass30"));
            assert!(!auth.knows(user, b"pass3") && !auth.knows(user, b"pass30\0"));
            assert!(!auth.knows(user, b""));
        }
        assert!(auth.knows(b"long", &[b'p'; 1500]) && !auth.knows(b"long", &[b'p'; 1499]));
        // In libsasl's lower case, as the host's name.
        assert!(auth.knows(b"ann@Example.org", b"secret") && !auth.knows(b"ann", b"secret"));
        assert!(!auth.knows(b"user7", b"pass7") && !auth.knows(b"user30@", b"pass30"));
        assert!(!auth.knows(b"other", b"secret"));
        // A file that is damaged changes nothing; another one does.
        write(b"damaged");
        let error = auth.refresh().unwrap_err();
        assert!(auth.knows(b"user30", b"pass30"));
        assert!(error.ends_with("sasldb2: it is too short for a file of Berkeley DB"), "{error}");
        write(include_bytes!("auth/data/small_pages.db"));
        auth.refresh().unwrap();
        assert!(!auth.knows(b"user30", b"pass30") && auth.knows(b"user3", b"pass3"));
        std::fs::remove_file(&path).unwrap();
        assert!(auth.reload().unwrap_err().starts_with("sasldb /"));
    }

    #[test]
    fn users_of_files_that_are_made_later_are_known_then() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        for source in [Source::Sasldb(path.clone(), b"host".into()), Source::Pwdb(path.clone())] {
            let is_sasldb = matches!(source, Source::Sasldb(..));
            let mut warnings = Vec::new();
            let auth = Auth::of_sasl(source, &mut warnings).unwrap();
            assert!(warnings[0].contains("users does not exist"), "{warnings:?}");
            assert!(auth.refresh().is_err() && !auth.knows(b"user3@example.org", b"pass3"));
            let text: &[u8] = b"user3@example.org:pass3\n";
            let bytes = if is_sasldb { include_bytes!("auth/data/small_pages.db") } else { text };
            std::fs::write(&path, bytes).unwrap();
            auth.refresh().unwrap();
            assert!(auth.knows(b"user3@example.org", b"pass3"));
            std::fs::remove_file(&path).unwrap();
        }
        // An unusable file is an error at the start, and so is a missing file of -Y.
        std::fs::write(&path, "damaged").unwrap();
        let damaged = Source::Sasldb(path.clone(), b"host".into());
        assert!(Auth::of_sasl(damaged, &mut Vec::new()).is_err());
        assert!(Auth::read(folder.path().join("none")).is_err());
    }

    #[test]
    fn only_a_set_with_a_known_pair_is_let_in() {
        let auth = auth("ann:secret\nbob:other:one\n");
        let said = |text: &str| auth.next_step(text.replace('|', "\r\n").as_bytes());
        assert_eq!(said("set x 0 0 10|ann secret|get a|"), AuthStep::Credentials(26, true));
        assert_eq!(said("set x 0 0 13|bob other:one|"), AuthStep::Credentials(29, true));
        assert_eq!(said("setup x 0 0 10 more|ann secret|"), AuthStep::Credentials(33, true));
        assert_eq!(said("set x 0 0 9|ann other|"), AuthStep::Credentials(24, false));
        assert_eq!(said("set x 0 0 11|ann secret |"), AuthStep::Credentials(27, false));
        assert_eq!(said("set x 0 0 11|ann  secret|"), AuthStep::Credentials(27, false));
        assert_eq!(said("set x 0 0 3|ann|"), AuthStep::Refused(18, NO_PASSWORD));
        assert_eq!(said("set x 0 0 0||"), AuthStep::Refused(15, NO_PASSWORD));
        assert_eq!(said("set x 0 0 9|ann secret|"), AuthStep::Refused(24, VALUE_UNENDED));
        assert_eq!(said("get a|"), AuthStep::Refused(7, UNAUTHENTICATED));
        assert_eq!(said("set x 0 0|"), AuthStep::Refused(11, UNAUTHENTICATED));
        assert_eq!(said("set x 0 0 -1|"), AuthStep::Refused(14, UNAUTHENTICATED));
        assert_eq!(said(" set x 0 0 10|ann secret|"), AuthStep::Refused(15, UNAUTHENTICATED));
        assert_eq!(said("set x 0 0 10|ann secret"), AuthStep::Incomplete);
        assert_eq!(said("set x"), AuthStep::Incomplete);
        assert_eq!(said("set x 0 0 16385|"), AuthStep::Refused(17, VALUE_TOO_LONG));
        assert_eq!(said("mn|"), AuthStep::Invalid);
        assert_eq!(said(&"a".repeat(LINE_MAX)), AuthStep::Incomplete);
        assert_eq!(said(&"a".repeat(LINE_MAX + 1)), AuthStep::Invalid);
    }

    proptest::proptest! {
        #[test]
        fn nothing_that_is_said_panics_or_uses_what_is_not_there(
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..100),
            length in 0_u64..200,
        ) {
            let auth = auth("ann:secret\n");
            let start = format!("set x 0 0 {length}\r\n").into_bytes();
            for input in [&bytes[..], &[&start[..], &bytes].concat()] {
                match auth.next_step(input) {
                    AuthStep::Credentials(used, _) | AuthStep::Refused(used, _) => {
                        assert!(used <= input.len());
                    }
                    AuthStep::Incomplete | AuthStep::Invalid => {}
                }
            }
        }
    }
}
