//! Functions that stand in libc's place while a simulation runs.

/// Makes functions that replace libc's. While a simulation runs, the body answers; otherwise libc's
/// own function does. Both may unwind: libc's functions call back, and end cancelled threads so.
macro_rules! replace {
    ($($(#[$doc:meta])+ $name:ident($($argument:ident: $type:ty),*) $body:block)+) => {$(
        $(#[$doc])+
        ///
        /// # Safety
        /// As for libc's function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> std::ffi::c_int {
            if $crate::simulation::active() {
                return $body;
            }
            $crate::calls::replace::real!($name($($type),*))($($argument),*)
        }
    )+};
}
pub(super) use replace;

/// Returns libc's function of that name. The types are those of its arguments.
macro_rules! real {
    ($name:ident($($type:ty),*)) => {{
        static REAL: $crate::interpose::Next =
            $crate::interpose::Next::of(concat!(stringify!($name), "\0"));
        type Real = extern "C-unwind" fn($($type),*) -> std::ffi::c_int;
        // SAFETY: libc's function has these arguments, and returns an `int`.
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, Real>(REAL.get()) }
    }};
}
pub(super) use real;
