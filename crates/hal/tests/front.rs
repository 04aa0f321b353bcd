//! The safe front: validation, recording and waiting, on devices that run nothing.

#[path = "front/hostile.rs"]
mod hostile;
#[path = "front/launch.rs"]
mod launch_reuse;
#[path = "front/manual_driver.rs"]
mod manual_driver;
#[path = "front/matrix_product.rs"]
mod matrix_product;

use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bessemer_hal::noop::{self, Event};
use bessemer_hal::{
    Access, Buffer, BufferSlice, Capture, Commands, CompileOptions, Completed, Device, DeviceInfo,
    DeviceKind, Error, Family, Fault, Function, FunctionConstants, Launch, Library, Limits,
    NO_COPY_ALIGNMENT_BYTES, Pipeline, Report, Result, Size, StorageMode, Submission,
};

const DEVICE_NAME: &str = "Bessemer recording device";

fn recording() -> Device {
    noop::device(Family::Apple7)
}

fn pipeline(device: &Device, kernel: &str) -> Pipeline {
    device
        .library_contained("", &CompileOptions::labelled("front"))
        .and_then(|library| library.pipeline(kernel))
        .expect("a recording device takes any kernel")
}

/// A shared buffer with a label.
fn labelled(device: &Device, length: usize, label: &str) -> Buffer {
    let buffer = device
        .buffer(length, StorageMode::Shared)
        .expect("small buffers fit");
    buffer.set_label(label);
    buffer
}

fn launch(kernel: &str, message: &str) -> Error {
    Error::Launch {
        kernel: kernel.to_owned(),
        message: message.to_owned(),
    }
}

fn binding(argument: &str, message: &str) -> Error {
    Error::Binding {
        kernel: "k".to_owned(),
        argument: argument.to_owned(),
        message: message.to_owned(),
    }
}

fn misaligned(what: &str, value: usize, alignment: usize) -> Error {
    Error::Misaligned {
        what: what.to_owned(),
        value,
        alignment,
    }
}

fn out_of_bounds(buffer: &str, offset: usize, len: usize, length: usize) -> Error {
    Error::OutOfBounds {
        buffer: format!("buffer `{buffer}`"),
        offset,
        len,
        length,
    }
}

#[test]
fn everything_is_send_and_sync() {
    fn shared<T: Send + Sync>() {}
    shared::<Device>();
    shared::<Buffer>();
    shared::<BufferSlice>();
    shared::<Library>();
    shared::<Function>();
    shared::<Pipeline>();
    shared::<Launch>();
    shared::<Commands>();
    shared::<Submission>();
    shared::<Completed>();
    shared::<Capture>();
    shared::<Error>();
    shared::<Report>();
    shared::<DeviceInfo>();
    shared::<FunctionConstants>();
}

#[test]
fn a_device_states_its_family_and_limits() {
    let device = recording();
    let info = device.info();
    assert_eq!(device.name(), DEVICE_NAME);
    assert_eq!((info.kind, info.family), (DeviceKind::Noop, Family::Apple7));
    assert_eq!(
        info.limits,
        Limits {
            max_threads_per_threadgroup: Size::new(1024, 1024, 1024),
            max_total_threads_per_threadgroup: 1024,
            max_threadgroup_memory: 32 * 1024,
            max_buffers: 31,
            max_inline_bytes: 4096,
            simd_width: 32,
            max_buffer_length: info.limits.max_buffer_length,
        }
    );
    assert!(device.is(&device.clone()));
    assert!(!device.is(&recording()));
}

#[test]
fn buffers_start_zeroed_and_keep_what_is_written() {
    let device = recording();
    for mode in [StorageMode::Shared, StorageMode::Managed] {
        let buffer = device.buffer(16, mode).unwrap();
        assert_eq!(buffer.to_vec::<u32>(), Ok(vec![0; 4]));
        buffer.write(4, &[7_u32, 8]).unwrap();
        buffer.as_mut_slice::<u32>().unwrap()[3] = 9;
        assert_eq!(buffer.to_vec::<u32>(), Ok(vec![0, 7, 8, 9]));
        let mut middle = [0_u16; 2];
        buffer.read(4, &mut middle).unwrap();
        assert_eq!(middle, [7, 0]);
        assert_eq!((buffer.length(), buffer.storage_mode()), (16, mode));
    }
    let copied = device
        .buffer_with_data(&[1.5_f32, -2.0], StorageMode::Shared)
        .unwrap();
    assert_eq!(copied.to_vec::<f32>(), Ok(vec![1.5, -2.0]));
}

