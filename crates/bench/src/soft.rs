//! The software Metal device against PoCL: the same kernels, written in MSL and in OpenCL C.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use bessemer_hal::soft::{self, SoftOptions};
use bessemer_hal::{Buffer, CompileOptions, Device, Library, Pipeline, StorageMode};

use crate::measure::{Timing, Work, interleaved};
use crate::opencl::{self, Arg};
use crate::report::{Comparison, Run};

const MSL: &str = include_str!("kernels/soft.metal");
const OPENCL: &str = include_str!("kernels/opencl.cl");
const KERNELS: [&str; 5] = ["add", "gelu", "softmax", "rmsnorm", "matmul"];

/// Elements of the elementwise cases.
const ELEMENTS: usize = 1 << 20;
/// Rows and columns of the row-wise cases.
const ROWS: usize = 256;
const COLUMNS: usize = 1024;
/// Threads per threadgroup.
const THREADS: usize = 256;
/// Side of the matrices.
const SIDE: usize = 256;

/// Compares every kernel and the compile latencies.
pub(crate) fn run(rounds: usize, command: String) -> Result<Run> {
    let device = soft::device(SoftOptions::from_env()?)?;
    let library = library(&device)?;
    let peer = opencl::Device::open()?;
    let peer_name = peer
        .as_ref()
        .map_or("not installed".to_owned(), |p| p.name().to_owned());
    let cl = match &peer {
        Some(peer) => Some((peer, peer.kernels(OPENCL, &KERNELS)?)),
        None => None,
    };

    let mut rows = Vec::new();
    for (index, name) in KERNELS.into_iter().enumerate() {
        let pipeline = library.pipeline(name)?;
        let case = KernelCase::new(name, &device, pipeline)?;
        let theirs = match &cl {
            Some((peer, kernels)) => Some((*peer, &kernels[index], case.upload(peer)?)),
            None => None,
        };
        let mut contestants: Vec<Work<'_>> = vec![Box::new(|| case.run(&device))];
        if let Some((peer, kernel, buffers)) = &theirs {
            contestants.push(Box::new(|| case.run_opencl(peer, kernel, buffers)));
        }
        let mut times = interleaved(rounds, &mut contestants)?.into_iter();
        drop(contestants);
        if let Some((peer, _, buffers)) = &theirs {
            case.compare(&peer.read(&buffers[case.output])?)?;
        }
        let ours = times.next().context("our own time")?;
        rows.push(Comparison {
            case: case.title.clone(),
            ours,
            peer: times.next().map(|t| ("PoCL".to_owned(), t)),
            goal: if case.barriers { 0.5 } else { 1.0 },
        });
    }
    Ok(Run {
        title: "The software Metal device against PoCL".to_owned(),
        command,
        setting: vec![
            ("device".to_owned(), device.name().to_owned()),
            ("PoCL".to_owned(), peer_name),
            ("rounds".to_owned(), rounds.to_string()),
            (
                "workers".to_owned(),
                std::thread::available_parallelism()?.to_string(),
            ),
        ],
        rows,
        notes: latencies()?,
    })
}

#[expect(unsafe_code, reason = "relies on the kernels above being correct")]
fn library(device: &Device) -> Result<Library> {
    // SAFETY: the kernels index within the grids that `KernelCase` launches.
    Ok(unsafe { device.library(MSL, &CompileOptions::labelled("soft.metal")) }?)
}

/// Compile latency of a kernel with an empty and with a warm cache.
fn latencies() -> Result<Vec<String>> {
    let mut cold = Vec::new();
    let mut warm = Vec::new();
    for _ in 0..5 {
        let cache = tempfile::tempdir()?;
        let mut options = SoftOptions::from_env()?;
        options.cache_dir = Some(cache.path().to_owned());
        // The first kernel on a machine also precompiles the headers; a second one shows the cost of the kernel alone.
        let once = |name: &str| -> Result<f64> {
            let device = soft::device(options.clone())?;
            let start = Instant::now();
            library(&device)?.pipeline(name)?;
            Ok(start.elapsed().as_secs_f64())
        };
        once("add")?;
        cold.push(once("rmsnorm")?);
        warm.push(once("rmsnorm")?);
    }
    let (cold, warm) = (Timing::of(cold), Timing::of(warm));
    Ok(vec![
        format!(
            "library + kernel `rmsnorm` compiled: {:.0} ms (goal: at most 1000)",
            cold.median * 1e3
        ),
        format!(
            "library + kernel `rmsnorm` from the cache: {:.1} ms (goal: at most 5)",
            warm.median * 1e3
        ),
    ])
}

