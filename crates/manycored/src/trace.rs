//! The recording of `--trace`: connections, turns and requests, for `manycore trace`.
//!
//! Owns: the classes, and the events of each class. Does not own: the places where requests are
//! reported (`store::reporting`, by events.E1), and the rings (manycore-trace).

use crate::store::events::{TRACED_DELETES, TRACED_GETS, TRACED_STORES};
use crate::store::{Item, Outcome};
use manycore_trace::{Class, Classes, Recorder, Recording, Span, TextBytes, event, span};
use std::io;
use std::path::Path;

/// Connections that are opened and closed.
const CONNECTIONS: Class = Class::new(1, "connections");
/// Turns of connections: the timed turns, one in 16.
const TURNS: Class = Class::new(2, "turns");
/// Keys that are looked up.
const GETS: Class = Class::new(3, "gets");
/// Values that are stored or changed.
const STORES: Class = Class::new(4, "stores");
/// Keys that are deleted.
const DELETES: Class = Class::new(5, "deletes");

/// What the library's objects wait for and change.
const LIBRARY: Class = Class::new(6, "library");

/// All classes. Their names are also their names on the command line.
const ALL: [Class; 6] = [CONNECTIONS, TURNS, GETS, STORES, DELETES, LIBRARY];

/// What is recorded: the classes, and the sampling rates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    classes: Classes,
    rates: Vec<(Class, u32)>,
}

impl Selection {
    /// Parses a list of classes' names. `NAME:N` records one event in N.
    ///
    /// # Errors
    /// A message with all names, if a name is unknown.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut rates = Vec::new();
        for text in names {
            let (name, every) = text.split_once(':').unwrap_or((text, "1"));
            let every: u32 = every.parse().ok().filter(|every| *every > 0).ok_or_else(|| {
                format!("{text}: behind the colon stands a number from 1, one event in so many")
            })?;
            match ALL.iter().find(|class| class.name() == name) {
                Some(class) => rates.push((*class, every)),
                None if name == "all" => rates.extend(ALL.map(|class| (class, every))),
                None => {
                    let names = ALL.map(Class::name).join(", ");
                    return Err(format!("{name}: this is not all, or of {names}"));
                }
            }
        }
        let chosen: Vec<Class> = rates.iter().map(|(class, _)| *class).collect();
        Ok(Self { classes: Classes::of(&chosen), rates })
    }
}

/// Returns the kinds of events of the store that are recorded.
#[must_use]
pub fn wanted(selection: &Selection) -> u32 {
    [(GETS, TRACED_GETS), (STORES, TRACED_STORES), (DELETES, TRACED_DELETES)]
        .into_iter()
        .filter(|(class, _)| selection.classes.contains(*class))
        .fold(0, |all, (_, kind)| all | kind)
}

/// Starts to record into this file, until the returned recording is dropped.
///
/// # Errors
/// If the file can't be made.
#[cfg(unix)]
pub fn start(path: &Path, selection: &Selection) -> io::Result<Recording> {
    if selection.classes.contains(LIBRARY) {
        manycore_trace::observe_library(LIBRARY);
    }
    let recorder = Recorder::new().classes(selection.classes).file(path);
    let rates = selection.rates.iter();
    rates.fold(recorder, |recorder, (class, every)| recorder.sample(*class, *every)).start()
}

/// Records that a connection was opened, or closed for `reason`.
pub(crate) fn connection(client: i32, reason: Option<&str>) {
    match reason {
        None => event!(CONNECTIONS, Opened { client: i32 }),
        Some(reason) => event!(CONNECTIONS, Closed { client: i32, reason: &str }),
    }
}

/// Records a timed turn of a connection, until the returned span is dropped.
pub(crate) fn turn(client: i32) -> Span {
    span!(TURNS, Turn { client: i32 })
}

/// Records that a key was looked up.
pub(crate) fn get(client: i32, key: &[u8], item: Option<&Item>) {
    let (is_hit, size) = (item.is_some(), item.map_or(0, Item::value_len) as u32);
    event!(GETS, Get { client: i32, size: u32, is_hit: bool, key: TextBytes<'_> = TextBytes(key) });
}

/// Records a storage command and its outcome.
pub(crate) fn store(client: i32, command: &str, key: &[u8], size: usize, outcome: Outcome) {
    let (size, is_stored) = (size as u32, outcome == Outcome::Stored);
    let key = TextBytes(key);
    event!(STORES, Store {
        client: i32,
        size: u32,
        is_stored: bool,
        command: &str,
        key: TextBytes<'_>,
    });
}

/// Records that an item is changed in place: its number, its deadline, or other fields.
pub(crate) fn change(client: i32, key: &[u8]) {
    event!(STORES, Change { client: i32, key: TextBytes<'_> = TextBytes(key) });
}

/// Records that a key was deleted, or was not there.
pub(crate) fn delete(client: i32, key: &[u8], is_hit: bool) {
    event!(DELETES, Delete { client: i32, is_hit: bool, key: TextBytes<'_> = TextBytes(key) });
}
