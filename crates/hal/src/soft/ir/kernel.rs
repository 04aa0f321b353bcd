//! The kernel function, split at its synchronisation sites, with its control-flow graph.

use std::collections::{BTreeMap, HashMap};

use super::FissionError;
use super::block_order::{BlockOrder, Loop};
use super::liveness::{BitSet, live_in};
use super::parse::{BasicBlock, Fragment, Id, Inst, IrFunction, Op, Operand, Terminator};
use super::types::Type;
use super::uniformity::Uniformity;
use crate::soft::plan::{RECONVERGE, SiteKind, ThreadgroupVariable, WHOLE_SIMDGROUP};

/// Byte offset of `arena` in `sm_group`.
const ARENA_OFFSET: usize = 31 * 8 * 2;
/// Size of the red zone between threadgroup variables in check mode, in bytes.
const RED_ZONE_BYTES: usize = 64;
/// Mangled-name prefix of the instantiations of `sm::sync_simd`.
const COLLECTIVE_PREFIX: &str = "_ZN2sm9sync_simd";
/// Mangled-name prefix of the simdgroup matrix operations, with the `@`.
const MATRIX_OP_PREFIX: &str = "@_ZN2sm22multiply_accumulate_op";

/// A synchronisation site.
#[derive(Debug, Clone)]
pub(crate) struct SyncSite {
    pub(crate) kind: SiteKind,
    pub(crate) flags: u32,
    /// The function that performs a collective.
    pub(crate) op: Option<String>,
    pub(crate) arguments: Vec<(Type, Operand)>,
    pub(crate) result: Option<(Id, Type)>,
    /// Index of the block that follows.
    pub(crate) continuation: usize,
    /// Metadata node of the debug location.
    pub(crate) location: Option<u32>,
}

/// The arguments of the kernel function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arguments {
    pub(crate) g: Id,
    pub(crate) x: Id,
    pub(crate) y: Id,
    pub(crate) z: Id,
    pub(crate) lane: Id,
}

impl Arguments {
    pub(crate) fn contains(&self, id: Id) -> bool {
        [self.g, self.x, self.y, self.z, self.lane].contains(&id)
    }
}

/// A kernel function whose blocks end at its synchronisation sites.
#[derive(Debug, Clone)]
pub(crate) struct KernelFunction {
    pub(crate) arguments: Arguments,
    pub(crate) blocks: Vec<BasicBlock>,
    /// `sites[k - 1]` is site `k`.
    pub(crate) sites: Vec<SyncSite>,
    pub(crate) ids: usize,
    pub(crate) variables: Vec<ThreadgroupVariable>,
    pub(crate) arena_bytes: usize,
    /// Whether it is compiled for check mode.
    pub(crate) check: bool,
    /// Successors of each block within a region: a synchronisation has none.
    pub(crate) successors: Vec<Vec<usize>>,
    /// Type of each value.
    pub(crate) types: HashMap<Id, Type>,
    /// Index of each block, by label.
    pub(crate) by_label: HashMap<Id, usize>,
}

/// Returns whether `name` is a shim function that this pass replaces.
pub(crate) fn is_shim_intrinsic(name: &str) -> bool {
    is_sync(name) || matches!(name, "sm_lane" | "sm_self" | "sm_tgvar")
}

/// Returns whether a call of `name` is a synchronisation.
pub(crate) fn is_sync(name: &str) -> bool {
    matches!(name, "sm_sync_tg" | "sm_sync_sg") || name.starts_with(COLLECTIVE_PREFIX)
}

fn callee(inst: &Inst) -> Option<&str> {
    match &inst.op {
        Op::Call { callee, .. } => callee.as_deref(),
        _ => None,
    }
}

