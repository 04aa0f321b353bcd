//! What ops compute, against loops and numbers worked out by hand.
#[path = "ops/einsum.rs"]
mod einsum;
#[path = "ops/layer_norm.rs"]
mod layer_norm;
#[path = "ops/near.rs"]
mod near;
#[path = "ops/packed_matmul.rs"]
mod packed_matmul;
#[path = "ops/rms_norm.rs"]
mod rms_norm;
#[path = "ops/softmax.rs"]
mod softmax;
