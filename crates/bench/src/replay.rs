//! Replays of compiled functions against evaluations of the same functions: host time per launch on the recording
//! device, which runs nothing, and whole calls of small functions on the CPU.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use bessemer::{Compiled, DType, Device, Tensor, compile, eval};
use bessemer_hal::{Family, noop};
use clap::Args;

use crate::measure::{Work, interleaved};
use crate::report::{Comparison, Run, duration};

/// Options of the replay suite.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Also write the results as JSON.
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// Also write the results as Markdown.
    #[arg(long)]
    pub(crate) markdown: Option<PathBuf>,
}

/// Calls per round.
const CALLS: usize = 20;
/// Layers of the network.
const LAYERS: usize = 16;
/// Width of the network's layers.
const WIDTH: usize = 64;
/// Maximum host time of a replayed launch in seconds.
const MAX_LAUNCH_SECONDS: f64 = 1e-6;

type Function = Box<dyn Fn(&[Tensor]) -> Vec<Tensor> + Send + Sync>;

struct Case {
    name: &'static str,
    device: Device,
    function: Function,
    arguments: Vec<Tensor>,
    /// The speed-up of a call that is to be reached.
    goal: f64,
}

/// An evaluated tensor on the default device.
fn data(shape: &[usize]) -> Result<Tensor> {
    let x = Tensor::full(shape, 0.01_f32, DType::F32).contiguous() * 1.5;
    x.eval()?;
    Ok(x)
}

/// A layer of four launches.
fn layer(x: &Tensor, norm: &Tensor, up: &Tensor, down: &Tensor) -> Tensor {
    let y = x.rms_norm(norm, 1e-5);
    let gate = y.matmul(up).softmax(-1);
    x + gate.matmul(down)
}

fn cases() -> Result<Vec<Case>> {
    let recording = Device::on(noop::device(Family::Apple7));
    let weights = || -> Result<Vec<Tensor>> {
        let mut all = Vec::new();
        for _ in 0..LAYERS {
            all.extend([
                data(&[WIDTH])?,
                data(&[WIDTH, WIDTH])?,
                data(&[WIDTH, WIDTH])?,
            ]);
        }
        Ok(all)
    };
    let network = |x: &Tensor, weights: &[Tensor]| {
        let mut x = x.clone();
        for w in weights.chunks_exact(3) {
            x = layer(&x, &w[0], &w[1], &w[2]);
        }
        vec![x]
    };
    let (captured, passed, x) =
        recording.scope(|| anyhow::Ok((weights()?, weights()?, data(&[8, WIDTH])?)))?;
    let mut arguments = vec![x.clone()];
    arguments.extend(passed);
    let small = |n: usize| data(&[n]);
    Ok(vec![
        Case {
            name: "recording device: network of 16 layers, weights captured",
            device: recording.clone(),
            function: Box::new(move |t| network(&t[0], &captured)),
            arguments: vec![x],
            goal: 3.0,
        },
        Case {
            name: "recording device: network of 16 layers, weights passed",
            device: recording,
            function: Box::new(move |t| network(&t[0], &t[1..])),
            arguments,
            goal: 2.0,
        },
        Case {
            name: "CPU: a chain of eight elementwise ops, 1K elements",
            device: Device::cpu(),
            function: Box::new(|t| {
                let (x, y) = (&t[0], &t[1]);
                vec![((((x * y + 1.0) * 0.5 - y).abs() + 0.25).sqrt() * x).maximum(0.1)]
            }),
            arguments: vec![small(1000)?, small(1000)?],
            goal: 1.2,
        },
        Case {
            name: "CPU: layer of width 64, 8 rows",
            device: Device::cpu(),
            function: Box::new(|t| vec![layer(&t[0], &t[1], &t[2], &t[3])]),
            arguments: vec![
                data(&[8, WIDTH])?,
                data(&[WIDTH])?,
                data(&[WIDTH, WIDTH])?,
                data(&[WIDTH, WIDTH])?,
            ],
            goal: 1.1,
        },
    ])
}

/// Compares every case.
pub(crate) fn run(rounds: usize, command: String) -> Result<Run> {
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    for case in Device::cpu().scope(cases)? {
        let Case {
            name,
            device,
            function,
            arguments,
            goal,
        } = case;
        let refs: Vec<_> = arguments.iter().collect();
        let compiled: Compiled<'_> = compile(&function);
        let finish = |outputs: Vec<Tensor>| -> Result<()> {
            drop(outputs);
            device.synchronize()?;
            if let Some(hal) = device.hal() {
                noop::clear(hal);
            }
            Ok(())
        };
        let mut contestants: [Work<'_>; 2] = [
            Box::new(|| {
                for _ in 0..CALLS {
                    finish(device.scope(|| compiled.call(&refs))?)?;
                }
                Ok(())
            }),
            Box::new(|| {
                for _ in 0..CALLS {
                    let outputs = device.scope(|| function(&arguments));
                    eval(&outputs.iter().collect::<Vec<_>>())?;
                    finish(outputs)?;
                }
                Ok(())
            }),
        ];
        let mut times = interleaved(rounds, &mut contestants)?.into_iter();
        drop(contestants);
        let (Some(ours), Some(evaluated)) = (times.next(), times.next()) else {
            continue;
        };
        let reports = compiled.explain();
        ensure!(
            reports.iter().all(|r| r.not_replayed.is_none()),
            "{name} is not replayed"
        );
        let launches = reports.first().map_or(1, |r| r.launches.max(1));
        let per_launch = |median: f64| median / (CALLS * launches) as f64;
        let replayed = per_launch(ours.median);
        let met = if device.is_cpu() {
            ""
        } else if replayed <= MAX_LAUNCH_SECONDS {
            " (goal: 1 µs, met)"
        } else {
            " (goal: 1 µs, **not met**)"
        };
        notes.push(format!(
            "{name}: {launches} launches, {} each replayed{met}, {} each evaluated",
            duration(replayed),
            duration(per_launch(evaluated.median))
        ));
        rows.push(Comparison {
            case: name.to_owned(),
            ours,
            peer: Some(("evaluation".to_owned(), evaluated)),
            goal,
        });
    }
    Ok(Run {
        title: "Replays of compiled functions against evaluation".to_owned(),
        command,
        setting: vec![
            ("rounds".to_owned(), rounds.to_string()),
            ("calls in a round".to_owned(), CALLS.to_string()),
        ],
        rows,
        notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_replayed() -> Result<()> {
        let run = run(1, "test".to_owned())?;
        assert_eq!((run.rows.len(), run.notes.len()), (4, 4));
        Ok(())
    }
}
