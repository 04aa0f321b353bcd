//! Random graphs, interpreted as blocks and as statements.

use proptest::prelude::*;

use super::super::flow::{Action, FlowBlock};
use super::super::irreducible::make_reducible;
use super::*;

/// Blocks that were visited, until a lane has visited enough or has ended.
struct Walk<'d> {
    flow: &'d Flow,
    decisions: std::iter::Cycle<std::slice::Iter<'d, bool>>,
    decision: bool,
    visited: Vec<BlockId>,
    selectors: Vec<usize>,
    aim: Option<BlockId>,
}

const MAX_VISITED: usize = 150;

/// How a list of statements ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Next,
    Break,
    Continue,
    Stop,
}

impl<'d> Walk<'d> {
    fn new(flow: &'d Flow, selectors: usize, decisions: &'d [bool]) -> Self {
        Self {
            flow,
            decisions: decisions.iter().cycle(),
            decision: false,
            visited: Vec::new(),
            selectors: vec![usize::MAX; selectors],
            aim: None,
        }
    }

    /// Runs the actions of a block; a block that branches decides where to.
    fn enter(&mut self, block: BlockId) {
        self.visited.push(block);
        for action in &self.flow.blocks[block].actions {
            if let Action::Select { selector, value } = action {
                self.selectors[*selector] = *value;
            }
        }
        if matches!(self.flow.blocks[block].end, End::Branch { .. }) {
            self.decision = *self.decisions.next().unwrap();
        }
    }

    fn blocks(mut self) -> Vec<BlockId> {
        let mut block = 0;
        while self.visited.len() < MAX_VISITED {
            self.enter(block);
            block = match &self.flow.blocks[block].end {
                End::Exit => break,
                End::Jump(to) => *to,
                End::Branch { yes, no, .. } if self.decision => *yes,
                End::Branch { no, .. } => *no,
                End::IfAlive { yes, .. } => *yes,
                End::Dispatch { selector, targets } => targets[self.selectors[*selector]],
            };
        }
        self.visited
    }

    fn holds(&self, test: Test) -> bool {
        let holds = match test.kind {
            TestKind::Branch(_) => self.decision,
            TestKind::Alive => true,
            TestKind::Selector(selector, value) => self.selectors[selector] == value,
        };
        holds != test.is_negated
    }

    fn list(&mut self, statements: &[Statement]) -> Outcome {
        for statement in statements {
            let outcome = self.statement(statement);
            if outcome != Outcome::Next {
                return outcome;
            }
        }
        Outcome::Next
    }

    fn statement(&mut self, statement: &Statement) -> Outcome {
        match statement {
            Statement::Block(_) if self.visited.len() == MAX_VISITED => Outcome::Stop,
            Statement::Block(block) => {
                self.enter(*block);
                Outcome::Next
            }
            Statement::If {
                test,
                then,
                otherwise,
            } => {
                let list = if self.holds(*test) { then } else { otherwise };
                self.list(list)
            }
            Statement::Loop { body, .. } => loop {
                match self.list(body) {
                    Outcome::Break => break Outcome::Next,
                    Outcome::Stop => break Outcome::Stop,
                    Outcome::Next | Outcome::Continue => {}
                }
            },
            Statement::Scope { body, .. } => match self.list(body) {
                Outcome::Stop => Outcome::Stop,
                // `continue` in `do { … } while (false)` leaves it.
                _ => Outcome::Next,
            },
            Statement::End(_) => Outcome::Stop,
            Statement::Jump(to) => panic!("the jump to {to} was not routed"),
            Statement::Break => Outcome::Break,
            Statement::Continue => Outcome::Continue,
            Statement::Aim(target) => {
                self.aim = Some(*target);
                Outcome::Next
            }
            Statement::Resume { here, is_partial } => {
                for (target, jump) in here {
                    if self.aim == Some(*target) {
                        self.aim = None;
                        return match jump {
                            LocalJump::Break => Outcome::Break,
                            LocalJump::Continue => Outcome::Continue,
                        };
                    }
                }
                if self.aim.is_some() {
                    assert!(*is_partial);
                    return Outcome::Break;
                }
                Outcome::Next
            }
        }
    }
}

