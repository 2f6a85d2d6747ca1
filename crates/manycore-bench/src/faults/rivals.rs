//! Regions behind a lock, a page manager behind a lock, and the kernel.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    io,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use manycore_vm::{AddressSpace, FileCache, FileSource, PageManager};

use super::{
    PAGE, PAGES, Process,
    ours::{self, Numbered},
    word,
};

/// Everything of one thread.
#[derive(Default)]
pub(super) struct Unshared(RefCell<Vec<(usize, OwnFile)>>);

type OwnFile = std::rc::Rc<(u64, RefCell<Vec<Option<Box<[u64]>>>>)>;

// SAFETY: `SHARED` is false, so one thread at a time has it.
unsafe impl Sync for Unshared {}

impl Process for Unshared {
    type File = OwnFile;
    type Region = usize;

    const SHARED: bool = false;

    fn new(_: usize) -> Self {
        Self::default()
    }

    fn open(&self, number: u64) -> OwnFile {
        OwnFile::new((number, RefCell::new(vec![None; PAGES])))
    }

    fn map(&self, at: usize, file: &OwnFile) -> usize {
        self.0.borrow_mut().push((at, OwnFile::clone(file)));
        at
    }

    fn touch(&self, at: &usize, page: usize) -> Option<u64> {
        let regions = self.0.borrow();
        let (_, file) = regions.iter().find(|(own, _)| own == at)?;
        let mut pages = file.1.borrow_mut();
        let page = pages[page].get_or_insert_with(|| {
            let mut words = vec![0; PAGE / 8].into_boxed_slice();
            words[0] = word(file.0, page);
            words
        });
        Some(page[0])
    }

    fn unmap(&self, at: &usize) {
        self.0.borrow_mut().retain(|(own, _)| own != at);
    }
}

/// A list of regions behind a lock.
pub(super) struct ListLock {
    regions: Mutex<Vec<(usize, Arc<FileCache>)>>,
    manager: PageManager,
}

/// The page, outside of the lock that the region was found under.
fn touch(found: Option<(usize, Arc<FileCache>)>, at: usize) -> Option<u64> {
    let (start, file) = found?;
    file.with_page(((at - start) / PAGE) as u64, ours::first).ok()
}

impl Process for ListLock {
    type File = Arc<FileCache>;
    type Region = usize;

    fn new(pages_max: usize) -> Self {
        Self { regions: Mutex::default(), manager: ours::manager(pages_max) }
    }

    fn open(&self, number: u64) -> Arc<FileCache> {
        ours::open(&self.manager, number)
    }

    fn map(&self, at: usize, file: &Arc<FileCache>) -> usize {
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        regions.push((at, Arc::clone(file)));
        at
    }

    fn touch(&self, at: &usize, page: usize) -> Option<u64> {
        let at = at + page * PAGE;
        let found = {
            let regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
            let within = |start: usize| (start..start + PAGES * PAGE).contains(&at);
            regions.iter().find(|(start, _)| within(*start)).cloned()
        };
        touch(found, at)
    }

    fn unmap(&self, at: &usize) {
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        regions.retain(|(start, _)| start != at);
    }
}

/// A tree of regions behind a lock.
pub(super) struct TreeLock {
    regions: RwLock<BTreeMap<usize, Arc<FileCache>>>,
    manager: PageManager,
}

impl Process for TreeLock {
    type File = Arc<FileCache>;
    type Region = usize;

    fn new(pages_max: usize) -> Self {
        Self { regions: RwLock::default(), manager: ours::manager(pages_max) }
    }

    fn open(&self, number: u64) -> Arc<FileCache> {
        ours::open(&self.manager, number)
    }

    fn map(&self, at: usize, file: &Arc<FileCache>) -> usize {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        regions.insert(at, Arc::clone(file));
        at
    }

    fn touch(&self, at: &usize, page: usize) -> Option<u64> {
        let at = at + page * PAGE;
        let found = {
            let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
            let found = regions.range(..=at).next_back();
            let found = found.filter(|(start, _)| at < **start + PAGES * PAGE);
            found.map(|(start, file)| (*start, Arc::clone(file)))
        };
        touch(found, at)
    }

    fn unmap(&self, at: &usize) {
        self.regions.write().unwrap_or_else(PoisonError::into_inner).remove(at);
    }
}

/// Free pages and attached files, by one lock. There is no end of pages: files that were closed
/// wait for the grace period of their regions.
#[derive(Default)]
struct Global {
    free: Vec<u32>,
    fresh: u32,
    /// The pages of each file.
    attached: HashMap<u64, Vec<u32>>,
    files: u64,
}

