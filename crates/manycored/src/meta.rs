//! Replies to the meta commands.

use crate::protocol::{Arith, ERROR, Flags, KEY_MAX, Mode, Named, Request, Words};
use crate::reply::{TOO_MANY_PREFIXES, digits, write_reply};
use crate::store::{Change, Handle, Item, NewItem, Outcome, StoreCondition, Turn};
use base64::{Engine, engine::general_purpose::STANDARD};

/// Answers a meta command.
pub(crate) fn answer(handle: &mut Handle<'_>, request: Request<'_>, out: &mut Vec<u8>) {
    handle.counters.cmd_meta.inc();
    match request {
        Request::MetaGet(named, flags) => get(handle, named, &flags, out),
        Request::MetaStore(named, mode, flags, data) => {
            store(handle, named, mode, &flags, data, out);
        }
        Request::MetaDelete(named, flags) => delete(handle, named, &flags, out),
        Request::MetaArith(named, arith, flags) => change(handle, named, arith, &flags, out),
        Request::MetaFlush(read) => flush(handle, read, out),
        Request::MetaDebug(named) => debug(handle, named, out),
        Request::MetaNoop => write_reply(out, "MN"),
        _ => {}
    }
}

/// Writes the flags that are echoed to the client with any result.
fn echo(out: &mut Vec<u8>, word: &[u8], named: Named<'_>) {
    match word[0] {
        b'O' => {
            out.push(b' ');
            out.extend_from_slice(word);
        }
        b'k' => key(out, named.sent, named.is_binary),
        _ => {}
    }
}

fn key(out: &mut Vec<u8>, sent: &[u8], is_binary: bool) {
    out.extend_from_slice(b" k");
    out.extend_from_slice(sent);
    if is_binary {
        out.extend_from_slice(b" b");
    }
}

fn number(out: &mut Vec<u8>, letter: u8, number: impl itoa::Integer) {
    out.extend_from_slice(&[b' ', letter]);
    digits(out, number);
}

/// Writes a reply line without a value.
fn line(out: &mut Vec<u8>, code: &str, named: Named<'_>, flags: &Flags<'_>) {
    out.extend_from_slice(code.as_bytes());
    flags.words.for_each(|word| echo(out, word, named));
    out.extend_from_slice(b"\r\n");
}

/// An `mg` that changes nothing, so that it can be batched, with the range of its flags.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plain {
    words: (u32, u32),
    value: bool,
    quiet: bool,
}

impl Plain {
    /// Returns the request in this form, if it changes nothing.
    #[inline]
    pub(crate) fn new(input: &[u8], named: Named<'_>, flags: &Flags<'_>) -> Option<Self> {
        let changes = flags.ttl.is_some() || flags.vivify.is_some() || flags.recache.is_some();
        if changes || named.is_binary || flags.no_bump || flags.cas.is_some() {
            return None;
        }
        let rest = flags.words.rest();
        let from = match rest {
            [] => 0,
            rest => rest.as_ptr() as usize - input.as_ptr() as usize,
        };
        debug_assert!(
            from + rest.len() <= input.len(),
            "protocol.P3: the flags are outside of the input"
        );
        let words = (u32::try_from(from).ok()?, u32::try_from(rest.len()).ok()?);
        Some(Self { words, value: flags.value, quiet: flags.quiet })
    }

    /// Writes its reply.
    pub(crate) fn answer(
        self,
        handle: &mut Handle<'_>,
        turn: Turn<'_>,
        (key, input): (&[u8], &[u8]),
        out: &mut Vec<u8>,
    ) {
        let (from, length) = self.words;
        let words = Words::new(&input[from as usize..][..length as usize]);
        let mut flags = Flags::none(words);
        (flags.value, flags.quiet) = (self.value, self.quiet);
        let (named, counters) = (Named::plain(key), handle.counters);
        counters.cmd_meta.inc();
        counters.cmd_get.inc();
        if let Some(item) = handle.look(turn) {
            counters.get_hits.inc();
            if hit_line(handle, item, named, &flags, (item.deadline(), false), out) {
                handle.write_value(turn, item, out);
                out.extend_from_slice(b"\r\n");
            }
        } else {
            counters.get_misses.inc();
            if !flags.quiet {
                line(out, "EN", named, &flags);
            }
        }
    }
}

