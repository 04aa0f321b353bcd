//! A Metal device against the CPU of the same machine, on what the documents of other Metal backends put numbers on.
//!
//! Each number that they claim is measured by one case here; the command answers on whatever device it runs. On the
//! software device it shows that it works, and nothing about a GPU.

use crate::measure::{Timing, Work, interleaved};
use crate::report::{Row, Run, duration};
use anyhow::{Context as _, Result};
use bessemer::random::{self, Key};
use bessemer::{DType, Device, Tensor};
use clap::{Args, ValueEnum};
use std::hint::black_box;

/// Ops in a row for the time of a launch among others.
const LAUNCHES: usize = 100;

/// What `bessemer-bench metal` takes.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The device that is measured against the CPU.
    #[arg(long, value_enum, default_value_t = Target::Metal)]
    device: Target,
    /// Small sizes: whether everything runs, in seconds.
    #[arg(long)]
    quick: bool,
    /// Also write the results as JSON.
    #[arg(long)]
    pub(crate) json: Option<std::path::PathBuf>,
    /// Also write the results as Markdown.
    #[arg(long)]
    pub(crate) markdown: Option<std::path::PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Target {
    /// The Apple GPU.
    Metal,
    /// The software Metal device.
    Soft,
}

/// What is computed, on one device or the other.
type Compute = fn(&[Tensor]) -> Tensor;

