//! A stable least-significant-digit radix sort.
#![expect(
    unsafe_code,
    reason = "threads write to disjoint ranges of one slice, from a histogram"
)]

use super::pool::{self, DisjointSlice};
use crate::{Result, try_vec};

/// An item that is sorted by its key, the bits from `FIRST_BIT` up to `END_BIT`.
pub(crate) trait RadixItem: Copy + Ord + Default + Send + Sync {
    const FIRST_BIT: u32;
    const END_BIT: u32;
    /// Returns the bits from `shift` on.
    fn shifted(self, shift: u32) -> usize;
}

macro_rules! item {
    ($($type:ident $from:expr, $to:expr);*) => {$(
        impl RadixItem for $type {
            const FIRST_BIT: u32 = $from;
            const END_BIT: u32 = $to;
            #[inline(always)]
            fn shifted(self, shift: u32) -> usize {
                (self >> shift) as usize
            }
        }
    )*};
}
item!(u8 0, 8; u16 0, 16; u32 0, 32);

/// A key of up to 32 bits above an index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct KeyIndex(pub(crate) u64);

/// A key of 64 bits and an index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Key64Index(pub(crate) u64, pub(crate) u32);

/// A key of 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(transparent)]
pub(crate) struct Key64(pub(crate) u64);

impl RadixItem for KeyIndex {
    const FIRST_BIT: u32 = 32;
    const END_BIT: u32 = 64;
    #[inline(always)]
    fn shifted(self, shift: u32) -> usize {
        (self.0 >> shift) as usize
    }
}

impl RadixItem for Key64Index {
    const FIRST_BIT: u32 = 0;
    const END_BIT: u32 = 64;
    #[inline(always)]
    fn shifted(self, shift: u32) -> usize {
        (self.0 >> shift) as usize
    }
}

impl RadixItem for Key64 {
    const FIRST_BIT: u32 = 0;
    const END_BIT: u32 = 64;
    #[inline(always)]
    fn shifted(self, shift: u32) -> usize {
        (self.0 >> shift) as usize
    }
}

/// Below this length, a comparison sort is faster.
const MIN_RADIX_LEN: usize = 200;

/// From this length on, fewer passes with 11-bit digits are faster: the histograms are small beside the items.
const MIN_WIDE_DIGIT_LEN: usize = 1 << 12;

/// From this length on, a first pass by the most significant digit distributes the items to buckets, which are then
/// sorted in the caches and on all threads.
const MIN_BUCKET_LEN: usize = 1 << 17;

/// Bits of the digit that selects a bucket: of a float the sign, the exponent and one bit or more.
const BUCKET_BITS: u32 = 11;
const BUCKETS: usize = 1 << BUCKET_BITS;

/// Sorts `items` using the scratch `spare` of the same length, and returns the one of them that has the result. The
/// sort is stable if `Ord` compares the key alone, or if items with equal keys are in the order of `Ord`.
pub(crate) fn sort<'a, T: RadixItem>(
    op: &'static str,
    items: &'a mut [T],
    spare: &'a mut [T],
) -> Result<&'a mut [T]> {
    if items.len() >= MIN_BUCKET_LEN {
        sort_by_buckets(op, items, spare)?;
        return Ok(items);
    }
    Ok(if sort_on_one_thread(items, spare) {
        spare
    } else {
        items
    })
}

/// Sorts on one thread, and returns whether the result is in `spare`.
fn sort_on_one_thread<T: RadixItem>(items: &mut [T], spare: &mut [T]) -> bool {
    match items.len() {
        0..MIN_RADIX_LEN => {
            items.sort_unstable();
            false
        }
        MIN_RADIX_LEN..MIN_WIDE_DIGIT_LEN => sort_by_digits::<T, 8, 256>(items, spare),
        _ => sort_by_digits::<T, 11, 2048>(items, spare),
    }
}

fn sort_by_digits<T: RadixItem, const BITS: u32, const SIZE: usize>(
    items: &mut [T],
    spare: &mut [T],
) -> bool {
    let mut counts = [[0_u32; SIZE]; 8];
    let digits = ((T::END_BIT - T::FIRST_BIT).div_ceil(BITS)) as usize;
    let shift = |d: usize| T::FIRST_BIT + d as u32 * BITS;
    let counts = &mut counts[..digits];
    for &item in &*items {
        for (d, counts) in counts.iter_mut().enumerate() {
            counts[item.shifted(shift(d)) % SIZE] += 1;
        }
    }
    let (mut from, mut to) = (items, spare);
    let mut swapped = false;
    for (d, counts) in counts.iter_mut().enumerate() {
        // Skip a digit that all items share.
        if counts[from[0].shifted(shift(d)) % SIZE] as usize == from.len() {
            continue;
        }
        let mut next = 0;
        for count in counts.iter_mut() {
            next += std::mem::replace(count, next);
        }
        for &item in &*from {
            let at = &mut counts[item.shifted(shift(d)) % SIZE];
            to[*at as usize] = item;
            *at += 1;
        }
        std::mem::swap(&mut from, &mut to);
        swapped = !swapped;
    }
    swapped
}

