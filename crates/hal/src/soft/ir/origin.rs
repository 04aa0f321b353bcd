//! Pointer provenance: the buffer or threadgroup variable that the pointer of an access is derived from.
//!
//! Pointers are traced back through address arithmetic, phis and selects to the argument or variable they are
//! derived from. An access outside of that memory is a defect whatever it hits.

use std::collections::HashMap;

use super::parse::{Id, Inst, IrFunction, Op, Operand};
use super::tsan::ACCESS_FN;
use super::types::Type;
use crate::soft::plan::Origin;

/// Mangled-name prefixes of the shim functions that return buffers and threadgroup arguments by index.
const BUFFER_OF: &str = "_ZN2sm9buffer_ofE";
const THREADGROUP_MEMORY_OF: &str = "_ZN2sm21threadgroup_memory_ofE";

/// Lattice value of each pointer: `None` means several or unknown origins, a missing entry not visited yet.
type OriginMap = HashMap<Id, Option<Origin>>;

/// Returns the origins of the accesses at each of `count` locations; `None` if accesses at one location differ.
pub(crate) fn of_accesses(function: &IrFunction, count: usize) -> Vec<Option<Origin>> {
    let known = of_pointers(function);
    let mut found: HashMap<usize, Option<Origin>> = HashMap::new();
    for inst in function.blocks.iter().flat_map(|block| &block.insts) {
        let Op::Call {
            callee: Some(name),
            arguments,
        } = &inst.op
        else {
            continue;
        };
        if name != ACCESS_FN {
            continue;
        }
        let [(_, pointer), .., (_, Operand::Constant(location))] = &arguments[..] else {
            continue;
        };
        let Ok(location) = location.parse::<usize>() else {
            continue;
        };
        let origin = match pointer {
            Operand::Local(id) => known.get(id).copied().flatten(),
            Operand::Constant(_) => None,
        };
        found
            .entry(location)
            .and_modify(|other| *other = (*other).filter(|known| Some(*known) == origin))
            .or_insert(origin);
    }
    // Location 0 is "unknown".
    let origin = |location: usize| found.get(&location).copied().flatten();
    let origins = (0..count).map(|location| origin(location).filter(|_| location > 0));
    if found.values().all(Option::is_none) {
        return Vec::new();
    }
    origins.collect()
}

fn of_pointers(function: &IrFunction) -> OriginMap {
    let mut known = OriginMap::new();
    let pointers = || {
        let insts = function.blocks.iter().flat_map(|block| &block.insts);
        insts.filter_map(|inst| Some((inst.result.filter(|_| inst.ty == Type::Ptr)?, inst)))
    };
    let mut changed = true;
    while changed {
        changed = false;
        for (result, inst) in pointers() {
            let Some(origin) = origin_of(inst, &known) else {
                continue;
            };
            changed |= known.insert(result, origin) != Some(origin);
        }
    }
    known
}

/// Returns the origin of a pointer as far as it is known; `None` while its operands have not been visited.
fn origin_of(inst: &Inst, known: &OriginMap) -> Option<Option<Origin>> {
    let of = |operand: &Operand| match operand {
        Operand::Local(id) => known.get(id).copied(),
        Operand::Constant(_) => Some(None),
    };
    match &inst.op {
        Op::Gep { base } => of(base),
        Op::Phi { incoming } => meet(incoming.iter().map(|(value, _)| of(value))),
        Op::Call {
            callee: Some(name),
            arguments,
        } => Some(origin_of_call(name, arguments)),
        Op::Other => match (inst.opcode.as_str(), &inst.uses()[..]) {
            ("bitcast" | "addrspacecast" | "freeze", &[from]) => of(&Operand::Local(from)),
            ("select", &[_, one, other]) => {
                meet([one, other].iter().map(|id| of(&Operand::Local(*id))))
            }
            _ => Some(None),
        },
        _ => Some(None),
    }
}

/// Returns the meet of several origins, ignoring those not visited yet.
fn meet(origins: impl Iterator<Item = Option<Option<Origin>>>) -> Option<Option<Origin>> {
    origins
        .flatten()
        .reduce(|one, other| one.filter(|origin| Some(*origin) == other))
}

/// Returns the memory that a shim function returns a pointer to.
fn origin_of_call(name: &str, arguments: &[(Type, Operand)]) -> Option<Origin> {
    let constant = |index: usize| match arguments.get(index) {
        Some((_, Operand::Constant(text))) => text.parse().ok(),
        _ => None,
    };
    if name == "sm_tgvar" {
        constant(0).map(Origin::Variable)
    } else if name.starts_with(BUFFER_OF) {
        constant(1).map(Origin::Buffer)
    } else if name.starts_with(THREADGROUP_MEMORY_OF) {
        constant(1).map(Origin::Argument)
    } else {
        None
    }
}
