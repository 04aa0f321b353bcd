//! Radix sort: least digit first, stable, without comparisons.

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
const MANY: usize = 1 << 15;

/// Sorts `items`; `spare` is as long. Items with equal keys keep their order if, where `Ord` looks at
/// more than the key, they are in that order.
pub(crate) fn sort<T: Item>(items: &mut [T], spare: &mut [T]) {
    match items.len() {
        0..FEW => items.sort_unstable(),
        FEW..MANY => by_digits::<T, 8, 256>(items, spare),
        _ => by_digits::<T, 11, 2048>(items, spare),
    }
}

fn by_digits<T: Item, const BITS: u32, const SIZE: usize>(items: &mut [T], spare: &mut [T]) {
    let mut counts = [[0_u32; SIZE]; 8];
    let digits = ((T::TO - T::FROM).div_ceil(BITS)) as usize;
    let shift = |d: usize| T::FROM + d as u32 * BITS;
    let counts = &mut counts[..digits];
    for &item in &*items {
        for (d, counts) in counts.iter_mut().enumerate() {
            counts[item.shifted(shift(d)) % SIZE] += 1;
        }
    }
    let (mut from, mut to) = (&mut *items, &mut *spare);
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
    if swapped {
        to.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_out_in_order_and_equal_ones_stay() {
        for count in [0, 1, 2, 199, 200, 1000, 40_000] {
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
            sort(&mut items, &mut vec![0; count]);
            assert_eq!(items, expected);
            let mut items: Vec<Short> = (0..count)
                .map(|i| Short((keys[i] % 100) << 32 | i as u64))
                .collect();
            let mut expected = items.clone();
            expected.sort_unstable();
            sort(&mut items, &mut vec![Short(0); count]);
            assert!(items == expected);
            let mut items: Vec<Long> = (0..count).map(|i| Long(keys[i] << 20, i as u32)).collect();
            let mut expected = items.clone();
            expected.sort_unstable();
            sort(&mut items, &mut vec![Long(0, 0); count]);
            assert!(items == expected);
        }
    }
}
