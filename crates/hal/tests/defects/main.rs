//! Seeded defects: each must be reported with its line, and similar correct kernels must have no report.
//!
//! A comment `// DEFECT(kind) kernel` marks a line on which a report of that kind is correct for that kernel. A kernel
//! with markers must be reported on at least one of these lines, and on no other; a kernel without must run clean.
//! All kernels are launched with the same grid: two threadgroups of 64 threads over 128 floats.
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use bessemer_hal::soft::{self, Mode, SoftOptions};
use bessemer_hal::{
    ArgumentKind, CompileOptions, Device, Error, Library, Report, Result, StorageMode,
};

const THREADS: usize = 128;
const THREADS_PER_GROUP: usize = 64;

struct Source {
    path: &'static str,
    text: &'static str,
    /// Numbers of kernels with and without a defect, so that a missing kernel is noticed.
    defective: usize,
    correct: usize,
}

macro_rules! source {
    ($file:literal, $defective:literal, $correct:literal) => {
        Source {
            path: concat!(env!("CARGO_MANIFEST_DIR"), "/tests/defects/", $file),
            text: include_str!($file),
            defective: $defective,
            correct: $correct,
        }
    };
}

/// Line and kind of a report.
type Marker = (u32, String);

impl Source {
    /// Returns the markers of a kernel.
    fn markers(&self, kernel: &str) -> BTreeSet<Marker> {
        (1..)
            .zip(self.text.lines())
            .filter_map(|(line, text)| {
                let (_, marker) = text.split_once("// DEFECT(")?;
                let (kind, name) = marker.split_once(") ")?;
                (name == kernel).then(|| (line, kind.to_owned()))
            })
            .collect()
    }
}

fn device() -> &'static Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    DEVICE.get_or_init(|| {
        let options = SoftOptions {
            // More iterations than any finite loop of the tests, and reached quickly.
            step_limit: 1 << 16,
            ..SoftOptions::in_mode(Mode::Check)
        };
        soft::device(options).expect("the tests need the software device")
    })
}

#[expect(unsafe_code, reason = "check mode keeps defective kernels harmless")]
fn library(source: &Source) -> Library {
    let options = CompileOptions::labelled(source.path);
    // SAFETY: check mode performs no access outside the launch's memory, and every kernel ends.
    unsafe { device().library(source.text, &options) }.unwrap_or_else(|error| panic!("{error}"))
}

/// Launches a kernel with the arguments it declares.
fn launch(library: &Library, kernel: &str) -> Result<()> {
    let device = device();
    let pipeline = library.pipeline(kernel)?;
    let input: Vec<f32> = (0..THREADS).map(|i| ((i * 37) % 101) as f32).collect();
    let input = device.buffer_with_data(&input, StorageMode::Shared)?;
    let output = device.buffer(4 * THREADS, StorageMode::Shared)?;
    let table = device.buffer_with_data(&[1.0_f32, 2., 3., 4.], StorageMode::Shared)?;
    let mut commands = device.commands();
    let mut dispatch = commands.dispatch(&pipeline);
    for argument in pipeline.arguments() {
        dispatch = match argument.kind {
            ArgumentKind::Buffer(0) => dispatch.read_write(0, &output),
            ArgumentKind::Buffer(1) => dispatch.read(1, &input),
            ArgumentKind::Buffer(2) => dispatch.bytes(2, &(THREADS as u32)),
            ArgumentKind::Buffer(3) => dispatch.read(3, &table),
            ArgumentKind::ThreadgroupMemory(0) => {
                dispatch.threadgroup_memory(0, 4 * THREADS_PER_GROUP)
            }
            other => panic!("kernel `{kernel}` takes {other:?}, which the harness does not bind"),
        };
    }
    dispatch.threads(THREADS, THREADS_PER_GROUP)?;
    commands.commit()?.wait().map(|_| ())
}

fn describe(reports: &[Report]) -> String {
    let lines: Vec<_> = reports.iter().map(|r| format!("    {r}")).collect();
    lines.join("\n")
}

/// Returns a description of the mismatch between a kernel's outcome and its markers, if any.
fn mismatch(source: &Source, kernel: &str, outcome: Result<()>) -> Option<String> {
    let markers = source.markers(kernel);
    let expected: Vec<_> = markers
        .iter()
        .map(|(l, k)| format!("{k} on line {l}"))
        .collect();
    let expected = expected.join(" or ");
    match outcome {
        Ok(()) if markers.is_empty() => None,
        Ok(()) => Some(format!("`{kernel}`: expected {expected}, reported nothing")),
        Err(Error::Checked { reports }) => {
            let is_expected = |r: &Report| {
                r.file == source.path
                    && r.kernel == kernel
                    && markers.contains(&(r.line, r.kind.as_str().to_owned()))
            };
            if !reports.is_empty() && reports.iter().all(is_expected) {
                return None;
            }
            let expected = if markers.is_empty() {
                "no report".to_owned()
            } else {
                expected
            };
            Some(format!(
                "`{kernel}`: expected {expected}, reported\n{}",
                describe(&reports)
            ))
        }
        Err(other) => Some(format!("`{kernel}`: {other}")),
    }
}

/// Runs every kernel of a source, two at a time, and prints all failures.
fn check(source: &Source) {
    let library = library(source);
    let kernels = library.function_names();
    let defective = kernels
        .iter()
        .filter(|k| !source.markers(k).is_empty())
        .count();
    assert_eq!(
        (defective, kernels.len() - defective),
        (source.defective, source.correct),
        "defective and correct kernels in {}",
        source.path
    );
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(kernel) = kernels.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Some(failure) = mismatch(source, kernel, launch(&library, kernel)) {
                        failures
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push(failure);
                    }
                }
            });
        }
    });
    let failures = failures
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    assert!(
        failures.is_empty(),
        "{} of {} kernels of {}:\n{}",
        failures.len(),
        kernels.len(),
        source.path,
        failures.join("\n")
    );
}

#[test]
fn races_are_reported_and_race_free_kernels_are_clean() {
    check(&source!("race.metal", 19, 19));
}

#[test]
fn accesses_out_of_bounds_are_reported_and_those_in_bounds_are_clean() {
    check(&source!("bounds.metal", 17, 16));
}

#[test]
fn uninitialised_reads_are_reported_and_written_memory_is_clean() {
    check(&source!("uninitialised.metal", 8, 8));
}

#[test]
fn divergence_is_reported_and_uniform_control_flow_is_clean() {
    check(&source!("divergence.metal", 11, 16));
}

#[test]
fn reads_of_inactive_lanes_are_reported_and_full_simd_groups_are_clean() {
    check(&source!("simd.metal", 10, 9));
}

#[test]
fn endless_loops_are_reported_and_finite_ones_are_clean() {
    check(&source!("endless.metal", 5, 5));
}

#[test]
fn private_memory_defects_are_reported_and_valid_accesses_are_clean() {
    check(&source!("private.metal", 22, 20));
}

#[test]
fn undefined_arithmetic_and_misalignment_are_reported_and_defined_operations_are_clean() {
    check(&source!("arithmetic.metal", 16, 8));
}
