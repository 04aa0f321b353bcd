//! Runs a kernel on every device under test.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bessemer_hal::{
    Access, Buffer, CompileOptions, ConstantValue, Device, Error, FunctionConstants, Library,
    LogLine, MathMode, Result, Size, StorageMode,
};
use bytemuck::Pod;

use crate::tolerance::Bound;

/// Environment variable that selects the devices under test.
const DEVICE_VARIABLE: &str = "BESSEMER_TEST_DEVICE";

/// An MSL source with its path, so that errors point into the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    pub(crate) path: &'static str,
    pub(crate) text: &'static str,
}

/// A device under test.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) device: Device,
}

/// The devices under test. A requested device that is missing fails the test.
pub(crate) fn targets() -> &'static [Target] {
    static TARGETS: OnceLock<Vec<Target>> = OnceLock::new();
    TARGETS.get_or_init(|| {
        let choice = std::env::var(DEVICE_VARIABLE).unwrap_or_default();
        let names: &[&'static str] = match choice.as_str() {
            "" | "software" => &["fast", "check"],
            "fast" => &["fast"],
            "check" => &["check"],
            "fuzz" => &["fuzz"],
            "isolated" => &["isolated"],
            "apple" => &["apple"],
            other => panic!("{DEVICE_VARIABLE} is `{other}`: no such device"),
        };
        names
            .iter()
            .map(|name| Target {
                name,
                device: open(name).unwrap_or_else(|e| panic!("device `{name}`: {e}")),
            })
            .collect()
    })
}

#[cfg(target_os = "linux")]
fn open(name: &str) -> Result<Device> {
    use bessemer_hal::LanguageVersion;
    use bessemer_hal::soft::{self, Mode, SoftOptions};
    let mode = Mode::ALL
        .into_iter()
        .find(|mode| mode.name() == name)
        .ok_or_else(|| missing(name))?;
    soft::device(SoftOptions {
        language: LanguageVersion::Metal3_2,
        ..SoftOptions::in_mode(mode)
    })
}

#[cfg(target_vendor = "apple")]
fn open(name: &str) -> Result<Device> {
    match name {
        "apple" => bessemer_hal::apple::system_default(),
        _ => Err(missing(name)),
    }
}

fn missing(name: &str) -> Error {
    Error::Unavailable {
        device: name.to_owned(),
        reason: "not on this system".to_owned(),
    }
}

/// Compiles an MSL source of the suite.
#[expect(unsafe_code, reason = "the suite asserts that its kernels are correct")]
pub(crate) fn compile(device: &Device, text: &str, options: &CompileOptions) -> Result<Library> {
    // SAFETY: every kernel of the suite stays in its buffers, is free of races and terminates.
    unsafe { device.library(text, options) }
}

