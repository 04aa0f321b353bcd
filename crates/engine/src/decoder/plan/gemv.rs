//! Matrix-vector products (GEMV) of a decoding step, with their fused prologues and epilogues.

use bessemer_hal::BufferSlice;

use super::super::weight::{LayerWeights, LinearWeights, WeightRange};
use super::{PlanContext, ResidualInput};
use crate::Result;
use crate::kernel::Activation;
use crate::metal::decoder_args::GemvArgs;
use crate::metal::{Kernel, LaunchBuilder, Recorder};

/// Rows that a lane group computes together; `ROWS` of `msl/decode_gemv.h`.
const GEMV_ROWS: usize = 4;

/// Threads of a threadgroup that computes a norm first, and of one that does not.
const NORM_THREADS: usize = 256;
const GEMV_THREADS: usize = 64;

/// More threadgroups than any GPU runs concurrently.
const SATURATING_THREADGROUPS: usize = 512;

/// Lanes that share a row of `cols` columns: each takes 16 at a time, and few should idle at the end.
pub(super) fn lanes(cols: usize) -> usize {
    let chunks = cols.div_ceil(16);
    let used = |lanes: usize| chunks as f64 / chunks.next_multiple_of(lanes) as f64;
    let found = [32, 16, 8].into_iter().find(|&lanes| used(lanes) >= 0.8);
    found.unwrap_or(8)
}

/// Number of threadgroups of `threads` threads for `rows` rows.
fn threadgroups(rows: usize, lanes: usize, threads: usize) -> usize {
    rows.div_ceil(threads / lanes * GEMV_ROWS)
}

/// Number of threadgroups that compute a norm first, for `rows` rows, and row passes of each: enough threadgroups for
/// the largest GPUs, few enough that the norms cost little.
fn normed_threadgroups(rows: usize, lanes: usize) -> (usize, usize) {
    let all = threadgroups(rows, lanes, NORM_THREADS);
    let repeats = (all / SATURATING_THREADGROUPS).clamp(1, 8);
    (all.div_ceil(repeats), repeats)
}