/// A file that takes a page of the global manager for each page that it reads.
struct Managed {
    file: Numbered,
    id: u64,
    global: Arc<Mutex<Global>>,
}

impl FileSource for Managed {
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut global = self.global.lock().unwrap_or_else(PoisonError::into_inner);
        let page = global.free.pop().unwrap_or_else(|| {
            global.fresh += 1;
            global.fresh
        });
        global.attached.get_mut(&self.id).expect("attached").push(page);
        drop(global);
        self.file.read(offset, into)
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.file.write(offset, from)
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        // A page at a time, as files give them back.
        loop {
            let mut global = self.global.lock().unwrap_or_else(PoisonError::into_inner);
            let page = global.attached.get_mut(&self.id).expect("attached").pop();
            match page {
                Some(page) => global.free.push(page),
                None => return drop(global.attached.remove(&self.id)),
            }
        }
    }
}

pub(super) struct OneManager {
    space: AddressSpace,
    global: Arc<Mutex<Global>>,
}

impl Process for OneManager {
    type File = Arc<FileCache>;
    type Region = usize;

    fn new(_: usize) -> Self {
        Self { space: AddressSpace::new(), global: Arc::default() }
    }

    fn open(&self, number: u64) -> Arc<FileCache> {
        let id = {
            let mut global = self.global.lock().unwrap_or_else(PoisonError::into_inner);
            global.files += 1;
            let id = global.files;
            global.attached.insert(id, Vec::new());
            id
        };
        let source = Managed { file: Numbered(number), id, global: Arc::clone(&self.global) };
        FileCache::new(source).expect("the source knows its length")
    }

    fn map(&self, at: usize, file: &Arc<FileCache>) -> usize {
        ours::map(&self.space, at, file);
        at
    }

    fn touch(&self, at: &usize, page: usize) -> Option<u64> {
        ours::touch(&self.space, at + page * PAGE)
    }

    fn unmap(&self, at: &usize) {
        self.space.enter().unmap(*at, PAGES).expect("the thread's own region");
    }
}

/// The kernel's mappings of memory files.
#[cfg(target_os = "linux")]
pub(super) struct Kernel;

#[cfg(target_os = "linux")]
pub(super) struct MemoryFile(std::os::fd::OwnedFd);

#[cfg(target_os = "linux")]
pub(super) struct Mapping(std::cell::Cell<*const u64>);

#[cfg(target_os = "linux")]
impl Process for Kernel {
    type File = MemoryFile;
    type Region = Mapping;

    fn new(_: usize) -> Self {
        Self
    }

    fn open(&self, number: u64) -> MemoryFile {
        use std::os::{fd::FromRawFd, unix::fs::FileExt};
        // SAFETY: a name that ends in zero; the descriptor is new, and this one's alone.
        let file = unsafe {
            let descriptor = libc::memfd_create(c"faults".as_ptr(), libc::MFD_CLOEXEC);
            assert!(descriptor >= 0, "memfd_create: {}", io::Error::last_os_error());
            std::fs::File::from_raw_fd(descriptor)
        };
        file.set_len((PAGES * PAGE) as u64).expect("a memory file has a length");
        for page in 0..PAGES {
            let bytes = word(number, page).to_ne_bytes();
            file.write_all_at(&bytes, (page * PAGE) as u64).expect("there is memory enough");
        }
        MemoryFile(file.into())
    }

    fn map(&self, _: usize, file: &MemoryFile) -> Mapping {
        use std::os::fd::AsRawFd;
        let (bytes, descriptor) = (PAGES * PAGE, file.0.as_raw_fd());
        // SAFETY: a new mapping, which replaces none.
        let start = unsafe {
            let (access, kind) = (libc::PROT_READ, libc::MAP_SHARED);
            libc::mmap(std::ptr::null_mut(), bytes, access, kind, descriptor, 0)
        };
        assert!(start != libc::MAP_FAILED, "mmap: {}", io::Error::last_os_error());
        Mapping(std::cell::Cell::new(start.cast()))
    }

    fn touch(&self, mapping: &Mapping, page: usize) -> Option<u64> {
        let start = mapping.0.get();
        // SAFETY: within the mapping, which is there until `unmap` has cleared the pointer.
        (!start.is_null()).then(|| unsafe { start.add(page * PAGE / 8).read_volatile() })
    }

    fn unmap(&self, mapping: &Mapping) {
        let start = mapping.0.replace(std::ptr::null());
        // SAFETY: from `map`, and the pointer is gone.
        let result = unsafe { libc::munmap(start.cast_mut().cast(), PAGES * PAGE) };
        assert_eq!(result, 0, "munmap: {}", io::Error::last_os_error());
    }
}
