//! What the engine's tests compare with, and what they compare.
//!
//! - [`Array`]: numbers of any element type, exact, in row-major order.
//! - [`reference`](mod@reference): every op, slow and plain, without the engine's kernels.
//! - [`tolerance`]: how far an answer may be from the reference, by op and type, and why.
//! - [`case`]: random shapes, values and layouts from fixed seeds; failures shrink.

pub mod array;
pub mod number;
pub mod reference;

pub use array::Array;
pub use number::Value;
