//! Hand-written kernels that report their accesses as check-mode images do.
#![expect(unsafe_code, reason = "kernels are raw code on raw memory")]

use std::time::{Duration, Instant};

use crate::report::{Report, ReportKind};
use crate::soft::group::RegionFn;
use crate::soft::plan::{
    FINISHED, KernelPlan, Location, Origin, Site, SiteKind, ThreadgroupVariable,
};
use crate::soft::runtime::services::{ACCESS_ATOMIC, ACCESS_WRITE, table};
use crate::soft::runtime::test_kernel::{Lane, bind, region};
use crate::soft::runtime::{
    BindingAccess, BufferBinding, FaultKind, Image, KernelLaunch, LaunchMode, Pool,
};

const WRITE: u32 = ACCESS_WRITE;
const ATOMIC: u32 = ACCESS_ATOMIC;

/// Reports an access of 4 bytes, then performs it unless the threadgroup was abandoned.
fn touch(pointer: *mut u32, flags: u32, line: u32) -> u32 {
    // SAFETY: the checker abandons the threadgroup if the address is not valid.
    unsafe {
        (table().access)(pointer.cast(), 4 | flags, line);
        if flags & WRITE != 0 {
            pointer.write_volatile(1);
            0
        } else {
            pointer.read_volatile()
        }
    }
}

fn element(lane: Lane, buffer: usize, index: isize) -> *mut u32 {
    lane.buffer::<u32>(buffer).wrapping_offset(index)
}

fn tile(lane: Lane, index: isize) -> *mut u32 {
    // SAFETY: the group is live.
    unsafe { (*lane.group).arena.cast::<u32>().wrapping_offset(index) }
}

fn argument(lane: Lane, index: isize) -> *mut u32 {
    // SAFETY: the group is live.
    unsafe { (*lane.group).tgmem[0].cast::<u32>().wrapping_offset(index) }
}

/// Builds an image in which location `n` is line `n`; site `k` is on line `100 + k`, except that all sites of `copies`
/// are on one line.
fn checked_image(name: &str, regions: &[RegionFn], kind: SiteKind, flags: u32) -> Image {
    let locations = (0..120)
        .map(|line| Location {
            file: "test.metal".into(),
            line,
            column: 5,
            inlined_at: None,
        })
        .collect();
    let plan = KernelPlan {
        regions: regions.len() as u32,
        sites: (1..regions.len() as u32)
            .map(|site| Site {
                kind,
                flags,
                op: 0,
                args: vec![],
                result: None,
                location: 100 + if name == "copies" { 1 } else { site },
            })
            .collect(),
        context_bytes: 4096,
        arena_bytes: 256 + 64,
        variables: vec![ThreadgroupVariable {
            id: 9,
            offset: 0,
            size: 256,
        }],
        locations,
        origins: vec![None, Some(Origin::Buffer(0))],
        ..KernelPlan::default()
    };
    // SAFETY: the regions follow the protocol and are part of this program.
    unsafe { Image::new(name, regions.to_vec(), vec![], plan) }
        .with_buffers([(0, "in".to_owned()), (1, "out".to_owned())])
        .with_variables([(9, "tile".to_owned())])
}

fn barrier_image(regions: &[RegionFn]) -> Image {
    checked_image("k", regions, SiteKind::Threadgroup, 2)
}

struct Setup {
    threads: u32,
    threadgroup: u32,
    argument: usize,
    out_elements: usize,
}

const SETUP: Setup = Setup {
    threads: 64,
    threadgroup: 64,
    argument: 0,
    out_elements: 64,
};

fn reports(image: &Image, setup: &Setup) -> Vec<Report> {
    let mut input = vec![0_u32; 64];
    let mut out = vec![0_u32; setup.out_elements];
    let mut launch = KernelLaunch::new(image, [setup.threads, 1, 1], [setup.threadgroup, 1, 1]);
    launch.mode = LaunchMode::Check;
    // SAFETY: lives through the launch.
    launch.buffers[0] =
        unsafe { BufferBinding::new(input.as_mut_ptr().cast(), 256, BindingAccess::Read) };
    launch.buffers[1] = bind(&mut out);
    launch.threadgroup_memory[0] = setup.argument;
    let pool = Pool::with_threads(2).unwrap();
    pool.run(&launch).unwrap().reports
}