#[test]
fn zero_size_buffers_are_legal_everywhere() {
    let device = recording();
    for mode in [
        StorageMode::Shared,
        StorageMode::Private,
        StorageMode::Managed,
    ] {
        assert_eq!(device.buffer(0, mode).unwrap().length(), 0);
    }
    let (a, b) = (labelled(&device, 0, "a"), labelled(&device, 0, "b"));
    assert_eq!(a.to_vec::<u64>(), Ok(vec![]));
    a.write::<u8>(0, &[]).unwrap();
    assert_eq!(a.write(0, &[1_u8]), Err(out_of_bounds("a", 0, 1, 0)));
    assert_eq!(a.slice(0..0).unwrap().length(), 0);
    let kernel = pipeline(&device, "k");
    noop::clear(&device);
    let mut commands = device.commands();
    commands.copy(&a, &b).unwrap();
    commands.fill(&a, 1).unwrap();
    assert!(commands.is_empty());
    commands
        .dispatch(&kernel)
        .read_write(0, &a)
        .threads(1, 1)
        .unwrap();
    commands
        .dispatch(&kernel)
        .read_write(0, &a)
        .threads(1, 1)
        .unwrap();
    assert_eq!(commands.len(), 2);
    commands.commit().unwrap().wait().unwrap();
    let counts = noop::record(&device).unwrap().counts;
    assert_eq!((counts.dispatches, counts.barriers), (2, 0));
}

#[test]
fn rejects_lengths_and_offsets_outside_a_buffer() {
    let device = recording();
    let limit = device.info().limits.max_buffer_length;
    assert_eq!(
        device
            .buffer(limit + 1, StorageMode::Shared)
            .map(|b| b.length()),
        Err(Error::BufferTooLong {
            requested: limit + 1,
            limit
        })
    );
    let buffer = labelled(&device, 8, "b");
    let slice = |range: Range<usize>| buffer.slice(range).map(|s| (s.offset(), s.length()));
    assert_eq!(slice(2..8), Ok((2, 6)));
    assert_eq!(slice(8..8), Ok((8, 0)));
    assert_eq!(slice(2..9), Err(out_of_bounds("b", 2, 7, 8)));
    assert_eq!(slice(9..9), Err(out_of_bounds("b", 9, 0, 8)));
    assert_eq!(
        slice(Range { start: 4, end: 2 }),
        Err(out_of_bounds("b", 4, 0, 8))
    );
    assert_eq!(buffer.write(6, &[0_u32]), Err(out_of_bounds("b", 6, 4, 8)));
    assert_eq!(
        buffer.read(usize::MAX, &mut [0_u16]),
        Err(out_of_bounds("b", usize::MAX, 2, 8))
    );
    let odd = labelled(&device, 6, "odd");
    assert_eq!(
        odd.to_vec::<u32>(),
        Err(misaligned("the length of buffer `odd`", 6, 4))
    );
}