fn get(handle: &mut Handle<'_>, named: Named<'_>, flags: &Flags<'_>, out: &mut Vec<u8>) {
    let room = &mut [0; KEY_MAX];
    let key = named.key(room);
    let counters = handle.counters;
    let (asked, hits, misses) = match flags.ttl {
        Some(_) => (&counters.cmd_touch, &counters.touch_hits, &counters.touch_misses),
        None => (&counters.cmd_get, &counters.get_hits, &counters.get_misses),
    };
    asked.inc();
    let clock = handle.store().clock();
    loop {
        let found = if flags.no_bump { handle.peek_without_bump(key) } else { handle.peek(key) };
        let found =
            found.map(|found| (found.key().deadline(), found)).and_then(|(before, found)| {
                let touched = |ttl| handle.touch(key, clock.deadline(ttl));
                flags.ttl.map_or(Some(found), touched).map(|found| (found, before))
            });
        if let Some((found, before)) = found {
            hits.inc();
            handle.note_get(key, Some(found.key()));
            hit(handle, found.key(), named, flags, (before, false), out);
            return;
        }
        let Some(ttl) = flags.made_ttl() else { break };
        let deadline = clock.deadline(ttl);
        let (is_binary, cas) = (named.is_binary, flags.new_cas);
        let made = NewItem { deadline, cas, is_binary, is_sent: true, ..NewItem::new(key, &[]) };
        // For other clients, this request counts as a fetch of the item.
        let new_item = NewItem { is_fetched: !flags.no_bump, ..made };
        let written = handle.put(&new_item, StoreCondition::plain(Mode::Add));
        match written.outcome {
            Outcome::Stored => {
                hits.inc();
                let made = NewItem { cas: Some(written.cas), ..made };
                // The reply shows the item as it was created, even if another client has changed it
                // since.
                let made = handle.shown(&made, written.cas);
                hit(handle, &made, named, flags, (0, true), out);
                return;
            }
            Outcome::NotStored => {}
            _ => break,
        }
    }
    misses.inc();
    handle.note_get(key, None);
    if !flags.quiet {
        line(out, "EN", named, flags);
    }
}

/// Replies with an item that was found, or was just created for this client. As in memcached, flags
/// before `T` and `N` show the deadline before the change.
fn hit(
    handle: &Handle<'_>,
    item: &Item,
    named: Named<'_>,
    flags: &Flags<'_>,
    times: (u32, bool),
    out: &mut Vec<u8>,
) {
    if hit_line(handle, item, named, flags, times, out) {
        item.write_value(out);
        out.extend_from_slice(b"\r\n");
    }
}

/// Writes the line of that reply. Returns true if the value follows.
fn hit_line(
    handle: &Handle<'_>,
    item: &Item,
    named: Named<'_>,
    flags: &Flags<'_>,
    (before, made): (u32, bool),
    out: &mut Vec<u8>,
) -> bool {
    let clock = handle.store().clock();
    let mut left = clock.seconds_left(before);
    let left_of = |ttl: Option<i64>| clock.seconds_left(clock.deadline(ttl.unwrap_or(0)));
    let mut wants = item.is_stale();
    let shows_value = flags.value && flags.cas.is_none_or(|cas| cas != handle.cas(item));
    if shows_value {
        out.extend_from_slice(b"VA ");
        digits(out, item.value_len());
    } else {
        out.extend_from_slice(b"HD");
    }
    for word in flags.words {
        match word[0] {
            b'T' => left = left_of(flags.ttl),
            b'N' if made => left = left_of(flags.vivify),
            b'R' => wants |= (0..left_of(flags.recache)).contains(&left),
            b's' => number(out, b's', item.value_len()),
            b't' => number(out, b't', left),
            b'c' => number(out, b'c', handle.cas(item)),
            b'f' => number(out, b'f', item.flags()),
            b'l' if made => number(out, b'l', 0),
            b'l' => number(out, b'l', clock.second().saturating_sub(item.used())),
            b'h' => number(out, b'h', u8::from(item.was_fetched())),
            b'k' if item.is_binary() => key(out, STANDARD.encode(item.key()).as_bytes(), true),
            b'k' => key(out, item.key(), false),
            _ => echo(out, word, named),
        }
    }
    let won = made || wants && item.win();
    if !won && item.is_sent() {
        out.extend_from_slice(b" Z");
    }
    if item.is_stale() {
        out.extend_from_slice(b" X");
    }
    if won {
        out.extend_from_slice(b" W");
    }
    out.extend_from_slice(b"\r\n");
    if !flags.no_bump {
        item.touch(clock.second());
    }
    shows_value
}