fn kinds(reports: &[Report]) -> Vec<(ReportKind, u32)> {
    reports.iter().map(|r| (r.kind, r.line)).collect()
}

region!(copy, |lane: Lane| {
    let i = lane.at[0] as isize;
    touch(element(lane, 0, i % 64), 0, 1);
    touch(element(lane, 1, i), WRITE, 2);
    FINISHED
});

region!(copy_past, |lane: Lane| {
    let i = lane.at[0] as isize;
    touch(element(lane, 1, i), WRITE, 2);
    FINISHED
});

region!(read_before, |lane: Lane| {
    touch(element(lane, 0, lane.at[0] as isize - 1), 0, 1);
    FINISHED
});

region!(write_read_only, |lane: Lane| {
    touch(element(lane, 0, lane.at[0] as isize), WRITE, 1);
    FINISHED
});

#[test]
fn a_correct_kernel_is_clean() {
    assert_eq!(reports(&barrier_image(&[copy]), &SETUP), []);
}

#[test]
fn overruns_name_buffer_offset_and_length() {
    let setup = Setup {
        threads: 65,
        threadgroup: 13,
        ..SETUP
    };
    let found = reports(&barrier_image(&[copy_past]), &setup);
    assert_eq!(found.len(), 1);
    let report = &found[0];
    assert_eq!(
        report.message,
        "write of 4 bytes at offset 256 of buffer 1 (`out`), which has 256 bytes"
    );
    assert_eq!((report.kind, report.buffer), (ReportKind::Bounds, Some(1)));
    assert_eq!(
        (report.file.as_str(), report.line, report.column),
        ("test.metal", 2, 5)
    );
    assert_eq!(
        (report.thread, report.threadgroup),
        (Some([64, 0, 0]), Some([4, 0, 0]))
    );

    let found = reports(&barrier_image(&[read_before]), &SETUP);
    assert_eq!(
        found[0].message,
        "read of 4 bytes at offset -4 of buffer 0 (`in`), which has 256 bytes"
    );
    let found = reports(&barrier_image(&[write_read_only]), &SETUP);
    assert_eq!(kinds(&found), [(ReportKind::Bounds, 1)]);
    assert_eq!(found[0].count, 64);
    assert!(
        found[0]
            .message
            .ends_with("which is bound for reading only")
    );
}

region!(null, |lane: Lane| {
    touch(std::ptr::without_provenance_mut(16), WRITE, 3);
    touch(element(lane, 1, 0), WRITE, 4);
    FINISHED
});

static CONSTANT: u32 = 5;

region!(constants, |lane: Lane| {
    let mut private = 0_u32;
    touch(&raw mut private, WRITE, 5);
    touch((&raw const CONSTANT).cast_mut(), 0, 6);
    touch(lane.group.cast_mut().cast(), 0, 7);
    touch((&raw const CONSTANT).cast_mut(), WRITE, 8);
    FINISHED
});

#[test]
fn wild_addresses_abandon_the_threadgroup_and_private_memory_is_accepted() {
    let found = reports(&barrier_image(&[null]), &SETUP);
    assert_eq!(kinds(&found), [(ReportKind::Bounds, 3)]);
    assert_eq!(
        found[0].message,
        "write of 4 bytes at address 0x10, which is outside of every buffer"
    );
    assert_eq!(found[0].count, 1);
    let found = reports(&barrier_image(&[constants]), &SETUP);
    assert_eq!(kinds(&found), [(ReportKind::Bounds, 8)]);
}

region!(fill_tile, |lane: Lane| {
    touch(tile(lane, lane.index as isize), WRITE, 10);
    1
});

region!(read_neighbour, |lane: Lane| {
    touch(tile(lane, (lane.index as isize + 1) % 64), 0, 11);
    FINISHED
});

region!(fill_and_read_neighbour, |lane: Lane| {
    touch(tile(lane, lane.index as isize), WRITE, 10);
    touch(tile(lane, (lane.index as isize + 1) % 64), 0, 11);
    FINISHED
});

