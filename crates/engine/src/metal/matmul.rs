//! `matmul` and `gemm` on Metal.
//!
//! A matmul is `out[row, col] = Σ left[row, k] * right[col, k]`, by strides: swapping the factors, or transposing
//! either, costs nothing. Four kernels of floats share the work by shape:
//!
//! - `matmul_tile`: tiles of the result by SIMD-group matrices;
//! - `matmul_skinny_k_major` and `matmul_skinny_m_major`: 16 columns at most, down to GEMV, for a left factor that is
//!   contiguous along K or along its rows; the left factor is read once;
//! - `matmul_split_k_reduce`: if the result is too small to fill a GPU, threadgroups split K, and this adds up their
//!   partial sums, always in the same order.
//!
//! Integers have one, `matmul_integer`. On request, the device's own library multiplies instead ([`super::mps`]).

use bessemer_hal::BufferSlice;
use bytemuck::Zeroable;

use super::elementwise::same_size_uint;
use super::input::{Input, Output, Span};
use super::kernel::Kernel;
use super::mps;
use super::msl_struct::msl_struct;
use super::record::{LaunchBuilder, Recorder};
use super::view::{self, ViewStrides, Walk};
use crate::ops::matmul::{EpilogueSteps, Matmul};
use crate::ops::unary::Unary;
use crate::{DType, Layout, Result, Scalar, Shape};

/// Maximum columns, or rows, of a skinny matmul. More go to tiles: a lane would need more than the 64 registers of sums
/// that it can have beside others, and tiles of 32 are more than half full.
const MAX_SKINNY_COLS: usize = 16;

/// Sides of tiles. Large ones have twice the arithmetic for each byte of threadgroup memory, but there must be some for
/// each of up to 40 cores, or the small ones are quicker.
const LARGE_TILE_SIDE: usize = 64;
const SMALL_TILE_SIDE: usize = 32;
const MIN_LARGE_TILES: usize = 80;

/// Threads of a tile, and of a threadgroup of the skinny kernels.
pub(super) const TILE_THREADS: usize = 128;
const SKINNY_THREADS: usize = 256;

/// SIMD-groups of the latter; `SIMD_GROUPS` of `matmul_skinny.metal`.
const SKINNY_SIMD_GROUPS: usize = 8;

/// Rows of a SIMD-group of `matmul_skinny_m_major`.
const M_MAJOR_ROWS: usize = 128;

/// Threadgroups that fill a GPU of up to 40 cores, three to a core. With fewer, K is split.
pub(super) const MIN_THREADGROUPS: usize = 128;

/// Minimum depth of a split: below, it saves less than the second launch costs.
const MIN_SPLIT_DEPTH: usize = 512;

/// Bytes that are read anyway, per byte of partial sums that a split may leave in memory.
const READ_BYTES_PER_PARTIAL: usize = 25;

/// Operations that a GPU does in the time that it takes to move a byte: 10 TFLOPS against 400 GB/s.
const FLOPS_PER_BYTE: u64 = 25;

/// Cost of integer products relative to floats: no matrix units, and a multiplication takes several cycles.
const INTEGER_TO_FLOAT_COST_RATIO: u64 = 8;

msl_struct! {
    /// Strides of a matrix operand along its first and its second index.
    #[derive(Default)]
    pub(super) struct MatrixStrides {
        pub(super) outer: i64,
        pub(super) inner: i64,
    }
}

msl_struct! {
    /// Arguments of the matmul kernels.
    pub(super) struct MatmulArgs {
        pub(super) rows: u32,
        pub(super) cols: u32,
        pub(super) depth: u32,
        /// Depth of a split; the whole depth if there is only one.
        pub(super) split_depth: u32,
        /// Tiles along the rows.
        pub(super) tile_rows: u32,
        /// Tiles along the columns.
        pub(super) tile_cols: u32,
        pub(super) alpha: f32,
        pub(super) beta: f32,
        /// The same factors, for integers.
        pub(super) integer_alpha: i64,
        pub(super) integer_beta: i64,
        /// Strides along rows and columns.
        pub(super) out: MatrixStrides,
        pub(super) addend: MatrixStrides,
        pub(super) residual: MatrixStrides,
        /// Strides along rows (of the right factor: columns) and the depth.
        pub(super) left: MatrixStrides,
        pub(super) right: MatrixStrides,
        /// The batch axes, and each operand's strides along them.
        pub(super) batch: Walk,
        pub(super) left_view: ViewStrides,
        pub(super) right_view: ViewStrides,
        pub(super) addend_view: ViewStrides,
        pub(super) residual_view: ViewStrides,
    }
}

