//! Elementwise ops that become the last steps of a product.
//!
//! Where the device's kernels can ([`MatmulEpilogue`]), `act(a·b + c) + d` is one launch instead of two, and the product does not go through memory: a bias, an
//! activation, a residual connection, in this order, each of which may be missing. The bits are the same, since every
//! step is rounded to its type as it would be by itself.

use std::sync::Arc;

use super::Schedule;
use crate::capabilities::MatmulEpilogue;
use crate::ops::Op;
use crate::ops::binary::Binary;
use crate::ops::fused::Action;
use crate::ops::matmul::{Matmul, Then};
use crate::ops::unary::Unary;
use crate::storage::Storage;
use crate::tensor::Work;
use crate::{Scalar, Tensor};

/// A product and the steps after it, as they are found going back from the last one.
#[derive(Default)]
struct Chain {
    /// Entries that are computed inside the last one.
    members: Vec<usize>,
    factors: Vec<Tensor>,
    bias: Option<Tensor>,
    activation: Option<Unary>,
    residual: Option<Tensor>,
}

impl Chain {
    /// The steps after the product.
    fn steps(&self) -> Then {
        Then {
            bias: self.bias.is_some(),
            activation: self.activation,
            residual: self.residual.is_some(),
        }
    }
}

impl Schedule {
    /// Rewrites the last steps after products that nobody else needs.
    pub(super) fn add_to_products(&mut self) {
        let count = self.entries.len();
        if count < 2 {
            return;
        }
        // A step that joins other elementwise ops costs no launch of its own.
        let mut joins = vec![false; count];
        for entry in &self.entries {
            if let Some(work) = &*entry.node.work()
                && Action::of(&work.op).is_some()
            {
                for input in &work.inputs {
                    if let Some(&j) = self.index.get(&Arc::as_ptr(&input.node)) {
                        joins[j] = true;
                    }
                }
            }
        }
        for (i, joins) in joins.into_iter().enumerate() {
            if joins {
                continue;
            }
            if let Some((chain, target)) = self.steps_after_product(i) {
                let op = Matmul {
                    alpha: Scalar::Int(1),
                    beta: Scalar::Int(0),
                    then: chain.steps(),
                };
                let mut inputs = chain.factors;
                inputs.extend(chain.bias.into_iter().chain(chain.residual));
                let mut work = Work::new(op.into(), inputs);
                work.target = target;
                *self.entries[i].node.work() = Some(work);
                for member in chain.members {
                    self.entries[member].inlined = true;
                }
            }
        }
    }

    /// The product that an entry is the last step after, with all that is between, and where its value is to go.
    fn steps_after_product(&self, i: usize) -> Option<(Chain, Option<Storage>)> {
        let node = &self.entries[i].node;
        let epilogue = node.place.device.capabilities().matmul_epilogue;
        if !epilogue.is_supported() {
            return None;
        }
        let work = node.work().clone()?;
        let chain = match &work.op {
            Op::Unary(f) if epilogue.is_activation(*f) => {
                let chain = self.product_or_sum(&work.inputs[0], i)?;
                Chain {
                    activation: Some(*f),
                    ..chain
                }
            }
            Op::Binary(Binary::Add) => self.sides(&work.inputs, i, |tensor, other| {
                if let Some(chain) = self
                    .bent(tensor, i, epilogue)
                    .or_else(|| self.sum(tensor, i))
                {
                    let residual = Some(other);
                    return Some(Chain { residual, ..chain });
                }
                let bias = Some(other);
                Some(Chain {
                    bias,
                    ..self.product(tensor, i)?
                })
            })?,
            _ => return None,
        };
        let allowed = epilogue.allows(chain.steps(), node.dtype);
        allowed.then_some((chain, work.target))
    }

    /// Finds a chain on either side of a sum; the other one is broadcast to the result.
    fn sides(
        &self,
        inputs: &[Tensor],
        i: usize,
        find: impl Fn(&Tensor, Tensor) -> Option<Chain>,
    ) -> Option<Chain> {
        (0..2).find_map(|side| {
            let other = &inputs[1 - side];
            // A number of the program is in no memory.
            if other.node.constant.is_some() {
                return None;
            }
            let shape = self.entries[i].node.shape;
            let layout = other.layout().broadcast_to("add", shape).ok()?;
            find(&inputs[side], other.with_layout(layout))
        })
    }

    /// The activation that a tensor is, which only entry `user` needs.
    fn bent(&self, tensor: &Tensor, user: usize, epilogue: MatmulEpilogue) -> Option<Chain> {
        let (j, work) = self.alone(tensor, user)?;
        let Op::Unary(f) = work.op else { return None };
        if !epilogue.is_activation(f) {
            return None;
        }
        let mut chain = self.product_or_sum(&work.inputs[0], j)?;
        chain.activation = Some(f);
        chain.members.push(j);
        Some(chain)
    }

    fn product_or_sum(&self, tensor: &Tensor, user: usize) -> Option<Chain> {
        let product = self.product(tensor, user);
        product.or_else(|| self.sum(tensor, user))
    }

    /// The sum of a product and something else that a tensor is, which only entry `user` needs.
    fn sum(&self, tensor: &Tensor, user: usize) -> Option<Chain> {
        let (j, work) = self.alone(tensor, user)?;
        let Op::Binary(Binary::Add) = work.op else {
            return None;
        };
        let mut chain = self.sides(&work.inputs, j, |tensor, other| {
            let bias = Some(other);
            Some(Chain {
                bias,
                ..self.product(tensor, j)?
            })
        })?;
        chain.members.push(j);
        Some(chain)
    }

    /// The product that a tensor is, without factors, which only entry `user` needs.
    fn product(&self, tensor: &Tensor, user: usize) -> Option<Chain> {
        let (j, work) = self.alone(tensor, user)?;
        let is_plain = match &work.op {
            Op::Matmul(op) => op.alpha == Scalar::Int(1) && op.then == Then::NOTHING,
            _ => false,
        };
        (is_plain && work.inputs.len() == 2).then(|| Chain {
            members: vec![j],
            factors: work.inputs,
            ..Chain::default()
        })
    }

    /// The entry of a tensor that only entry `user` needs, as it is, and its work.
    fn alone(&self, tensor: &Tensor, user: usize) -> Option<(usize, Work)> {
        let &j = self.index.get(&Arc::as_ptr(&tensor.node))?;
        let (entry, user) = (&self.entries[j], &self.entries[user]);
        let alone = entry.uses == 1 && !entry.root && !entry.inlined && self.may_inline(j);
        let same = tensor.layout().is_whole()
            && *tensor.shape() == user.node.shape
            && tensor.node.shape == user.node.shape
            && tensor.node.dtype == user.node.dtype
            && entry.node.place.device == user.node.place.device;
        if !alone || !same {
            return None;
        }
        let work = entry.node.work().clone()?;
        Some((j, work))
    }
}