region!(read_neighbour_and_fill, |lane: Lane| {
    touch(tile(lane, (lane.index as isize + 1) % 64), 0, 11);
    touch(tile(lane, lane.index as isize), WRITE, 12);
    FINISHED
});

#[test]
fn barriers_order_threadgroup_memory_if_their_flags_include_it() {
    let kernel = [fill_tile as RegionFn, read_neighbour];
    assert_eq!(reports(&barrier_image(&kernel), &SETUP), []);
    for flags in [0, 1, 4] {
        let image = checked_image("k", &kernel, SiteKind::Threadgroup, flags);
        let found = reports(&image, &SETUP);
        assert_eq!(kinds(&found), [(ReportKind::Race, 11)]);
    }
    // A SIMD-group barrier does not order the two SIMD-groups.
    let image = checked_image("k", &kernel, SiteKind::Simdgroup, 2);
    let found = reports(&image, &SETUP);
    let races = [(ReportKind::Race, 10), (ReportKind::Race, 11)];
    assert_eq!(kinds(&found), races);
    assert_eq!([found[0].count, found[1].count], [1, 1]);
    let small = Setup {
        threads: 32,
        threadgroup: 32,
        ..SETUP
    };
    let one = [fill_tile as RegionFn, copy];
    assert_eq!(
        reports(&checked_image("k", &one, SiteKind::Simdgroup, 2), &small),
        []
    );
}

#[test]
fn a_missing_barrier_is_a_race_and_not_an_uninitialised_read() {
    let found = reports(&barrier_image(&[fill_and_read_neighbour]), &SETUP);
    assert_eq!(
        kinds(&found),
        [(ReportKind::Race, 10), (ReportKind::Race, 11)]
    );
    assert_eq!(
        found[0].message,
        "write of 4 bytes at offset 4 of threadgroup variable `tile` conflicts with the read by thread \
         [0, 0, 0] at line 11: no barrier orders them"
    );
    let found = reports(
        &barrier_image(&[fill_tile, read_neighbour_and_fill]),
        &SETUP,
    );
    assert_eq!(
        kinds(&found),
        [(ReportKind::Race, 11), (ReportKind::Race, 12)]
    );
}

region!(read_tile, |lane: Lane| {
    touch(tile(lane, lane.index as isize), 0, 20);
    1
});

#[test]
fn unwritten_threadgroup_memory_is_reported() {
    let found = reports(&barrier_image(&[read_tile, fill_tile_last]), &SETUP);
    assert_eq!(kinds(&found), [(ReportKind::Uninitialised, 20)]);
    assert_eq!(
        found[0].message,
        "read of 4 bytes at offset 0 of threadgroup variable `tile`, where nothing was written"
    );
    assert_eq!(found[0].count, 64);
    // The second threadgroup must not see what the first has written.
    let setup = Setup {
        threads: 128,
        ..SETUP
    };
    assert_eq!(
        reports(&barrier_image(&[read_tile, fill_tile_last]), &setup)[0].count,
        128
    );
}

region!(fill_tile_last, |lane: Lane| {
    touch(tile(lane, lane.index as isize), WRITE, 21);
    FINISHED
});

region!(overrun_tile, |lane: Lane| {
    touch(tile(lane, lane.index as isize + 1), WRITE, 30);
    FINISHED
});

region!(fill_argument, |lane: Lane| {
    touch(argument(lane, lane.index as isize), WRITE, 31);
    FINISHED
});

#[test]
fn threadgroup_overruns_and_missing_memory_are_reported() {
    let found = reports(&barrier_image(&[overrun_tile]), &SETUP);
    assert_eq!(kinds(&found), [(ReportKind::Bounds, 30)]);
    assert_eq!(
        found[0].message,
        "write of 4 bytes at offset 256 of threadgroup variable `tile`, which has 256 bytes"
    );
    assert_eq!(found[0].thread, Some([63, 0, 0]));
    let image = barrier_image(&[fill_argument]);
    assert_eq!(
        reports(
            &image,
            &Setup {
                argument: 256,
                ..SETUP
            }
        ),
        []
    );
    let found = reports(
        &image,
        &Setup {
            argument: 128,
            ..SETUP
        },
    );
    assert_eq!(kinds(&found), [(ReportKind::Bounds, 31)]);
    assert_eq!(
        found[0].message,
        "write of 4 bytes at offset 128 of threadgroup argument 0, which has 128 bytes"
    );
    assert_eq!(found[0].count, 32);
    let found = reports(&image, &SETUP);
    assert_eq!(kinds(&found), [(ReportKind::ThreadgroupMemory, 31)]);
}

