//! Structured control flow: from blocks and jumps to conditions, loops and scopes that can be left.
//!
//! After Norman Ramsey, *Beyond Relooper* (2022): the statements follow the dominator tree. A block with several forward
//! edges is placed behind a [`Statement::Scope`] of the block that dominates it, and a block that a loop leads to behind
//! the outermost loop that it is not part of. A target language without labels leaves the innermost loop or scope only, so
//! that jumps further out carry their target ([`Statement::Aim`]) and are resumed behind every construct that they leave.

use std::collections::BTreeSet;

use super::error::ProgramError;
use super::flow::{BlockId, Dominators, End, Flow};

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Statement {
    /// The actions of a block.
    Block(BlockId),
    /// Runs one of two lists.
    If {
        test: Test,
        then: Vec<Statement>,
        otherwise: Vec<Statement>,
    },
    /// Repeats its body until it is left.
    Loop {
        header: BlockId,
        follower: Option<BlockId>,
        body: Vec<Statement>,
    },
    /// Runs its body once; it can be left.
    Scope {
        follower: BlockId,
        body: Vec<Statement>,
    },
    /// Ends the lane.
    End(BlockId),
    /// Goes to the follower of an enclosing construct, or to the header of an enclosing loop. Not in results.
    Jump(BlockId),
    /// Leaves the innermost loop or scope.
    Break,
    /// Repeats the innermost loop or, which is the same, ends its body.
    Continue,
    /// Sets the target of a jump that leaves several constructs.
    Aim(BlockId),
    /// Continues such a jump behind a construct that it left.
    Resume {
        /// Targets that are reached by leaving or repeating the innermost construct.
        here: Vec<(BlockId, LocalJump)>,
        /// Whether there are others.
        is_partial: bool,
    },
}

/// A jump that the target language has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalJump {
    Break,
    Continue,
}

/// A condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) kind: TestKind,
    pub(crate) is_negated: bool,
}

/// What a condition depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestKind {
    /// The branch that ends a block.
    Branch(BlockId),
    /// The lane has not left.
    Alive,
    /// A selector has a value.
    Selector(usize, usize),
}

impl Test {
    const fn of(kind: TestKind) -> Self {
        Self {
            kind,
            is_negated: false,
        }
    }

    const fn negated(self) -> Self {
        Self {
            is_negated: !self.is_negated,
            ..self
        }
    }
}

/// Maximum depth of nested constructs: compilers limit the depth of brackets to 256.
const MAX_NESTING: usize = 100;

/// The statements of a reducible graph.
///
/// # Errors
/// [`ProgramError::InvalidInstruction`] if constructs nest too deeply.
pub(crate) fn structure(flow: &Flow) -> Result<Vec<Statement>, ProgramError> {
    let builder = Structurer::new(flow);
    let mut statements = builder.tree(0, 0)?;
    simplify(&mut statements, None);
    let mut frames = Vec::new();
    let (statements, _) = route(statements, &mut frames);
    Ok(statements)
}

struct Structurer<'f> {
    flow: &'f Flow,
    dominators: Dominators,
    /// Header of the innermost loop of every block.
    innermost: Vec<Option<BlockId>>,
    /// Header of the loop around the loop of a header.
    outer: Vec<Option<BlockId>>,
    is_header: Vec<bool>,
    /// Blocks placed behind a block or its loop, in the order of the graph.
    followers: Vec<Vec<BlockId>>,
    is_follower: Vec<bool>,
}

impl<'f> Structurer<'f> {
    fn new(flow: &'f Flow) -> Self {
        let count = flow.blocks.len();
        let mut new = Self {
            flow,
            dominators: flow.dominators(),
            innermost: vec![None; count],
            outer: vec![None; count],
            is_header: vec![false; count],
            followers: vec![Vec::new(); count],
            is_follower: vec![false; count],
        };
        new.find_loops();
        new.place();
        new
    }

    fn is_back_edge(&self, from: BlockId, to: BlockId) -> bool {
        self.dominators.rank[to] <= self.dominators.rank[from]
    }

