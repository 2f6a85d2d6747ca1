//! The time of a basic block on a core that runs instructions out of order.
//!
//! This module owns the blocks in the form in which they are timed, and each thread's
//! [`Registers`]: when each register has its value. It is used for machines with a `window`. On
//! others a block costs its instructions at one rate ([`crate::blocks`]). `step` describes an
//! instruction for the model, and `branches` predicts directions.
//!
//! ```text
//! front --takes up instructions at the machine's rate, at most a window ahead of results-->
//!   |                                             ^ mispredicted branch: wait until its
//!   v                                             | inputs are known, plus `mispredict`
//! begin = when its inputs are ready --latency--> its outputs are ready
//! ```
//!
//! The core takes up instructions at the machine's rate. An instruction begins when the registers
//! that it reads have their values, and writes its own some cycles later. At most a window of
//! instructions is under way: the core stops when it is that far ahead of a result. After a taken
//! branch, the next instruction is taken up in another cycle. After a mispredicted branch, it is
//! taken up `mispredict` cycles after the branch's inputs are known.
//!
//! Instrumentation makes the program save registers around its callbacks. So moves to the stack and
//! back, and between registers, take no time but keep their dependences, as in processors that
//! rename both. The instruction that loads a callback's argument is left out.
//!
//! The model is approximate. A block is timed as a whole when it begins, and what follows a call is
//! timed before the callee. There is no limit on execution units. A load finds its line near
//! (misses are the engine's, and stop the core). Store-to-load forwarding is followed only on the
//! stack.

mod branches;
mod step;

use std::collections::HashMap;

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory};
use manycore_sim::Machine;

use self::branches::{Branches, History};
use self::step::{Prices, REGISTERS, Step};
use crate::hash::Fixed;

/// Fractions of a cycle in which the core's front counts.
const PARTS: u64 = 64;

/// Words of the stack with tracked values, by address.
const WORDS: usize = 64;

/// Blocks in the direct-mapped table, by the low bits of the address.
const NEAR: usize = 1 << 16;

/// Maximal bytes between a branch and the block after it: padding and the callback.
const NEXT: usize = 24;

/// Bytes that a copy or a fill moves in a cycle.
const COPIED: u64 = 32;

/// When each register of a thread has its value, in parts of a cycle since the start.
pub(crate) struct Registers {
    ready: [u64; REGISTERS],
    /// Words of the stack: their addresses, and when they have their values.
    words: [(usize, u64); WORDS],
    /// The time up to which the core has taken up instructions.
    front: u64,
    /// The branch at the end of the last block, if it has two ways.
    branch: Option<Branch>,
    /// The indirect call in the last block.
    call: Option<Branch>,
    /// The pending branches of the calling functions.
    callers: Vec<Option<Branch>>,
    history: History,
}

impl Default for Registers {
    fn default() -> Self {
        Self {
            ready: [0; REGISTERS],
            words: [(0, 0); WORDS],
            front: 0,
            branch: None,
            call: None,
            callers: Vec::new(),
            history: History::default(),
        }
    }
}

/// A branch with two ways.
#[derive(Clone, Copy)]
struct Branch {
    place: usize,
    /// The instruction after it.
    after: usize,
    /// When its inputs are known.
    known: u64,
}

#[derive(Default)]
struct Block {
    steps: Vec<Step>,
    /// The address after its last instruction.
    end: usize,
    /// The registers that the branch at its end reads, if it has two ways.
    branch: Option<Vec<u8>>,
    /// The registers that its indirect call reads.
    call: Option<Vec<u8>>,
}

/// The model of the cores, and the program's blocks in its form.
pub(crate) struct Pipeline {
    blocks: Vec<Block>,
    near: Vec<(usize, u32)>,
    far: HashMap<usize, u32, Fixed>,
    branches: Branches,
    prices: Prices,
    /// How far the core may be ahead of a result; below, the cost of a mispredicted branch. In
    /// fractions of a cycle.
    ahead: u64,
    mispredict: u64,
}

impl Registers {
    /// Enters a function. Its blocks come first, then the rest of the caller's.
    #[inline]
    fn enter(&mut self) {
        self.callers.push(self.branch.take());
    }

    #[inline]
    fn leave(&mut self) {
        self.branch = self.callers.pop().flatten();
    }

    #[inline]
    fn known(&self, registers: &[u8]) -> u64 {
        let ready = registers.iter().map(|register| self.ready[usize::from(*register)]);
        ready.max().unwrap_or(0)
    }