impl KernelFunction {
    /// Splits `function` at its synchronisation sites.
    pub(crate) fn new(function: IrFunction, check: bool) -> Result<Self, FissionError> {
        let [g, x, y, z, lane] = function.arguments[..] else {
            return Err(FissionError::Signature {
                found: function.arguments.len(),
            });
        };
        let mut kernel = Self {
            arguments: Arguments { g, x, y, z, lane },
            blocks: function.blocks,
            sites: Vec::new(),
            ids: function.ids,
            variables: Vec::new(),
            arena_bytes: 0,
            check,
            successors: Vec::new(),
            types: HashMap::new(),
            by_label: HashMap::new(),
        };
        kernel.replace_queries()?;
        kernel.lay_out_variables(check)?;
        kernel.split()?;
        kernel.connect()?;
        if check {
            kernel.reconverge_after_spin_loops()?;
        }
        kernel.number_sites()?;
        Ok(kernel)
    }

    fn fresh_id(&mut self) -> Id {
        self.ids += 1;
        self.ids - 1
    }

    /// Replaces `sm_lane()` and `sm_self()` with the corresponding arguments.
    fn replace_queries(&mut self) -> Result<(), FissionError> {
        let mut alias: HashMap<Id, Id> = HashMap::new();
        let arguments = self.arguments;
        for block in &mut self.blocks {
            block.insts.retain(|inst| {
                let target = match callee(inst) {
                    Some("sm_lane") => arguments.lane,
                    Some("sm_self") => arguments.g,
                    _ => return true,
                };
                if let Some(result) = inst.result {
                    alias.insert(result, target);
                }
                false
            });
        }
        if alias.is_empty() {
            return Ok(());
        }
        let rename = |id: &mut Id| {
            if let Some(target) = alias.get(id) {
                *id = *target;
            }
        };
        for block in &mut self.blocks {
            for inst in &mut block.insts {
                rename_inst(inst, &rename);
            }
            if let Terminator::Jump { fragments, .. } = &mut block.end {
                rename_fragments(fragments, &rename);
            }
        }
        Ok(())
    }

    /// Replaces `sm_tgvar(id, size, align)` with an address in the arena.
    fn lay_out_variables(&mut self, check: bool) -> Result<(), FissionError> {
        let mut declared: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        for inst in self.blocks.iter().flat_map(|b| &b.insts) {
            if callee(inst) == Some("sm_tgvar") {
                let (id, size, align) = variable(inst)?;
                let entry = declared.entry(id).or_insert((0, 1));
                *entry = (entry.0.max(size), entry.1.max(align));
            }
        }
        if declared.is_empty() {
            return Ok(());
        }
        let mut offsets = HashMap::new();
        let mut at = if check { RED_ZONE_BYTES } else { 0 };
        for (id, (size, align)) in declared {
            at = at.next_multiple_of(align.max(16));
            offsets.insert(id, at);
            self.variables.push(ThreadgroupVariable {
                id,
                offset: at,
                size,
            });
            at += size + if check { RED_ZONE_BYTES } else { 0 };
        }
        self.arena_bytes = at.next_multiple_of(64);

        let (field, arena) = (self.fresh_id(), self.fresh_id());
        let g = self.arguments.g;
        for block in &mut self.blocks {
            for inst in &mut block.insts {
                if callee(inst) == Some("sm_tgvar") {
                    let (id, ..) = variable(inst)?;
                    let text = format!(", i64 {}", offsets[&id]);
                    inst.opcode = "getelementptr".into();
                    inst.op = Op::Gep {
                        base: Operand::Local(arena),
                    };
                    inst.fragments = vec![
                        Fragment::Text("getelementptr inbounds i8, ptr ".into()),
                        Fragment::Local(arena),
                        Fragment::Text(text),
                    ];
                }
            }
        }
        let make = |result, opcode: &str, op, fragments| Inst {
            result: Some(result),
            opcode: opcode.to_owned(),
            ty: Type::Ptr,
            op,
            fragments,
            location: None,
            line: 0,
        };
        let address = make(
            field,
            "getelementptr",
            Op::Gep {
                base: Operand::Local(g),
            },
            vec![
                Fragment::Text("getelementptr inbounds i8, ptr ".into()),
                Fragment::Local(g),
                Fragment::Text(format!(", i64 {ARENA_OFFSET}")),
            ],
        );
        let load = make(
            arena,
            "load",
            Op::Load {
                pointer: Operand::Local(field),
                plain: true,
            },
            vec![
                Fragment::Text("load ptr, ptr ".into()),
                Fragment::Local(field),
                Fragment::Text(", align 8".into()),
            ],
        );
        if let Some(entry) = self.blocks.first_mut() {
            entry.insts.splice(0..0, [address, load]);
        }
        Ok(())
    }