#[test]
fn rejects_operations_that_a_storage_mode_does_not_allow() {
    let device = recording();
    let private = device.buffer(8, StorageMode::Private).unwrap();
    private.set_label("p");
    let shared = labelled(&device, 8, "s");
    let error = |buffer: &str, mode, operation, remedy| Error::Storage {
        buffer: format!("buffer `{buffer}`"),
        mode,
        operation,
        remedy,
    };
    let access = error(
        "p",
        StorageMode::Private,
        "host access",
        "copy to a shared buffer first, with `Commands::copy`",
    );
    assert_eq!(private.to_vec::<u8>(), Err(access.clone()));
    assert_eq!(
        private.as_mut_slice::<u8>().map(|s| s.len()),
        Err(access.clone())
    );
    assert_eq!(private.write(0, &[1_u8]), Err(access));
    let copies = "only managed buffers have two copies";
    assert_eq!(
        shared.did_modify_range(0..1),
        Err(error("s", StorageMode::Shared, "didModifyRange", copies))
    );
    assert_eq!(
        device.commands().synchronize(&private),
        Err(error("p", StorageMode::Private, "synchronize", copies))
    );
    let managed = device.buffer(8, StorageMode::Managed).unwrap();
    managed.set_label("m");
    assert_eq!(managed.did_modify_range(0..8), Ok(()));
    assert_eq!(
        managed.did_modify_range(4..12),
        Err(out_of_bounds("m", 4, 8, 8))
    );
    assert_eq!(device.commands().synchronize(&managed), Ok(()));
}

#[test]
fn rejects_objects_of_another_device() {
    let (one, two) = (recording(), recording());
    let foreign = labelled(&two, 8, "foreign");
    let own = labelled(&one, 8, "own");
    let wrong = |what: &str| {
        Err(Error::WrongDevice {
            what: what.to_owned(),
            device: DEVICE_NAME.to_owned(),
        })
    };
    let mut commands = one.commands();
    assert_eq!(commands.copy(&foreign, &own), wrong("buffer `foreign`"));
    assert_eq!(commands.copy(&own, &foreign), wrong("buffer `foreign`"));
    assert_eq!(commands.fill(&foreign, 0), wrong("buffer `foreign`"));
    let kernel = pipeline(&one, "k");
    assert_eq!(
        commands
            .dispatch(&kernel)
            .read(0, &own)
            .write(1, &foreign)
            .threads(8, 8),
        wrong("buffer `foreign`")
    );
    let foreign_kernel = pipeline(&two, "k");
    assert_eq!(
        commands.dispatch(&foreign_kernel).threads(8, 8),
        wrong("the pipeline of kernel `k`")
    );
    assert!(commands.is_empty());
}

#[test]
fn copies_need_equal_lengths_and_distinct_bytes() {
    let device = recording();
    let (a, b) = (labelled(&device, 8, "a"), labelled(&device, 16, "b"));
    let mut commands = device.commands();
    assert_eq!(commands.copy(&a, &b), Err(out_of_bounds("b", 0, 8, 16)));
    let part = |range| b.slice(range).unwrap();
    assert_eq!(
        commands.copy(part(0..8), part(7..15)),
        Err(launch("copy", "source and target overlap in buffer `b`"))
    );
    // One common byte at either end.
    for (source, target) in [(7..15, 0..8), (1..9, 8..16), (8..16, 1..9)] {
        assert_eq!(
            commands.copy(part(source), part(target)),
            Err(launch("copy", "source and target overlap in buffer `b`"))
        );
    }
    assert!(commands.is_empty());
    assert_eq!(commands.copy(part(0..8), part(8..16)), Ok(()));
    assert_eq!(commands.copy(part(8..16), part(0..8)), Ok(()));
    assert_eq!(
        commands.copy(&a, part(0..8)),
        Ok(()),
        "the same bytes of another buffer"
    );
    assert_eq!(commands.len(), 3);
}

