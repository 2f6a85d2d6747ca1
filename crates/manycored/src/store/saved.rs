//! Transfer of a store's items to a later process, with the state of its clock.

use super::clock::moment_above;
use super::item::ENTRY;
use super::{Item, Store, with_garbage};
use manycore_cache::Cursor;
use std::sync::atomic::Ordering;

/// The number of steps in which memory returns to the system while items are taken out, and the
/// least bytes of a step. Until a step returns it, the memory of taken items is held twice.
const PARTS: u64 = 16;
const PART_MIN: u64 = 16 << 20;
/// The most walks over the remaining items in each step.
const WALKS: usize = 4;
/// The items of this many buckets are taken out together.
const BUCKETS: usize = 64;
/// Bytes of table per item of its capacity.
const ROOM: u64 = 14;

/// The final state of an earlier store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Beginning {
    /// Its time, in nanoseconds. The time is above all its stamps (law store.D1), and the origin of
    /// items' deadlines and uses. A new store has 0.
    pub clock: u64,
    /// The time of a delayed flush on that clock; 0 is never.
    pub flush_at: u64,
    /// The capacity of its table, in items.
    pub entries: u64,
}

impl Store {
    /// Returns the state that a later store continues from. No request may be in progress.
    pub fn end(&self) -> Beginning {
        // ORDER: Relaxed; no request is in progress.
        let flush_at = self.flush_at.load(Ordering::Relaxed);
        let entries = self.table_room().max(self.len() as u64);
        Beginning { clock: moment_above(self.clock.all_so_far()), flush_at, entries }
    }

    /// Returns the approximate capacity of the table, in items.
    pub fn table_room(&self) -> u64 {
        self.table_bytes() / ROOM
    }

    /// Passes every live item to `give` and removes it. The memory returns to the system step by
    /// step. The remaining items are compacted, so this works even if items of all ages are spread
    /// over all regions.
    ///
    /// # Errors
    /// An error of `give`, which is not called again.
    pub fn take_all<E>(&self, mut give: impl FnMut(&Item) -> Result<(), E>) -> Result<(), E> {
        self.tick();
        self.sweep(true);
        let part = (self.bytes() / PARTS).max(PART_MIN);
        let (mut next, mut taken, mut keys) = (Some(Cursor::default()), 0, Vec::new());
        while let Some(cursor) = next {
            let mut given = Ok(());
            next = self.scan(cursor, BUCKETS, |item| {
                if given.is_ok() {
                    given = give(item);
                    keys.push(item.key().len() as u8);
                    keys.extend_from_slice(item.key());
                    taken += item.weight() as u64;
                }
            });
            given?;
            let mut left = &keys[..];
            while let Some((length, rest)) = left.split_first() {
                let (key, rest) = rest.split_at(usize::from(*length));
                self.cache.remove(key);
                left = rest;
            }
            keys.clear();
            if taken >= part {
                taken = 0;
                self.give_back_memory();
            }
        }
        Ok(())
    }

    /// Returns memory to the system that the remaining items do not need.
    fn give_back_memory(&self) {
        self.cache.collect();
        let bytes = self.bytes().saturating_sub(self.len() as u64 * ENTRY as u64);
        for _ in 0..WALKS {
            self.memory.set_bytes(with_garbage(bytes));
            if !self.memory.is_over() {
                return;
            }
            self.vacate(usize::MAX, usize::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Mode;
    use crate::store::{Limits, NewItem, StoreCondition};

    /// Items of two sizes and all ages, so that no region becomes empty without compaction.
    #[test]
    fn memory_goes_back_while_items_are_taken_out() {
        let store = Store::new(Limits { memory: 64 << 20, ..Limits::default() }, 1);
        let mut handle = store.handle(0);
        for number in 0..120_000_u32 {
            let value = vec![1; if number % 2 == 0 { 40 } else { 700 }];
            handle.put(
                &NewItem::new(&number.to_le_bytes(), &value),
                StoreCondition::plain(Mode::Set),
            );
        }
        let (items, all) = (store.len(), store.usage().mapped as u64);
        let (mut given, mut bytes, mut most) = (0, 0, 0);
        let taken: Result<(), ()> = store.take_all(|item| {
            given += 1;
            bytes += (item.key().len() + item.value_len()) as u64;
            if given % 1000 == 0 {
                most = most.max(bytes + store.usage().mapped as u64);
            }
            Ok(())
        });
        assert_eq!((taken, given, store.len()), (Ok(()), items, 0));
        assert!(bytes > 40 << 20, "{bytes} bytes");
        assert!(most <= all + (2 * PART_MIN), "{most} bytes at once, {all} before");
    }

    #[test]
    fn what_could_not_be_given_is_not_taken_out() {
        let store = Store::new(Limits::default(), 1);
        let mut handle = store.handle(0);
        handle.put(&NewItem::new(b"a", b"x"), StoreCondition::plain(Mode::Set));
        assert_eq!(store.take_all(|_| Err("full")), Err("full"));
        assert_eq!(store.len(), 1);
    }
}
