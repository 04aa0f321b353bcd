//! Linear layers of a batch, with their fused epilogues.

use bessemer_hal::BufferSlice;

use super::super::weight::{LayerWeights, Matrix, Place};
use super::batch::Batch;
use crate::Result;
use crate::kernel::Activation;
use crate::metal::decoder_args::{FfnArgs, ProjectArgs};
use crate::metal::{Block, Kernel, LaunchBuilder, QuantBatch, QuantTile, Recorder, product_cost};

/// Epilogue and destination of a linear layer.
struct Goal<'a> {
    bias: Option<&'a Place>,
    /// Whether the result is added to the destination.
    residual: bool,
    cap: Option<f32>,
    vectors: usize,
    to: BufferSlice,
}

/// Cost of the products of `vectors` vectors with `rows` rows of weights, as bytes that a GPU could move meanwhile.
fn cost(vectors: usize, rows: usize, cols: usize) -> u64 {
    product_cost(vectors * rows, cols)
}

/// Kernel of a linear layer: a skinny matmul without threadgroup memory for few vectors, tiles for more.
enum Way {
    Few(QuantBatch),
    Tile(QuantTile),
}

impl Way {
    fn new(rows: &[usize], cols: usize, vectors: usize) -> Self {
        if QuantBatch::takes(vectors) {
            Self::Few(QuantBatch::new(rows, cols, vectors))
        } else {
            Self::Tile(QuantTile::new(rows, vectors))
        }
    }

    /// The kernel of a file, specialised for the shape of the work.
    fn kernel(&self, file: &'static str, [few, tile]: [&'static str; 2]) -> Kernel {
        let (entry, eights, team, shared) = match self {
            Self::Few(batch) => (few, batch.eights, 1, batch.across),
            Self::Tile(of) => (tile, of.eights, of.team, 1),
        };
        Kernel::new(file, entry)
            .constant("EIGHTS", eights as u32)
            .constant("TEAM", team as u32)
            .constant("ACROSS", shared as u32)
    }

    fn groups(self, launch: LaunchBuilder, recorder: &mut Recorder<'_>) {
        match self {
            Self::Few(batch) => launch.groups(recorder, batch.groups, QuantBatch::THREADS),
            Self::Tile(tile) => {
                launch
                    .memory(tile.memory())
                    .groups(recorder, tile.groups, tile.team * 32)
            }
        }
    }
}

