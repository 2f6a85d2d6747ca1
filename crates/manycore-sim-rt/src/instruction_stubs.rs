//! The routines that the stubs of [`crate::patch`] call. In assembly, because they preserve all
//! registers except those that the replaced instruction writes.

use std::arch::naked_asm;
use std::ffi::{c_int, c_void};

use iced_x86::{Mnemonic, OpKind, Register};

use crate::patch::{Context, Targets};
use crate::{calls, diagnostics, simulation};

/// The routines behind replaced instructions.
pub(crate) const TARGETS: Targets = Targets { routine, tells, at_breakpoint };

/// Returns the routine for a replaced instruction.
fn routine(instruction: Mnemonic) -> usize {
    match instruction {
        Mnemonic::Rdtsc => read_alone as *const () as usize,
        Mnemonic::Rdtscp => read_with_core as *const () as usize,
        Mnemonic::Cpuid => identify as *const () as usize,
        _ => enter_kernel as *const () as usize,
    }
}

fn tells() -> usize {
    tell as *const () as usize
}

/// The result of a read of the clock.
#[repr(C)]
struct Reading {
    ticks: u64,
    core: u64,
}

extern "C" fn reading() -> Reading {
    let (ticks, core) = simulation::clock_reading();
    Reading { ticks, core }
}

extern "C" fn identity(leaf: u32, subleaf: u32, answer: &mut [u32; 4]) {
    *answer = simulation::identity(leaf, subleaf);
}

/// A system call's registers, as `enter_kernel` pushes them.
#[repr(C)]
struct Call {
    r10: usize,
    r9: usize,
    r8: usize,
    rdi: usize,
    rsi: usize,
    rdx: usize,
    number: usize,
}

/// The answer of a system call, or a request that the kernel gives it.
#[repr(C)]
struct Answer {
    value: isize,
    is_known: u64,
}

extern "C" fn answer(call: &Call) -> Answer {
    let arguments = [call.rdi, call.rsi, call.rdx, call.r10, call.r8, call.r9];
    // SAFETY: the program's own call, with its own promises.
    let known = unsafe { calls::virtual_call(call.number, arguments) };
    let value = known.unwrap_or(call.number as isize);
    Answer { value, is_known: u64::from(known.is_some()) }
}

/// The routines for reads of the clock.
macro_rules! read {
    ($(#[$doc:meta])* $name:ident, $core:literal) => {
        $(#[$doc])*
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                "pushfq",
                "push rcx",
                "push rsi",
                "push rdi",
                "push r8",
                "push r9",
                "push r10",
                "push r11",
                "push rbp",
                "mov rbp, rsp",
                "sub rsp, 512",
                "and rsp, -64",
                "fxsave [rsp]",
                "cld",
                "call {reading}",
                "fxrstor [rsp]",
                "mov rsp, rbp",
                $core,
                "mov rdx, rax",
                "shr rdx, 32",
                "mov eax, eax",
                "pop rbp",
                "pop r11",
                "pop r10",
                "pop r9",
                "pop r8",
                "pop rdi",
                "pop rsi",
                "pop rcx",
                "popfq",
                "ret",
                reading = sym reading,
            )
        }
    };
}

read! {
    /// For `rdtsc`.
    read_alone, ""
}
read! {
    /// For `rdtscp`, which also returns the core in rcx: seven words above the frame.
    read_with_core, "mov [rbp + 56], rdx"
}

/// For `cpuid`, which writes rax, rbx, rcx and rdx.
#[unsafe(naked)]
unsafe extern "C" fn identify() {
    naked_asm!(
        "pushfq",
        "push rsi",
        "push rdi",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "push rbp",
        "mov rbp, rsp",
        "sub rsp, 576",
        "and rsp, -64",
        "fxsave [rsp]",
        "mov edi, eax",
        "mov esi, ecx",
        "lea rdx, [rsp + 512]",
        "cld",
        "call {identity}",
        "fxrstor [rsp]",
        "mov eax, [rsp + 512]",
        "mov ebx, [rsp + 516]",
        "mov ecx, [rsp + 520]",
        "mov edx, [rsp + 524]",
        "mov rsp, rbp",
        "pop rbp",
        "pop r11",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rdi",
        "pop rsi",
        "popfq",
        "ret",
        identity = sym identity,
    )
}

