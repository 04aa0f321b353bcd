//! Sums that become the last step of a product.
//!
//! On Metal, `a·b + c` is one launch instead of two, and the product does not go through memory: a residual
//! connection, a bias. The bits are the same: products of `f32` are summed in `f32`, and what is added is added
//! to the rounded sum. Half precision would be rounded once instead of twice, so it is left alone.

use std::sync::Arc;

use super::Schedule;
use crate::ops::Op;
use crate::ops::binary::Binary;
use crate::ops::fused::Action;
use crate::ops::matmul::Matmul;
use crate::tensor::Work;
use crate::{DType, Scalar, Tensor};

impl Schedule {
    /// Rewrites sums of a product that nobody else needs.
    pub(super) fn add_to_products(&mut self) {
        let count = self.entries.len();
        if count < 2 {
            return;
        }
        // A sum that joins other elementwise ops costs no launch of its own.
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
            if let Some((product, work)) = self.sum_of_product(i) {
                *self.entries[i].node.work() = Some(work);
                self.entries[product].inlined = true;
            }
        }
    }

    /// The product that an entry is a sum of, and the work of both together.
    fn sum_of_product(&self, i: usize) -> Option<(usize, Work)> {
        let entry = &self.entries[i];
        if entry.node.dtype != DType::F32 || entry.node.place.device.is_cpu() {
            return None;
        }
        let (inputs, target) = match &*entry.node.work() {
            Some(Work {
                op: Op::Binary(Binary::Add),
                inputs,
                target,
            }) => (inputs.clone(), target.clone()),
            _ => return None,
        };
        (0..2).find_map(|side| {
            let (product, other) = (&inputs[side], &inputs[1 - side]);
            let j = self.plain_product(product, i)?;
            let shape = entry.node.shape;
            let addend = other.layout().broadcast_to("add", shape).ok()?;
            let (left, right) = match &*self.entries[j].node.work() {
                Some(work) => (work.inputs[0].clone(), work.inputs[1].clone()),
                None => return None,
            };
            // A number of the program is in no memory.
            if other.node.constant.is_some() {
                return None;
            }
            let op = Matmul {
                alpha: Scalar::Int(1),
                beta: Scalar::Int(1),
            };
            let mut work = Work::new(op.into(), vec![left, right, other.with_layout(addend)]);
            work.target = target.clone();
            Some((j, work))
        })
    }

    /// The entry of a product that only entry `user` needs, as it is.
    fn plain_product(&self, tensor: &Tensor, user: usize) -> Option<usize> {
        let &j = self.index.get(&Arc::as_ptr(&tensor.node))?;
        let (entry, user) = (&self.entries[j], &self.entries[user]);
        let alone = entry.uses == 1 && !entry.root && !entry.inlined && self.may_inline(j);
        let whole = tensor.layout().is_whole()
            && *tensor.shape() == user.node.shape
            && tensor.node.shape == user.node.shape
            && entry.node.place.device == user.node.place.device;
        let plain = match &*entry.node.work() {
            Some(work) => {
                let one = Scalar::Int(1);
                work.inputs.len() == 2 && matches!(&work.op, Op::Matmul(op) if op.alpha == one)
            }
            None => false,
        };
        (alone && whole && plain).then_some(j)
    }
}