/// Epilogue of a matmul: `activation(alpha * sum + beta * addend) + residual`, rounded at the end, or after every step.
/// Both tensors are broadcast to the result.
pub(super) struct Epilogue<'a> {
    pub(super) alpha: Scalar,
    pub(super) beta: Scalar,
    pub(super) addend: Option<Input<'a>>,
    pub(super) activation: EpilogueActivation,
    pub(super) residual: Option<Input<'a>>,
    pub(super) stepwise: bool,
}

/// Activation of an epilogue; the numbers are those of `matmul.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EpilogueActivation {
    None = 0,
    Relu = 1,
    Silu = 2,
    GeluTanh = 3,
    Gelu = 4,
    Sigmoid = 5,
}

impl EpilogueActivation {
    /// The activation of an op, if kernels support it.
    pub(crate) fn of(op: Unary) -> Option<Self> {
        match op {
            Unary::Relu => Some(Self::Relu),
            Unary::Silu => Some(Self::Silu),
            Unary::GeluTanh => Some(Self::GeluTanh),
            Unary::Gelu => Some(Self::Gelu),
            Unary::Sigmoid => Some(Self::Sigmoid),
            _ => None,
        }
    }
}

impl Epilogue<'_> {
    /// No epilogue.
    pub(super) const NONE: Self = Self {
        alpha: Scalar::Int(1),
        beta: Scalar::Int(0),
        addend: None,
        activation: EpilogueActivation::None,
        residual: None,
        stepwise: false,
    };
}

pub(crate) fn record(
    op: &Matmul,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let mut others = inputs[2..].iter().copied();
    let epilogue = match op.epilogue {
        EpilogueSteps::NONE => Epilogue {
            alpha: op.alpha,
            beta: op.beta,
            // With a factor of 0 it does not count, even if it is NaN.
            addend: others.next().filter(|_| op.beta.to_f64() != 0.0),
            ..Epilogue::NONE
        },
        then => {
            let activation = then.activation.map(EpilogueActivation::of);
            let Some(activation) = activation.unwrap_or(Some(EpilogueActivation::None)) else {
                recorder.no_kernel = true;
                return Ok(());
            };
            Epilogue {
                beta: Scalar::Int(1),
                addend: others.next().filter(|_| then.bias),
                activation,
                residual: inputs.last().copied().filter(|_| then.residual),
                stepwise: true,
                ..Epilogue::NONE
            }
        }
    };
    multiply(recorder, [inputs[0], inputs[1]], &epilogue, output)
}