fn store(
    handle: &mut Handle<'_>,
    named: Named<'_>,
    mode: Mode,
    flags: &Flags<'_>,
    data: &[u8],
    out: &mut Vec<u8>,
) {
    handle.counters.cmd_set.inc();
    let room = &mut [0; KEY_MAX];
    let clock = handle.store().clock();
    let new_item = NewItem {
        flags: flags.client,
        deadline: clock.deadline(flags.ttl.unwrap_or(0)),
        cas: flags.new_cas,
        is_binary: named.is_binary,
        ..NewItem::new(named.key(room), data)
    };
    let vivify = flags.vivify.map(|ttl| clock.deadline(ttl));
    let condition = StoreCondition { mode, cas: flags.cas, invalidate: flags.invalidate, vivify };
    let written = handle.put(&new_item, condition);
    let code = match written.outcome {
        Outcome::Stored if flags.quiet => return,
        Outcome::Stored => "HD",
        Outcome::NotStored => "NS",
        Outcome::Exists => "EX",
        Outcome::NotFound => "NF",
        Outcome::NoMemory => return write_reply(out, "SERVER_ERROR out of memory storing object"),
    };
    out.extend_from_slice(code.as_bytes());
    for word in flags.words {
        match word[0] {
            b'c' => number(out, b'c', written.cas),
            b's' => number(out, b's', written.length),
            _ => echo(out, word, named),
        }
    }
    out.extend_from_slice(b"\r\n");
}

fn delete(handle: &mut Handle<'_>, named: Named<'_>, flags: &Flags<'_>, out: &mut Vec<u8>) {
    let room = &mut [0; KEY_MAX];
    let key = named.key(room);
    let outcome = if flags.invalidate || flags.empty {
        let deadline = flags.ttl.map(|ttl| handle.store().clock().deadline(ttl));
        let outcome = handle.invalidate(key, flags.cas, |item, new_item| {
            if flags.empty {
                // Everything of the item is new except its version, which only `I` changes.
                new_item.value = [&[]; 2];
                new_item.flags = flags.client;
                new_item.deadline = 0;
                new_item.cas = (!flags.invalidate).then_some(item.cas());
                (new_item.is_stale, new_item.is_sent, new_item.is_fetched) = (false, false, false);
            }
            new_item.cas = flags.new_cas.or(new_item.cas);
            new_item.is_stale |= flags.invalidate;
            new_item.is_sent &= !flags.invalidate;
            new_item.deadline = deadline.unwrap_or(new_item.deadline);
        });
        if outcome == Outcome::Stored && !flags.invalidate {
            handle.counters.delete_hits.inc();
        }
        outcome
    } else {
        handle.delete_by("md", key, flags.cas)
    };
    match outcome {
        Outcome::Stored if flags.quiet => {}
        Outcome::Stored => line(out, "HD", named, flags),
        Outcome::NotFound => line(out, "NF", named, flags),
        _ => line(out, "EX", named, flags),
    }
}

/// Flushes a prefix, if the options allow it. Otherwise the command does not exist.
fn flush(
    handle: &mut Handle<'_>,
    read: Result<(Named<'_>, Flags<'_>), &'static str>,
    out: &mut Vec<u8>,
) {
    if handle.store().limits().delimiter.is_none() {
        return write_reply(out, ERROR);
    }
    match read {
        Err(words) => write_reply(out, words),
        Ok((named, flags)) => {
            let room = &mut [0; KEY_MAX];
            if !handle.flush_prefix(named.key(room)) {
                write_reply(out, TOO_MANY_PREFIXES);
            } else if !flags.quiet {
                line(out, "HD", named, &flags);
            }
        }
    }
}

