//! Loop unswitching of the lane loop: uniform branches are evaluated once, before the lanes run.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::parse::{Fragment, Id, Inst, Terminator};
use super::region::{FIRST_LANE_INDEX, RegionWriter, Unswitched, strip_attachments};
use super::remat::is_cheap;

/// Maximum number of unswitched branches; a region has up to 2 to this power versions.
const MAX_UNSWITCHED_BRANCHES: usize = 2;

/// Maximum depth of the expression that a hoisted condition is computed from.
const MAX_HOISTED_DEPTH: usize = 8;

impl<'a> RegionWriter<'a> {
    /// Returns whether the column of `id` is uniform when the region starts.
    pub(super) fn is_uniform_on_entry(&self, id: Id) -> bool {
        self.analysis.parallel
            && self.number > 0
            && self.analysis.columns.crossing[self.number - 1].contains(&id)
            && self
                .analysis
                .uniformity
                .is_uniform_at(self.analysis.site_blocks[self.number - 1], id)
    }

    /// Returns whether `id`, used in `block`, can be computed before the lanes run.
    fn is_hoistable(&self, id: Id, block: usize, depth: usize) -> bool {
        let arguments = self.analysis.kernel.arguments;
        if arguments.contains(id) {
            return id != arguments.x && id != arguments.lane;
        }
        if let Some(remat) = self.analysis.remats.get(&id) {
            return remat.uniform;
        }
        let Some((at, inst)) = self.definition(id) else {
            return self.is_uniform_on_entry(id);
        };
        if self.is_uniform_on_entry(id) {
            return !self.reaches(at, block);
        }
        // The operands are used in the block of the definition.
        depth < MAX_HOISTED_DEPTH
            && is_cheap(inst)
            && inst
                .uses()
                .iter()
                .all(|operand| self.is_hoistable(*operand, at, depth + 1))
    }

    /// Returns the block and instruction in which the region defines `id`.
    fn definition(&self, id: Id) -> Option<(usize, &'a Inst)> {
        if !self.defined.contains(id) {
            return None;
        }
        let kernel = self.analysis.kernel;
        self.blocks.iter().find_map(|&block| {
            let inst = kernel.blocks[block]
                .insts
                .iter()
                .find(|inst| inst.result == Some(id))?;
            Some((block, inst))
        })
    }

    /// Returns whether the region has a path from `from` to `to`, possibly empty.
    fn reaches(&self, from: usize, to: usize) -> bool {
        self.analysis
            .kernel
            .region(from, &self.unswitched)
            .contains(&to)
    }

    /// Finds the first branch that can be unswitched: its block, its condition and its targets.
    pub(super) fn next_uniform_branch(&self) -> Option<(usize, Id, [usize; 2])> {
        if !self.analysis.parallel || self.unswitched.len() >= MAX_UNSWITCHED_BRANCHES {
            return None;
        }
        let kernel = self.analysis.kernel;
        self.blocks.iter().find_map(|&block| {
            let Terminator::Jump { fragments, targets } = &kernel.blocks[block].end else {
                return None;
            };
            let [Fragment::Text(opcode), Fragment::Local(condition), ..] = &fragments[..] else {
                return None;
            };
            let [yes, no] = targets[..] else { return None };
            let branch_targets = [*kernel.by_label.get(&yes)?, *kernel.by_label.get(&no)?];
            let is_candidate = opcode.trim() == "br i1"
                && branch_targets[0] != branch_targets[1]
                && !self.unswitched.contains_key(&block);
            (is_candidate && self.is_hoistable(*condition, block, 0)).then_some((
                block,
                *condition,
                branch_targets,
            ))
        })
    }

    /// Emits the branches that select a version, and calls `version` with its decisions and number.
    pub(super) fn unswitch(
        &mut self,
        unswitched: Unswitched,
        known: &BTreeMap<Id, String>,
        versions: &mut usize,
        version: &mut impl FnMut(Unswitched, usize),
    ) {
        let view = RegionWriter::new(self.analysis, self.number, unswitched.clone());
        let Some((block, condition, targets)) = view.next_uniform_branch() else {
            self.line(&format!(
                "tail call void @sm_region_{}.{versions}(ptr %g, ptr %ctx, i32 %base, i32 %x0, i32 %x1, i32 %y, i32 %z)",
                self.number
            ));
            self.line("ret void");
            version(unswitched, *versions);
            *versions += 1;
            return;
        };
        let mut known = known.clone();
        let name = self.compute(condition, &view, &mut known);
        let label = self.temporary();
        self.line(&format!(
            "br i1 {name}, label {label}.yes, label {label}.no"
        ));
        for (target, suffix) in targets.into_iter().zip(["yes", "no"]) {
            let _ = writeln!(self.out, "{}.{suffix}:", &label[1..]);
            let mut unswitched = unswitched.clone();
            unswitched.insert(block, target);
            self.unswitch(unswitched, &known, versions, version);
        }
    }

    /// Computes a hoistable value before the lanes run.
    fn compute(
        &mut self,
        id: Id,
        view: &RegionWriter<'_>,
        known: &mut BTreeMap<Id, String>,
    ) -> String {
        if self.analysis.kernel.arguments.contains(id) {
            return self.name(id);
        }
        if let Some(name) = known.get(&id) {
            return name.clone();
        }
        let name = self.temporary();
        let inst = match self.analysis.remats.get(&id) {
            Some(remat) => Some(&self.analysis.kernel.blocks[remat.block].insts[remat.inst]),
            None => view.definition(id).map(|(_, inst)| inst),
        };
        match inst {
            Some(inst) if !self.is_uniform_on_entry(id) => {
                let mut text = String::new();
                for fragment in &inst.fragments {
                    match fragment {
                        Fragment::Text(piece) => text.push_str(piece),
                        Fragment::Local(operand) => {
                            text.push_str(&self.compute(*operand, view, known))
                        }
                    }
                }
                self.line(&format!("{name} = {}", strip_attachments(&text)));
            }
            _ => {
                let slot = self.analysis.columns.values[&id].clone();
                let ty = self.type_of(id);
                self.load(&slot, &name, &ty, FIRST_LANE_INDEX);
            }
        }
        known.insert(id, name.clone());
        name
    }
}