    fn find_loops(&mut self) {
        let predecessors = self.flow.predecessors();
        // Inner headers come later in the order.
        for &header in self.dominators.order.clone().iter().rev() {
            let mut pending: Vec<_> = predecessors[header]
                .iter()
                .copied()
                .filter(|&from| self.is_back_edge(from, header))
                .collect();
            self.is_header[header] = !pending.is_empty();
            while let Some(mut block) = pending.pop() {
                // The outermost loop found so far that the block is part of.
                let mut known = self.innermost[block];
                let mut top = known;
                while let Some(inner) = known {
                    top = known;
                    known = self.outer[inner];
                }
                match top {
                    Some(top) if top == header => continue,
                    Some(top) => {
                        self.outer[top] = Some(header);
                        block = top;
                    }
                    None => self.innermost[block] = Some(header),
                }
                if block != header {
                    let outside = predecessors[block].iter().copied();
                    // Edges to a header from its own loop lead nowhere new.
                    pending.extend(outside.filter(|&p| !self.contains(block, p)));
                }
            }
            if self.is_header[header] && self.innermost[header].is_none() {
                self.innermost[header] = Some(header);
            }
        }
    }

    /// Returns `true` if a block is part of the loop of a header.
    fn contains(&self, header: BlockId, block: BlockId) -> bool {
        if !self.is_header[header] {
            return false;
        }
        let mut inner = self.innermost[block];
        while let Some(found) = inner {
            if found == header {
                return true;
            }
            inner = self.outer[found];
        }
        false
    }

    fn place(&mut self) {
        let mut forward = vec![0_usize; self.flow.blocks.len()];
        for &from in &self.dominators.order {
            for to in self.flow.successors(from) {
                forward[to] += usize::from(!self.is_back_edge(from, to));
            }
        }
        for &block in &self.dominators.order {
            let Some(parent) = self.dominators.parent(block) else {
                continue;
            };
            let mut left = None;
            let mut around = self.innermost[parent];
            while let Some(header) = around {
                if !self.contains(header, block) {
                    left = Some(header);
                }
                around = self.outer[header];
            }
            let place = match left {
                Some(header) => header,
                None if forward[block] > 1 => parent,
                None => continue,
            };
            self.followers[place].push(block);
            self.is_follower[block] = true;
        }
    }

    fn check_depth(&self, block: BlockId, depth: usize) -> Result<(), ProgramError> {
        if depth <= MAX_NESTING {
            return Ok(());
        }
        Err(ProgramError::Unsupported {
            index: self.flow.blocks[block].position(),
            mnemonic: "bra",
            reason: format!("conditions and loops nest more than {MAX_NESTING} deep"),
        })
    }

    /// The statements of a block and of all that is placed in or behind it.
    fn tree(&self, first: BlockId, depth: usize) -> Result<Vec<Statement>, ProgramError> {
        self.check_depth(first, depth)?;
        let mut all = Vec::new();
        let mut next = Some(first);
        while let Some(block) = next.take() {
            if self.is_header[block] {
                let (inner, behind): (Vec<_>, Vec<_>) = self.followers[block]
                    .iter()
                    .copied()
                    .partition(|&f| self.contains(block, f));
                let mut core = vec![Statement::Loop {
                    header: block,
                    follower: behind.first().copied(),
                    body: self.closed(block, &inner, depth + behind.len() + 1)?,
                }];
                next = self.chain(&mut core, &behind, true, depth)?;
                all.append(&mut core);
            } else if self.followers[block].is_empty() {
                next = self.open(block, &mut all, depth)?;
            } else {
                let followers = &self.followers[block];
                let mut core = self.closed(block, &[], depth + followers.len())?;
                next = self.chain(&mut core, followers, false, depth)?;
                all.append(&mut core);
            }
        }
        Ok(all)
    }

    /// A block with all that is placed in it and behind it.
    fn closed(
        &self,
        block: BlockId,
        followers: &[BlockId],
        depth: usize,
    ) -> Result<Vec<Statement>, ProgramError> {
        self.check_depth(block, depth)?;
        let mut core = Vec::new();
        if let Some(tail) = self.open(block, &mut core, depth + followers.len())? {
            core.append(&mut self.tree(tail, depth + followers.len())?);
        }
        if let Some(last) = self.chain(&mut core, followers, false, depth)? {
            core.append(&mut self.tree(last, depth)?);
        }
        Ok(core)
    }

