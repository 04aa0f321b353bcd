//! Elementwise ops fused into the epilogue of a matmul.
//!
//! If the device's kernels support it ([`MatmulEpilogue`]), `act(a·b + c) + d` is one launch instead of two, and the
//! product does not go through memory: a bias, an activation and a residual, in this order, each of them optional. The
//! bits are the same, since every step is rounded to its dtype as without fusion.

use std::sync::Arc;

use super::Schedule;
use crate::capabilities::MatmulEpilogue;
use crate::ops::Op;
use crate::ops::binary::Binary;
use crate::ops::fused::Action;
use crate::ops::matmul::{EpilogueSteps, Matmul};
use crate::ops::unary::Unary;
use crate::storage::Storage;
use crate::tensor::Work;
use crate::{Scalar, Tensor};

/// A matmul and the steps after it, matched backwards from the last step.
#[derive(Default)]
struct Chain {
    /// Entries that become part of the last one.
    members: Vec<usize>,
    factors: Vec<Tensor>,
    bias: Option<Tensor>,
    activation: Option<Unary>,
    residual: Option<Tensor>,
}

impl Chain {
    /// The steps after the matmul.
    fn steps(&self) -> EpilogueSteps {
        EpilogueSteps {
            bias: self.bias.is_some(),
            activation: self.activation,
            residual: self.residual.is_some(),
        }
    }
}

impl Schedule {
    /// Rewrites the last step of every chain after a matmul into a matmul with an epilogue.
    pub(super) fn fuse_epilogues(&mut self) {
        // A step that became part of a matmul is no elementwise user of its inputs any more, which may be such steps too.
        while self.entries.len() > 1 && self.fuse_epilogues_once() {}
    }

    /// Returns `true` if there was such a chain.
    fn fuse_epilogues_once(&mut self) -> bool {
        let count = self.entries.len();
        let mut is_fused = false;
        // A step that is fused with later elementwise ops costs no extra launch.
        let mut feeds_elementwise = vec![false; count];
        for entry in self.entries.iter().filter(|entry| !entry.inlined) {
            if let Some(work) = &*entry.node.work()
                && Action::of(&work.op).is_some()
            {
                for input in &work.inputs {
                    if let Some(&j) = self.index.get(&Arc::as_ptr(&input.node)) {
                        feeds_elementwise[j] = true;
                    }
                }
            }
        }
        for (i, feeds_elementwise) in feeds_elementwise.into_iter().enumerate() {
            if feeds_elementwise || self.entries[i].inlined {
                continue;
            }
            if let Some((chain, target)) = self.match_chain(i) {
                let op = Matmul {
                    alpha: Scalar::Int(1),
                    beta: Scalar::Int(0),
                    epilogue: chain.steps(),
                };
                event!(
                    DEBUG,
                    "matmul epilogue",
                    steps = format_args!("{:?}", chain.steps())
                );
                let mut inputs = chain.factors;
                inputs.extend(chain.bias.into_iter().chain(chain.residual));
                let mut work = Work::new(op.into(), inputs);
                work.target = target;
                *self.entries[i].node.work() = Some(work);
                for member in chain.members {
                    self.entries[member].inlined = true;
                }
                is_fused = true;
            }
        }
        is_fused
    }

    /// Matches a chain whose last step is this entry, and returns the entry's target too.
    fn match_chain(&self, i: usize) -> Option<(Chain, Option<Storage>)> {
        let node = &self.entries[i].node;
        let epilogue = node.placement.device.capabilities().matmul_epilogue;
        if !epilogue.is_supported() {
            return None;
        }
        let work = node.work().clone()?;
        let chain = match &work.op {
            Op::Unary(f) if epilogue.is_activation(*f) => {
                let chain = self.match_biased_matmul(&work.inputs[0], i)?;
                Chain {
                    activation: Some(*f),
                    ..chain
                }
            }
            Op::Binary(Binary::Add) => {
                self.match_either_side(&work.inputs, i, |tensor, other| {
                    if let Some(chain) = self
                        .match_activation(tensor, i, epilogue)
                        .or_else(|| self.match_bias(tensor, i))
                    {
                        let residual = Some(other);
                        return Some(Chain { residual, ..chain });
                    }
                    let bias = Some(other);
                    Some(Chain {
                        bias,
                        ..self.match_matmul(tensor, i)?
                    })
                })?
            }
            _ => return None,
        };
        let allowed = epilogue.allows(chain.steps(), node.dtype);
        if !allowed {
            const REASON: &str = "the device has no kernel for these steps and this dtype";
            event!(
                DEBUG,
                "no matmul epilogue",
                steps = format_args!("{:?}", chain.steps()),
                reason = REASON
            );
            // The matmul comes first.
            if let Some(&matmul) = chain.members.first() {
                self.entries[matmul].not_fused.set(Some(REASON));
            }
        }
        allowed.then_some((chain, work.target))
    }

