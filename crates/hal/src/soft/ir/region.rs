//! Writing one region: a function that runs a row of lanes from one synchronisation to the next.

use super::columns::{Columns, Place};
use super::kernel::Kernel;
use super::live::Set;
use super::parse::{Id, Inst, Op, Operand, Piece, Terminator};
use super::private::{PrivateMemory, is_lifetime};
use super::remat::Recipes;
use super::steps::STEP;
use super::types::Type;
use super::uniform::Uniformity;
use crate::soft::plan::{FINISHED, STEPS_OFFSET};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;

/// The lane's number as an index.
const LANE: &str = "%sm.l";
/// The same of the first lane of the call.
pub(super) const FIRST: &str = "%sm.f";
/// Bytes of `sm_group`.
const GROUP_BYTES: usize = 568;

/// Everything known about a kernel.
#[derive(Debug)]
pub(crate) struct Analysis<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) live: &'a [Set],
    pub(crate) memory: &'a PrivateMemory,
    pub(crate) recipes: &'a Recipes,
    pub(crate) columns: &'a Columns,
    pub(crate) uniformity: &'a Uniformity,
    /// The block that ends at each site, from site 1.
    pub(crate) site_blocks: &'a [usize],
    /// Attribute group of the region functions.
    pub(crate) group: u32,
    /// Whether lane loops are marked as parallel.
    pub(crate) parallel: bool,
    /// Heads of loops whose iterations are counted, with the locations of the loops.
    pub(crate) counted: &'a BTreeMap<usize, u32>,
}

/// The text of one region and the states it can leave a lane in.
#[derive(Debug, Default)]
pub(crate) struct Region {
    pub(crate) text: String,
    pub(crate) metadata: String,
    pub(crate) exits: Vec<u32>,
}

/// Branches whose way is known: block to the block it goes to.
pub(super) type Decisions = BTreeMap<usize, usize>;

/// Writes one version of a region.
pub(super) struct Writer<'a> {
    pub(super) a: &'a Analysis<'a>,
    pub(super) number: usize,
    pub(super) decisions: Decisions,
    /// Blocks of the region.
    pub(super) blocks: Vec<usize>,
    inside: Set,
    /// Values defined at the start of the region call or of the lane.
    preamble: BTreeSet<Id>,
    /// Crossing values with a second definition in the region: kept in a slot until they are promoted again.
    slots: BTreeSet<Id>,
    /// Values loaded from their columns.
    loaded: BTreeSet<Id>,
    /// Those of them that all lanes of a call agree on: the first lane's is loaded once.
    shared: BTreeSet<Id>,
    /// Values that the region defines.
    pub(super) defined: Set,
    access: Option<u32>,
    temporaries: usize,
    pub(super) out: String,
}

/// Writes region `number`; its metadata nodes are numbered from `node`, which is advanced.
pub(crate) fn write(a: &Analysis<'_>, number: usize, node: &mut u32) -> Region {
    let mut region = Region::default();
    let writer = Writer::new(a, number, Decisions::new());
    if writer.undecided().is_none() {
        emit(writer, &format!("sm_region_{number}"), node, &mut region);
        return region;
    }
    // A function that decides the branches all lanes agree on, and then runs one version of the region.
    let mut decider = Writer::new(a, number, Decisions::new());
    decider.head(&format!("sm_region_{number}"));
    decider.line("%sm.first = add nuw nsw i32 %base, %x0");
    decider.line("%sm.f = zext i32 %sm.first to i64");
    let mut versions = 0;
    decider.decide(
        Decisions::new(),
        &BTreeMap::new(),
        &mut versions,
        &mut |decisions, version| {
            let writer = Writer::new(a, number, decisions);
            emit(
                writer,
                &format!("sm_region_{number}.{version}"),
                node,
                &mut region,
            );
        },
    );
    decider.out.push_str("}\n");
    region.text.push_str(&decider.out);
    region.exits.sort_unstable();
    region.exits.dedup();
    region
}

