//! Which buffer or threadgroup variable the pointer of an access comes from.
//!
//! Pointers are followed back through address arithmetic and joins to the argument or variable that they were made from. An
//! access outside of it is wrong wherever it lands.

use super::check::ACCESS;
use super::parse::{Function, Id, Inst, Op, Operand};
use super::types::Type;
use crate::soft::plan::Origin;
use std::collections::HashMap;

/// Mangled beginnings of the shim's functions that give buffers and threadgroup arguments by index.
const BUFFER_OF: &str = "_ZN2sm9buffer_ofE";
const THREADGROUP_MEMORY_OF: &str = "_ZN2sm21threadgroup_memory_ofE";

/// What is known of each pointer; `None` is "may be of several, or of none". Missing is "not seen yet".
type Known = HashMap<Id, Option<Origin>>;

/// The origins of the accesses at each of `count` locations; `None` where accesses of one location differ.
pub(crate) fn of_accesses(function: &Function, count: usize) -> Vec<Option<Origin>> {
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
        if name != ACCESS {
            continue;
        }
        let [(_, pointer), .., (_, Operand::Constant(place))] = &arguments[..] else {
            continue;
        };
        let Ok(place) = place.parse::<usize>() else {
            continue;
        };
        let origin = match pointer {
            Operand::Local(id) => known.get(id).copied().flatten(),
            Operand::Constant(_) => None,
        };
        found
            .entry(place)
            .and_modify(|other| *other = (*other).filter(|known| Some(*known) == origin))
            .or_insert(origin);
    }
    // Location 0 is no place.
    let origin = |place: usize| found.get(&place).copied().flatten();
    let origins = (0..count).map(|place| origin(place).filter(|_| place > 0));
    if found.values().all(Option::is_none) {
        return Vec::new();
    }
    origins.collect()
}

fn of_pointers(function: &Function) -> Known {
    let mut known = Known::new();
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

/// The origin of a pointer as far as it is known now; nothing while what it comes from has not been seen.
fn origin_of(inst: &Inst, known: &Known) -> Option<Option<Origin>> {
    let of = |operand: &Operand| match operand {
        Operand::Local(id) => known.get(id).copied(),
        Operand::Constant(_) => Some(None),
    };
    match &inst.op {
        Op::Gep { base } => of(base),
        Op::Phi { incoming } => join(incoming.iter().map(|(value, _)| of(value))),
        Op::Call {
            callee: Some(name),
            arguments,
        } => Some(made_by(name, arguments)),
        Op::Other => match (inst.opcode.as_str(), &inst.uses()[..]) {
            ("bitcast" | "addrspacecast" | "freeze", &[from]) => of(&Operand::Local(from)),
            ("select", &[_, one, other]) => {
                join([one, other].iter().map(|id| of(&Operand::Local(*id))))
            }
            _ => Some(None),
        },
        _ => Some(None),
    }
}

/// What several pointers have in common; those not seen yet may still agree.
fn join(origins: impl Iterator<Item = Option<Option<Origin>>>) -> Option<Option<Origin>> {
    origins
        .flatten()
        .reduce(|one, other| one.filter(|origin| Some(*origin) == other))
}

/// The memory that a function of the shim gives a pointer to.
fn made_by(name: &str, arguments: &[(Type, Operand)]) -> Option<Origin> {
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