    /// Matches a chain on either side of an addition; the other side is broadcast to the result.
    fn match_either_side(
        &self,
        inputs: &[Tensor],
        i: usize,
        find: impl Fn(&Tensor, Tensor) -> Option<Chain>,
    ) -> Option<Chain> {
        (0..2).find_map(|side| {
            let other = &inputs[1 - side];
            // A scalar constant has no storage.
            if other.node.constant.is_some() {
                return None;
            }
            let shape = self.entries[i].node.shape;
            let layout = other.layout().broadcast_to("add", shape).ok()?;
            find(&inputs[side], other.with_layout(layout))
        })
    }

    /// Matches `act(…)` with a single use, by entry `user`.
    fn match_activation(
        &self,
        tensor: &Tensor,
        user: usize,
        epilogue: MatmulEpilogue,
    ) -> Option<Chain> {
        let (j, work) = self.single_use(tensor, user)?;
        let Op::Unary(f) = work.op else { return None };
        if !epilogue.is_activation(f) {
            return None;
        }
        let mut chain = self.match_biased_matmul(&work.inputs[0], j)?;
        chain.activation = Some(f);
        chain.members.push(j);
        Some(chain)
    }

    /// Matches `a·b` or `a·b + bias`.
    fn match_biased_matmul(&self, tensor: &Tensor, user: usize) -> Option<Chain> {
        let chain = self.match_matmul(tensor, user);
        chain.or_else(|| self.match_bias(tensor, user))
    }

    /// Matches `a·b + bias` with a single use, by entry `user`.
    fn match_bias(&self, tensor: &Tensor, user: usize) -> Option<Chain> {
        let (j, work) = self.single_use(tensor, user)?;
        let Op::Binary(Binary::Add) = work.op else {
            return None;
        };
        let mut chain = self.match_either_side(&work.inputs, j, |tensor, other| {
            let bias = Some(other);
            Some(Chain {
                bias,
                ..self.match_matmul(tensor, j)?
            })
        })?;
        chain.members.push(j);
        Some(chain)
    }

    /// Matches `a·b` without `alpha` and `c` and with a single use, by entry `user`.
    fn match_matmul(&self, tensor: &Tensor, user: usize) -> Option<Chain> {
        let (j, work) = self.single_use(tensor, user)?;
        let is_plain = match &work.op {
            Op::Matmul(op) => op.alpha == Scalar::Int(1) && op.epilogue == EpilogueSteps::NONE,
            _ => false,
        };
        (is_plain && work.inputs.len() == 2).then(|| Chain {
            members: vec![j],
            factors: work.inputs,
            ..Chain::default()
        })
    }

    /// The entry and work of a tensor whose only use is by entry `user`, with the same shape, dtype and device.
    fn single_use(&self, tensor: &Tensor, user: usize) -> Option<(usize, Work)> {
        let &j = self.index.get(&Arc::as_ptr(&tensor.node))?;
        let (entry, user) = (&self.entries[j], &self.entries[user]);
        let is_only_use = entry.uses == 1 && !entry.root && !entry.inlined && self.may_inline(j);
        let matches = tensor.layout().is_whole()
            && *tensor.shape() == user.node.shape
            && tensor.node.shape == user.node.shape
            && tensor.node.dtype == user.node.dtype
            && entry.node.placement.device == user.node.placement.device;
        if !is_only_use || !matches {
            let reason = if is_only_use {
                "the shape, dtype or device of its epilogue differs"
            } else {
                "others read it"
            };
            let op = entry.node.work().as_ref().map(|w| w.op.name());
            event!(
                TRACE,
                "not in a matmul epilogue",
                op = op.unwrap_or(""),
                reason = reason
            );
            if op == Some("matmul") {
                entry.not_fused.set(Some(reason));
            }
            return None;
        }
        let work = entry.node.work().clone()?;
        Some((j, work))
    }
}
