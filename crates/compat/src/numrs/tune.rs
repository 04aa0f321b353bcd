//! Validation and measurement of the backends.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use bessemer::dispatch_table::{BackendKind, DispatchRow, DispatchTable, OpClass};
use bessemer::{DType, Result, Tensor};

use super::{Array, ElementwiseKind, dot_with, elementwise_on, matmul_with, sum_on};

/// Input sizes, in elements, that [`tune`] measures.
pub const TUNED_SIZES: [usize; 4] = [1 << 10, 1 << 14, 1 << 17, 1 << 20];

/// Returns `true` if a backend has an implementation of its own for an op.
const fn implements(backend: BackendKind, op: OpClass) -> bool {
    match backend {
        BackendKind::Accelerate => matches!(op, OpClass::Matmul | OpClass::Dot),
        BackendKind::Mps => matches!(op, OpClass::Matmul),
        _ => true,
    }
}

/// Inputs of an op, of about `count` elements each.
fn inputs(op: OpClass, count: usize) -> [Array; 2] {
    let wave = |shift: f64| {
        let n = count as f64;
        Tensor::linspace(shift - 1.0, shift + n.ln(), count, DType::F32)
    };
    let (a, b) = (wave(0.0), wave(0.5));
    if op != OpClass::Matmul {
        return [a, b];
    }
    let n = count.isqrt();
    let square = |t: &Array| t.slice(0, 0, (n * n) as isize, 1).reshape([n, n]);
    [square(&a).contiguous(), square(&b).contiguous()]
}

fn run(op: OpClass, backend: BackendKind, [a, b]: &[Array; 2]) -> Result<Array> {
    match op {
        OpClass::Matmul => matmul_with(backend, a, b),
        OpClass::Dot => dot_with(backend, a, b),
        OpClass::Reduction => sum_on(&backend.device()?, a, None),
        _ => elementwise_on(&backend.device()?, a, b, ElementwiseKind::Mul),
    }
}

/// Returns `true` if a backend computes what plain loops compute, for each op.
pub(crate) fn computes_correctly(backend: BackendKind) -> bool {
    OpClass::ALL.into_iter().all(|op| {
        let inputs = inputs(op, 257);
        let values = |t: &Array| -> Result<Vec<f64>> {
            let all = t.to_vec::<f32>()?;
            Ok(all.into_iter().map(f64::from).collect())
        };
        let (Ok(a), Ok(b)) = (values(&inputs[0]), values(&inputs[1])) else {
            return false;
        };
        let products = a.iter().zip(&b).map(|(x, y)| x * y);
        let expected: Vec<f64> = match op {
            OpClass::Dot => vec![products.sum()],
            OpClass::Reduction => vec![a.iter().sum()],
            OpClass::Matmul => {
                let n = a.len().isqrt();
                let cell = |i: usize| (0..n).map(|k| a[i / n * n + k] * b[k * n + i % n]).sum();
                (0..n * n).map(cell).collect()
            }
            _ => products.collect(),
        };
        let found = run(op, backend, &inputs).and_then(|t| t.to_vec::<f32>());
        found.is_ok_and(|found| agrees(&found, &expected))
    })
}

/// Compares with a relative tolerance of `1e-5`.
fn agrees(found: &[f32], expected: &[f64]) -> bool {
    let near = |(&x, &y): (&f32, &f64)| (f64::from(x) - y).abs() <= 1e-5 * y.abs().max(1.0);
    found.len() == expected.len() && found.iter().zip(expected).all(near)
}

/// The backends that have passed validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackendValidation {
    /// The CPU.
    pub cpu_validated: bool,
    /// Apple's Accelerate.
    pub accelerate_validated: bool,
    /// The Metal GPU.
    pub metal_validated: bool,
    /// Metal Performance Shaders.
    pub mps_validated: bool,
}

impl BackendValidation {
    /// Validates every backend, once per process.
    pub fn get() -> Self {
        static FOUND: OnceLock<BackendValidation> = OnceLock::new();
        *FOUND.get_or_init(|| Self {
            cpu_validated: computes_correctly(BackendKind::Cpu),
            accelerate_validated: computes_correctly(BackendKind::Accelerate),
            metal_validated: computes_correctly(BackendKind::Metal),
            mps_validated: computes_correctly(BackendKind::Mps),
        })
    }

