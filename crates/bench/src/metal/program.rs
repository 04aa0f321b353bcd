//! A program on the device and on the CPU, and the share of the memory bandwidth that it reaches.

use std::hint::black_box;

use anyhow::{Context as _, Result};
use bessemer::program::{DeviceMemory, ExecutionParams, LaunchConfig, Program, Register};
use bessemer::random::{self, Key};
use bessemer::{DType, Device, Tensor};

use super::case::{HOLOGRAM_ELEMENTS, agree};
use crate::measure::{Timing, Work, interleaved};
use crate::report::Comparison;

const VECTOR_ADD: &str = include_str!("../../../../examples/program/vector_add.isa");

/// Lanes of a block.
const BLOCK_LANES: u32 = 256;

/// `c = a + b` as a program in a memory of a device.
struct VectorAdd {
    program: bessemer::program::CompiledProgram,
    memory: DeviceMemory,
    params: ExecutionParams,
    result: u64,
}

impl VectorAdd {
    fn new(device: &Device, a: &[u8], b: &[u8]) -> Result<Self> {
        let program: Program = VECTOR_ADD.parse()?;
        let mut memory = DeviceMemory::new(device)?;
        let count = a.len() / size_of::<f32>();
        let handles = [
            memory.insert_bytes(a)?,
            memory.insert_bytes(b)?,
            memory.allocate(a.len())?,
        ];
        let config = LaunchConfig::linear(u32::try_from(count)?, BLOCK_LANES);
        let mut params = ExecutionParams::new(config).with_register(Register(4), count as u64);
        for (register, handle) in (1..).zip(handles) {
            params = params.with_register(Register(register), handle);
        }
        Ok(Self {
            program: program.compile(device)?,
            memory,
            params,
            result: handles[2],
        })
    }

    fn run(&mut self) -> Result<()> {
        Ok(self.program.run(&self.params, &mut self.memory)?)
    }

    fn values(&self) -> Result<Vec<f32>> {
        let bytes = self.memory.to_vec(self.result)?;
        let values = bytes.as_chunks::<4>().0.iter();
        Ok(values.map(|&b| f32::from_le_bytes(b)).collect())
    }
}

/// hologram's `vector_add` as a program, on the device and on the CPU.
pub(super) fn measure(device: &Device, rounds: usize) -> Result<Comparison> {
    let [a, b] = [1, 2].map(|seed| {
        let values = Device::cpu()
            .scope(|| random::uniform(&Key::new(seed), [HOLOGRAM_ELEMENTS], -1.0, 1.0, DType::F32));
        let values = values.to_vec::<f32>();
        values.map(|v| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>())
    });
    let (a, b) = (a?, b?);
    let mut ours = VectorAdd::new(device, &a, &b)?;
    let mut cpu = VectorAdd::new(&Device::cpu(), &a, &b)?;
    ours.run()?;
    cpu.run()?;
    agree(&ours.values()?, &cpu.values()?, 0.0).context("program vector_add")?;
    let mut contestants: [Work<'_>; 2] = [Box::new(|| ours.run()), Box::new(|| cpu.run())];
    let mut times = interleaved(rounds, &mut contestants)?.into_iter();
    let (ours, peer) = times
        .next()
        .zip(times.next())
        .context("two contestants have two times")?;
    Ok(Comparison {
        case: format!("E-20 program vector_add f32 of {HOLOGRAM_ELEMENTS}"),
        ours,
        peer: Some(("CPU".to_owned(), peer)),
        goal: 4.0,
    })
}

/// The rate of an add of `count` elements as a share of the rate at which the device copies as many bytes.
pub(super) fn bandwidth_share(device: &Device, rounds: usize, count: usize) -> Result<String> {
    let ones = || Tensor::ones([count], DType::F32).to(device).contiguous();
    let (a, b) = (ones(), ones());
    a.eval()?;
    b.eval()?;
    let once = |compute: &dyn Fn() -> Tensor| -> Result<()> {
        let y = device.scope(compute);
        y.eval()?;
        device.synchronize()?;
        drop(black_box(y));
        Ok(())
    };
    let mut contestants: [Work<'_>; 2] = [
        Box::new(|| once(&|| &a + &b)),
        // The cheapest op that reads and writes every element once.
        Box::new(|| once(&|| -&a)),
    ];
    let times = interleaved(rounds, &mut contestants)?;
    let rate = |timing: &Timing, bytes: usize| (bytes * count) as f64 / timing.median / 1e9;
    let (add, negation) = (rate(&times[0], 12), rate(&times[1], 8));
    Ok(format!(
        "E-21 add f32 of {count}: {add:.1} GB/s, {:.0} % of the {negation:.1} GB/s of a negation; the plan's goal is 80 % \
         of the device's bandwidth, which its data sheet has",
        add / negation * 100.0
    ))
}