#[test]
fn rejects_threadgroups_and_grids_past_the_limits() {
    struct Case {
        grid: Size,
        threadgroup: Size,
        message: &'static str,
    }
    let device = recording();
    let kernel = pipeline(&device, "k");
    let cases = [
        Case {
            grid: Size::x(8),
            threadgroup: Size::x(1025),
            message: "a threadgroup of 1025×1×1 is larger than the maximum of 1024 threads",
        },
        Case {
            grid: Size::x(8),
            threadgroup: Size::new(32, 32, 2),
            message: "a threadgroup of 32×32×2 is larger than the maximum of 1024 threads",
        },
        Case {
            grid: Size::x(8),
            threadgroup: Size::new(usize::MAX, 2, 2),
            message: "a threadgroup of 18446744073709551615×2×2 is larger than the maximum of 1024 threads",
        },
        Case {
            grid: Size::x(8),
            threadgroup: Size::xy(8, 0),
            message: "a threadgroup of 8×0×1 has no thread",
        },
        Case {
            grid: Size::x(1 << 32),
            threadgroup: Size::x(8),
            message: "a grid of 4294967296×1×1 threads is too large",
        },
        Case {
            grid: Size::new(u32::MAX as usize, u32::MAX as usize, u32::MAX as usize),
            threadgroup: Size::x(8),
            message: "a grid of 4294967295×4294967295×4294967295 threads is too large",
        },
    ];
    let mut commands = device.commands();
    for case in cases {
        assert_eq!(
            commands
                .dispatch(&kernel)
                .threads(case.grid, case.threadgroup),
            Err(launch("k", case.message))
        );
    }
    assert_eq!(
        commands
            .dispatch(&kernel)
            .threadgroups(Size::x(usize::MAX), 2),
        Err(launch(
            "k",
            "a grid of 18446744073709551615×1×1 groups overflows"
        ))
    );
    assert!(commands.is_empty());
    assert_eq!(commands.dispatch(&kernel).threads(1, 1024), Ok(()));
    assert_eq!(commands.dispatch(&kernel).threads(0, 32), Ok(()));
    assert_eq!(commands.len(), 1, "an empty grid records nothing");
}

#[test]
fn grids_are_recorded_as_threads() {
    let device = recording();
    let kernel = pipeline(&device, "k");
    let mut commands = device.commands();
    commands.dispatch(&kernel).threads(100, 32).unwrap();
    commands
        .dispatch(&kernel)
        .label("named")
        .threadgroups((3, 2), (8, 4, 2))
        .unwrap();
    commands.set_label("list");
    commands.commit().unwrap().wait().unwrap();
    let dispatch = |label: Option<&str>, grid, threadgroup| Event::Dispatch {
        kernel: "k".to_owned(),
        label: label.map(str::to_owned),
        grid,
        threadgroup,
        bindings: vec![],
    };
    assert_eq!(
        noop::record(&device).unwrap().events,
        [
            dispatch(None, Size::x(100), Size::x(32)),
            dispatch(Some("named"), Size::new(24, 8, 2), Size::new(8, 4, 2)),
            Event::Commit {
                label: Some("list".to_owned())
            },
        ]
    );
}

#[test]
fn rejects_wrong_bindings() {
    let device = recording();
    let kernel = pipeline(&device, "k");
    let a = labelled(&device, 64, "a");
    let mut commands = device.commands();
    assert_eq!(
        commands.dispatch(&kernel).read(31, &a).threads(1, 1),
        Err(binding("31", "buffer indices end at 30"))
    );
    assert_eq!(
        commands
            .dispatch(&kernel)
            .read(2, &a)
            .bytes(2, &1_u32)
            .threads(1, 1),
        Err(binding("2", "bound twice"))
    );
    assert_eq!(
        commands
            .dispatch(&kernel)
            .set_bytes(0, &[0; 4096])
            .threads(1, 1),
        Ok(())
    );
    assert_eq!(
        commands
            .dispatch(&kernel)
            .set_bytes(0, &[0; 4097])
            .threads(1, 1),
        Err(binding(
            "0",
            "4097 inline bytes are more than 4096; use a buffer"
        ))
    );
    assert_eq!(commands.len(), 1);
}

#[test]
fn rejects_threadgroup_memory_that_is_misaligned_or_too_large() {
    let device = recording();
    let kernel = pipeline(&device, "k");
    let mut commands = device.commands();
    let mut with = |memory: &[(u32, usize)]| {
        let mut dispatch = commands.dispatch(&kernel);
        for (index, bytes) in memory {
            dispatch = dispatch.threadgroup_memory(*index, *bytes);
        }
        dispatch.threads(1, 1)
    };
    assert_eq!(with(&[(0, 32 * 1024)]), Ok(()));
    assert_eq!(
        with(&[(0, 40)]),
        Err(misaligned("the length of threadgroup memory 0", 40, 16))
    );
    assert_eq!(
        with(&[(0, 32 * 1024), (1, 16)]),
        Err(launch(
            "k",
            "32784 bytes of threadgroup memory are more than the maximum of 32768"
        ))
    );
    assert_eq!(
        with(&[(0, 16), (0, 32)]),
        Err(binding("threadgroup 0", "a length is given twice"))
    );
    assert_eq!(
        with(&[(31, 16)]),
        Err(binding("threadgroup 31", "threadgroup indices end at 30"))
    );
}