fn emit(mut writer: Writer<'_>, name: &str, node: &mut u32, region: &mut Region) {
    if writer.a.parallel {
        let [access, id, accesses, enable] = [*node, *node + 1, *node + 2, *node + 3];
        *node += 4;
        let _ = write!(
            region.metadata,
            "!{access} = distinct !{{}}\n\
             !{id} = distinct !{{!{id}, !{accesses}, !{enable}}}\n\
             !{accesses} = !{{!\"llvm.loop.parallel_accesses\", !{access}}}\n\
             !{enable} = !{{!\"llvm.loop.vectorize.enable\", i1 true}}\n"
        );
        writer.access = Some(access);
    }
    region.exits.extend(writer.function(name));
    region.text.push_str(&writer.out);
}

impl<'a> Writer<'a> {
    pub(super) fn new(a: &'a Analysis<'a>, number: usize, decisions: Decisions) -> Self {
        let blocks = a.kernel.region(a.kernel.region_entry(number), &decisions);
        let mut inside = Set::new(a.kernel.blocks.len());
        let mut defined = Set::new(a.kernel.ids);
        for &block in &blocks {
            inside.insert(block);
            for inst in &a.kernel.blocks[block].insts {
                if let Some(id) = inst.result {
                    defined.insert(id);
                }
            }
        }
        let mut writer = Self {
            a,
            number,
            decisions,
            blocks,
            inside,
            preamble: BTreeSet::new(),
            slots: BTreeSet::new(),
            loaded: BTreeSet::new(),
            shared: BTreeSet::new(),
            defined,
            access: None,
            temporaries: 0,
            out: String::new(),
        };
        writer.choose();
        writer
    }

    /// Decides how each value comes into the region.
    fn choose(&mut self) {
        let a = self.a;
        let mut wanted: Vec<Id> = Vec::new();
        for &block in &self.blocks {
            for inst in &a.kernel.blocks[block].insts {
                if let Some(id) = inst.result
                    && a.recipes.get(&id).is_some_and(|recipe| recipe.uniform)
                {
                    wanted.push(id);
                }
            }
        }
        if self.number > 0 {
            let continuation = a.kernel.sites[self.number - 1].continuation;
            wanted.extend(
                a.live[continuation]
                    .iter()
                    .filter(|id| a.recipes.contains_key(id)),
            );
            let used = self.used();
            for &id in &a.columns.crossing[self.number - 1] {
                if self.defined.contains(id) {
                    self.slots.insert(id);
                    self.loaded.insert(id);
                } else if used.contains(id) {
                    self.loaded.insert(id);
                } else {
                    continue;
                }
                if self.is_shared(id) {
                    self.shared.insert(id);
                }
            }
        }
        while let Some(id) = wanted.pop() {
            if let Some(recipe) = a.recipes.get(&id)
                && self.preamble.insert(id)
            {
                wanted.extend(a.kernel.blocks[recipe.block].insts[recipe.inst].uses());
            }
        }
    }

    /// Every value that the region's text names.
    fn used(&self) -> Set {
        let mut used = Set::new(self.a.kernel.ids);
        for &block in &self.blocks {
            for inst in &self.a.kernel.blocks[block].insts {
                for id in inst.uses() {
                    used.insert(id);
                }
            }
            for id in self.a.kernel.end_uses(block) {
                used.insert(id);
            }
        }
        used
    }

