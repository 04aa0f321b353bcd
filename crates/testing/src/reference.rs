//! Reference implementations of every op: slow and simple, sharing only the type rules with the engine.
//!
//! Integers are exact and wrap to their type; floats are computed in `f64` from the exact elements and
//! left unrounded, so that a comparison measures the distance to the exact result and not to another
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
