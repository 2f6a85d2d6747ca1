//! CPU affinity: which CPUs a thread runs on.
//!
//! For benchmarks, and for experiments between two given CPUs. Nothing in the library needs
//! pinning. On systems other than Linux every function here returns [`io::ErrorKind::Unsupported`].
//!
//! Owns: the affinity mask of the calling thread, and its format (one bit per CPU in native words,
//! as long as the kernel wants it). Does not own: the map of the machine ([`super::topology`]).

use std::io;
use std::marker::PhantomData;

/// Pins the calling thread to one CPU from now on.
///
/// What for: benchmarks, and experiments that compare two given CPUs. When not: in programs that
/// share the machine; a pinned thread waits for its CPU while others are idle.
///
/// # Errors
/// `InvalidInput` if there is no such CPU or the process may not use it, `Unsupported` on systems
/// other than Linux, and any other error of the system call.
///
/// ```
/// use manycore::percpu::pin;
///
/// std::thread::spawn(|| match pin::pin_to(0) {
///     Ok(()) => assert_eq!(pin::allowed().ok(), Some(vec![0])),
///     Err(error) => println!("{error}"), // another system, a sandbox: go on unpinned
/// })
/// .join()
/// .unwrap();
/// ```
pub fn pin_to(cpu: usize) -> io::Result<()> {
    imp::set(&Mask::single(cpu)?)
}

/// Returns the CPUs that the calling thread may run on, in ascending order.
///
/// # Errors
/// `Unsupported` on systems other than Linux, and any error of the system call.
///
/// ```
/// use manycore::percpu::pin;
///
/// if let Ok(cpus) = pin::allowed() {
///     assert!(!cpus.is_empty() && cpus.is_sorted());
///     println!("as many workers as {}", cpus.len());
/// }
/// ```
pub fn allowed() -> io::Result<Vec<usize>> {
    Ok(imp::get()?.cpus().collect())
}

/// Returns the CPU that the calling thread runs on at the moment of the call. The thread may
/// migrate at any time.
///
/// # Errors
/// `Unsupported` on systems other than Linux, and any error of the system call.
///
/// ```
/// use manycore::percpu::pin;
///
/// if let (Ok(cpu), Ok(allowed)) = (pin::current_cpu(), pin::allowed()) {
///     assert!(allowed.contains(&cpu));
/// }
/// ```
pub fn current_cpu() -> io::Result<usize> {
    imp::current()
}

/// Pins a thread for as long as this value lives, and restores its affinity mask afterwards.
///
/// ```
/// use manycore::percpu::pin::{self, Pinned};
///
/// // Pinning may be refused (another system, a sandbox): continue without.
/// if let Ok(pinned) = pin::current_cpu().and_then(Pinned::to) {
///     assert_eq!(pin::allowed()?, [pinned.cpu()]);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the thread is unpinned again when this is dropped"]
pub struct Pinned {
    cpu: usize,
    before: Mask,
    /// The mask belongs to this thread, so the guard must not be dropped on another.
    _not_send: PhantomData<*const ()>,
}

impl Pinned {
    /// Pins the calling thread to `cpu`, and keeps its affinity mask to restore it.
    ///
    /// # Errors
    /// As for [`pin_to`].
    pub fn to(cpu: usize) -> io::Result<Self> {
        let before = imp::get()?;
        pin_to(cpu)?;
        Ok(Self { cpu, before, _not_send: PhantomData })
    }

    /// Returns the CPU that the thread is pinned to.
    pub fn cpu(&self) -> usize {
        self.cpu
    }
}

/// Runs on every CPU that this process may use, one after the other. When this returns, every
/// thread that was running at the call has been switched out at least once.
#[cfg(all(target_os = "linux", not(any(manycore_loom, manycore_shuttle, miri))))]
pub(crate) fn visit_all() -> io::Result<()> {
    let Mask(words) = imp::get()?;
    let all = Mask(vec![Word::MAX; words.len()]);
    let _back = Pinned { cpu: 0, before: Mask(words), _not_send: PhantomData };
    imp::set(&all)?; // the kernel takes those of the process's set
    for cpu in imp::get()?.cpus() {
        match pin_to(cpu) {
            // Offline by now, so every thread has left it.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            done => done?,
        }
    }
    Ok(())
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Fails only if the process lost all the CPUs it had before; then the thread stays pinned.
        let _ = imp::set(&self.before);
    }
}

/// One bit per CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mask(Vec<Word>);

type Word = std::ffi::c_ulong;
const WORD_BITS: usize = Word::BITS as usize;

/// Far above what any kernel is built for (8192 on x86-64). Larger numbers are mistakes.
const CPUS_MAX: usize = 1 << 20;

