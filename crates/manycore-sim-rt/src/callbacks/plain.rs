//! Plain loads and stores, and the copies of `memcpy`, `memmove` and `memset`.

use std::arch::naked_asm;
use std::ffi::{c_int, c_void};

use crate::simulation::{self, Kind};

/// Makes callbacks with one address. The size is part of the name.
macro_rules! accesses {
    ($($name:ident $to:ident $size:literal;)*) => { $(
        /// # Safety
        /// Called by instrumented code only; the address is one that it is about to use.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(_address: *const c_void) {
            naked_asm!(
                "mov rdx, [rsp]",
                concat!("mov esi, ", $size),
                "jmp {}",
                sym $to,
            )
        }
    )* };
}

extern "C" fn read(address: usize, size: usize, pc: usize) {
    if simulation::active() {
        simulation::access(address, size, Kind::Read, pc);
    }
}

extern "C" fn write(address: usize, size: usize, pc: usize) {
    if simulation::active() {
        simulation::access(address, size, Kind::Write, pc);
    }
}

accesses! {
    __tsan_read1 read 1;
    __tsan_read2 read 2;
    __tsan_read4 read 4;
    __tsan_read8 read 8;
    __tsan_read16 read 16;
    __tsan_write1 write 1;
    __tsan_write2 write 2;
    __tsan_write4 write 4;
    __tsan_write8 write 8;
    __tsan_write16 write 16;
    __tsan_unaligned_read2 read 2;
    __tsan_unaligned_read4 read 4;
    __tsan_unaligned_read8 read 8;
    __tsan_unaligned_read16 read 16;
    __tsan_unaligned_write2 write 2;
    __tsan_unaligned_write4 write 4;
    __tsan_unaligned_write8 write 8;
    __tsan_unaligned_write16 write 16;
    __tsan_volatile_read1 read 1;
    __tsan_volatile_read2 read 2;
    __tsan_volatile_read4 read 4;
    __tsan_volatile_read8 read 8;
    __tsan_volatile_read16 read 16;
    __tsan_volatile_write1 write 1;
    __tsan_volatile_write2 write 2;
    __tsan_volatile_write4 write 4;
    __tsan_volatile_write8 write 8;
    __tsan_volatile_write16 write 16;
    __tsan_vptr_read read 8;
    __tsan_vptr_update write 8;
}

/// Makes callbacks with an address and a length.
macro_rules! ranges {
    ($($name:ident $to:ident;)*) => { $(
        /// # Safety
        /// Called by instrumented code only; the range is one that it is about to use.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(_address: *const c_void, _size: usize) {
            naked_asm!("mov rdx, [rsp]", "jmp {}", sym $to)
        }
    )* };
}

ranges! {
    __tsan_read_range read;
    __tsan_write_range write;
}

extern "C" fn copy(to: *mut u8, from: *const u8, size: usize, pc: usize) -> *mut u8 {
    if simulation::active() && size > 0 {
        simulation::access(from as usize, size, Kind::Read, pc);
        simulation::access(to as usize, size, Kind::Write, pc);
    }
    // SAFETY: the program's own call of memcpy or memmove, with its own promises.
    unsafe { std::ptr::copy(from, to, size) };
    to
}

extern "C" fn fill(to: *mut u8, byte: c_int, size: usize, pc: usize) -> *mut u8 {
    if simulation::active() && size > 0 {
        simulation::access(to as usize, size, Kind::Write, pc);
    }
    // SAFETY: the program's own call of memset, with its own promises.
    unsafe { std::ptr::write_bytes(to, byte as u8, size) };
    to
}

/// Makes callbacks that stand for a function with three arguments.
macro_rules! copies {
    ($($name:ident $to:ident $second:ty;)*) => { $(
        /// # Safety
        /// As for the function of C that it stands for.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(_to: *mut u8, _what: $second, _size: usize) -> *mut u8 {
            naked_asm!("mov rcx, [rsp]", "jmp {}", sym $to)
        }
    )* };
}

copies! {
    __tsan_memcpy copy *const u8;
    __tsan_memmove copy *const u8;
    __tsan_memset fill c_int;
}
