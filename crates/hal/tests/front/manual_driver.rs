//! Tests with a driver that the test controls: reflection, waiting, failures in flight.

use std::any::Any;
use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bessemer_hal::driver::{self, CommandList, HostMemory};
use bessemer_hal::{
    Access, Argument, ArgumentKind, Buffer, Commands, CompileOptions, Completed, Completion,
    Device, DeviceInfo, Error, Fault, FunctionConstants, Matrix, MatrixElement, MatrixProduct,
    PipelineInfo, Result, Size, StorageMode,
};

use super::{DEVICE_NAME, binding, labelled, launch, pipeline, recording};

/// A driver whose pipelines and completions are controlled by the test.
#[derive(Debug)]
struct ManualDriver {
    info: DeviceInfo,
    pipeline: PipelineInfo,
    submitted: Mutex<Vec<(CommandList, Arc<Completion>)>>,
    refuses: AtomicBool,
    /// Its reference count is one more than the number of residency guards.
    resident: Arc<()>,
}

impl ManualDriver {
    fn device(pipeline: PipelineInfo) -> Device {
        Device::from_driver(Arc::new(Self {
            info: recording().info().clone(),
            pipeline,
            submitted: Mutex::default(),
            refuses: AtomicBool::new(false),
            resident: Arc::default(),
        }))
    }

    fn finish(&self, result: Result<Completed>) {
        let (list, completion) = self
            .submitted
            .lock()
            .expect("no test panics while it holds the lock")
            .remove(0);
        drop(list);
        completion.finish(result);
    }
}

impl driver::Device for ManualDriver {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate(
        &self,
        length: usize,
        mode: StorageMode,
        _: driver::Contents,
    ) -> Result<Arc<dyn driver::Buffer>> {
        if mode == StorageMode::Managed {
            return Err(Error::Unsupported {
                what: "managed storage".to_owned(),
                device: DEVICE_NAME.to_owned(),
            });
        }
        Ok(Arc::new(Bytes(
            (0..length.div_ceil(8))
                .map(|_| std::sync::atomic::AtomicU64::new(0))
                .collect(),
        )))
    }

    fn adopt(&self, _: HostMemory) -> Result<Arc<dyn driver::Buffer>> {
        unreachable!("no test adopts memory here")
    }

    fn keep_resident(&self) -> Option<Box<dyn Any + Send + Sync>> {
        Some(Box::new(self.resident.clone()))
    }

    fn compile(&self, _: &str, _: &CompileOptions) -> Result<Arc<dyn driver::Library>> {
        Ok(Arc::new(OneKernel(self.pipeline.clone())))
    }

    fn submit(&self, list: CommandList, completion: Arc<Completion>) -> Result<()> {
        if self.refuses.load(Ordering::SeqCst) {
            return Err(refused());
        }
        self.submitted
            .lock()
            .expect("no test panics while it holds the lock")
            .push((list, completion));
        Ok(())
    }

    fn start_capture(&self, _: &Path) -> Result<()> {
        Ok(())
    }

    fn stop_capture(&self) {}

    fn contains_kernels(&self) -> bool {
        true
    }
}

fn refused() -> Error {
    Error::Execution {
        fault: Fault::Refused,
        kernel: None,
        message: "not now".to_owned(),
    }
}

#[derive(Debug)]
struct Bytes(Box<[std::sync::atomic::AtomicU64]>);

impl driver::Buffer for Bytes {
    fn contents(&self) -> Option<NonNull<u8>> {
        NonNull::new(self.0.as_ptr().cast_mut().cast())
    }

    fn did_modify_range(&self, _: Range<usize>) {}

    fn set_label(&self, _: &str) {}
}

#[derive(Debug)]
struct OneKernel(PipelineInfo);

impl driver::Library for OneKernel {
    fn function_names(&self) -> Vec<String> {
        vec![self.0.name.clone()]
    }

    fn pipeline(&self, _: &str, _: &FunctionConstants) -> Result<Arc<dyn driver::Pipeline>> {
        Ok(Arc::new(OnePipeline(self.0.clone())))
    }
}

