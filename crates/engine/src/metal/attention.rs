//! `attention` on Metal: a decode kernel for few queries, which splits the keys among threads, and a prefill kernel for
//! many, which splits the queries.

use super::input::{Input, Output, Span};
use super::kernel::Kernel;
use super::matmul::cost;
use super::msl_struct::msl_struct;
use super::record::{LaunchBuilder, Recorder};
use crate::ops::attention::Attention;
use crate::{DType, Layout, Result};

msl_struct! {
    /// Arguments of the attention kernels.
    pub(super) struct AttentionArgs {
        /// Strides of batches, heads and rows, in elements; of the mask also of keys.
        q: [i64; 3],
        k: [i64; 3],
        v: [i64; 3],
        mask: [i64; 4],
        q_offset: i64,
        k_offset: i64,
        v_offset: i64,
        mask_offset: i64,
        scale: f32,
        cap: f32,
        heads: u32,
        /// Query heads that share a KV head.
        group: u32,
        queries: u32,
        keys: u32,
        dim: u32,
        value_dim: u32,
        window: u32,
        /// Splits of the keys.
        splits: u32,
    }
}

/// Maximum queries of the decode kernel.
const MAX_DECODE_QUERIES: usize = 8;

/// Maximum elements of a row in the prefill and in the decode kernel.
const MAX_PREFILL_DIM: usize = 256;
const MAX_DIM: usize = 1024;

/// Minimum keys of a split, maximum splits, and threadgroups that fill a GPU.
const MIN_SPLIT_KEYS: usize = 256;
const MAX_SPLITS: usize = 64;
const MIN_THREADGROUPS: usize = 128;

/// A strided `[batch, heads, length, dim]` whose last axis is contiguous.
struct StridedHeads {
    span: Option<Span>,
    strides: [i64; 3],
    offset: i64,
}

impl StridedHeads {
    fn new(recorder: &mut Recorder<'_>, input: &Input<'_>, output: &Output) -> Result<Self> {
        let shape = *input.layout.shape();
        if input.count() == 0 {
            return Ok(Self {
                span: None,
                strides: [0; 3],
                offset: 0,
            });
        }
        let (span, layout) = if shape[3] <= 1 || input.layout.strides()[3] == 1 {
            (input.span(output), input.layout)
        } else {
            (recorder.dense(input, output)?, Layout::contiguous(shape))
        };
        let s = layout.strides();
        Ok(Self {
            strides: [s[0] as i64, s[1] as i64, s[2] as i64],
            offset: span.offset as i64,
            span: Some(span),
        })
    }

    /// Whether rows of `dim` elements are aligned for vector loads of four.
    fn is_aligned(&self, dim: usize) -> bool {
        dim.is_multiple_of(4) && self.offset % 4 == 0 && self.strides.iter().all(|s| s % 4 == 0)
    }

    fn bind(&self, launch: LaunchBuilder) -> LaunchBuilder {
        match &self.span {
            Some(span) => launch.read(span.clone()),
            // Not read.
            None => launch.value(&0_u64),
        }
    }
}

