//! Radix sort: least digit first, stable, without comparisons.
#![expect(
    unsafe_code,
    reason = "threads write to places of one slice that were counted out for them"
)]

use super::pool::{self, DisjointSlice};
use super::try_vec;
use crate::Result;

/// What is sorted: by the bits from `FROM` up to `TO`.
pub(crate) trait Item: Copy + Ord + Default + Send + Sync {
    const FROM: u32;
    const TO: u32;
    /// The bits from `shift` on.
    fn shifted(self, shift: u32) -> usize;
}

macro_rules! item {
    ($($type:ident $from:expr, $to:expr);*) => {$(
        impl Item for $type {
            const FROM: u32 = $from;
            const TO: u32 = $to;
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
pub(crate) struct Short(pub(crate) u64);

/// A key of 64 bits and an index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Long(pub(crate) u64, pub(crate) u32);

/// A key of 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(transparent)]
pub(crate) struct Wide(pub(crate) u64);

impl Item for Short {
    const FROM: u32 = 32;
    const TO: u32 = 64;
    #[inline(always)]
    fn shifted(self, shift: u32) -> usize {
        (self.0 >> shift) as usize
    }
}

impl Item for Long {
    const FROM: u32 = 0;
    const TO: u32 = 64;
    #[inline(always)]
    fn shifted(self, shift: u32) -> usize {
        (self.0 >> shift) as usize
    }
}

impl Item for Wide {
    const FROM: u32 = 0;
    const TO: u32 = 64;
    #[inline(always)]
    fn shifted(self, shift: u32) -> usize {
        (self.0 >> shift) as usize
    }
}

/// Below this many, comparing is faster than counting.
const FEW: usize = 200;

/// From this many on, fewer passes with larger digits are faster: their counters are few beside the
/// elements.
const MANY: usize = 1 << 12;

/// From this many on, items are first brought near their places, so that the rest happens in the caches
/// and on all threads.
const LARGE: usize = 1 << 17;

/// Bits of the digit that does so, and its values: of a float the sign, the exponent and a bit or more.
const FIRST: u32 = 11;
const BUCKETS: usize = 1 << FIRST;

/// Sorts `items` with the help of `spare`, which is as long, and returns the one of them that has the
/// result. Items with equal keys keep their order if, where `Ord` looks at more than the key, they are in
/// that order.
pub(crate) fn sort<'a, T: Item>(
    op: &'static str,
    items: &'a mut [T],
    spare: &'a mut [T],
) -> Result<&'a mut [T]> {
    if items.len() >= LARGE {
        by_buckets(op, items, spare)?;
        return Ok(items);
    }
    Ok(if sort_some(items, spare) {
        spare
    } else {
        items
    })
}

/// Sorts on one thread; whether the result is in `spare`.
fn sort_some<T: Item>(items: &mut [T], spare: &mut [T]) -> bool {
    match items.len() {
        0..FEW => {
            items.sort_unstable();
            false
        }
        FEW..MANY => by_digits::<T, 8, 256>(items, spare),
        _ => by_digits::<T, 11, 2048>(items, spare),
    }
}

fn by_digits<T: Item, const BITS: u32, const SIZE: usize>(
    items: &mut [T],
    spare: &mut [T],
) -> bool {
    let mut counts = [[0_u32; SIZE]; 8];
    let digits = ((T::TO - T::FROM).div_ceil(BITS)) as usize;
    let shift = |d: usize| T::FROM + d as u32 * BITS;
    let counts = &mut counts[..digits];
    for &item in &*items {
        for (d, counts) in counts.iter_mut().enumerate() {
            counts[item.shifted(shift(d)) % SIZE] += 1;
        }
    }
    let (mut from, mut to) = (items, spare);
    let mut swapped = false;
    for (d, counts) in counts.iter_mut().enumerate() {
        // A digit that all share changes nothing.
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

/// Brings items into buckets by their first digit, then sorts each. The result is in `items`.
fn by_buckets<T: Item>(op: &'static str, items: &mut [T], spare: &mut [T]) -> Result<()> {
    // The first digit in which items differ: small integers share many.
    let (low, high) = items.iter().fold((items[0], items[0]), |(low, high), &x| {
        (low.min(x), high.max(x))
    });
    let differ = (low.shifted(T::FROM) ^ high.shifted(T::FROM)) as u64;
    let shift = T::FROM + (64 - differ.leading_zeros()).saturating_sub(FIRST);
    let bucket = |item: T| item.shifted(shift) % BUCKETS;
    // Where the items of each bucket from each piece go.
    let piece = LARGE / 4;
    let pieces = items.len().div_ceil(piece);
    let mut places = try_vec::filled(op, pieces * BUCKETS, 0_u32)?;
    pool::for_each_chunk(&mut places, BUCKETS, |i, counts| {
        for &item in &items[i * piece..items.len().min((i + 1) * piece)] {
            counts[bucket(item)] += 1;
        }
    });
    let mut starts = Vec::with_capacity(BUCKETS + 1);
    let mut next = 0;
    for b in 0..BUCKETS {
        starts.push(next as usize);
        for place in places[b..].iter_mut().step_by(BUCKETS) {
            next += std::mem::replace(place, next);
        }
    }
    starts.push(items.len());
    let near = DisjointSlice::new(spare);
    pool::for_each_chunk(&mut places, BUCKETS, |i, places| {
        for &item in &items[i * piece..items.len().min((i + 1) * piece)] {
            let at = &mut places[bucket(item)];
            // SAFETY: each place is counted out for one item of one piece.
            let place = unsafe { near.range(*at as usize, 1) };
            place[0] = item;
            *at += 1;
        }
    });
    // Buckets of one task, so that each has enough to do.
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
            let (from, to) = unsafe { (near.range(start, len), sorted.range(start, len)) };
            if !sort_some(from, to) {
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
    fn items_come_out_in_order_and_equal_ones_stay() {
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
            let mut items: Vec<Short> = (0..count)
                .map(|i| Short((keys[i] % 100) << 32 | i as u64))
                .collect();
            let mut expected = items.clone();
            expected.sort_unstable();
            assert!(sort("sort", &mut items, &mut vec![Short(0); count]).unwrap() == expected);
            let mut items: Vec<Long> = (0..count).map(|i| Long(keys[i] << 20, i as u32)).collect();
            let mut expected = items.clone();
            expected.sort_unstable();
            assert!(sort("sort", &mut items, &mut vec![Long(0, 0); count]).unwrap() == expected);
        }
    }
}