/// Records the matmul of two batches of matrices, whose last two axes are `[m, k]` and `[k, n]`; the output is `[…, m,
/// n]`.
pub(super) fn multiply(
    recorder: &mut Recorder<'_>,
    factors: [Input<'_>; 2],
    epilogue: &Epilogue<'_>,
    output: &Output,
) -> Result<()> {
    if let Some((left, epilogue, shape)) = merge_batch(factors, epilogue, output) {
        let output = Output {
            slice: output.slice.clone(),
            shape,
            ..*output
        };
        return flat(recorder, [left, factors[1]], &epilogue, &output);
    }
    flat(recorder, factors, epilogue, output)
}

/// Records a matmul by the selected library.
fn flat(
    recorder: &mut Recorder<'_>,
    factors: [Input<'_>; 2],
    epilogue: &Epilogue<'_>,
    output: &Output,
) -> Result<()> {
    if mps::record(recorder, factors, epilogue, output)? {
        return Ok(());
    }
    MatmulLaunch::new(recorder, factors, epilogue, output)?.record(recorder)
}

/// Merges a batch of left matrices that share the right one into a single tall matrix, if strides allow it.
fn merge_batch<'a>(
    [a, b]: [Input<'a>; 2],
    epilogue: &Epilogue<'a>,
    output: &Output,
) -> Option<(Input<'a>, Epilogue<'a>, Shape)> {
    let (k, n) = (last(&a.layout), last(&b.layout));
    let rows = output.count() / n;
    let separate =
        output.shape.rank() == 2 || b.layout.count() != k * n || a.layout.count() != rows * k;
    if separate || k == 0 {
        return None;
    }
    let flat = |input: Input<'a>, cols: usize| {
        let shape = Shape::new("matmul", &[rows, cols]).ok()?;
        let layout = input.layout.reshaped(shape)?;
        Some(Input { layout, ..input })
    };
    let over = |input: Option<Input<'a>>| match input {
        None => Some(None),
        Some(input) => {
            let layout = input.layout.broadcast_to("matmul", output.shape).ok()?;
            flat(Input { layout, ..input }, n).map(Some)
        }
    };
    let epilogue = Epilogue {
        addend: over(epilogue.addend)?,
        residual: over(epilogue.residual)?,
        ..*epilogue
    };
    Some((
        flat(a, k)?,
        epilogue,
        Shape::new("matmul", &[rows, n]).ok()?,
    ))
}

fn last(layout: &Layout) -> usize {
    layout.shape()[layout.shape().rank() - 1]
}

/// A matrix operand: its bound range, its strides and its batch.
struct MatrixOperand<'a> {
    slice: BufferSlice,
    strides: MatrixStrides,
    batch: Input<'a>,
    offset: usize,
}

impl<'a> MatrixOperand<'a> {
    /// The last two axes are the matrix. For a matrix without elements, `placeholder` is bound, which is not read.
    fn new(input: &Input<'a>, output: &Output, placeholder: Option<&BufferSlice>) -> Self {
        let layout = input.layout;
        let rank = layout.shape().rank();
        // The stride of an axis of length 1 does not matter.
        let stride = |axis: usize| match layout.shape()[axis] {
            1 => 0,
            _ => layout.strides()[axis] as i64,
        };
        let span = match placeholder {
            Some(placeholder) => Span {
                slice: placeholder.clone(),
                offset: 0,
            },
            None => input.span(output),
        };
        Self {
            slice: span.slice,
            strides: MatrixStrides {
                outer: stride(rank - 2),
                inner: stride(rank - 1),
            },
            batch: Input {
                layout: layout.without(rank - 1).without(rank - 2),
                ..*input
            },
            offset: span.offset,
        }
    }

    /// An operand that is broadcast to the result.
    fn over(input: Option<Input<'a>>, output: &Output) -> Result<Option<Self>> {
        let Some(input) = input else {
            return Ok(None);
        };
        let layout = input.layout.broadcast_to("matmul", output.shape)?;
        Ok(Some(Self::new(&Input { layout, ..input }, output, None)))
    }

    /// The transpose.
    fn transposed(mut self) -> Self {
        self.strides = MatrixStrides {
            outer: self.strides.inner,
            inner: self.strides.outer,
        };
        self
    }
}

/// Memory layout of a factor.
#[derive(Clone, Copy, Default)]
pub(super) struct OperandLayout {
    /// K-major: contiguous along the depth.
    k_major: bool,
    /// Four neighbours are one aligned load.
    vector: bool,
}

impl OperandLayout {
    pub(super) fn of(strides: MatrixStrides, view: &ViewStrides) -> Self {
        let MatrixStrides { outer, inner } = strides;
        let k_major = match (outer, inner) {
            (_, 1) => true,
            (1, _) => false,
            // A single row, or a single element of each.
            (0, _) => true,
            (_, 0) => false,
            _ => inner.abs() <= outer.abs(),
        };
        let (near, far) = if k_major {
            (inner, outer)
        } else {
            (outer, inner)
        };
        let aligned = |x: i64| x % 4 == 0;
        Self {
            k_major,
            vector: near == 1
                && aligned(far)
                && aligned(view.offset)
                && view.strides.iter().all(|&s| aligned(s)),
        }
    }
}

