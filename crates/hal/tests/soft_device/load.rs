//! Many threads, many dispatches.

use std::sync::atomic::{AtomicBool, Ordering};

use bessemer_hal::soft::Mode;

use crate::setup::{ADD, check_add, device, empty, fast, library, shared};

#[test]
fn eight_threads_record_and_submit_concurrently() {
    for mode in [Mode::Fast, Mode::Isolated] {
        let device = device(mode);
        let pipeline = library(&device, ADD).pipeline("add").unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (device, pipeline) = (&device, &pipeline);
                scope.spawn(move || {
                    let a = shared(device, &[thread as f32; 100]);
                    let c = empty::<f32>(device, 100);
                    for round in 0..20 {
                        let b = shared(device, &[round as f32; 100]);
                        let mut commands = device.commands();
                        commands
                            .dispatch(pipeline)
                            .read(0, &a)
                            .read(1, &b)
                            .read_write(2, &c)
                            .bytes(3, &100_u32)
                            .threads(100, 64)
                            .unwrap();
                        let _in_flight = commands.commit().unwrap();
                        let sum = (thread + round) as f32;
                        assert_eq!(c.to_vec::<f32>().unwrap(), [sum; 100]);
                    }
                });
            }
        });
    }
}

/// Returns the resident set size of this process in bytes.
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn a_hundred_thousand_dispatches_do_not_leak_memory() {
    let device = fast();
    let source = "kernel void increment(device uint* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] += 1; }";
    let pipeline = library(&device, source).pipeline("increment").unwrap();
    let counter = shared(&device, &[0_u32; 8]);
    let dispatch_thousand = || {
        let mut commands = device.commands();
        for _ in 0..1000 {
            commands
                .dispatch(&pipeline)
                .read_write(0, &counter)
                .threads(8, 8)
                .unwrap();
        }
        commands.commit().unwrap().wait().unwrap();
    };
    for _ in 0..10 {
        dispatch_thousand();
    }
    let before = resident_bytes();
    for _ in 0..90 {
        dispatch_thousand();
    }
    let grown = resident_bytes().saturating_sub(before);
    assert_eq!(counter.to_vec::<u32>().unwrap(), [100_000; 8]);
    // Other tests run concurrently and allocate memory.
    assert!(grown < 64 << 20, "grew by {grown} bytes");
}

#[test]
fn pipelines_do_not_leak_file_descriptors() {
    let source = "constant uint n [[function_constant(0)]];\n\
                  kernel void k(device uint* x [[buffer(0)]]) { x[0] = n; }";
    let device = fast();
    let x = shared(&device, &[0_u32]);
    let files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = files();
    for round in 0..200_u32 {
        // A library each time: libraries keep their pipelines.
        let library = library(&device, source);
        let constants = bessemer_hal::FunctionConstants::new().with(0, round);
        let pipeline = library
            .function_with("k", constants)
            .unwrap()
            .pipeline()
            .unwrap();
        let mut commands = device.commands();
        commands
            .dispatch(&pipeline)
            .read_write(0, &x)
            .threads(1, 1)
            .unwrap();
        commands.commit().unwrap().wait().unwrap();
        assert_eq!(x.to_vec::<u32>().unwrap(), [round]);
    }
    assert!(files() < before + 60, "descriptors are closed");
    check_add(&device);
}

#[test]
fn isolated_submissions_run_while_other_threads_load_images() {
    let source = "constant uint n [[function_constant(0)]];\n\
                  kernel void k(device uint* x [[buffer(0)]]) { x[0] = n; }";
    let constants = |n: u32| bessemer_hal::FunctionConstants::new().with(0, n);
    let isolated = device(Mode::Isolated);
    let x = shared(&isolated, &[0_u32]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let device = fast();
                let library = library(&device, source);
                let mut round = 0;
                while round < 3000 && !stop.load(Ordering::Relaxed) {
                    round += 1;
                    let function = library.function_with("k", constants(round)).unwrap();
                    function.pipeline().unwrap();
                }
            });
        }
        let library = library(&isolated, source);
        for round in 0..40 {
            let function = library.function_with("k", constants(round)).unwrap();
            let pipeline = function.pipeline().unwrap();
            let mut commands = isolated.commands();
            commands
                .dispatch(&pipeline)
                .read_write(0, &x)
                .threads(1, 1)
                .unwrap();
            commands.commit().unwrap().wait().unwrap();
            assert_eq!(x.to_vec::<u32>().unwrap(), [round]);
        }
        stop.store(true, Ordering::Relaxed);
    });
}
