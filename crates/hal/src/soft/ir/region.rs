//! Emits a region: a function that runs a range of lanes from one synchronisation site to the next.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;

use super::kernel::KernelFunction;
use super::liveness::BitSet;
use super::loop_counter::STEP_FN;
use super::parse::{Fragment, Id, Inst, Op, Operand, Terminator};
use super::private_memory::{PrivateMemory, is_lifetime_marker};
use super::remat::Remats;
use super::spill::{SpillLayout, SpillSlot};
use super::types::Type;
use super::uniformity::Uniformity;
use crate::soft::plan::{FINISHED, STEPS_OFFSET};

/// The lane index as `i64`.
const LANE_INDEX: &str = "%sm.l";
/// Index of the first lane of the call.
pub(super) const FIRST_LANE_INDEX: &str = "%sm.f";
/// Size of `sm_group`.
const SM_GROUP_BYTES: usize = 568;

/// Analysis results of a kernel.
#[derive(Debug)]
pub(crate) struct KernelAnalysis<'a> {
    pub(crate) kernel: &'a KernelFunction,
    pub(crate) live: &'a [BitSet],
    pub(crate) memory: &'a PrivateMemory,
    pub(crate) remats: &'a Remats,
    pub(crate) columns: &'a SpillLayout,
    pub(crate) uniformity: &'a Uniformity,
    /// The block that ends at each site, from site 1.
    pub(crate) site_blocks: &'a [usize],
    /// Attribute group of the region functions.
    pub(crate) group: u32,
    /// Whether the lane loop is marked as parallel.
    pub(crate) parallel: bool,
    /// Headers of the loops whose iterations are counted, with the locations of the loops.
    pub(crate) counted: &'a BTreeMap<usize, u32>,
}

/// The text of one region, and the states in which it can leave a lane.
#[derive(Debug, Default)]
pub(crate) struct RegionCode {
    pub(crate) text: String,
    pub(crate) metadata: String,
    pub(crate) exits: Vec<u32>,
}

/// Targets of unswitched branches, by block.
pub(super) type Unswitched = BTreeMap<usize, usize>;

/// Emits one version of a region.
pub(super) struct RegionWriter<'a> {
    pub(super) analysis: &'a KernelAnalysis<'a>,
    pub(super) number: usize,
    pub(super) unswitched: Unswitched,
    /// Blocks of the region.
    pub(super) blocks: Vec<usize>,
    inside: BitSet,
    /// Values that are rematerialized at the start of the call or of the lane.
    preamble: BTreeSet<Id>,
    /// Crossing values that the region defines again: they live in an alloca until mem2reg promotes it.
    allocas: BTreeSet<Id>,
    /// Values that are reloaded from their columns.
    loaded: BTreeSet<Id>,
    /// Reloaded values that are uniform within a call: loaded once, from the first lane.
    uniform_loads: BTreeSet<Id>,
    /// Values that the region defines.
    pub(super) defined: BitSet,
    access_group: Option<u32>,
    temporaries: usize,
    pub(super) out: String,
}

/// Emits region `number`; its metadata nodes are numbered from `node`, which is advanced.
pub(crate) fn write(a: &KernelAnalysis<'_>, number: usize, node: &mut u32) -> RegionCode {
    let mut region = RegionCode::default();
    let writer = RegionWriter::new(a, number, Unswitched::new());
    if writer.next_uniform_branch().is_none() {
        emit(writer, &format!("sm_region_{number}"), node, &mut region);
        return region;
    }
    // Loop unswitching: a dispatch function evaluates the uniform branches once, and calls one version of the region.
    let mut dispatch = RegionWriter::new(a, number, Unswitched::new());
    dispatch.header(&format!("sm_region_{number}"));
    dispatch.line("%sm.first = add nuw nsw i32 %base, %x0");
    dispatch.line("%sm.f = zext i32 %sm.first to i64");
    let mut versions = 0;
    dispatch.unswitch(
        Unswitched::new(),
        &BTreeMap::new(),
        &mut versions,
        &mut |unswitched, version| {
            let writer = RegionWriter::new(a, number, unswitched);
            emit(
                writer,
                &format!("sm_region_{number}.{version}"),
                node,
                &mut region,
            );
        },
    );
    dispatch.out.push_str("}\n");
    region.text.push_str(&dispatch.out);
    region.exits.sort_unstable();
    region.exits.dedup();
    region
}

