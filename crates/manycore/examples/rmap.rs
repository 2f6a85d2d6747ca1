//! The paper's first example (OpLog, figure 7): a reverse map from the pages of a file to the
//! mappings that show them. Processes add and remove mappings all the time; truncating the file
//! reads.
//!
//! The lines between the markers are what a program writes to make its interval map scale; the
//! interval map itself is below them and knows nothing of it.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::thread;

// begin: rmap
use manycore::oplog::{Cancel, Cancelling, Deferred, Op};

enum Update {
    Add(Mapping),
    Remove(Mapping),
}

impl Op<IntervalMap> for Update {
    fn apply(self, map: &mut IntervalMap) {
        match self {
            Update::Add(mapping) => map.add(mapping),
            Update::Remove(mapping) => map.remove(&mapping),
        }
    }
}

impl Cancel for Update {
    type Key = u64;
    fn key(&self) -> u64 {
        let (Update::Add(mapping) | Update::Remove(mapping)) = self;
        mapping.id
    }
    fn inserts(&self) -> bool {
        matches!(self, Update::Add(_))
    }
}

struct Rmap(Deferred<IntervalMap, Cancelling<Update>>);

impl Rmap {
    fn add(&self, mapping: Mapping) {
        self.0.append(Update::Add(mapping));
    }
    fn remove(&self, mapping: Mapping) {
        self.0.append(Update::Remove(mapping));
    }
    fn truncate(&self, page: u64) -> Vec<Mapping> {
        self.0.read().cut_off(page)
    }
}
// end: rmap

/// Some pages of the file, shown somewhere. The id is never used again (OpLog, section 5.2).
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mapping {
    id: u64,
    pages: Range<u64>,
}

/// Mappings by their pages: plain, sequential code.
#[derive(Default)]
struct IntervalMap {
    by_end: BTreeMap<(u64, u64), Mapping>,
    /// Where each mapping ends now: truncation shortens it, and its owner need not know.
    ends: HashMap<u64, u64>,
}

impl IntervalMap {
    fn add(&mut self, mapping: Mapping) {
        self.ends.insert(mapping.id, mapping.pages.end);
        self.by_end.insert((mapping.pages.end, mapping.id), mapping);
    }

    fn remove(&mut self, mapping: &Mapping) {
        if let Some(end) = self.ends.remove(&mapping.id) {
            self.by_end.remove(&(end, mapping.id));
        }
    }

    /// Shortens every mapping that goes beyond `page`, and returns what it was before.
    fn cut_off(&mut self, page: u64) -> Vec<Mapping> {
        let beyond: Vec<Mapping> = self.by_end.split_off(&(page + 1, 0)).into_values().collect();
        for mapping in &beyond {
            self.ends.remove(&mapping.id);
            if mapping.pages.start < page {
                self.add(Mapping { id: mapping.id, pages: mapping.pages.start..page });
            }
        }
        beyond
    }
}

fn main() {
    let libc = Rmap(Deferred::new(IntervalMap::default()));
    thread::scope(|scope| {
        for process in 0..8_u64 {
            let libc = &libc;
            scope.spawn(move || {
                // Short-lived children: what they map they unmap, on the same thread.
                for child in 0..10_000 {
                    let id = process * 1_000_000 + child;
                    let text = Mapping { id, pages: 0..400 };
                    libc.add(text.clone());
                    libc.remove(text);
                }
                let pages = 100..100 + 50 * (process + 1);
                libc.add(Mapping { id: process * 1_000_000 + 999_999, pages });
            });
        }
    });
    let touched = libc.truncate(250);
    println!("8 processes, 80,000 children that came and went, {} long mappings", touched.len());
    println!("truncated to 250 pages; these went beyond: {touched:#?}");
    assert_eq!(touched.len(), 5); // those that ended at 300, 350, 400, 450 and 500
    assert!(libc.truncate(250).is_empty());
    touched.into_iter().for_each(|mapping| libc.remove(mapping)); // the processes end
    assert_eq!(libc.truncate(0).len(), 3); // those that ended at 150, 200 and 250
}
