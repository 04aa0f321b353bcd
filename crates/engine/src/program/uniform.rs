//! Barriers: which branches lanes may take apart, and how lanes that have ended still reach the barriers of the others.
//!
//! A barrier waits for the lanes of a block that have not ended, while a device's barrier must be reached by all of them.
//! So a lane that ends where a barrier can follow *leaves*: it has no effect from then on, but follows the control flow
//! that all lanes have in common. That works because the branches on the way to a barrier must be *uniform*: they depend
//! on nothing that differs between the lanes of a block. Where lanes part (a *divergent* branch), those that have left go to
//! the place where the others meet again, the immediate post-dominator.
//!
//! An edge out of the part of the graph that leads to barriers, if only some lanes take it, does not count for where lanes
//! meet: who takes it has no barrier left to reach.

use super::access::MemoryBinding;
use super::error::{ProgramError, Result};
use super::flow::{Action, BlockId, Dominators, End, Flow, FlowBlock, Lanes};
use super::instruction::Instruction;
use super::liveness::{self, LiveSet};
use super::operand::Register;

/// Maximum number of blocks of a kernel with barriers: what follows an early exit is copied for it.
const MAX_BLOCKS: usize = 1 << 15;

/// What may differ between the lanes of a block: registers, predicates and the phase, and selectors.
#[derive(Clone, Debug, Default, PartialEq)]
struct Varying {
    values: LiveSet,
    selectors: Vec<usize>,
}

impl Varying {
    fn join(&mut self, other: &Self) -> bool {
        let before = self.selectors.len();
        for selector in &other.selectors {
            if !self.selectors.contains(selector) {
                self.selectors.push(*selector);
            }
        }
        self.values.join(&other.values) || self.selectors.len() != before
    }
}

struct Barriers<'a> {
    flow: &'a mut Flow,
    instructions: &'a [Instruction],
    bindings: &'a [MemoryBinding],
    /// Blocks from which a barrier can be reached, those with barriers included.
    leads: Vec<bool>,
    /// Where lanes that part at the end of a block meet again, in a graph with only those blocks; the node behind the last
    /// block is the end.
    meeting: Dominators,
    /// Blocks that only some lanes may run, with the place where lanes that have left go.
    divergent: Vec<Option<BlockId>>,
}

/// Prepares a reducible graph for barriers, and returns whether it has any.
///
/// # Errors
/// [`ProgramError::Unsupported`] for a barrier that only some lanes may reach.
pub(crate) fn prepare_barriers(
    flow: &mut Flow,
    instructions: &[Instruction],
    bindings: &[MemoryBinding],
) -> Result<bool> {
    let is_barrier = |i: &Instruction| matches!(i, Instruction::BarSync { .. });
    if !flow.any(instructions, is_barrier) {
        return Ok(false);
    }
    flow.compact();
    let mut barriers = Barriers::new(flow, instructions, bindings);
    let varying = barriers.find_divergence()?;
    barriers.mark_uniform_loads(&varying);
    barriers.rewrite(&varying)?;
    Ok(true)
}

impl<'a> Barriers<'a> {
    fn new(
        flow: &'a mut Flow,
        instructions: &'a [Instruction],
        bindings: &'a [MemoryBinding],
    ) -> Self {
        let count = flow.blocks.len();
        let predecessors = flow.predecessors();
        let mut leads = vec![false; count];
        let mut pending: Vec<_> = (0..count)
            .filter(|&b| barrier_in(flow, instructions, b).is_some())
            .collect();
        while let Some(block) = pending.pop() {
            if !std::mem::replace(&mut leads[block], true) {
                pending.extend(&predecessors[block]);
            }
        }
        Self {
            meeting: meeting_places(flow, &leads, &vec![false; count]),
            divergent: vec![None; count],
            flow,
            instructions,
            bindings,
            leads,
        }
    }

    /// The node that stands for the end.
    fn end(&self) -> BlockId {
        self.leads.len()
    }