fn emit(mut writer: RegionWriter<'_>, name: &str, node: &mut u32, region: &mut RegionCode) {
    if writer.analysis.parallel {
        let [access, id, accesses, enable] = [*node, *node + 1, *node + 2, *node + 3];
        *node += 4;
        let _ = write!(
            region.metadata,
            "!{access} = distinct !{{}}\n\
             !{id} = distinct !{{!{id}, !{accesses}, !{enable}}}\n\
             !{accesses} = !{{!\"llvm.loop.parallel_accesses\", !{access}}}\n\
             !{enable} = !{{!\"llvm.loop.vectorize.enable\", i1 true}}\n"
        );
        writer.access_group = Some(access);
    }
    region.exits.extend(writer.function(name));
    region.text.push_str(&writer.out);
}

impl<'a> RegionWriter<'a> {
    pub(super) fn new(a: &'a KernelAnalysis<'a>, number: usize, unswitched: Unswitched) -> Self {
        let blocks = a.kernel.region(a.kernel.region_entry(number), &unswitched);
        let mut inside = BitSet::new(a.kernel.blocks.len());
        let mut defined = BitSet::new(a.kernel.ids);
        for &block in &blocks {
            inside.insert(block);
            for inst in &a.kernel.blocks[block].insts {
                if let Some(id) = inst.result {
                    defined.insert(id);
                }
            }
        }
        let mut writer = Self {
            analysis: a,
            number,
            unswitched,
            blocks,
            inside,
            preamble: BTreeSet::new(),
            allocas: BTreeSet::new(),
            loaded: BTreeSet::new(),
            uniform_loads: BTreeSet::new(),
            defined,
            access_group: None,
            temporaries: 0,
            out: String::new(),
        };
        writer.classify_values();
        writer
    }

    /// Decides for each live-in value whether it is rematerialized, reloaded or kept in an alloca.
    fn classify_values(&mut self) {
        let a = self.analysis;
        let mut work: Vec<Id> = Vec::new();
        for &block in &self.blocks {
            for inst in &a.kernel.blocks[block].insts {
                if let Some(id) = inst.result
                    && a.remats.get(&id).is_some_and(|remat| remat.uniform)
                {
                    work.push(id);
                }
            }
        }
        if self.number > 0 {
            let continuation = a.kernel.sites[self.number - 1].continuation;
            work.extend(
                a.live[continuation]
                    .iter()
                    .filter(|id| a.remats.contains_key(id)),
            );
            let used = self.used();
            for &id in &a.columns.crossing[self.number - 1] {
                if self.defined.contains(id) {
                    self.allocas.insert(id);
                    self.loaded.insert(id);
                } else if used.contains(id) {
                    self.loaded.insert(id);
                } else {
                    continue;
                }
                if self.is_uniform_on_entry(id) {
                    self.uniform_loads.insert(id);
                }
            }
        }
        while let Some(id) = work.pop() {
            if let Some(remat) = a.remats.get(&id)
                && self.preamble.insert(id)
            {
                work.extend(a.kernel.blocks[remat.block].insts[remat.inst].uses());
            }
        }
    }

    /// Returns the values that the region uses.
    fn used(&self) -> BitSet {
        let mut used = BitSet::new(self.analysis.kernel.ids);
        for &block in &self.blocks {
            for inst in &self.analysis.kernel.blocks[block].insts {
                for id in inst.uses() {
                    used.insert(id);
                }
            }
            for id in self.analysis.kernel.terminator_uses(block) {
                used.insert(id);
            }
        }
        used
    }

