//! Custom kernels in the graph: laziness, launches and barriers, fusion around them, memory, times.

use bessemer::{DType, Device, Tensor, explain};
use bessemer_hal::{Family, noop};

use super::{axpy, double, on_device, run, trusted, wave};

fn recording() -> Device {
    Device::on(noop::device(Family::Apple7))
}

/// Values that are in memory of the device.
fn data(device: &Device, count: usize) -> Tensor {
    let x = Tensor::zeros([count], DType::F32).to(device).contiguous();
    x.eval().unwrap();
    device.synchronize().unwrap();
    x
}

/// Launches, barriers and allocations of an evaluation, with the kernels' names.
fn cost(device: &Device, tensors: &[&Tensor]) -> (Vec<String>, u64, u64) {
    let hal = device.hal().unwrap();
    device.synchronize().unwrap();
    noop::clear(hal);
    bessemer::eval(tensors).unwrap();
    device.synchronize().unwrap();
    let record = noop::record(hal).unwrap();
    let names = record.events.into_iter().filter_map(|event| match event {
        noop::Event::Dispatch { kernel, .. } => Some(kernel),
        _ => None,
    });
    (
        names.collect(),
        record.counts.barriers,
        record.counts.allocations,
    )
}

#[test]
fn nothing_runs_before_a_value_is_needed() {
    let device = recording();
    let x = data(&device, 5000);
    noop::clear(device.hal().unwrap());
    let y = axpy()
        .call(&[&x, &x])
        .scalar("a", 1.0)
        .threads(5000)
        .run()
        .unwrap();
    device.synchronize().unwrap();
    assert_eq!(
        noop::record(device.hal().unwrap())
            .unwrap()
            .counts
            .dispatches,
        0
    );
    assert!(!y.is_evaluated());
    assert_eq!(format!("{y:?}"), "Tensor(f32 [5000], axpy pending)");
    y.eval().unwrap();
    device.synchronize().unwrap();
    assert_eq!(
        noop::record(device.hal().unwrap())
            .unwrap()
            .counts
            .dispatches,
        1
    );
}

#[test]
fn elementwise_ops_are_fused_before_and_after_without_copies() {
    let device = recording();
    let x = data(&device, 5000);
    let scaled = (&x * 2.0 + 1.0).exp();
    let y = axpy()
        .call(&[&scaled, &x])
        .scalar("a", 1.0)
        .threads(5000)
        .run()
        .unwrap();
    let z = (y.tanh() - 1.0) * &x;
    drop((scaled, y));
    let plan = explain(&[&z]).unwrap();
    let ops: Vec<_> = plan.steps.iter().map(|step| step.ops.join(" ")).collect();
    assert_eq!(ops, ["mul add exp", "axpy", "tanh sub mul"]);
    assert_eq!(
        (plan.steps[1].bytes_read, plan.steps[1].bytes_written),
        (40_000, 20_000)
    );
    assert!(plan.steps[2].in_place, "{plan}");
    let (kernels, barriers, _) = cost(&device, &[&z]);
    assert_eq!(
        (kernels.len(), kernels[1].as_str(), barriers),
        (3, "axpy", 2)
    );
}

#[test]
fn independent_calls_need_no_barrier() {
    let device = recording();
    let x = data(&device, 5000);
    let call = |a: f32| {
        axpy()
            .call(&[&x, &x])
            .scalar("a", a)
            .threads(5000)
            .run()
            .unwrap()
    };
    let (kernels, barriers, _) = cost(&device, &[&call(1.0), &call(2.0)]);
    assert_eq!((kernels.len(), barriers), (2, 0));
}