    fn has(self, backend: BackendKind) -> bool {
        match backend {
            BackendKind::Cpu => self.cpu_validated,
            BackendKind::Accelerate => self.accelerate_validated,
            BackendKind::Metal => self.metal_validated,
            BackendKind::Mps => self.mps_validated,
            _ => false,
        }
    }
}

/// The order of preference without a measurement: Accelerate for matmul and dot, then the GPU, then the CPU, whatever the
/// size. From which size on a backend pays off is for [`tune`] to measure.
fn preferred(validation: BackendValidation) -> DispatchTable {
    let rows = OpClass::ALL.map(|op| DispatchRow {
        op,
        min_elements: 0,
        backend: if validation.accelerate_validated && implements(BackendKind::Accelerate, op) {
            BackendKind::Accelerate
        } else if validation.metal_validated {
            BackendKind::Metal
        } else {
            BackendKind::Cpu
        },
    });
    DispatchTable::new(rows.into(), false)
}

/// The table that the functions of this module use: the one measured on this machine, or the order of preference.
pub fn dispatch_table() -> DispatchTable {
    let validation = BackendValidation::get();
    DispatchTable::measured()
        .filter(|t| t.rows().iter().all(|row| validation.has(row.backend)))
        .map_or_else(|| preferred(validation), |table| (*table).clone())
}

/// One measurement of [`tune`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Measurement {
    /// The op.
    pub op: OpClass,
    /// Elements of an input.
    pub count: usize,
    /// The backend.
    pub backend: BackendKind,
    /// Median time of a call, including the wait for its result.
    pub time: Duration,
}

/// Measures every validated backend on every op and several sizes, installs the table of the fastest, and saves it for
/// later processes. It applies to the functions of this module and to ops of tensors whose device is not chosen otherwise
/// (see [`DispatchTable`]). `report` is called after each measurement.
///
/// # Errors
/// Errors of the evaluation; [`bessemer::Error::File`], if the table cannot be saved (it is installed all the same).
pub fn tune(mut report: impl FnMut(&Measurement)) -> Result<DispatchTable> {
    let validation = BackendValidation::get();
    let mut table = Vec::new();
    for op in OpClass::ALL {
        let mut fastest = Vec::new();
        for count in TUNED_SIZES {
            let inputs = inputs(op, count);
            let mut best: Option<Measurement> = None;
            for backend in BackendKind::MEASURED {
                if !(validation.has(backend) && implements(backend, op)) {
                    continue;
                }
                let time = measure(backend, op, &inputs)?;
                let found = Measurement {
                    op,
                    count,
                    backend,
                    time,
                };
                report(&found);
                if best.is_none_or(|b| time < b.time) {
                    best = Some(found);
                }
            }
            let backend = best.map_or(BackendKind::Cpu, |b| b.backend);
            fastest.push((count, backend));
        }
        table.extend(rows(op, &fastest));
    }
    let table = DispatchTable::new(table, true);
    table.clone().install();
    table.save()?;
    Ok(table)
}

/// The rows of an op, from its fastest backend at ascending sizes: the first row starts at zero, each other one at the
/// size where its backend becomes the fastest.
fn rows(op: OpClass, fastest: &[(usize, BackendKind)]) -> Vec<DispatchRow> {
    let mut rows: Vec<DispatchRow> = Vec::new();
    for &(count, backend) in fastest {
        let min_elements = match rows.last() {
            None => 0,
            Some(last) if last.backend == backend => continue,
            Some(_) => count,
        };
        rows.push(DispatchRow {
            op,
            min_elements,
            backend,
        });
    }
    rows
}

/// Median time of a call.
fn measure(backend: BackendKind, op: OpClass, inputs: &[Array; 2]) -> Result<Duration> {
    let device = backend.device()?;
    let inputs = inputs.clone().map(|t| t.to(&device));
    for t in &inputs {
        t.eval()?;
    }
    let once = || -> Result<Duration> {
        let start = Instant::now();
        run(op, backend, &inputs)?;
        device.synchronize()?;
        Ok(start.elapsed())
    };
    median(once)
}

