//! Support for the engine's tests: references, tolerances and random cases.
//!
//! - [`Array`]: values of any element type, exact, in row-major order.
//! - [`reference`](mod@reference): every op, slow and simple, without the engine's kernels.
//! - [`subnormal`]: devices that flush subnormal numbers, and what that means for references.
//! - [`tolerance`]: error bounds by op and dtype, with their reasons.
//! - [`case`]: random shapes, values and layouts from fixed seeds; failures shrink.
//! - [`fuzz`]: random calls, valid or not.
//! - [`transformer`]: random transformers, and reference logits.
//! - [`layout`]: tensors with the layout of a case, and their values.

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