    /// Puts scopes around statements, and behind each its follower. The last follower is returned, not added.
    fn chain(
        &self,
        core: &mut Vec<Statement>,
        followers: &[BlockId],
        is_loop: bool,
        depth: usize,
    ) -> Result<Option<BlockId>, ProgramError> {
        for (i, &follower) in followers.iter().enumerate() {
            if i > 0 || !is_loop {
                let body = std::mem::take(core);
                core.push(Statement::Scope { follower, body });
            }
            if i + 1 == followers.len() {
                return Ok(Some(follower));
            }
            core.append(&mut self.tree(follower, depth + followers.len() - i)?);
        }
        Ok(None)
    }

    /// Appends a block and what ends it. A successor that follows without a jump is returned, not added.
    fn open(
        &self,
        block: BlockId,
        all: &mut Vec<Statement>,
        depth: usize,
    ) -> Result<Option<BlockId>, ProgramError> {
        all.push(Statement::Block(block));
        let branch = |kind, yes, no, all: &mut Vec<Statement>| {
            let test = Test::of(kind);
            let (test, then, tail) = match (self.jump(block, yes), self.jump(block, no)) {
                (Some(jump), None) => (test, vec![jump], no),
                (None, Some(jump)) => (test.negated(), vec![jump], yes),
                (Some(yes), Some(no)) => {
                    all.push(Statement::If {
                        test,
                        then: vec![yes],
                        otherwise: vec![no],
                    });
                    return Ok(None);
                }
                (None, None) => {
                    let then = self.tree(yes, depth + 1)?;
                    let otherwise = self.tree(no, depth + 1)?;
                    all.push(Statement::If {
                        test,
                        then,
                        otherwise,
                    });
                    return Ok(None);
                }
            };
            all.push(Statement::If {
                test,
                then,
                otherwise: Vec::new(),
            });
            Ok(Some(tail))
        };
        match &self.flow.blocks[block].end {
            End::Exit => {
                all.push(Statement::End(block));
                Ok(None)
            }
            End::Jump(to) => match self.jump(block, *to) {
                Some(jump) => {
                    all.push(jump);
                    Ok(None)
                }
                None => Ok(Some(*to)),
            },
            End::Branch { yes, no, .. } => branch(TestKind::Branch(block), *yes, *no, all),
            End::IfAlive { yes, no } => branch(TestKind::Alive, *yes, *no, all),
            End::Dispatch { selector, targets } => {
                for (value, &target) in targets.iter().enumerate() {
                    let then = match self.jump(block, target) {
                        Some(jump) => vec![jump],
                        None => self.tree(target, depth + 1)?,
                    };
                    all.push(Statement::If {
                        test: Test::of(TestKind::Selector(*selector, value)),
                        then,
                        otherwise: Vec::new(),
                    });
                }
                Ok(None)
            }
        }
    }

    /// The jump along an edge; `None` if the target's statements simply follow.
    fn jump(&self, from: BlockId, to: BlockId) -> Option<Statement> {
        (self.is_back_edge(from, to) || self.is_follower[to]).then_some(Statement::Jump(to))
    }
}

/// Number of jumps to a target.
fn jumps_to(statements: &[Statement], target: BlockId) -> usize {
    let in_statement = |statement: &Statement| match statement {
        Statement::Jump(to) => usize::from(*to == target),
        Statement::If {
            then, otherwise, ..
        } => jumps_to(then, target) + jumps_to(otherwise, target),
        Statement::Loop { body, .. } | Statement::Scope { body, .. } => jumps_to(body, target),
        _ => 0,
    };
    statements.iter().map(in_statement).sum()
}

