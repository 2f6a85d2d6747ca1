//! What must hold whatever is in a file of users.
//!
//! The first byte says which kind of file the rest is: of `-Y`, of `MEMCACHED_SASL_PWDB`, or a
//! `sasldb`. Demanded is:
//! - Memory and steps follow the length of the file.
//! - Each user and each password stands in it.

use super::bounds::Bound;
use manycored::auth::users_of;

/// What the users of a file may take, as `auth/source.rs` has it.
const BOUND: Bound = Bound { each: 32, besides: 64 << 10 };
/// Longer texts may have pages of their own, in parts.
const ONE_PAGE: usize = 400;

/// A file of users.
pub fn users(data: &[u8]) {
    let [kind, bytes @ ..] = data else { return };
    let Ok(users) = BOUND.hold(bytes.len(), || users_of(kind % 3, bytes)) else { return };
    assert!(users.len() <= bytes.len() / 2, "{} users", users.len());
    for (user, password) in users {
        assert!(!password.is_empty(), "{}", user.escape_ascii());
        for text in [user, password] {
            let is_there = text.is_empty() || bytes.windows(text.len()).any(|part| part == text);
            assert!(is_there || text.len() > ONE_PAGE, "{} is not there", text.escape_ascii());
        }
    }
}

/// Inputs for files that `saslpasswd2` has made.
pub fn saved() -> Vec<Vec<u8>> {
    let small = include_bytes!("../../crates/manycored/src/auth/data/small_pages.db");
    let large = include_bytes!("../../crates/manycored/src/auth/data/saslpasswd2.db");
    [&small[..], large].map(|file| [&[2][..], file].concat()).into()
}
