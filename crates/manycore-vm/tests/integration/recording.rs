//! A backing that keeps a page table of its own, and panics when the database breaks a rule of the
//! trait.

use manycore_vm::{Backing, Error, Frames, Operation, PAGE_BYTES, Rights, Run, Span};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

#[derive(Default)]
struct Tables {
    /// Frame and rights of a mapped page.
    pages: BTreeMap<usize, (u32, Rights)>,
    /// Frames that were mapped and not cleared since.
    dirty: BTreeSet<u32>,
}

/// See the module.
pub struct Recording {
    frames: u32,
    tables: Mutex<Tables>,
    next: AtomicUsize,
    pub windows: AtomicUsize,
    pub refuses_map: AtomicBool,
    pub refuses_unmap: AtomicBool,
    /// What covers this address is not unmapped.
    pub refuses_unmap_of: AtomicUsize,
    /// Every call from now on panics.
    pub panics: AtomicBool,
    pub unmap_calls: AtomicUsize,
    pub spans: AtomicUsize,
}

impl Recording {
    pub fn new(frames: u32) -> Self {
        Self {
            frames,
            tables: Mutex::default(),
            next: AtomicUsize::new(PAGE_BYTES),
            windows: AtomicUsize::new(0),
            refuses_map: AtomicBool::new(false),
            refuses_unmap: AtomicBool::new(false),
            refuses_unmap_of: AtomicUsize::new(usize::MAX),
            panics: AtomicBool::new(false),
            unmap_calls: AtomicUsize::new(0),
            spans: AtomicUsize::new(0),
        }
    }

    fn may_panic(&self) {
        assert!(!self.panics.load(Ordering::Relaxed), "the backing panics");
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What the kernel would access at `at`.
    pub fn access(&self, at: usize) -> Option<(u32, Rights)> {
        self.tables().pages.get(&at).copied()
    }

    pub fn mapped(&self) -> usize {
        self.tables().pages.len()
    }
}

fn refused(what: &'static str, at: usize) -> Error {
    Error::system(what, at, 1, std::io::ErrorKind::OutOfMemory.into())
}

impl Backing for Recording {
    fn frames(&self) -> u32 {
        self.frames
    }

    fn supports(&self, _operation: Operation) -> Result<(), &'static str> {
        Ok(())
    }

    fn reserve(&self, pages: usize) -> Result<usize, Error> {
        self.windows.fetch_add(1, Ordering::Relaxed);
        Ok(self.next.fetch_add((pages + 1) * PAGE_BYTES, Ordering::Relaxed))
    }

    fn release(&self, address: usize, pages: usize) {
        self.may_panic();
        self.windows.fetch_sub(1, Ordering::Relaxed);
        let end = address + pages * PAGE_BYTES;
        self.tables().pages.retain(|at, _| !(address..end).contains(at));
    }

    fn map(&self, runs: &[Run]) -> Result<(), Error> {
        let mut tables = self.tables();
        for (number, run) in runs.iter().enumerate() {
            // In the middle if there are several.
            if self.refuses_map.load(Ordering::Relaxed) && number + 1 == runs.len() {
                // The caller can't know how much of it was mapped.
                tables.dirty.extend(run.frame..run.frame + run.pages);
                return Err(refused("map", run.address));
            }
            for page in 0..run.pages {
                let at = run.address + page as usize * PAGE_BYTES;
                let frame = run.frame + page;
                let before = tables.pages.insert(at, (frame, run.rights));
                assert_eq!(before, None, "{at:#x} is used again before it was unmapped");
                tables.dirty.insert(frame);
            }
        }
        drop(tables);
        self.may_panic(); // when all is mapped: the worst moment
        Ok(())
    }

    fn unmap(&self, spans: &[Span]) -> Result<(), Error> {
        self.may_panic();
        self.unmap_calls.fetch_add(1, Ordering::Relaxed);
        self.spans.fetch_add(spans.len(), Ordering::Relaxed);
        if self.refuses_unmap.load(Ordering::Relaxed) {
            return Err(refused("unmap", spans[0].address));
        }
        let mut tables = self.tables();
        for span in spans {
            let end = span.address + span.pages as usize * PAGE_BYTES;
            if (span.address..end).contains(&self.refuses_unmap_of.load(Ordering::Relaxed)) {
                return Err(refused("unmap", span.address));
            }
            for page in 0..span.pages as usize {
                tables.pages.remove(&(span.address + page * PAGE_BYTES));
            }
        }
        Ok(())
    }

    fn protect(&self, span: Span, rights: Rights) -> Result<(), Error> {
        let mut tables = self.tables();
        for page in 0..span.pages as usize {
            let entry = tables.pages.get_mut(&(span.address + page * PAGE_BYTES));
            entry.expect("protects what is mapped").1 = rights;
        }
        Ok(())
    }

    fn flush(&self, frames: &[Frames]) -> Result<(), Error> {
        self.may_panic();
        let mut tables = self.tables();
        for run in frames {
            for frame in run.first..run.first + run.count {
                let user = tables.pages.iter().find(|(_, page)| page.0 == frame);
                assert_eq!(user, None, "frame {frame} is cleared while it is mapped");
                assert!(tables.dirty.remove(&frame), "frame {frame} is cleared twice");
            }
        }
        Ok(())
    }
}
