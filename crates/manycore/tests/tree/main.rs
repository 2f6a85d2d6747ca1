//! The rules about the source tree itself, checked by text.
//!
//! Text, not types: a lint sees through re-exports and would reject the facade's own users. Every
//! rule is a function from text to findings, run twice: over the tree, where it must find nothing,
//! and over small wrong texts, where it must find exactly the fault (the test of the test).

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