#[test]
fn a_dying_inout_argument_is_updated_in_place_and_others_are_copied() {
    let device = recording();
    let x = data(&device, 5000);
    let dying = double().call(&[&(&x + 1.0)]).threads(5000).run().unwrap();
    assert!(explain(&[&dying]).unwrap().steps[1].in_place);
    let (kernels, barriers, allocations) = cost(&device, &[&dying]);
    assert_eq!((kernels.len(), kernels[1].as_str()), (2, "double_it"));
    assert_eq!(
        (barriers, allocations),
        (1, 1),
        "one launch waits for the other; they share memory"
    );

    let alive = double().call(&[&x]).threads(5000).run().unwrap();
    assert!(!explain(&[&alive]).unwrap().steps[0].in_place);
    let (kernels, barriers, _) = cost(&device, &[&alive]);
    assert_eq!(
        (kernels.len(), kernels[1].as_str(), barriers),
        (2, "double_it", 1)
    );
    assert!(kernels[0].starts_with("copy_dense"), "{kernels:?}");
}

#[test]
fn a_value_updated_in_place_is_right() {
    let x = on_device(&Tensor::from_slice(&wave(5000), [5000]));
    let mut y = &x + 1.0;
    for _ in 0..3 {
        y = run(double().call(&[&y]).threads(5000));
    }
    let expected: Vec<f32> = wave(5000).iter().map(|v| 8.0 * (v + 1.0)).collect();
    assert_eq!(y.to_vec::<f32>().unwrap(), expected);
    assert_eq!(x.to_vec::<f32>().unwrap(), wave(5000));
}

#[test]
fn memory_of_results_comes_from_the_pool() {
    let device = recording();
    let x = data(&device, 5000);
    let once = || {
        let y = axpy()
            .call(&[&x, &x])
            .scalar("a", 1.0)
            .threads(5000)
            .run()
            .unwrap();
        cost(&device, &[&y]).2
    };
    assert_eq!((once(), once(), once()), (1, 0, 0));
}

#[test]
fn every_output_of_a_launch_is_written_by_one_launch() {
    let kernel =
        bessemer::custom::MetalKernel::body("split", "low[i] = x[i] - 1; high[i] = x[i] + 1;")
            .input("x")
            .output("low")
            .output("high")
            .index("i")
            .build()
            .unwrap();
    let device = recording();
    let x = data(&device, 5000);
    let results = kernel.call(&[&x]).threads(5000).run_all().unwrap();
    let sum = &results[0] * &results[1];
    let plan = explain(&[&sum]).unwrap();
    let ops: Vec<_> = plan.steps.iter().map(|step| step.ops.join(" ")).collect();
    assert_eq!(ops, ["split", "mul"]);
    assert_eq!(plan.steps[0].bytes_written, 40_000);
    drop(results);
    let (kernels, barriers, allocations) = cost(&device, &[&sum]);
    assert_eq!((kernels.len(), barriers, allocations), (2, 1, 2));
}

#[test]
fn equal_calls_are_separate_launches() {
    let device = recording();
    let x = data(&device, 64);
    let call = || {
        axpy()
            .call(&[&x, &x])
            .scalar("a", 1.0)
            .threads(64)
            .run()
            .unwrap()
    };
    let sum = call() + call();
    assert_eq!(cost(&device, &[&sum]).0.len(), 3);
}

#[test]
fn a_failed_allocation_keeps_the_arguments() {
    let device = Device::on(noop::device(Family::Apple7));
    let x = data(&device, 5000);
    let y = double().call(&[&(&x + 1.0)]).threads(5000).run().unwrap();
    let z = axpy()
        .call(&[&y, &x])
        .scalar("a", 1.0)
        .threads(5000)
        .run()
        .unwrap();
    drop(y);
    device.clear_cache();
    let hal = device.hal().unwrap();
    for calls in 1..3 {
        hal.fail_allocation(calls);
        // Out of memory at first; the pool then tries again.
        let _ = z.eval();
        hal.fail_allocation(0);
    }
    z.eval().unwrap();
}

#[test]
fn a_call_can_be_timed() {
    let x = on_device(&Tensor::from_slice(&wave(5000), [5000]));
    let call = trusted(axpy().call(&[&x, &x]).scalar("a", 1.0).threads(5000));
    let (results, timing) = call.run_timed().unwrap();
    assert!(results[0].is_evaluated());
    assert!(
        !timing.gpu_time.is_zero() && timing.gpu_time <= timing.wall_time,
        "{timing:?}"
    );
    let expected: Vec<f32> = wave(5000).iter().map(|v| v + v).collect();
    assert_eq!(results[0].to_vec::<f32>().unwrap(), expected);
}

