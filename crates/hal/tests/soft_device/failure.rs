//! Faulty kernels. Each failure is a typed error, and the device remains usable.

use std::time::{Duration, Instant};

use bessemer_hal::soft::{self, Mode, SoftOptions};
use bessemer_hal::{Buffer, CompileOptions, Device, Error, Fault, FunctionConstants, ReportKind};

use crate::setup::{check_add, device, empty, library, options, shared};

const FAULTY: &str = "#include <metal_stdlib>
using namespace metal;
kernel void endless(device volatile int* a [[buffer(0)]]) { while (a[0] == 0) { } }
kernel void divide(device int* a [[buffer(0)]]) { a[1] = a[1] / a[0]; }
kernel void wild(device int* a [[buffer(0)]], constant ulong& far [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  a[far * (i + 1)] = 7;
}
kernel void deep(device int* a [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  int big[200000];
  for (int k = 0; k < 200000; k++) big[k] = a[k & 1] + k;
  a[0] = big[(a[0] * 7919) % 200000];
}
";

/// A private array of 400 MB.
const LARGE_PRIVATE_ARRAY: &str = "#include <metal_stdlib>
using namespace metal;
kernel void large_private_array(device int* a [[buffer(0)]]) {
  int big[100000000];
  for (int k = 0; k < 100000000; k += 1000) big[k] = a[k & 1] + k;
  a[0] = big[(a[0] * 7919000) % 100000000];
}
";

fn device_with_short_timeout(mode: Mode) -> Device {
    soft::device(SoftOptions {
        timeout: Duration::from_millis(400),
        ..options(mode)
    })
    .unwrap()
}

/// Runs a faulty kernel on the elements 0 and 1.
fn run(device: &Device, kernel: &str) -> Error {
    let pipeline = library(device, FAULTY).pipeline(kernel).unwrap();
    let buffer = shared(device, &[0_i32, 1]);
    let mut commands = device.commands();
    let mut dispatch = commands.dispatch(&pipeline).read_write(0, &buffer);
    if kernel == "wild" {
        dispatch = dispatch.bytes(1, &(1_u64 << 36));
    }
    dispatch.threads(8, 8).unwrap();
    let error = commands.commit().unwrap().wait().unwrap_err();
    // Reading the buffer returns the same error.
    assert_eq!(buffer.to_vec::<i32>().unwrap_err(), error);
    error
}

/// Returns the fault and its kernel. Check mode reports an endless loop with its location.
fn fault(error: &Error) -> (Fault, &str) {
    match error {
        Error::Checked { reports } => match &reports[..] {
            [report] if report.kind == ReportKind::Timeout && report.line > 0 => {
                assert_eq!(report.file, "test.metal");
                (Fault::Timeout, &report.kernel)
            }
            other => panic!("{other:?}"),
        },
        Error::Execution { fault, kernel, .. } => (*fault, kernel.as_deref().unwrap_or_default()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_kernels_that_ran_without_a_failure_are_counted() {
    for mode in [Mode::Check, Mode::Isolated] {
        let device = device_with_short_timeout(mode);
        assert!(soft::executed(&device).unwrap().is_empty());
        check_add(&device);
        check_add(&device);
        run(&device, "wild");
        let executed = soft::executed(&device).unwrap();
        assert_eq!(executed, [("add".to_owned(), 2)].into());
    }
    let other = bessemer_hal::noop::device(bessemer_hal::Family::Apple7);
    assert!(soft::executed(&other).is_none());
}

#[test]
fn an_endless_kernel_is_stopped_at_the_time_limit() {
    for mode in Mode::ALL {
        let device = device_with_short_timeout(mode);
        let start = Instant::now();
        let error = run(&device, "endless");
        assert_eq!(
            fault(&error),
            (Fault::Timeout, "endless"),
            "{mode}: {error}"
        );
        assert!(start.elapsed() < Duration::from_secs(60), "{mode}");
        check_add(&device);
    }
}

#[test]
fn a_division_by_zero_is_an_error_if_the_processor_traps() {
    for mode in Mode::ALL {
        let device = device(mode);
        let error = run(&device, "divide");
        match &error {
            Error::Execution { fault, .. } => {
                assert!(
                    matches!(fault, Fault::DivisionByZero | Fault::Crash),
                    "{mode}: {error}"
                );
                assert_ne!(mode, Mode::Check);
            }
            Error::Checked { reports } => {
                assert_eq!(mode, Mode::Check);
                let found = reports.iter().any(|r| {
                    (r.kind, r.line, r.column, r.thread)
                        == (ReportKind::Division, 4, 63, Some([0, 0, 0]))
                });
                assert!(found, "{error}");
            }
            other => panic!("{mode}: {other:?}"),
        }
        check_add(&device);
    }
}

#[test]
fn a_kernel_continues_after_a_division_by_zero_in_check_mode() {
    let source = "#include <metal_stdlib>
using namespace metal;
kernel void k(const device int* a [[buffer(0)]], device int* b [[buffer(1)]],
              uint i [[thread_position_in_grid]]) {
  int unused = 7 / a[i];
  b[i] = b[i] % a[i];
}
";
    let device = device(Mode::Check);
    let pipeline = library(&device, source).pipeline("k").unwrap();
    let divisors = shared(&device, &[1_i32, 0, 2, 0]);
    let written = empty::<i32>(&device, 4);
    let mut commands = device.commands();
    commands
        .dispatch(&pipeline)
        .read(0, &divisors)
        .read_write(1, &written)
        .threads(4, 4)
        .unwrap();
    let Err(Error::Checked { reports }) = commands.commit().unwrap().wait() else {
        panic!("the division is not reported");
    };
    let found: Vec<_> = reports
        .iter()
        .map(|report| (report.kind, report.line, report.thread, report.count))
        .collect();
    let second = Some([1, 0, 0]);
    assert_eq!(
        found,
        [
            (ReportKind::Division, 5, second, 2),
            (ReportKind::Division, 6, second, 2)
        ]
    );
    check_add(&device);
}

#[test]
fn a_wild_write_is_an_error() {
    for mode in Mode::ALL {
        let device = device(mode);
        match run(&device, "wild") {
            Error::Execution { fault, .. } => {
                assert!(matches!(fault, Fault::PageFault | Fault::Crash), "{mode}");
                assert_ne!(mode, Mode::Check);
            }
            Error::Checked { reports } => {
                assert_eq!(mode, Mode::Check);
                assert_eq!(reports[0].kind, ReportKind::Bounds);
                assert_eq!(
                    (reports[0].file.as_str(), reports[0].line),
                    ("test.metal", 6)
                );
            }
            other => panic!("{mode}: {other:?}"),
        }
        check_add(&device);
    }
}

#[test]
fn large_private_arrays_work_and_those_beyond_the_stack_are_an_error() {
    let device = device(Mode::Fast);
    let launch = |source: &str, kernel: &str, buffer: &Buffer| -> Result<_, Error> {
        let pipeline = library(&device, source).pipeline(kernel)?;
        let mut commands = device.commands();
        commands
            .dispatch(&pipeline)
            .read_write(0, buffer)
            .threads(1, 1)?;
        commands.commit()?.wait()
    };
    // 800,000 bytes: element 3 * 7919 is odd, so it is 1 + 23,757.
    let buffer = shared(&device, &[3_i32, 1]);
    launch(FAULTY, "deep", &buffer).unwrap();
    assert_eq!(buffer.to_vec::<i32>().unwrap(), [23_758, 1]);
    let buffer = shared(&device, &[3_i32, 1]);
    let error = launch(LARGE_PRIVATE_ARRAY, "large_private_array", &buffer).unwrap_err();
    assert!(matches!(error, Error::Execution { .. }), "{error}");
    check_add(&device);
}

#[test]
fn a_failed_submission_does_not_affect_the_next() {
    let device = device_with_short_timeout(Mode::Fast);
    let library = library(&device, FAULTY);
    let (bad, good) = (shared(&device, &[0_i32, 1]), shared(&device, &[1_i32, 5]));
    let mut submissions = Vec::new();
    for (kernel, buffer) in [("endless", &bad), ("divide", &good)] {
        let pipeline = library.pipeline(kernel).unwrap();
        let mut commands = device.commands();
        commands
            .dispatch(&pipeline)
            .read_write(0, buffer)
            .threads(1, 1)
            .unwrap();
        submissions.push(commands.commit().unwrap());
    }
    assert!(submissions[0].wait().is_err());
    submissions[1].wait().unwrap();
    assert_eq!(good.to_vec::<i32>().unwrap(), [1, 5]);
}

#[test]
fn a_dropped_device_finishes_work_in_flight() {
    let submission = {
        let device = device(Mode::Fast);
        let buffer = empty::<i32>(&device, 1 << 16);
        let source = "kernel void slow(device int* a [[buffer(0)]], uint i [[thread_position_in_grid]]) {\n\
                      for (int k = 0; k < 2000; k++) a[i] = a[i] * 3 + k; }\n";
        let pipeline = library(&device, source).pipeline("slow").unwrap();
        let mut commands = device.commands();
        commands
            .dispatch(&pipeline)
            .read_write(0, &buffer)
            .threads(1 << 16, 256)
            .unwrap();
        commands.commit().unwrap()
    };
    submission.wait().unwrap();
}

const DEFECTIVE: &str = "#include <metal_stdlib>
using namespace metal;
kernel void race(device int* a [[buffer(0)]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup int s[64];
  s[t] = a[t];
  a[t] = s[63 - t];
}
kernel void beyond(device int* a [[buffer(0)]], uint t [[thread_position_in_grid]]) {
  a[t + 1] = 1;
}
kernel void unwritten(device int* a [[buffer(0)]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup int s[64];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  a[t] = s[t];
}
kernel void early(device int* a [[buffer(0)]], uint t [[thread_index_in_threadgroup]]) {
  if (t == 5) return;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  a[t] = 1;
}
";

#[test]
fn check_mode_reports_defects_with_their_lines() {
    let device = device(Mode::Check);
    let library = library(&device, DEFECTIVE);
    for (kernel, kind, line) in [
        ("race", ReportKind::Race, 6),
        ("beyond", ReportKind::Bounds, 9),
        ("unwritten", ReportKind::Uninitialised, 14),
        ("early", ReportKind::EarlyReturn, 18),
    ] {
        let pipeline = library.pipeline(kernel).unwrap();
        let buffer = empty::<i32>(&device, 64);
        let mut commands = device.commands();
        commands
            .dispatch(&pipeline)
            .read_write(0, &buffer)
            .threads(64, 64)
            .unwrap();
        let error = commands.commit().unwrap().wait().unwrap_err();
        let Error::Checked { reports } = &error else {
            panic!("{kernel}: {error:?}");
        };
        let expected = (kind, "test.metal", line, kernel);
        let found = reports
            .iter()
            .any(|r| (r.kind, r.file.as_str(), r.line, r.kernel.as_str()) == expected);
        assert!(found, "{error}");
    }
    check_add(&device);
}

#[test]
fn constants_that_crash_on_initialisation_are_an_error() {
    let source = "constant int divisor [[function_constant(0)]];\n\
                  constant int quotient = 7 / divisor;\n\
                  kernel void k(device int* a [[buffer(0)]]) { a[0] = quotient; }\n";
    for mode in [Mode::Fast, Mode::Isolated] {
        let device = device(mode);
        let library = library(&device, source);
        let make = |divisor: i32| {
            let constants = FunctionConstants::new().with(0, divisor);
            library.function_with("k", constants).unwrap().pipeline()
        };
        let error = make(0).unwrap_err();
        assert_eq!(fault(&error), (Fault::DivisionByZero, "k"), "{mode}");
        let pipeline = make(2).unwrap();
        let buffer = empty::<i32>(&device, 1);
        let mut commands = device.commands();
        commands
            .dispatch(&pipeline)
            .read_write(0, &buffer)
            .threads(1, 1)
            .unwrap();
        commands.commit().unwrap().wait().unwrap();
        assert_eq!(buffer.to_vec::<i32>().unwrap(), [3], "{mode}");
    }
}

#[test]
fn contained_libraries_need_an_isolated_device() {
    let options = CompileOptions::labelled("test.metal");
    let rejected = device(Mode::Fast).library_contained(FAULTY, &options);
    assert!(matches!(rejected, Err(Error::Unsupported { .. })));
    let device = device(Mode::Isolated);
    let pipeline = device
        .library_contained(FAULTY, &options)
        .unwrap()
        .pipeline("wild")
        .unwrap();
    let buffer = shared(&device, &[0_i32, 1]);
    let mut commands = device.commands();
    commands
        .dispatch(&pipeline)
        .read_write(0, &buffer)
        .bytes(1, &(1_u64 << 36))
        .threads(8, 8)
        .unwrap();
    assert!(commands.commit().unwrap().wait().is_err());
}

#[test]
fn endless_loops_time_out_whatever_their_body_is() {
    const LOOPS: &str = "#include <metal_stdlib>
using namespace metal;
kernel void empty(device int* a [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  if (i == 0) return;
  while (true) { }
}
kernel void counts(device int* a [[buffer(0)]]) { while (true) { a[0] += 1; } }
kernel void steps(device uint* a [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  uint k = 2 * a[0];
  while (k != 7u) { k += 2; a[i] = k; }
}
kernel void spins(device int* a [[buffer(0)]]) { for (int k = a[0]; k >= 0; k = (k + 1) & 0xff) { } a[1] = 3; }
";
    for mode in Mode::ALL {
        let device = device_with_short_timeout(mode);
        let library = library(&device, LOOPS);
        for (kernel, line) in [("empty", 5), ("counts", 7), ("steps", 10), ("spins", 12)] {
            let pipeline = library.pipeline(kernel).unwrap();
            let buffer = shared(&device, &[0_i32; 8]);
            let mut commands = device.commands();
            commands
                .dispatch(&pipeline)
                .read_write(0, &buffer)
                .threads(8, 8)
                .unwrap();
            let error = commands.commit().unwrap().wait().unwrap_err();
            assert_eq!(fault(&error), (Fault::Timeout, kernel), "{mode}: {error}");
            if let Error::Checked { reports } = &error {
                assert_eq!((mode, reports[0].line), (Mode::Check, line), "{error}");
                assert!(reports[0].thread.is_some());
            }
        }
        check_add(&device);
    }
}

#[test]
fn check_mode_counts_loop_iterations() {
    const LOOPS: &str = "#include <metal_stdlib>
using namespace metal;
kernel void counts(device uint* a [[buffer(0)]], constant uint& n [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  uint k = a[i];
  for (uint e = 0; e < n; e++) k = k * 3 + 1;
  threadgroup_barrier(mem_flags::mem_device);
  for (uint e = 0; e < n; e++) {
    k = k * 5 + 1;
  }
  a[i] = k;
}
";
    let device = soft::device(SoftOptions {
        step_limit: 1000,
        ..options(Mode::Check)
    })
    .unwrap();
    let pipeline = library(&device, LOOPS).pipeline("counts").unwrap();
    let run = |n: u32| {
        let buffer = shared(&device, &[0_u32; 64]);
        let mut commands = device.commands();
        commands
            .dispatch(&pipeline)
            .read_write(0, &buffer)
            .bytes(1, &n)
            .threads(64, 64)?;
        commands.commit()?.wait()
    };
    // The count restarts at the barrier.
    run(900).unwrap();
    let error = run(1001).unwrap_err();
    assert_eq!(fault(&error), (Fault::Timeout, "counts"));
    let Error::Checked { reports } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(reports[0].line, 5, "{error}");
    assert_eq!(
        reports[0].message,
        "a loop has not ended after 1000 iterations"
    );
    assert_eq!(reports[0].thread, Some([0, 0, 0]));
}

#[test]
fn overruns_are_attributed_to_the_allocation_the_pointer_is_derived_from() {
    const OVERRUNS: &str = "#include <metal_stdlib>
using namespace metal;
kernel void into_another(device float* a [[buffer(0)]], device float* b [[buffer(1)]], constant long& far [[buffer(2)]]) {
  a[far] = b[0];
}
kernel void far_from_tile(device float* a [[buffer(0)]], device float* b [[buffer(1)]], constant long& far [[buffer(2)]]) {
  threadgroup float tile[16];
  tile[0] = 1;
  for (long k = 0; k < 2; k++) b[0] += tile[k * far];
}
kernel void into_the_next_tile(device float* a [[buffer(0)]], device float* b [[buffer(1)]], constant long& far [[buffer(2)]],
                               threadgroup float* c [[threadgroup(0)]]) {
  threadgroup float tile[16];
  tile[0] = 1;
  c[0] = 2;
  threadgroup float* p = c;
  for (long k = 0; k < 2; k++) { *p = far; p += k * far; }
  b[0] = *p + tile[0];
}
kernel void from_either(device float* a [[buffer(0)]], device float* b [[buffer(1)]], constant long& far [[buffer(2)]]) {
  device float* p = far == 5 ? a : b;
  p[far] = 1;
}
";
    let device = device(Mode::Check);
    let library = library(&device, OVERRUNS);
    let reports = |kernel: &str, far: Option<i64>| {
        let pipeline = library.pipeline(kernel).unwrap();
        let (a, b) = (empty::<f32>(&device, 16), empty::<f32>(&device, 16));
        let distance = b.contents().unwrap().as_ptr().addr() as i64
            - a.contents().unwrap().as_ptr().addr() as i64;
        let mut commands = device.commands();
        let mut dispatch = commands
            .dispatch(&pipeline)
            .read_write(0, &a)
            .read_write(1, &b)
            .bytes(2, &far.unwrap_or(distance / 4));
        if kernel == "into_the_next_tile" {
            dispatch = dispatch.threadgroup_memory(0, 64);
        }
        dispatch.threads(1, 1).unwrap();
        match commands.commit().unwrap().wait() {
            Err(Error::Checked { reports }) => (distance, reports),
            other => panic!("{kernel}: {other:?}"),
        }
    };
    // Buffer 1 may be written, but not through the pointer to buffer 0.
    let (distance, found) = reports("into_another", None);
    assert_eq!((found[0].line, found[0].buffer), (4, Some(0)));
    assert_eq!(
        found[0].message,
        format!("write of 4 bytes at offset {distance} of buffer 0 (`a`), which has 64 bytes")
    );
    let (_, found) = reports("far_from_tile", Some(22_544_907));
    assert_eq!((found[0].line, found[0].buffer), (9, None));
    assert_eq!(
        found[0].message,
        "read of 4 bytes at offset 90179628 of threadgroup variable `tile`, which has 64 bytes"
    );
    let (_, found) = reports("into_the_next_tile", Some(-80));
    assert_eq!(
        found[0].message,
        "read of 4 bytes at offset -320 of threadgroup argument 0 (`c`), which has 64 bytes"
    );
    let (_, found) = reports("from_either", Some(1 << 40));
    assert_eq!((found[0].line, found[0].buffer), (22, None));
    assert!(
        found[0]
            .message
            .ends_with("which is outside of every buffer")
    );
    check_add(&device);
}

#[test]
fn shuffles_from_beyond_a_partial_simd_group_are_reported() {
    const SHUFFLES: &str = "#include <metal_stdlib>
using namespace metal;
kernel void sum(device float* a [[buffer(0)]], constant uint& start [[buffer(1)]], uint i [[thread_position_in_grid]],
                uint lane [[thread_index_in_simdgroup]]) {
  float v = 1;
  for (ushort offset = start; offset > 0; offset /= 2)
    v += simd_shuffle_down(v, offset);
  if (lane == 0) a[i] = v;
}
";
    let device = device(Mode::Check);
    let pipeline = library(&device, SHUFFLES).pipeline("sum").unwrap();
    let run = |start: u32, threads: usize| {
        let buffer = shared(&device, &[0_f32; 64]);
        let mut commands = device.commands();
        commands
            .dispatch(&pipeline)
            .read_write(0, &buffer)
            .bytes(1, &start)
            .threads(threads, threads)?;
        commands.commit()?.wait()?;
        buffer.to_vec::<f32>()
    };
    assert_eq!(run(16, 64).unwrap()[32], 32.0);
    assert_eq!(run(4, 8).unwrap()[0], 8.0);
    let error = run(16, 40).unwrap_err();
    let Error::Checked { reports } = &error else {
        panic!("{error:?}");
    };
    let report = &reports[0];
    assert_eq!((report.kind, report.line), (ReportKind::InactiveLane, 7));
    assert_eq!(report.thread, Some([32, 0, 0]));
    assert_eq!(
        report.message,
        "lane 0 reads the value of lane 16, which does not exist: the SIMD-group has 8 threads"
    );
}

#[test]
fn suppressed_reports_are_counted() {
    const RACES: &str = "#include <metal_stdlib>
using namespace metal;
kernel void allowed(device int* a [[buffer(0)]]) {
  a[0] = 1;  // bessemer: allow(race) all threads write the same value
  // bessemer: allow(bounds, race)
  a[1] = 2;
}
kernel void partly(device int* a [[buffer(0)]]) {
  a[0] = 1;  // bessemer: allow(race)
  a[1] = 2;  // bessemer: allow(bounds)
}
kernel void misspelt(device int* a [[buffer(0)]]) {
  a[0] = 1;  // bessemer: allow(races)
}
";
    let device = device(Mode::Check);
    let library = library(&device, RACES);
    let run = |kernel: &str| {
        let pipeline = library.pipeline(kernel).unwrap();
        let buffer = empty::<i32>(&device, 2);
        let mut commands = device.commands();
        commands
            .dispatch(&pipeline)
            .read_write(0, &buffer)
            .threads(64, 64)
            .unwrap();
        match commands.commit().unwrap().wait() {
            Ok(_) => {
                assert_eq!(buffer.to_vec::<i32>().unwrap(), [1, 2]);
                Vec::new()
            }
            Err(Error::Checked { reports }) => reports,
            Err(other) => panic!("{kernel}: {other}"),
        }
    };
    assert_eq!(run("allowed"), []);
    assert_eq!(soft::suppressed(&device), Some(2));
    let reports = run("partly");
    assert_eq!((reports.len(), reports[0].line), (1, 10));
    assert_eq!(soft::suppressed(&device), Some(3));
    let reports = run("misspelt");
    assert!(
        reports[0]
            .message
            .ends_with("allows `races`, which is not a kind of report"),
        "{}",
        reports[0]
    );
    assert_eq!(soft::suppressed(&device), Some(3));
}