/// One kernel with its data.
struct KernelCase {
    title: String,
    barriers: bool,
    pipeline: Pipeline,
    buffers: Vec<Buffer>,
    values: Vec<Vec<f32>>,
    /// Index of the result among the buffers.
    output: usize,
    size: Option<u32>,
    local_bytes: usize,
    grid: [usize; 2],
    group: [usize; 2],
}

impl KernelCase {
    fn new(name: &str, device: &Device, pipeline: Pipeline) -> Result<Self> {
        let row_wise = [ROWS * COLUMNS; 2];
        let (title, lengths, size, local_bytes, grid, group): (_, &[usize], _, _, _, _) = match name
        {
            "matmul" => (
                format!("matmul f32 {SIDE}³, 16×16 tiles, 2 barriers a tile"),
                &[SIDE * SIDE; 3],
                Some(SIDE as u32),
                0,
                [SIDE, SIDE],
                [16, 16],
            ),
            "softmax" | "rmsnorm" => (
                format!("{name} f32 {ROWS}×{COLUMNS}, tree reduction with barriers"),
                &row_wise,
                Some(COLUMNS as u32),
                THREADS * 4,
                [ROWS * THREADS, 1],
                [THREADS, 1],
            ),
            _ => (
                format!("{name} f32 {ELEMENTS}, no barrier"),
                &[ELEMENTS; 3],
                None,
                0,
                [ELEMENTS, 1],
                [THREADS, 1],
            ),
        };
        let output = lengths.len() - 1;
        let values: Vec<Vec<f32>> = lengths
            .iter()
            .enumerate()
            .map(|(b, n)| {
                (0..*n)
                    .map(|i| ((i * 37 + b * 11) % 101) as f32 / 50.0 - 1.0)
                    .collect()
            })
            .collect();
        let buffers = values
            .iter()
            .map(|v| device.buffer_with_data(v, StorageMode::Shared))
            .collect::<bessemer_hal::Result<_>>()?;
        Ok(Self {
            title,
            barriers: size.is_some(),
            pipeline,
            buffers,
            values,
            output,
            size,
            local_bytes,
            grid,
            group,
        })
    }

    fn run(&self, device: &Device) -> Result<()> {
        let mut commands = device.commands();
        let mut dispatch = commands.dispatch(&self.pipeline);
        for (index, buffer) in (0_u32..).zip(&self.buffers) {
            dispatch = if index as usize == self.output {
                dispatch.read_write(index, buffer)
            } else {
                dispatch.read(index, buffer)
            };
        }
        if let Some(size) = &self.size {
            dispatch = dispatch.bytes(self.buffers.len() as u32, size);
        }
        if self.local_bytes > 0 {
            dispatch = dispatch.threadgroup_memory(0, self.local_bytes);
        }
        dispatch.threads((self.grid[0], self.grid[1]), (self.group[0], self.group[1]))?;
        commands.commit()?.wait()?;
        Ok(())
    }

    fn upload(&self, peer: &opencl::Device) -> Result<Vec<opencl::Buffer>> {
        self.values.iter().map(|v| peer.buffer(v)).collect()
    }

    fn run_opencl(
        &self,
        peer: &opencl::Device,
        kernel: &opencl::Kernel,
        buffers: &[opencl::Buffer],
    ) -> Result<()> {
        let mut args: Vec<Arg<'_>> = buffers.iter().map(Arg::Buffer).collect();
        args.extend(self.size.map(Arg::U32));
        if self.local_bytes > 0 {
            args.push(Arg::Local(self.local_bytes));
        }
        peer.run(kernel, &args, self.grid, self.group)
    }

    /// Checks that both devices computed the same before their times are compared.
    fn compare(&self, theirs: &[f32]) -> Result<()> {
        let ours = self.buffers[self.output].to_vec::<f32>()?;
        let worst = ours
            .iter()
            .zip(theirs)
            .map(|(a, b)| (a - b).abs() / b.abs().max(1.0))
            .fold(0.0_f32, f32::max);
        ensure!(worst < 1e-4, "{}: results differ by {worst}", self.title);
        Ok(())
    }
}