#[test]
fn barriers_are_inserted_exactly_for_overlapping_accesses() {
    struct Case {
        name: &'static str,
        /// (buffer, range, access) of each dispatch.
        dispatches: &'static [&'static [(usize, Range<usize>, Access)]],
        barriers: u64,
    }
    use Access::{Read, ReadWrite, Write};
    let cases = [
        Case {
            name: "a chain through one buffer",
            dispatches: &[
                &[(0, 0..64, ReadWrite)],
                &[(0, 0..64, ReadWrite)],
                &[(0, 0..64, ReadWrite)],
            ],
            barriers: 2,
        },
        Case {
            name: "independent buffers",
            dispatches: &[&[(0, 0..64, Write)], &[(1, 0..64, Write)]],
            barriers: 0,
        },
        Case {
            name: "two readers of one writer",
            dispatches: &[
                &[(0, 0..64, Write)],
                &[(0, 0..64, Read), (1, 0..64, Write)],
                &[(0, 0..64, Read), (2, 0..64, Write)],
            ],
            barriers: 1,
        },
        Case {
            name: "halves of one buffer",
            dispatches: &[&[(0, 0..32, Write)], &[(0, 32..64, Write)]],
            barriers: 0,
        },
        Case {
            name: "one common byte",
            dispatches: &[&[(0, 0..33, Write)], &[(0, 32..64, Read)]],
            barriers: 1,
        },
        Case {
            name: "a write after a read",
            dispatches: &[&[(0, 0..64, Read)], &[(0, 60..64, Write)]],
            barriers: 1,
        },
        Case {
            name: "one barrier for two hazards",
            dispatches: &[
                &[(0, 0..64, Write), (1, 0..64, Write)],
                &[(0, 0..64, Read)],
                &[(1, 0..64, Read)],
            ],
            barriers: 1,
        },
        Case {
            name: "one buffer bound twice in one launch",
            dispatches: &[&[(0, 0..32, Read), (0, 32..64, Write)]],
            barriers: 0,
        },
    ];
    for case in cases {
        let device = recording();
        let kernel = pipeline(&device, "k");
        let buffers: Vec<_> = (0..3).map(|_| labelled(&device, 64, "b")).collect();
        let mut commands = device.commands();
        for dispatch in case.dispatches {
            let mut launch = commands.dispatch(&kernel);
            for (index, (buffer, range, access)) in (0..).zip(*dispatch) {
                let slice = buffers[*buffer].slice(range.clone()).unwrap();
                launch = launch.bind(index, &slice, *access);
            }
            launch.threads(64, 64).unwrap();
        }
        assert_eq!(commands.barriers() as u64, case.barriers, "{}", case.name);
        commands.commit().unwrap().wait().unwrap();
        let counts = noop::record(&device).unwrap().counts;
        assert_eq!(counts.barriers, case.barriers, "{}", case.name);
        assert_eq!(counts.dispatches as usize, case.dispatches.len());
    }
}

