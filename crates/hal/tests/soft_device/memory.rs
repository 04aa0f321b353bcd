//! Storage modes, no-copy buffers and allocation.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bessemer_hal::soft::{self, Mode};
use bessemer_hal::{
    Buffer, Device, Error, NO_COPY_ALIGNMENT_BYTES, Pipeline, ReportKind, StorageMode,
};

use crate::setup::{device, empty, fast, library, options};

const INCREMENT: &str = "kernel void increment(device int* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] += 1; }";

fn increment(device: &Device) -> Pipeline {
    library(device, INCREMENT).pipeline("increment").unwrap()
}

#[test]
fn a_managed_buffer_needs_explicit_synchronisation() {
    for mode in [Mode::Fast, Mode::Isolated] {
        let device = device(mode);
        let pipeline = increment(&device);
        let buffer = device.buffer(16, StorageMode::Managed).unwrap();
        buffer.as_mut_slice::<i32>().unwrap().fill(10);
        let run = |synchronize: bool| {
            let mut commands = device.commands();
            commands
                .dispatch(&pipeline)
                .read_write(0, &buffer)
                .threads(4, 4)
                .unwrap();
            if synchronize {
                commands.synchronize(&buffer).unwrap();
            }
            commands.commit().unwrap().wait().unwrap();
            buffer.to_vec::<i32>().unwrap()
        };
        assert_eq!(
            run(false),
            [10; 4],
            "the device's copy was not synchronised"
        );
        assert_eq!(
            run(true),
            [2; 4],
            "the host's modification was not announced"
        );
        buffer.as_mut_slice::<i32>().unwrap()[1] = 70;
        buffer.did_modify_range(4..8).unwrap();
        assert_eq!(run(true), [3, 71, 3, 3]);
    }
}

#[test]
fn a_private_buffer_is_accessible_by_copies_only() {
    for mode in Mode::ALL {
        let device = device(mode);
        let pipeline = increment(&device);
        let private = device
            .buffer_with_data(&[5_i32, 6, 7, 8], StorageMode::Private)
            .unwrap();
        assert!(matches!(
            private.to_vec::<i32>(),
            Err(Error::Storage { .. })
        ));
        let shared = device.buffer(16, StorageMode::Shared).unwrap();
        let mut commands = device.commands();
        commands
            .dispatch(&pipeline)
            .read_write(0, &private)
            .threads(4, 4)
            .unwrap();
        commands.copy(&private, &shared).unwrap();
        commands.fill(shared.slice(12..16).unwrap(), 0xff).unwrap();
        commands.commit().unwrap().wait().unwrap();
        assert_eq!(shared.to_vec::<i32>().unwrap(), [6, 7, 8, -1], "{mode}");
    }
}

/// The caller's memory, which records when it is released.
struct CallerMemory {
    pointer: NonNull<u8>,
    dropped: Arc<AtomicBool>,
}

const CALLER_MEMORY: Layout =
    match Layout::from_size_align(NO_COPY_ALIGNMENT_BYTES, NO_COPY_ALIGNMENT_BYTES) {
        Ok(layout) => layout,
        Err(_) => panic!("a power of two"),
    };

// SAFETY: plain memory.
unsafe impl Send for CallerMemory {}
// SAFETY: as above.
unsafe impl Sync for CallerMemory {}

impl Drop for CallerMemory {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::SeqCst);
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.pointer.as_ptr(), CALLER_MEMORY) };
    }
}

