//! The library's kinds of log.
//!
//! | kind | stamp | keeps | right when |
//! |---|---|---|---|
//! | [`Ordered`] | yes | every update | order matters: lists, queues, last write wins |
//! | [`Commuting`] | no | every update | any two updates commute |
//! | [`Combining`] | no | one update per key | updates of one key add up |
//! | [`Cancelling`] | no | what no remove has cancelled | sets of identities |

mod cancelling;
mod combining;
mod commuting;
mod keyed;
mod ordered;

pub use cancelling::{Cancel, Cancelling};
pub use combining::{Combine, Combining};
pub use commuting::Commuting;
pub use ordered::Ordered;
