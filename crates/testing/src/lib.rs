//! What the engine's tests compare with, and what they compare.
//!
//! - [`Array`]: numbers of any element type, exact, in row-major order.
//! - [`reference`](mod@reference): every op, slow and plain, without the engine's kernels.
//! - [`subnormal`]: which devices flush subnormal numbers, and what that means for references.
//! - [`tolerance`]: how far an answer may be from the reference, by op and type, and why.
//! - [`case`]: random shapes, values and layouts from fixed seeds; failures shrink.
//! - [`fuzz`]: random calls, right and wrong.
//! - [`transformer`]: random transformers, and what they give.
//! - [`layout`]: tensors that lie in memory as a case says, and back.

pub mod array;
pub mod case;
pub mod fuzz;
pub mod layout;
pub mod number;
pub mod random;
pub mod reference;
pub mod subnormal;
pub mod tolerance;
pub mod transformer;

pub use array::Array;
pub use number::Value;
