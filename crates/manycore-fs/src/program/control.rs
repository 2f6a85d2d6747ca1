//! The control file's protocol: a request is a line, its answer is a line that says how many lines
//! follow, and these lines. `docs/fs.md` describes it for other programs.

mod answer;
mod request;
mod session;

pub use answer::{Answer, escaped};
pub use request::Request;
pub use session::Session;
