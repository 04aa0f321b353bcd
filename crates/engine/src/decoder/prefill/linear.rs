//! Linear layers of a batch, with their fused epilogues.

use bessemer_hal::BufferSlice;

use super::super::weight::{LayerWeights, LinearWeights, WeightMatrix, WeightRange};
use super::batch::PrefillBatch;
use crate::Result;
use crate::kernel::Activation;
use crate::metal::decoder_args::{FfnArgs, ProjectArgs};
use crate::metal::{
    Block, Kernel, LaunchBuilder, Recorder, SkinnyGeometry, TileGeometry, matmul_cost,
};

/// Epilogue and destination of a linear layer.
struct LinearOutput<'a> {
    bias: Option<&'a WeightRange>,
    /// Whether the result is added to the destination.
    residual: bool,
    cap: Option<f32>,
    vectors: usize,
    to: BufferSlice,
}

/// Cost of the products of `vectors` vectors with `rows` rows of weights, as bytes that a GPU could move meanwhile.
fn cost(vectors: usize, rows: usize, cols: usize) -> u64 {
    matmul_cost(vectors * rows, cols)
}

/// Kernel of a linear layer: a skinny matmul without threadgroup memory for few vectors, tiles for more.
enum LinearKernel {
    Skinny(SkinnyGeometry),
    Tiled(TileGeometry),
}

impl LinearKernel {
    fn new(rows: &[usize], cols: usize, vectors: usize) -> Self {
        if SkinnyGeometry::supports(vectors) {
            Self::Skinny(SkinnyGeometry::new(rows, cols, vectors))
        } else {
            Self::Tiled(TileGeometry::new(rows, vectors))
        }
    }

    /// Entry `skinny` or `tiled` of a file, specialised for the geometry of the launch.
    fn kernel(&self, file: &'static str, skinny: &'static str, tiled: &'static str) -> Kernel {
        let (entry, vector_blocks, simd_groups, simd_splits) = match self {
            Self::Skinny(of) => (skinny, of.vector_blocks, 1, of.simd_splits),
            Self::Tiled(of) => (tiled, of.vector_blocks, of.simd_groups, 1),
        };
        Kernel::new(file, entry)
            .constant("VECTOR_BLOCKS", vector_blocks as u32)
            .constant("SIMD_GROUPS", simd_groups as u32)
            .constant("SIMD_SPLITS", simd_splits as u32)
    }

    fn groups(self, launch: LaunchBuilder, recorder: &mut Recorder<'_>) {
        match self {
            Self::Skinny(of) => launch.groups(recorder, of.threadgroups, SkinnyGeometry::THREADS),
            Self::Tiled(of) => {
                launch
                    .memory(of.memory())
                    .groups(recorder, of.threadgroups, of.simd_groups * 32)
            }
        }
    }
}

