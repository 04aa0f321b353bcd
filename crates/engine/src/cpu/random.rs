//! `random::…` on the CPU.

use half::{bf16, f16};

use super::pool;
use super::simd::{self, Isa, Task};
use crate::dispatch::{Input, Output};
use crate::ops::random::{Distribution, Random};
use crate::random::threefry;
use crate::{DType, Result, Scalar};

mod normal;

/// Random blocks that are generated per batch, in registers and the L1 cache, before they are converted to elements.
const BATCH_BLOCKS: usize = 128;

/// Random blocks of a task: about 30 µs, and a multiple of [`BATCH_BLOCKS`].
const TASK_BLOCKS: usize = 64 * BATCH_BLOCKS;

/// Writes the random values.
pub(crate) fn run(op: &Random, _inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    match &op.distribution {
        Distribution::Bits => match op.dtype {
            DType::U8 => fill(op.key, output.all(), Words(|w| (w >> 24) as u8)),
            DType::U16 => fill(op.key, output.all(), Words(|w| (w >> 16) as u16)),
            DType::U32 => fill(op.key, output.all(), Words(|w| w)),
            DType::U64 => fill(op.key, output.all(), RandomBlocks(|b| b)),
            _ => unreachable!("the rule takes unsigned integers only"),
        },
        Distribution::Uniform { low, range, last } => {
            uniform(op, output, [*low, *range, *last]);
        }
        Distribution::Normal => match op.dtype {
            DType::F16 => fill(op.key, output.all(), Normal(f16::from_f32)),
            DType::BF16 => fill(op.key, output.all(), Normal(bf16::from_f32)),
            DType::F32 => fill(op.key, output.all(), Normal(|x| x)),
            DType::F64 => fill(op.key, output.all(), WideNormal),
            _ => unreachable!("the rule takes floats only"),
        },
        &Distribution::Integer { low, range } => match op.dtype.size() {
            // Two's complement: the unsigned arithmetic is right for signed integers too.
            1 => integers::<u8>(op, output, low, range, |x| x as u8),
            2 => integers::<u16>(op, output, low, range, |x| x as u16),
            4 => integers::<u32>(op, output, low, range, |x| x as u32),
            _ => integers::<u64>(op, output, low, range, |x| x),
        },
        &Distribution::Bernoulli { below } => {
            // `below` may be 2³²: comparing with `below - 1` needs only 32 bits.
            let (last, never) = (below.wrapping_sub(1) as u32, below == 0);
            let sample = move |w: u32| u8::from(w <= last && !never);
            fill(op.key, output.all::<u8>(), Words(sample));
        }
    }
    Ok(())
}

/// `2^-bits`, which scales `bits` random bits to the unit interval.
fn unit(bits: i32) -> f64 {
    2_f64.powi(-bits)
}

fn uniform(op: &Random, mut output: Output<'_>, bounds: [Scalar; 3]) {
    let wide = bounds.map(Scalar::to_f64);
    let [low, range, last] = wide.map(|x| x as f32);
    // The `bits` upper bits of a word as a number below 1, scaled to the range.
    let narrow = move |bits: u32| {
        let unit = unit(bits as i32) as f32;
        move |w: u32| ((w >> (32 - bits)) as i32 as f32 * unit * range + low).min(last)
    };
    match op.dtype {
        DType::F16 => {
            let value = narrow(11);
            fill(
                op.key,
                output.all(),
                Words(move |w| f16::from_f32(value(w))),
            );
        }
        DType::BF16 => {
            let value = narrow(8);
            fill(
                op.key,
                output.all(),
                Words(move |w| bf16::from_f32(value(w))),
            );
        }
        DType::F32 => fill(op.key, output.all(), Words(narrow(24))),
        _ => {
            let [low, range, last] = wide;
            let unit = unit(53);
            let value = move |b: u64| ((b >> 11) as f64 * unit * range + low).min(last);
            fill(op.key, output.all(), RandomBlocks(value));
        }
    }
}