    /// Takes up one instruction. `stack` is the stack pointer.
    #[inline]
    fn take(&mut self, step: &Step, stack: usize, ahead: u64) {
        let mut begin = self.front.max(self.known(&step.reads));
        if let Some(offset) = step.load {
            let (address, place) = word(stack, offset);
            let (known, ready) = self.words[place];
            if known == address {
                begin = begin.max(ready);
            }
        }
        let done = begin + step.latency;
        for &register in &step.writes {
            self.ready[usize::from(register)] = done;
        }
        if let Some(offset) = step.store {
            let (address, place) = word(stack, offset);
            self.words[place] = (address, done);
        }
        self.front = (self.front + step.width).max(done.saturating_sub(ahead));
    }
}

/// Returns the address of a word of the stack, and its index in the table.
#[inline]
fn word(stack: usize, offset: isize) -> (usize, usize) {
    let address = stack.wrapping_add_signed(offset) & !7;
    (address, address / 8 % WORDS)
}

impl Pipeline {
    /// Returns the model of a machine's cores, or `None` if they run instructions at one rate.
    pub(crate) fn of(machine: &Machine) -> Option<Self> {
        let prices = Prices::of(machine);
        (machine.window > 0).then(|| Self {
            blocks: Vec::new(),
            near: vec![(0, 0); NEAR],
            far: HashMap::default(),
            branches: Branches::new(),
            prices,
            ahead: u64::from(machine.window) * prices.width,
            mispredict: u64::from(machine.mispredict) * PARTS,
        })
    }

    /// Returns the block at `pc`, if it is known.
    #[inline]
    pub(crate) fn known(&mut self, pc: usize) -> Option<u32> {
        let place = (pc ^ pc >> 16) % NEAR;
        let (address, block) = self.near[place];
        if address == pc {
            return Some(block);
        }
        let block = *self.far.get(&pc)?;
        self.near[place] = (pc, block);
        Some(block)
    }

    /// Learns the block at `pc` from its instructions. Each has true if it calls the runtime.
    pub(crate) fn learn(&mut self, pc: usize, code: &[(Instruction, bool)]) -> u32 {
        let mut info = InstructionInfoFactory::new();
        let mut block = Block { end: pc, ..Block::default() };
        for (place, (instruction, is_ours)) in code.iter().enumerate() {
            block.end = instruction.next_ip() as usize;
            if *is_ours {
                step::leave_argument_out(&mut block.steps);
                continue;
            }
            let before = place.checked_sub(1).map(|before| &code[before].0);
            let step = self.prices.step(&mut info, instruction, before);
            match instruction.flow_control() {
                FlowControl::ConditionalBranch | FlowControl::IndirectBranch => {
                    block.branch = Some(step.reads.clone());
                }
                FlowControl::IndirectCall => block.call = Some(step.reads.clone()),
                _ => {}
            }
            block.steps.push(step);
        }
        block.steps.retain(Step::matters);
        let number = u32::try_from(self.blocks.len()).expect("a program has fewer blocks");
        self.blocks.push(block);
        self.far.insert(pc, number);
        number
    }

    /// Takes up the block at `pc`. Returns for how many cycles from `now` on the core's front is
    /// busy. `stack` is the stack pointer there.
    pub(crate) fn run(
        &mut self,
        block: u32,
        pc: usize,
        stack: usize,
        now: u64,
        registers: &mut Registers,
    ) -> u64 {
        let now = now * PARTS;
        // The core waited for everything else that the engine charged.
        registers.front = registers.front.max(now);
        // If a call is pending, it led here, and the branch belongs to the caller.
        let came_by = registers.call.take().or_else(|| registers.branch.take());
        if let Some(branch) = came_by {
            self.went(branch, pc, registers);
        }
        let Block { steps, end, branch, call } = &self.blocks[block as usize];
        steps.iter().for_each(|step| registers.take(step, stack, self.ahead));
        let known = |reads: &Vec<u8>| registers.known(reads).max(registers.front);
        let to_two = |reads| Branch { place: pc, after: *end, known: known(reads) };
        // A call is not a branch of its block.
        let to_any = |reads| Branch { place: pc + 1, after: pc, known: known(reads) };
        (registers.branch, registers.call) =
            (branch.as_ref().map(to_two), call.as_ref().map(to_any));
        (registers.front - now) / PARTS
    }

    /// Handles a branch that went to the block at `pc`.
    fn went(&mut self, branch: Branch, pc: usize, registers: &mut Registers) {
        if !(branch.after..branch.after + NEXT).contains(&pc) {
            registers.front = registers.front.next_multiple_of(PARTS);
        }
        if !self.branches.is_foreseen(branch.place, pc, &mut registers.history) {
            registers.front = registers.front.max(branch.known) + self.mispredict;
        }
    }
}

