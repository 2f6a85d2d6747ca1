//! Commands of the server's operator: lists of keys, events, searches for expired items.
//!
//! Laws:
//! - operator.O1 A list is made in steps. Each step writes at most [`STEP`] bytes and one
//!   bucket's keys, and is sent before the next step. Nothing is held between steps. So a list
//!   needs little memory and blocks no worker.
//! - operator.O2 The input of a client that watches events is dropped.

use crate::context::{Context, Progress};
use crate::protocol::{ERROR, Operator, Words, number};
use crate::reply::write_reply;
use crate::store::events::{CONNEVENTS, DELETIONS, EVICTIONS, FETCHERS, MUTATIONS, OTHERS};
use crate::store::{Handle, Item, Store, Watch, events};
use base64::{Engine, engine::general_purpose::STANDARD};
use manycore_cache::Cursor;
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of a list that are written in one step.
const STEP: usize = 64 << 10;
/// Slab classes of memcached.
const CLASSES: u64 = 64;

const DISABLED: &str = "CLIENT_ERROR lru crawler disabled";

/// A task that a session runs instead of reading requests.
#[derive(Debug)]
pub(crate) struct Task {
    /// Bytes of its line, which stays in the input until the task is done.
    line: usize,
    work: Work,
}

#[derive(Debug)]
enum Work {
    List { form: Form, next: Option<Cursor> },
    Watch(Watch),
}

/// The form in which a key is listed.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// With the metadata of its item.
    Metadata,
    /// As a request for it.
    Request,
}

impl Task {
    fn new(work: Work) -> Self {
        Self { line: 0, work }
    }

    /// Returns true if it watches events.
    pub(crate) fn is_watch(&self) -> bool {
        matches!(self.work, Work::Watch(_))
    }

    /// Bytes of its line.
    pub(crate) fn line(&self) -> usize {
        self.line
    }

    /// Begins the task of a line, which stands at `from..to` in the input.
    pub(crate) fn begin(&mut self, from: usize, to: usize) -> Progress {
        // operator.O2: what a client sends while it watches is dropped unread.
        debug_assert!(from < to, "operator.O1: a command without a line");
        debug_assert_eq!(self.line, 0, "operator.O1: a task begins twice");
        self.line = to - from;
        let used = if self.is_watch() { to } else { from };
        Progress { used, is_paused: !self.is_watch() }
    }

    /// Continues the task. Returns `None` when it is done.
    pub(crate) fn go_on(
        &mut self,
        handle: &Handle<'_>,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<Progress> {
        // operator.O1: at most a step, and then the worker serves other clients.
        match &mut self.work {
            Work::Watch(watch) => {
                watch.take(out);
                Some(Progress { used: input.len(), is_paused: false })
            }
            Work::List { form, next } => {
                let from = out.len();
                while let Some(cursor) = next.filter(|_| out.len() - from < STEP) {
                    let store = handle.store();
                    *next = store.scan(cursor, 1, |item| form.write(handle, item, out));
                }
                if next.is_none() {
                    out.extend_from_slice(form.end());
                    return None;
                }
                Some(Progress { used: 0, is_paused: true })
            }
        }
    }
}

impl Form {
    fn end(self) -> &'static [u8] {
        match self {
            Self::Metadata => b"END\r\n",
            Self::Request => b"EN\r\n",
        }
    }

    fn write(self, handle: &Handle<'_>, item: &Item, out: &mut Vec<u8>) {
        match self {
            Self::Request => {
                out.extend_from_slice(b"mg ");
                if item.is_binary() {
                    out.extend_from_slice(STANDARD.encode(item.key()).as_bytes());
                    out.extend_from_slice(b" b");
                } else {
                    out.extend_from_slice(item.key());
                }
                out.extend_from_slice(b"\r\n");
            }
            Self::Metadata => {
                let clock = handle.store().clock();
                let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let today = today.as_secs() as i64;
                let left = clock.seconds_left(item.deadline());
                let end = if left < 0 { -1 } else { today + left };
                let used = today - i64::from(clock.second().saturating_sub(item.used()));
                let fetched = if item.was_fetched() { "yes" } else { "no" };
                let mut line = String::with_capacity(128);
                line.push_str("key=");
                events::write_key(&mut line, item.key());
                let cas = handle.cas(item);
                // Writing to a string does not fail.
                let _ = write!(line, " exp={end} la={used} cas={cas} fetch={fetched} cls=1");
                let _ = writeln!(line, " size={} flags={} ", item.weight(), item.flags());
                out.extend_from_slice(line.as_bytes());
            }
        }
    }
}

/// Answers an operator's command, or begins its task. `can` is true if the client has a connection
/// on which more than a reply can be sent.
pub(crate) fn answer(
    context: &Context<'_>,
    can: bool,
    command: Operator,
    words: Words<'_>,
    out: &mut Vec<u8>,
) -> Option<Task> {
    let store = context.handle.store();
    match command {
        Operator::LruCrawler => return crawler(context, can, words, out),
        Operator::Watch => return watch(context, can, words, out),
        Operator::Slabs => write_reply(out, slabs(words)),
        Operator::Lru => {
            write_reply(out, "CLIENT_ERROR there is no LRU to be tuned on this server")
        }
        Operator::DebugTime => write_reply(out, if move_time(store, words) { "OK" } else { ERROR }),
    }
    None
}

