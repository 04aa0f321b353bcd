//! Matrix-vector products (GEMV) of a decoding step, with their fused prologues and epilogues.

use bessemer_hal::BufferSlice;

use super::super::weight::{LayerWeights, Matrix, Place};
use super::{Entering, Site};
use crate::Result;
use crate::kernel::Activation;
use crate::metal::decoder_args::GemvArgs;
use crate::metal::{Kernel, LaunchBuilder, Recorder};

/// Rows that a lane group computes together; `ROWS` of `msl/decode.h`.
const ROWS: usize = 4;

/// Threads of a threadgroup that computes a norm first, and of one that does not.
const NORMED: usize = 256;
const PLAIN: usize = 64;

/// More threadgroups than any GPU runs concurrently.
const ENOUGH: usize = 512;

/// Lanes that share a row of `cols` columns: each takes 16 at a time, and few should idle at the end.
pub(super) fn lanes(cols: usize) -> usize {
    let chunks = cols.div_ceil(16);
    let used = |lanes: usize| chunks as f64 / chunks.next_multiple_of(lanes) as f64;
    let good = [32, 16, 8].into_iter().find(|&lanes| used(lanes) >= 0.8);
    good.unwrap_or(8)
}

/// Number of threadgroups of `threads` threads for `rows` rows.
fn groups(rows: usize, lanes: usize, threads: usize) -> usize {
    rows.div_ceil(threads / lanes * ROWS)
}

/// Number of threadgroups that compute a norm first, for `rows` rows, and row passes of each: enough threadgroups for
/// the largest GPUs, few enough that the norms cost little.
fn normed_groups(rows: usize, lanes: usize) -> (usize, usize) {
    let all = groups(rows, lanes, NORMED);
    let repeats = (all / ENOUGH).clamp(1, 8);
    (all.div_ceil(repeats), repeats)
}

