//! What must hold whatever is in the file of `-e`.
//!
//! The first byte says what the input is: a file as it is, or the numbers of a header and a stream
//! of records, of which a file with the right checksums is made, or such a file with some bytes
//! changed. Demanded is:
//! - A file of which a checksum is wrong is refused. The checksums are made here once more.
//! - Of one that is taken, each item has a key and a value that stand in it, one behind the other,
//!   the counts are right, and memory is kept to.
//! - The items can be saved and read again, and are the same.

use super::ITEM;
use super::bounds::Bound;
use manycored::restart::{HEADER, Header, Loaded, Refusal, load, save};
use manycored::server_state::ServerState;
use manycored::store::{Limits, NewItem, Store, StoreCondition};
use manycored::{protocol::Mode, session::SessionAction};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes of the header before its numbers, of the numbers that an input has, and before a block.
const FRONT: usize = 12;
const NUMBERS: usize = 72;
const FRAME: usize = 8;
/// Bytes of a block, as inputs are cut: several in a short one.
const CUT: usize = 100;
/// Memory of the table and of what the system gives at once, beside the items' limit.
const BESIDE: usize = 10 << 20;

/// What the reader may take: its own memory, beside the store's of 1 MiB.
const BOUND: Bound = Bound { each: 4, besides: BESIDE };

/// CRC-32, bit by bit.
fn checksum(parts: &[&[u8]]) -> u32 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    !bytes.fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg())
        })
    })
}

fn number(file: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(file[at..at + 8].try_into().expect("eight bytes"))
}

/// The content of a file's blocks, if all checksums are right.
fn content(file: &[u8]) -> Option<Vec<u8>> {
    let (header, mut rest) = file.split_at_checked(HEADER)?;
    let (header, sum) = header.split_last_chunk()?;
    if checksum(&[header]) != u32::from_le_bytes(*sum) {
        return None;
    }
    let (mut all, mut place) = (Vec::new(), 0_u64);
    while !rest.is_empty() {
        let (frame, blocks) = rest.split_at_checked(FRAME)?;
        let (length, sum) = frame.split_at(4);
        let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
        let (block, more) = blocks.split_at_checked(length)?;
        if checksum(&[&file[FRONT..FRONT + 8], &place.to_le_bytes(), block]).to_le_bytes() != sum {
            return None;
        }
        all.extend_from_slice(block);
        (rest, place) = (more, place + 1);
    }
    Some(all)
}

/// A file of these numbers and this stream: its length and its checksums are right.
fn composed(numbers: &[u8], stream: &[u8]) -> Vec<u8> {
    let blocks = stream.chunks(CUT).count() as u64;
    let mut file = [&b"\xffmanyc\r\n\x01\0\0\0"[..], numbers].concat();
    file.splice(
        FRONT + 56..FRONT + 72,
        [blocks, stream.len() as u64].map(u64::to_le_bytes).concat(),
    );
    file.resize(HEADER - 4, 0);
    // There is room for all items, whatever their ages.
    let sum = checksum(&[&file]);
    file.extend_from_slice(&sum.to_le_bytes());
    for (place, block) in stream.chunks(CUT).enumerate() {
        let place = (place as u64).to_le_bytes();
        let sum = checksum(&[&numbers[..8], &place, block]);
        file.extend_from_slice(&(block.len() as u32).to_le_bytes());
        file.extend_from_slice(&sum.to_le_bytes());
        file.extend_from_slice(block);
    }
    file
}

type Items = BTreeMap<Vec<u8>, (Vec<u8>, u32, u32, u64)>;

fn items(store: &Store) -> Items {
    let (mut found, mut next) = (Items::new(), Some(Default::default()));
    while let Some(cursor) = next {
        next = store.scan(cursor, 64, |item| {
            let known = (item.value().into_owned(), item.flags(), item.deadline(), item.cas());
            found.insert(item.key().to_vec(), known);
        });
    }
    found
}

/// The store that begins with this file, then.
fn begin(file: &[u8], now: SystemTime) -> Result<(Store, Loaded, u64), Refusal> {
    let header = Header::decode(&file[..file.len().min(HEADER)], file.len() as u64)?;
    let limits = Limits { memory: 1 << 20, item: ITEM, ..Limits::default() };
    let store = Store::beginning_with(limits, 1, header.beginning(now)?);
    let loaded = load(&header, &mut &file[HEADER..], &store, |read| {
        assert!(read <= file.len() as u64, "{read} bytes were read");
    })?;
    Ok((store, loaded, header.items()))
}