struct Case {
    /// The promises of docs/systems.md whose number it measures.
    promise: &'static str,
    name: String,
    shapes: Vec<Vec<usize>>,
    dtype: DType,
    compute: Compute,
    /// How many times the CPU's speed the documents promise.
    goal: f64,
    /// What the absolute rate is called, and how much of it one run is.
    rate: (&'static str, f64),
}

/// Compares every case and measures what is no ratio.
pub(crate) fn run(options: &Options, rounds: usize, command: String) -> Result<Run> {
    let device = match options.device {
        Target::Metal => Device::metal()
            .context("nothing to measure; `--device soft` measures the software device")?,
        Target::Soft => Device::software()?,
    };
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    for case in cases(options.quick) {
        let (ours, cpu) = case.measure(&device, rounds)?;
        let (unit, amount) = case.rate;
        notes.push(format!(
            "{} {}: {:.1} {unit}",
            case.promise,
            case.name,
            amount / ours.median
        ));
        rows.push(Row {
            case: format!("{} {}", case.promise, case.name),
            ours,
            peer: Some(("CPU".to_owned(), cpu)),
            goal: case.goal,
        });
    }
    notes.extend(launches(&device, rounds)?);
    Ok(Run {
        title: "A Metal device against the CPU (A-30)".to_owned(),
        command,
        setting: vec![
            ("device".to_owned(), device.name().to_owned()),
            ("rounds".to_owned(), rounds.to_string()),
        ],
        rows,
        notes,
    })
}

fn cases(quick: bool) -> Vec<Case> {
    let f32 = DType::F32;
    let mut cases = Vec::new();
    for count in if quick {
        vec![1_000, 10_000]
    } else {
        vec![10_000, 100_000, 1_000_000, 16_000_000]
    } {
        cases.push(Case {
            promise: "C-13, C-17",
            name: format!("add f32 of {count}"),
            shapes: vec![vec![count]; 2],
            dtype: f32,
            compute: |x| &x[0] + &x[1],
            goal: 2.0,
            rate: ("M elements/s", count as f64 / 1e6),
        });
    }
    for side in if quick {
        vec![64]
    } else {
        vec![128, 256, 512, 1024, 2048]
    } {
        cases.push(Case {
            promise: "C-14, C-16",
            name: format!("matmul f32 {side}³"),
            shapes: vec![vec![side, side]; 2],
            dtype: f32,
            compute: |x| x[0].matmul(&x[1]),
            goal: 1.0,
            rate: ("Gop/s", 2.0 * (side * side * side) as f64 / 1e9),
        });
    }
    let width = if quick { 256 } else { 4096 };
    let weights = (width * width) as f64;
    cases.push(Case {
        promise: "B-29",
        name: format!("product of a {width}×{width} f16 matrix with a vector"),
        shapes: vec![vec![width, width], vec![width]],
        dtype: DType::F16,
        compute: |x| x[0].matvec(&x[1]),
        goal: 10.0,
        rate: ("GB/s", weights * 2.0 / 1e9),
    });
    cases.push(Case {
        promise: "B-29",
        name: format!("softmax of {width} rows of {width}"),
        shapes: vec![vec![width, width]],
        dtype: f32,
        compute: |x| x[0].softmax(-1),
        goal: 10.0,
        rate: ("GB/s", weights * 8.0 / 1e9),
    });
    let count = if quick { 1 << 16 } else { 1 << 26 };
    cases.push(Case {
        promise: "B-30",
        name: format!("negation of {count} f32, read and written once"),
        shapes: vec![vec![count]],
        dtype: f32,
        compute: |x| -&x[0],
        goal: 1.0,
        rate: ("GB/s", count as f64 * 8.0 / 1e9),
    });
    cases
}

impl Case {
    /// Times on the device and on the CPU, of results that are there when the clock is read.
    fn measure(&self, device: &Device, rounds: usize) -> Result<(Timing, Timing)> {
        let cpu = Device::cpu();
        let keys = Key::new(1).split(self.shapes.len());
        let there: Vec<Tensor> = cpu.scope(|| {
            let shapes = self.shapes.iter().zip(keys);
            shapes
                .map(|(shape, key)| random::uniform(&key, shape.as_slice(), -1.0, 1.0, self.dtype))
                .collect()
        });
        let here: Vec<Tensor> = there.iter().map(|x| x.to(device)).collect();
        for x in here.iter().chain(&there) {
            x.eval()?;
        }
        let once = |x: &[Tensor], on: &Device| -> Result<()> {
            let y = on.scope(|| (self.compute)(x));
            y.eval()?;
            on.synchronize()?;
            black_box(&y);
            Ok(())
        };
        let mut contestants: [Work<'_>; 2] = [
            Box::new(|| once(&here, device)),
            Box::new(|| once(&there, &cpu)),
        ];
        let mut times = interleaved(rounds, &mut contestants)?.into_iter();
        times
            .next()
            .zip(times.next())
            .context("two contestants have two times")
    }
}

/// What a launch costs: alone, waited for, and among others that follow one another.
fn launches(device: &Device, rounds: usize) -> Result<Vec<String>> {
    let one = device.scope(|| Tensor::full(8, 1.0_f32, DType::F32));
    one.eval()?;
    let once = |count: usize| -> Result<()> {
        let mut x = one.clone();
        for _ in 0..count {
            x = device.scope(|| -&x);
            // Or they would be joined.
            x.eval()?;
        }
        device.synchronize()?;
        Ok(())
    };
    let mut contestants: [Work<'_>; 2] = [Box::new(|| once(1)), Box::new(|| once(LAUNCHES))];
    let times = interleaved(rounds, &mut contestants)?;
    Ok(vec![
        format!(
            "C-15 an op of 8 elements, waited for: {} (the documents say 50 to 100 µs)",
            duration(times[0].median)
        ),
        format!(
            "C-15 one of {LAUNCHES} such ops in a row: {}",
            duration(times[1].median / LAUNCHES as f64)
        ),
    ])
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_the_documents_is_measured() -> Result<()> {
        let options = Options {
            device: Target::Soft,
            quick: true,
            json: None,
            markdown: None,
        };
        let run = run(&options, 1, "test".to_owned())?;
        for row in &run.rows {
            let ratio = row.ratio().context("the CPU is always there")?;
            assert!(ratio.is_finite() && ratio > 0.0, "{}: {ratio}", row.case);
        }
        let page = run.markdown();
        for promise in [
            "A-30", "B-29", "B-30", "C-13", "C-14", "C-15", "C-16", "C-17",
        ] {
            assert!(page.contains(promise), "{promise} is not in\n{page}");
        }
        Ok(())
    }
}