/// Side of the tiles for a batch of results.
pub(super) fn tile_side(rows: usize, cols: usize, batches: usize) -> usize {
    match rows.div_ceil(LARGE_TILE_SIDE) * cols.div_ceil(LARGE_TILE_SIDE) * batches {
        MIN_LARGE_TILES.. => LARGE_TILE_SIDE,
        _ => SMALL_TILE_SIDE,
    }
}

/// A placeholder for an argument that a kernel does not read: a few bytes of another.
pub(super) fn placeholder(other: &BufferSlice) -> BufferSlice {
    let end = other.offset() + other.length().min(16);
    let bytes = other.buffer().slice(other.offset()..end);
    bytes.expect("a part of the range")
}

/// Cost of `count` sums of `depth` products, in bytes that could be moved meanwhile.
pub(crate) fn cost(count: usize, depth: usize) -> u64 {
    let flops = (2 * count as u64).saturating_mul(depth as u64);
    flops / FLOPS_PER_BYTE
}

/// Specialisation of the kernels of `matmul.h`.
pub(super) struct MatmulVariant {
    pub(super) left: OperandLayout,
    pub(super) right: OperandLayout,
    /// Whether the sums are partial ones, of a split of K.
    pub(super) split: bool,
    pub(super) addend: bool,
    pub(super) residual: bool,
    pub(super) activation: EpilogueActivation,
    pub(super) stepwise: bool,
}

impl MatmulVariant {
    /// Sets the function constants of all kernels of `matmul.h`; those of the skinny kernels follow.
    pub(super) fn specialise(&self, kernel: Kernel) -> Kernel {
        kernel
            .define("ACTIVATION", self.activation as i64)
            .flag("LEFT_K_MAJOR", self.left.k_major)
            .flag("RIGHT_K_MAJOR", self.right.k_major)
            .flag("LEFT_VECTOR", self.left.vector)
            .flag("RIGHT_VECTOR", self.right.vector)
            .flag("SPLIT", self.split)
            .flag("ADDEND", self.addend)
            .flag("RESIDUAL", self.residual)
            .flag("STEPWISE", self.stepwise)
    }
}

/// Geometry of a launch of a float kernel.
struct MatmulGeometry {
    threadgroups: usize,
    threads: usize,
    /// Rows of a SIMD-group of a skinny kernel.
    rows: usize,
    /// SIMD-groups that split the depth of these rows.
    simd_splits: usize,
}

/// A matmul with all arguments of its kernels.
struct MatmulLaunch {
    dtype: DType,
    args: MatmulArgs,
    left: BufferSlice,
    right: BufferSlice,
    addend: Option<BufferSlice>,
    residual: Option<BufferSlice>,
    activation: EpilogueActivation,
    stepwise: bool,
    output: BufferSlice,
    batches: usize,
    layouts: [OperandLayout; 2],
}