    /// Ends a block at every synchronisation.
    fn split(&mut self) -> Result<(), FissionError> {
        let mut renamed: HashMap<Id, Id> = HashMap::new();
        let mut done = Vec::with_capacity(self.blocks.len());
        for block in std::mem::take(&mut self.blocks) {
            let first = block.label;
            let mut label = block.label;
            let mut insts = Vec::new();
            for inst in block.insts {
                let Some(name) = callee(&inst).filter(|name| is_sync(name)) else {
                    insts.push(inst);
                    continue;
                };
                let site = self.site(&inst, name, done.len() + 1)?;
                self.sites.push(site);
                let number = self.sites.len();
                done.push(BasicBlock {
                    label,
                    insts: std::mem::take(&mut insts),
                    end: Terminator::Sync { site: number },
                    location: inst.location,
                });
                label = self.fresh_id();
                if let Some(result) = inst.result {
                    insts.push(Inst {
                        result: Some(result),
                        opcode: "sm.result".into(),
                        ty: inst.ty,
                        op: Op::Other,
                        fragments: Vec::new(),
                        location: None,
                        line: inst.line,
                    });
                }
            }
            if label != first {
                renamed.insert(first, label);
            }
            done.push(BasicBlock {
                label,
                insts,
                end: block.end,
                location: block.location,
            });
        }
        for block in &mut done {
            for inst in &mut block.insts {
                if let Op::Phi { incoming } = &mut inst.op {
                    for (_, from) in incoming {
                        if let Some(last) = renamed.get(from) {
                            *from = *last;
                        }
                    }
                }
            }
        }
        self.blocks = done;
        Ok(())
    }

    fn site(&self, inst: &Inst, name: &str, continuation: usize) -> Result<SyncSite, FissionError> {
        let Op::Call { arguments, .. } = &inst.op else {
            return Err(FissionError::Syntax {
                line: inst.line,
                what: "a synchronisation that is not a call".into(),
            });
        };
        let mut site = SyncSite {
            kind: SiteKind::Collective,
            flags: 0,
            op: None,
            arguments: Vec::new(),
            result: None,
            continuation,
            location: inst.location,
        };
        if name.starts_with(COLLECTIVE_PREFIX) {
            let unsupported = |what: String| FissionError::Unsupported {
                line: inst.line,
                what,
            };
            match arguments.first() {
                Some((Type::Ptr, Operand::Constant(op))) if op.starts_with('@') => {
                    if op.starts_with(MATRIX_OP_PREFIX) {
                        site.flags = WHOLE_SIMDGROUP;
                    }
                    site.op = Some(op.clone());
                }
                _ => {
                    return Err(unsupported(
                        "a SIMD-group operation that is not a constant function".into(),
                    ));
                }
            }
            for (ty, value) in &arguments[1..] {
                if !ty.is_scalar() {
                    return Err(unsupported(format!("a SIMD-group operand of type {ty}")));
                }
                site.arguments.push((ty.clone(), value.clone()));
            }
            if inst.ty != Type::Void && !inst.ty.is_scalar() {
                return Err(unsupported(format!(
                    "a SIMD-group result of type {}",
                    inst.ty
                )));
            }
            site.result = inst.result.map(|id| (id, inst.ty.clone()));
            return Ok(site);
        }
        site.kind = if name == "sm_sync_tg" {
            SiteKind::Threadgroup
        } else {
            SiteKind::Simdgroup
        };
        // Flags that are not constant order all memory.
        site.flags = match arguments.first() {
            Some((_, Operand::Constant(text))) => text.parse().unwrap_or(7),
            _ => 7,
        };
        Ok(site)
    }

