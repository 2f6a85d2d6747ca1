//! `struct mc_domain_options`: the settings of a domain, in a struct that carries its size.

use crate::report::Backlog;
use crate::versioned::{self, Versioned};
use manycore::section::{Builder, Domain, Mode};
use std::ffi::c_void;
use std::time::Duration;

/// `mc_over_budget`: called with the argument of the options.
pub type BudgetCallback = unsafe extern "C-unwind" fn(*mut c_void, *const Backlog);

/// `struct mc_domain_options`. Zero is the default of each field.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Size of the struct as the caller knows it.
    pub size: usize,
    /// Bit 0: readers execute a fence, and no system call is made. Bit 1: objects have births.
    pub flags: u64,
    /// Nodes of a batch.
    pub batch_nodes: usize,
    /// Bytes of a batch.
    pub batch_bytes: usize,
    /// Nodes of one thread from which on it reclaims at the end of each section.
    pub bound: usize,
    /// Bytes that may wait in the domain.
    pub budget: usize,
    /// Maximal time that a thread over the budget waits.
    pub backpressure_us: u64,
    /// Called when the domain is over its budget.
    pub on_over_budget: Option<BudgetCallback>,
    /// The argument of that call-back.
    pub argument: *mut c_void,
}

const FENCES: u64 = 1;
const BOUNDED: u64 = 2;

/// The call-back's argument. The program permits any thread to have it.
struct Argument(*mut c_void);

// SAFETY: the header says that any retiring thread calls it with this argument.
unsafe impl Send for Argument {}
// SAFETY: the header says that several threads may call it at once with this argument.
unsafe impl Sync for Argument {}

// SAFETY: `repr(C)`, the size first; then numbers, a pointer, and a function that may be null.
unsafe impl Versioned for Options {}

impl Options {
    const NONE: Self = Self {
        size: size_of::<Self>(),
        flags: 0,
        batch_nodes: 0,
        batch_bytes: 0,
        bound: 0,
        budget: 0,
        backpressure_us: 0,
        on_over_budget: None,
        argument: std::ptr::null_mut(),
    };

    /// Reads the options that the caller knows, and takes the default for the rest. Returns `None`
    /// if the caller uses options that this library does not know.
    ///
    /// # Safety
    /// Null, or as many bytes long as the first field says.
    pub(crate) unsafe fn read(options: *const Self) -> Option<Self> {
        // SAFETY: what the caller promises.
        let read = unsafe { versioned::read(options, Self::NONE) };
        read.filter(|read| read.flags & !(FENCES | BOUNDED) == 0)
    }

    /// Returns true if objects have births in the domain.
    pub(crate) fn is_bounded(&self) -> bool {
        self.flags & BOUNDED != 0
    }

    /// Returns a builder with these settings.
    pub(crate) fn builder(self) -> Builder {
        let mode = if self.is_bounded() { Mode::Bounded } else { Mode::Epoch };
        let mut builder = Domain::builder().mode(mode).asymmetric(self.flags & FENCES == 0);
        let mut set = |value: usize, setter: fn(Builder, usize) -> Builder| {
            if value != 0 {
                let old = std::mem::replace(&mut builder, Domain::builder());
                builder = setter(old, value);
            }
        };
        set(self.batch_nodes, Builder::batch_nodes);
        set(self.batch_bytes, Builder::batch_bytes);
        set(self.bound, Builder::bound);
        set(self.budget, Builder::budget);
        if let Some(report) = self.on_over_budget {
            let argument = Argument(self.argument);
            builder = builder.on_over_budget(move |backlog| {
                let Argument(argument) = &argument;
                let backlog = Backlog::from(backlog);
                // SAFETY: the program permits any thread to call it with its argument.
                unsafe { report(*argument, &raw const backlog) };
            });
        }
        builder.backpressure(Duration::from_micros(self.backpressure_us))
    }
}