impl MatmulLaunch {
    fn new(
        recorder: &mut Recorder<'_>,
        [a, b]: [Input<'_>; 2],
        epilogue: &Epilogue<'_>,
        output: &Output,
    ) -> Result<Self> {
        let shape = output.shape;
        let (batch, &[m, n]) = shape.split_at(shape.rank() - 2) else {
            unreachable!("the rule gives two axes or more");
        };
        let batch = Shape::new("matmul", batch)?;
        let k = last(&a.layout);
        let placeholder = match k {
            0 => Some(recorder.scratch(16)?),
            _ => None,
        };
        let a = MatrixOperand::new(&a, output, placeholder.as_ref());
        let b = MatrixOperand::new(&b, output, placeholder.as_ref()).transposed();
        let addend = MatrixOperand::over(epilogue.addend, output)?;
        let residual = MatrixOperand::over(epilogue.residual, output)?;
        // A skinny left factor becomes the right one: the transposed problem has few columns.
        let transpose = m < n && m <= MAX_SKINNY_COLS && output.dtype.is_float();
        let (rows, cols) = if transpose { (n, m) } else { (m, n) };
        let out = MatrixStrides {
            outer: n as i64,
            inner: 1,
        };
        let orient = |strides: MatrixStrides| {
            if transpose {
                MatrixStrides {
                    outer: strides.inner,
                    inner: strides.outer,
                }
            } else {
                strides
            }
        };
        let (left, right) = if transpose { (b, a) } else { (a, b) };
        let mut walked = vec![(&left.batch, left.offset), (&right.batch, right.offset)];
        for other in [&addend, &residual].into_iter().flatten() {
            walked.push((&other.batch, other.offset));
        }
        let (walk, views) = view::walk(&batch, &walked);
        let mut others = views[2..].iter();
        let mut next_view = |exists: bool| {
            if exists {
                others.next().copied().unwrap_or(ViewStrides::zeroed())
            } else {
                ViewStrides::zeroed()
            }
        };
        let (addend_view, residual_view) =
            (next_view(addend.is_some()), next_view(residual.is_some()));
        let strides = |other: &Option<MatrixOperand<'_>>| other.as_ref().map_or(out, |o| o.strides);
        let args = MatmulArgs {
            rows: rows as u32,
            cols: cols as u32,
            depth: k as u32,
            split_depth: k as u32,
            tile_rows: 0,
            tile_cols: 0,
            alpha: epilogue.alpha.to_f64() as f32,
            beta: epilogue.beta.to_f64() as f32,
            integer_alpha: epilogue.alpha.to_i128() as i64,
            integer_beta: epilogue.beta.to_i128() as i64,
            out: orient(out),
            addend: orient(strides(&addend)),
            residual: orient(strides(&residual)),
            left: left.strides,
            right: right.strides,
            batch: walk,
            left_view: views[0],
            right_view: views[1],
            addend_view,
            residual_view,
        };
        Ok(Self {
            dtype: output.dtype,
            args,
            layouts: [
                OperandLayout::of(left.strides, &views[0]),
                OperandLayout::of(right.strides, &views[1]),
            ],
            left: left.slice,
            right: right.slice,
            addend: addend.map(|o| o.slice),
            residual: residual.map(|o| o.slice),
            activation: epilogue.activation,
            stepwise: epilogue.stepwise,
            output: output.slice.clone(),
            batches: batch.count(),
        })
    }

    fn record(mut self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (rows, cols) = (self.args.rows as usize, self.args.cols as usize);
        if !self.dtype.is_float() {
            return self.record_integer(recorder);
        }
        if cols <= MAX_SKINNY_COLS && cols <= rows {
            return if self.layouts[0].k_major {
                self.record_k_major(recorder)
            } else {
                self.record_m_major(recorder)
            };
        }
        let side = tile_side(rows, cols, self.batches);
        self.args.tile_rows = rows.div_ceil(side) as u32;
        self.args.tile_cols = cols.div_ceil(side) as u32;
        let kernel = Kernel::new("matmul", "matmul_tile")
            .with_type("T", self.dtype)
            .define("TILE", side as i64);
        let tiles = rows.div_ceil(side) * cols.div_ceil(side);
        let geometry = MatmulGeometry {
            threadgroups: tiles,
            threads: TILE_THREADS,
            rows: 1,
            simd_splits: 1,
        };
        self.launch(recorder, kernel, geometry)
    }

    /// Records a skinny matmul whose left factor is K-major.
    fn record_k_major(self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (rows, cols) = (self.args.rows as usize, self.args.cols as usize);
        // At most 32 sums.
        let group_rows = if cols <= MAX_SKINNY_COLS / 2 { 4 } else { 2 };
        let threadgroups =
            |simd_splits: usize| rows.div_ceil(group_rows * SKINNY_SIMD_GROUPS / simd_splits);
        // More SIMD-groups for a row as long as that fills the GPU better and each has something to do.
        let mut simd_splits = 1;
        while simd_splits < SKINNY_SIMD_GROUPS
            && threadgroups(simd_splits) * self.batches < MIN_THREADGROUPS
            && self.args.depth as usize >= 512 * simd_splits
        {
            simd_splits *= 2;
        }
        let kernel =
            Kernel::new("matmul_skinny", "matmul_skinny_k_major").with_type("T", self.dtype);
        let geometry = MatmulGeometry {
            threadgroups: threadgroups(simd_splits),
            threads: SKINNY_THREADS,
            rows: group_rows,
            simd_splits,
        };
        self.launch(recorder, kernel, geometry)
    }

    /// Records a skinny matmul whose left factor is contiguous along its rows.
    fn record_m_major(self, recorder: &mut Recorder<'_>) -> Result<()> {
        let geometry = MatmulGeometry {
            threadgroups: (self.args.rows as usize).div_ceil(M_MAJOR_ROWS),
            threads: SKINNY_THREADS,
            rows: 1,
            simd_splits: 1,
        };
        let kernel =
            Kernel::new("matmul_skinny", "matmul_skinny_m_major").with_type("T", self.dtype);
        self.launch(recorder, kernel, geometry)
    }

    /// Launches a kernel of floats, and the reduction if K is split.
    fn launch(
        mut self,
        recorder: &mut Recorder<'_>,
        kernel: Kernel,
        geometry: MatmulGeometry,
    ) -> Result<()> {
        let p = &mut self.args;
        let depth = p.depth as usize;
        let count = p.rows as usize * p.cols as usize * self.batches;
        let threadgroups = geometry.threadgroups * self.batches;
        // Partial sums are written and read once more.
        let factors = (p.rows as usize + p.cols as usize) * depth * self.batches;
        let affordable = factors * self.dtype.size()
            / (READ_BYTES_PER_PARTIAL * 2 * count * size_of::<f32>()).max(1);
        let splits = (MIN_THREADGROUPS / threadgroups)
            .min(depth / MIN_SPLIT_DEPTH)
            .min(affordable)
            .max(1);
        // Splits begin at multiples of tiles and of vectors.
        let split_depth = depth.div_ceil(splits).max(1).next_multiple_of(TILE_THREADS);
        let splits = depth.div_ceil(split_depth).max(1);
        p.split_depth = if splits > 1 { split_depth } else { depth } as u32;
        let cols = p.cols;
        let specialised = |kernel: Kernel, split: bool| {
            let variant = MatmulVariant {
                left: self.layouts[0],
                right: self.layouts[1],
                split,
                addend: self.addend.is_some(),
                residual: self.residual.is_some(),
                activation: self.activation,
                stepwise: self.stepwise,
            };
            variant
                .specialise(kernel)
                .constant("COLS", cols.min(MAX_SKINNY_COLS as u32))
                .constant("ROWS", geometry.rows as u32)
                .constant("SIMD_SPLITS", geometry.simd_splits as u32)
        };
        let to = match splits {
            1 => self.output.clone(),
            _ => recorder.scratch(splits * count * size_of::<f32>())?,
        };
        let kernel = specialised(kernel, splits > 1);
        let launch = recorder.launch_in_bands(kernel, cost(count, depth))?;
        let launch = launch.read(self.left.clone()).read(self.right.clone());
        self.epilogue(launch)
            .write(to.clone())
            .value(&self.args)
            .groups(
                recorder,
                (geometry.threadgroups, splits, self.batches),
                geometry.threads,
            );
        if splits > 1 {
            let kernel =
                Kernel::new("matmul_skinny", "matmul_split_k_reduce").with_type("T", self.dtype);
            let launch = recorder.launch(&specialised(kernel, false))?;
            self.epilogue(launch.read(to))
                .write(self.output.clone())
                .value(&self.args)
                .threads(recorder, count);
        }
        Ok(())
    }

    /// Binds the tensors of the epilogue.
    fn epilogue(&self, launch: LaunchBuilder) -> LaunchBuilder {
        let bound =
            |other: &Option<BufferSlice>| other.clone().unwrap_or_else(|| placeholder(&self.left));
        launch.read(bound(&self.addend)).read(bound(&self.residual))
    }

    /// Records the integer kernel; arithmetic wraps alike with and without a sign.
    fn record_integer(self, recorder: &mut Recorder<'_>) -> Result<()> {
        const SIDE: usize = 16;
        let dtype = same_size_uint(self.dtype);
        let p = &self.args;
        let count = p.rows as usize * p.cols as usize * self.batches;
        let kernel = Kernel::new("matmul_integer", "matmul_integer")
            .with_type("T", dtype)
            .define("ACTIVATION", 0)
            .flag("RIGHT_K_MAJOR", self.layouts[1].k_major)
            .flag("ADDEND", self.addend.is_some());
        let cost = INTEGER_TO_FLOAT_COST_RATIO.saturating_mul(cost(count, p.depth as usize));
        recorder
            .launch_in_bands(kernel, cost)?
            .read(self.left.clone())
            .read(self.right.clone())
            .read(
                self.addend
                    .clone()
                    .unwrap_or_else(|| placeholder(&self.left)),
            )
            .write(self.output.clone())
            .value(p)
            .groups(
                recorder,
                (
                    (p.cols as usize).div_ceil(SIDE),
                    (p.rows as usize).div_ceil(SIDE),
                    self.batches,
                ),
                (SIDE, SIDE),
            );
        Ok(())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::Device;
    use crate::metal::Block;

    fn wave(count: usize, step: f64) -> Vec<f32> {
        (0..count).map(|i| (i as f64 * step).sin() as f32).collect()
    }

    fn function(activation: EpilogueActivation, x: f64) -> f64 {
        match activation {
            EpilogueActivation::None => x,
            EpilogueActivation::Relu => x.max(0.0),
            EpilogueActivation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            EpilogueActivation::Silu => x / (1.0 + (-x).exp()),
            EpilogueActivation::Gelu => unreachable!("compared with the op by tests of graphs"),
            EpilogueActivation::GeluTanh => {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
                0.5 * x * (1.0 + inner.tanh())
            }
        }
    }

    /// Compares a layer in one launch (two with split-K) with the same in `f64`.
    #[test]
    fn bias_activation_and_residual_are_fused_into_the_matmul() {
        let device = Device::software().unwrap();
        let metal = device.metal_backend().unwrap();
        let shape = |dims: &[usize]| Layout::contiguous(Shape::new("test", dims).unwrap());
        for (activation, [m, k, n]) in [
            (EpilogueActivation::None, [33, 20, 35]),
            (EpilogueActivation::Relu, [3, 20, 35]),
            (EpilogueActivation::Silu, [35, 20, 1]),
            (EpilogueActivation::GeluTanh, [20, 1100, 18]),
            (EpilogueActivation::Silu, [2, 1100, 18]),
        ] {
            let (a, b, c, r) = (
                wave(m * k, 0.7),
                wave(k * n, 0.3),
                wave(n, 1.1),
                wave(n * m, 0.9),
            );
            let blocks = [&a, &b, &c, &r].map(|v| {
                Block::copy_of(metal, "test", bytemuck::cast_slice(v)).expect("memory for a test")
            });
            let input =
                |i: usize, layout: Layout| Input::new(Some(&blocks[i]), DType::F32, layout, None);
            let factors = [input(0, shape(&[m, k])), input(1, shape(&[k, n]))];
            // The residual is stored as its transpose.
            let epilogue = Epilogue {
                alpha: Scalar::Float(0.5),
                beta: Scalar::Float(2.0),
                addend: Some(input(2, shape(&[n]))),
                activation,
                residual: Some(input(3, shape(&[n, m]).permuted(&[1, 0]))),
                stepwise: false,
            };
            let result = Block::new(metal, "test", m * n * 4).unwrap();
            let output = Output::new(&result, DType::F32, *shape(&[m, n]).shape(), None);
            let mut recorder = Recorder::new(metal, "test");
            multiply(&mut recorder, factors, &epilogue, &output).unwrap();
            let inputs = [0, 1, 2, 3].map(|i| input(i, shape(&[1])));
            recorder.finish(&result, &inputs).unwrap();
            result.ready("test").unwrap();
            let got: &[f32] = bytemuck::cast_slice(result.bytes());
            for (at, &got) in got.iter().enumerate() {
                let (i, j) = (at / n, at % n);
                let product = |l| f64::from(a[i * k + l]) * f64::from(b[l * n + j]);
                let sum: f64 = (0..k).map(product).sum();
                let y = function(activation, 0.5 * sum + 2.0 * f64::from(c[j]));
                let expected = y + f64::from(r[j * m + i]);
                let error = (f64::from(got) - expected).abs();
                assert!(
                    error < 1e-4,
                    "{activation:?} {m} {k} {n} at {at}: {got}, {expected}"
                );
            }
        }
    }
}