/// Removes jumps to what follows anyway, and scopes that nothing leaves. `next` is where control goes at the end.
fn simplify(statements: &mut Vec<Statement>, next: Option<BlockId>) {
    // A single jump over the rest becomes a condition of the rest.
    if let Some(target) = next
        && jumps_to(statements, target)
            - usize::from(statements.last() == Some(&Statement::Jump(target)))
            == 1
        && let Some(at) = statements.iter().position(|s| {
            matches!(s, Statement::If { then, otherwise, .. }
                if then[..] == [Statement::Jump(target)] && otherwise.is_empty())
        })
        && at + 1 < statements.len()
    {
        let rest = statements.split_off(at + 1);
        if let Statement::If { test, then, .. } = &mut statements[at] {
            *test = test.negated();
            *then = rest;
        }
    }
    let last = statements.len().saturating_sub(1);
    let mut all = Vec::with_capacity(statements.len());
    for (i, statement) in std::mem::take(statements).into_iter().enumerate() {
        let next = next.filter(|_| i == last);
        match statement {
            Statement::Jump(to) if Some(to) == next => {}
            Statement::If {
                mut test,
                mut then,
                mut otherwise,
            } => {
                simplify(&mut then, next);
                simplify(&mut otherwise, next);
                if then.is_empty() {
                    (test, then, otherwise) = (test.negated(), otherwise, then);
                }
                if !then.is_empty() {
                    all.push(Statement::If {
                        test,
                        then,
                        otherwise,
                    });
                }
            }
            Statement::Loop {
                header,
                follower,
                mut body,
            } => {
                simplify(&mut body, Some(header));
                all.push(Statement::Loop {
                    header,
                    follower,
                    body,
                });
            }
            Statement::Scope { follower, mut body } => {
                simplify(&mut body, Some(follower));
                if jumps_to(&body, follower) == 0 {
                    all.append(&mut body);
                } else {
                    all.push(Statement::Scope { follower, body });
                }
            }
            other => all.push(other),
        }
    }
    *statements = all;
}

/// A loop or scope around statements.
struct Frame {
    header: Option<BlockId>,
    follower: Option<BlockId>,
}

impl Frame {
    fn jump(&self, target: BlockId) -> Option<LocalJump> {
        if self.header == Some(target) {
            Some(LocalJump::Continue)
        } else if self.follower == Some(target) {
            Some(LocalJump::Break)
        } else {
            None
        }
    }
}

/// Replaces jumps by those that leave or repeat the innermost construct. Also returns the targets further out.
fn route(
    statements: Vec<Statement>,
    frames: &mut Vec<Frame>,
) -> (Vec<Statement>, BTreeSet<BlockId>) {
    let (mut all, mut far) = (Vec::new(), BTreeSet::new());
    for statement in statements {
        match statement {
            Statement::Jump(target) => match frames.last().and_then(|f| f.jump(target)) {
                Some(LocalJump::Break) => all.push(Statement::Break),
                Some(LocalJump::Continue) => all.push(Statement::Continue),
                None => {
                    far.insert(target);
                    all.extend([Statement::Aim(target), Statement::Break]);
                }
            },
            Statement::If {
                test,
                then,
                otherwise,
            } => {
                let (then, beyond) = route(then, frames);
                far.extend(beyond);
                let (otherwise, beyond) = route(otherwise, frames);
                far.extend(beyond);
                all.push(Statement::If {
                    test,
                    then,
                    otherwise,
                });
            }
            Statement::Loop {
                header,
                follower,
                body,
            } => {
                frames.push(Frame {
                    header: Some(header),
                    follower,
                });
                let (body, targets) = route(body, frames);
                frames.pop();
                all.push(Statement::Loop {
                    header,
                    follower,
                    body,
                });
                resume(&mut all, &mut far, frames, targets);
            }
            Statement::Scope { follower, body } => {
                frames.push(Frame {
                    header: None,
                    follower: Some(follower),
                });
                let (body, targets) = route(body, frames);
                frames.pop();
                all.push(Statement::Scope { follower, body });
                resume(&mut all, &mut far, frames, targets);
            }
            other => all.push(other),
        }
    }
    (all, far)
}

fn resume(
    all: &mut Vec<Statement>,
    far: &mut BTreeSet<BlockId>,
    frames: &[Frame],
    targets: BTreeSet<BlockId>,
) {
    if targets.is_empty() {
        return;
    }
    let count = targets.len();
    let mut here = Vec::new();
    for target in targets {
        match frames.last().and_then(|f| f.jump(target)) {
            Some(jump) => here.push((target, jump)),
            None => {
                far.insert(target);
            }
        }
    }
    let is_partial = here.len() < count;
    all.push(Statement::Resume { here, is_partial });
}

#[cfg(test)]
mod tests;
