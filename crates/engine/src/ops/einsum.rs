//! `einsum`: Einstein summation.

use std::collections::BTreeMap;

use crate::{Error, Result, Tensor};

/// The label of an axis: a letter, or a number for an axis of `...`.
type Label = u32;

/// First label of the axes of `...`, above all letters. The last axis has the first label: they broadcast from the end.
const ELLIPSIS_LABEL: Label = 1 << 24;

/// A tensor with a label for every axis.
struct Term {
    labels: Vec<Label>,
    tensor: Tensor,
}

fn invalid(reason: String) -> Error {
    Error::Invalid {
        op: "einsum",
        reason,
    }
}

impl Tensor {
    /// Einstein summation: `"ij,jk->ik"` is a matrix product, `"bij->bji"` a transposition, `"ii->i"` a diagonal,
    /// `"i,i->"` an inner product, `"...ij,...jk"` a batched matrix product. Each letter names an axis; axes that are
    /// not in the result are summed over; `...` stands for any further axes, which broadcast. Without `->` the result
    /// has the axes of `...` and the letters that occur once, in alphabetical order.
    ///
    /// Operands are multiplied from left to right, two at a time, each pair as one [`Tensor::matmul`].
    pub fn einsum(formula: &str, operands: &[&Self]) -> Self {
        Self::attempt(|| {
            for operand in operands {
                operand.check()?;
            }
            einsum(formula, operands)
        })
    }
}

fn einsum(formula: &str, operands: &[&Tensor]) -> Result<Tensor> {
    let text: String = formula.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = match text.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (text.as_str(), None),
    };
    let names: Vec<_> = left.split(',').collect();
    if operands.is_empty() || names.len() != operands.len() {
        return Err(invalid(format!(
            "`{formula}` has {} operands, but {} are given",
            names.len(),
            operands.len()
        )));
    }
    let mut terms = Vec::new();
    let mut counts: BTreeMap<Label, usize> = BTreeMap::new();
    for (names, tensor) in names.iter().zip(operands) {
        let labels = labels(names, tensor.rank())?;
        if labels.len() != tensor.rank() {
            return Err(Error::BadShape {
                op: "einsum",
                shape: *tensor.shape(),
                reason: format!("`{names}` names {} axes", labels.len()),
            });
        }
        for &l in &labels {
            *counts.entry(l).or_default() += 1;
        }
        terms.push(Term {
            labels,
            tensor: (*tensor).clone(),
        });
    }
    let dots = counts.keys().filter(|&&l| l >= ELLIPSIS_LABEL).count();
    let result = match right {
        Some(right) => labels(
            right,
            right.chars().filter(char::is_ascii_alphabetic).count() + dots,
        )?,
        None => {
            let once = counts
                .iter()
                .filter(|&(&l, &n)| n == 1 && l < ELLIPSIS_LABEL)
                .map(|(&l, _)| l);
            dot_labels(dots).chain(once).collect()
        }
    };
    for (i, l) in result.iter().enumerate() {
        if !counts.contains_key(l) || result[..i].contains(l) {
            return Err(invalid(format!(
                "the result of `{formula}` repeats an axis, or names one that no operand has"
            )));
        }
    }
    let lengths = lengths(&terms)?;
    let mut terms = terms.into_iter().map(|t| t.diagonal());
    let mut product = terms.next().expect("there is an operand");
    let rest: Vec<_> = terms.collect();
    for (i, term) in rest.iter().enumerate() {
        let needed =
            |l: &Label| result.contains(l) || rest[i + 1..].iter().any(|t| t.labels.contains(l));
        product = product.times(term, &lengths, needed)?;
    }
    Ok(product
        .sum_except(&result)
        .ordered(&result)
        .broadcast(&result, &lengths))
}

/// The labels of the `n` axes of `...`, in order.
fn dot_labels(n: usize) -> impl Iterator<Item = Label> {
    (0..n as Label).rev().map(|i| ELLIPSIS_LABEL + i)
}

/// The labels of one operand, or of the result.
fn labels(names: &str, rank: usize) -> Result<Vec<Label>> {
    let letters = |text: &str| {
        text.chars()
            .map(|c| match c {
                'a'..='z' | 'A'..='Z' => Ok(c as Label),
                _ => Err(invalid(format!(
                    "`{c}` is not an axis; axes are letters and `...`"
                ))),
            })
            .collect::<Result<Vec<_>>>()
    };
    let Some((before, after)) = names.split_once("...") else {
        return letters(names);
    };
    let (mut all, after) = (letters(before)?, letters(after)?);
    let dots = rank.saturating_sub(all.len() + after.len());
    all.extend(dot_labels(dots));
    all.extend(after);
    Ok(all)
}