    /// Computes the successors, the types and the label index.
    fn connect(&mut self) -> Result<(), FissionError> {
        self.successors.clear();
        self.by_label = self
            .blocks
            .iter()
            .enumerate()
            .map(|(index, b)| (b.label, index))
            .collect();
        for block in &self.blocks {
            for inst in &block.insts {
                if let Some(result) = inst.result {
                    self.types.insert(result, inst.ty.clone());
                }
            }
            let mut next = Vec::new();
            if let Terminator::Jump { targets, .. } = &block.end {
                for target in targets {
                    let index = self.by_label.get(target).copied();
                    next.push(index.ok_or(FissionError::Syntax {
                        line: 0,
                        what: "a branch to an unknown block".into(),
                    })?);
                }
                next.sort_unstable();
                next.dedup();
            }
            self.successors.push(next);
        }
        Ok(())
    }

    /// Returns the control-flow graph of the whole kernel.
    pub(crate) fn cfg(&self) -> Vec<Vec<usize>> {
        (0..self.blocks.len())
            .map(|block| self.kernel_successors(block))
            .collect()
    }

    /// Numbers the sites in program order, and inserts reconvergence points at the latches of loops in which some
    /// lanes may skip a SIMD-level site.
    ///
    /// The scheduler performs the first site in this order at which lanes wait. So lanes that diverged at a branch
    /// reconverge after it; only in a loop could some of them run ahead into the next iteration.
    pub(crate) fn number_sites(&mut self) -> Result<(), FissionError> {
        let flow = self.cfg();
        let order = BlockOrder::new(&flow);
        if self
            .sites
            .iter()
            .any(|site| site.kind != SiteKind::Threadgroup)
        {
            let live = live_in(self);
            let uniformity = Uniformity::new(self, &flow, &order, &live);
            let mut edges = Vec::new();
            for component in &order.loops {
                if self.needs_reconvergence(component, &flow, &uniformity) {
                    let latches = component
                        .blocks
                        .iter()
                        .filter(|b| flow[*b].contains(&component.head));
                    edges.extend(latches.map(|latch| (latch, component.head)));
                }
            }
            for (latch, head) in edges {
                self.insert_reconvergence(latch, head);
            }
            self.connect()?;
        }
        let order = BlockOrder::new(&self.cfg());
        let mut numbers: Vec<(usize, usize)> = Vec::new();
        for (index, block) in self.blocks.iter().enumerate() {
            if let Terminator::Sync { site } = block.end {
                numbers.push((order.position[index], site));
            }
        }
        numbers.sort_unstable();
        let mut renamed = vec![0; self.sites.len() + 1];
        let mut sites = Vec::with_capacity(self.sites.len());
        for (index, (_, site)) in numbers.iter().enumerate() {
            renamed[*site] = index + 1;
            sites.push(self.sites[*site - 1].clone());
        }
        self.sites = sites;
        for block in &mut self.blocks {
            if let Terminator::Sync { site } = &mut block.end {
                *site = renamed[*site];
            }
        }
        Ok(())
    }

    /// Makes the lanes of a SIMD-group reconverge after loops that test atomics.
    ///
    /// A GPU runs the lanes of a SIMD-group in lockstep: those that leave such a loop wait for those still in it. A
    /// lane that spins until another lane has executed something after the loop, such as releasing a lock, spins
    /// forever.
    fn reconverge_after_spin_loops(&mut self) -> Result<(), FissionError> {
        let flow = self.cfg();
        let used: BitSet = self.used_values();
        let mut edges = Vec::new();
        for component in &BlockOrder::new(&flow).loops {
            let tests_atomic = |block: usize| {
                self.blocks[block].insts.iter().any(|inst| {
                    callee(inst).is_some_and(|name| name.starts_with("__tsan_atomic"))
                        && inst.result.is_some_and(|id| used.contains(id))
                })
            };
            if !component.blocks.iter().any(tests_atomic) {
                continue;
            }
            for block in component.blocks.iter() {
                let leaves = flow[block]
                    .iter()
                    .filter(|to| !component.blocks.contains(**to));
                edges.extend(leaves.map(|&to| (block, to)));
            }
        }
        edges.sort_unstable();
        edges.dedup();
        for (from, to) in edges {
            self.insert_reconvergence(from, to);
        }
        self.connect()
    }

