//! What a program can tell the simulator and ask of it.
//!
//! A program needs none of this to be simulated. It is for programs that want a report by
//! operation, or that check themselves ([`crate::ConflictCheck`]). The functions look up the
//! runtime's symbols at their first call, so nothing has to be linked. Outside a simulation they
//! cost a load and a branch.

use std::sync::OnceLock;

/// The runtime's functions. `None` if the program is not linked with the runtime.
pub(crate) struct Runtime {
    active: extern "C" fn() -> bool,
    operations: extern "C" fn(u64),
    begin: extern "C" fn(),
    end: extern "C" fn(),
    pub(crate) record: extern "C" fn(bool),
    pub(crate) place: extern "C" fn(usize) -> usize,
    pub(crate) take_recording: TakeRecording,
}

/// Passes the text of the recording, and a word of the caller's, to a function.
type TakeRecording =
    extern "C" fn(extern "C" fn(*const u8, usize, *mut std::ffi::c_void), *mut std::ffi::c_void);

/// Returns the runtime if it simulates the caller.
pub(crate) fn runtime() -> Option<&'static Runtime> {
    static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(find).as_ref()?;
    (runtime.active)().then_some(runtime)
}

#[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
fn find() -> Option<Runtime> {
    use std::ffi::{CStr, c_char, c_void};
    unsafe extern "C" {
        fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    }
    let symbol = |name: &CStr| {
        // SAFETY: `name` is a C string; null searches everything that is loaded.
        let found = unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) };
        (!found.is_null()).then_some(found)
    };
    // SAFETY: the runtime (`manycore-sim-rt`, module `facade`) defines these names with these
    // types.
    unsafe {
        use std::mem::transmute;
        Some(Runtime {
            active: transmute::<*mut c_void, extern "C" fn() -> bool>(symbol(
                c"manycore_sim_active",
            )?),
            operations: transmute::<*mut c_void, extern "C" fn(u64)>(symbol(c"manycore_sim_op")?),
            begin: transmute::<*mut c_void, extern "C" fn()>(symbol(c"manycore_sim_begin")?),
            end: transmute::<*mut c_void, extern "C" fn()>(symbol(c"manycore_sim_end")?),
            record: transmute::<*mut c_void, extern "C" fn(bool)>(symbol(c"manycore_sim_record")?),
            place: transmute::<*mut c_void, extern "C" fn(usize) -> usize>(symbol(
                c"manycore_sim_place",
            )?),
            take_recording: transmute::<*mut c_void, TakeRecording>(symbol(
                c"manycore_sim_take_recording",
            )?),
        })
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64")))]
fn find() -> Option<Runtime> {
    None
}

/// Returns true if the caller runs on virtual cores.
///
/// ```
/// // The documentation's tests run on real cores.
/// assert!(!manycore_sim::is_simulated());
/// ```
pub fn is_simulated() -> bool {
    runtime().is_some()
}

/// Tells the simulator that the program has done `count` more operations.
///
/// The report then gives costs by operation. Call this now and then with a sum, not once for each
/// operation.
///
/// ```
/// let done: u64 = (0..1000).map(|_| 1).sum();
/// manycore_sim::operations(done);
/// ```
pub fn operations(count: u64) {
    if let Some(runtime) = runtime() {
        (runtime.operations)(count);
    }
}

/// Runs `part` and limits the report to it.
///
/// The report leaves out what the program does before and after. Several parts add up. Other
/// threads that run during a part are measured too.
///
/// ```
/// let sum: u64 = manycore_sim::measured(|| (0..1000).sum());
/// assert_eq!(sum, 499_500);
/// ```
pub fn measured<R>(part: impl FnOnce() -> R) -> R {
    /// Ends the part, even if it panics.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            if let Some(runtime) = runtime() {
                (runtime.end)();
            }
        }
    }
    if let Some(runtime) = runtime() {
        (runtime.begin)();
    }
    let end = End;
    let result = part();
    drop(end);
    result
}
