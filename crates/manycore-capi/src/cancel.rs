//! Disables cancellation of a thread while the library waits (capi.A5).

use libc::c_int;

unsafe extern "C" {
    #[cfg(unix)]
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE` of glibc, musl, and others with pthreads on Linux.
const DISABLE: c_int = 1;

/// Restores the thread's cancellation state when dropped.
#[must_use = "cancellation is enabled again when it is dropped"]
pub(crate) struct Disabled(c_int);

/// Disables cancellation of the calling thread as long as the result lives.
pub(crate) fn disable() -> Disabled {
    let mut old = DISABLE;
    if cfg!(target_os = "linux") {
        #[cfg(unix)]
        // SAFETY: the state is a valid one, and the old one is written to a word of this frame.
        unsafe {
            pthread_setcancelstate(DISABLE, &raw mut old);
        }
    }
    Disabled(old)
}

impl Drop for Disabled {
    fn drop(&mut self) {
        if cfg!(target_os = "linux") {
            #[cfg(unix)]
            // SAFETY: `disable` got this state from the system; the old one is not needed.
            unsafe {
                pthread_setcancelstate(self.0, std::ptr::null_mut());
            }
        }
    }
}