impl Site<'_> {
    /// Sets the function constants of all GEMV kernels: LANES, POST_NORM and BIAS.
    pub(super) fn product(kernel: Kernel, cols: usize, post: bool, bias: bool) -> Kernel {
        kernel
            .constant("LANES", lanes(cols) as u32)
            .flag("POST", post)
            .flag("BIAS", bias)
    }

    /// Binds the first five arguments of a launch with a norm prologue. Returns the buffer in which the residual stream
    /// is complete afterwards.
    pub(super) fn enter(
        &self,
        launch: LaunchBuilder,
        entering: &Entering,
        norm: &Place,
    ) -> (LaunchBuilder, usize) {
        let launch = launch.read(self.x(entering.place));
        let (launch, place) = match &entering.post {
            Some(post) => {
                let other = 1 - entering.place;
                let launch = launch
                    .read(self.added())
                    .read(self.vector(post))
                    .write(self.x(other));
                (launch, other)
            }
            None => (launch.skip().skip().skip(), entering.place),
        };
        (launch.read(self.vector(norm)), place)
    }

    pub(super) fn bias(&self, launch: LaunchBuilder, bias: Option<&Place>) -> LaunchBuilder {
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
        (matrix, bias): (&Matrix, Option<&Place>),
        from: BufferSlice,
        (place, is_normed): (usize, bool),
    ) -> Result<()> {
        let (rows, cols) = (self.spec.width, from.length() / 4);
        let kernel =
            Kernel::new("decode_project", "decode_project").with("P_FORMAT", matrix.format);
        let kernel =
            Self::product(kernel, cols, false, bias.is_some()).flag("RESIDUAL", !is_normed);
        let launch = recorder.launch(&kernel)?.read(from).read(&matrix.slice);
        let launch = self.bias(launch, bias);
        let launch = match is_normed {
            true => launch.write(&self.sequences.scratch().added),
            false => launch.update(self.x(place)),
        };
        let product = self.sizes(rows, cols, 0.0, 1);
        let grid = groups(rows, lanes(cols), PLAIN);
        launch.value(&product).groups(recorder, grid, PLAIN);
        Ok(())
    }

    /// Records the gate and up projections of the FFN, with its activation.
    pub(super) fn feed(
        &self,
        recorder: &mut Recorder<'_>,
        layer: &LayerWeights,
        entering: &Entering,
    ) -> Result<usize> {
        let (rows, cols) = (self.spec.ffn, self.spec.width);
        let gate = layer.gate.as_ref();
        let kernel = Kernel::new("decode_ffn_gate_up", "decode_ffn_gate_up")
            .with("G_FORMAT", gate.unwrap_or(&layer.up).format)
            .with("U_FORMAT", layer.up.format);
        let activation = match self.spec.activation {
            Activation::Silu => 0,
            Activation::Gelu => 1,
            Activation::GeluTanh => 2,
        };
        let post = entering.post.is_some();
        let kernel = Self::product(kernel, cols, post, layer.feed_bias.is_some())
            .flag("GATED", gate.is_some())
            .constant("ACTIVATION", activation);
        let launch = recorder.launch(&kernel)?;
        let (launch, place) = self.enter(launch, entering, &layer.ffn_norm);
        let launch = match gate {
            Some(gate) => launch.read(&gate.slice),
            None => launch.skip(),
        };
        let launch = launch.read(&layer.up.slice);
        let launch = self.bias(launch, layer.feed_bias.as_ref());
        let launch = launch.write(&self.sequences.scratch().inner);
        let computed = if gate.is_some() { 2 * rows } else { rows };
        let (grid, repeats) = normed_groups(computed, lanes(cols));
        let product = self.sizes(rows, cols, 0.0, repeats);
        launch.value(&product).groups(recorder, grid, NORMED);
        Ok(place)
    }

    /// Records the logits.
    pub(super) fn head(&self, recorder: &mut Recorder<'_>, entering: &Entering) -> Result<()> {
        let (rows, cols) = (self.spec.vocab, self.spec.width);
        let head = &self.weights.head;
        let kernel = Kernel::new("decode_head", "decode_head").with("H_FORMAT", head.format);
        let post = entering.post.is_some();
        let cap = self.spec.final_softcap;
        let kernel = Self::product(kernel, cols, post, false).flag("CAP", cap.is_some());
        let launch = recorder.launch(&kernel)?;
        let (launch, _) = self.enter(launch, entering, &self.weights.output_norm);
        let launch = launch
            .read(&head.slice)
            .write(self.sequences.logits())
            .update(self.sequences.state(self.slot));
        let (grid, repeats) = normed_groups(rows, lanes(cols));
        let product = self.sizes(rows, cols, cap.unwrap_or(0.0), repeats);
        launch.value(&product).groups(recorder, grid, NORMED);
        Ok(())
    }

    fn sizes(&self, rows: usize, cols: usize, cap: f32, repeats: usize) -> GemvArgs {
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
    pub(super) fn project_heads(
        &self,
        recorder: &mut Recorder<'_>,
        index: usize,
        layer: &LayerWeights,
        entering: &Entering,
    ) -> Result<usize> {
        let spec = self.spec;
        let [q, k, v] = &layer.qkv;
        let normed = layer.head_norms.is_some();
        let rotation = self.rotation(index);
        let target = self.target(index);
        let kernel = Kernel::new("decode_qkv", "decode_qkv")
            .of("T", target.dtype)
            .with("Q_FORMAT", q.format)
            .with("K_FORMAT", k.format)
            .with("V_FORMAT", v.format);
        let post = entering.post.is_some();
        let kernel = Self::product(kernel, spec.width, post, layer.qkv_bias.is_some())
            .flag("INTERLEAVED", rotation.interleaved)
            .flag("PLAIN_HEADS", normed)
            .flag("TURNED", !normed)
            .flag("FRESH", target.fresh);
        let launch = recorder.launch(&kernel)?;
        let (launch, place) = self.enter(launch, entering, &layer.attn_norm);
        let launch = launch.read(&q.slice).read(&k.slice).read(&v.slice);
        let launch = self.bias(launch, layer.qkv_bias.as_ref());
        let launch = launch.read(self.sequences.state(self.slot));
        let scratch = self.sequences.scratch();
        let [keys, values] = target.places;
        let launch = launch.write(&scratch.q).write_part(values, target.row);
        let launch = match normed {
            true => launch.skip().skip().write(&scratch.k),
            false => launch
                .read(self.vector(&rotation.turns))
                .write_part(keys, target.row)
                .skip(),
        };
        let rows = (spec.heads + 2 * spec.kv_heads) * spec.head_dim;
        let (grid, repeats) = normed_groups(rows, lanes(spec.width));
        let mut heads = self.heads(index);
        heads.repeats = repeats as u32;
        launch.value(&heads).groups(recorder, grid, NORMED);
        Ok(place)
    }
}