impl Batch<'_> {
    /// Records queries, keys and values, side by side.
    pub(super) fn project_heads(
        &self,
        recorder: &mut Recorder<'_>,
        layer: &LayerWeights,
    ) -> Result<()> {
        let [q, k, v] = &layer.qkv;
        let goal = Goal {
            bias: layer.qkv_bias.as_ref(),
            residual: false,
            cap: None,
            vectors: self.rows,
            to: self.qkv.all(),
        };
        self.multiply(recorder, &[q, k, v], &self.normed, &goal)
    }

    /// Records the product of a matrix with `from`. It is added to the residual stream, or, if there is a post-norm,
    /// left for the launch that computes that.
    pub(super) fn project(
        &self,
        recorder: &mut Recorder<'_>,
        (matrix, bias): (&Matrix, Option<&Place>),
        from: &Block,
        is_normed: bool,
    ) -> Result<()> {
        let to = self.added.as_ref().filter(|_| is_normed);
        let goal = Goal {
            bias,
            residual: to.is_none(),
            cap: None,
            vectors: self.rows,
            to: to.unwrap_or(&self.x).all(),
        };
        self.multiply(recorder, &[matrix], from, &goal)
    }

    /// Records the logits of the first `count` rows of the norm.
    pub(super) fn project_head(
        &self,
        recorder: &mut Recorder<'_>,
        count: usize,
        to: &BufferSlice,
    ) -> Result<()> {
        let goal = Goal {
            bias: None,
            residual: false,
            cap: self.spec.final_softcap,
            vectors: count,
            to: to.clone(),
        };
        self.multiply(recorder, &[&self.weights.head], &self.normed, &goal)
    }

    fn multiply(
        &self,
        recorder: &mut Recorder<'_>,
        matrices: &[&Matrix],
        from: &Block,
        goal: &Goal<'_>,
    ) -> Result<()> {
        let rows = |m: &Matrix| m.slice.length() / m.row;
        let all: Vec<usize> = matrices.iter().map(|m| rows(m)).collect();
        let (stride, cols) = (all.iter().sum(), from.len() / 4 / self.rows);
        let way = Way::new(&all, cols, goal.vectors);
        // A single matrix stands for all three, so that the kernel source is the same.
        let format = |i: usize| matrices.get(i).unwrap_or(&matrices[0]).format;
        let entries = ["prefill_project_few", "prefill_project"];
        let kernel = way
            .kernel("prefill_project", entries)
            .with("A_FORMAT", format(0))
            .with("B_FORMAT", format(1))
            .with("C_FORMAT", format(2))
            .flag("SEVERAL", matrices.len() > 1)
            .flag("BIAS", goal.bias.is_some())
            .flag("RESIDUAL", goal.residual)
            .flag("CAP", goal.cap.is_some());
        let mut launch = recorder.launch(&kernel)?;
        for i in 0..3 {
            launch = match matrices.get(i) {
                Some(matrix) => launch.read(&matrix.slice),
                None => launch.skip(),
            };
        }
        launch = launch.read_part(from.all(), 4 * goal.vectors * cols);
        launch = match goal.bias {
            Some(bias) => launch.read(self.weights.vector(bias)),
            None => launch.skip(),
        };
        launch = if goal.residual {
            launch.update(&goal.to)
        } else {
            launch.write(&goal.to)
        };
        let count = |i: usize| all.get(i).map_or(0, |&rows| rows as u32);
        let project = ProjectArgs {
            vectors: goal.vectors as u32,
            cols: cols as u32,
            rows: [count(0), count(1), count(2)],
            stride: stride as u32,
            cap: goal.cap.unwrap_or(0.0),
        };
        let launch = launch
            .value(&project)
            .cost(cost(goal.vectors, stride, cols));
        way.groups(launch, recorder);
        Ok(())
    }

    /// Records the gate and up projections of the FFN, with its activation.
    pub(super) fn feed(&self, recorder: &mut Recorder<'_>, layer: &LayerWeights) -> Result<()> {
        let (rows, cols) = (self.spec.ffn, self.spec.width);
        let gate = layer.gate.as_ref();
        // The skinny kernel gives a SIMD-group 8 rows of the gate and 8 of `up`; the tiled one computes a tile of each
        // in turn.
        let matrices = if gate.is_some() { 2 } else { 1 };
        let way = if QuantBatch::takes(self.rows) {
            Way::new(&[matrices * rows], cols, self.rows)
        } else {
            Way::new(&[rows], cols, self.rows)
        };
        let entries = ["prefill_ffn_gate_up_few", "prefill_ffn_gate_up"];
        let kernel = way
            .kernel("prefill_ffn_gate_up", entries)
            .with("G_FORMAT", gate.unwrap_or(&layer.up).format)
            .with("U_FORMAT", layer.up.format)
            .flag("GATED", gate.is_some())
            .flag("BIAS", layer.feed_bias.is_some())
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
        let launch = match &layer.feed_bias {
            Some(bias) => launch.read(self.weights.vector(bias)),
            None => launch.skip(),
        };
        let feed = FfnArgs {
            vectors: self.rows as u32,
            cols: cols as u32,
            rows: rows as u32,
        };
        let launch = launch.write(self.inner.all()).value(&feed).cost(cost(
            self.rows,
            matrices * rows,
            cols,
        ));
        way.groups(launch, recorder);
        Ok(())
    }
}
