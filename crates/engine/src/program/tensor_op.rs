//! Instructions on whole buffers: what their sizes must satisfy, and what they compute, in plain loops in `f64`.

use super::error::FaultKind;
use super::instruction::Instruction;
use super::operand::Register;
use super::value;

/// The buffers of a tensor instruction: registers with handles and numbers of elements.
pub(super) struct TensorBuffers {
    /// Buffers that are read, in the order of the operands.
    pub(super) inputs: Vec<(Register, usize)>,
    /// The buffer that is written.
    pub(super) output: (Register, usize),
}

/// The buffers of an instruction. `None` if it is not a tensor instruction, an error if its sizes are invalid.
pub(super) fn buffers(instruction: &Instruction) -> Option<Result<TensorBuffers, String>> {
    use Instruction as I;
    let buffers = |inputs: &[(Register, Option<usize>)], output: (Register, Option<usize>)| {
        let sized = |(register, count): (Register, Option<usize>)| {
            count
                .filter(|&n| n <= MAX_ELEMENTS)
                .map(|n| (register, n))
                .ok_or_else(|| format!("a buffer has more than {MAX_ELEMENTS} elements"))
        };
        Ok(TensorBuffers {
            inputs: inputs.iter().map(|&b| sized(b)).collect::<Result<_, _>>()?,
            output: sized(output)?,
        })
    };
    Some(match *instruction {
        I::LayerNorm {
            input,
            gamma,
            beta,
            output,
            num_positions,
            hidden_dim,
            ..
        } => {
            let all = elements(&[num_positions, hidden_dim]);
            let row = elements(&[hidden_dim]);
            buffers(&[(input, all), (gamma, row), (beta, row)], (output, all))
        }
        I::GroupNorm {
            input,
            gamma,
            beta,
            output,
            batch_size,
            num_channels,
            height,
            width,
            num_groups,
            ..
        } => {
            if num_groups == 0 || num_channels % num_groups != 0 {
                return Some(Err(format!(
                    "{num_channels} channels cannot be split into {num_groups} groups"
                )));
            }
            let all = elements(&[batch_size, num_channels, height, width]);
            let channels = elements(&[num_channels]);
            buffers(
                &[(input, all), (gamma, channels), (beta, channels)],
                (output, all),
            )
        }
        I::BatchNorm {
            input,
            scale,
            bias,
            mean,
            variance,
            output,
            batch_size,
            num_channels,
            height,
            width,
            ..
        } => {
            let all = elements(&[batch_size, num_channels, height, width]);
            let channels = elements(&[num_channels]);
            let statistics = [scale, bias, mean, variance].map(|r| (r, channels));
            let mut inputs = vec![(input, all)];
            inputs.extend(statistics);
            buffers(&inputs, (output, all))
        }
        I::Conv2d { .. } => match Conv::of(instruction) {
            Err(reason) => Err(reason),
            Ok(conv) => conv.buffers(buffers),
        },
        I::NearestUpsample2d {
            input,
            output,
            batch_size,
            num_channels,
            in_height,
            in_width,
            scale_factor,
            ..
        } => {
            if scale_factor == 0 {
                return Some(Err("the scale factor is 0".to_owned()));
            }
            let from = elements(&[batch_size, num_channels, in_height, in_width]);
            let to = elements(&[
                batch_size,
                num_channels,
                in_height,
                scale_factor,
                in_width,
                scale_factor,
            ]);
            buffers(&[(input, from)], (output, to))
        }
        I::Gemm {
            matrix_a,
            matrix_b,
            matrix_c,
            m,
            k,
            n,
            ..
        } => buffers(
            &[(matrix_a, elements(&[m, k])), (matrix_b, elements(&[k, n]))],
            (matrix_c, elements(&[m, n])),
        ),
        I::ParallelMap {
            input,
            output,
            count,
            ..
        } => {
            let count = elements(&[count]);
            buffers(&[(input, count)], (output, count))
        }
        I::ParallelMapBinary {
            input_a,
            input_b,
            output,
            count,
            ..
        } => {
            let count = elements(&[count]);
            buffers(&[(input_a, count), (input_b, count)], (output, count))
        }
        I::ParallelReduce {
            input,
            output,
            count,
            ..
        } => buffers(&[(input, elements(&[count]))], (output, Some(1))),
        _ => return None,
    })
}

/// Maximum number of elements of a buffer of a tensor instruction.
const MAX_ELEMENTS: usize = 1 << 40;

fn elements(dims: &[u32]) -> Option<usize> {
    dims.iter()
        .try_fold(1_usize, |n, &dim| n.checked_mul(dim as usize))
}