region!(all_write_first, |lane: Lane| {
    touch(element(lane, 1, 0), WRITE, 40);
    FINISHED
});

region!(all_add_first, |lane: Lane| {
    touch(element(lane, 1, 0), WRITE | ATOMIC, 41);
    touch(element(lane, 1, 0), ATOMIC, 42);
    FINISHED
});

region!(add_then_read, |lane: Lane| {
    touch(element(lane, 1, 0), WRITE | ATOMIC, 41);
    1
});

region!(plain_read, |lane: Lane| {
    touch(element(lane, 1, 0), 0, 43);
    FINISHED
});

#[test]
fn device_races_are_found_inside_and_between_threadgroups() {
    let found = reports(&barrier_image(&[all_write_first]), &SETUP);
    assert_eq!(kinds(&found), [(ReportKind::Race, 40)]);
    assert_eq!((found[0].buffer, found[0].count), (Some(1), 63));
    let apart = Setup {
        threadgroup: 1,
        ..SETUP
    };
    let found = reports(&barrier_image(&[all_write_first]), &apart);
    assert_eq!(kinds(&found), [(ReportKind::Race, 40)]);
    assert!(
        found[0].message.contains("threadgroups are not ordered"),
        "{}",
        found[0].message
    );
    assert_eq!(reports(&barrier_image(&[all_add_first]), &apart), []);
    assert_eq!(reports(&barrier_image(&[all_add_first]), &SETUP), []);
    // An atomic access and a plain read are only ordered by a barrier over device memory.
    let kernel = [add_then_read as RegionFn, plain_read];
    assert_eq!(
        reports(
            &checked_image("k", &kernel, SiteKind::Threadgroup, 1),
            &SETUP
        ),
        []
    );
    let found = reports(
        &checked_image("k", &kernel, SiteKind::Threadgroup, 2),
        &SETUP,
    );
    assert_eq!(kinds(&found), [(ReportKind::Race, 43)]);
    assert!(found[0].message.contains("the atomic write"));
}

region!(half_returns, |lane: Lane| {
    if lane.index < 32 { FINISHED } else { 1 }
});

region!(split, |lane: Lane| { if lane.index < 32 { 1 } else { 2 } });
region!(split_inside, |lane: Lane| {
    if lane.index & 1 == 0 { 1 } else { 2 }
});
region!(done, |_: Lane| FINISHED);

#[test]
fn divergence_is_reported_at_the_divergent_site() {
    let found = reports(&barrier_image(&[half_returns, done]), &SETUP);
    assert_eq!(kinds(&found), [(ReportKind::EarlyReturn, 101)]);
    assert_eq!(
        found[0].message,
        "32 of the threadgroup's 64 threads returned before this barrier"
    );
    let found = reports(&barrier_image(&[split, done, done]), &SETUP);
    assert_eq!(kinds(&found), [(ReportKind::DivergentBarrier, 102)]);
    assert_eq!(found[0].thread, Some([32, 0, 0]));
    assert!(
        found[0].message.ends_with("the one at line 101"),
        "{}",
        found[0].message
    );
    // Copies of one call are one barrier.
    let twice = checked_image("copies", &[split, done, done], SiteKind::Threadgroup, 2);
    assert_eq!(reports(&twice, &SETUP), []);
    let image = checked_image("k", &[split_inside, done, done], SiteKind::Simdgroup, 2);
    let found = reports(&image, &SETUP);
    assert_eq!(kinds(&found), [(ReportKind::DivergentSimd, 101)]);
    // Different SIMD-groups may be at different sites.
    let image = checked_image("k", &[split, done, done], SiteKind::Simdgroup, 2);
    assert_eq!(reports(&image, &SETUP), []);
}

