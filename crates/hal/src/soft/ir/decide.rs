//! Branches that all lanes take the same way: decided once, before the lanes run.

use super::parse::{Id, Inst, Piece, Terminator};
use super::region::{Decisions, FIRST, Writer, strip_attachments};
use super::remat::is_cheap;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Branches decided at most, and with them versions of a region: 2 to this power.
const MAX_DECISIONS: usize = 2;

impl<'a> Writer<'a> {
    /// Whether the column of `id` holds the same for all lanes when the region starts.
    pub(super) fn is_shared(&self, id: Id) -> bool {
        self.a.parallel
            && self.number > 0
            && self.a.columns.crossing[self.number - 1].contains(&id)
            && self
                .a
                .uniformity
                .agrees(self.a.site_blocks[self.number - 1], id)
    }

    /// Whether `id`, used in `block`, can be computed before the lanes run.
    fn is_decidable(&self, id: Id, block: usize, depth: usize) -> bool {
        let arguments = self.a.kernel.arguments;
        if arguments.contains(id) {
            return id != arguments.x && id != arguments.lane;
        }
        if let Some(recipe) = self.a.recipes.get(&id) {
            return recipe.uniform;
        }
        let Some((at, inst)) = self.definition(id) else {
            return self.is_shared(id);
        };
        if self.is_shared(id) {
            return !self.reaches(at, block);
        }
        // Its operands are used where it stands.
        depth < 8
            && is_cheap(inst)
            && inst
                .uses()
                .iter()
                .all(|operand| self.is_decidable(*operand, at, depth + 1))
    }

    /// Where the region defines `id`.
    fn definition(&self, id: Id) -> Option<(usize, &'a Inst)> {
        if !self.defined.contains(id) {
            return None;
        }
        let kernel = self.a.kernel;
        self.blocks.iter().find_map(|&block| {
            let inst = kernel.blocks[block]
                .insts
                .iter()
                .find(|inst| inst.result == Some(id))?;
            Some((block, inst))
        })
    }

    /// Whether the region can get from `from` to `to`, or both are the same.
    fn reaches(&self, from: usize, to: usize) -> bool {
        self.a.kernel.region(from, &self.decisions).contains(&to)
    }

    /// The first branch that can be decided: its block, its condition and where it goes.
    pub(super) fn undecided(&self) -> Option<(usize, Id, [usize; 2])> {
        if !self.a.parallel || self.decisions.len() >= MAX_DECISIONS {
            return None;
        }
        let kernel = self.a.kernel;
        self.blocks.iter().find_map(|&block| {
            let Terminator::Jump { pieces, targets } = &kernel.blocks[block].end else {
                return None;
            };
            let [Piece::Text(opcode), Piece::Local(condition), ..] = &pieces[..] else {
                return None;
            };
            let [yes, no] = targets[..] else { return None };
            let ways = [*kernel.by_label.get(&yes)?, *kernel.by_label.get(&no)?];
            let open = opcode.trim() == "br i1"
                && ways[0] != ways[1]
                && !self.decisions.contains_key(&block);
            (open && self.is_decidable(*condition, block, 0)).then_some((block, *condition, ways))
        })
    }

    /// Writes the decisions that lead to each version, and calls `version` for its decisions and number.
    pub(super) fn decide(
        &mut self,
        decisions: Decisions,
        known: &BTreeMap<Id, String>,
        versions: &mut usize,
        version: &mut impl FnMut(Decisions, usize),
    ) {
        let view = Writer::new(self.a, self.number, decisions.clone());
        let Some((block, condition, ways)) = view.undecided() else {
            self.line(&format!(
                "tail call void @sm_region_{}.{versions}(ptr %g, ptr %ctx, i32 %base, i32 %x0, i32 %x1, i32 %y, i32 %z)",
                self.number
            ));
            self.line("ret void");
            version(decisions, *versions);
            *versions += 1;
            return;
        };
        let mut known = known.clone();
        let name = self.compute(condition, &view, &mut known);
        let label = self.temporary();
        self.line(&format!(
            "br i1 {name}, label {label}.yes, label {label}.no"
        ));
        for (way, suffix) in ways.into_iter().zip(["yes", "no"]) {
            let _ = writeln!(self.out, "{}.{suffix}:", &label[1..]);
            let mut decisions = decisions.clone();
            decisions.insert(block, way);
            self.decide(decisions, &known, versions, version);
        }
    }

    /// Computes a decidable value before the lanes run.
    fn compute(&mut self, id: Id, view: &Writer<'_>, known: &mut BTreeMap<Id, String>) -> String {
        if self.a.kernel.arguments.contains(id) {
            return self.name(id);
        }
        if let Some(name) = known.get(&id) {
            return name.clone();
        }
        let name = self.temporary();
        let inst = match self.a.recipes.get(&id) {
            Some(recipe) => Some(&self.a.kernel.blocks[recipe.block].insts[recipe.inst]),
            None => view.definition(id).map(|(_, inst)| inst),
        };
        match inst {
            Some(inst) if !self.is_shared(id) => {
                let mut text = String::new();
                for piece in &inst.pieces {
                    match piece {
                        Piece::Text(part) => text.push_str(part),
                        Piece::Local(operand) => {
                            text.push_str(&self.compute(*operand, view, known))
                        }
                    }
                }
                self.line(&format!("{name} = {}", strip_attachments(&text)));
            }
            _ => {
                let place = self.a.columns.values[&id].clone();
                let ty = self.type_of(id);
                self.load(&place, &name, &ty, FIRST);
            }
        }
        known.insert(id, name.clone());
        name
    }
}