/// Checks the sizes of a tensor instruction.
pub(super) fn check(instruction: &Instruction) -> Result<(), String> {
    buffers(instruction).map_or(Ok(()), |buffers| buffers.map(|_| ()))
}

/// Sizes of a convolution.
struct Conv {
    registers: [Register; 4],
    has_bias: bool,
    batch: usize,
    group: usize,
    /// Channels, height and width of the input and of the output.
    input: [usize; 3],
    output: [usize; 3],
    kernel: [usize; 2],
    stride: [usize; 2],
    /// Above and left; what is below and right only makes the output larger.
    padding: [usize; 2],
    dilation: [usize; 2],
}

impl Conv {
    fn of(instruction: &Instruction) -> Result<Self, String> {
        let Instruction::Conv2d {
            input,
            weights,
            bias,
            output,
            batch_size,
            in_channels,
            in_height,
            in_width,
            out_channels,
            kernel_h,
            kernel_w,
            stride_h,
            stride_w,
            pad_top,
            pad_left,
            pad_bottom,
            pad_right,
            dilation_h,
            dilation_w,
            group,
            has_bias,
            ..
        } = *instruction
        else {
            return Err("not a convolution".to_owned());
        };
        for (name, value) in [
            ("stride", stride_h.min(stride_w)),
            ("dilation", dilation_h.min(dilation_w)),
            ("kernel", kernel_h.min(kernel_w)),
            ("group", group),
        ] {
            if value == 0 {
                return Err(format!("the {name} is 0"));
            }
        }
        if in_channels % group != 0 || out_channels % group != 0 {
            return Err(format!(
                "{in_channels} and {out_channels} channels cannot be split into {group} groups"
            ));
        }
        // Sizes are below 2^32, so nothing overflows in u64.
        let output_size = |size: u32, pads: [u32; 2], kernel: u32, dilation: u32, stride: u32| {
            let padded = u64::from(size) + u64::from(pads[0]) + u64::from(pads[1]);
            let covered = u64::from(dilation) * u64::from(kernel - 1) + 1;
            padded
                .checked_sub(covered)
                .map(|rest| (rest / u64::from(stride) + 1) as usize)
                .ok_or_else(|| format!("the kernel covers {covered} elements of {padded}"))
        };
        Ok(Self {
            registers: [input, weights, bias, output],
            has_bias,
            batch: batch_size as usize,
            group: group as usize,
            input: [in_channels, in_height, in_width].map(|n| n as usize),
            output: [
                out_channels as usize,
                output_size(
                    in_height,
                    [pad_top, pad_bottom],
                    kernel_h,
                    dilation_h,
                    stride_h,
                )?,
                output_size(
                    in_width,
                    [pad_left, pad_right],
                    kernel_w,
                    dilation_w,
                    stride_w,
                )?,
            ],
            kernel: [kernel_h, kernel_w].map(|n| n as usize),
            stride: [stride_h, stride_w].map(|n| n as usize),
            padding: [pad_top, pad_left].map(|n| n as usize),
            dilation: [dilation_h, dilation_w].map(|n| n as usize),
        })
    }

    fn buffers(
        &self,
        buffers: impl Fn(
            &[(Register, Option<usize>)],
            (Register, Option<usize>),
        ) -> Result<TensorBuffers, String>,
    ) -> Result<TensorBuffers, String> {
        let product = |dims: &[usize]| dims.iter().try_fold(1_usize, |n, &dim| n.checked_mul(dim));
        let [input, weights, bias, output] = self.registers;
        let [channels, ..] = self.output;
        let mut inputs = vec![
            (
                input,
                product(&[self.batch, self.input[0], self.input[1], self.input[2]]),
            ),
            (
                weights,
                product(&[
                    channels,
                    self.input[0] / self.group,
                    self.kernel[0],
                    self.kernel[1],
                ]),
            ),
        ];
        if self.has_bias {
            inputs.push((bias, Some(channels)));
        }
        let [_, height, width] = self.output;
        buffers(
            &inputs,
            (output, product(&[self.batch, channels, height, width])),
        )
    }

    /// The element of the output at batch, channel, row and column.
    fn at(&self, inputs: &[Vec<f64>], [b, c, y, x]: [usize; 4]) -> f64 {
        let [in_channels, height, width] = self.input;
        let per_group = in_channels / self.group;
        let first = c / (self.output[0] / self.group) * per_group;
        let mut sum = if self.has_bias { inputs[2][c] } else { 0.0 };
        for i in 0..per_group {
            for ky in 0..self.kernel[0] {
                for kx in 0..self.kernel[1] {
                    let row =
                        (y * self.stride[0] + ky * self.dilation[0]).checked_sub(self.padding[0]);
                    let column =
                        (x * self.stride[1] + kx * self.dilation[1]).checked_sub(self.padding[1]);
                    let (Some(row), Some(column)) = (row, column) else {
                        continue;
                    };
                    if row < height && column < width {
                        let weight =
                            ((c * per_group + i) * self.kernel[0] + ky) * self.kernel[1] + kx;
                        let element =
                            ((b * in_channels + first + i) * height + row) * width + column;
                        sum += inputs[0][element] * inputs[1][weight];
                    }
                }
            }
        }
        sum
    }
}