#[test]
fn copies_and_fills_take_part_in_hazards_and_counts() {
    let device = recording();
    let kernel = pipeline(&device, "k");
    let (a, b) = (labelled(&device, 64, "a"), labelled(&device, 64, "b"));
    noop::clear(&device);
    let mut commands = device.commands();
    commands.fill(&a, 3).unwrap();
    commands.copy(&a, &b).unwrap();
    commands
        .dispatch(&kernel)
        .read(0, &a)
        .read_write(1, &b)
        .bytes(2, &5_u32)
        .threads(16, 16)
        .unwrap();
    let barred = a.slice(0..16).unwrap();
    commands.fill(&barred, 0).unwrap();
    commands.commit().unwrap().wait().unwrap();
    let record = noop::record(&device).unwrap();
    let kinds: Vec<_> = record
        .events
        .iter()
        .map(|event| match event {
            Event::Fill { bytes } => format!("fill {bytes}"),
            Event::Copy { bytes } => format!("copy {bytes}"),
            Event::Dispatch { bindings, .. } => format!("dispatch {bindings:?}"),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(
        kinds,
        [
            "fill 64",
            "Barrier",
            "copy 64",
            "Barrier",
            "dispatch [(0, 64, Read), (1, 64, ReadWrite), (2, 4, Read)]",
            "Barrier",
            "fill 16",
            "Commit { label: None }",
        ]
    );
    let counts = record.counts;
    assert_eq!((counts.fills, counts.copies, counts.barriers), (2, 1, 3));
    assert_eq!(
        (counts.bytes_read, counts.bytes_written),
        (64 + 64 + 64 + 4, 64 + 64 + 64 + 16)
    );
}

#[test]
fn a_private_buffer_with_data_is_filled_by_a_copy() {
    let device = recording();
    let buffer = device
        .buffer_with_data(&[1_u32, 2], StorageMode::Private)
        .unwrap();
    assert_eq!(buffer.length(), 8);
    let counts = noop::record(&device).unwrap().counts;
    assert_eq!((counts.allocations, counts.copies), (2, 1));
    assert_eq!(device.allocated_bytes(), 8, "the staging buffer is gone");
}

#[test]
fn debug_groups_are_always_balanced() {
    let device = recording();
    let mut commands = device.commands();
    commands.pop_debug_group();
    commands.push_debug_group("outer");
    commands.push_debug_group("inner");
    commands.pop_debug_group();
    commands.push_debug_group("left open");
    commands.commit().unwrap().wait().unwrap();
    assert_eq!(
        noop::record(&device).unwrap().events,
        [
            Event::PushGroup("outer".to_owned()),
            Event::PushGroup("inner".to_owned()),
            Event::PopGroup,
            Event::PushGroup("left open".to_owned()),
            Event::PopGroup,
            Event::PopGroup,
            Event::Commit { label: None },
        ]
    );
}

#[test]
fn commands_that_conflict_with_a_mapped_slice_are_rejected() {
    let device = recording();
    let kernel = pipeline(&device, "k");
    let buffer = labelled(&device, 8, "b");
    let mapped = || Error::Mapped {
        buffer: "buffer `b`".to_owned(),
    };
    let commit = |access| {
        let mut commands = device.commands();
        commands
            .dispatch(&kernel)
            .bind(0, &buffer, access)
            .threads(1, 1)
            .and_then(|()| commands.commit())
            .and_then(|submission| submission.wait())
            .map(|_| ())
    };
    {
        let _reading = buffer.as_slice::<u8>().unwrap();
        assert_eq!(commit(Access::Write), Err(mapped()));
        assert_eq!(commit(Access::Read), Ok(()), "both only read");
        assert_eq!(
            buffer.as_mut_slice::<u8>().map(|s| s.len()),
            Err(mapped()),
            "the rule applies to the host itself"
        );
        assert_eq!(buffer.to_vec::<u8>(), Ok(vec![0; 8]));
    }
    {
        let _writing = buffer.as_mut_slice::<u8>().unwrap();
        assert_eq!(commit(Access::Read), Err(mapped()));
        assert_eq!(buffer.to_vec::<u8>(), Err(mapped()));
        assert_eq!(buffer.write(0, &[1_u8]), Err(mapped()));
    }
    assert_eq!(commit(Access::ReadWrite), Ok(()));
    assert_eq!(noop::record(&device).unwrap().counts.command_buffers, 2);
}

#[test]
fn injected_failures_fire_once_and_leave_the_device_usable() {
    let device = recording();
    device.fail_allocation(2);
    let first = device.buffer(16, StorageMode::Shared).unwrap();
    assert_eq!(
        device.buffer(32, StorageMode::Shared).map(|b| b.length()),
        Err(Error::OutOfMemory {
            device: DEVICE_NAME.to_owned(),
            requested: 32,
            in_use: 16,
            limit: usize::MAX,
        })
    );
    assert_eq!(device.buffer(32, StorageMode::Shared).unwrap().length(), 32);
    device.fail_allocation(1);
    device.fail_allocation(0);
    assert!(device.buffer(1, StorageMode::Shared).is_ok(), "disarmed");

    device.fail_submission(1);
    let mut commands = device.commands();
    commands.fill(&first, 1).unwrap();
    assert_eq!(
        commands.commit().map(|_| ()),
        Err(Error::Execution {
            fault: Fault::DeviceLost,
            kernel: None,
            message: "an injected failure".to_owned(),
        })
    );
    assert_eq!(
        first.to_vec::<u8>(),
        Ok(vec![0; 16]),
        "the buffer does not wait for commands that never ran"
    );
    let mut commands = device.commands();
    commands.fill(&first, 1).unwrap();
    assert!(commands.commit().unwrap().wait().is_ok());
}

#[test]
fn the_memory_limit_counts_live_bytes() {
    let device = recording();
    device.set_memory_limit(100);
    let first = device.buffer(60, StorageMode::Shared).unwrap();
    let clone = first.clone();
    let full = Err(Error::OutOfMemory {
        device: DEVICE_NAME.to_owned(),
        requested: 41,
        in_use: 60,
        limit: 100,
    });
    assert_eq!(
        device.buffer(41, StorageMode::Private).map(|b| b.length()),
        full
    );
    assert_eq!(
        device.buffer(40, StorageMode::Private).unwrap().length(),
        40
    );
    assert_eq!(device.allocated_bytes(), 60);
    drop(first);
    assert_eq!(device.allocated_bytes(), 60, "a clone shares the memory");
    drop(clone);
    assert_eq!(device.allocated_bytes(), 0);
    assert!(device.buffer(100, StorageMode::Shared).is_ok());
}

/// Page-aligned memory that records when it is dropped.
struct Pages {
    memory: *mut u8,
    dropped: Arc<AtomicBool>,
}

impl Pages {
    const BUFFER_BYTES: usize = 2 * NO_COPY_ALIGNMENT_BYTES;

    fn layout() -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(Self::BUFFER_BYTES, NO_COPY_ALIGNMENT_BYTES)
            .expect("a power of two")
    }

    #[expect(unsafe_code, reason = "aligned memory comes from the allocator")]
    fn new(dropped: Arc<AtomicBool>) -> Self {
        // SAFETY: the layout's size is not zero.
        let memory = unsafe { std::alloc::alloc_zeroed(Self::layout()) };
        assert!(!memory.is_null());
        Self { memory, dropped }
    }
}

impl Drop for Pages {
    #[expect(unsafe_code, reason = "aligned memory goes back to the allocator")]
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::SeqCst);
        // SAFETY: allocated in `new` with the same layout, freed only here.
        unsafe { std::alloc::dealloc(self.memory, Self::layout()) }
    }
}