/// Median of up to 50 calls or 50 ms, after one warm-up call.
fn median(mut once: impl FnMut() -> Result<Duration>) -> Result<Duration> {
    once()?;
    let mut times = vec![once()?];
    while times.len() < 50 && times.iter().sum::<Duration>() < Duration::from_millis(50) {
        times.push(once()?);
    }
    times.sort();
    Ok(times[times.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_prefers_accelerate_for_matmul_and_dot_and_metal_for_the_rest() {
        use BackendKind::{Accelerate, Cpu, Metal};
        let none = BackendValidation {
            cpu_validated: true,
            accelerate_validated: false,
            metal_validated: false,
            mps_validated: false,
        };
        let metal = BackendValidation {
            metal_validated: true,
            mps_validated: true,
            ..none
        };
        let accelerate = BackendValidation {
            accelerate_validated: true,
            ..none
        };
        let both = BackendValidation {
            accelerate_validated: true,
            ..metal
        };
        // Choices in the order of `OpClass::ALL`.
        let cases = [
            (none, [Cpu, Cpu, Cpu, Cpu]),
            (metal, [Metal, Metal, Metal, Metal]),
            (accelerate, [Cpu, Accelerate, Accelerate, Cpu]),
            (both, [Metal, Accelerate, Accelerate, Metal]),
        ];
        for (validation, expected) in cases {
            let table = preferred(validation);
            assert!(!table.is_measured());
            for count in [0, 1, 1 << 10, 1 << 30] {
                let found = OpClass::ALL.map(|op| table.choose(op, count));
                assert_eq!(found, expected, "{validation:?} of {count}");
            }
        }
    }

    #[test]
    fn a_measured_table_has_a_row_wherever_the_fastest_backend_changes() {
        use BackendKind::{Accelerate, Cpu, Metal};
        let op = OpClass::Matmul;
        let sizes = [(16, Cpu), (64, Cpu), (256, Metal), (1024, Accelerate)];
        let rows = |sizes: &[(usize, BackendKind)]| {
            let rows = rows(op, sizes).into_iter();
            rows.map(|row| (row.op, row.min_elements, row.backend))
                .collect::<Vec<_>>()
        };
        let expected = [(op, 0, Cpu), (op, 256, Metal), (op, 1024, Accelerate)];
        assert_eq!(rows(&sizes), expected);
        assert_eq!(rows(&sizes[1..3]), expected[..2]);
        assert_eq!(rows(&sizes[2..3]), [(op, 0, Metal)]);
        let back = [(16, Cpu), (64, Metal), (256, Cpu)];
        let expected = [(op, 0, Cpu), (op, 64, Metal), (op, 256, Cpu)];
        assert_eq!(rows(&back), expected);
    }

    #[test]
    fn a_time_is_the_median_of_at_most_50_calls_and_50_ms() {
        let run = |times: &[u64]| {
            let mut calls = 0;
            let median = median(|| {
                calls += 1;
                // The last time repeats.
                let time = times.get(calls - 1).or(times.last());
                Ok(Duration::from_millis(*time.expect("not empty")))
            });
            (calls, median.expect("no call fails").as_millis())
        };
        assert_eq!(run(&[9, 0]), (51, 0), "the warm-up call does not count");
        assert_eq!(run(&[1, 30, 10, 20]), (4, 20));
        assert_eq!(run(&[1, 25, 25, 99]), (3, 25));
        assert_eq!(run(&[1, 60, 99]), (2, 60));
    }

    #[test]
    fn results_are_compared_with_a_relative_tolerance() {
        assert!(agrees(
            &[1.0, -200.0, 0.0],
            &[1.000_009, -200.001, 0.000_009]
        ));
        assert!(agrees(&[], &[]));
        for expected in [1.000_02, 0.999_98, -1.0, f64::NAN] {
            assert!(!agrees(&[1.0], &[expected]), "{expected}");
        }
        assert!(!agrees(&[200.0], &[200.01]));
        assert!(!agrees(&[0.0], &[0.000_02]));
        assert!(!agrees(&[1.0], &[1.0, 2.0]) && !agrees(&[1.0, 2.0], &[1.0]));
        assert!(!agrees(&[1.0, 2.0], &[1.0, 3.0]));
    }

    #[test]
    fn the_cpu_passes_validation() {
        assert!(computes_correctly(BackendKind::Cpu));
        assert!(
            !computes_correctly(BackendKind::Metal),
            "there is no Metal GPU"
        );
    }
}