type Libraries = Mutex<HashMap<(usize, &'static str, MathMode), Arc<OnceLock<Library>>>>;

/// The library of a source on a target, compiled once.
fn library(target: usize, source: &Source, math_mode: MathMode) -> Library {
    static LIBRARIES: OnceLock<Libraries> = OnceLock::new();
    let cell = LIBRARIES
        .get_or_init(Mutex::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .entry((target, source.path, math_mode))
        .or_default()
        .clone();
    cell.get_or_init(|| {
        let options = CompileOptions {
            label: source.path.to_owned(),
            math_mode,
            ..CompileOptions::default()
        };
        let Target { name, device } = &targets()[target];
        compile(device, source.text, &options)
            .unwrap_or_else(|error| panic!("{} on {name}: {error}", source.path))
    })
    .clone()
}

/// A launch that runs on every target.
#[derive(Debug)]
pub(crate) struct Run {
    source: Source,
    kernel: String,
    constants: FunctionConstants,
    math_mode: MathMode,
    buffers: Vec<(u32, Vec<u8>, Access)>,
    bytes: Vec<(u32, Vec<u8>)>,
    memory: Vec<(u32, usize)>,
}

impl Run {
    pub(crate) fn kernel(source: &Source, kernel: &str) -> Self {
        Self {
            source: *source,
            kernel: kernel.to_owned(),
            constants: FunctionConstants::new(),
            math_mode: MathMode::Safe,
            buffers: Vec::new(),
            bytes: Vec::new(),
            memory: Vec::new(),
        }
    }

    /// A buffer that the kernel reads.
    pub(crate) fn input<T: Pod>(mut self, index: u32, values: &[T]) -> Self {
        let bytes = bytemuck::cast_slice(values).to_vec();
        self.buffers.push((index, bytes, Access::Read));
        self
    }

    /// A zeroed buffer that the kernel writes.
    pub(crate) fn output<T: Pod>(self, index: u32, count: usize) -> Self {
        self.update(index, &vec![T::zeroed(); count])
    }

    /// A buffer that the kernel reads and writes.
    pub(crate) fn update<T: Pod>(mut self, index: u32, values: &[T]) -> Self {
        let bytes = bytemuck::cast_slice(values).to_vec();
        self.buffers.push((index, bytes, Access::ReadWrite));
        self
    }

    /// Inline bytes for a `constant T&`.
    pub(crate) fn bytes<T: Pod>(mut self, index: u32, value: &T) -> Self {
        self.bytes.push((index, bytemuck::bytes_of(value).to_vec()));
        self
    }

    /// Host-sized threadgroup memory.
    pub(crate) fn memory(mut self, index: u32, bytes: usize) -> Self {
        self.memory.push((index, bytes));
        self
    }

    /// A function constant.
    pub(crate) fn constant(mut self, index: u32, value: impl Into<ConstantValue>) -> Self {
        self.constants.set(index, value);
        self
    }

    /// Launches exactly `grid` threads on every target.
    pub(crate) fn threads(self, grid: impl Into<Size>, group: impl Into<Size>) -> Outcome {
        self.launch(grid.into(), group.into(), false)
    }

    /// Launches whole threadgroups on every target.
    pub(crate) fn threadgroups(self, groups: impl Into<Size>, group: impl Into<Size>) -> Outcome {
        self.launch(groups.into(), group.into(), true)
    }

    fn launch(&self, grid: Size, group: Size, whole: bool) -> Outcome {
        let results = (0..targets().len())
            .map(|target| {
                self.launch_on(target, grid, group, whole)
                    .unwrap_or_else(|error| panic!("{}: {error}", self.describe(target)))
            })
            .collect();
        Outcome {
            kernel: self.kernel.clone(),
            results,
        }
    }

    fn describe(&self, target: usize) -> String {
        format!("kernel `{}` on {}", self.kernel, targets()[target].name)
    }

    fn launch_on(&self, target: usize, grid: Size, group: Size, whole: bool) -> Result<Outputs> {
        let device = &targets()[target].device;
        let pipeline = library(target, &self.source, self.math_mode)
            .function_with(&self.kernel, self.constants.clone())?
            .pipeline()?;
        let buffers = self
            .buffers
            .iter()
            .map(|(_, bytes, _)| device.buffer_with_data(bytes, StorageMode::Shared))
            .collect::<Result<Vec<Buffer>>>()?;
        let mut commands = device.commands();
        let mut dispatch = commands.dispatch(&pipeline);
        for ((index, _, access), buffer) in self.buffers.iter().zip(&buffers) {
            dispatch = dispatch.bind(*index, buffer, *access);
        }
        for (index, bytes) in &self.bytes {
            dispatch = dispatch.set_bytes(*index, bytes);
        }
        for (index, bytes) in &self.memory {
            dispatch = dispatch.threadgroup_memory(*index, *bytes);
        }
        if whole {
            dispatch.threadgroups(grid, group)?;
        } else {
            dispatch.threads(grid, group)?;
        }
        let completed = commands.commit()?.wait()?;
        let mut contents = BTreeMap::new();
        for ((index, ..), buffer) in self.buffers.iter().zip(&buffers) {
            contents.insert(*index, buffer.to_vec()?);
        }
        Ok(Outputs {
            description: self.describe(target),
            contents,
            logs: completed.logs,
        })
    }
}

/// The outputs of a launch on one target.
#[derive(Debug)]
struct Outputs {
    description: String,
    contents: BTreeMap<u32, Vec<u8>>,
    logs: Vec<LogLine>,
}

/// The outputs of a launch on all targets.
#[derive(Debug)]
#[must_use = "an unchecked result tests nothing"]
pub(crate) struct Outcome {
    kernel: String,
    results: Vec<Outputs>,
}

impl Outcome {
    /// Calls `check` with a description of the launch and the values of a buffer, for each target.
    #[track_caller]
    pub(crate) fn check<T: Pod>(&self, index: u32, mut check: impl FnMut(&str, &[T])) -> &Self {
        for outputs in &self.results {
            let bytes = outputs
                .contents
                .get(&index)
                .unwrap_or_else(|| panic!("kernel `{}` has no buffer {index}", self.kernel));
            let values: Vec<T> = bytes
                .chunks_exact(size_of::<T>())
                .map(bytemuck::pod_read_unaligned)
                .collect();
            check(&outputs.description, &values);
        }
        self
    }

    /// Asserts that a buffer contains exactly these values.
    #[track_caller]
    pub(crate) fn expect<T: Pod + PartialEq + Debug>(&self, index: u32, expected: &[T]) -> &Self {
        self.check(index, |launch, got: &[T]| {
            assert_eq!(
                got.len(),
                expected.len(),
                "{launch}: buffer {index}, lengths"
            );
            let wrong: Vec<_> = (0..got.len()).filter(|i| got[*i] != expected[*i]).collect();
            let first: Vec<_> = wrong
                .iter()
                .take(8)
                .map(|i| format!("  [{i}]: got {:?}, expected {:?}", got[*i], expected[*i]))
                .collect();
            assert!(
                wrong.is_empty(),
                "{launch}: buffer {index}: {} of {} values differ\n{}",
                wrong.len(),
                got.len(),
                first.join("\n")
            );
        })
    }

    /// Asserts that the values of a buffer of floats are within `bound` of the exact ones, which `what` names.
    #[track_caller]
    pub(crate) fn expect_within(
        &self,
        index: u32,
        what: &str,
        exact: &[f64],
        skip: usize,
        bound: impl Fn(f64) -> Bound,
    ) -> &Self {
        self.check(index, |launch, got: &[f32]| {
            for (i, exact) in exact.iter().enumerate() {
                let (got, bound) = (got[skip + i], bound(*exact));
                assert!(
                    bound.allows(f64::from(got), *exact),
                    "{launch}: {what}, case {i}: got {got:?}, exact {exact:?}, allowed {bound:?}"
                );
            }
        })
    }

    /// The lines logged by the kernel, for each target.
    pub(crate) fn logs(&self) -> impl Iterator<Item = (&str, &[LogLine])> {
        self.results.iter().map(|o| (&*o.description, &*o.logs))
    }
}

/// The MSL file in this directory.
macro_rules! source {
    ($file:literal) => {
        $crate::harness::Source {
            path: concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/", $file),
            text: include_str!($file),
        }
    };
}
pub(crate) use source;