// SAFETY: the pointer is only freed by the owner; the tests access the memory through the buffer.
#[expect(unsafe_code, reason = "owns its allocation")]
unsafe impl Send for Pages {}
// SAFETY: as above; a shared reference gives nothing but the address.
#[expect(unsafe_code, reason = "owns its allocation")]
unsafe impl Sync for Pages {}

#[expect(unsafe_code, reason = "keeps the promise of `buffer_no_copy`")]
fn no_copy(device: &Device, pages: Pages, offset: usize, length: usize) -> Result<Buffer> {
    let pointer = NonNull::new(pages.memory.wrapping_add(offset)).expect("inside the pages");
    // SAFETY: `offset + length` is within the pages, which the owner keeps alive and nothing else uses.
    unsafe { device.buffer_no_copy(pointer, length, pages) }
}

#[test]
fn caller_memory_is_used_in_place_and_its_owner_dropped_at_the_end() {
    let device = recording();
    let dropped = Arc::new(AtomicBool::new(false));
    let pages = Pages::new(dropped.clone());
    let address = pages.memory.addr();
    let buffer = no_copy(&device, pages, 0, Pages::BUFFER_BYTES).unwrap();
    assert_eq!(device.allocated_bytes(), 0, "nothing was allocated");
    buffer.write(4, &[42_u32]).unwrap();
    {
        let slice = buffer.as_slice::<u32>().unwrap();
        assert_eq!(slice.as_ptr().addr(), address);
        assert_eq!((slice.len(), slice[1]), (Pages::BUFFER_BYTES / 4, 42));
    }
    let clone = buffer.clone();
    drop(buffer);
    assert!(!dropped.load(Ordering::SeqCst));
    drop(clone);
    assert!(dropped.load(Ordering::SeqCst));
}