    pub(super) fn name(&self, id: Id) -> String {
        let arguments = self.a.kernel.arguments;
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
        } else if self.a.kernel.by_label.contains_key(&id) {
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

    fn access(&self) -> String {
        self.access
            .map(|node| format!(", !llvm.access.group !{node}"))
            .unwrap_or_default()
    }

    pub(super) fn type_of(&self, id: Id) -> Type {
        self.a.kernel.types.get(&id).cloned().unwrap_or(Type::Ptr)
    }

    /// The text of `id` where it is used: a slot is read first.
    fn read(&mut self, id: Id) -> String {
        if !self.slots.contains(&id) {
            return self.name(id);
        }
        let name = self.temporary();
        let ty = self.type_of(id);
        self.line(&format!("{name} = load {ty}, ptr %s{id}"));
        name
    }

    fn pieces(&mut self, pieces: &[Piece]) -> String {
        let mut text = String::new();
        for piece in pieces {
            match piece {
                Piece::Text(part) => text.push_str(part),
                Piece::Local(id) => text.push_str(&self.read(*id)),
            }
        }
        text
    }

    fn address(&mut self, place: &Place, index: &str) -> String {
        let (column, name) = (self.temporary(), self.temporary());
        self.line(&format!(
            "{column} = getelementptr inbounds i8, ptr %ctx, i64 {}",
            place.column.offset
        ));
        if place.ty.is_scalar() {
            self.line(&format!(
                "{name} = getelementptr inbounds {}, ptr {column}, i64 {index}",
                place.ty
            ));
        } else {
            let size = place.column.size;
            self.line(&format!(
                "{name} = getelementptr inbounds [{size} x i8], ptr {column}, i64 {index}"
            ));
        }
        name
    }

    /// Loads lane `index` of a column into `result`.
    pub(super) fn load(&mut self, place: &Place, result: &str, ty: &Type, index: &str) {
        let address = self.address(place, index);
        let access = if index == LANE {
            self.access()
        } else {
            String::new()
        };
        if *ty == place.ty {
            self.line(&format!(
                "{result} = load {ty}, ptr {address}, align {}{access}",
                align(place)
            ));
        } else {
            let wide = self.temporary();
            self.line(&format!(
                "{wide} = load {}, ptr {address}, align {}{access}",
                place.ty,
                align(place)
            ));
            self.line(&format!("{result} = trunc {} {wide} to {ty}", place.ty));
        }
    }

    fn store(&mut self, place: &Place, value: &str, ty: &Type) {
        let address = self.address(place, LANE);
        let access = self.access();
        let mut value = value.to_owned();
        if *ty != place.ty {
            let wide = self.temporary();
            self.line(&format!("{wide} = zext {ty} {value} to {}", place.ty));
            value = wide;
        }
        self.line(&format!(
            "store {} {value}, ptr {address}, align {}{access}",
            place.ty,
            align(place)
        ));
    }

    /// Computes the preamble values that are uniform, or those that are not.
    fn recompute(&mut self, uniform: bool) {
        let a = self.a;
        let mut done = BTreeSet::new();
        for id in self.preamble.clone() {
            self.recompute_one(id, uniform, a, &mut done);
        }
    }

    fn recompute_one(&mut self, id: Id, uniform: bool, a: &Analysis<'_>, done: &mut BTreeSet<Id>) {
        let Some(recipe) = a
            .recipes
            .get(&id)
            .filter(|recipe| recipe.uniform == uniform)
        else {
            return;
        };
        if !done.insert(id) {
            return;
        }
        let inst = &a.kernel.blocks[recipe.block].insts[recipe.inst];
        for operand in inst.uses() {
            self.recompute_one(operand, uniform, a, done);
        }
        let mut text = self.pieces(&inst.pieces);
        if inst.opcode == "load" {
            // Nothing writes the group structure while the group runs.
            text = strip_attachments(&text);
        }
        let name = self.name(id);
        self.line(&format!("{name} = {text}"));
    }

    fn head(&mut self, name: &str) {
        let _ = writeln!(
            self.out,
            "define internal void @{name}(ptr noalias noundef readonly align 8 dereferenceable({GROUP_BYTES}) %g, \
             ptr noalias noundef align 64 dereferenceable({}) %ctx, i32 noundef %base, i32 noundef %x0, \
             i32 noundef %x1, i32 noundef %y, i32 noundef %z) #{} {{\nsm.entry:",
            self.a.columns.bytes, self.a.group
        );
    }

    fn function(&mut self, name: &str) -> Vec<u32> {
        let a = self.a;
        self.head(name);
        for id in self.slots.clone() {
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
        self.recompute(true);
        self.out.push_str(
            "  %sm.some = icmp ult i32 %x0, %x1\n  %sm.first = add nuw nsw i32 %base, %x0\n  \
             %sm.last = add nuw nsw i32 %base, %x1\n  %sm.f = zext i32 %sm.first to i64\n",
        );
        for id in self.shared.clone() {
            let place = a.columns.values[&id].clone();
            let name = if self.slots.contains(&id) {
                format!("%u{id}")
            } else {
                self.name(id)
            };
            let ty = self.type_of(id);
            self.load(&place, &name, &ty, FIRST);
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
        self.recompute(false);
        for id in self.loaded.clone() {
            let place = a.columns.values[&id].clone();
            let ty = self.type_of(id);
            let slot = self.slots.contains(&id);
            let name = if slot {
                format!("%u{id}")
            } else {
                self.name(id)
            };
            if !self.shared.contains(&id) {
                self.load(&place, &name, &ty, LANE);
            }
            if slot {
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
            self.a.recipes.get(value).is_some_and(|recipe| {
                self.a.kernel.blocks[recipe.block].insts[recipe.inst]
                    .uses()
                    .contains(&id)
            })
        })
    }

    /// The states in which lanes leave, with the block they leave from.
    fn exits(&self) -> Vec<(u32, usize)> {
        self.blocks
            .iter()
            .filter_map(|&block| match self.a.kernel.blocks[block].end {
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
        let access = self.access();
        self.line("%sm.cell = getelementptr inbounds i32, ptr %ctx, i64 %sm.l");
        self.line(&format!(
            "store i32 %sm.state, ptr %sm.cell, align 4{access}"
        ));
        self.line("%sm.xnext = add nuw nsw i32 %x, 1");
        self.line("%sm.next = add nuw nsw i32 %lane, 1");
        self.line("%sm.more = icmp ult i32 %sm.next, %sm.last");
        let hint = self
            .access
            .map(|node| format!(", !llvm.loop !{}", node + 1))
            .unwrap_or_default();
        self.line(&format!(
            "br i1 %sm.more, label %sm.lane, label %sm.done{hint}"
        ));
    }

    /// Phi operands that live in slots: read at the end of the block they come from.
    fn phi_loads(&mut self) -> HashMap<(usize, Id), String> {
        let mut loads = HashMap::new();
        for &block in &self.blocks.clone() {
            for inst in &self.a.kernel.blocks[block].insts {
                let Op::Phi { incoming } = &inst.op else {
                    break;
                };
                for (value, from) in incoming {
                    let Some(&from) = self.a.kernel.by_label.get(from) else {
                        continue;
                    };
                    if let Operand::Local(id) = value
                        && self.comes_from(block, from)
                        && self.slots.contains(id)
                    {
                        let name = self.temporary();
                        loads.entry((from, *id)).or_insert(name);
                    }
                }
            }
        }
        loads
    }

    /// Whether the region goes from `from` to `block`.
    fn comes_from(&self, block: usize, from: usize) -> bool {
        self.inside.contains(from) && self.decisions.get(&from).is_none_or(|way| *way == block)
    }

    fn block(&mut self, index: usize, phi_loads: &HashMap<(usize, Id), String>) {
        let a = self.a;
        let block = &a.kernel.blocks[index];
        let _ = writeln!(self.out, "b{}:", block.label);
        let mut late = Vec::new();
        let mut phis = true;
        for inst in &block.insts {
            if !matches!(inst.op, Op::Phi { .. }) && std::mem::replace(&mut phis, false) {
                for id in std::mem::take(&mut late) {
                    self.keep(id);
                }
                self.count_step(index);
            }
            if let Op::Phi { incoming } = &inst.op {
                let Some(id) = inst.result else { continue };
                let mut parts = Vec::new();
                for (value, label) in incoming {
                    let Some(&from) = a.kernel.by_label.get(label) else {
                        continue;
                    };
                    if !self.comes_from(index, from) {
                        continue;
                    }
                    let text = match value {
                        Operand::Constant(text) => text.clone(),
                        Operand::Local(id) => match phi_loads.get(&(from, *id)) {
                            Some(name) => name.clone(),
                            None => self.name(*id),
                        },
                    };
                    parts.push(format!("[ {text}, %{} ]", self.end_label(from)));
                }
                let name = self.name(id);
                self.line(&format!("{name} = phi {} {}", inst.ty, parts.join(", ")));
                late.push(id);
            } else {
                self.inst(inst);
            }
        }
        for id in late {
            self.keep(id);
        }
        if phis {
            self.count_step(index);
        }
        for ((_, id), name) in sorted(phi_loads, index) {
            let ty = self.type_of(id);
            self.line(&format!("{name} = load {ty}, ptr %s{id}"));
        }
        match &block.end {
            Terminator::Jump { pieces, .. } => match self.decisions.get(&index) {
                Some(&way) => self.line(&format!("br label %b{}", a.kernel.blocks[way].label)),
                None => {
                    let text = self.pieces(pieces);
                    self.line(&text);
                }
            },
            Terminator::Unreachable => self.line("unreachable"),
            Terminator::Return => self.line("br label %sm.latch"),
            Terminator::Sync { site } => {
                self.leave(*site);
                self.line("br label %sm.latch");
            }
        }
    }

    /// The label of the last part of a block.
    fn end_label(&self, block: usize) -> String {
        let label = self.a.kernel.blocks[block].label;
        if self.a.counted.contains_key(&block) {
            format!("b{label}.go")
        } else {
            format!("b{label}")
        }
    }

    /// At the head of a loop, takes one from the lane's steps and tells the runtime when there are none.
    fn count_step(&mut self, block: usize) {
        let Some(&location) = self.a.counted.get(&block) else {
            return;
        };
        let label = self.a.kernel.blocks[block].label;
        let [at, left, fewer, last, none] = std::array::from_fn(|_| self.temporary());
        self.line(&format!(
            "{at} = getelementptr inbounds i8, ptr %ctx, i64 {STEPS_OFFSET}"
        ));
        self.line(&format!("{left} = load i64, ptr {at}, align 8"));
        self.line(&format!("{fewer} = add i64 {left}, -1"));
        self.line(&format!("store i64 {fewer}, ptr {at}, align 8"));
        self.line(&format!(
            "{last} = getelementptr inbounds i8, ptr %ctx, i64 {}",
            STEPS_OFFSET + 8
        ));
        self.line(&format!("store i32 {location}, ptr {last}, align 8"));
        self.line(&format!("{none} = icmp slt i64 {fewer}, 0"));
        self.line(&format!(
            "br i1 {none}, label %b{label}.stop, label %b{label}.go"
        ));
        let _ = writeln!(self.out, "b{label}.stop:");
        self.line(&format!("call void @{STEP}(i32 {location})"));
        self.line(&format!("br label %b{label}.go"));
        let _ = writeln!(self.out, "b{label}.go:");
    }

    /// Writes a new value of `id` to its slot, if it has one.
    fn keep(&mut self, id: Id) {
        if self.slots.contains(&id) {
            let ty = self.type_of(id);
            self.line(&format!("store {ty} %v{id}, ptr %s{id}"));
        }
    }

    fn inst(&mut self, inst: &Inst) {
        if matches!(inst.op, Op::Alloca { .. }) || is_lifetime(inst) {
            return;
        }
        if let Some(id) = inst.result
            && self.preamble.contains(&id)
        {
            return;
        }
        if inst.opcode == "sm.result" {
            let place = self.a.columns.results[self.number.wrapping_sub(1)].clone();
            if let (Some(place), Some(id)) = (place, inst.result) {
                let name = self.name(id);
                self.load(&place, &name, &inst.ty, LANE);
            }
            return;
        }
        let mut text = self.pieces(&inst.pieces);
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
        if pointer.is_some_and(|pointer| !self.a.memory.shared_between_lanes(pointer)) {
            text.push_str(&self.access());
        }
        match inst.result {
            Some(id) => {
                let name = self.name(id);
                self.line(&format!("{name} = {text}"));
                self.keep(id);
            }
            None => self.line(&text),
        }
    }

    /// Stores what site `site` and its continuation need.
    fn leave(&mut self, site: usize) {
        let a = self.a;
        for &id in &a.columns.crossing[site - 1] {
            if !self.defined.contains(id) {
                continue;
            }
            let place = &a.columns.values[&id];
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
            self.store(place, &value, &ty);
        }
        let info = &a.kernel.sites[site - 1];
        for ((ty, value), place) in info.arguments.iter().zip(&a.columns.operands[site - 1]) {
            let text = match value {
                Operand::Local(id) => {
                    let crosses = a.columns.crossing[site - 1].contains(id);
                    if crosses && a.columns.values[id].column == place.column {
                        continue;
                    }
                    self.read(*id)
                }
                Operand::Constant(text) => text.clone(),
            };
            self.store(place, &text, ty);
        }
    }
}

fn align(place: &Place) -> usize {
    // The column starts at a multiple of 64 and advances by the value's size.
    1 << place.column.size.trailing_zeros().min(4)
}

fn sorted(loads: &HashMap<(usize, Id), String>, block: usize) -> Vec<((usize, Id), String)> {
    let mut list: Vec<_> = loads
        .iter()
        .filter(|((from, _), _)| *from == block)
        .map(|(key, name)| (*key, name.clone()))
        .collect();
    list.sort();
    list
}

/// A load's text without metadata: type-based aliasing must not be claimed for a hoisted load.
pub(super) fn strip_attachments(text: &str) -> String {
    text.split(", !").next().unwrap_or(text).to_owned()
}