pub(crate) fn record(
    op: &Attention,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let q_shape = *inputs[0].layout.shape();
    let v_shape = *inputs[2].layout.shape();
    let (keys, dim, value_dim) = (v_shape[2], q_shape[3], v_shape[3]);
    let widest = dim.max(value_dim);
    if widest > MAX_DIM {
        recorder.no_kernel = true;
        return Ok(());
    }
    let q = StridedHeads::new(recorder, &inputs[0], output)?;
    let k = StridedHeads::new(recorder, &inputs[1], output)?;
    let v = StridedHeads::new(recorder, &inputs[2], output)?;
    let mask = inputs.get(3).filter(|m| m.count() > 0);
    let mask_span = mask.map(|m| m.span(output));
    let mut args = AttentionArgs {
        q: q.strides,
        k: k.strides,
        v: v.strides,
        mask: [0; 4],
        q_offset: q.offset,
        k_offset: k.offset,
        v_offset: v.offset,
        mask_offset: mask_span.as_ref().map_or(0, |s| s.offset as i64),
        scale: op.scale() as f32,
        cap: op.soft_cap().unwrap_or(0.0) as f32,
        heads: q_shape[1] as u32,
        group: (q_shape[1] / v_shape[1].max(1)) as u32,
        queries: q_shape[2] as u32,
        keys: keys as u32,
        dim: dim as u32,
        value_dim: value_dim as u32,
        window: op
            .window
            .map_or(0, |w| u32::try_from(w).unwrap_or(u32::MAX)),
        splits: 1,
    };
    if let Some(mask) = mask {
        for (to, &from) in args.mask.iter_mut().zip(mask.layout.strides()) {
            *to = from as i64;
        }
    }
    let vector = q.is_aligned(dim) && k.is_aligned(dim) && v.is_aligned(value_dim);
    let specialised = |kernel: Kernel| {
        kernel
            .flag("CAUSAL", op.causal)
            .flag("WINDOW", op.window.is_some())
            .flag("CAP", op.soft_cap().is_some())
            .constant(
                "MASK",
                mask.map_or(0, |m| if m.dtype == DType::Bool { 1 } else { 2 }),
            )
            .flag("VECTOR", vector)
    };
    let bind = |launch: LaunchBuilder| {
        let launch = v.bind(k.bind(q.bind(launch)));
        match &mask_span {
            Some(span) => launch.read(span.clone()),
            None => launch.value(&0_u64),
        }
    };
    let batch = q_shape[0];
    let count = output.count() / value_dim;
    // As if every query saw every key, at the speed of a matmul: with a causal mask it sees half of them, but attention
    // takes twice as long for each.
    let cost = cost(count.saturating_mul(keys), dim + value_dim);
    if q_shape[2] > MAX_DECODE_QUERIES && widest <= MAX_PREFILL_DIM {
        let (dims, rows, tile) = tiles(output.dtype, widest);
        let kernel = Kernel::new("attention_prefill", "attention_prefill")
            .with_type("T", output.dtype)
            .define("DIMS", dims)
            .define("QUERIES", rows)
            .define("KEYS", tile);
        let kernel = specialised(kernel)
            .constant("DIM_BLOCKS", dim.div_ceil(8) as u32)
            .constant("VALUE_DIM_BLOCKS", value_dim.div_ceil(8) as u32);
        let launch = recorder.launch_in_bands(kernel, cost)?;
        let launch = bind(launch).write(&output.slice);
        let grid = (q_shape[2].div_ceil(rows as usize), q_shape[1], batch);
        launch
            .value(&args)
            .groups(recorder, grid, rows as usize * 4);
        return Ok(());
    }
    let lane_dims = widest.div_ceil(32).next_power_of_two().max(4);
    let all_rows = (args.group * args.queries) as usize;
    let rows = if all_rows == 1 || lane_dims > 8 { 1 } else { 4 };
    let simd_groups = if lane_dims > 8 { 4 } else { 8 };
    let heads = batch * v_shape[1];
    let blocks = all_rows.div_ceil(rows);
    // Maximum keys that a query sees.
    let reach = op
        .window
        .filter(|_| op.causal)
        .map_or(keys, |w| keys.min(w.saturating_add(all_rows)));
    let splits = (reach / MIN_SPLIT_KEYS)
        .min(MAX_SPLITS)
        .min(MIN_THREADGROUPS.div_ceil(heads * blocks))
        .max(1);
    args.splits = splits as u32;
    let kernel = |entry| {
        let kernel = Kernel::new("attention", entry)
            .with_type("T", output.dtype)
            .define("ROWS", rows as i64)
            .define("LANE_DIMS", lane_dims as i64)
            .define("SIMD_GROUPS", simd_groups as i64);
        specialised(kernel)
    };
    let launch = bind(recorder.launch_in_bands(kernel("attention_decode"), cost)?);
    let partial = match splits {
        1 => None,
        _ => Some(recorder.scratch(count * splits * (value_dim + 2) * 4)?),
    };
    let launch = launch.write(partial.as_ref().unwrap_or(&output.slice));
    // A SIMD-group for every four keys, if they are few.
    let used_groups = reach.div_ceil(splits).div_ceil(4).clamp(1, simd_groups);
    let grid = (splits, heads, blocks);
    launch.value(&args).groups(recorder, grid, 32 * used_groups);
    if let Some(partial) = partial {
        let threads = value_dim.next_multiple_of(32).min(256);
        recorder
            .launch(&kernel("attention_merge"))?
            .read(partial)
            .write(&output.slice)
            .value(&args)
            .groups(recorder, count, threads);
    }
    Ok(())
}

/// Elements of a row, queries and keys of a tile, so that tiles fit 32 KB of threadgroup memory.
fn tiles(dtype: DType, widest: usize) -> (i64, i64, i64) {
    match (widest, dtype) {
        (0..=64, _) => (64, 32, 32),
        (65..=128, DType::F32) => (128, 32, 16),
        (65..=128, _) => (128, 32, 32),
        (_, DType::F32) => (256, 16, 8),
        _ => (256, 32, 16),
    }
}
