//! An instruction in the form of the out-of-order model: its inputs, its outputs, and its times.

use iced_x86::{
    ConditionCode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};
use manycore_sim::Machine;

use super::PARTS;

/// General registers, vector registers, and the flags.
pub(super) const REGISTERS: usize = 33;
const VECTORS: u8 = 16;
const FLAGS: u8 = 32;

/// An instruction.
#[derive(Default)]
pub(super) struct Step {
    pub(super) reads: Vec<u8>,
    pub(super) writes: Vec<u8>,
    /// The offset from the stack pointer of a word of the stack that it reads; below, that it
    /// writes.
    pub(super) load: Option<isize>,
    pub(super) store: Option<isize>,
    /// Time from its beginning to its result, in fractions of a cycle.
    pub(super) latency: u64,
    /// Time for which the front is busy with it, in fractions of a cycle.
    pub(super) width: u64,
}

impl Step {
    /// Returns true if it takes time, or passes on when something has its value.
    pub(super) fn matters(&self) -> bool {
        self.width > 0 || !self.writes.is_empty() || self.store.is_some()
    }

    /// Notes its inputs and outputs.
    fn note(&mut self, info: &iced_x86::InstructionInfo, instruction: &Instruction) {
        let add = |list: &mut Vec<u8>, register| {
            if !list.contains(&register) {
                list.push(register);
            }
        };
        for used in info.used_registers() {
            let Some(register) = number(used.register()) else { continue };
            if is_read(used.access()) {
                add(&mut self.reads, register);
            }
            if is_written(used.access()) {
                add(&mut self.writes, register);
            }
        }
        if instruction.rflags_read() != 0 {
            self.reads.push(FLAGS);
        }
        if instruction.rflags_modified() != 0 {
            self.writes.push(FLAGS);
        }
        for used in info.used_memory() {
            let is_stack = used.base() == Register::RSP && used.index() == Register::None;
            let word = is_stack.then(|| used.displacement() as isize);
            if is_read(used.access()) {
                self.load = word;
            }
            if is_written(used.access()) {
                self.store = word;
            }
        }
    }
}

fn is_read(access: OpAccess) -> bool {
    use OpAccess::*;
    matches!(access, Read | CondRead | ReadWrite | ReadCondWrite)
}

fn is_written(access: OpAccess) -> bool {
    use OpAccess::*;
    matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
}

/// Returns the number of a register, if its value is tracked.
fn number(register: Register) -> Option<u8> {
    let full = register.full_register();
    if full.is_gpr64() {
        return (full != Register::RSP).then(|| full as u8 - Register::RAX as u8);
    }
    let vector = full.is_zmm().then(|| full as u32 - Register::ZMM0 as u32)?;
    (vector < u32::from(FLAGS - VECTORS)).then(|| VECTORS + vector as u8)
}

/// Removes the last step that writes `rdi`, a callback's first argument.
pub(super) fn leave_argument_out(steps: &mut Vec<Step>) {
    let argument = number(Register::RDI).expect("its value is followed");
    if let Some(place) = steps.iter().rposition(|step| step.writes.contains(&argument)) {
        steps.remove(place);
    }
}

/// A machine's parameters, in fractions of a cycle.
#[derive(Clone, Copy)]
pub(super) struct Prices {
    /// Time for which an instruction keeps the front busy.
    pub(super) width: u64,
    load: u64,
    pause: u64,
    division: u64,
    square_root: u64,
    vector: u64,
}

impl Prices {
    pub(super) fn of(machine: &Machine) -> Self {
        let cycles = |cycles: u32| u64::from(cycles) * PARTS;
        Self {
            width: (10 * PARTS / u64::from(machine.instructions_per_10_cycles)).max(1),
            load: cycles(machine.load),
            pause: cycles(machine.pause),
            division: cycles(machine.division),
            square_root: cycles(machine.square_root),
            vector: cycles(machine.vector),
        }
    }

    /// Returns the step of an instruction. `before` is the instruction before it.
    pub(super) fn step(
        &self,
        factory: &mut InstructionInfoFactory,
        instruction: &Instruction,
        before: Option<&Instruction>,
    ) -> Step {
        let info = factory.info(instruction);
        let mut step = Step { width: self.width, ..Step::default() };
        step.note(info, instruction);
        let loads = info.used_memory().iter().any(|used| is_read(used.access()));
        let loads_elsewhere = loads && step.load.is_none();
        let moves = is_move(instruction);
        let is_renamed =
            step.load.is_some() || step.store.is_some() || !goes_to_memory(instruction);
        if moves && !loads_elsewhere && is_renamed || instruction.mnemonic() == Mnemonic::Nop {
            step.width = 0;
            return step;
        }
        if is_fused(instruction, before) {
            step.width = 0;
        }
        if clears(instruction) {
            step.reads.clear();
            return step;
        }
        step.latency = if moves { 0 } else { latency(instruction) * PARTS };
        step.latency += if loads_elsewhere { self.load } else { 0 };
        let (busy, longer) = self.on_top(instruction);
        step.width += busy;
        step.latency += longer;
        step
    }