/// The length of each axis; lengths of 1 broadcast.
fn lengths(terms: &[Term]) -> Result<BTreeMap<Label, usize>> {
    let mut lengths = BTreeMap::new();
    for term in terms {
        for (&l, &d) in term.labels.iter().zip(term.tensor.shape().iter()) {
            let known = lengths.entry(l).or_insert(d);
            match (*known, d) {
                (1, d) => *known = d,
                (known, d) if known == d || d == 1 => {}
                (known, d) => {
                    let name = char::from_u32(l)
                        .filter(|_| l < ELLIPSIS_LABEL)
                        .map_or("...".to_owned(), String::from);
                    return Err(invalid(format!(
                        "axis `{name}` has length {known} in one operand and {d} in another"
                    )));
                }
            }
        }
    }
    Ok(lengths)
}

impl Term {
    /// Takes the diagonal of axes with the same label.
    fn diagonal(mut self) -> Self {
        let mut i = 0;
        while i < self.labels.len() {
            match self.labels[i + 1..]
                .iter()
                .position(|&l| l == self.labels[i])
            {
                Some(offset) => {
                    let j = i + 1 + offset;
                    let (a, b) = (i as isize, j as isize);
                    // A length of 1 broadcasts.
                    let mut shape = self.tensor.shape().to_vec();
                    shape[i] = shape[i].max(shape[j]);
                    shape[j] = shape[i];
                    self.tensor = self.tensor.broadcast_to(shape).diagonal(0, a, b);
                    let label = self.labels.remove(j);
                    self.labels.remove(i);
                    self.labels.push(label);
                }
                None => i += 1,
            }
        }
        self
    }

    /// Permutes the axes to the order of `labels`, which must be the term's own.
    fn ordered(self, labels: &[Label]) -> Self {
        let order = labels
            .iter()
            .filter_map(|l| self.labels.iter().position(|m| m == l));
        let order: Vec<_> = order.map(|i| i as isize).collect();
        Self {
            tensor: self.tensor.permute(&order),
            labels: labels.to_vec(),
        }
    }

    /// Sums over all axes but these.
    fn sum_except(self, keep: &[Label]) -> Self {
        let summed = self
            .labels
            .iter()
            .enumerate()
            .filter(|(_, l)| !keep.contains(l));
        let summed: Vec<_> = summed.map(|(i, _)| i as isize).collect();
        if summed.is_empty() {
            return self;
        }
        let dtype = self.tensor.dtype();
        Self {
            tensor: self.tensor.sum(&summed, false).cast(dtype),
            labels: self
                .labels
                .into_iter()
                .filter(|l| keep.contains(l))
                .collect(),
        }
    }

    /// Broadcasts the axes to their full lengths.
    fn broadcast(self, labels: &[Label], lengths: &BTreeMap<Label, usize>) -> Tensor {
        let shape: Vec<_> = labels.iter().map(|l| lengths[l]).collect();
        self.tensor.broadcast_to(shape)
    }

    /// The product with another term, summed over the axes that are no longer needed, as one batched matmul: batch ×
    /// left axes × summed axes by batch × summed axes × right axes.
    fn times(
        self,
        other: &Self,
        lengths: &BTreeMap<Label, usize>,
        needed: impl Fn(&Label) -> bool,
    ) -> Result<Self> {
        let keep = |term: &Self, other: &Self| -> Vec<Label> {
            let kept = term
                .labels
                .iter()
                .filter(|l| needed(l) || other.labels.contains(l));
            kept.copied().collect()
        };
        let (left_keep, right_keep) = (keep(&self, other), keep(other, &self));
        let a = self.sum_except(&left_keep);
        let b = Self {
            labels: other.labels.clone(),
            tensor: other.tensor.clone(),
        }
        .sum_except(&right_keep);
        let both = |l: &&Label| b.labels.contains(l);
        let batch: Vec<_> = a
            .labels
            .iter()
            .filter(both)
            .filter(|l| needed(l))
            .copied()
            .collect();
        let summed: Vec<_> = a
            .labels
            .iter()
            .filter(both)
            .filter(|l| !needed(l))
            .copied()
            .collect();
        let left: Vec<_> = a
            .labels
            .iter()
            .filter(|l| !b.labels.contains(l))
            .copied()
            .collect();
        let right: Vec<_> = b
            .labels
            .iter()
            .filter(|l| !a.labels.contains(l))
            .copied()
            .collect();
        let size = |labels: &[Label]| labels.iter().map(|l| lengths[l]).product::<usize>();
        let grouped = |term: Self, rows: &[Label], columns: &[Label]| {
            let order = [&batch[..], rows, columns].concat();
            term.ordered(&order).broadcast(&order, lengths).reshape([
                size(&batch),
                size(rows),
                size(columns),
            ])
        };
        let a = grouped(a, &left, &summed);
        let b = grouped(b, &summed, &right);
        let labels = [&batch[..], &left, &right].concat();
        let shape: Vec<_> = labels.iter().map(|l| lengths[l]).collect();
        let tensor = a.matmul(&b).reshape(shape);
        tensor.check()?;
        Ok(Self { labels, tensor })
    }
}
