//! Models of the locks. Their futex is a model, too (see `futex`): if a thread parks and is never
//! woken, that is a deadlock, which loom reports.

mod big_reader;
mod fair;
mod reservation;
mod rounds;
mod word;