/// Enters a function on a thread.
#[inline(always)]
pub(crate) fn enter(pipeline: &Option<Pipeline>, registers: &mut Registers) {
    if pipeline.is_some() {
        registers.enter();
    }
}

/// Leaves a function on a thread.
#[inline(always)]
pub(crate) fn leave(pipeline: &Option<Pipeline>, registers: &mut Registers) {
    if pipeline.is_some() {
        registers.leave();
    }
}

/// Returns the cycles of a copy or a fill of `bytes` bytes, without its misses.
pub(crate) fn copied(pipeline: &Option<Pipeline>, bytes: usize) -> u64 {
    if pipeline.is_some() { (bytes as u64).div_ceil(COPIED) } else { 0 }
}

#[cfg(test)]
mod tests {
    use std::arch::naked_asm;

    use super::*;
    use crate::{blocks, code::Code};

    /// Returns a core of four instructions a cycle, with a window of 80.
    fn machine() -> Machine {
        let mut machine = Machine::guessed("test");
        for (name, value) in [("instructions_per_10_cycles", "40"), ("window", "80"), ("hit", "0")]
        {
            machine.set(name, value, "test").unwrap();
        }
        machine.check().unwrap();
        machine
    }

    /// Returns the cycles that a block takes each time, when it runs again and again.
    fn cycles(block: unsafe extern "C" fn()) -> f64 {
        const TIMES: u64 = 1000;
        let pc = block as *const () as usize;
        let machine = machine();
        let mut pipeline = Pipeline::of(&machine).unwrap();
        let costs =
            blocks::Costs::new(blocks::Prices::of(&machine), crate::callbacks::block_callback());
        let code = costs.instructions(&mut Code::default(), pc);
        let (block, mut registers) = (pipeline.learn(pc, &code), Registers::default());
        let once = |now, _| now + pipeline.run(block, pc, 4096, now, &mut registers);
        (0..TIMES).fold(0, once) as f64 / TIMES as f64
    }

    /// Defines blocks of code with names.
    macro_rules! blocks {
        ($($name:ident $($line:literal)*;)*) => { $(
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                naked_asm!($($line,)* "call {}", sym crate::callbacks::__sanitizer_cov_trace_pc)
            }
        )* };
    }

    blocks! {
        in_a_chain "add rax, 1" "add rax, 1" "add rax, 1" "add rax, 1";
        apart "add rax, 1" "add rcx, 1" "add rdx, 1" "add rbx, 1";
        loads_in_a_chain "mov rax, [rax]" "mov rax, [rax]";
        loads_apart "mov rcx, [rax]" "mov rdx, [rax]" "mov rbx, [rax]" "mov rsi, [rax]";
        over_the_stack "mov [rsp + 8], rax" "mov rcx, [rsp + 8]" "mov rax, rcx" "add rax, 1";
        begins_anew "xor eax, eax" "add rax, 1" "add rax, 1" "add rax, 1";
        multiplies "imul rax, rcx";
    }

    #[test]
    fn what_waits_for_itself_takes_longer_than_what_does_not() {
        let near = |block, expected: f64| {
            let cycles = cycles(block);
            assert!((cycles / expected - 1.0).abs() < 0.05, "{cycles} instead of {expected}");
        };
        near(in_a_chain, 4.0);
        near(apart, 1.0);
        near(loads_in_a_chain, 8.0);
        near(loads_apart, 1.0);
        near(over_the_stack, 1.0);
        near(begins_anew, 1.0);
        near(multiplies, 3.0);
    }

    /// Lies in one mapping with the callbacks, as all of the runtime does.
    extern "C" fn runtime() {}

    /// A block that calls the runtime, with an argument.
    #[unsafe(naked)]
    unsafe extern "C" fn tells() {
        naked_asm!(
            "lea rdi, [rsi + 8]",
            "call {}",
            "add rsi, 1",
            "call {}",
            sym runtime,
            sym crate::callbacks::__sanitizer_cov_trace_pc
        )
    }

    #[test]
    fn callback_and_its_argument_take_no_time() {
        assert!((cycles(tells) - 1.0).abs() < 0.05, "the addition waits for itself");
    }

    #[test]
    fn branch_of_a_caller_waits_while_others_run() {
        let mut registers = Registers::default();
        let branch = Branch { place: 1, after: 2, known: 3 };
        registers.branch = Some(branch);
        registers.enter();
        assert!(registers.branch.is_none());
        registers.leave();
        assert_eq!(registers.branch.map(|branch| branch.place), Some(1));
        registers.leave();
        assert!(registers.branch.is_none(), "it left a function that began before the simulation");
    }

    #[test]
    fn machine_without_a_window_has_no_pipeline() {
        assert!(Pipeline::of(&Machine::guessed("test")).is_none());
    }
}
