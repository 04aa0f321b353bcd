//! Programs on the CPU against the same chain of tensor ops, and against the interpreter.
//!
//! The chain is that of the `ops` suite, which compares it with NumPy. The program starts with the usual check of its bound.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use bessemer::program::{
    BufferMemory, CpuExecutor, ExecutionParams, Interpreter, LaunchConfig, Program, Register,
};
use bessemer::{Device, Tensor};
use clap::Args;

use crate::measure::{Timing, Work, interleaved};
use crate::report::duration;

/// Options of the program suite.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Also write the results as Markdown.
    #[arg(long)]
    markdown: Option<PathBuf>,
}

/// `(|(x·y + x)·0.5 - y| + 1)^½ · x` for the first r4 elements of r1 and r2, to r3.
const CHAIN: &str = "
    setcc.u64.ge p0, %global, r4
    bra.p0 @end
    mov_imm.u32 r5, 2
    mov_imm.f32 r10, 0.5
    mov_imm.f32 r11, 1.0
    shl.u64 r0, %global, r5
    ldg.f32 r6, [r1 + r0]
    ldg.f32 r7, [r2 + r0]
    mul.f32 r8, r6, r7
    add.f32 r8, r8, r6
    mul.f32 r8, r8, r10
    sub.f32 r8, r8, r7
    abs.f32 r8, r8
    add.f32 r8, r8, r11
    sqrt.f32 r8, r8
    mul.f32 r8, r8, r6
    stg.f32 [r3 + r0], r8
    end:
";

/// An instruction without effect that no tensor op has: the program runs on groups of lanes, instruction by instruction.
const NO_TENSOR_OP: &str = "phase_adv 0";

/// Elements that the interpreter computes, whatever the size of the case.
const INTERPRETED_ELEMENTS: usize = 10_000;

/// Lanes of a block.
const BLOCK_LANES: u32 = 256;

/// A program and its buffers.
struct ChainLaunch {
    program: Program,
    memory: BufferMemory,
    params: ExecutionParams,
}

impl ChainLaunch {
    fn new(prefix: &str, x: &[f32], y: &[f32]) -> Result<Self> {
        let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let mut memory = BufferMemory::new();
        memory.insert(1, bytes(x));
        memory.insert(2, bytes(y));
        memory.insert(3, vec![0; 4 * x.len()]);
        let config = LaunchConfig::linear(x.len() as u32, BLOCK_LANES);
        let mut params = ExecutionParams::new(config);
        for register in 1..=3 {
            params = params.with_register(Register(register), register.into());
        }
        Ok(Self {
            program: format!("{prefix}\n{CHAIN}").parse()?,
            memory,
            params: params.with_register(Register(4), x.len() as u64),
        })
    }

    /// The result.
    fn output(&self) -> Result<Vec<f32>> {
        let bytes = self.memory.buffer(3).context("it was inserted")?;
        let chunks = bytes.as_chunks::<4>().0;
        Ok(chunks.iter().map(|&b| f32::from_le_bytes(b)).collect())
    }
}

/// The times of a case.
struct ProgramTimes {
    elements: usize,
    /// The program, the program on groups of lanes, the chain of tensors.
    times: Vec<Timing>,
    /// The interpreter, on fewer elements: seconds per element.
    interpreter: f64,
}

/// Measures and reports.
pub(crate) fn run(options: &Options, rounds: usize, command: &str) -> Result<()> {
    let mut rows = Vec::new();
    for elements in [1000, 10_000, 1_000_000, 16_000_000] {
        rows.push(measure(elements, rounds)?);
    }
    let page = markdown(&rows, rounds, command);
    if let Some(path) = &options.markdown {
        std::fs::write(path, &page)?;
    }
    use std::io::Write as _;
    std::io::stdout().write_all(page.as_bytes())?;
    Ok(())
}

fn measure(elements: usize, rounds: usize) -> Result<ProgramTimes> {
    let value = |i: usize| (i % 2003) as f32 / 500.0 - 2.0;
    let x: Vec<f32> = (0..elements).map(value).collect();
    let y: Vec<f32> = (0..elements).map(|i| value(7 * i + 1)).collect();
    let mut fused = ChainLaunch::new("", &x, &y)?;
    let mut groups = ChainLaunch::new(NO_TENSOR_OP, &x, &y)?;
    let few = INTERPRETED_ELEMENTS.min(elements);
    let mut interpreted = ChainLaunch::new("", &x[..few], &y[..few])?;
    let device = Device::cpu();
    let [tx, ty] = [&x, &y].map(|v| Tensor::from_slice(v, [elements]).to(&device));
    let chain = || (((&tx * &ty + &tx) * 0.5 - &ty).abs() + 1.0).sqrt() * &tx;

    let executor = CpuExecutor::new(&fused.program)?;
    let group_executor = CpuExecutor::new(&groups.program)?;
    let program = interpreted.program.clone();
    let interpreter = Interpreter::new(&program)?;
    let mut contestants: [Work<'_>; 4] = [
        Box::new(|| Ok(executor.run(&fused.params, &mut fused.memory).map(drop)?)),
        Box::new(|| {
            Ok(group_executor
                .run(&groups.params, &mut groups.memory)
                .map(drop)?)
        }),
        Box::new(|| Ok(chain().eval().map(drop)?)),
        Box::new(|| {
            Ok(interpreter
                .run(&interpreted.params, &mut interpreted.memory)
                .map(drop)?)
        }),
    ];
    let mut times = interleaved(rounds, &mut contestants)?;
    drop(contestants);
    let interpreter = times.pop().context("four contestants")?.median / few as f64;

    let expected: Vec<f32> = chain().to_vec()?;
    ensure!(
        fused.output()? == expected,
        "the program differs from tensors"
    );
    ensure!(
        groups.output()? == expected,
        "groups of lanes differ from tensors"
    );
    ensure!(
        interpreted.output()? == expected[..few],
        "the interpreter differs from tensors"
    );
    Ok(ProgramTimes {
        elements,
        times,
        interpreter,
    })
}

fn markdown(rows: &[ProgramTimes], rounds: usize, command: &str) -> String {
    let mut page = format!(
        "# Programs on the CPU\n\n`{command}`, {}\n\n- processor: {}\n- threads: {}\n- rounds: {rounds}\n\n\
         A chain of eight elementwise ops, in `f32`. Medians of one interleaved run. \"groups\" is the same program with an \
         instruction that tensors do not have, so that it runs on groups of lanes. Ratios are the program's speed by theirs; \
         the interpreter's is by element.\n\n\
         | elements | program | groups | tensors | to groups | to tensors | to the interpreter |\n\
         |---|---|---|---|---|---|---|\n",
        crate::ops::date(),
        crate::ops::processor(),
        bessemer::pool::threads(),
    );
    for row in rows {
        let own = row.times[0].median;
        let _ = write!(page, "| {} |", row.elements);
        for time in &row.times {
            let _ = write!(page, " {} |", duration(time.median));
        }
        let _ = writeln!(
            page,
            " {:.2} | {:.2} | {:.0} |",
            row.times[1].median / own,
            row.times[2].median / own,
            row.interpreter * row.elements as f64 / own
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contestant_computes_the_same() -> Result<()> {
        measure(5000, 1).map(drop)
    }
}
