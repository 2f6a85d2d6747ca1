//! Models of the locks. Their futex is a model, too (see `futex`): a thread that parks and is never
//! woken is a deadlock, which loom reports.

mod big_reader;
mod fair;
mod reservation;
mod rounds;
mod word;