    /// Returns the values that are used.
    fn used_values(&self) -> BitSet {
        let mut used = BitSet::new(self.ids);
        for (index, block) in self.blocks.iter().enumerate() {
            let insts = block.insts.iter().flat_map(Inst::uses);
            insts
                .chain(self.terminator_uses(index))
                .for_each(|id| used.insert(id));
        }
        used
    }

    /// Returns whether lanes can reach the end of an iteration past a SIMD-level site at which others wait.
    fn needs_reconvergence(
        &self,
        component: &Loop,
        flow: &[Vec<usize>],
        uniformity: &Uniformity,
    ) -> bool {
        let body = |from: usize, avoid: usize| {
            let mut seen = BitSet::new(flow.len());
            let mut work = vec![from];
            let mut ends = false;
            while let Some(block) = work.pop() {
                if block == avoid || seen.contains(block) {
                    continue;
                }
                seen.insert(block);
                for &to in flow[block]
                    .iter()
                    .filter(|to| component.blocks.contains(**to))
                {
                    if to == component.head {
                        ends = true;
                    } else {
                        work.push(to);
                    }
                }
            }
            (seen, ends)
        };
        let branches: Vec<usize> = component
            .blocks
            .iter()
            .filter(|&b| {
                flow[b]
                    .iter()
                    .filter(|to| component.blocks.contains(**to))
                    .count()
                    > 1
            })
            .filter(|&b| uniformity.is_divergent_branch(self, b))
            .collect();
        component.blocks.iter().any(|block| {
            let Terminator::Sync { site } = self.blocks[block].end else {
                return false;
            };
            self.sites[site - 1].kind != SiteKind::Threadgroup
                && branches.iter().any(|&branch| {
                    branch != block
                        && body(branch, usize::MAX).0.contains(block)
                        && body(branch, block).1
                })
        })
    }

    /// Inserts a reconvergence point on the edge from `latch` to `head`, which may also be an exit edge of a loop.
    fn insert_reconvergence(&mut self, latch: usize, head: usize) {
        let (before, after) = (self.fresh_id(), self.fresh_id());
        let (latch_label, head_label) = (self.blocks[latch].label, self.blocks[head].label);
        if let Terminator::Jump { fragments, targets } = &mut self.blocks[latch].end {
            let redirect = |id: &mut Id| {
                if *id == head_label {
                    *id = before;
                }
            };
            rename_fragments(fragments, &redirect);
            targets.iter_mut().for_each(redirect);
        } else {
            return;
        }
        for inst in &mut self.blocks[head].insts {
            if let Op::Phi { incoming } = &mut inst.op {
                // A switch may contain the edge twice; only one of them remains.
                let mut seen = false;
                incoming.retain(|(_, from)| {
                    *from != latch_label || !std::mem::replace(&mut seen, true)
                });
                incoming
                    .iter_mut()
                    .filter(|(_, from)| *from == latch_label)
                    .for_each(|(_, from)| *from = after);
            }
        }
        let continuation = self.blocks.len() + 1;
        self.sites.push(SyncSite {
            kind: SiteKind::Simdgroup,
            flags: RECONVERGE,
            op: None,
            arguments: Vec::new(),
            result: None,
            continuation,
            location: None,
        });
        let site = self.sites.len();
        self.blocks.push(BasicBlock {
            label: before,
            insts: Vec::new(),
            end: Terminator::Sync { site },
            location: None,
        });
        let fragments = vec![
            Fragment::Text("br label ".into()),
            Fragment::Local(head_label),
        ];
        let end = Terminator::Jump {
            fragments,
            targets: vec![head_label],
        };
        self.blocks.push(BasicBlock {
            label: after,
            insts: Vec::new(),
            end,
            location: None,
        });
    }

    /// Returns the successors of a block in the whole kernel.
    pub(crate) fn kernel_successors(&self, block: usize) -> Vec<usize> {
        match self.blocks[block].end {
            Terminator::Sync { site } => vec![self.sites[site - 1].continuation],
            _ => self.successors[block].clone(),
        }
    }

