//! Values to sort, and their order.

use std::cmp::Ordering;

/// Values without a pattern, some of them special, some equal.
pub(crate) fn noise(count: usize) -> Vec<f64> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        match state % 50 {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => f64::NEG_INFINITY,
            3 => 0.0,
            4 => -0.0,
            5 => -f64::NAN,
            6..20 => (state >> 20 & 15) as f64 - 8.0,
            _ => (state >> 11) as f64 / (1_u64 << 48) as f64 - 16.0,
        }
    };
    (0..count).map(|_| next()).collect()
}

/// The sort order: NaN last.
pub(crate) fn order(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b)
        .unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}