/// Demands of a file what must hold of any; whether it was taken.
fn demand(file: &[u8], now: SystemTime) -> bool {
    let begun = BOUND.hold(file.len(), || begin(file, now));
    let Ok((store, loaded, count)) = begun else { return false };
    let content = content(file).expect("a file with a wrong checksum was taken");
    let Loaded { restored, expired, too_large, no_room } = loaded;
    assert_eq!(restored + expired + too_large + no_room, count);
    let used = store.usage().mapped + store.table_bytes() as usize;
    assert!(used <= (1 << 20) + BESIDE, "{used} bytes are used");
    let items_of = items(&store);
    assert!(items_of.len() as u64 <= restored);
    for (key, (value, ..)) in &items_of {
        let whole = [&key[..], value].concat();
        let is_there = whole.is_empty() || content.windows(whole.len()).any(|part| part == whole);
        assert!(is_there, "{} is not in the file", whole.escape_ascii());
    }
    let (reply, action) = super::talk(&store, &ServerState::default(), &[b"mn\r\n"], super::WHOLE);
    assert_eq!((&reply[..], action), (&b"MN\r\n"[..], SessionAction::Continue));
    let mut saved = Cursor::new(Vec::new());
    let later = now + Duration::from_millis(1);
    save(&store, &mut saved, later).expect("memory is enough");
    if let Ok((again, ..)) = begin(saved.get_ref(), later) {
        // Some may have expired, or there was a flush to come.
        let is_same = |(key, known)| items_of.get(&key) == Some(&known);
        assert!(items(&again).into_iter().all(is_same));
    }
    true
}

/// When a file says that it was written.
fn written(file: &[u8]) -> SystemTime {
    let millis = if file.len() < HEADER { 0 } else { number(file, FRONT + 8) };
    UNIX_EPOCH + Duration::from_millis(millis)
}

/// The file of `-e`.
pub fn file(data: &[u8]) {
    let [what, rest @ ..] = data else { return };
    if what % 4 == 0 {
        demand(rest, written(rest));
        return;
    }
    let [later, rest @ ..] = rest else { return };
    let Some((numbers, stream)) = rest.split_at_checked(NUMBERS) else { return };
    let mut file = composed(numbers, stream);
    let now = written(&file) + Duration::from_secs(u64::from(*later));
    if what % 4 == 3 {
        // Another byte, at a place that the input says.
        let at = (number(numbers, 0) % file.len() as u64) as usize;
        file[at] ^= what;
        assert!(!demand(&file, now), "{at} was changed");
    } else {
        demand(&file, now);
    }
}

/// Inputs for files that a server has saved.
pub fn saved() -> Vec<Vec<u8>> {
    let mut inputs = Vec::new();
    for count in [0, 1, 3, 12] {
        let store = Store::new(Limits { memory: 1 << 20, ..Limits::default() }, 1);
        let mut handle = store.handle(0);
        for number in 0..count {
            let new_item = NewItem {
                flags: number % 3,
                deadline: store.clock().deadline(if number % 4 == 1 { 100 } else { 0 }),
                cas: (number % 5 == 2).then_some(77),
                is_binary: number % 7 == 3,
                is_stale: number % 7 == 4,
                is_sent: number % 7 == 4,
                ..NewItem::new(
                    &[b'a'; 250][..1 + number as usize * 20],
                    &[b'v'; 1100][..number as usize * 91],
                )
            };
            handle.put(&new_item, StoreCondition::plain(Mode::Set));
        }
        let mut file = Cursor::new(Vec::new());
        save(&store, &mut file, SystemTime::now()).expect("memory is enough");
        let file = file.into_inner();
        let numbers = &file[FRONT..FRONT + NUMBERS];
        let stream = content(&file).expect("it was written just now");
        inputs.push([&[0][..], &file].concat());
        inputs.extend([1, 3].map(|what| [&[what, 7][..], numbers, &stream].concat()));
    }
    inputs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_files_are_taken_and_changed_ones_are_not() {
        for input in saved() {
            file(&input);
            let file = match input[0] {
                0 => input[1..].to_vec(),
                1 => composed(&input[2..2 + NUMBERS], &input[2 + NUMBERS..]),
                _ => continue,
            };
            let (store, loaded, count) = begin(&file, written(&file)).unwrap();
            assert_eq!(loaded.restored + loaded.too_large, count);
            assert_eq!(items(&store).len() as u64, loaded.restored);
            assert!(count < 12 || loaded.restored > 9);
            for bit in (0..8 * file.len()).step_by(1009) {
                let mut wrong = file.clone();
                wrong[bit / 8] ^= 1 << (bit % 8);
                assert!(!demand(&wrong, written(&wrong)), "bit {bit}");
            }
        }
    }
}
