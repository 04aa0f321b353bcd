//! Values that are cheaper to compute again than to keep for every lane.

use super::kernel::Kernel;
use super::parse::{Id, Inst, Op, Operand};
use super::private::PrivateMemory;
use std::collections::{HashMap, HashSet};

/// Instructions that may be repeated for one value: about what a load and a store of a column cost.
const LANE_LIMIT: u32 = 10;
/// The same for values that all lanes share, which are computed once a region call.
const UNIFORM_LIMIT: u32 = 64;

/// Where a value's definition lies, and what it costs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recipe {
    pub(crate) block: usize,
    pub(crate) inst: usize,
    pub(crate) cost: u32,
    /// Whether all lanes of one region call compute the same.
    pub(crate) uniform: bool,
}

/// The values that can be computed from the arguments alone.
pub(crate) type Recipes = HashMap<Id, Recipe>;

/// Whether an instruction has no effect, cannot fail and costs little.
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

/// Whether `inst` reads a field of the group structure, or a variable of the program's scope: in Metal those are
/// constants, so that nothing writes either while the group runs.
fn reads_constant(inst: &Inst, kernel: &Kernel, fields: &HashSet<Id>) -> bool {
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

/// Finds all such values.
pub(crate) fn recipes(kernel: &Kernel, memory: &PrivateMemory) -> Recipes {
    let mut found: Recipes = HashMap::new();
    let mut fields: HashSet<Id> = HashSet::new();
    let arguments = kernel.arguments;
    // Definitions need not come before uses in the text: repeat until nothing new is found.
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
                let mut recipe = Recipe {
                    block,
                    inst: index,
                    cost: 1,
                    uniform: true,
                };
                let possible = uses.iter().all(|&id| {
                    if arguments.contains(id) {
                        recipe.uniform &= id != arguments.x && id != arguments.lane;
                        return true;
                    }
                    if let Some(root) = memory.alloca(id) {
                        recipe.uniform = false;
                        return memory.list[root].crosses;
                    }
                    found.get(&id).is_some_and(|inner| {
                        recipe.cost += inner.cost;
                        recipe.uniform &= inner.uniform;
                        true
                    })
                });
                let limit = if recipe.uniform {
                    UNIFORM_LIMIT
                } else {
                    LANE_LIMIT
                };
                if possible && recipe.cost <= limit {
                    found.insert(result, recipe);
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