fn slabs(mut words: Words<'_>) -> &'static str {
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(b"automove"), Some(b"0"), ..) => "OK",
        (Some(b"automove"), Some(word), ..) if number(word).is_none() => {
            "CLIENT_ERROR bad command line format"
        }
        (Some(b"automove"), Some(_), ..) | (Some(b"reassign"), Some(_), Some(_), None) => {
            "CLIENT_ERROR slab reassignment disabled"
        }
        _ => ERROR,
    }
}

/// Executes `debugtime`: moves the clock by some seconds, stops it, or lets it go on.
fn move_time(store: &Store, mut words: Words<'_>) -> bool {
    match words.next() {
        Some(b"p") => store.clock().set_paused(true),
        Some(b"r") => store.clock().set_paused(false),
        Some(word) => match number(word).and_then(|seconds| u32::try_from(seconds).ok()) {
            Some(seconds) => store.clock().move_on(seconds),
            None => return false,
        },
        None => return false,
    }
    store.tick();
    true
}

/// Returns true if the word names the only slab class, and `None` if it names no class.
fn classes(word: &[u8]) -> Option<bool> {
    if matches!(word, b"all" | b"hash") {
        return Some(true);
    }
    let ids = word.split(|byte| *byte == b',').map(number);
    let known = ids.map(|id| id.filter(|id| (1..CLASSES).contains(id)));
    known.collect::<Option<Vec<_>>>().map(|ids| ids.contains(&1))
}

fn crawler(
    context: &Context<'_>,
    can: bool,
    mut words: Words<'_>,
    out: &mut Vec<u8>,
) -> Option<Task> {
    let (store, settings) = (context.handle.store(), &context.server.settings);
    let reply = match (words.next(), words.next(), words.next()) {
        (Some(b"enable"), None, _) => {
            store.set_crawls(true);
            "OK"
        }
        (Some(b"disable"), None, _) => {
            store.set_crawls(false);
            "OK"
        }
        (Some(b"tocrawl"), Some(most), None) => match number(most) {
            Some(_) => "OK",
            None => "CLIENT_ERROR bad command line format",
        },
        (Some(b"sleep"), Some(sleep), None) => match number(sleep) {
            Some(..=1_000_000) => "OK",
            Some(_) => "CLIENT_ERROR sleep must be one second or less",
            None => "CLIENT_ERROR bad command line format",
        },
        (Some(b"crawl" | b"metadump" | b"mgdump"), Some(_), None) if !store.crawls() => DISABLED,
        (Some(b"crawl"), Some(word), None) => match classes(word) {
            Some(has_items) => {
                if has_items {
                    store.ask_for_crawl();
                }
                "OK"
            }
            None => "BADCLASS invalid class id",
        },
        (Some(what @ (b"metadump" | b"mgdump")), Some(word), None) => {
            let (form, name, refused) = match what {
                b"mgdump" => (Form::Request, "mgdump", "ERROR key dump not allowed"),
                _ => (Form::Metadata, "metadump", "ERROR metadump not allowed"),
            };
            match classes(word) {
                _ if !settings.dump_enabled => refused,
                _ if !can => ERROR,
                _ if !out.is_empty() => {
                    let words = format!("ERROR cannot pipeline other commands before {name}");
                    write_reply(out, &words);
                    return None;
                }
                None => "BADCLASS invalid class id",
                Some(has_items) => {
                    write_reply(out, "OK");
                    let next = has_items.then(Cursor::default);
                    return Some(Task::new(Work::List { form, next }));
                }
            }
        }
        _ => ERROR,
    };
    write_reply(out, reply);
    None
}

fn watch(context: &Context<'_>, can: bool, words: Words<'_>, out: &mut Vec<u8>) -> Option<Task> {
    let settings = &context.server.settings;
    let kind = |word: &[u8]| match word {
        b"fetchers" => Some(FETCHERS),
        b"mutations" => Some(MUTATIONS),
        b"evictions" => Some(EVICTIONS),
        b"connevents" => Some(CONNEVENTS),
        b"deletions" => Some(DELETIONS),
        b"rawcmds" | b"sysevents" | b"proxyreqs" | b"proxyevents" | b"proxyuser" => Some(OTHERS),
        _ => None,
    };
    let kinds = words.map(kind).try_fold(0, |kinds, kind| kind.map(|kind| kinds | kind));
    let reply = match kinds {
        _ if !settings.watch_enabled => "CLIENT_ERROR watch commands not allowed",
        _ if !can => ERROR,
        _ if !out.is_empty() => "ERROR cannot pipeline other commands before watch",
        None => ERROR,
        Some(kinds) => {
            let kinds = if kinds == 0 { FETCHERS } else { kinds };
            let events = context.handle.store().events();
            if let Some(watch) = events.watch(kinds, settings.watcher_buffer) {
                write_reply(out, "OK");
                return Some(Task::new(Work::Watch(watch)));
            }
            "WATCHER_TOO_MANY log watcher limit reached"
        }
    };
    write_reply(out, reply);
    None
}