fn integers<T: bytemuck::Pod + Default + Send>(
    op: &Random,
    mut output: Output<'_>,
    low: u64,
    range: u64,
    convert: impl Fn(u64) -> T + Copy + Sync,
) {
    let to = output.all::<T>();
    if range == 0 {
        fill(
            op.key,
            to,
            RandomBlocks(move |b: u64| convert(b.wrapping_add(low))),
        );
    } else if range <= 1 << 32 {
        // The same product as below, computed from two halves in 64 bits.
        let value = move |b: u64| {
            let (lower, upper) = (b & 0xffff_ffff, b >> 32);
            (upper * range + ((lower * range) >> 32)) >> 32
        };
        let value = move |b| convert(value(b).wrapping_add(low));
        fill(op.key, to, RandomBlocks(value));
    } else {
        let value = move |b| ((u128::from(b) * u128::from(range)) >> 64) as u64;
        let value = move |b| convert(value(b).wrapping_add(low));
        fill(op.key, to, RandomBlocks(value));
    }
}

/// The conversion of random blocks to elements.
trait Sample<T>: Copy + Sync {
    /// Elements that one call of [`Sample::take`] writes.
    const ELEMENTS: usize;
    /// Blocks that one call of [`Sample::take`] consumes.
    const BLOCKS: usize;

    /// Writes the first [`Sample::ELEMENTS`] elements of `to` from the blocks whose first words are `a` and second
    /// words `b`. Implementations must be `#[inline(always)]`.
    fn take(self, a: &[u32], b: &[u32], to: &mut [T]);
}

/// One element per word.
#[derive(Clone, Copy)]
struct Words<F>(F);

impl<T, F: Fn(u32) -> T + Copy + Sync> Sample<T> for Words<F> {
    const ELEMENTS: usize = 2;
    const BLOCKS: usize = 1;

    #[inline(always)]
    fn take(self, a: &[u32], b: &[u32], to: &mut [T]) {
        to[0] = (self.0)(a[0]);
        to[1] = (self.0)(b[0]);
    }
}

/// One element per block.
#[derive(Clone, Copy)]
struct RandomBlocks<F>(F);

impl<T, F: Fn(u64) -> T + Copy + Sync> Sample<T> for RandomBlocks<F> {
    const ELEMENTS: usize = 1;
    const BLOCKS: usize = 1;

    #[inline(always)]
    fn take(self, a: &[u32], b: &[u32], to: &mut [T]) {
        to[0] = (self.0)(block_bits(a[0], b[0]));
    }
}

/// The bits of a block as one integer.
#[inline(always)]
fn block_bits(a: u32, b: u32) -> u64 {
    u64::from(b) << 32 | u64::from(a)
}

/// Two normally distributed elements per block.
#[derive(Clone, Copy)]
struct Normal<F>(F);

impl<T, F: Fn(f32) -> T + Copy + Sync> Sample<T> for Normal<F> {
    const ELEMENTS: usize = 2;
    const BLOCKS: usize = 1;

    #[inline(always)]
    fn take(self, a: &[u32], b: &[u32], to: &mut [T]) {
        let (x, y) = normal::pair_f32(a[0], b[0]);
        to[0] = (self.0)(x);
        to[1] = (self.0)(y);
    }
}

/// Two normally distributed `f64` elements per two blocks.
#[derive(Clone, Copy)]
struct WideNormal;

impl Sample<f64> for WideNormal {
    const ELEMENTS: usize = 2;
    const BLOCKS: usize = 2;

    #[inline(always)]
    fn take(self, a: &[u32], b: &[u32], to: &mut [f64]) {
        (to[0], to[1]) = normal::pair_f64(block_bits(a[0], b[0]), block_bits(a[1], b[1]));
    }
}

