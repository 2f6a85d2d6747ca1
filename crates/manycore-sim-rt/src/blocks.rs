//! The cost of a basic block, from its instructions.
//!
//! This module owns a cache of costs by address. A block is decoded when it runs for the first
//! time. The machine model gives the rate of instructions and the cost of a `pause`. Calls cost
//! nothing here: the callee's blocks are charged themselves, and calls of the runtime are not the
//! program's. For each of those, the instruction that loads the argument is subtracted.
//!
//! The decoder also finds instructions that query the system, and instructions that access memory
//! without a callback. Both are replaced ([`crate::patch`]).
//!
//! Law blocks.K2: no such instruction runs before it is found. A block of LLVM's has one callback
//! but can become several blocks of machine code: code generation adds branches, for example for a
//! division of 64 bits. So the search does not end with a block's cost. It follows both ways of
//! each branch up to the next callback.

use std::collections::BTreeSet;

use iced_x86::{FlowControl, Instruction, Mnemonic};
use manycore_sim::Machine;

use crate::code::{Code, is_replaced, queries_system};

/// Slots of the cache, by the low bits of the address.
const SLOTS: usize = 1 << 16;
/// Maximal instructions of a block that are examined.
const LONGEST: usize = 400;
/// Jumps from one part of a block to the next that are followed.
const JUMPS: usize = 4;
/// Maximal instructions that are searched for replaceable ones, up to the next callbacks.
const FARTHEST: usize = 4000;

/// The costs of instructions in cycles.
#[derive(Clone, Copy)]
pub(crate) struct Prices {
    instructions_per_10_cycles: u32,
    pause: u32,
    division: u32,
    square_root: u32,
    vector: u32,
}

impl Prices {
    pub(crate) fn of(machine: &Machine) -> Self {
        Self {
            instructions_per_10_cycles: machine.instructions_per_10_cycles,
            pause: machine.pause,
            division: machine.division,
            square_root: machine.square_root,
            vector: machine.vector,
        }
    }

    /// Returns what an instruction costs beyond its part of the rate.
    fn on_top(&self, instruction: &Instruction) -> u32 {
        use Mnemonic::*;
        let wide = |operand| {
            let register = instruction.op_register(operand);
            register.is_ymm() || register.is_zmm()
        };
        let vector = if (0..instruction.op_count()).any(wide) { self.vector } else { 0 };
        vector
            + match instruction.mnemonic() {
                Div | Idiv | Divss | Divsd | Divps | Divpd | Vdivss | Vdivsd | Vdivps | Vdivpd => {
                    self.division
                }
                Sqrtss | Sqrtsd | Sqrtps | Sqrtpd | Vsqrtss | Vsqrtsd | Vsqrtps | Vsqrtpd => {
                    self.square_root
                }
                _ => 0,
            }
    }
}

/// The costs of blocks, in cycles.
pub(crate) struct Costs {
    slots: Vec<(usize, u32)>,
    prices: Prices,
    /// The function that a block calls at its beginning.
    callback: usize,
}

impl Costs {
    pub(crate) fn new(prices: Prices, callback: usize) -> Self {
        Self { slots: vec![(0, 0); SLOTS], prices, callback }
    }

    /// Returns the cost of the block at `pc`, if it is known.
    #[inline]
    pub(crate) fn known(&self, pc: usize) -> Option<u32> {
        let (address, cost) = self.slots[(pc ^ pc >> 16) % SLOTS];
        (address == pc).then_some(cost)
    }

    /// Returns the addresses of the blocks with known costs.
    pub(crate) fn addresses(&self) -> BTreeSet<usize> {
        self.slots.iter().map(|(address, _)| *address).filter(|address| *address != 0).collect()
    }

