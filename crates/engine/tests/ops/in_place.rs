//! Ops that write row by row over an input that nothing else reads.

use bessemer::{DType, Device, RopeOptions, RopeStyle, Tensor, explain};
use bessemer_testing::case::{check, covering, functions_vary};

use crate::data::{FLOATS, numbers, values};

#[derive(Clone, Copy, Debug)]
enum RowOp {
    Softmax {
        axis: isize,
        log: bool,
    },
    LayerNorm {
        weight: bool,
        bias: bool,
    },
    RmsNorm,
    Rope {
        style: RopeStyle,
        has_positions: bool,
    },
}

const OPS: [RowOp; 12] = [
    RowOp::Softmax {
        axis: -1,
        log: false,
    },
    RowOp::Softmax {
        axis: -1,
        log: true,
    },
    RowOp::Softmax {
        axis: 1,
        log: false,
    },
    RowOp::Softmax { axis: 1, log: true },
    RowOp::Softmax {
        axis: 0,
        log: false,
    },
    RowOp::LayerNorm {
        weight: false,
        bias: false,
    },
    RowOp::LayerNorm {
        weight: true,
        bias: false,
    },
    RowOp::LayerNorm {
        weight: true,
        bias: true,
    },
    RowOp::RmsNorm,
    RowOp::Rope {
        style: RopeStyle::HalfSplit,
        has_positions: false,
    },
    RowOp::Rope {
        style: RopeStyle::Interleaved,
        has_positions: false,
    },
    RowOp::Rope {
        style: RopeStyle::HalfSplit,
        has_positions: true,
    },
];

impl RowOp {
    fn of(self, x: &Tensor) -> Tensor {
        let shape = x.shape();
        let (seq, len) = (shape[1], shape[2]);
        let parameter = |seed| Tensor::from_vec(numbers(seed, len), [len]).cast(x.dtype());
        match self {
            Self::Softmax { axis, log: false } => x.softmax(axis),
            Self::Softmax { axis, log: true } => x.log_softmax(axis),
            Self::LayerNorm { weight, bias } => {
                let weight = weight.then(|| parameter(1));
                let bias = bias.then(|| parameter(2));
                x.layer_norm(weight.as_ref(), bias.as_ref(), 1e-5)
            }
            Self::RmsNorm => x.rms_norm(&parameter(3), 1e-5),
            Self::Rope {
                style,
                has_positions,
            } => {
                // The elements past the rotated ones are copied.
                let dims = (len / 2).next_multiple_of(2).min(len);
                let options = RopeOptions {
                    style,
                    ..RopeOptions::default()
                };
                let table = options.table(dims).unwrap();
                if has_positions {
                    x.rope_with(&table, Tensor::arange(0, 3 * seq, 3, DType::I64))
                } else {
                    x.rope_with(&table, 7)
                }
            }
        }
    }
}

/// A tensor that is computed and that nothing else needs: doubling is exact, so that it has the same bits every time.
fn doubled(shape: [usize; 3], dtype: DType) -> Tensor {
    let count = shape.iter().product();
    Tensor::from_vec(numbers(count as u64, count), shape).cast(dtype) * 2.0
}

/// Whether the last step of a graph writes over an input.
fn is_in_place(y: &Tensor) -> bool {
    explain(&[y]).unwrap().steps.last().unwrap().in_place
}

fn bits(y: &Tensor) -> Vec<u64> {
    values(y).into_iter().map(f64::to_bits).collect()
}

#[test]
fn a_dying_input_is_written_over_with_the_same_bits() {
    // Shorter and longer than a SIMD-group, a threadgroup and a block of the CPU, of odd and even lengths.
    let lengths = covering(&[2, 7, 33, 64, 127, 130, 516, 1025, 4100, 5003]);
    let case = (covering(&FLOATS), lengths, 1_usize..12);
    check("in_place", 20, case, |&(dtype, len, seq)| {
        // Smaller results than that have memory of their own.
        let shape = [1024_usize.div_ceil(len * seq) + 1, seq, len];
        for op in OPS {
            let dying = op.of(&doubled(shape, dtype));
            let x = doubled(shape, dtype);
            x.eval().unwrap();
            let living = op.of(&x);
            let (in_place, elsewhere) = (is_in_place(&dying), is_in_place(&living));
            if !in_place || elsewhere {
                return Err(format!("{op:?}: in place {in_place}, living {elsewhere}"));
            }
            // In fuzz mode, functions are off by another error in every launch.
            dying.eval().unwrap();
            if !functions_vary() && bits(&dying) != bits(&living) {
                return Err(format!(
                    "{op:?} of {dtype} {shape:?} has other bits in place"
                ));
            }
            if bits(&x) != bits(&doubled(shape, dtype)) {
                return Err(format!(
                    "{op:?} of {dtype} {shape:?} changed a living input"
                ));
            }
        }
        Ok(())
    });
}

#[test]
fn an_input_that_lies_otherwise_or_has_another_reader_is_kept() {
    let shape = [4, 16, 64];
    for op in OPS {
        let transposed = op.of(&doubled(shape, DType::F32).transpose(0, 1));
        assert!(!is_in_place(&transposed), "{op:?}");
        let reversed = op.of(&doubled(shape, DType::F32).flip(&[0]));
        assert!(!is_in_place(&reversed), "{op:?}");
        let x = doubled(shape, DType::F32);
        let total = x.sum(&[], false);
        let y = op.of(&x);
        drop(x);
        let plan = explain(&[&y, &total]).unwrap();
        let position = |is: &dyn Fn(&bessemer::PlannedStep) -> bool| plan.steps.iter().position(is);
        let sum = position(&|s| s.ops == ["sum"]).unwrap();
        let overwrites = position(&|s| s.in_place && *s.shape == shape && s.ops != ["mul"]);
        assert!(overwrites.is_none_or(|i| i > sum), "{op:?}: {plan}");
        bessemer::eval(&[&y, &total]).unwrap();
        let expected = doubled(shape, DType::F32).sum(&[], false);
        assert_eq!(bits(&total), bits(&expected), "{op:?}");
    }
    // The weights are read by every row.
    let x = doubled([1, 1, 2048], DType::F32).reshape([2048]);
    let squares = x.rms_norm(&x, 0.0);
    assert!(!is_in_place(&squares));
}

#[test]
fn the_cpu_copies_no_row_longer_than_its_cache() {
    Device::cpu().scope(|| {
        let rows = |len| doubled([1, 1, len], DType::F32).softmax(-1);
        assert!(is_in_place(&rows(64 << 10)));
        assert!(!is_in_place(&rows((64 << 10) + 1)));
    });
}
