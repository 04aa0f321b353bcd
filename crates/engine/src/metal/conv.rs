//! `conv1d` and `conv2d` on Metal.
//!
//! A convolution is a matmul of the weights and the windows of the image (im2col). Without padding, 1×1 convolutions
//! call the matmul kernels; others use tiles whose right factor is gathered from the image into threadgroup
//! memory (implicit GEMM). If sums are short, or few outputs share a window, each result has its own thread.

use bessemer_hal::BufferSlice;
use bytemuck::Zeroable;

use super::input::{Input, Output, Span};
use super::kernel::Kernel;
use super::matmul::{
    self, Epilogue, EpilogueActivation, MatmulArgs, MatmulVariant, MatrixStrides, OperandLayout,
};
use super::msl_struct::msl_struct;
use super::record::Recorder;
use super::view::{self, ViewStrides};
use crate::ops::conv::Conv;
use crate::{Result, Scalar, Shape};

/// Minimum outputs, and products of a sum, of the tiled kernel: fewer leave most of a tile empty.
const MIN_TILE_SIDE: usize = 8;

msl_struct! {
    /// Windows of a convolution over an image.
    pub(super) struct ConvWindows {
        /// Strides of the image from channel to channel, row to row and column to column, in elements.
        channel: i64,
        row: i64,
        column: i64,
        height: u32,
        width: u32,
        taps_height: u32,
        taps_width: u32,
        stride_height: u32,
        stride_width: u32,
        padding_height: u32,
        padding_width: u32,
        dilation_height: u32,
        dilation_width: u32,
        /// Windows along the width.
        output_width: u32,
        padding: u32,
    }
}

msl_struct! {
    /// Arguments of the direct convolution kernel; strides and offsets are in elements.
    pub(super) struct DirectConvArgs {
        /// Strides of the weights: outputs, channels, rows and columns.
        weights: [i64; 4],
        image: i64,
        bias: i64,
        weights_offset: i64,
        images_offset: i64,
        bias_offset: i64,
        /// Outputs in all.
        outputs: u32,
        /// Outputs of a group.
        group: u32,
        /// Channels of a group.
        channels: u32,
        padding: u32,
    }
}

/// A convolution with its dimensions.
struct ConvProblem<'a> {
    op: &'a Conv,
    images: Input<'a>,
    weights: Input<'a>,
    bias: Option<Input<'a>>,
    batch: usize,
    outputs: usize,
    /// Outputs, and channels, of a group.
    rows: usize,
    inner: usize,
    size: [usize; 2],
    taps: [usize; 2],
    /// Window positions along the height and the width.
    positions: [usize; 2],
}

pub(crate) fn record(
    op: &Conv,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let (images, weights) = (inputs[0], inputs[1]);
    let [batch, _, height, width] = images.layout.shape()[..] else {
        unreachable!("the rule wants four axes");
    };
    let [outputs, inner, taps_height, taps_width] = weights.layout.shape()[..] else {
        unreachable!("the rule wants four axes");
    };
    let problem = ConvProblem {
        op,
        images,
        weights,
        bias: inputs.get(2).copied(),
        batch,
        outputs,
        rows: outputs / op.groups,
        inner,
        size: [height, width],
        taps: [taps_height, taps_width],
        positions: [output.shape[2], output.shape[3]],
    };
    let depth = inner * taps_height * taps_width;
    // The tiled kernel has signed 32-bit positions.
    let in_range = (0..2).all(|i| {
        let reach = problem.size[i].saturating_add(op.padding[i].saturating_mul(2));
        i32::try_from(reach).is_ok()
    });
    if depth < MIN_TILE_SIDE || problem.rows < MIN_TILE_SIDE || !in_range {
        return problem.direct(recorder, output);
    }
    if let Some(product) = problem.pointwise(output)? {
        let (factors, epilogue, output) = product;
        return matmul::multiply(recorder, factors, &epilogue, &output);
    }
    problem.tiles(recorder, output)
}

impl<'a> ConvProblem<'a> {
    /// Reshapes an input, if strides can express it.
    fn reshaped(&self, input: &Input<'a>, dims: &[usize]) -> Result<Option<Input<'a>>> {
        let layout = input.layout.reshaped(Shape::new(self.op.name, dims)?);
        Ok(layout.map(|layout| Input { layout, ..*input }))
    }

    /// The bias with axes for groups, their outputs and window positions.
    fn addend(&self) -> Result<Option<Input<'a>>> {
        match &self.bias {
            None => Ok(None),
            Some(bias) => self.reshaped(bias, &[self.op.groups, self.rows, 1]),
        }
    }