    /// Returns for how much longer an instruction keeps the front busy, and how much longer its
    /// result takes.
    fn on_top(&self, instruction: &Instruction) -> (u64, u64) {
        use Mnemonic::*;
        let wide = |operand| {
            let register = instruction.op_register(operand);
            register.is_ymm() || register.is_zmm()
        };
        let vector = if (0..instruction.op_count()).any(wide) { self.vector } else { 0 };
        let (busy, longer) = match instruction.mnemonic() {
            Pause => (self.pause, 0),
            Div | Idiv | Divss | Divsd | Divps | Divpd | Vdivss | Vdivsd | Vdivps | Vdivpd => {
                (self.division / 2, self.division)
            }
            Sqrtss | Sqrtsd | Sqrtps | Sqrtpd | Vsqrtss | Vsqrtsd | Vsqrtps | Vsqrtpd => {
                (self.square_root / 2, self.square_root)
            }
            // The front takes up one of these in a cycle.
            Call | Ret => (PARTS.saturating_sub(self.width), 0),
            _ => (0, 0),
        };
        (busy + vector, longer)
    }
}

/// Returns true if it moves a value unchanged.
fn is_move(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    let between_kinds = || {
        let kind = |operand| instruction.op_register(operand).is_gpr();
        !goes_to_memory(instruction) && instruction.op_count() == 2 && kind(0) != kind(1)
    };
    match instruction.mnemonic() {
        Mov | Push | Pop | Movaps | Movups | Movapd | Movupd | Movdqa | Movdqu | Movsd | Movss
        | Vmovaps | Vmovups | Vmovapd | Vmovupd | Vmovdqa | Vmovdqu | Vmovsd | Vmovss => true,
        Movq | Vmovq => !between_kinds(),
        _ => false,
    }
}

/// Returns true if an operand is in memory or in the instruction.
fn goes_to_memory(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) != OpKind::Register)
}

/// Returns true if a conditional branch is fused with the comparison before it.
fn is_fused(instruction: &Instruction, before: Option<&Instruction>) -> bool {
    use Mnemonic::*;
    let compares = |one: &Instruction| {
        matches!(one.mnemonic(), Cmp | Test | Add | Sub | And | Inc | Dec | Or | Xor)
    };
    instruction.flow_control() == FlowControl::ConditionalBranch && before.is_some_and(compares)
}

/// Returns true if the result is 0 whatever the registers hold.
fn clears(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    let same = |a, b| instruction.op_register(a) == instruction.op_register(b);
    let of_two = matches!(instruction.mnemonic(), Xor | Sub | Pxor | Xorps | Xorpd);
    let of_three = matches!(instruction.mnemonic(), Vpxor | Vxorps | Vxorpd);
    !goes_to_memory(instruction) && (of_two && same(0, 1) || of_three && same(1, 2))
}

/// Returns the cycles from an instruction's operands to its result, without memory. These are round
/// values of current x86-64 processors, which differ by a cycle or two. None is measured here.
fn latency(instruction: &Instruction) -> u64 {
    use Mnemonic::*;
    if instruction.condition_code() != ConditionCode::None {
        return 1;
    }
    match instruction.mnemonic() {
        Imul | Mul | Mulx | Bsf | Bsr | Crc32 | Pdep | Pext => 3,
        Addss | Addsd | Addps | Addpd | Subss | Subsd | Subps | Subpd | Vaddss | Vaddsd
        | Vaddps | Vaddpd | Vsubss | Vsubsd | Vsubps | Vsubpd | Mulss | Mulsd | Mulps | Mulpd
        | Vmulss | Vmulsd | Vmulps | Vmulpd | Cvtsi2sd | Cvtsi2ss | Cvttsd2si | Cvtsd2ss
        | Cvtss2sd | Pmuludq | Pmulld | Vpmuludq | Vpmulld | Movd | Movq | Vmovd | Vmovq
        | Movmskpd | Pmovmskb | Comisd | Ucomisd | Comiss | Ucomiss => 4,
        _ => 1,
    }
}