    /// Finds the blocks that only some lanes may run, and what may differ between lanes at the start of every block.
    fn find_divergence(&mut self) -> Result<Vec<Option<Varying>>> {
        // Blocks at whose end lanes are apart, or part. Those that part by their position are known without the others.
        let states = self.solve_values();
        let mut apart = vec![false; self.leads.len()];
        for block in self.parting(&states) {
            apart[block] = true;
        }
        loop {
            self.meeting = meeting_places(self.flow, &self.leads, &apart);
            self.divergent.fill(None);
            let states = self.solve();
            let mut is_changed = false;
            let divergent = (0..apart.len()).filter(|&b| self.divergent[b].is_some());
            for block in divergent.chain(self.parting(&states)) {
                is_changed |= !std::mem::replace(&mut apart[block], true);
            }
            if !is_changed {
                self.check_barriers(&states)?;
                return Ok(states);
            }
        }
    }

    /// What may differ between lanes at the start of every block, given the blocks that only some lanes may run.
    fn solve_values(&self) -> Vec<Option<Varying>> {
        self.flow.solve(
            at_start(),
            |block, state| self.follow(block, state),
            Varying::join,
        )
    }

    /// Marks the blocks that only some lanes may run, given where lanes meet.
    fn solve(&mut self) -> Vec<Option<Varying>> {
        loop {
            let states = self.solve_values();
            let mut is_changed = false;
            for branch in self.parting(&states) {
                let (region, meeting) = self.region(branch);
                for block in (0..region.len()).filter(|&b| region[b]) {
                    if self.divergent[block].is_none() {
                        self.divergent[block] = Some(meeting);
                        is_changed = true;
                    }
                }
            }
            if !is_changed {
                return states;
            }
        }
    }

    /// Refuses a barrier that only some lanes may reach.
    fn check_barriers(&self, states: &[Option<Varying>]) -> Result<()> {
        for branch in self.parting(states) {
            let (region, _) = self.region(branch);
            for block in (0..region.len()).filter(|&b| region[b]) {
                if let Some(index) = barrier_in(self.flow, self.instructions, block) {
                    return Err(self.refuse(index, branch));
                }
            }
        }
        Ok(())
    }

    /// Returns `true` if lanes may take different ways at the end of a block.
    fn parts(&self, block: BlockId, start: &Varying) -> bool {
        let mut state = start.clone();
        self.follow(block, &mut state);
        match &self.flow.blocks[block].end {
            End::Branch { index, .. } => self.reads_varying(&self.instructions[*index], &state),
            End::Dispatch { selector, .. } => state.selectors.contains(selector),
            _ => false,
        }
    }

    /// Blocks that lead to barriers and at whose end lanes may take different ways.
    fn parting(&self, states: &[Option<Varying>]) -> Vec<BlockId> {
        let leading = states.iter().enumerate().filter(|(b, _)| self.leads[*b]);
        let parts = |(block, state): (BlockId, &Option<Varying>)| {
            let state = state.as_ref()?;
            self.parts(block, state).then_some(block)
        };
        leading.filter_map(parts).collect()
    }

    /// The blocks between a branch and the place where lanes meet again, and that place.
    fn region(&self, branch: BlockId) -> (Vec<bool>, BlockId) {
        let meeting = self.meeting.parent(branch).unwrap_or(self.end());
        let starts: Vec<_> = self.flow.successors(branch);
        let starts = starts.into_iter().filter(|&b| self.leads[b]);
        let is_outside = |b: BlockId| b == meeting || !self.leads[b];
        (self.flow.reachable(starts, is_outside), meeting)
    }

    fn refuse(&self, barrier: usize, branch: BlockId) -> ProgramError {
        let branch = match self.flow.blocks[branch].end {
            End::Branch { index, .. } => {
                format!(
                    "the {} at instruction {index}",
                    self.instructions[index].mnemonic()
                )
            }
            _ => "the entry of a loop with several entries".to_owned(),
        };
        ProgramError::Unsupported {
            index: barrier,
            mnemonic: self.instructions[barrier].mnemonic(),
            reason: format!(
                "only some lanes of a block may reach this barrier: {branch} may differ between them"
            ),
        }
    }

    fn reads_varying(&self, instruction: &Instruction, state: &Varying) -> bool {
        let mut varies = liveness::tested(instruction)
            .is_some_and(|predicate| state.values.has_predicate(predicate));
        liveness::for_each_read(instruction, |register, _| {
            varies |= state.values.contains(register);
        });
        varies
    }

    /// Returns `true` if an instruction may have different results in different lanes.
    fn varies(&self, instruction: &Instruction, binding: Option<usize>, state: &Varying) -> bool {
        let is_written = || binding.is_none_or(|b| self.bindings[b].is_written);
        match instruction {
            Instruction::Ldg { .. } | Instruction::PoolLoad { .. } => {
                is_written() || self.reads_varying(instruction, state)
            }
            // Another lane may have stored in between.
            Instruction::Lds { .. } => true,
            Instruction::PhaseGet { .. } => state.values.has_phase,
            _ => self.reads_varying(instruction, state),
        }
    }