impl PrefillBatch<'_> {
    /// Records queries, keys and values, side by side.
    pub(super) fn project_qkv(
        &self,
        recorder: &mut Recorder<'_>,
        layer: &LayerWeights,
    ) -> Result<()> {
        let [q, k, v] = &layer.qkv;
        let output = LinearOutput {
            bias: layer.qkv_bias.as_ref(),
            residual: false,
            cap: None,
            vectors: self.rows,
            to: self.qkv.all(),
        };
        self.multiply(recorder, &[q, k, v], &self.normed, &output)
    }

    /// Records the product of a matrix with `from`. It is added to the residual stream, or, if there is a post-norm,
    /// left for the launch that computes that.
    pub(super) fn project(
        &self,
        recorder: &mut Recorder<'_>,
        linear: &LinearWeights,
        from: &Block,
        has_post_norm: bool,
    ) -> Result<()> {
        let to = self.block_output.as_ref().filter(|_| has_post_norm);
        let output = LinearOutput {
            bias: linear.bias.as_ref(),
            residual: to.is_none(),
            cap: None,
            vectors: self.rows,
            to: to.unwrap_or(&self.x).all(),
        };
        self.multiply(recorder, &[&linear.matrix], from, &output)
    }

    /// Records the logits of the first `count` rows of the norm.
    pub(super) fn project_head(
        &self,
        recorder: &mut Recorder<'_>,
        count: usize,
        to: &BufferSlice,
    ) -> Result<()> {
        let output = LinearOutput {
            bias: None,
            residual: false,
            cap: self.spec.final_softcap,
            vectors: count,
            to: to.clone(),
        };
        self.multiply(recorder, &[&self.weights.head], &self.normed, &output)
    }

    fn multiply(
        &self,
        recorder: &mut Recorder<'_>,
        matrices: &[&WeightMatrix],
        from: &Block,
        output: &LinearOutput<'_>,
    ) -> Result<()> {
        let rows = |m: &WeightMatrix| m.slice.length() / m.row;
        let all: Vec<usize> = matrices.iter().map(|m| rows(m)).collect();
        let (stride, cols) = (all.iter().sum(), from.len() / 4 / self.rows);
        let linear = LinearKernel::new(&all, cols, output.vectors);
        // A single matrix stands for all three, so that the kernel source is the same.
        let format = |i: usize| matrices.get(i).unwrap_or(&matrices[0]).format;
        let file = "prefill_project";
        let kernel = linear
            .kernel(file, "prefill_project_skinny", "prefill_project")
            .define("A_FORMAT", format(0))
            .define("B_FORMAT", format(1))
            .define("C_FORMAT", format(2))
            .flag("MULTIPLE", matrices.len() > 1)
            .flag("BIAS", output.bias.is_some())
            .flag("RESIDUAL", output.residual)
            .flag("CAP", output.cap.is_some());
        let mut launch = recorder.launch(&kernel)?;
        for i in 0..3 {
            launch = match matrices.get(i) {
                Some(matrix) => launch.read(&matrix.slice),
                None => launch.skip(),
            };
        }
        launch = launch.read_part(from.all(), 4 * output.vectors * cols);
        launch = match output.bias {
            Some(bias) => launch.read(self.weights.vector(bias)),
            None => launch.skip(),
        };
        launch = if output.residual {
            launch.update(&output.to)
        } else {
            launch.write(&output.to)
        };
        let count = |i: usize| all.get(i).map_or(0, |&rows| rows as u32);
        let args = ProjectArgs {
            vectors: output.vectors as u32,
            cols: cols as u32,
            rows: [count(0), count(1), count(2)],
            stride: stride as u32,
            cap: output.cap.unwrap_or(0.0),
        };
        let launch = launch.value(&args).cost(cost(output.vectors, stride, cols));
        linear.groups(launch, recorder);
        Ok(())
    }

    /// Records the gate and up projections of the FFN, with its activation.
    pub(super) fn gate_up(&self, recorder: &mut Recorder<'_>, layer: &LayerWeights) -> Result<()> {
        let (rows, cols) = (self.spec.ffn, self.spec.width);
        let gate = layer.gate.as_ref();
        // The skinny kernel gives a SIMD-group 8 rows of the gate and 8 of `up`; the tiled one computes a tile of each
        // in turn.
        let matrices = if gate.is_some() { 2 } else { 1 };
        let linear = if SkinnyGeometry::supports(self.rows) {
            LinearKernel::new(&[matrices * rows], cols, self.rows)
        } else {
            LinearKernel::new(&[rows], cols, self.rows)
        };
        let file = "prefill_ffn_gate_up";
        let kernel = linear
            .kernel(file, "prefill_ffn_gate_up_skinny", "prefill_ffn_gate_up")
            .define("G_FORMAT", gate.unwrap_or(&layer.up).format)
            .define("U_FORMAT", layer.up.format)
            .flag("GATED", gate.is_some())
            .flag("BIAS", layer.gate_up_bias.is_some())
            .constant(
                "ACTIVATION",
                match self.spec.activation {
                    Activation::Silu => 0,
                    Activation::Gelu => 1,
                    Activation::GeluTanh => 2,
                },
            );
        let launch = recorder.launch(&kernel)?;
        let launch = match gate {
            Some(gate) => launch.read(&gate.slice),
            None => launch.skip(),
        };
        let launch = launch.read(&layer.up.slice).read(self.normed.all());
        let launch = match &layer.gate_up_bias {
            Some(bias) => launch.read(self.weights.vector(bias)),
            None => launch.skip(),
        };
        let args = FfnArgs {
            vectors: self.rows as u32,
            cols: cols as u32,
            rows: rows as u32,
        };
        let launch = launch.write(self.ffn_hidden.all()).value(&args).cost(cost(
            self.rows,
            matrices * rows,
            cols,
        ));
        linear.groups(launch, recorder);
        Ok(())
    }
}