#[test]
fn a_result_can_be_stored_in_memory_of_the_caller() {
    let device = super::device();
    let buffers = bessemer::external::ExternalBuffers::new(&device).unwrap();
    let hal = device.hal().unwrap();
    let buffer = hal
        .buffer(64 * 4, bessemer_hal::StorageMode::Shared)
        .unwrap();
    let slice = buffer.slice(0..256).unwrap();
    let x = on_device(&Tensor::from_slice(&wave(64), [64]));
    buffers
        .store(run(double().call(&[&x]).threads(64)), &slice, &[])
        .unwrap();
    buffers.wait("store", &buffer).unwrap();
    let expected: Vec<f32> = wave(64).iter().map(|v| v + v).collect();
    assert_eq!(buffer.to_vec::<f32>().unwrap(), expected);
}

#[test]
fn empty_tensors_need_no_grid_of_threads() {
    let x = on_device(&Tensor::zeros([0], DType::F32));
    let y = run(axpy().call(&[&x, &x]).scalar("a", 1.0).threads(0));
    assert!(y.to_vec::<f32>().unwrap().is_empty());
}

#[test]
fn a_compiled_function_replays_custom_kernels() {
    let (axpy, double) = (axpy(), double());
    let f = |x: &Tensor, y: &Tensor| {
        let z = run(axpy.call(&[&(x + 1.0), y]).scalar("a", 0.5).threads(600));
        // One updates an intermediate value in place, the other a value that is kept.
        let z = run(double.call(&[&(&z * 3.0)]).threads(600));
        [run(double.call(&[&z]).threads(600)), z]
    };
    let compiled = bessemer::compile(|t: &[Tensor]| f(&t[0], &t[1]));
    for shift in 0..3 {
        let all = wave(700);
        let x = on_device(&Tensor::from_slice(&all[shift..][..600], [600]));
        let y = on_device(&Tensor::from_slice(&all[50 + shift..][..600], [600]));
        let found = compiled.call(&[&x, &y]).unwrap();
        for (found, expected) in found.iter().zip(f(&x, &y)) {
            let bits = |t: &Tensor| t.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits);
            assert!(bits(found).eq(bits(&expected)), "call {shift}");
        }
    }
    let report = &compiled.explain()[0];
    assert_eq!(report.not_replayed, None, "{report}");
    // An addition, axpy, a product, a doubling in place, and a copy that is doubled.
    assert_eq!((compiled.traces(), report.launches), (1, 6), "{report}");
    assert_eq!(report.plan.launches(), 6, "{report}");
}

#[test]
fn threads_may_evaluate_the_results_of_one_launch() {
    let kernel =
        bessemer::custom::MetalKernel::body("split", "low[i] = x[i] - 1; high[i] = x[i] + 1;")
            .input("x")
            .output("low")
            .output("high")
            .index("i")
            .build()
            .unwrap();
    let data = wave(3000);
    for _ in 0..20 {
        let x = on_device(&Tensor::from_slice(&data, [3000]));
        let results = trusted(kernel.call(&[&(&x * 2.0)]).threads(3000))
            .run_all()
            .unwrap();
        let values: Vec<Vec<f32>> = std::thread::scope(|scope| {
            let read = |result| scope.spawn(move || Tensor::to_vec::<f32>(result).unwrap());
            let threads: Vec<_> = results.iter().map(read).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        for (values, offset) in values.iter().zip([-1.0, 1.0]) {
            let expected: Vec<f32> = data.iter().map(|v| 2.0 * v + offset).collect();
            assert_eq!(values, &expected);
        }
    }
}

#[test]
fn a_failed_submission_leaves_the_device_usable() {
    let device = recording();
    let x = data(&device, 5000);
    let call = || {
        axpy()
            .call(&[&x, &x])
            .scalar("a", 1.0)
            .threads(5000)
            .run()
            .unwrap()
    };
    device.hal().unwrap().fail_submission(1);
    assert!(call().to_vec::<f32>().is_err());
    assert!(call().to_vec::<f32>().is_ok());
}