    /// Returns the instructions of the block at `pc`, each with true if it calls the runtime.
    pub(crate) fn instructions(&self, code: &mut Code, pc: usize) -> Vec<(Instruction, bool)> {
        let mut all = Vec::new();
        walk(code, pc, self.callback, |instruction| all.push((*instruction, false)));
        let ours = code.range(self.callback);
        for (instruction, is_ours) in &mut all {
            if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
                let target = callee(code, instruction);
                *is_ours = target.is_some_and(|target| code.range(target) == ours);
            }
        }
        all.retain(|(instruction, _)| !queries_system(instruction));
        all
    }

    /// Decodes the block at `pc` and keeps its cost. Calls `replace` for the instructions that must
    /// be replaced, the last one first.
    #[cold]
    pub(crate) fn learn(
        &mut self,
        code: &mut Code,
        pc: usize,
        mut replace: impl FnMut(&mut Code, &Instruction),
    ) -> u32 {
        let prices = self.prices;
        let (mut instructions, mut on_top) = (0_u32, 0_u32);
        walk(code, pc, self.callback, |instruction| match instruction.mnemonic() {
            Mnemonic::Pause => on_top += prices.pause,
            _ if queries_system(instruction) => {}
            Mnemonic::Call => instructions = instructions.saturating_sub(1),
            _ => {
                instructions += 1;
                on_top += prices.on_top(instruction);
            }
        });
        // Only now, because replaced instructions cannot be decoded any more.
        let ours = questions(code, pc, self.callback);
        ours.iter().rev().for_each(|instruction| replace(code, instruction));
        let cost = instructions * 10 / prices.instructions_per_10_cycles + on_top;
        self.slots[(pc ^ pc >> 16) % SLOTS] = (pc, cost);
        cost
    }
}

/// Visits the instructions that run from `pc` on, until control may go one of two ways or the next
/// block begins.
fn walk(code: &mut Code, pc: usize, callback: usize, mut visit: impl FnMut(&Instruction)) {
    let mut from = pc;
    for _ in 0..=JUMPS {
        let Some(target) = walk_straight(code, from, callback, &mut visit) else {
            return;
        };
        from = target;
    }
}

/// Returns the target of the unconditional jump that ends the straight run, if one does.
fn walk_straight(
    code: &mut Code,
    pc: usize,
    callback: usize,
    visit: &mut impl FnMut(&Instruction),
) -> Option<usize> {
    let mut address = pc;
    for _ in 0..LONGEST {
        let instruction = code.decode(address)?;
        match instruction.flow_control() {
            FlowControl::Next => {}
            _ if queries_system(&instruction) => {}
            FlowControl::Call | FlowControl::IndirectCall => {
                if callee(code, &instruction) == Some(callback) {
                    return None;
                }
            }
            FlowControl::UnconditionalBranch => {
                visit(&instruction);
                return Some(instruction.near_branch_target() as usize);
            }
            _ => {
                visit(&instruction);
                return None;
            }
        }
        visit(&instruction);
        address += instruction.len();
    }
    None
}

/// Returns the instructions to replace that may run before the next callback (blocks.K2), sorted by
/// address.
fn questions(code: &mut Code, pc: usize, callback: usize) -> Vec<Instruction> {
    let (mut seen, mut found, mut ways) = (BTreeSet::new(), Vec::new(), vec![pc]);
    while let Some(mut address) = ways.pop() {
        while seen.len() < FARTHEST && seen.insert(address) {
            let Some(instruction) = code.decode(address) else { break };
            address = instruction.next_ip() as usize;
            let target = || instruction.near_branch_target() as usize;
            match instruction.flow_control() {
                _ if is_replaced(&instruction) => found.push(instruction),
                FlowControl::Next => {}
                FlowControl::Call | FlowControl::IndirectCall => {
                    if callee(code, &instruction) == Some(callback) {
                        break;
                    }
                }
                FlowControl::ConditionalBranch => ways.push(target()),
                FlowControl::UnconditionalBranch => address = target(),
                _ => break,
            }
        }
    }
    found.sort_by_key(Instruction::ip);
    found
}

