//! What ops compute, against slow references and numbers worked out by hand: each op × type × layout,
//! and its errors.

#[path = "ops/arange.rs"]
mod arange;
#[path = "ops/attention.rs"]
mod attention;
#[path = "ops/binary.rs"]
mod binary;
#[path = "ops/cast.rs"]
mod cast;
#[path = "ops/copy.rs"]
mod copy;
#[path = "ops/dot.rs"]
mod dot;
#[path = "ops/einsum.rs"]
mod einsum;
#[path = "ops/full.rs"]
mod full;
#[path = "ops/fused.rs"]
mod fused;
#[path = "ops/layer_norm.rs"]
mod layer_norm;
#[path = "ops/logsumexp.rs"]
mod logsumexp;
#[path = "ops/matmul.rs"]
mod matmul;
#[path = "ops/matvec.rs"]
mod matvec;
#[path = "ops/near.rs"]
mod near;
#[path = "ops/norm.rs"]
mod norm;
#[path = "ops/outer.rs"]
mod outer;
#[path = "ops/packed_matmul.rs"]
mod packed_matmul;
#[path = "ops/random.rs"]
mod random;
#[path = "ops/reduce.rs"]
mod reduce;
#[path = "ops/rms_norm.rs"]
mod rms_norm;
#[path = "ops/rope.rs"]
mod rope;
#[path = "ops/softmax.rs"]
mod softmax;
#[path = "ops/ternary.rs"]
mod ternary;
#[path = "ops/unary.rs"]
mod unary;
#[path = "ops/var.rs"]
mod var;
