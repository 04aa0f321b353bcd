//! `bessemer program run`: runs a program on given data.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bessemer::npy::Array;
use bessemer::program::{BufferMemory, DeviceMemory, ExecutionParams, Interpreter, ProgramError};
use bessemer::{DType, Device};
use serde_json::{Value, json};

use super::file::{Problem, ProgramFile};
use super::{ProgramDevice, ProgramRunArgs};
use crate::array;
use crate::failure::{Outcome, Usage};
use crate::msl::format::write_json;
use crate::terminal::{Out, counted, style};

/// Maximum size of a buffer in bytes.
const MAX_BUFFER_BYTES: usize = 1 << 32;

/// Number of faults that are shown in full.
const MAX_SHOWN_FAULTS: usize = 16;

/// What a run left.
struct Finished {
    time: Duration,
    /// Of all lanes on the interpreter, otherwise the first.
    faults: Vec<Problem>,
    /// The buffers with their indices.
    results: Vec<(u32, Array)>,
    /// Sums of `res_accum` that are not zero, by class.
    resonance: Vec<(usize, f64)>,
}

/// Runs the command.
pub(super) fn run(args: &ProgramRunArgs, out: &mut Out) -> Result<Outcome> {
    args.buffers.check_indices()?;
    let file = ProgramFile::read(&args.file)?;
    let params = args.launch.params(args.grid)?;
    let inputs = inputs(args)?;
    let finished = if args.interpreter {
        interpret(&file, &params, &inputs)?
    } else {
        execute(&file, &open(args.device)?, &params, &inputs)?
    };
    // What lanes wrote before a fault stays.
    let result = |index: u32| {
        let found = finished.results.iter().find(|(i, _)| *i == index);
        let (_, array) = found.context("its index was checked")?;
        Ok(array.clone())
    };
    args.buffers.save(result)?;
    let outcome = if finished.faults.is_empty() {
        Outcome::Clean
    } else {
        Outcome::Defect
    };
    if args.json {
        let mut value = finished.to_json();
        if let Some(values) = args.buffers.values(result)? {
            value["values"] = values;
        }
        write_json(out, value, outcome)?;
    } else {
        for fault in finished.faults.iter().take(MAX_SHOWN_FAULTS) {
            file.write(out, "fault", fault)?;
        }
        if let Some(more @ 1..) = finished.faults.len().checked_sub(MAX_SHOWN_FAULTS) {
            writeln!(out, "… and {} more", counted(more, "fault"))?;
        }
        args.buffers.print(out, result)?;
        finished.write_verdict(out, file.name())?;
    }
    Ok(outcome)
}

/// The buffers of the command line with their indices.
fn inputs(args: &ProgramRunArgs) -> Result<Vec<(u32, Array)>> {
    let mut inputs: Vec<(u32, Array)> = Vec::new();
    for spec in &args.buffers.inputs {
        if inputs.iter().any(|(index, _)| *index == spec.index) {
            return Err(Usage::error(format!(
                "buffer {} is bound twice",
                spec.index
            )));
        }
        if spec.index == 0 {
            let reason = "buffer 0 is the boundary pool; count buffers from 1";
            return Err(Usage::error(reason));
        }
        let array = array::load(&spec.value, MAX_BUFFER_BYTES)
            .with_context(|| format!("buffer {}", spec.index))?;
        if array.dtype == DType::Bool {
            return Err(Usage::error(format!(
                "buffer {}: programs have no bool; use u8",
                spec.index
            )));
        }
        inputs.push((spec.index, array));
    }
    Ok(inputs)
}

/// Runs the program on the interpreter.
fn interpret(
    file: &ProgramFile,
    params: &ExecutionParams,
    inputs: &[(u32, Array)],
) -> Result<Finished> {
    let interpreter = Interpreter::new(&file.program).map_err(|e| file.rejection(&e))?;
    let mut memory = BufferMemory::new();
    for (index, array) in inputs {
        memory.insert(u64::from(*index), array.data.clone());
    }
    let start = Instant::now();
    let outcome = interpreter.run_to_end(params, &mut memory);
    let outcome = outcome.map_err(|e| file.rejection(&e))?;
    let time = start.elapsed();
    let result = |index: u32| memory.buffer(u64::from(index)).map(<[u8]>::to_vec);
    let fault = |fault| file.problem(&ProgramError::Fault(fault));
    let sums = outcome.resonance.into_iter().enumerate();
    Ok(Finished {
        time,
        faults: outcome.faults.into_iter().map(fault).collect(),
        resonance: sums.filter(|(_, sum)| *sum != 0.0).collect(),
        results: results(inputs, result)?,
    })
}

/// Runs the program on a device.
fn execute(
    file: &ProgramFile,
    device: &Device,
    params: &ExecutionParams,
    inputs: &[(u32, Array)],
) -> Result<Finished> {
    let failed = |error: ProgramError| match error {
        ProgramError::Device(error) => anyhow::Error::new(*error),
        error => file.rejection(&error),
    };
    let compiled = file.program.compile(device).map_err(failed)?;
    let mut memory = DeviceMemory::new(device).map_err(failed)?;
    for (index, array) in inputs {
        let inserted = memory.insert_bytes_at(u64::from(*index), &array.data);
        inserted.map_err(failed)?;
    }
    let start = Instant::now();
    let outcome = compiled.run(params, &mut memory);
    let time = start.elapsed();
    let faults = match outcome {
        Ok(()) => Vec::new(),
        Err(error @ ProgramError::Fault(_)) => vec![file.problem(&error)],
        Err(error) => return Err(failed(error)),
    };
    Ok(Finished {
        time,
        faults,
        resonance: Vec::new(),
        results: results(inputs, |index| memory.to_vec(u64::from(index)).ok())?,
    })
}

/// The buffers after a run.
fn results(
    inputs: &[(u32, Array)],
    result: impl Fn(u32) -> Option<Vec<u8>>,
) -> Result<Vec<(u32, Array)>> {
    let array = |(index, input): &(u32, Array)| {
        let data = result(*index).with_context(|| format!("cannot read buffer {index}"))?;
        let shape = input.shape.clone();
        let dtype = input.dtype;
        Ok((*index, Array { dtype, shape, data }))
    };
    inputs.iter().map(array).collect()
}

fn open(device: ProgramDevice) -> Result<Device> {
    Ok(match device {
        ProgramDevice::Cpu => Device::cpu(),
        ProgramDevice::Metal => Device::metal()?,
        ProgramDevice::Soft => Device::software()?,
    })
}

impl Finished {
    fn to_json(&self) -> Value {
        let resonance = self.resonance.iter();
        let resonance: serde_json::Map<_, _> = resonance
            .map(|(class, sum)| (class.to_string(), json!(sum)))
            .collect();
        let faults: Vec<_> = self.faults.iter().map(Problem::to_json).collect();
        json!({
            "time_ms": self.time.as_secs_f64() * 1e3,
            "faults": faults,
            "resonance": resonance,
        })
    }

    fn write_verdict(&self, out: &mut Out, name: &str) -> Result<()> {
        for (class, sum) in &self.resonance {
            writeln!(out, "resonance of class {class}: {sum}")?;
        }
        let (colour, verdict) = match self.faults.len() {
            0 => (style::GOOD, "clean".to_owned()),
            count => (style::ERROR, counted(count, "fault")),
        };
        let time = self.time.as_secs_f64() * 1e3;
        writeln!(out, "{name} in {time:.3} ms: {colour}{verdict}{colour:#}")?;
        out.flush()?;
        Ok(())
    }
}