/// A graph of `ends.len()` blocks behind an entry; each end is a kind and two targets.
fn graph(ends: &[(u8, usize, usize)]) -> Flow {
    let count = ends.len();
    let mut flow = Flow {
        blocks: vec![FlowBlock::new(End::Jump(1))],
    };
    for &(kind, a, b) in ends {
        let (yes, no) = (1 + a % count, 1 + b % count);
        flow.push(FlowBlock::new(match kind % 8 {
            0 => End::Exit,
            1 | 2 => End::Jump(yes),
            _ => End::Branch { index: 0, yes, no },
        }));
    }
    flow
}

fn check(flow: &Flow, decisions: &[bool]) {
    let (mut reducible, mut selectors) = (flow.clone(), 0);
    make_reducible(&mut reducible, &mut selectors);
    let original = Walk::new(flow, 0, decisions).blocks();
    let statements = structure(&reducible).unwrap();
    let count = flow.blocks.len();
    let mut walk = Walk::new(&reducible, selectors, decisions);
    walk.list(&statements);
    // Blocks of dispatchers are not in the original.
    let visited: Vec<_> = walk.visited.into_iter().filter(|b| *b < count).collect();
    let common = original.len().min(visited.len());
    assert_eq!(
        original[..common],
        visited[..common],
        "{flow:?}\n{statements:#?}"
    );
    assert!(
        common >= original.len().min(MAX_VISITED / 4),
        "{flow:?}\n{statements:#?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn statements_visit_the_blocks_of_the_graph(
        ends in prop::collection::vec((any::<u8>(), 0_usize..12, 0_usize..12), 1..12),
        decisions in prop::collection::vec(any::<bool>(), 1..40),
    ) {
        check(&graph(&ends), &decisions);
    }

    #[test]
    fn statements_visit_the_blocks_of_large_graphs(
        ends in prop::collection::vec((any::<u8>(), 0_usize..60, 0_usize..60), 20..60),
        decisions in prop::collection::vec(any::<bool>(), 1..40),
    ) {
        let flow = graph(&ends);
        let (mut reducible, mut selectors) = (flow.clone(), 0);
        make_reducible(&mut reducible, &mut selectors);
        if structure(&reducible).is_ok() {
            check(&flow, &decisions);
        }
    }
}

fn branch(yes: BlockId, no: BlockId) -> FlowBlock {
    FlowBlock::new(End::Branch { index: 0, yes, no })
}

#[test]
fn a_diamond_is_a_condition_and_a_loop_has_no_jumps() {
    let jump = |to| FlowBlock::new(End::Jump(to));
    let flow = Flow {
        blocks: vec![
            jump(1),
            branch(2, 3),
            jump(4),
            jump(4),
            branch(4, 5),
            FlowBlock::new(End::Exit),
        ],
    };
    let block = Statement::Block;
    let test = |b, is_negated| Test {
        kind: TestKind::Branch(b),
        is_negated,
    };
    let expected = vec![
        block(0),
        block(1),
        Statement::If {
            test: test(1, false),
            then: vec![block(2)],
            otherwise: vec![block(3)],
        },
        Statement::Loop {
            header: 4,
            follower: Some(5),
            body: vec![
                block(4),
                Statement::If {
                    test: test(4, true),
                    then: vec![Statement::Break],
                    otherwise: vec![],
                },
            ],
        },
        block(5),
        Statement::End(5),
    ];
    assert_eq!(structure(&flow), Ok(expected));
}

#[test]
fn constructs_that_nest_too_deeply_are_refused_and_long_chains_are_not() {
    // Every block jumps to the end or goes on: no nesting.
    let count = 20_000;
    let mut blocks = vec![FlowBlock::new(End::Jump(1))];
    blocks.extend((1..count).map(|i| branch(count, i + 1)));
    blocks.push(FlowBlock::new(End::Exit));
    assert!(structure(&Flow { blocks }).is_ok());
    // Loops that all end at the same place nest.
    let mut blocks = vec![FlowBlock::new(End::Jump(1))];
    blocks.extend((1..300).map(|_| FlowBlock::new(End::Exit)));
    for (i, block) in blocks.iter_mut().enumerate().skip(1).take(298) {
        *block = branch(i + 1, (600 - i).min(599));
    }
    blocks.extend((300..600).map(|i| branch(600 - i.min(599), i)));
    let refused = structure(&Flow { blocks });
    assert!(refused.is_ok() || matches!(refused, Err(ProgramError::Unsupported { .. })));
}