#[test]
fn caller_memory_is_used_in_place_and_released_at_the_end() {
    for mode in Mode::ALL {
        let device = device(mode);
        let pipeline = increment(&device);
        let dropped = Arc::new(AtomicBool::new(false));
        // SAFETY: the layout is not empty.
        let pointer = NonNull::new(unsafe { alloc_zeroed(CALLER_MEMORY) }).unwrap();
        let memory = CallerMemory {
            pointer,
            dropped: dropped.clone(),
        };
        // SAFETY: the owner keeps the memory alive, and only the checks below read it, when no work is in flight.
        let buffer =
            unsafe { device.buffer_no_copy(pointer, CALLER_MEMORY.size(), memory) }.unwrap();
        for _ in 0..3 {
            let mut commands = device.commands();
            commands
                .dispatch(&pipeline)
                .read_write(0, &buffer)
                .threads(100, 32)
                .unwrap();
            commands.commit().unwrap().wait().unwrap();
        }
        // SAFETY: inside the memory.
        assert_eq!(unsafe { pointer.cast::<i32>().add(99).read() }, 3, "{mode}");
        let mut commands = device.commands();
        commands
            .dispatch(&pipeline)
            .read_write(0, &buffer)
            .threads(4096, 256)
            .unwrap();
        let submission = commands.commit().unwrap();
        drop(buffer);
        submission.wait().unwrap();
        drop(device);
        drop(pipeline);
        assert!(dropped.load(Ordering::SeqCst), "{mode}");
    }
}