/// Computes a tensor instruction: inputs in the order of [`buffers`], the result rounded once.
pub(super) fn compute(
    instruction: &Instruction,
    inputs: &[Vec<f64>],
) -> Result<Vec<f32>, FaultKind> {
    use Instruction as I;
    let result: Vec<f64> = match *instruction {
        I::LayerNorm {
            hidden_dim, eps, ..
        } => {
            let row = hidden_dim as usize;
            let normalised = normalise(&inputs[0], row, eps);
            affine(&normalised, |i| i % row, &inputs[1], &inputs[2])
        }
        I::GroupNorm {
            num_channels,
            height,
            width,
            num_groups,
            eps,
            ..
        } => {
            let plane = height as usize * width as usize;
            let channels = num_channels as usize;
            let row = channels / num_groups as usize * plane;
            let normalised = normalise(&inputs[0], row, eps);
            affine(
                &normalised,
                |i| i / plane % channels,
                &inputs[1],
                &inputs[2],
            )
        }
        I::BatchNorm {
            num_channels,
            height,
            width,
            eps,
            ..
        } => {
            let plane = height as usize * width as usize;
            let channel = |i: usize| i / plane % num_channels as usize;
            let all = inputs[0].iter().enumerate();
            all.map(|(i, x)| {
                let c = channel(i);
                let [scale, bias, mean, variance] = [1, 2, 3, 4].map(|n| inputs[n][c]);
                (x - mean) / (variance + f64::from(eps)).sqrt() * scale + bias
            })
            .collect()
        }
        I::Conv2d { .. } => {
            let Ok(conv) = Conv::of(instruction) else {
                return Ok(Vec::new());
            };
            let [channels, height, width] = conv.output;
            let mut result = Vec::new();
            for b in 0..conv.batch {
                for c in 0..channels {
                    for y in 0..height {
                        result.extend((0..width).map(|x| conv.at(inputs, [b, c, y, x])));
                    }
                }
            }
            result
        }
        I::NearestUpsample2d {
            batch_size,
            num_channels,
            in_height,
            in_width,
            scale_factor,
            ..
        } => {
            let [height, width, scale] = [in_height, in_width, scale_factor].map(|n| n as usize);
            let planes = batch_size as usize * num_channels as usize;
            let mut result = Vec::new();
            for plane in 0..planes {
                for y in 0..height * scale {
                    let row = (plane * height + y / scale) * width;
                    result.extend((0..width * scale).map(|x| inputs[0][row + x / scale]));
                }
            }
            result
        }
        I::Gemm { m, k, n, .. } => {
            let [m, k, n] = [m, k, n].map(|n| n as usize);
            let (a, b) = (&inputs[0], &inputs[1]);
            let element = |i: usize| {
                let (row, column) = (i / n, i % n);
                (0..k).map(|l| a[row * k + l] * b[l * n + column]).sum()
            };
            (0..m * n).map(element).collect()
        }
        I::ParallelMap { operation, .. } => inputs[0]
            .iter()
            .map(|&x| value::map(operation, x))
            .collect(),
        I::ParallelMapBinary { operation, .. } => {
            let pairs = inputs[0].iter().zip(&inputs[1]);
            pairs
                .map(|(&a, &b)| value::map_binary(operation, a, b))
                .collect()
        }
        I::ParallelReduce { operation, .. } => {
            vec![value::reduce(operation, inputs[0].iter().copied())]
        }
        _ => Vec::new(),
    };
    Ok(result.into_iter().map(|x| x as f32).collect())
}

/// Rows with mean 0 and variance 1.
fn normalise(x: &[f64], row: usize, eps: f32) -> Vec<f64> {
    let mut result = Vec::with_capacity(x.len());
    for row in x.chunks(row.max(1)) {
        let mean = row.iter().sum::<f64>() / row.len() as f64;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / row.len() as f64;
        let scale = 1.0 / (variance + f64::from(eps)).sqrt();
        result.extend(row.iter().map(|x| (x - mean) * scale));
    }
    result
}

fn affine(x: &[f64], parameter: impl Fn(usize) -> usize, scale: &[f64], shift: &[f64]) -> Vec<f64> {
    let all = x.iter().enumerate();
    all.map(|(i, x)| x * scale[parameter(i)] + shift[parameter(i)])
        .collect()
}