/// For `syscall`, which writes rax, rcx and r11: rcx says whether the answer is in rax.
#[unsafe(naked)]
unsafe extern "C" fn enter_kernel() {
    naked_asm!(
        "pushfq",
        "push rbp",
        "push rax",
        "push rdx",
        "push rsi",
        "push rdi",
        "push r8",
        "push r9",
        "push r10",
        "mov rbp, rsp",
        "mov rdi, rsp",
        "sub rsp, 512",
        "and rsp, -64",
        "fxsave [rsp]",
        "cld",
        "call {answer}",
        "fxrstor [rsp]",
        "mov rsp, rbp",
        "mov rcx, rdx",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "lea rsp, [rsp + 8]",
        "pop rbp",
        "popfq",
        "ret",
        answer = sym answer,
    )
}

/// The general registers as `tell` pushes them, by number, and the return address.
#[repr(C)]
struct General {
    registers: [u64; 16],
    flags: u64,
    in_stub: usize,
}

extern "C" fn told(general: &General) {
    if !simulation::active() {
        return;
    }
    let instruction = simulation::with(|sim| sim.patches.told(general.in_stub));
    let value = |register: Register, _, _| match register {
        // The call and the step over the red zone lie between.
        Register::RSP => Some(general as *const _ as u64 + size_of::<General>() as u64 + 128),
        Register::FS => Some(crate::switch::thread_pointer() as u64),
        Register::CS | Register::DS | Register::ES | Register::SS => Some(0),
        general_one => {
            let number = general_one.full_register() as usize - Register::RAX as usize;
            general.registers.get(number).copied()
        }
    };
    let address = |operand| instruction.virtual_address(operand, 0, value).unwrap_or(0) as usize;
    let at = instruction.ip() as usize;
    let size = instruction.memory_size().size();
    if instruction.is_string_instruction() {
        let count = general.registers[Register::RCX as usize - Register::RAX as usize] as usize;
        let bytes = size.saturating_mul(count);
        let is_copy = instruction.op1_kind() != OpKind::Register;
        if is_copy && bytes > 0 {
            simulation::access(address(1), bytes, simulation::Kind::Read, at);
        }
        if bytes > 0 {
            simulation::access(address(0), bytes, simulation::Kind::Write, at);
        }
        return;
    }
    let in_memory = |operand: &u32| instruction.op_kind(*operand) == OpKind::Memory;
    if let Some(operand) = (0..instruction.op_count()).find(in_memory) {
        simulation::access(address(operand), size, simulation::Kind::Rmw, at);
    }
}

/// For an access without a callback. Preserves all registers.
#[unsafe(naked)]
unsafe extern "C" fn tell() {
    naked_asm!(
        "pushfq",
        "push r15",
        "push r14",
        "push r13",
        "push r12",
        "push r11",
        "push r10",
        "push r9",
        "push r8",
        "push rdi",
        "push rsi",
        "push rbp",
        "push rsp",
        "push rbx",
        "push rdx",
        "push rcx",
        "push rax",
        "mov rbx, rsp",
        "mov rdi, rsp",
        "sub rsp, 512",
        "and rsp, -64",
        "fxsave [rsp]",
        "cld",
        "call {told}",
        "fxrstor [rsp]",
        "mov rsp, rbx",
        "pop rax",
        "pop rcx",
        "pop rdx",
        "pop rbx",
        "lea rsp, [rsp + 8]",
        "pop rbp",
        "pop rsi",
        "pop rdi",
        "pop r8",
        "pop r9",
        "pop r10",
        "pop r11",
        "pop r12",
        "pop r13",
        "pop r14",
        "pop r15",
        "popfq",
        "ret",
        told = sym told,
    )
}

/// The instruction pointer in [`Context::registers`].
const RIP: usize = 16;

/// Makes a breakpoint of ours continue at its stub.
extern "C" fn at_breakpoint(_: c_int, _: *mut c_void, context: *mut Context) {
    // SAFETY: the kernel gives the context of the interrupted thread.
    let at = unsafe { &mut (*context).registers[RIP] };
    let site = (*at as usize).wrapping_sub(1);
    // threads.S1; also, the program's code never interrupts `with`.
    let stub = simulation::with(|sim| sim.patches.behind_trap(site));
    match stub {
        Some(stub) => *at = stub as u64,
        None => diagnostics::fatal(format_args!("a breakpoint at {site:#x} is not ours")),
    }
}
