//! Rematerialization: values that are cheaper to recompute than to spill per lane.

use std::collections::{HashMap, HashSet};

use super::kernel::KernelFunction;
use super::parse::{Id, Inst, Op, Operand};
use super::private_memory::PrivateMemory;

/// Maximum cost of a rematerialized value in instructions: about that of a load and a store of a column.
const MAX_LANE_INSTRUCTIONS: u32 = 10;
/// The same limit for uniform values, which are computed once per region call.
const MAX_UNIFORM_INSTRUCTIONS: u32 = 64;

/// Definition of a rematerializable value, and its cost in instructions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Remat {
    pub(crate) block: usize,
    pub(crate) inst: usize,
    pub(crate) cost: u32,
    /// Whether all lanes of a region call compute the same value.
    pub(crate) uniform: bool,
}

/// The values that can be computed from the arguments alone.
pub(crate) type Remats = HashMap<Id, Remat>;

/// Returns whether an instruction has no side effects, cannot trap and is cheap.
pub(crate) fn is_cheap(inst: &Inst) -> bool {
    match inst.opcode.as_str() {
        "add" | "sub" | "mul" | "shl" | "lshr" | "ashr" | "and" | "or" | "xor" | "icmp"
        | "fcmp" | "select" | "trunc" | "zext" | "sext" | "fptrunc" | "fpext" | "uitofp"
        | "sitofp" | "ptrtoint" | "inttoptr" | "bitcast" | "fadd" | "fsub" | "fmul" | "fneg"
        | "getelementptr" => true,
        "call" => matches!(&inst.op, Op::Call { callee: Some(name), .. }
            if ["llvm.umin.", "llvm.umax.", "llvm.smin.", "llvm.smax.", "llvm.abs."].iter().any(|p| name.starts_with(p))),
        _ => false,
    }
}

/// Returns whether `inst` reads a field of the group descriptor or a program-scope variable. In Metal those are
/// constants, so nothing writes to either while the group runs.
fn reads_constant(inst: &Inst, kernel: &KernelFunction, fields: &HashSet<Id>) -> bool {
    match &inst.op {
        Op::Load {
            pointer: Operand::Local(id),
            plain: true,
        } => *id == kernel.arguments.g || fields.contains(id),
        Op::Load {
            pointer: Operand::Constant(text),
            plain: true,
        } => text.starts_with('@'),
        _ => false,
    }
}

/// Finds all rematerializable values.
pub(crate) fn rematerializable(kernel: &KernelFunction, memory: &PrivateMemory) -> Remats {
    let mut found: Remats = HashMap::new();
    let mut fields: HashSet<Id> = HashSet::new();
    let arguments = kernel.arguments;
    // Definitions need not precede uses in the text: iterate to a fixpoint.
    loop {
        let before = found.len();
        for (block, content) in kernel.blocks.iter().enumerate() {
            for (index, inst) in content.insts.iter().enumerate() {
                let Some(result) = inst.result.filter(|id| !found.contains_key(id)) else {
                    continue;
                };
                let uses = inst.uses();
                let is_field = matches!(inst.op, Op::Gep { base: Operand::Local(id) } if id == arguments.g)
                    && uses == [arguments.g];
                if !is_cheap(inst) && !reads_constant(inst, kernel, &fields) {
                    continue;
                }
                let mut remat = Remat {
                    block,
                    inst: index,
                    cost: 1,
                    uniform: true,
                };
                let possible = uses.iter().all(|&id| {
                    if arguments.contains(id) {
                        remat.uniform &= id != arguments.x && id != arguments.lane;
                        return true;
                    }
                    if let Some(root) = memory.alloca(id) {
                        remat.uniform = false;
                        return memory.list[root].crosses;
                    }
                    found.get(&id).is_some_and(|inner| {
                        remat.cost += inner.cost;
                        remat.uniform &= inner.uniform;
                        true
                    })
                });
                let limit = if remat.uniform {
                    MAX_UNIFORM_INSTRUCTIONS
                } else {
                    MAX_LANE_INSTRUCTIONS
                };
                if possible && remat.cost <= limit {
                    found.insert(result, remat);
                    if is_field {
                        fields.insert(result);
                    }
                }
            }
        }
        if found.len() == before {
            return found;
        }
    }
}