impl PlanContext<'_> {
    /// Sets the function constants of all GEMV kernels: LANES, POST_NORM and BIAS.
    pub(super) fn gemv(kernel: Kernel, cols: usize, post_norm: bool, bias: bool) -> Kernel {
        kernel
            .constant("LANES", lanes(cols) as u32)
            .flag("POST_NORM", post_norm)
            .flag("BIAS", bias)
    }

    /// Binds the first five arguments of a launch with a norm prologue. Returns the buffer in which the residual stream
    /// is complete afterwards.
    pub(super) fn bind_norm(
        &self,
        launch: LaunchBuilder,
        residual: &ResidualInput,
        norm: &WeightRange,
    ) -> (LaunchBuilder, usize) {
        let launch = launch.read(self.x(residual.buffer));
        let (launch, buffer) = match &residual.pending_post_norm {
            Some(post_norm) => {
                let other = 1 - residual.buffer;
                let launch = launch
                    .read(self.block_output())
                    .read(self.vector(post_norm))
                    .write(self.x(other));
                (launch, other)
            }
            None => (launch.skip().skip().skip(), residual.buffer),
        };
        (launch.read(self.vector(norm)), buffer)
    }

    pub(super) fn bias(&self, launch: LaunchBuilder, bias: Option<&WeightRange>) -> LaunchBuilder {
        match bias {
            Some(bias) => launch.read(self.vector(bias)),
            None => launch.skip(),
        }
    }

    /// Records the product of a matrix with `from`. It is added to a buffer of the residual stream, or, if there is a
    /// post-norm, left for the launch that computes that.
    pub(super) fn project(
        &self,
        recorder: &mut Recorder<'_>,
        linear: &LinearWeights,
        from: BufferSlice,
        buffer: usize,
        has_post_norm: bool,
    ) -> Result<()> {
        let LinearWeights { matrix, bias } = linear;
        let (rows, cols) = (self.spec.width, from.length() / 4);
        let kernel =
            Kernel::new("decode_project", "decode_project").define("P_FORMAT", matrix.format);
        let kernel =
            Self::gemv(kernel, cols, false, bias.is_some()).flag("RESIDUAL", !has_post_norm);
        let launch = recorder.launch(&kernel)?.read(from).read(&matrix.slice);
        let launch = self.bias(launch, bias.as_ref());
        let launch = if has_post_norm {
            launch.write(&self.sequences.scratch().block_output)
        } else {
            launch.update(self.x(buffer))
        };
        let args = self.gemv_args(rows, cols, 0.0, 1);
        let grid = threadgroups(rows, lanes(cols), GEMV_THREADS);
        launch.value(&args).groups(recorder, grid, GEMV_THREADS);
        Ok(())
    }

    /// Records the gate and up projections of the FFN, with its activation.
    pub(super) fn gate_up(
        &self,
        recorder: &mut Recorder<'_>,
        layer: &LayerWeights,
        residual: &ResidualInput,
    ) -> Result<usize> {
        let (rows, cols) = (self.spec.ffn, self.spec.width);
        let gate = layer.gate.as_ref();
        let kernel = Kernel::new("decode_ffn_gate_up", "decode_ffn_gate_up")
            .define("G_FORMAT", gate.unwrap_or(&layer.up).format)
            .define("U_FORMAT", layer.up.format);
        let activation = match self.spec.activation {
            Activation::Silu => 0,
            Activation::Gelu => 1,
            Activation::GeluTanh => 2,
        };
        let post_norm = residual.pending_post_norm.is_some();
        let kernel = Self::gemv(kernel, cols, post_norm, layer.gate_up_bias.is_some())
            .flag("GATED", gate.is_some())
            .constant("ACTIVATION", activation);
        let launch = recorder.launch(&kernel)?;
        let (launch, buffer) = self.bind_norm(launch, residual, &layer.ffn_norm);
        let launch = match gate {
            Some(gate) => launch.read(&gate.slice),
            None => launch.skip(),
        };
        let launch = launch.read(&layer.up.slice);
        let launch = self.bias(launch, layer.gate_up_bias.as_ref());
        let launch = launch.write(&self.sequences.scratch().ffn_hidden);
        let computed = if gate.is_some() { 2 * rows } else { rows };
        let (grid, repeats) = normed_threadgroups(computed, lanes(cols));
        let args = self.gemv_args(rows, cols, 0.0, repeats);
        launch.value(&args).groups(recorder, grid, NORM_THREADS);
        Ok(buffer)
    }

    /// Records the logits.
    pub(super) fn head(&self, recorder: &mut Recorder<'_>, residual: &ResidualInput) -> Result<()> {
        let (rows, cols) = (self.spec.vocab, self.spec.width);
        let head = &self.weights.head;
        let kernel = Kernel::new("decode_head", "decode_head").define("H_FORMAT", head.format);
        let post_norm = residual.pending_post_norm.is_some();
        let cap = self.spec.final_softcap;
        let kernel = Self::gemv(kernel, cols, post_norm, false).flag("CAP", cap.is_some());
        let launch = recorder.launch(&kernel)?;
        let (launch, _) = self.bind_norm(launch, residual, &self.weights.output_norm);
        let launch = launch
            .read(&head.slice)
            .write(self.sequences.logits())
            .update(self.sequences.state(self.slot));
        let (grid, repeats) = normed_threadgroups(rows, lanes(cols));
        let args = self.gemv_args(rows, cols, cap.unwrap_or(0.0), repeats);
        launch.value(&args).groups(recorder, grid, NORM_THREADS);
        Ok(())
    }

    fn gemv_args(&self, rows: usize, cols: usize, cap: f32, repeats: usize) -> GemvArgs {
        GemvArgs {
            rows: rows as u32,
            cols: cols as u32,
            eps: self.spec.eps,
            cap,
            repeats: repeats as u32,
        }
    }

    /// Records queries, keys and values. Without head norms, the launch also applies RoPE and writes keys and values to
    /// the cache.
    pub(super) fn project_qkv(
        &self,
        recorder: &mut Recorder<'_>,
        index: usize,
        layer: &LayerWeights,
        residual: &ResidualInput,
    ) -> Result<usize> {
        let spec = self.spec;
        let [q, k, v] = &layer.qkv;
        let normed = layer.head_norms.is_some();
        let rotation = self.rotation(index);
        let target = self.target(index);
        let kernel = Kernel::new("decode_qkv", "decode_qkv")
            .with_type("T", target.dtype)
            .define("Q_FORMAT", q.format)
            .define("K_FORMAT", k.format)
            .define("V_FORMAT", v.format);
        let post_norm = residual.pending_post_norm.is_some();
        let kernel = Self::gemv(kernel, spec.width, post_norm, layer.qkv_bias.is_some())
            .flag("INTERLEAVED", rotation.interleaved)
            .flag("HEAD_NORMS", normed)
            .flag("ROTATED", !normed)
            .flag("STAGED_KV", target.staged);
        let launch = recorder.launch(&kernel)?;
        let (launch, buffer) = self.bind_norm(launch, residual, &layer.attn_norm);
        let launch = launch.read(&q.slice).read(&k.slice).read(&v.slice);
        let launch = self.bias(launch, layer.qkv_bias.as_ref());
        let launch = launch.read(self.sequences.state(self.slot));
        let scratch = self.sequences.scratch();
        let [keys, values] = target.slices;
        let launch = launch.write(&scratch.q).write_part(values, target.row);
        let launch = if normed {
            launch.skip().skip().write(&scratch.k)
        } else {
            launch
                .read(self.vector(&rotation.frequencies))
                .write_part(keys, target.row)
                .skip()
        };
        let rows = (spec.heads + 2 * spec.kv_heads) * spec.head_dim;
        let (grid, repeats) = normed_threadgroups(rows, lanes(spec.width));
        let mut heads = self.heads(index);
        heads.repeats = repeats as u32;
        launch.value(&heads).groups(recorder, grid, NORM_THREADS);
        Ok(buffer)
    }
}
