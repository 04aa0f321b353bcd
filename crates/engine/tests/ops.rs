//! What ops compute, against slow references and numbers worked out by hand: each op × type × layout,
//! and its errors.
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

#[path = "ops/arange.rs"]
mod arange;
#[path = "ops/arg_reduce.rs"]
mod arg_reduce;
#[path = "ops/arg_sort.rs"]
mod arg_sort;
#[path = "ops/attention.rs"]
mod attention;
#[path = "ops/axis.rs"]
mod axis;
#[path = "ops/batch_norm.rs"]
mod batch_norm;
#[path = "ops/binary.rs"]
mod binary;
#[path = "ops/block.rs"]
mod block;
#[path = "ops/cast.rs"]
mod cast;
#[path = "ops/concat.rs"]
mod concat;
#[path = "ops/conv.rs"]
mod conv;
#[path = "ops/copy.rs"]
mod copy;
#[path = "ops/cross_entropy.rs"]
mod cross_entropy;
#[path = "ops/data.rs"]
mod data;
#[path = "ops/dot.rs"]
mod dot;
#[path = "ops/einsum.rs"]
mod einsum;
#[path = "ops/embedding.rs"]
mod embedding;
#[path = "ops/formula.rs"]
mod formula;
#[path = "ops/full.rs"]
mod full;
#[path = "ops/fused.rs"]
mod fused;
#[path = "ops/gather.rs"]
mod gather;
#[path = "ops/group_norm.rs"]
mod group_norm;
#[path = "ops/layer_norm.rs"]
mod layer_norm;
#[path = "ops/logsumexp.rs"]
mod logsumexp;
#[path = "ops/matmul.rs"]
mod matmul;
#[path = "ops/matvec.rs"]
mod matvec;
#[path = "ops/mse.rs"]
mod mse;
#[path = "ops/norm.rs"]
mod norm;
#[path = "ops/order.rs"]
mod order;
#[path = "ops/outer.rs"]
mod outer;
#[path = "ops/packed_matmul.rs"]
mod packed_matmul;
#[path = "ops/pad.rs"]
mod pad;
#[path = "ops/pooling.rs"]
mod pooling;
#[path = "ops/quant_matmul.rs"]
mod quant_matmul;
#[path = "ops/random.rs"]
mod random;
#[path = "ops/reduce.rs"]
mod reduce;
#[path = "ops/repeat.rs"]
mod repeat;
#[path = "ops/rms_norm.rs"]
mod rms_norm;
#[path = "ops/rope.rs"]
mod rope;
#[path = "ops/scan.rs"]
mod scan;
#[path = "ops/scatter.rs"]
mod scatter;
#[path = "ops/slice_update.rs"]
mod slice_update;
#[path = "ops/softmax.rs"]
mod softmax;
#[path = "ops/sort.rs"]
mod sort;
#[path = "ops/swiglu.rs"]
mod swiglu;
#[path = "ops/take.rs"]
mod take;
#[path = "ops/ternary.rs"]
mod ternary;
#[path = "ops/top_k.rs"]
mod top_k;
#[path = "ops/triangle.rs"]
mod triangle;
#[path = "ops/unary.rs"]
mod unary;
#[path = "ops/upsample_nearest.rs"]
mod upsample_nearest;
#[path = "ops/var.rs"]
mod var;
