//! From instructions to blocks, with every call replaced by the instructions that it runs.

use std::collections::{BTreeMap, HashMap};

use super::error::{ProgramError, Result};
use super::flow::{Action, BlockId, End, Flow, FlowBlock};
use super::instruction::Instruction;
use super::{MAX_INSTRUCTIONS, Program};

/// A chain of calls that have not returned; the first is that of the program itself.
struct CallChain {
    /// The chain without the last call, and the call.
    last: Option<(usize, usize)>,
}

/// An instruction, in a chain of calls.
type Place = (usize, usize);

struct Inliner<'p> {
    program: &'p Program,
    chains: Vec<CallChain>,
    known: HashMap<(usize, usize), usize>,
}

/// The control flow of a validated program.
///
/// # Errors
/// [`ProgramError::Unsupported`] for recursion, and for programs that are too long without calls.
pub(crate) fn flow(program: &Program) -> Result<Flow> {
    let mut inliner = Inliner {
        program,
        chains: vec![CallChain { last: None }],
        known: HashMap::new(),
    };
    let starts = inliner.block_starts()?;
    inliner.blocks(&starts)
}

impl Inliner<'_> {
    fn instruction(&self, place: Place) -> Option<&Instruction> {
        self.program.instructions.get(place.0)
    }

    fn target(&self, instruction: &Instruction) -> usize {
        let index = instruction
            .label()
            .and_then(|l| self.program.resolve_label(l));
        index.unwrap_or(self.program.len())
    }

    /// The chain of a call in a chain.
    fn call(&mut self, chain: usize, index: usize) -> Result<usize> {
        let mut outer = Some(chain);
        while let Some((parent, call)) = outer.and_then(|c| self.chains[c].last) {
            if call == index {
                return Err(
                    self.unsupported(index, "a recursive call has no end that a compiler knows")
                );
            }
            outer = Some(parent);
        }
        let next = self.chains.len();
        let found = *self.known.entry((chain, index)).or_insert(next);
        if found == next {
            self.chains.push(CallChain {
                last: Some((chain, index)),
            });
        }
        Ok(found)
    }

    fn unsupported(&self, index: usize, reason: &str) -> ProgramError {
        ProgramError::Unsupported {
            index,
            mnemonic: self.program.instructions[index].mnemonic(),
            reason: reason.to_owned(),
        }
    }

    /// Where an instruction leads, other than to the next one; `None` for an instruction that only leads there.
    fn jumps(&mut self, (index, chain): Place) -> Result<Option<Vec<Place>>> {
        let Some(instruction) = self.program.instructions.get(index) else {
            return Ok(Some(Vec::new()));
        };
        let target = self.target(instruction);
        Ok(Some(match instruction {
            Instruction::Bra { pred: None, .. } => vec![(target, chain)],
            Instruction::Bra { .. } | Instruction::Loop { .. } => {
                vec![(target, chain), (index + 1, chain)]
            }
            Instruction::Call { .. } => vec![(target, self.call(chain, index)?)],
            Instruction::Ret {} => match self.chains[chain].last {
                Some((parent, call)) => vec![(call + 1, parent)],
                None => Vec::new(),
            },
            Instruction::Exit {} => Vec::new(),
            _ => return Ok(None),
        }))
    }

    /// The places at which blocks start, with their numbers.
    fn block_starts(&mut self) -> Result<BTreeMap<Place, BlockId>> {
        let mut starts = BTreeMap::new();
        let mut seen = std::collections::HashSet::new();
        let mut pending = vec![(0, 0)];
        // Block 0 is the entry, which nothing leads to.
        starts.insert((0, 0), 1);
        while let Some(place) = pending.pop() {
            if !seen.insert(place) {
                continue;
            }
            if seen.len() > MAX_INSTRUCTIONS + 1 {
                return Err(ProgramError::TooLong {
                    instructions: seen.len(),
                });
            }
            match self.jumps(place)? {
                Some(targets) => {
                    for &target in &targets {
                        let next = starts.len() + 1;
                        starts.entry(target).or_insert(next);
                    }
                    pending.extend(targets);
                }
                None => pending.push((place.0 + 1, place.1)),
            }
        }
        Ok(starts)
    }

    fn blocks(&mut self, starts: &BTreeMap<Place, BlockId>) -> Result<Flow> {
        let mut flow = Flow {
            blocks: vec![FlowBlock::new(End::Exit); starts.len() + 1],
        };
        flow.blocks[0].end = End::Jump(1);
        let labels: HashMap<usize, &String> =
            self.program.labels.iter().map(|(l, &i)| (i, l)).collect();
        for (&start, &number) in starts {
            let block = &mut flow.blocks[number];
            block.label = labels.get(&start.0).map(|label| (*label).clone());
            let mut place = start;
            block.end = loop {
                if let Some(next) = starts.get(&place)
                    && place != start
                {
                    break End::Jump(*next);
                }
                let Some(targets) = self.jumps(place)? else {
                    block.actions.push(run(place.0));
                    place.0 += 1;
                    continue;
                };
                break match (self.instruction(place), &targets[..]) {
                    // Without a call it fails.
                    (Some(Instruction::Ret {}), []) => {
                        block.actions.push(run(place.0));
                        End::Exit
                    }
                    (_, []) => End::Exit,
                    (_, [to]) => End::Jump(starts[to]),
                    // A `loop` counts even if both ways lead to the same place.
                    (_, [yes, no, ..]) => End::Branch {
                        index: place.0,
                        yes: starts[yes],
                        no: starts[no],
                    },
                };
            };
        }
        Ok(flow)
    }
}

const fn run(index: usize) -> Action {
    Action::Run {
        index,
        binding: None,
        is_uniform: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Flow> {
        flow(&text.parse().unwrap())
    }

    #[test]
    fn a_label_is_inlined_at_every_call() {
        let flow = of("call @f\ncall @f\nexit\nf: phase_adv 1\nret").unwrap();
        let runs: Vec<_> = flow
            .reverse_postorder()
            .into_iter()
            .flat_map(|b| flow.blocks[b].instructions().collect::<Vec<_>>())
            .collect();
        assert_eq!(runs, [3, 3]);
    }

    #[test]
    fn recursion_is_refused_at_the_call() {
        let expected = |index| {
            Err(ProgramError::Unsupported {
                index,
                mnemonic: "call",
                reason: "a recursive call has no end that a compiler knows".to_owned(),
            })
        };
        assert_eq!(of("f: call @f"), expected(0));
        assert_eq!(
            of("call @f\nexit\nf: call @g\nret\ng: call @f\nret"),
            expected(2)
        );
    }

    #[test]
    fn a_return_without_a_call_and_the_end_of_the_program_end_lanes() {
        let flow = of("phase_adv 1\nret").unwrap();
        assert_eq!(flow.blocks[1].actions, [run(0), run(1)]);
        assert_eq!(flow.blocks[1].end, End::Exit);
        let flow = of("bra @end\nend:").unwrap();
        assert_eq!(
            flow.blocks[2],
            FlowBlock {
                label: Some("end".to_owned()),
                ..FlowBlock::new(End::Exit)
            }
        );
    }

    #[test]
    fn an_exponential_number_of_calls_is_refused() {
        let mut text = String::from("call @f0\nexit\n");
        for i in 0..40 {
            text += &format!("f{i}: call @f{0}\ncall @f{0}\nret\n", i + 1);
        }
        text += "f40: ret\n";
        assert!(matches!(of(&text), Err(ProgramError::TooLong { .. })));
    }
}