    /// Returns the values that the terminator of a block uses.
    pub(crate) fn terminator_uses(&self, block: usize) -> Vec<Id> {
        match &self.blocks[block].end {
            Terminator::Jump { fragments, targets } => super::parse::locals(fragments)
                .into_iter()
                .filter(|id| !targets.contains(id))
                .collect(),
            Terminator::Sync { site } => self.sites[site - 1]
                .arguments
                .iter()
                .filter_map(|(_, value)| {
                    if let Operand::Local(id) = value {
                        Some(*id)
                    } else {
                        None
                    }
                })
                .collect(),
            Terminator::Return | Terminator::Unreachable => Vec::new(),
        }
    }

    /// Returns the blocks of the region that starts at `entry`, in depth-first order; `unswitched` fixes the targets of some
    /// branches.
    pub(crate) fn region(&self, entry: usize, unswitched: &BTreeMap<usize, usize>) -> Vec<usize> {
        let mut seen = vec![false; self.blocks.len()];
        let mut order = Vec::new();
        let mut stack = vec![entry];
        while let Some(block) = stack.pop() {
            if std::mem::replace(&mut seen[block], true) {
                continue;
            }
            order.push(block);
            match unswitched.get(&block) {
                Some(target) => stack.push(*target),
                None => stack.extend(self.successors[block].iter().rev()),
            }
        }
        order
    }

    /// Returns the block that ends at each site, from site 1.
    pub(crate) fn site_blocks(&self) -> Vec<usize> {
        let mut blocks = vec![0; self.sites.len()];
        for (index, block) in self.blocks.iter().enumerate() {
            if let Terminator::Sync { site } = block.end {
                blocks[site - 1] = index;
            }
        }
        blocks
    }

    /// Returns the index of the entry block of region `number`.
    pub(crate) fn region_entry(&self, number: usize) -> usize {
        if number == 0 {
            0
        } else {
            self.sites[number - 1].continuation
        }
    }
}

fn variable(inst: &Inst) -> Result<(u32, usize, usize), FissionError> {
    let Op::Call { arguments, .. } = &inst.op else {
        return Err(FissionError::Syntax {
            line: inst.line,
            what: "sm_tgvar that is not a call".into(),
        });
    };
    let number = |index: usize| match arguments.get(index) {
        Some((_, Operand::Constant(text))) => text.parse::<usize>().ok(),
        _ => None,
    };
    match (number(0), number(1), number(2)) {
        (Some(id), Some(size), Some(align))
            if align.is_power_of_two() && align <= 4096 && size < 1 << 30 =>
        {
            Ok((u32::try_from(id).unwrap_or(u32::MAX), size, align))
        }
        _ => Err(FissionError::Unsupported {
            line: inst.line,
            what: "a threadgroup variable whose size is not a constant".into(),
        }),
    }
}

fn rename_fragments(fragments: &mut [Fragment], rename: &impl Fn(&mut Id)) {
    for fragment in fragments {
        if let Fragment::Local(id) = fragment {
            rename(id);
        }
    }
}

fn rename_operand(operand: &mut Operand, rename: &impl Fn(&mut Id)) {
    if let Operand::Local(id) = operand {
        rename(id);
    }
}

/// Renames the operands of `inst`.
pub(crate) fn rename_inst(inst: &mut Inst, rename: &impl Fn(&mut Id)) {
    rename_fragments(&mut inst.fragments, rename);
    match &mut inst.op {
        Op::Load { pointer, .. } => rename_operand(pointer, rename),
        Op::Store { value, pointer, .. } => {
            rename_operand(value, rename);
            rename_operand(pointer, rename);
        }
        Op::Gep { base } => rename_operand(base, rename),
        Op::Phi { incoming } => incoming
            .iter_mut()
            .for_each(|(value, _)| rename_operand(value, rename)),
        Op::Call { arguments, .. } => arguments
            .iter_mut()
            .for_each(|(_, value)| rename_operand(value, rename)),
        Op::Alloca { .. } | Op::Other => {}
    }
}
