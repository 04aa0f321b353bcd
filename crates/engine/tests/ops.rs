//! What ops compute, against loops and numbers worked out by hand.
#[path = "ops/attention.rs"]
mod attention;
#[path = "ops/layer_norm.rs"]
mod layer_norm;
#[path = "ops/near.rs"]
mod near;
#[path = "ops/rms_norm.rs"]
mod rms_norm;
#[path = "ops/rope.rs"]
mod rope;
#[path = "ops/softmax.rs"]
mod softmax;