fn change(
    handle: &mut Handle<'_>,
    named: Named<'_>,
    arith: Arith,
    flags: &Flags<'_>,
    out: &mut Vec<u8>,
) {
    let room = &mut [0; KEY_MAX];
    let key = named.key(room);
    let clock = handle.store().clock();
    let deadline = flags.ttl.map(|ttl| clock.deadline(ttl));
    let what = (arith, flags.delta);
    let [hits, misses] = handle.counters.of_change(arith);
    let only = flags.cas.filter(|cas| *cas != 0);
    let (sum, cas, before, made) = loop {
        let before = handle.peek(key).map_or(0, |found| found.key().deadline());
        match handle.change(key, what, only, flags.new_cas, deadline) {
            Change::Done(sum, cas, _) => {
                hits.inc();
                break (sum, cas, before, false);
            }
            Change::Exists => return line(out, "EX", named, flags),
            Change::NoNumber => {
                let words = "CLIENT_ERROR cannot increment or decrement non-numeric value";
                return write_reply(out, words);
            }
            Change::NoMemory => return write_reply(out, "SERVER_ERROR out of memory"),
            Change::Missing => {}
        }
        let Some(ttl) = flags.made_ttl() else {
            misses.inc();
            return line(out, "NF", named, flags);
        };
        let mut text = itoa::Buffer::new();
        let value = text.format(flags.initial).as_bytes();
        let new_item = NewItem {
            deadline: clock.deadline(ttl),
            cas: flags.new_cas,
            is_binary: named.is_binary,
            ..NewItem::new(key, value)
        };
        let written = handle.put(&new_item, StoreCondition::plain(Mode::Add));
        match written.outcome {
            Outcome::Stored => break (flags.initial, written.cas, 0, true),
            Outcome::NotStored => {}
            _ => return write_reply(out, "SERVER_ERROR Out of memory allocating new item"),
        }
    };
    if !flags.quiet {
        changed(handle, named, flags, (sum, cas), (before, made), out);
    }
}

/// Replies with a number that was changed, or that was `made` because there was no item. `before`
/// is the deadline before the change.
fn changed(
    handle: &Handle<'_>,
    named: Named<'_>,
    flags: &Flags<'_>,
    (sum, cas): (u64, u64),
    (before, made): (u32, bool),
    out: &mut Vec<u8>,
) {
    let clock = handle.store().clock();
    let mut left = clock.seconds_left(before);
    let left_of = |ttl: Option<i64>| clock.seconds_left(clock.deadline(ttl.unwrap_or(0)));
    let mut text = itoa::Buffer::new();
    let value = text.format(sum).as_bytes();
    if flags.value {
        out.extend_from_slice(b"VA ");
        digits(out, value.len());
    } else {
        out.extend_from_slice(b"HD");
    }
    for word in flags.words {
        match word[0] {
            b'T' => left = left_of(flags.ttl),
            b'N' if made => left = left_of(flags.vivify),
            b't' => number(out, b't', left),
            b'c' => number(out, b'c', cas),
            _ => echo(out, word, named),
        }
    }
    out.extend_from_slice(b"\r\n");
    if flags.value {
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

fn debug(handle: &mut Handle<'_>, named: Named<'_>, out: &mut Vec<u8>) {
    let room = &mut [0; KEY_MAX];
    let key = named.key(room);
    handle.note_before(key);
    let Some(found) = handle.peek(key) else { return write_reply(out, "EN") };
    let item = found.key();
    let clock = handle.store().clock();
    out.extend_from_slice(b"ME ");
    if item.is_binary() {
        out.extend_from_slice(STANDARD.encode(item.key()).as_bytes());
    } else {
        out.extend_from_slice(item.key());
    }
    out.extend_from_slice(b" exp=");
    digits(out, clock.seconds_left(item.deadline()));
    out.extend_from_slice(b" la=");
    digits(out, clock.second().saturating_sub(item.used()));
    out.extend_from_slice(b" cas=");
    digits(out, handle.cas(item));
    let fetched = if item.was_fetched() { "yes" } else { "no" };
    out.extend_from_slice(b" fetch=");
    out.extend_from_slice(fetched.as_bytes());
    out.extend_from_slice(b" cls=1 size=");
    digits(out, item.weight());
    out.extend_from_slice(b"\r\n");
}
