//! Order-preserving integer keys of elements, which sort, top-k, argmin and argmax compare.

use half::{bf16, f16};

/// An element type with an order-preserving integer key.
pub(crate) trait SortKey: Copy + Send + Sync {
    /// An unsigned integer as wide as the element.
    type Bits: KeyBits;

    /// Returns the key: greater for a greater element, equal for zeros of either sign, and the maximum, which no number
    /// has, for NaN.
    fn key(self) -> Self::Bits;
    /// Whether it is NaN.
    fn is_nan(self) -> bool;
}

/// An unsigned integer.
pub(crate) trait KeyBits:
    Copy + Ord + Send + Sync + Into<u64> + std::ops::Not<Output = Self> + 'static
{
    const MIN: Self;
}

macro_rules! bits {
    ($($type:ident),*) => {$(
        impl KeyBits for $type {
            const MIN: Self = 0;
        }
    )*};
}
bits!(u8, u16, u32, u64);

macro_rules! int {
    ($($type:ident $bits:ident $flip:expr),*) => {$(
        impl SortKey for $type {
            type Bits = $bits;
            #[inline(always)]
            fn key(self) -> $bits {
                self as $bits ^ $flip
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                false
            }
        }
    )*};
}
int!(u8 u8 0, u16 u16 0, u32 u32 0, u64 u64 0,
    i8 u8 1 << 7, i16 u16 1 << 15, i32 u32 1 << 31, i64 u64 1 << 63);

macro_rules! float {
    ($($type:ident $bits:ident $signed:ident $infinity:expr),*) => {$(
        impl SortKey for $type {
            type Bits = $bits;
            #[inline(always)]
            fn key(self) -> $bits {
                let bits = self.to_bits();
                const SIGN: $bits = 1 << ($bits::BITS - 1);
                let magnitude = bits & !SIGN;
                // All bits of a negative number are flipped, of others only the sign; zero counts as positive.
                let negative = (bits as $signed >> ($bits::BITS - 1)) as $bits;
                let key = if magnitude == 0 { SIGN } else { bits ^ (negative | SIGN) };
                if magnitude > $infinity { $bits::MAX } else { key }
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                self.to_bits() << 1 > $infinity << 1
            }
        }
    )*};
}
float!(f16 u16 i16 0x7C00, bf16 u16 i16 0x7F80, f32 u32 i32 0x7F80_0000,
    f64 u64 i64 0x7FF0_0000_0000_0000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_elements() {
        let floats = [
            f32::NEG_INFINITY,
            -1e30,
            -1.0,
            -1e-40,
            0.0,
            1e-40,
            1.0,
            f32::INFINITY,
            f32::NAN,
        ];
        assert!(floats.windows(2).all(|w| w[0].key() < w[1].key()));
        assert_eq!((-0.0_f32).key(), 0.0_f32.key());
        assert_eq!((-f32::NAN).key(), u32::MAX);
        assert!((-f32::NAN).is_nan() && !f32::INFINITY.is_nan());
        let ints = [i8::MIN, -1, 0, 1, i8::MAX];
        assert!(ints.windows(2).all(|w| w[0].key() < w[1].key()));
        let f16s: Vec<f16> = [-2.0, -0.5, 0.0, 0.5, 7.0].map(f16::from_f64).to_vec();
        assert!(f16s.windows(2).all(|w| w[0].key() < w[1].key()));
    }
}