/// Returns the function that a call reaches directly or through one word of a table.
fn callee(code: &mut Code, call: &Instruction) -> Option<usize> {
    if call.flow_control() == FlowControl::IndirectCall {
        return by_table(code, call);
    }
    let target = call.near_branch_target() as usize;
    let first = code.decode(target)?;
    let jumps_on = first.flow_control() == FlowControl::IndirectBranch;
    if jumps_on { by_table(code, &first) } else { Some(target) }
}

/// Returns the target of an indirect call or jump through a word at a fixed place.
fn by_table(code: &mut Code, instruction: &Instruction) -> Option<usize> {
    let fixed = instruction.is_ip_rel_memory_operand();
    fixed.then(|| code.word(instruction.ip_rel_memory_address() as usize)).flatten()
}

#[cfg(test)]
mod tests {
    use std::arch::naked_asm;

    use super::*;

    /// One block of LLVM's: a division, to which code generation added a branch to its short form,
    /// and then a clock read.
    #[unsafe(naked)]
    extern "C" fn divides_and_reads() {
        naked_asm!(
            "mov rax, rdi",
            "or rax, rsi",
            "shr rax, 32",
            "je 2f",
            "mov rax, rdi",
            "div rsi",
            "jmp 3f",
            "2:",
            "mov eax, edi",
            "div esi",
            "3:",
            "rdtsc",
            "call {callback}",
            "rdtscp",
            "ret",
            callback = sym crate::callbacks::__sanitizer_cov_trace_pc,
        )
    }

    fn costs(machine: &Machine) -> Costs {
        Costs::new(Prices::of(machine), crate::callbacks::block_callback())
    }

    /// A division, a root, and an addition of 256 bits.
    #[unsafe(naked)]
    extern "C" fn divides_and_roots() {
        naked_asm!("div rsi", "sqrtsd xmm0, xmm1", "vaddpd ymm0, ymm0, ymm1", "nop", "ret")
    }

    #[test]
    fn divisions_roots_and_wide_vectors_cost_what_the_machine_says() {
        let start = divides_and_roots as *const () as usize;
        let cost = |machine: &Machine| costs(machine).learn(&mut Code::default(), start, |_, _| ());
        let mut machine = Machine::guessed("test");
        let plain = cost(&machine);
        for (name, dearer) in [("division", 18), ("square_root", 21), ("vector", 3)] {
            let before = cost(&machine);
            machine.set(name, &dearer.to_string(), "test").unwrap();
            assert_eq!(cost(&machine), before + dearer, "{name}");
        }
        assert_eq!(plain, 2, "five instructions, two a cycle");
    }

    /// The instruction of `fetch_max`, an exchange with memory, one of registers, and a fill.
    #[unsafe(naked)]
    extern "C" fn locks() {
        naked_asm!(
            "lock cmpxchg [rdi], rsi",
            "xchg [rdi], rsi",
            "xchg rax, rsi",
            "mov rax, rsi",
            "rep stosq",
            "ret"
        )
    }

    #[test]
    fn access_without_a_callback_is_found_before_it_runs() {
        let mut found = Vec::new();
        let start = locks as *const () as usize;
        let note = |_: &mut Code, it: &Instruction| found.push(it.mnemonic());
        let cost = costs(&Machine::guessed("test")).learn(&mut Code::default(), start, note);
        // The last one comes first.
        assert_eq!(found, [Mnemonic::Stosq, Mnemonic::Xchg, Mnemonic::Cmpxchg]);
        assert_eq!(cost, 3, "six instructions; the accesses are charged when they run");
    }

    #[test]
    fn what_follows_a_branch_within_a_block_is_found_before_it_runs() {
        let mut costs = costs(&Machine::guessed("test"));
        let mut found = Vec::new();
        let start = divides_and_reads as *const () as usize;
        let cost =
            costs.learn(&mut Code::default(), start, |_, question| found.push(question.mnemonic()));
        assert_eq!(found, [Mnemonic::Rdtsc], "the next block's is left to the next block");
        assert_eq!(cost, 2, "four instructions up to the branch");
    }
}