    fn epilogue(&self) -> Result<Epilogue<'a>> {
        Ok(Epilogue {
            beta: Scalar::Int(1),
            addend: self.addend()?,
            ..Epilogue::NONE
        })
    }

    /// A 1×1 convolution without padding as a matmul.
    fn pointwise(&self, output: &Output) -> Result<Option<([Input<'a>; 2], Epilogue<'a>, Output)>> {
        let op = self.op;
        if self.taps != [1, 1] || op.stride != [1, 1] || op.padding != [0, 0] {
            return Ok(None);
        }
        let area = self.size[0] * self.size[1];
        let dims = [self.batch, op.groups, self.inner, area];
        let weights = self.reshaped(&self.weights, &[op.groups, self.rows, self.inner])?;
        let images = self.reshaped(&self.images, &dims)?;
        let (Some(weights), Some(images)) = (weights, images) else {
            return Ok(None);
        };
        let output = Output {
            slice: output.slice.clone(),
            shape: Shape::new(op.name, &[self.batch, op.groups, self.rows, area])?,
            ..*output
        };
        Ok(Some(([weights, images], self.epilogue()?, output)))
    }

    fn windows(&self) -> ConvWindows {
        let strides = self.images.layout.strides();
        let saturate = |x: usize| u32::try_from(x).unwrap_or(u32::MAX);
        ConvWindows {
            channel: strides[1] as i64,
            row: strides[2] as i64,
            column: strides[3] as i64,
            height: saturate(self.size[0]),
            width: saturate(self.size[1]),
            taps_height: saturate(self.taps[0]),
            taps_width: saturate(self.taps[1]),
            stride_height: saturate(self.op.stride[0]),
            stride_width: saturate(self.op.stride[1]),
            padding_height: saturate(self.op.padding[0]),
            padding_width: saturate(self.op.padding[1]),
            dilation_height: saturate(self.op.dilation[0]),
            dilation_width: saturate(self.op.dilation[1]),
            output_width: self.positions[1] as u32,
            padding: 0,
        }
    }

    /// The range to bind for an input; that of an input without elements is not read.
    fn span(recorder: &mut Recorder<'_>, input: &Input<'_>, output: &Output) -> Result<Span> {
        match input.count() {
            0 => Ok(Span {
                slice: recorder.scratch(16)?,
                offset: 0,
            }),
            _ => Ok(input.span(output)),
        }
    }

    /// Records the tiled kernel.
    fn tiles(&self, recorder: &mut Recorder<'_>, output: &Output) -> Result<()> {
        let op = self.op;
        let groups = op.groups;
        let depth = self.inner * self.taps[0] * self.taps[1];
        let area = self.positions[0] * self.positions[1];
        // The weights as one matrix for each group.
        let dims = [groups, self.rows, depth];
        let (weights, left) = match self.reshaped(&self.weights, &dims)? {
            Some(weights) => (weights, Self::span(recorder, &weights, output)?),
            None => {
                let left = recorder.dense(&self.weights, output)?;
                let layout = crate::Layout::contiguous(Shape::new(op.name, &dims)?);
                let weights = Input {
                    layout,
                    ..self.weights
                };
                (weights, left)
            }
        };
        let right = Self::span(recorder, &self.images, output)?;
        let channels = self.images.layout.shape();
        let images = self
            .reshaped(
                &self.images,
                &[self.batch, groups, self.inner, channels[2], channels[3]],
            )?
            .expect("an axis can always be split");
        let epilogue = self.epilogue()?;
        let bias = match &epilogue.addend {
            Some(bias) => Some((*bias, Self::span(recorder, bias, output)?)),
            None => None,
        };
        let batch_axes = |input: &Input<'a>, matrix: usize| {
            let rank = input.layout.shape().rank();
            let layout = (rank - matrix..rank)
                .rev()
                .fold(input.layout, |l, axis| l.without(axis));
            Input { layout, ..*input }
        };
        let (a, b) = (batch_axes(&weights, 2), batch_axes(&images, 3));
        let c = bias.as_ref().map(|(bias, _)| batch_axes(bias, 2));
        let mut walked = vec![(&a, left.offset), (&b, right.offset)];
        if let (Some(c), Some((_, span))) = (&c, &bias) {
            walked.push((c, span.offset));
        }
        let batch = Shape::new(op.name, &[self.batch, groups])?;
        let (walk, views) = view::walk(&batch, &walked);
        let strides = |input: &Input<'a>| {
            let strides = input.layout.strides();
            MatrixStrides {
                outer: strides[1] as i64,
                inner: strides[2] as i64,
            }
        };
        let side = matmul::tile_side(self.rows, area, batch.count());
        let args = MatmulArgs {
            rows: self.rows as u32,
            cols: area as u32,
            depth: depth as u32,
            split_depth: depth as u32,
            tile_rows: self.rows.div_ceil(side) as u32,
            tile_cols: area.div_ceil(side) as u32,
            alpha: 1.0,
            beta: 1.0,
            out: MatrixStrides {
                outer: area as i64,
                inner: 1,
            },
            addend: MatrixStrides {
                outer: bias.as_ref().map_or(0, |(b, _)| strides(b).outer),
                inner: 0,
            },
            left: strides(&weights),
            batch: walk,
            left_view: views[0],
            right_view: views[1],
            addend_view: views.get(2).copied().unwrap_or(ViewStrides::zeroed()),
            ..MatmulArgs::zeroed()
        };
        let kernel = Kernel::new("conv", "conv_tile")
            .with_type("T", output.dtype)
            .define("TILE", side as i64);
        let variant = MatmulVariant {
            left: OperandLayout::of(args.left, &args.left_view),
            right: OperandLayout::default(),
            split: false,
            addend: bias.is_some(),
            residual: false,
            activation: EpilogueActivation::None,
            stepwise: false,
        };
        let kernel = variant.specialise(kernel);
        let bound = |span: &Span| -> BufferSlice { span.slice.clone() };
        recorder
            .launch_in_bands(kernel, matmul::cost(output.count(), depth))?
            .read(bound(&left))
            .read(bound(&right))
            .read(match &bias {
                Some((_, span)) => bound(span),
                None => matmul::placeholder(&left.slice),
            })
            .write(&output.slice)
            .value(&args)
            .value(&self.windows())
            .groups(
                recorder,
                (
                    (args.tile_rows * args.tile_cols) as usize,
                    1,
                    self.batch * groups,
                ),
                matmul::TILE_THREADS,
            );
        Ok(())
    }

    /// Records the direct kernel, with a thread for each result.
    fn direct(&self, recorder: &mut Recorder<'_>, output: &Output) -> Result<()> {
        let weights = Self::span(recorder, &self.weights, output)?;
        let images = Self::span(recorder, &self.images, output)?;
        let bias = match &self.bias {
            Some(bias) => Some((bias, Self::span(recorder, bias, output)?)),
            None => None,
        };
        let strides = self.weights.layout.strides();
        let args = DirectConvArgs {
            weights: [0, 1, 2, 3].map(|i| strides[i] as i64),
            image: self.images.layout.strides()[0] as i64,
            bias: bias
                .as_ref()
                .map_or(0, |(b, _)| b.layout.strides()[0] as i64),
            weights_offset: weights.offset as i64,
            images_offset: images.offset as i64,
            bias_offset: bias.as_ref().map_or(0, |(_, s)| s.offset as i64),
            outputs: self.outputs as u32,
            group: self.rows as u32,
            channels: self.inner as u32,
            padding: 0,
        };
        let kernel = Kernel::new("conv_direct", "conv_direct")
            .with_type("T", output.dtype)
            .flag("BIAS", bias.is_some());
        let depth = self.inner * self.taps[0] * self.taps[1];
        let bias = match bias {
            Some((_, span)) => span.slice,
            None => matmul::placeholder(&weights.slice),
        };
        recorder
            .launch_in_bands(kernel, matmul::cost(output.count(), depth))?
            .read(weights)
            .read(images)
            .read(bias)
            .write(&output.slice)
            .value(&args)
            .value(&self.windows())
            .threads(
                recorder,
                (
                    self.positions[1],
                    self.positions[0],
                    self.batch * self.outputs,
                ),
            );
        Ok(())
    }
}
