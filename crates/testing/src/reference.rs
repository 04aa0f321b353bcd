//! Every op once more: slow, plain, and with nothing of the engine's in it but the type rules.
//!
//! Integers are exact and wrap to their type; floats are computed in `f64` from the exact elements and
//! left unrounded, so that a comparison sees how far an answer is from the truth and not from another
//! rounding of it. Arguments must be valid: a reference panics where the engine has a typed error.

pub mod arrange;
pub mod attention;
pub mod binary;
pub mod cast;
pub mod conv;
pub mod einsum;
pub mod erf;
pub mod exact;
pub mod gated;
pub mod index;
pub mod loss;
pub mod matmul;
pub mod norm;
pub mod pool;
pub mod random;
pub mod reduce;
pub mod rope;
pub mod scan;
pub mod softmax;
pub mod sort;
pub mod ternary;
pub mod unary;
pub mod upsample;