    /// Follows the actions of a block.
    fn follow(&self, block: BlockId, state: &mut Varying) {
        let is_divergent = self.divergent.get(block).is_some_and(Option::is_some);
        for action in &self.flow.blocks[block].actions {
            match action {
                Action::Run { index, binding, .. } => {
                    self.step(*index, *binding, is_divergent, state);
                }
                Action::Select { selector, .. } => {
                    state.selectors.retain(|s| s != selector);
                    if is_divergent {
                        state.selectors.push(*selector);
                    }
                }
                Action::Count { .. } | Action::Leave => {}
            }
        }
        if let End::Branch { index, .. } = self.flow.blocks[block].end {
            self.step(index, None, is_divergent, state);
        }
    }

    fn step(&self, index: usize, binding: Option<usize>, is_divergent: bool, state: &mut Varying) {
        let instruction = &self.instructions[index];
        let varies = is_divergent || self.varies(instruction, binding, state);
        liveness::for_each_write(instruction, |register, _| {
            if varies {
                state.values.insert(register);
            } else {
                state.values.remove(register);
            }
        });
        if let Some(predicate) = liveness::set(instruction) {
            if varies {
                state.values.insert_predicate(predicate);
            } else {
                state.values.remove_predicate(predicate);
            }
        }
        if is_divergent && matches!(instruction, Instruction::PhaseAdv { .. }) {
            state.values.has_phase = true;
        }
    }

    /// Marks loads that lanes which have left must run too, because uniform branches depend on them.
    fn mark_uniform_loads(&mut self, states: &[Option<Varying>]) {
        for (block, state) in states.iter().enumerate() {
            let Some(mut state) = state.clone() else {
                continue;
            };
            if !self.leads[block] || self.divergent[block].is_some() {
                continue;
            }
            for at in 0..self.flow.blocks[block].actions.len() {
                let Action::Run { index, binding, .. } = self.flow.blocks[block].actions[at] else {
                    continue;
                };
                let instruction = &self.instructions[index];
                let is_load = matches!(
                    instruction,
                    Instruction::Ldg { .. } | Instruction::PoolLoad { .. }
                );
                let marks = is_load && !self.varies(instruction, binding, &state);
                if let Action::Run { is_uniform, .. } = &mut self.flow.blocks[block].actions[at] {
                    *is_uniform = marks;
                }
                self.step(index, binding, false, &mut state);
            }
        }
    }

    /// Gives every block its lanes, and lanes that have left their way.
    fn rewrite(&mut self, states: &[Option<Varying>]) -> Result<()> {
        let exit = self.flow.push(FlowBlock::new(End::Exit));
        let headers = self.loop_headers();
        for (block, state) in states.iter().enumerate() {
            let Some(state) = state else {
                continue;
            };
            if !self.leads[block] {
                continue;
            }
            if self.flow.blocks.len() > MAX_BLOCKS {
                let index = self.flow.blocks[block].position();
                return Err(ProgramError::Unsupported {
                    index,
                    mnemonic: self.instructions[index].mnemonic(),
                    reason: "lanes leave a kernel with barriers in too many places".to_owned(),
                });
            }
            let parts = self.parts(block, state);
            let place = |meeting: BlockId| {
                if meeting == self.leads.len() {
                    exit
                } else {
                    meeting
                }
            };
            let meeting = place(self.meeting.parent(block).unwrap_or(self.leads.len()));
            let escape = self.divergent[block].map(place);
            self.flow.blocks[block].lanes = match escape {
                Some(_) => Lanes::Divergent,
                None => Lanes::Uniform,
            };
            self.leave_for_good(
                block,
                parts || escape.is_some(),
                escape.unwrap_or(meeting),
                exit,
            );
            let branches = self.flow.successors(block).len() > 1;
            if branches && (parts || escape.is_some()) {
                self.check_alive_at_end(
                    block,
                    if parts {
                        meeting
                    } else {
                        escape.unwrap_or(exit)
                    },
                );
            }
            if let Some(escape) = escape
                && headers[block]
            {
                self.check_alive_at_start(block, escape);
            }
        }
        Ok(())
    }