#[test]
fn caller_memory_must_be_whole_pages() {
    let device = recording();
    let dropped = Arc::new(AtomicBool::new(false));
    let pages = Pages::new(dropped.clone());
    let address = pages.memory.addr();
    assert_eq!(
        no_copy(&device, pages, 4096, NO_COPY_ALIGNMENT_BYTES).map(|b| b.length()),
        Err(misaligned(
            "the address of caller memory",
            address + 4096,
            NO_COPY_ALIGNMENT_BYTES
        ))
    );
    assert!(
        dropped.load(Ordering::SeqCst),
        "the owner of rejected memory is dropped"
    );
    let pages = Pages::new(dropped);
    assert_eq!(
        no_copy(&device, pages, 0, NO_COPY_ALIGNMENT_BYTES + 4096).map(|b| b.length()),
        Err(misaligned(
            "the length of caller memory",
            NO_COPY_ALIGNMENT_BYTES + 4096,
            NO_COPY_ALIGNMENT_BYTES
        ))
    );
}

#[test]
fn capture_is_unsupported_on_the_recording_device() {
    assert_eq!(
        recording().capture(Path::new("x.gputrace")).map(|_| ()),
        Err(Error::Unsupported {
            what: "GPU capture".to_owned(),
            device: DEVICE_NAME.to_owned(),
        })
    );
}

#[test]
fn eight_threads_record_and_submit_concurrently() {
    let device = recording();
    let kernel = pipeline(&device, "k");
    let shared = labelled(&device, 64, "shared");
    noop::clear(&device);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let own = device.buffer(64, StorageMode::Shared).unwrap();
                    let mut commands = device.commands();
                    for _ in 0..2 {
                        commands
                            .dispatch(&kernel)
                            .read(0, &shared)
                            .read_write(1, &own)
                            .threads(16, 16)
                            .unwrap();
                    }
                    commands.commit().unwrap().wait().unwrap();
                    assert_eq!(own.to_vec::<u8>(), Ok(vec![0; 64]));
                }
            });
        }
    });
    let counts = noop::record(&device).unwrap().counts;
    assert_eq!(
        (counts.dispatches, counts.barriers, counts.command_buffers),
        (1600, 800, 800)
    );
    assert_eq!(device.allocated_bytes(), 64);
}

#[test]
fn every_buffer_has_its_own_id_and_is_read_in_place() {
    let (one, other) = (recording(), recording());
    let buffers = [&one, &other, &one].map(|d| d.buffer(16, StorageMode::Shared).unwrap());
    assert!(buffers[0].is(&buffers[0].clone()) && !buffers[0].is(&buffers[2]));
    let ids: std::collections::BTreeSet<_> = buffers.iter().map(|b| b.id()).collect();
    assert_eq!(ids.len(), buffers.len());
    assert_eq!(buffers[0].clone().id(), buffers[0].id());
    for buffer in &buffers {
        let written = buffer.as_mut_slice::<u32>().unwrap().as_ptr();
        assert_eq!(buffer.as_slice::<u32>().unwrap().as_ptr(), written);
        let contents = buffer.contents().map(|p| p.as_ptr().cast_const().cast());
        assert_eq!(contents, Some(written));
        assert_eq!(buffer.label(), None);
        buffer.set_label("named");
        assert_eq!(buffer.label().as_deref(), Some("named"));
        let part = buffer.slice(4..12).unwrap();
        assert_eq!(
            (part.buffer().id(), part.offset(), part.length()),
            (buffer.id(), 4, 8)
        );
    }
    let private = one.buffer(16, StorageMode::Private).unwrap();
    assert_eq!(private.contents(), None);
}