impl Mask {
    fn single(cpu: usize) -> io::Result<Self> {
        if cpu >= CPUS_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("no CPU {cpu}")));
        }
        let mut words = vec![0; cpu / WORD_BITS + 1];
        words[cpu / WORD_BITS] = 1 << (cpu % WORD_BITS);
        Ok(Self(words))
    }

    fn cpus(&self) -> impl Iterator<Item = usize> {
        let bits = |(index, word): (usize, &Word)| {
            let word = *word;
            (0..WORD_BITS)
                .filter(move |bit| word >> bit & 1 != 0)
                .map(move |bit| index * WORD_BITS + bit)
        };
        self.0.iter().enumerate().flat_map(bits)
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod imp {
    use super::{CPUS_MAX, Mask, WORD_BITS, Word};
    use std::io;

    /// Words of the first attempt: 1024 CPUs, the size of glibc's own mask.
    const WORDS_FIRST: usize = 1024 / WORD_BITS;

    pub(super) fn set(mask: &Mask) -> io::Result<()> {
        let bytes = size_of_val(mask.0.as_slice());
        // SAFETY: the kernel reads `bytes` bytes of the mask, which lives until the call is over;
        // 0 is the calling thread.
        let result = unsafe { libc::sched_setaffinity(0, bytes, mask.0.as_ptr().cast()) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    pub(super) fn get() -> io::Result<Mask> {
        let mut words = vec![0 as Word; WORDS_FIRST];
        loop {
            let bytes = size_of_val(words.as_slice());
            // SAFETY: the kernel writes at most `bytes` bytes to the mask, which lives until the
            // call is over; 0 is the calling thread.
            let result = unsafe { libc::sched_getaffinity(0, bytes, words.as_mut_ptr().cast()) };
            if result >= 0 {
                return Ok(Mask(words));
            }
            let error = io::Error::last_os_error();
            // EINVAL: the kernel has more CPUs than the mask has bits.
            if error.raw_os_error() != Some(libc::EINVAL) || words.len() * WORD_BITS >= CPUS_MAX {
                return Err(error);
            }
            words = vec![0; words.len() * 2];
        }
    }

    pub(super) fn current() -> io::Result<usize> {
        // SAFETY: takes nothing, returns a number.
        let cpu = unsafe { libc::sched_getcpu() };
        usize::try_from(cpu).map_err(|_| io::Error::last_os_error())
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod imp {
    use super::Mask;
    use std::io;

    fn unsupported() -> io::Error {
        io::Error::new(io::ErrorKind::Unsupported, "this system has no CPU affinity that we know")
    }

    pub(super) fn set(_: &Mask) -> io::Result<()> {
        Err(unsupported())
    }

    pub(super) fn get() -> io::Result<Mask> {
        Err(unsupported())
    }

    pub(super) fn current() -> io::Result<usize> {
        Err(unsupported())
    }
}

#[cfg(all(test, target_os = "linux", not(any(manycore_loom, manycore_shuttle, miri))))]
mod tests {
    use super::*;
    use crate::sync::thread;

    #[test]
    fn mask_of_one_cpu_names_that_cpu() {
        for cpu in [0, 1, 63, 64, 65, 1023, 1024, 8191] {
            assert_eq!(Mask::single(cpu).unwrap().cpus().collect::<Vec<_>>(), [cpu]);
        }
    }

    #[test]
    fn pinned_thread_runs_there_and_may_run_everywhere_again_after() {
        thread::spawn(|| {
            let before = allowed().unwrap();
            assert!(before.contains(&current_cpu().unwrap()));
            for &cpu in &before {
                let pinned = Pinned::to(cpu).unwrap();
                assert_eq!(pinned.cpu(), cpu);
                assert_eq!(current_cpu().unwrap(), cpu);
                assert_eq!(allowed().unwrap(), [cpu]);
                drop(pinned);
                assert_eq!(allowed().unwrap(), before);
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn absent_cpus_are_refused_and_leave_the_mask_alone() {
        let before = allowed().unwrap();
        for cpu in [before.last().unwrap() + 100_000, CPUS_MAX, usize::MAX] {
            assert_eq!(pin_to(cpu).unwrap_err().kind(), io::ErrorKind::InvalidInput, "CPU {cpu}");
            assert!(Pinned::to(cpu).is_err());
        }
        assert_eq!(allowed().unwrap(), before);
    }

    #[test]
    fn pinning_holds_for_the_calling_thread_only() {
        let before = allowed().unwrap();
        thread::spawn(|| pin_to(allowed().unwrap()[0]).unwrap()).join().unwrap();
        assert_eq!(allowed().unwrap(), before);
    }
}