    fn loop_headers(&self) -> Vec<bool> {
        let dominators = self.flow.dominators();
        let mut headers = vec![false; self.flow.blocks.len()];
        for &from in &dominators.order {
            for to in self.flow.successors(from) {
                headers[to] |= dominators.rank[to] <= dominators.rank[from];
            }
        }
        headers
    }

    /// Rewrites the edges of a block after which no barrier follows. Lanes that have left end there. If only some lanes take
    /// such an edge, they have their own copy of what follows, at whose end they leave and go where the others meet.
    fn leave_for_good(&mut self, block: BlockId, is_apart: bool, meeting: BlockId, exit: BlockId) {
        let successors = self.flow.successors(block);
        let stays = successors.iter().any(|&b| self.leads.get(b) == Some(&true));
        for to in successors {
            if self.leads.get(to) == Some(&true) || to == exit {
                continue;
            }
            let way = if stays && is_apart && meeting != exit {
                self.copy_tail(to, meeting)
            } else {
                self.flow.push(FlowBlock {
                    lanes: Lanes::Uniform,
                    ..FlowBlock::new(End::IfAlive { yes: to, no: exit })
                })
            };
            self.flow.blocks[block]
                .end
                .redirect(|b| if b == to { way } else { b });
        }
    }

    /// Copies all that can be reached from a block; lanes leave at its ends.
    fn copy_tail(&mut self, start: BlockId, meeting: BlockId) -> BlockId {
        let tail = self.flow.reachable([start], |_| false);
        let headers = self.loop_headers();
        let mut places = vec![usize::MAX; tail.len()];
        let all: Vec<_> = (0..tail.len()).filter(|&b| tail[b]).collect();
        for &block in &all {
            places[block] = self.flow.push(self.flow.blocks[block].clone());
        }
        for &block in &all {
            let copy = places[block];
            self.flow.blocks[copy].lanes = Lanes::Divergent;
            self.flow.blocks[copy].end.redirect(|b| places[b]);
            match self.flow.blocks[copy].end {
                End::Exit => {
                    self.flow.blocks[copy].actions.push(Action::Leave);
                    self.flow.blocks[copy].end = End::Jump(meeting);
                }
                End::Branch { .. } | End::Dispatch { .. } => {
                    self.check_alive_at_end(copy, meeting);
                }
                _ => {}
            }
            if headers[block] {
                self.check_alive_at_start(copy, meeting);
            }
        }
        places[start]
    }

    /// Sends lanes that have left elsewhere, in front of the branch that ends a block.
    fn check_alive_at_end(&mut self, block: BlockId, escape: BlockId) {
        let branch = FlowBlock {
            actions: Vec::new(),
            label: None,
            ..self.flow.blocks[block].clone()
        };
        let yes = self.flow.push(branch);
        self.flow.blocks[block].end = End::IfAlive { yes, no: escape };
    }

    /// Counts the iterations of a loop, and sends lanes that have left elsewhere.
    fn check_alive_at_start(&mut self, block: BlockId, escape: BlockId) {
        let index = self.flow.blocks[block].position();
        let body = FlowBlock {
            label: None,
            ..self.flow.blocks[block].clone()
        };
        let yes = self.flow.push(body);
        let header = &mut self.flow.blocks[block];
        header.actions = vec![Action::Count { index }];
        header.end = End::IfAlive { yes, no: escape };
    }
}

/// Where lanes that part at the end of a block meet again, in the part of the graph that leads to barriers. Its ends are the
/// blocks from which every edge leads out of it and, of loops without such a block, the edges that all lanes take together.
fn meeting_places(flow: &Flow, leads: &[bool], apart: &[bool]) -> Dominators {
    let end = leads.len();
    let mut reversed = vec![Vec::new(); end + 1];
    let mut leaves = vec![false; end];
    let mut pending = Vec::new();
    for block in (0..end).filter(|&b| leads[b]) {
        let successors = flow.successors(block);
        let stays = successors.iter().any(|&to| leads[to]);
        leaves[block] = successors.iter().any(|&to| !leads[to]) && !apart[block];
        for to in successors.into_iter().filter(|&to| leads[to]) {
            reversed[to].push(block);
        }
        if !stays {
            reversed[end].push(block);
            pending.push(block);
        }
    }
    let mut reaches_end = vec![false; end];
    while let Some(block) = pending.pop() {
        if !std::mem::replace(&mut reaches_end[block], true) {
            pending.extend(&reversed[block]);
        }
    }
    reversed[end].extend((0..end).filter(|&b| leaves[b] && !reaches_end[b]));
    Dominators::new(&reversed, end)
}