/// Fills a tensor in parallel.
fn fill<T: Copy + Default + Send, S: Sample<T>>(key: [u32; 2], to: &mut [T], sample: S) {
    pool::for_each_chunk(to, TASK_BLOCKS / S::BLOCKS * S::ELEMENTS, |i, to| {
        simd::run(Fill {
            key,
            first: (i * TASK_BLOCKS) as u64,
            to,
            sample,
        });
    });
}

/// Fills one task's elements, which begin with block `first`, a multiple of [`BATCH_BLOCKS`].
struct Fill<'a, T, S> {
    key: [u32; 2],
    first: u64,
    to: &'a mut [T],
    sample: S,
}

impl<T: Copy + Default, S: Sample<T>> Task for Fill<'_, T, S> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self {
            key,
            first,
            to,
            sample,
        } = self;
        let (mut a, mut b) = ([0; BATCH_BLOCKS], [0; BATCH_BLOCKS]);
        for (batch, to) in to
            .chunks_mut(BATCH_BLOCKS / S::BLOCKS * S::ELEMENTS)
            .enumerate()
        {
            let counter = first + (batch * BATCH_BLOCKS) as u64;
            // The lower word does not overflow within a batch: the counter is a multiple of the batch size.
            let (low, high) = (counter as u32, (counter >> 32) as u32);
            for (i, (a, b)) in a.iter_mut().zip(&mut b).enumerate() {
                [*a, *b] = threefry(key, [low | i as u32, high]);
            }
            let blocks = a.chunks_exact(S::BLOCKS).zip(b.chunks_exact(S::BLOCKS));
            let mut whole = to.chunks_exact_mut(S::ELEMENTS);
            for ((a, b), to) in blocks.zip(whole.by_ref()) {
                sample.take(a, b, to);
            }
            let rest = whole.into_remainder();
            if !rest.is_empty() {
                // An odd count: only the first element of the last pair is needed.
                let at = to.len() / S::ELEMENTS * S::BLOCKS;
                let mut both = [T::default(); 2];
                sample.take(&a[at..], &b[at..], &mut both);
                if let Some(last) = to.last_mut() {
                    *last = both[0];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::simd::testing::levels;
    use crate::simd::Level;

    fn filled<T: Copy + Default + Send>(at: Level, len: usize, sample: impl Sample<T>) -> Vec<T> {
        let mut out = vec![T::default(); len];
        let fill = Fill {
            key: [1, 2],
            first: 0,
            to: &mut out[..],
            sample,
        };
        simd::run_at(at, fill);
        out
    }

    #[test]
    fn all_levels_give_the_same_bits() {
        for len in [1, 2, 255, 256, 257, 1001] {
            for level in levels() {
                let narrow = |l| filled::<f32>(l, len, Normal(|x| x));
                let wide = |l| filled::<f64>(l, len, WideNormal);
                let words = |l| filled::<u32>(l, len, Words(|w| w));
                let bits = |x: Vec<f32>| x.into_iter().map(f32::to_bits).collect::<Vec<_>>();
                assert_eq!(bits(narrow(level)), bits(narrow(Level::Scalar)));
                let bits = |x: Vec<f64>| x.into_iter().map(f64::to_bits).collect::<Vec<_>>();
                assert_eq!(bits(wide(level)), bits(wide(Level::Scalar)));
                assert_eq!(words(level), words(Level::Scalar));
            }
        }
    }

    #[test]
    fn words_and_blocks_follow_their_counters() {
        let words = filled::<u32>(Level::Scalar, 1001, Words(|w| w));
        let blocks = filled::<u64>(Level::Scalar, 1001, RandomBlocks(|b| b));
        for (i, &word) in words.iter().enumerate() {
            assert_eq!(word, threefry([1, 2], [i as u32 / 2, 0])[i % 2]);
        }
        for (i, &block) in blocks.iter().enumerate() {
            let [a, b] = threefry([1, 2], [i as u32, 0]);
            assert_eq!(block, u64::from(a) | u64::from(b) << 32);
        }
    }
}
