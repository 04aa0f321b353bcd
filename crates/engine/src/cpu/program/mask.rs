//! Which lanes of a group run.

use crate::cpu::simd::{self, Isa, Task};

/// The lanes that run: inside a range, and all of the range if it is dense.
#[derive(Debug, Default)]
pub(super) struct LaneMask {
    /// 1 for a lane that runs; outside the range all are 0.
    lanes: Vec<u8>,
    low: usize,
    high: usize,
    count: usize,
}

impl LaneMask {
    pub(super) fn with_capacity(lanes: usize) -> Self {
        Self {
            lanes: vec![0; lanes],
            ..Self::default()
        }
    }

    /// Selects the lanes whose value is `wanted`.
    pub(super) fn select(&mut self, values: &[u32], wanted: u32) {
        let lanes = &mut self.lanes[..values.len()];
        self.count = simd::run_narrow(SelectEqual {
            values,
            wanted,
            lanes,
        });
        self.low = lanes.iter().position(|&m| m != 0).unwrap_or(0);
        self.high = lanes.iter().rposition(|&m| m != 0).map_or(0, |i| i + 1);
    }

    /// The range that contains all lanes that run.
    pub(super) const fn range(&self) -> std::ops::Range<usize> {
        self.low..self.high
    }

    /// Number of lanes that run.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Returns `true` if all lanes of the range run.
    pub(super) const fn is_dense(&self) -> bool {
        self.count == self.high - self.low
    }

    /// The mask of the range, from its first lane on.
    pub(super) fn lanes(&self) -> &[u8] {
        &self.lanes[self.low..self.high]
    }

    pub(super) fn contains(&self, lane: usize) -> bool {
        self.lanes[lane] != 0
    }

    /// Stops a lane.
    pub(super) fn remove(&mut self, lane: usize) {
        if std::mem::take(&mut self.lanes[lane]) != 0 {
            self.count -= 1;
        }
    }

    /// Sets the elements of the lanes that run; both slices start at the range.
    pub(super) fn blend<T: bytemuck::Pod>(&self, from: &[T], to: &mut [T]) {
        simd::run_narrow(Blend {
            mask: self.lanes(),
            from,
            to,
        });
    }
}

struct SelectEqual<'a> {
    values: &'a [u32],
    wanted: u32,
    lanes: &'a mut [u8],
}

impl Task for SelectEqual<'_> {
    type Output = usize;

    #[inline(always)]
    fn run<I: Isa>(self) -> usize {
        let mut count = 0_u32;
        for (lane, &value) in self.lanes.iter_mut().zip(self.values) {
            *lane = u8::from(value == self.wanted);
            count += u32::from(value == self.wanted);
        }
        count as usize
    }
}

struct Blend<'a, T> {
    mask: &'a [u8],
    from: &'a [T],
    to: &'a mut [T],
}

impl<T: bytemuck::Pod> Task for Blend<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        for ((to, &from), &mask) in self.to.iter_mut().zip(self.from).zip(self.mask) {
            *to = if mask != 0 { from } else { *to };
        }
    }
}

/// Returns `true` if each value is `step` more than the one before.
pub(super) fn is_arithmetic(values: &[u64], step: u64) -> bool {
    simd::run_narrow(Deviation { values, step }) == 0
}

struct Deviation<'a> {
    values: &'a [u64],
    step: u64,
}

impl Task for Deviation<'_> {
    type Output = u64;

    #[inline(always)]
    fn run<I: Isa>(self) -> u64 {
        let pairs = self.values.iter().zip(self.values.get(1..).unwrap_or(&[]));
        pairs.fold(0, |sum, (&a, &b)| sum | (b.wrapping_sub(a) ^ self.step))
    }
}
