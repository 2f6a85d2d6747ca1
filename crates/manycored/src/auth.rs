//! Who may talk to the server: users and passwords from a file (`-Y`), as memcached's text protocol
//! has them.
//!
//! A client says `set KEY FLAGS TIME LENGTH` first, with `user password` as the value; the key, the
//! flags and the time mean nothing. Until that has been accepted nothing else is. In the binary
//! protocol the same users say who they are by SASL's way `PLAIN`. Nothing is encrypted: this keeps
//! out mistakes, and nobody who listens.

use crate::protocol::{Words, number};
use memchr::memchr;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The most users that a file may have, as in memcached.
const USERS_MAX: usize = 8;
/// The longest line, and the longest value, of somebody who has not said who he is.
const SAID_MAX: usize = 2048;

/// A user, and the password.
type User = (Vec<u8>, Vec<u8>);

/// The users.
pub struct Auth {
    path: PathBuf,
    users: Mutex<Vec<User>>,
}

impl fmt::Debug for Auth {
    /// Without passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth").field("path", &self.path).finish_non_exhaustive()
    }
}

/// What somebody has said who has not been let in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// Not all of it has come.
    More,
    /// So many bytes, which are right, or are not.
    Password(usize, bool),
    /// So many bytes of something else.
    Other(usize),
    /// More than anybody needs.
    TooMuch,
}

/// The users of a file's text: a line for each, `user:password`.
fn users(text: &str) -> Result<Vec<User>, String> {
    let mut users = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let (user, password) = line
            .split_once(':')
            .filter(|(user, password)| !user.is_empty() && !password.is_empty())
            .ok_or_else(|| format!("line {} is not user:password", number + 1))?;
        users.push((user.into(), password.into()));
    }
    match users.len() {
        0 => Err("there is no user in it".into()),
        1..=USERS_MAX => Ok(users),
        count => Err(format!("{count} users are more than {USERS_MAX}")),
    }
}

/// Whether two texts are the same, in a time that tells nothing but their lengths.
fn same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differences) == 0
}

impl Auth {
    /// The users of this file.
    ///
    /// # Errors
    /// What is wrong with it, as a sentence.
    pub fn read(path: PathBuf) -> Result<Self, String> {
        let auth = Self { path, users: Mutex::default() };
        auth.reload()?;
        Ok(auth)
    }

    /// Reads the file again. If something is wrong with it, the old users stay.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn reload(&self) -> Result<(), String> {
        let text = fs::read_to_string(&self.path).map_err(|error| error.to_string());
        let read = text.and_then(|text| users(&text));
        let users = read.map_err(|error| format!("-Y {}: {error}", self.path.display()))?;
        *self.users.lock().unwrap_or_else(PoisonError::into_inner) = users;
        Ok(())
    }

    /// Whether there is such a user, with this password.
    pub(crate) fn knows(&self, user: &[u8], password: &[u8]) -> bool {
        let users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        // All are compared, whoever it is.
        users.iter().fold(false, |known, (u, p)| known | (same(u, user) & same(p, password)))
    }

    /// What the beginning of the input says.
    pub(crate) fn judge(&self, input: &[u8]) -> Said {
        let Some(end) = memchr(b'\n', &input[..input.len().min(SAID_MAX)]) else {
            return if input.len() < SAID_MAX { Said::More } else { Said::TooMuch };
        };
        let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
        let mut words = Words::new(line);
        let is_set = words.next() == Some(b"set");
        let Some(length) = words.nth(3).and_then(number).filter(|_| is_set) else {
            return Said::Other(end + 1);
        };
        let Some(length) = usize::try_from(length).ok().filter(|length| *length <= SAID_MAX) else {
            return Said::TooMuch;
        };
        let used = end + 1 + length + 2;
        let Some(value) = input.get(end + 1..used - 2).filter(|_| input.len() >= used) else {
            return Said::More;
        };
        let mut words = Words::new(value);
        let pair = words.next().zip(words.next());
        let is_known = pair.is_some_and(|(user, password)| self.knows(user, password));
        Said::Password(used, is_known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auth(text: &str) -> Auth {
        Auth { path: PathBuf::new(), users: Mutex::new(users(text).unwrap()) }
    }

    #[test]
    fn files_have_users_and_passwords() {
        assert_eq!(users("a:b\n\nc:d:e\n").unwrap().len(), 2);
        for text in ["", "a\n", ":b\n", "a:\n", &"u:p\n".repeat(USERS_MAX + 1)] {
            assert!(users(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_a_set_with_a_known_pair_is_let_in() {
        let auth = auth("ann:secret\nbob:other:one\n");
        let said = |text: &str| auth.judge(text.replace('|', "\r\n").as_bytes());
        assert_eq!(said("set x 0 0 10|ann secret|get a|"), Said::Password(26, true));
        assert_eq!(said("set x 0 0 13|bob other:one|"), Said::Password(29, true));
        assert_eq!(said("set x 0 0 9|ann other|"), Said::Password(24, false));
        assert_eq!(said("set x 0 0 3|ann|"), Said::Password(18, false));
        assert_eq!(said("set x 0 0 0||"), Said::Password(15, false));
        assert_eq!(said("get a|"), Said::Other(7));
        assert_eq!(said("set x 0 0|"), Said::Other(11));
        assert_eq!(said("set x 0 0 10|ann secret"), Said::More);
        assert_eq!(said("set x"), Said::More);
        assert_eq!(said("set x 0 0 99999999|"), Said::TooMuch);
        assert_eq!(said(&"a".repeat(SAID_MAX)), Said::TooMuch);
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
                match auth.judge(input) {
                    Said::Password(used, _) | Said::Other(used) => assert!(used <= input.len()),
                    Said::More | Said::TooMuch => {}
                }
            }
        }
    }
}