#[derive(Debug)]
struct OnePipeline(PipelineInfo);

impl driver::Pipeline for OnePipeline {
    fn info(&self) -> &PipelineInfo {
        &self.0
    }
}

fn no_arguments() -> PipelineInfo {
    PipelineInfo {
        name: "k".to_owned(),
        max_total_threads_per_threadgroup: 1024,
        thread_execution_width: 32,
        static_threadgroup_memory: 0,
        arguments: None,
    }
}

fn argument(name: &str, kind: ArgumentKind, access: Access, min_bytes: usize) -> Argument {
    Argument {
        name: name.to_owned(),
        kind,
        access,
        min_bytes,
        active: true,
    }
}

#[test]
fn bindings_are_checked_against_the_kernel_s_arguments() {
    let mut optional = argument("mask", ArgumentKind::Buffer(3), Access::Read, 0);
    optional.active = false;
    let device = ManualDriver::device(PipelineInfo {
        static_threadgroup_memory: 1024,
        arguments: Some(vec![
            argument("x", ArgumentKind::Buffer(0), Access::Read, 0),
            argument("y", ArgumentKind::Buffer(1), Access::ReadWrite, 0),
            argument("n", ArgumentKind::Buffer(2), Access::Read, 4),
            optional,
            argument(
                "scratch",
                ArgumentKind::ThreadgroupMemory(0),
                Access::ReadWrite,
                0,
            ),
        ]),
        ..no_arguments()
    });
    let kernel = pipeline(&device, "k");
    let a = labelled(&device, 64, "a");
    let mut commands = device.commands();
    let ready = |commands: &mut Commands, memory: usize| {
        commands
            .dispatch(&kernel)
            .read(0, &a)
            .write(1, &a)
            .bytes(2, &1_u32)
            .threadgroup_memory(0, memory)
            .threads(1, 1)
    };
    assert_eq!(ready(&mut commands, 64), Ok(()));
    assert_eq!(
        ready(&mut commands, 32 * 1024),
        Err(launch(
            "k",
            "33792 bytes of threadgroup memory are more than the maximum of 32768"
        ))
    );
    let mut refuse = |expected: Error, bind: &dyn Fn(Bind<'_>) -> Bind<'_>| {
        assert_eq!(
            bind(commands.dispatch(&kernel)).threads(1, 1),
            Err(expected)
        );
    };
    refuse(binding("x", "nothing is bound"), &|d| d);
    refuse(
        binding("y", "bound for reading, but the kernel may write it"),
        &|d| d.read(0, &a).read(1, &a),
    );
    refuse(
        binding("n", "2 bytes are bound, the kernel needs 4"),
        &|d| d.read(0, &a).write(1, &a).bytes(2, &1_u16),
    );
    refuse(
        binding("scratch", "no length given for threadgroup memory 0"),
        &|d| d.read(0, &a).write(1, &a).bytes(2, &1_u32),
    );
    refuse(
        binding("scratch", "no length given for threadgroup memory 0"),
        &|d| {
            d.read(0, &a)
                .write(1, &a)
                .bytes(2, &1_u32)
                .threadgroup_memory(1, 16)
        },
    );
    assert_eq!(commands.len(), 1);
}

#[test]
fn unused_bindings_are_allowed() {
    let device = ManualDriver::device(PipelineInfo {
        arguments: Some(vec![argument(
            "x",
            ArgumentKind::Buffer(0),
            Access::Read,
            0,
        )]),
        ..no_arguments()
    });
    let kernel = pipeline(&device, "k");
    let (a, b) = (labelled(&device, 64, "a"), labelled(&device, 64, "b"));
    let mut commands = device.commands();
    let launch = |commands: &mut Commands| {
        let dispatch = commands.dispatch(&kernel).write(0, &a);
        dispatch.write(7, &b).bytes(8, &1_u32).threads(1, 1)
    };
    assert_eq!(launch(&mut commands), Ok(()));
    // Nothing accesses `b`; a buffer bound for writing counts as written.
    commands.fill(&b, 0).unwrap();
    assert_eq!(commands.barriers(), 0);
    assert_eq!(launch(&mut commands), Ok(()));
    assert_eq!(commands.barriers(), 1);
    assert_eq!(commands.len(), 3);
}

type Bind<'a> = bessemer_hal::Dispatch<'a>;

#[test]
fn an_unknown_kernel_is_reported_with_the_known_names() {
    let device = ManualDriver::device(no_arguments());
    let library = device
        .library_contained("", &CompileOptions::labelled("one"))
        .unwrap();
    assert_eq!(library.function_names(), ["k"]);
    assert_eq!(
        library.pipeline("q").map(|p| p.name().to_owned()),
        Err(Error::UnknownFunction {
            library: "one".to_owned(),
            name: "q".to_owned(),
            available: vec!["k".to_owned()],
        })
    );
}

#[test]
fn threadgroup_sizes_follow_the_pipeline() {
    struct Case {
        most: usize,
        width: usize,
        one: Size,
        two: Size,
    }
    let cases = [
        Case {
            most: 1024,
            width: 32,
            one: Size::x(256),
            two: Size::xy(32, 8),
        },
        Case {
            most: 200,
            width: 32,
            one: Size::x(192),
            two: Size::xy(32, 6),
        },
        Case {
            most: 64,
            width: 64,
            one: Size::x(64),
            two: Size::xy(64, 1),
        },
        Case {
            most: 20,
            width: 32,
            one: Size::x(20),
            two: Size::xy(20, 1),
        },
    ];
    for case in cases {
        let device = ManualDriver::device(PipelineInfo {
            max_total_threads_per_threadgroup: case.most,
            thread_execution_width: case.width,
            ..no_arguments()
        });
        let kernel = pipeline(&device, "k");
        assert_eq!(kernel.optimal_thread_group_size(), case.one);
        assert_eq!(kernel.optimal_thread_group_size_2d(), case.two);
        let launched = device
            .commands()
            .dispatch(&kernel)
            .threads((1000, 10), kernel.optimal_thread_group_size_2d());
        assert_eq!(launched, Ok(()), "what is proposed is accepted");
    }
}

#[test]
fn the_host_waits_for_writers_in_flight_and_not_for_readers() {
    let device = ManualDriver::device(no_arguments());
    let kernel = pipeline(&device, "k");
    let driver = device.driver::<ManualDriver>().unwrap();
    let buffer = labelled(&device, 8, "b");
    let submit = |access| {
        let mut commands = device.commands();
        commands
            .dispatch(&kernel)
            .bind(0, &buffer, access)
            .threads(1, 1)
            .and_then(|()| commands.commit())
            .unwrap()
    };
    let reading = submit(Access::Read);
    assert!(!reading.is_done());
    assert_eq!(buffer.to_vec::<u8>(), Ok(vec![0; 8]), "two readers");
    driver.finish(Ok(Completed::default()));

    let writing = submit(Access::Write);
    assert_eq!(writing.wait_for(Duration::from_millis(1)), None);
    std::thread::scope(|scope| {
        let host = scope.spawn(|| buffer.to_vec::<u8>());
        std::thread::sleep(Duration::from_millis(30));
        assert!(!host.is_finished(), "the host waits for the writer");
        driver.finish(Ok(Completed::default()));
        assert_eq!(host.join().unwrap(), Ok(vec![0; 8]));
    });
    assert!(writing.is_done());
}

/// A failure of the test's kernel.
fn page_fault(message: &str) -> Error {
    Error::Execution {
        fault: Fault::PageFault,
        kernel: Some("k".to_owned()),
        message: message.to_owned(),
    }
}

/// A buffer of eight bytes whose last writer has failed.
fn lost(device: &Device) -> Buffer {
    let buffer = labelled(device, 8, "b");
    submit(device, &buffer, &[Access::Write]);
    let driver = device
        .driver::<ManualDriver>()
        .expect("the driver of this test");
    driver.finish(Err(page_fault("at 0x10")));
    buffer
}

#[test]
fn a_failed_writer_is_reported_by_every_read_until_the_failure_is_taken() {
    let device = ManualDriver::device(no_arguments());
    let buffer = lost(&device);
    let failure = page_fault("at 0x10");
    for _ in 0..2 {
        assert_eq!(buffer.failure(), Some(failure.clone()));
        assert_eq!(buffer.to_vec::<u8>(), Err(failure.clone()));
        assert_eq!(buffer.read(0, &mut [0_u8]), Err(failure.clone()));
        let slice = buffer.as_slice::<u8>().map(|_| ());
        assert_eq!(slice, Err(failure.clone()));
        let slice = buffer.as_mut_slice::<u8>().map(|_| ());
        assert_eq!(slice, Err(failure.clone()));
    }
    assert_eq!(buffer.take_failure(), Some(failure));
    assert_eq!((buffer.failure(), buffer.take_failure()), (None, None));
    assert_eq!(buffer.to_vec::<u8>(), Ok(vec![0; 8]));
}

#[test]
fn a_failed_run_of_a_launch_is_reported_and_the_launch_stays_usable() -> Result<()> {
    let device = ManualDriver::device(no_arguments());
    let buffer = labelled(&device, 16, "b");
    let kernel = pipeline(&device, "k");
    let built = kernel.launch().write(0, &buffer).threads(1, 1)?;
    let run = |outcome: Result<Completed>| {
        let mut commands = device.commands();
        commands.record(&built)?;
        let submission = commands.commit()?;
        let driver = device
            .driver::<ManualDriver>()
            .expect("the driver of this test");
        driver.finish(outcome);
        submission.wait().map(|_| ())
    };
    assert_eq!(run(Err(page_fault("gone"))), Err(page_fault("gone")));
    assert_eq!(buffer.to_vec::<u32>(), Err(page_fault("gone")));
    run(Ok(Completed::default()))?;
    assert_eq!(buffer.take_failure(), Some(page_fault("gone")));
    buffer.to_vec::<u32>()?;
    Ok(())
}

#[test]
fn a_write_of_the_whole_buffer_clears_the_failure_and_no_other_does() {
    let device = ManualDriver::device(no_arguments());
    let buffer = lost(&device);
    let failure = page_fault("at 0x10");
    for (offset, values) in [(0, &[1_u8; 7][..]), (1, &[1; 7]), (0, &[])] {
        assert_eq!(buffer.write(offset, values), Ok(()));
        assert_eq!(buffer.to_vec::<u8>(), Err(failure.clone()));
    }
    assert!(buffer.write(1, &[2_u8; 8]).is_err(), "out of bounds");
    assert_eq!(buffer.failure(), Some(failure));
    assert_eq!(buffer.write(0, &[3_u8; 8]), Ok(()));
    assert_eq!(buffer.failure(), None);
    assert_eq!(buffer.to_vec::<u8>(), Ok(vec![3; 8]));
}

#[test]
fn querying_a_failure_waits_for_writers_in_flight_and_not_for_readers() {
    let device = ManualDriver::device(no_arguments());
    let driver = device
        .driver::<ManualDriver>()
        .expect("the driver of this test");
    let buffer = labelled(&device, 8, "b");
    submit(&device, &buffer, &[Access::Read]);
    assert_eq!(buffer.failure(), None, "a reader cannot fail the contents");
    submit(&device, &buffer, &[Access::Write]);
    std::thread::scope(|scope| {
        let host = scope.spawn(|| buffer.take_failure());
        std::thread::sleep(Duration::from_millis(30));
        assert!(!host.is_finished(), "the host waits for the writer");
        driver.finish(Ok(Completed::default()));
        driver.finish(Err(page_fault("late")));
        assert_eq!(host.join().unwrap(), Some(page_fault("late")));
    });
    assert_eq!(buffer.failure(), None);
}

#[test]
fn a_rejected_submission_leaves_no_failure_and_the_device_usable() {
    let device = ManualDriver::device(no_arguments());
    let kernel = pipeline(&device, "k");
    let driver = device.driver::<ManualDriver>().unwrap();
    let buffer = labelled(&device, 8, "b");
    let record = || {
        let mut commands = device.commands();
        commands
            .dispatch(&kernel)
            .write(0, &buffer)
            .threads(1, 1)
            .unwrap();
        commands
    };
    driver.refuses.store(true, Ordering::SeqCst);
    assert_eq!(record().commit().map(|_| ()), Err(refused()));
    assert_eq!(buffer.failure(), None);
    assert_eq!(buffer.to_vec::<u8>(), Ok(vec![0; 8]), "nothing is pending");
    driver.refuses.store(false, Ordering::SeqCst);
    let submission = record().commit().unwrap();
    driver.finish(Ok(Completed {
        command_buffers: 2,
        ..Completed::default()
    }));
    assert_eq!(submission.wait().unwrap().command_buffers, 2);
}

#[test]
fn a_submission_keeps_its_buffers_alive() {
    let device = ManualDriver::device(no_arguments());
    let kernel = pipeline(&device, "k");
    let driver = device.driver::<ManualDriver>().unwrap();
    let buffer = labelled(&device, 8, "b");
    let mut commands = device.commands();
    commands
        .dispatch(&kernel)
        .write(0, &buffer)
        .threads(1, 1)
        .unwrap();
    let submission = commands.commit().unwrap();
    drop((buffer, kernel));
    assert_eq!(driver.submitted.lock().unwrap()[0].0.commands.len(), 1);
    driver.finish(Ok(Completed::default()));
    assert!(submission.wait().is_ok());
}

#[test]
fn a_failed_driver_allocation_is_not_counted() {
    let device = ManualDriver::device(no_arguments());
    assert_eq!(
        device.buffer(64, StorageMode::Managed).map(|b| b.length()),
        Err(Error::Unsupported {
            what: "managed storage".to_owned(),
            device: DEVICE_NAME.to_owned(),
        })
    );
    assert_eq!(device.allocated_bytes(), 0);
    let device_name = device.capture(Path::new("x.gputrace")).map(|_| ());
    assert_eq!(device_name, Ok(()));
}

#[test]
fn a_device_without_a_matrix_library_reports_it() {
    let device = ManualDriver::device(no_arguments());
    assert!(!device.multiplies_matrices());
    let [a, b] = ["a", "b"].map(|name| labelled(&device, 16, name));
    let matrix = |buffer| Matrix::new(buffer, 2, 2, 8);
    let product = MatrixProduct::new(MatrixElement::F32, matrix(&a), matrix(&a), matrix(&b));
    assert_eq!(
        device.commands().multiply(&product),
        Err(Error::Unsupported {
            what: "matrix multiplication by a library".to_owned(),
            device: DEVICE_NAME.to_owned(),
        })
    );
}

/// Submits launches that access one buffer.
fn submit(device: &Device, buffer: &Buffer, accesses: &[Access]) {
    let kernel = pipeline(device, "k");
    let mut commands = device.commands();
    for access in accesses {
        commands
            .dispatch(&kernel)
            .bind(0, buffer, *access)
            .threads(1, 1)
            .expect("a valid launch");
    }
    drop(commands.commit().expect("nothing is mapped"));
}

#[test]
fn the_host_waits_for_every_submission_that_conflicts_with_its_access() {
    use Access::{Read, ReadWrite, Write};
    struct Case {
        name: &'static str,
        submissions: &'static [&'static [Access]],
        exclusive: bool,
    }
    let cases = [
        Case {
            name: "a writer behind a reader",
            submissions: &[&[Read], &[Write]],
            exclusive: false,
        },
        Case {
            name: "a writer before a reader",
            submissions: &[&[Write], &[Read]],
            exclusive: false,
        },
        Case {
            name: "two writers",
            submissions: &[&[Write], &[ReadWrite]],
            exclusive: false,
        },
        Case {
            name: "one list that writes, then reads",
            submissions: &[&[Write, Read]],
            exclusive: false,
        },
        Case {
            name: "one list that reads, then writes",
            submissions: &[&[Read, Write]],
            exclusive: false,
        },
        Case {
            name: "a reader, for a host that writes",
            submissions: &[&[Read]],
            exclusive: true,
        },
        Case {
            name: "a writer, for a host that writes",
            submissions: &[&[Write]],
            exclusive: true,
        },
    ];
    for case in cases {
        let device = ManualDriver::device(no_arguments());
        let buffer = labelled(&device, 8, "b");
        for accesses in case.submissions {
            submit(&device, &buffer, accesses);
        }
        let driver = device
            .driver::<ManualDriver>()
            .expect("the driver of this test");
        let conflicts =
            |accesses: &&[Access]| case.exclusive || accesses.iter().any(|a| a.writes());
        let last = case.submissions.iter().rposition(conflicts);
        let released = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // A host access that does not wait is done by then; one that waits is not timed.
                std::thread::sleep(Duration::from_millis(20));
                for i in 0..case.submissions.len() {
                    if Some(i) == last {
                        released.store(true, Ordering::SeqCst);
                    }
                    driver.finish(Ok(Completed::default()));
                }
            });
            if case.exclusive {
                buffer.write(0, &[1_u8]).expect("nothing failed");
            } else {
                buffer.to_vec::<u8>().expect("nothing failed");
            }
            assert!(released.load(Ordering::SeqCst), "{}", case.name);
        });
    }
}

