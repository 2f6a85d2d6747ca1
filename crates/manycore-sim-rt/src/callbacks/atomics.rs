//! Atomic operations: charge first, which may run other virtual threads, then operate.
//!
//! While a simulation runs, nothing comes between the end of `access` and the operation, because
//! one kernel thread runs everything (threads.S1). Still, the operations are atomic, for
//! callbacks.B1. They are sequentially consistent, which is correct for every ordering that the
//! program requests.

use std::arch::naked_asm;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::SeqCst, fence};

use crate::simulation::{self, Kind};

/// LLVM's number for the ordering.
const SEQ_CST: i32 = 5;

/// Makes the callbacks of one width. Each operation has the symbol and the name of its Rust part.
macro_rules! width {
    ($int:ty, $atomic:ty, $bytes:literal;
     load $load:ident $load_part:ident; store $store:ident $store_part:ident;
     exchange $exchange:ident $exchange_part:ident;
     value $value:ident $value_part:ident;
     strong $strong:ident weak $weak:ident $flag_part:ident;
     $($fetch:ident $fetch_part:ident $act:expr;)*) => {
        extern "C" fn $load_part(word: &$atomic, _order: i32, pc: usize) -> $int {
            charge(word, $bytes, Kind::Read, pc);
            word.load(SeqCst)
        }

        extern "C" fn $store_part(word: &$atomic, new: $int, order: i32, pc: usize) {
            // A sequentially consistent store is an exchange on x86.
            charge(word, $bytes, if order == SEQ_CST { Kind::Rmw } else { Kind::Write }, pc);
            word.store(new, SeqCst);
        }

        extern "C" fn $exchange_part(word: &$atomic, new: $int, _order: i32, pc: usize) -> $int {
            charge(word, $bytes, Kind::Rmw, pc);
            word.swap(new, SeqCst)
        }

        extern "C" fn $value_part(
            word: &$atomic, old: $int, new: $int, _yes: i32, _no: i32, pc: usize,
        ) -> $int {
            charge(word, $bytes, Kind::Rmw, pc);
            word.compare_exchange(old, new, SeqCst, SeqCst).unwrap_or_else(|found| found)
        }

        extern "C" fn $flag_part(
            word: &$atomic, old: &mut $int, new: $int, _yes: i32, _no: i32, pc: usize,
        ) -> i32 {
            charge(word, $bytes, Kind::Rmw, pc);
            match word.compare_exchange(*old, new, SeqCst, SeqCst) {
                Ok(_) => 1,
                Err(found) => {
                    *old = found;
                    0
                }
            }
        }

        symbols! {
            "rdx"; $load(_word: *const $int, _order: i32) -> $int = $load_part;
            "rcx"; $store(_word: *mut $int, _new: $int, _order: i32) -> () = $store_part;
            "rcx"; $exchange(_word: *mut $int, _new: $int, _order: i32) -> $int = $exchange_part;
            "r9"; $value(
                _word: *mut $int, _old: $int, _new: $int, _yes: i32, _no: i32
            ) -> $int = $value_part;
            "r9"; $strong(
                _word: *mut $int, _old: *mut $int, _new: $int, _yes: i32, _no: i32
            ) -> i32 = $flag_part;
            "r9"; $weak(
                _word: *mut $int, _old: *mut $int, _new: $int, _yes: i32, _no: i32
            ) -> i32 = $flag_part;
        }

        $(
            extern "C" fn $fetch_part(word: &$atomic, by: $int, _order: i32, pc: usize) -> $int {
                charge(word, $bytes, Kind::Rmw, pc);
                let act: fn(&$atomic, $int) -> $int = $act;
                act(word, by)
            }
            symbols! {
                "rcx"; $fetch(_word: *mut $int, _by: $int, _order: i32) -> $int = $fetch_part;
            }
        )*
    };
}

/// Makes symbols that put the return address into the named register and jump to their Rust part.
macro_rules! symbols {
    ($($register:literal; $name:ident($($argument:ident: $type:ty),*) -> $result:ty
       = $part:ident;)*) => { $(
        /// # Safety
        /// Called by instrumented code only, with addresses that are good for the operation.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            naked_asm!(concat!("mov ", $register, ", [rsp]"), "jmp {}", sym $part)
        }
    )* };
}

#[inline(always)]
fn charge<T>(word: &T, bytes: usize, kind: Kind, pc: usize) {
    if simulation::active() {
        simulation::access(std::ptr::from_ref(word) as usize, bytes, kind, pc);
    }
}

