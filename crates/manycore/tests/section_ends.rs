//! Sections that a thread closes after it has given its slot up. The slot is given back once, when
//! the last section no longer needs it.

use manycore::percpu::current_slot;
use manycore::section::{Domain, Section};
use std::cell::RefCell;
use std::sync::{LazyLock, Mutex, mpsc};
use std::thread;

static FIRST: LazyLock<Domain> =
    LazyLock::new(|| Domain::builder().batch_nodes(1).bound(1).build().unwrap());
static SECOND: LazyLock<Domain> = LazyLock::new(Domain::new);

/// A thread that took its slot while user code ran, and that lives until the sender is dropped.
struct Comer {
    slot: usize,
    stay: mpsc::Sender<()>,
    thread: thread::JoinHandle<()>,
}

fn comer() -> Comer {
    let (stay, end) = mpsc::channel();
    let (tell, slot) = mpsc::channel();
    let thread = thread::spawn(move || {
        tell.send(current_slot()).unwrap();
        let _ = end.recv();
    });
    Comer { slot: slot.recv().unwrap(), stay, thread }
}

static COMER: Mutex<Option<Comer>> = Mutex::new(None);

/// A section that is closed by its thread's end, after a refresh if `refresh` is set.
struct Kept {
    section: Option<Section<'static>>,
    refresh: bool,
}

impl Kept {
    const NONE: Self = Self { section: None, refresh: false };
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut section = self.section.take();
        if let Some(section) = section.as_mut().filter(|_| self.refresh) {
            section.refresh();
        }
        drop(section);
    }
}

thread_local! {
    static OUTER: RefCell<Kept> = const { RefCell::new(Kept::NONE) };
    static INNER: RefCell<Kept> = const { RefCell::new(Kept::NONE) };
}

/// A thread ends inside sections of two domains. Closing or refreshing one section runs user code,
/// which closes the other section and starts a thread.
fn end_inside_two_domains(refresh: bool) {
    let ending = move || {
        // Registers destructors: they run after the slot's, which comes last here.
        OUTER.with(|outer| outer.borrow_mut().section.take());
        INNER.with(|inner| inner.borrow_mut().section.take());
        let mine = current_slot();
        OUTER.with(|outer| outer.borrow_mut().section = Some(SECOND.enter()));
        let section = FIRST.enter();
        section.defer(|| {
            OUTER.with(|outer| drop(outer.borrow_mut().section.take()));
            *COMER.lock().unwrap() = Some(comer());
        });
        INNER.with(|inner| *inner.borrow_mut() = Kept { section: Some(section), refresh });
        mine
    };
    let mine = thread::spawn(ending).join().unwrap();
    FIRST.collect();
    FIRST.collect();
    let early = COMER.lock().unwrap().take().expect("the deferred call has run");
    let late = comer();
    assert_ne!(early.slot, late.slot, "one slot, two owners (it was {mine})");
    for Comer { stay, thread, .. } in [early, late] {
        drop(stay);
        thread.join().unwrap();
    }
}

#[test]
fn slot_of_an_ended_thread_goes_back_once() {
    end_inside_two_domains(false);
    end_inside_two_domains(true);
}

/// A thread that Rust did not start has no `thread::current()` after its destructors. Its sections
/// open nevertheless.
#[cfg(unix)]
#[test]
fn thread_of_another_language_opens_a_section_after_its_destructors() {
    use std::ffi::c_void;
    use std::ptr;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    static DONE: AtomicBool = AtomicBool::new(false);
    static KEY: std::sync::OnceLock<libc::pthread_key_t> = std::sync::OnceLock::new();

    extern "C" fn at_the_end(_: *mut c_void) {
        let section = SECOND.enter();
        let owned = SECOND.enter_owned();
        assert!(SECOND.is_inside());
        drop((section, owned));
        DONE.store(true, SeqCst);
    }
    extern "C" fn begin(_: *mut c_void) -> *mut c_void {
        drop(SECOND.enter());
        // SAFETY: the key was made before the thread.
        unsafe { libc::pthread_setspecific(KEY.get().copied().unwrap(), ptr::dangling()) };
        ptr::null_mut()
    }
    let mut key = 0;
    // SAFETY: all pointers are to words of this frame, or to functions; the thread is joined.
    unsafe {
        assert_eq!(libc::pthread_key_create(&raw mut key, Some(at_the_end)), 0);
        KEY.set(key).unwrap();
        let mut thread = std::mem::zeroed();
        let made = libc::pthread_create(&raw mut thread, ptr::null(), begin, ptr::null_mut());
        assert_eq!(made, 0);
        assert_eq!(libc::pthread_join(thread, ptr::null_mut()), 0);
    }
    assert!(DONE.load(SeqCst));
}