#[test]
fn a_failed_allocation_is_an_error_and_the_next_one_works() {
    let device = fast();
    let limit = device.info().limits.max_buffer_length;
    let error = device.buffer(limit + 1, StorageMode::Shared).unwrap_err();
    assert!(matches!(error, Error::BufferTooLong { .. }), "{error}");
    // Far more than the machine has in total, in buffers of a valid length.
    let mut buffers = Vec::new();
    let error = loop {
        match device.buffer(limit, StorageMode::Private) {
            Ok(buffer) if buffers.len() < 100_000 => buffers.push(buffer),
            Ok(_) => return, // The system overcommits without limit; the front's own limit is tested elsewhere.
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    buffers.clear();
    device.buffer(1 << 20, StorageMode::Shared).unwrap();
}

#[test]
fn empty_buffers_and_offsets_are_bound() {
    let device = fast();
    let pipeline = increment(&device);
    let none = device.buffer(0, StorageMode::Shared).unwrap();
    assert!(none.to_vec::<i32>().unwrap().is_empty());
    let buffer = device
        .buffer_with_data(&[0_i32; 8], StorageMode::Shared)
        .unwrap();
    let mut commands = device.commands();
    commands
        .dispatch(&pipeline)
        .read_write(0, buffer.slice(16..32).unwrap())
        .threads(4, 2)
        .unwrap();
    commands.commit().unwrap().wait().unwrap();
    assert_eq!(buffer.to_vec::<i32>().unwrap(), [0, 0, 0, 0, 1, 1, 1, 1]);
}

#[test]
fn a_device_describes_itself() {
    let device = soft::device(options(Mode::Fast)).unwrap();
    let info = device.info();
    assert!(
        info.name.starts_with("Bessemer software Metal ("),
        "{}",
        info.name
    );
    assert!(info.unified_memory);
    assert!(info.recommended_working_set > 1 << 28);
    assert_eq!(info.limits.max_threadgroup_memory, 32 * 1024);
    assert!(
        !soft::compiler(&options(Mode::Fast))
            .unwrap()
            .version
            .is_empty()
    );
}

#[test]
fn buffers_are_zeroed_unless_allocated_uninitialised() {
    for mode in Mode::ALL {
        let device = device(mode);
        for storage in [StorageMode::Shared, StorageMode::Managed] {
            let cleared = device.buffer(64, storage).unwrap();
            assert_eq!(cleared.to_vec::<u8>().unwrap(), [0; 64], "{mode:?}");
            let fresh = device.buffer_uninit(64, storage).unwrap();
            assert_eq!(fresh.length(), 64);
            // Check and fuzz mode poison it, so that code that relies on zeros fails.
            if matches!(mode, Mode::Check | Mode::Fuzz) {
                let numbers = fresh.to_vec::<f32>().unwrap();
                assert!(numbers.iter().all(|x| x.is_nan()), "{mode:?}: {numbers:?}");
            }
        }
    }
}

#[test]
fn pipelines_in_fuzz_mode_allow_as_few_threads_as_real_ones() {
    let seen: std::collections::BTreeSet<usize> = (0..64)
        .map(|seed| {
            let options = soft::SoftOptions {
                seed,
                ..options(Mode::Fuzz)
            };
            let device = soft::device(options).unwrap();
            increment(&device).max_total_threads_per_threadgroup()
        })
        .collect();
    assert_eq!(seen.first(), Some(&384));
    assert_eq!(seen.last(), Some(&1024));
    assert!(seen.len() > 5, "{seen:?}");
    assert_eq!(
        increment(&device(Mode::Fast)).max_total_threads_per_threadgroup(),
        1024
    );
}

#[test]
fn commands_race_on_memory_of_aliasing_buffers() {
    let device = device(Mode::Check);
    let source = "#include <metal_stdlib>
using namespace metal;
kernel void writes(device int* a [[buffer(0)]], constant uint& at [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  a[at + i] = 1;
}
kernel void reads(device int* b [[buffer(0)]], const device int* a [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  b[i] = a[i];
}
";
    let library = library(&device, source);
    let (writes, reads) = (
        library.pipeline("writes").unwrap(),
        library.pipeline("reads").unwrap(),
    );
    // SAFETY: the layout is not empty.
    let pointer = NonNull::new(unsafe { alloc_zeroed(CALLER_MEMORY) }).unwrap();
    let memory = CallerMemory {
        pointer,
        dropped: Arc::default(),
    };
    // SAFETY: the owner keeps the memory alive; check mode runs the commands sequentially, so the aliasing buffers are
    // not accessed concurrently.
    let one = unsafe { device.buffer_no_copy(pointer, CALLER_MEMORY.size(), memory) }.unwrap();
    // SAFETY: as above; dropped before the other.
    let two = unsafe { device.buffer_no_copy(pointer, CALLER_MEMORY.size(), ()) }.unwrap();
    let out = empty::<i32>(&device, 64);
    let run = |at: u32, copied: &Buffer, read: &Buffer| {
        let mut commands = device.commands();
        commands
            .dispatch(&writes)
            .read_write(0, &one)
            .bytes(1, &at)
            .threads(64, 32)?;
        commands.copy(copied.slice(512..768)?, out.slice(0..256)?)?;
        commands
            .dispatch(&reads)
            .read_write(0, &out)
            .read(1, read)
            .threads(64, 32)?;
        commands.commit()?.wait()
    };
    // The front detects the first hazard, and the second pair accesses different bytes.
    run(0, &one, &one).unwrap();
    run(256, &two, &two).unwrap();
    let error = run(128, &two, &one).unwrap_err();
    let Error::Checked { reports } = &error else {
        panic!("{error:?}");
    };
    assert_eq!((reports.len(), reports[0].kind), (1, ReportKind::Race));
    assert_eq!(
        reports[0].message,
        "the read of a copy conflicts with the write by kernel `writes` at line 4: no barrier orders the two commands"
    );
    // Two kernels.
    let mut commands = device.commands();
    commands
        .dispatch(&writes)
        .read_write(0, &one)
        .bytes(1, &0_u32)
        .threads(64, 32)
        .unwrap();
    commands
        .dispatch(&reads)
        .read_write(0, &out)
        .read(1, &two)
        .threads(64, 32)
        .unwrap();
    let error = commands.commit().unwrap().wait().unwrap_err();
    let Error::Checked { reports } = &error else {
        panic!("{error:?}");
    };
    let report = &reports[0];
    assert_eq!((report.kernel.as_str(), report.line), ("reads", 7));
    assert_eq!(
        report.message,
        "read of 4 bytes at offset 0 of buffer 1 (`a`) conflicts with the write by kernel `writes` at line 4: no barrier \
         orders the two commands"
    );
    drop(two);
}