/// Index of the first barrier of a block.
fn barrier_in(flow: &Flow, instructions: &[Instruction], block: BlockId) -> Option<usize> {
    let mut all = flow.blocks[block].instructions();
    all.find(|&index| matches!(instructions[index], Instruction::BarSync { .. }))
}

/// At the start lanes differ in their position only.
fn at_start() -> Varying {
    let mut state = Varying::default();
    state.values.insert(Register::LANE_IDX_X);
    state.values.insert(Register::GLOBAL_LANE_ID);
    state
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{Program, inline};

    fn prepare(text: &str) -> Result<bool> {
        let program: Program = text.parse().unwrap();
        let mut flow = inline::flow(&program).unwrap();
        prepare_barriers(&mut flow, &program.instructions, &[])
    }

    #[test]
    fn a_barrier_behind_a_divergent_branch_is_refused_with_both() {
        let error = prepare(
            "mov_imm.u32 r0, 3
             setcc.u32.lt p0, %lane, r0
             bra.p0 @skip
             bar_sync 1
             skip: bar_sync 2",
        );
        assert_eq!(
            error,
            Err(ProgramError::Unsupported {
                index: 3,
                mnemonic: "bar_sync",
                reason: "only some lanes of a block may reach this barrier: the bra at instruction 2 may differ between them"
                    .to_owned(),
            })
        );
    }

    #[test]
    fn uniform_branches_early_exits_and_counted_loops_are_accepted() {
        let cases = [
            // A condition of the block.
            "mov_imm.u32 r0, 3\nsetcc.u32.lt p0, %block, r0\nbra.p0 @skip\nbar_sync 1\nskip: exit",
            // A lane that ends has no barrier to reach.
            "mov_imm.u32 r0, 3\nsetcc.u32.lt p0, %lane, r0\nbra.p0 @end\nbar_sync 1\nend: exit",
            // Lanes meet again.
            "mov_imm.u32 r0, 3\nsetcc.u32.lt p0, %lane, r0\nbra.p0 @skip\nphase_adv 1\nskip: bar_sync 1",
            "mov_imm.u32 r0, 3\nagain: bar_sync 1\nloop r0, @again",
            // The register that counts was the lane before.
            "mov.u32 r0, %lane\nmov_imm.u32 r0, 3\nagain: bar_sync 1\nloop r0, @again",
        ];
        for text in cases {
            assert_eq!(prepare(text), Ok(true), "{text}");
        }
        assert_eq!(prepare("exit"), Ok(false));
    }

    #[test]
    fn too_many_copies_of_what_follows_early_exits_are_refused() {
        let mut text = String::from("setcc.u32.eq p0, %lane, %block\n");
        text += &"bra.p0 @end\nphase_adv 1\n".repeat(400);
        text += "bar_sync 0\nend:\n";
        for i in 0..200 {
            text += &format!("bra.p0 @t{i}\nt{i}: phase_adv 1\n");
        }
        let error = prepare(&text).unwrap_err().to_string();
        assert!(error.contains("in too many places"), "{error}");
    }

    #[test]
    fn what_is_written_apart_differs_afterwards() {
        let cases = [
            // The number of iterations depends on the lane.
            "mov.u32 r0, %lane\nagain: bar_sync 1\nloop r0, @again",
            // Written by some lanes only.
            "mov_imm.u32 r0, 3\nmov_imm.u32 r1, 0
             setcc.u32.lt p0, %lane, r0\nbra.p0 @skip\nmov_imm.u32 r1, 1
             skip: setcc.u32.eq p1, r1, r0\nbra.p1 @end\nbar_sync 1\nphase_adv 1\nbar_sync 1\nend: bar_sync 2",
            // The phase of some lanes only.
            "mov_imm.u32 r0, 3\nsetcc.u32.lt p0, %lane, r0\nbra.p0 @skip\nphase_adv 1
             skip: phase_get r1\nsetcc.u32.eq p1, r1, r0\nbra.p1 @end\nbar_sync 1\nend: bar_sync 2",
        ];
        for text in cases {
            assert!(prepare(text).is_err(), "{text}");
        }
    }
}