width! {
    u8, AtomicU8, 1;
    load __tsan_atomic8_load load8; store __tsan_atomic8_store store8;
    exchange __tsan_atomic8_exchange exchange8;
    value __tsan_atomic8_compare_exchange_val value8;
    strong __tsan_atomic8_compare_exchange_strong
    weak __tsan_atomic8_compare_exchange_weak flag8;
    __tsan_atomic8_fetch_add add8 |word, by| word.fetch_add(by, SeqCst);
    __tsan_atomic8_fetch_sub sub8 |word, by| word.fetch_sub(by, SeqCst);
    __tsan_atomic8_fetch_and and8 |word, by| word.fetch_and(by, SeqCst);
    __tsan_atomic8_fetch_or or8 |word, by| word.fetch_or(by, SeqCst);
    __tsan_atomic8_fetch_xor xor8 |word, by| word.fetch_xor(by, SeqCst);
    __tsan_atomic8_fetch_nand nand8 |word, by| word.fetch_nand(by, SeqCst);
}
width! {
    u16, AtomicU16, 2;
    load __tsan_atomic16_load load16; store __tsan_atomic16_store store16;
    exchange __tsan_atomic16_exchange exchange16;
    value __tsan_atomic16_compare_exchange_val value16;
    strong __tsan_atomic16_compare_exchange_strong
    weak __tsan_atomic16_compare_exchange_weak flag16;
    __tsan_atomic16_fetch_add add16 |word, by| word.fetch_add(by, SeqCst);
    __tsan_atomic16_fetch_sub sub16 |word, by| word.fetch_sub(by, SeqCst);
    __tsan_atomic16_fetch_and and16 |word, by| word.fetch_and(by, SeqCst);
    __tsan_atomic16_fetch_or or16 |word, by| word.fetch_or(by, SeqCst);
    __tsan_atomic16_fetch_xor xor16 |word, by| word.fetch_xor(by, SeqCst);
    __tsan_atomic16_fetch_nand nand16 |word, by| word.fetch_nand(by, SeqCst);
}
width! {
    u32, AtomicU32, 4;
    load __tsan_atomic32_load load32; store __tsan_atomic32_store store32;
    exchange __tsan_atomic32_exchange exchange32;
    value __tsan_atomic32_compare_exchange_val value32;
    strong __tsan_atomic32_compare_exchange_strong
    weak __tsan_atomic32_compare_exchange_weak flag32;
    __tsan_atomic32_fetch_add add32 |word, by| word.fetch_add(by, SeqCst);
    __tsan_atomic32_fetch_sub sub32 |word, by| word.fetch_sub(by, SeqCst);
    __tsan_atomic32_fetch_and and32 |word, by| word.fetch_and(by, SeqCst);
    __tsan_atomic32_fetch_or or32 |word, by| word.fetch_or(by, SeqCst);
    __tsan_atomic32_fetch_xor xor32 |word, by| word.fetch_xor(by, SeqCst);
    __tsan_atomic32_fetch_nand nand32 |word, by| word.fetch_nand(by, SeqCst);
}
width! {
    u64, AtomicU64, 8;
    load __tsan_atomic64_load load64; store __tsan_atomic64_store store64;
    exchange __tsan_atomic64_exchange exchange64;
    value __tsan_atomic64_compare_exchange_val value64;
    strong __tsan_atomic64_compare_exchange_strong
    weak __tsan_atomic64_compare_exchange_weak flag64;
    __tsan_atomic64_fetch_add add64 |word, by| word.fetch_add(by, SeqCst);
    __tsan_atomic64_fetch_sub sub64 |word, by| word.fetch_sub(by, SeqCst);
    __tsan_atomic64_fetch_and and64 |word, by| word.fetch_and(by, SeqCst);
    __tsan_atomic64_fetch_or or64 |word, by| word.fetch_or(by, SeqCst);
    __tsan_atomic64_fetch_xor xor64 |word, by| word.fetch_xor(by, SeqCst);
    __tsan_atomic64_fetch_nand nand64 |word, by| word.fetch_nand(by, SeqCst);
}

/// A fence between threads. It costs time if it is sequentially consistent; other fences are free.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn __tsan_atomic_thread_fence(order: i32) {
    if order == SEQ_CST && simulation::active() {
        simulation::fence();
    }
    fence(SeqCst);
}

/// A fence for the compiler only.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn __tsan_atomic_signal_fence(_order: i32) {}