#[test]
fn a_failure_persists_when_other_submissions_follow() {
    use Access::{Read, ReadWrite, Write};
    // Later submissions are committed before or after the failure is known, and succeed.
    for later in [Read, Write, ReadWrite] {
        for known_first in [false, true] {
            let device = ManualDriver::device(no_arguments());
            let driver = device
                .driver::<ManualDriver>()
                .expect("the driver of this test");
            let buffer = labelled(&device, 8, "b");
            submit(&device, &buffer, &[Write]);
            if known_first {
                driver.finish(Err(page_fault("first")));
                submit(&device, &buffer, &[later]);
            } else {
                submit(&device, &buffer, &[later]);
                driver.finish(Err(page_fault("first")));
            }
            driver.finish(Ok(Completed::default()));
            let case = format!("{later:?}, known first: {known_first}");
            assert_eq!(buffer.to_vec::<u8>(), Err(page_fault("first")), "{case}");
            assert_eq!(buffer.take_failure(), Some(page_fault("first")), "{case}");
            assert_eq!(buffer.to_vec::<u8>(), Ok(vec![0; 8]), "{case}");
        }
    }
    // Of two failures the first is kept; failed readers do not affect the contents.
    let device = ManualDriver::device(no_arguments());
    let driver = device
        .driver::<ManualDriver>()
        .expect("the driver of this test");
    let buffer = labelled(&device, 8, "b");
    submit(&device, &buffer, &[Read]);
    submit(&device, &buffer, &[Write]);
    submit(&device, &buffer, &[ReadWrite]);
    for message in ["reader", "first", "second"] {
        driver.finish(Err(page_fault(message)));
    }
    assert_eq!(buffer.write(0, &[1_u8]), Ok(()));
    assert_eq!(buffer.take_failure(), Some(page_fault("first")));
    assert_eq!(buffer.to_vec::<u8>(), Ok(vec![1, 0, 0, 0, 0, 0, 0, 0]));
}

#[test]
fn memory_is_kept_resident_until_the_guard_is_dropped() {
    let device = ManualDriver::device(no_arguments());
    let owners = || Arc::strong_count(&device.driver::<ManualDriver>().unwrap().resident);
    let before = owners();
    let (one, two) = (device.keep_resident(), device.keep_resident());
    assert_eq!(owners(), before + 2);
    drop(one);
    assert_eq!(owners(), before + 1);
    drop(two);
    assert_eq!(owners(), before);
}