region!(out_of_bounds, |lane: Lane| {
    touch(element(lane, 1, 99), WRITE, 50);
    FINISHED
});

region!(crash_after_report, |lane: Lane| {
    if lane.at[0] == 0 {
        touch(element(lane, 1, 99), WRITE, 50);
    }
    touch(element(lane, 1, 1), WRITE, 51);
    // SAFETY: none, on purpose.
    unsafe { std::ptr::with_exposed_provenance_mut::<u32>(64).write_volatile(1) };
    FINISHED
});

#[test]
fn faults_carry_the_reports_so_far() {
    let image = barrier_image(&[crash_after_report]);
    let mut out = vec![0_u32; 64];
    let mut launch = KernelLaunch::new(&image, [2, 1, 1], [1, 1, 1]);
    launch.mode = LaunchMode::Check;
    launch.buffers[1] = bind(&mut out);
    let pool = Pool::with_threads(1).unwrap();
    let fault = pool.run(&launch).expect_err("crashes");
    assert!(matches!(fault.kind, FaultKind::PageFault { .. }));
    assert_eq!(kinds(&fault.reports), [(ReportKind::Bounds, 50)]);
    let report = fault.report();
    assert_eq!((report.kind, report.line), (ReportKind::Crash, 51));
    assert_eq!(report.thread, Some([1, 0, 0]));
}

#[test]
fn abandoned_threadgroups_do_not_leak_memory() {
    let resident = || -> u64 {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse().unwrap()
    };
    let image = barrier_image(&[out_of_bounds]);
    let setup = Setup {
        threads: 10_000,
        threadgroup: 1,
        ..SETUP
    };
    reports(&image, &setup);
    let before = resident();
    for _ in 0..20 {
        assert_eq!(reports(&image, &setup)[0].count, 10_000);
    }
    assert!(resident() < before + 16_384);
}

region!(endless_access, |lane: Lane| {
    loop {
        touch(element(lane, 1, 0), 0, 60);
    }
});

#[test]
fn the_time_limit_is_kept_in_check_mode() {
    let image = barrier_image(&[endless_access]);
    let mut out = vec![0_u32; 64];
    let pool = Pool::with_threads(2).unwrap();
    for _ in 0..20 {
        let mut launch = KernelLaunch::new(&image, [64, 1, 1], [1, 1, 1]);
        launch.mode = LaunchMode::Check;
        launch.limit = Duration::from_millis(10);
        launch.buffers[1] = bind(&mut out);
        let fault = pool.run(&launch).expect_err("endless");
        assert!(matches!(fault.kind, FaultKind::Timeout { .. }));
    }
}

#[expect(unconditional_recursion, reason = "overflows the stack, on purpose")]
fn descend(lane: Lane, depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 64]);
    touch(element(lane, 1, 0), 0, 61);
    descend(lane, depth + 1) + std::hint::black_box(frame[1])
}

region!(endless_recursion, |lane: Lane| {
    std::hint::black_box(descend(lane, 0));
    FINISHED
});

#[test]
fn a_stack_overflow_is_a_fault_although_the_checker_needs_stack() {
    let image = barrier_image(&[endless_recursion]);
    let mut out = vec![0_u32; 64];
    let pool = Pool::with_threads(2).unwrap();
    let mut launch = KernelLaunch::new(&image, [64, 1, 1], [1, 1, 1]);
    launch.mode = LaunchMode::Check;
    launch.buffers[1] = bind(&mut out);
    let fault = pool.run(&launch).expect_err("overflows");
    assert_eq!(fault.kind, FaultKind::StackOverflow);
}

#[test]
fn large_launches_are_checked_in_parallel() {
    let setup = Setup {
        threads: 1 << 20,
        threadgroup: 256,
        out_elements: 1 << 20,
        ..SETUP
    };
    let start = Instant::now();
    assert_eq!(reports(&barrier_image(&[copy]), &setup), []);
    let accesses = 2 << 20;
    println!("{:?} per access", start.elapsed() / accesses);
}
