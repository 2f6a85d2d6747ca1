//! The rules about the source tree itself, checked by text.
//!
//! They check text, not types, because a lint sees through re-exports and would reject the facade's
//! own users. Every rule is a function from text to findings, and runs twice. Over the tree it must
//! find nothing. Over small wrong texts it must find exactly the fault (the test of the test).

mod bugs;
mod cycles;
mod examples;
mod interface;
mod labels;
mod layers;
mod lexer;
mod manifests;
mod paths;
mod tidy;
mod walk;