/// Distributes items to buckets by their most significant digit, then sorts each. The result is in `items`.
fn sort_by_buckets<T: RadixItem>(op: &'static str, items: &mut [T], spare: &mut [T]) -> Result<()> {
    // The most significant bits in which items differ: small integers share many leading zeros.
    let (low, high) = items.iter().fold((items[0], items[0]), |(low, high), &x| {
        (low.min(x), high.max(x))
    });
    let differ = (low.shifted(T::FIRST_BIT) ^ high.shifted(T::FIRST_BIT)) as u64;
    let shift = T::FIRST_BIT + (64 - differ.leading_zeros()).saturating_sub(BUCKET_BITS);
    let bucket = |item: T| item.shifted(shift) % BUCKETS;
    // A histogram per piece, converted to the target positions of each bucket's items from each piece.
    let piece = MIN_BUCKET_LEN / 4;
    let pieces = items.len().div_ceil(piece);
    let mut targets = try_vec::filled(op, pieces * BUCKETS, 0_u32)?;
    pool::for_each_chunk(&mut targets, BUCKETS, |i, counts| {
        for &item in &items[i * piece..items.len().min((i + 1) * piece)] {
            counts[bucket(item)] += 1;
        }
    });
    let mut starts = Vec::with_capacity(BUCKETS + 1);
    let mut next = 0;
    for b in 0..BUCKETS {
        starts.push(next as usize);
        for target in targets[b..].iter_mut().step_by(BUCKETS) {
            next += std::mem::replace(target, next);
        }
    }
    starts.push(items.len());
    let bucketed = DisjointSlice::new(spare);
    pool::for_each_chunk(&mut targets, BUCKETS, |i, targets| {
        for &item in &items[i * piece..items.len().min((i + 1) * piece)] {
            let at = &mut targets[bucket(item)];
            // SAFETY: the histograms assign each position to one item of one piece.
            let target = unsafe { bucketed.range(*at as usize, 1) };
            target[0] = item;
            *at += 1;
        }
    });
    // Group neighbouring buckets into tasks of at least a quarter piece.
    let mut tasks = vec![0];
    for b in 1..BUCKETS {
        if starts[b] - starts[tasks[tasks.len() - 1]] >= piece / 4 {
            tasks.push(b);
        }
    }
    tasks.push(BUCKETS);
    let sorted = DisjointSlice::new(items);
    pool::run(tasks.len() - 1, |t| {
        for b in tasks[t]..tasks[t + 1] {
            let (start, len) = (starts[b], starts[b + 1] - starts[b]);
            // SAFETY: buckets do not overlap, and each is sorted by one task.
            let (from, to) = unsafe { (bucketed.range(start, len), sorted.range(start, len)) };
            if !sort_on_one_thread(from, to) {
                to.copy_from_slice(from);
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_items_and_keeps_equal_keys_in_order() {
        for count in [0, 1, 2, 199, 200, 1000, 40_000, 300_000] {
            let mut state = 1_u64;
            let keys: Vec<u64> = (0..count)
                .map(|_| {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    state >> 33
                })
                .collect();
            let mut items: Vec<u32> = keys.iter().map(|&k| k as u32).collect();
            let mut expected = items.clone();
            expected.sort_unstable();
            assert_eq!(
                sort("sort", &mut items, &mut vec![0; count]).unwrap(),
                expected
            );
            let mut items: Vec<KeyIndex> = (0..count)
                .map(|i| KeyIndex((keys[i] % 100) << 32 | i as u64))
                .collect();
            let mut expected = items.clone();
            expected.sort_unstable();
            assert!(sort("sort", &mut items, &mut vec![KeyIndex(0); count]).unwrap() == expected);
            let mut items: Vec<Key64Index> = (0..count)
                .map(|i| Key64Index(keys[i] << 20, i as u32))
                .collect();
            let mut expected = items.clone();
            expected.sort_unstable();
            assert!(
                sort("sort", &mut items, &mut vec![Key64Index(0, 0); count]).unwrap() == expected
            );
        }
    }
}