    pub(super) fn name(&self, id: Id) -> String {
        let arguments = self.analysis.kernel.arguments;
        if id == arguments.g {
            "%g".into()
        } else if id == arguments.x {
            "%x".into()
        } else if id == arguments.y {
            "%y".into()
        } else if id == arguments.z {
            "%z".into()
        } else if id == arguments.lane {
            "%lane".into()
        } else if self.analysis.kernel.by_label.contains_key(&id) {
            format!("%b{id}")
        } else {
            format!("%v{id}")
        }
    }

    pub(super) fn temporary(&mut self) -> String {
        self.temporaries += 1;
        format!("%t{}", self.temporaries)
    }

    pub(super) fn line(&mut self, text: &str) {
        self.out.push_str("  ");
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn access_attachment(&self) -> String {
        self.access_group
            .map(|node| format!(", !llvm.access.group !{node}"))
            .unwrap_or_default()
    }

    pub(super) fn type_of(&self, id: Id) -> Type {
        self.analysis
            .kernel
            .types
            .get(&id)
            .cloned()
            .unwrap_or(Type::Ptr)
    }

    /// Returns the text of `id` at a use; a value in an alloca is loaded first.
    fn read(&mut self, id: Id) -> String {
        if !self.allocas.contains(&id) {
            return self.name(id);
        }
        let name = self.temporary();
        let ty = self.type_of(id);
        self.line(&format!("{name} = load {ty}, ptr %s{id}"));
        name
    }

    fn fragments(&mut self, fragments: &[Fragment]) -> String {
        let mut text = String::new();
        for fragment in fragments {
            match fragment {
                Fragment::Text(piece) => text.push_str(piece),
                Fragment::Local(id) => text.push_str(&self.read(*id)),
            }
        }
        text
    }

    fn address(&mut self, slot: &SpillSlot, index: &str) -> String {
        let (column, name) = (self.temporary(), self.temporary());
        self.line(&format!(
            "{column} = getelementptr inbounds i8, ptr %ctx, i64 {}",
            slot.column.offset
        ));
        if slot.ty.is_scalar() {
            self.line(&format!(
                "{name} = getelementptr inbounds {}, ptr {column}, i64 {index}",
                slot.ty
            ));
        } else {
            let size = slot.column.size;
            self.line(&format!(
                "{name} = getelementptr inbounds [{size} x i8], ptr {column}, i64 {index}"
            ));
        }
        name
    }

    /// Loads lane `index` of a column into `result`.
    pub(super) fn load(&mut self, slot: &SpillSlot, result: &str, ty: &Type, index: &str) {
        let address = self.address(slot, index);
        let access = if index == LANE_INDEX {
            self.access_attachment()
        } else {
            String::new()
        };
        if *ty == slot.ty {
            self.line(&format!(
                "{result} = load {ty}, ptr {address}, align {}{access}",
                alignment(slot)
            ));
        } else {
            let wide = self.temporary();
            self.line(&format!(
                "{wide} = load {}, ptr {address}, align {}{access}",
                slot.ty,
                alignment(slot)
            ));
            self.line(&format!("{result} = trunc {} {wide} to {ty}", slot.ty));
        }
    }

    fn store(&mut self, slot: &SpillSlot, value: &str, ty: &Type) {
        let address = self.address(slot, LANE_INDEX);
        let access = self.access_attachment();
        let mut value = value.to_owned();
        if *ty != slot.ty {
            let wide = self.temporary();
            self.line(&format!("{wide} = zext {ty} {value} to {}", slot.ty));
            value = wide;
        }
        self.line(&format!(
            "store {} {value}, ptr {address}, align {}{access}",
            slot.ty,
            alignment(slot)
        ));
    }

    /// Rematerializes the uniform preamble values, or the others.
    fn rematerialize(&mut self, uniform: bool) {
        let a = self.analysis;
        let mut done = BTreeSet::new();
        for id in self.preamble.clone() {
            self.rematerialize_one(id, uniform, a, &mut done);
        }
    }

    fn rematerialize_one(
        &mut self,
        id: Id,
        uniform: bool,
        a: &KernelAnalysis<'_>,
        done: &mut BTreeSet<Id>,
    ) {
        let Some(remat) = a.remats.get(&id).filter(|remat| remat.uniform == uniform) else {
            return;
        };
        if !done.insert(id) {
            return;
        }
        let inst = &a.kernel.blocks[remat.block].insts[remat.inst];
        for operand in inst.uses() {
            self.rematerialize_one(operand, uniform, a, done);
        }
        let mut text = self.fragments(&inst.fragments);
        if inst.opcode == "load" {
            // Nothing writes to the group descriptor while the group runs.
            text = strip_attachments(&text);
        }
        let name = self.name(id);
        self.line(&format!("{name} = {text}"));
    }

    fn header(&mut self, name: &str) {
        let _ = writeln!(
            self.out,
            "define internal void @{name}(ptr noalias noundef readonly align 8 dereferenceable({SM_GROUP_BYTES}) %g, \
             ptr noalias noundef align 64 dereferenceable({}) %ctx, i32 noundef %base, i32 noundef %x0, \
             i32 noundef %x1, i32 noundef %y, i32 noundef %z) #{} {{\nsm.entry:",
            self.analysis.columns.bytes, self.analysis.group
        );
    }

    fn function(&mut self, name: &str) -> Vec<u32> {
        let a = self.analysis;
        self.header(name);
        for id in self.allocas.clone() {
            let ty = self.type_of(id);
            self.line(&format!("%s{id} = alloca {ty}"));
        }
        let used = self.used();
        for private in a
            .memory
            .list
            .iter()
            .filter(|p| !p.crosses && used.contains(p.id))
        {
            let layout = private.layout;
            self.line(&format!(
                "%v{} = alloca [{} x i8], align {}",
                private.id, layout.size, layout.align
            ));
        }
        self.rematerialize(true);
        self.out.push_str(
            "  %sm.some = icmp ult i32 %x0, %x1\n  %sm.first = add nuw nsw i32 %base, %x0\n  \
             %sm.last = add nuw nsw i32 %base, %x1\n  %sm.f = zext i32 %sm.first to i64\n",
        );
        for id in self.uniform_loads.clone() {
            let slot = a.columns.values[&id].clone();
            let name = if self.allocas.contains(&id) {
                format!("%u{id}")
            } else {
                self.name(id)
            };
            let ty = self.type_of(id);
            self.load(&slot, &name, &ty, FIRST_LANE_INDEX);
        }
        self.out
            .push_str("  br i1 %sm.some, label %sm.lane, label %sm.done\nsm.lane:\n");
        let exits = self.exits();
        if exits.is_empty() {
            self.out.push_str(
                "  %x = phi i32 [ %x0, %sm.entry ]\n  %lane = phi i32 [ %sm.first, %sm.entry ]\n",
            );
        } else {
            self.out.push_str(
                "  %x = phi i32 [ %x0, %sm.entry ], [ %sm.xnext, %sm.latch ]\n  \
                 %lane = phi i32 [ %sm.first, %sm.entry ], [ %sm.next, %sm.latch ]\n",
            );
        }
        self.line("%sm.l = zext i32 %lane to i64");
        for (index, private) in a.memory.list.iter().enumerate().filter(|(_, p)| p.crosses) {
            let needed = used.contains(private.id) || self.preamble_uses(private.id);
            if let Some((offset, stride)) = a.columns.private.get(&index).filter(|_| needed) {
                let id = private.id;
                self.line(&format!("%sm.p{id} = mul nuw nsw i64 %sm.l, {stride}"));
                self.line(&format!(
                    "%sm.q{id} = getelementptr inbounds i8, ptr %ctx, i64 {offset}"
                ));
                self.line(&format!(
                    "%v{id} = getelementptr inbounds i8, ptr %sm.q{id}, i64 %sm.p{id}"
                ));
            }
        }
        self.rematerialize(false);
        for id in self.loaded.clone() {
            let slot = a.columns.values[&id].clone();
            let ty = self.type_of(id);
            let in_alloca = self.allocas.contains(&id);
            let name = if in_alloca {
                format!("%u{id}")
            } else {
                self.name(id)
            };
            if !self.uniform_loads.contains(&id) {
                self.load(&slot, &name, &ty, LANE_INDEX);
            }
            if in_alloca {
                self.line(&format!("store {ty} {name}, ptr %s{id}"));
            }
        }
        let entry = a.kernel.blocks[a.kernel.region_entry(self.number)].label;
        self.line(&format!("br label %b{entry}"));
        let phi_loads = self.phi_loads();
        for block in self.blocks.clone() {
            self.block(block, &phi_loads);
        }
        self.latch(&exits);
        self.out.push_str("sm.done:\n  ret void\n}\n");
        let mut states: Vec<u32> = exits.iter().map(|(state, _)| *state).collect();
        states.sort_unstable();
        states.dedup();
        states
    }

    fn preamble_uses(&self, id: Id) -> bool {
        self.preamble.iter().any(|value| {
            self.analysis.remats.get(value).is_some_and(|remat| {
                self.analysis.kernel.blocks[remat.block].insts[remat.inst]
                    .uses()
                    .contains(&id)
            })
        })
    }

    /// Returns the states in which lanes exit, with the exiting blocks.
    fn exits(&self) -> Vec<(u32, usize)> {
        self.blocks
            .iter()
            .filter_map(|&block| match self.analysis.kernel.blocks[block].end {
                Terminator::Return => Some((FINISHED, block)),
                Terminator::Sync { site } => Some((u32::try_from(site).unwrap_or(FINISHED), block)),
                _ => None,
            })
            .collect()
    }

    fn latch(&mut self, exits: &[(u32, usize)]) {
        if exits.is_empty() {
            return;
        }
        self.out.push_str("sm.latch:\n");
        let incoming: Vec<String> = exits
            .iter()
            .map(|(state, block)| {
                format!("[ {}, %{} ]", state.cast_signed(), self.end_label(*block))
            })
            .collect();
        self.line(&format!("%sm.state = phi i32 {}", incoming.join(", ")));
        let access = self.access_attachment();
        self.line("%sm.cell = getelementptr inbounds i32, ptr %ctx, i64 %sm.l");
        self.line(&format!(
            "store i32 %sm.state, ptr %sm.cell, align 4{access}"
        ));
        self.line("%sm.xnext = add nuw nsw i32 %x, 1");
        self.line("%sm.next = add nuw nsw i32 %lane, 1");
        self.line("%sm.more = icmp ult i32 %sm.next, %sm.last");
        let hint = self
            .access_group
            .map(|node| format!(", !llvm.loop !{}", node + 1))
            .unwrap_or_default();
        self.line(&format!(
            "br i1 %sm.more, label %sm.lane, label %sm.done{hint}"
        ));
    }

    /// Assigns names to phi operands that live in allocas; they are loaded at the end of the incoming block.
    fn phi_loads(&mut self) -> HashMap<(usize, Id), String> {
        let mut loads = HashMap::new();
        for &block in &self.blocks.clone() {
            for inst in &self.analysis.kernel.blocks[block].insts {
                let Op::Phi { incoming } = &inst.op else {
                    break;
                };
                for (value, from) in incoming {
                    let Some(&from) = self.analysis.kernel.by_label.get(from) else {
                        continue;
                    };
                    if let Operand::Local(id) = value
                        && self.has_edge(block, from)
                        && self.allocas.contains(id)
                    {
                        let name = self.temporary();
                        loads.entry((from, *id)).or_insert(name);
                    }
                }
            }
        }
        loads
    }

    /// Returns whether the region has an edge from `from` to `block`.
    fn has_edge(&self, block: usize, from: usize) -> bool {
        self.inside.contains(from)
            && self
                .unswitched
                .get(&from)
                .is_none_or(|target| *target == block)
    }

    fn block(&mut self, index: usize, phi_loads: &HashMap<(usize, Id), String>) {
        let a = self.analysis;
        let block = &a.kernel.blocks[index];
        let _ = writeln!(self.out, "b{}:", block.label);
        let mut phi_results = Vec::new();
        let mut in_phis = true;
        for inst in &block.insts {
            if !matches!(inst.op, Op::Phi { .. }) && std::mem::replace(&mut in_phis, false) {
                for id in std::mem::take(&mut phi_results) {
                    self.store_to_alloca(id);
                }
                self.count_iteration(index);
            }
            if let Op::Phi { incoming } = &inst.op {
                let Some(id) = inst.result else { continue };
                let mut edges = Vec::new();
                for (value, label) in incoming {
                    let Some(&from) = a.kernel.by_label.get(label) else {
                        continue;
                    };
                    if !self.has_edge(index, from) {
                        continue;
                    }
                    let text = match value {
                        Operand::Constant(text) => text.clone(),
                        Operand::Local(id) => match phi_loads.get(&(from, *id)) {
                            Some(name) => name.clone(),
                            None => self.name(*id),
                        },
                    };
                    edges.push(format!("[ {text}, %{} ]", self.end_label(from)));
                }
                let name = self.name(id);
                self.line(&format!("{name} = phi {} {}", inst.ty, edges.join(", ")));
                phi_results.push(id);
            } else {
                self.inst(inst);
            }
        }
        for id in phi_results {
            self.store_to_alloca(id);
        }
        if in_phis {
            self.count_iteration(index);
        }
        for ((_, id), name) in phi_loads_in(phi_loads, index) {
            let ty = self.type_of(id);
            self.line(&format!("{name} = load {ty}, ptr %s{id}"));
        }
        match &block.end {
            Terminator::Jump { fragments, .. } => match self.unswitched.get(&index) {
                Some(&target) => {
                    self.line(&format!("br label %b{}", a.kernel.blocks[target].label))
                }
                None => {
                    let text = self.fragments(fragments);
                    self.line(&text);
                }
            },
            Terminator::Unreachable => self.line("unreachable"),
            Terminator::Return => self.line("br label %sm.latch"),
            Terminator::Sync { site } => {
                self.store_live_out(*site);
                self.line("br label %sm.latch");
            }
        }
    }

    /// Returns the label of the last basic block that a block is emitted as.
    fn end_label(&self, block: usize) -> String {
        let label = self.analysis.kernel.blocks[block].label;
        if self.analysis.counted.contains_key(&block) {
            format!("b{label}.go")
        } else {
            format!("b{label}")
        }
    }

    /// At a loop header, decrements the lane's remaining iterations and calls the runtime when none are left.
    fn count_iteration(&mut self, block: usize) {
        let Some(&location) = self.analysis.counted.get(&block) else {
            return;
        };
        let label = self.analysis.kernel.blocks[block].label;
        let [at, remaining, decremented, last, exhausted] =
            std::array::from_fn(|_| self.temporary());
        self.line(&format!(
            "{at} = getelementptr inbounds i8, ptr %ctx, i64 {STEPS_OFFSET}"
        ));
        self.line(&format!("{remaining} = load i64, ptr {at}, align 8"));
        self.line(&format!("{decremented} = add i64 {remaining}, -1"));
        self.line(&format!("store i64 {decremented}, ptr {at}, align 8"));
        self.line(&format!(
            "{last} = getelementptr inbounds i8, ptr %ctx, i64 {}",
            STEPS_OFFSET + 8
        ));
        self.line(&format!("store i32 {location}, ptr {last}, align 8"));
        self.line(&format!("{exhausted} = icmp slt i64 {decremented}, 0"));
        self.line(&format!(
            "br i1 {exhausted}, label %b{label}.stop, label %b{label}.go"
        ));
        let _ = writeln!(self.out, "b{label}.stop:");
        self.line(&format!("call void @{STEP_FN}(i32 {location})"));
        self.line(&format!("br label %b{label}.go"));
        let _ = writeln!(self.out, "b{label}.go:");
    }

    /// Stores a new value of `id` to its alloca, if it has one.
    fn store_to_alloca(&mut self, id: Id) {
        if self.allocas.contains(&id) {
            let ty = self.type_of(id);
            self.line(&format!("store {ty} %v{id}, ptr %s{id}"));
        }
    }

    fn inst(&mut self, inst: &Inst) {
        if matches!(inst.op, Op::Alloca { .. }) || is_lifetime_marker(inst) {
            return;
        }
        if let Some(id) = inst.result
            && self.preamble.contains(&id)
        {
            return;
        }
        if inst.opcode == "sm.result" {
            let slot = self.analysis.columns.results[self.number.wrapping_sub(1)].clone();
            if let (Some(slot), Some(id)) = (slot, inst.result) {
                let name = self.name(id);
                self.load(&slot, &name, &inst.ty, LANE_INDEX);
            }
            return;
        }
        let mut text = self.fragments(&inst.fragments);
        let pointer = match &inst.op {
            Op::Load {
                pointer,
                plain: true,
            }
            | Op::Store {
                pointer,
                plain: true,
                ..
            } => Some(pointer),
            _ => None,
        };
        if pointer.is_some_and(|pointer| !self.analysis.memory.shared_between_lanes(pointer)) {
            text.push_str(&self.access_attachment());
        }
        match inst.result {
            Some(id) => {
                let name = self.name(id);
                self.line(&format!("{name} = {text}"));
                self.store_to_alloca(id);
            }
            None => self.line(&text),
        }
    }

    /// Stores the operands of site `site` and the values its continuation needs.
    fn store_live_out(&mut self, site: usize) {
        let a = self.analysis;
        for &id in &a.columns.crossing[site - 1] {
            if !self.defined.contains(id) {
                continue;
            }
            let slot = &a.columns.values[&id];
            // The result of this region's own site is in its column already.
            let own = self.number > 0
                && a.kernel.sites[self.number - 1]
                    .result
                    .as_ref()
                    .is_some_and(|(result, _)| *result == id);
            if own {
                continue;
            }
            let value = self.read(id);
            let ty = self.type_of(id);
            self.store(slot, &value, &ty);
        }
        let info = &a.kernel.sites[site - 1];
        for ((ty, value), slot) in info.arguments.iter().zip(&a.columns.operands[site - 1]) {
            let text = match value {
                Operand::Local(id) => {
                    let crosses = a.columns.crossing[site - 1].contains(id);
                    if crosses && a.columns.values[id].column == slot.column {
                        continue;
                    }
                    self.read(*id)
                }
                Operand::Constant(text) => text.clone(),
            };
            self.store(slot, &text, ty);
        }
    }
}

fn alignment(slot: &SpillSlot) -> usize {
    // The column starts at a multiple of 64 and its stride is the value's size.
    1 << slot.column.size.trailing_zeros().min(4)
}

fn phi_loads_in(loads: &HashMap<(usize, Id), String>, block: usize) -> Vec<((usize, Id), String)> {
    let mut list: Vec<_> = loads
        .iter()
        .filter(|((from, _), _)| *from == block)
        .map(|(key, name)| (*key, name.clone()))
        .collect();
    list.sort();
    list
}

/// Removes metadata from a load's text: type-based alias information does not hold for a hoisted load.
pub(super) fn strip_attachments(text: &str) -> String {
    text.split(", !").next().unwrap_or(text).to_owned()
}
