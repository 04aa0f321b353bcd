//! Launches of hand-written kernels: crashes, endless loops, concurrency, memory.
#![expect(unsafe_code, reason = "kernels are raw code on raw memory")]

use std::arch::asm;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::test_kernel::{Lane, bind, image, region};
use super::{
    BindingAccess, BufferBinding, FaultKind, Image, InlineBytes, KernelLaunch, LaunchMode, Pool,
};
use crate::soft::group::RegionFn;
use crate::soft::plan::FINISHED;

region!(empty_region, |_: Lane| FINISHED);

region!(write_index, |lane: Lane| {
    let [x, y, z] = lane.at;
    // SAFETY: the test's buffer has an element per thread.
    unsafe {
        let g = &*lane.group;
        let at = (z * g.grid[1] + y) * g.grid[0] + x;
        lane.buffer::<u32>(0).add(at as usize).write(at + 1);
    }
    FINISHED
});

region!(null_write, |lane: Lane| {
    if lane.at[0] == 700 {
        // SAFETY: none, on purpose.
        unsafe { std::ptr::with_exposed_provenance_mut::<u32>(64).write_volatile(1) };
    }
    FINISHED
});

region!(past_the_end, |lane: Lane| {
    // SAFETY: none, on purpose: the test puts a guard page here.
    unsafe { lane.buffer::<u32>(2).add(1024).write_volatile(1) };
    FINISHED
});

#[cfg(target_arch = "x86_64")]
region!(divide, |_: Lane| {
    // SAFETY: raises SIGFPE, on purpose.
    unsafe {
        asm!("xor edx, edx", "mov eax, 1", "xor ecx, ecx", "idiv ecx",
            out("eax") _, out("edx") _, out("ecx") _);
    }
    FINISHED
});

#[cfg(target_arch = "x86_64")]
region!(illegal, |_: Lane| {
    // SAFETY: raises SIGILL, on purpose.
    unsafe { asm!("ud2") };
    FINISHED
});

#[cfg(target_arch = "x86_64")]
region!(breakpoint, |_: Lane| {
    // SAFETY: raises SIGTRAP, on purpose.
    unsafe { asm!("int3") };
    FINISHED
});

#[cfg(target_arch = "x86_64")]
region!(non_canonical, |_: Lane| {
    // SAFETY: none, on purpose.
    unsafe {
        asm!("mov rax, 0x7fff000000000000", "mov [rax], eax", out("rax") _);
    }
    FINISHED
});

#[inline(never)]
fn recurse(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 64]);
    if depth == u64::MAX {
        return frame[0];
    }
    recurse(depth + 1) + std::hint::black_box(frame[1])
}

region!(overflow, |_: Lane| {
    std::hint::black_box(recurse(0));
    FINISHED
});

region!(forever, |_: Lane| {
    loop {
        std::hint::spin_loop();
    }
});

region!(forever_tight, |_: Lane| {
    // SAFETY: an endless loop.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("2: jmp 2b", options(noreturn))
    }
    // SAFETY: an endless loop.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("2: b 2b", options(noreturn))
    }
});

region!(clobber_registers, |_: Lane| {
    // SAFETY: clobbers callee-saved registers, then faults: the runtime must restore them.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "mov rbx, 1",
            "mov r12, 2",
            "mov r13, 3",
            "mov r14, 4",
            "mov r15, 5",
            "mov rbp, 6",
            "std",
            "push 0x1f00",
            "ldmxcsr [rsp]",
            "mov dword ptr [rbx], 1",
            options(noreturn)
        )
    }
    #[cfg(not(target_arch = "x86_64"))]
    FINISHED
});

fn fault(image: &Image, pool: &Pool, grid: u32) -> super::LaunchFault {
    let mut launch = KernelLaunch::new(image, [grid, 1, 1], [32, 1, 1]);
    launch.limit = Duration::from_millis(100);
    pool.run(&launch).expect_err("the kernel misbehaves")
}

fn check_works(pool: &Pool) {
    let image = image("write_index", &[write_index]);
    let mut out = vec![0_u32; 5000];
    let mut launch = KernelLaunch::new(&image, [5000, 1, 1], [64, 1, 1]);
    launch.buffers[0] = bind(&mut out);
    pool.run(&launch).unwrap();
    assert!(out.iter().zip(1..).all(|(&value, index)| value == index));
}

#[test]
fn every_thread_of_a_ragged_grid_runs_once() {
    for threads in [1, 2, 5] {
        let pool = Pool::with_threads(threads).unwrap();
        let image = image("write_index", &[write_index]);
        for (grid, threadgroup) in [
            ([1, 1, 1], [1, 1, 1]),
            ([1000, 1, 1], [256, 1, 1]),
            ([33, 17, 5], [8, 4, 2]),
            ([100_000, 1, 1], [32, 1, 1]),
            ([7, 9, 11], [1, 1, 1]),
        ] {
            let count: u32 = grid.iter().product();
            let mut out = vec![0_u32; count as usize];
            for mode in [
                LaunchMode::Fast,
                LaunchMode::Check,
                LaunchMode::Fuzz { seed: 3 },
            ] {
                out.fill(0);
                let mut launch = KernelLaunch::new(&image, grid, threadgroup);
                launch.buffers[0] = bind(&mut out);
                launch.mode = mode;
                pool.run(&launch).unwrap();
                assert!(out.iter().zip(1..).all(|(&value, index)| value == index));
            }
        }
    }
}

#[test]
fn empty_grids_run_and_invalid_threadgroups_fail() {
    let pool = Pool::with_threads(2).unwrap();
    let image = image("empty_region", &[empty_region]);
    pool.run(&KernelLaunch::new(&image, [0, 1, 1], [1, 1, 1]))
        .unwrap();
    pool.run(&KernelLaunch::new(&image, [5, 0, 1], [1, 1, 1]))
        .unwrap();
    for threadgroup in [
        [0, 1, 1],
        [1025, 1, 1],
        [1 << 16, 1 << 16, 1],
        [u32::MAX; 3],
    ] {
        let fault = pool
            .run(&KernelLaunch::new(&image, [1, 1, 1], threadgroup))
            .expect_err("an invalid threadgroup");
        assert_eq!(fault.kind, FaultKind::Invalid);
    }
    let oversized = KernelLaunch {
        threadgroup_memory: [usize::MAX / 16; 31],
        ..KernelLaunch::new(&image, [1, 1, 1], [1, 1, 1])
    };
    let fault = pool
        .run(&oversized)
        .expect_err("too much threadgroup memory");
    assert_eq!(fault.kind, FaultKind::OutOfMemory);
    check_works(&pool);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn crashes_are_faults_and_the_pool_survives() {
    struct Case {
        name: &'static str,
        region: RegionFn,
        kind: FaultKind,
    }
    let cases = [
        Case {
            name: "null_write",
            region: null_write,
            kind: FaultKind::PageFault { address: Some(64) },
        },
        Case {
            name: "divide",
            region: divide,
            kind: FaultKind::DivisionByZero,
        },
        Case {
            name: "illegal",
            region: illegal,
            kind: FaultKind::IllegalInstruction,
        },
        Case {
            name: "breakpoint",
            region: breakpoint,
            kind: FaultKind::Trap {
                signal: libc::SIGTRAP,
            },
        },
        Case {
            name: "non_canonical",
            region: non_canonical,
            kind: FaultKind::PageFault { address: None },
        },
        Case {
            name: "overflow",
            region: overflow,
            kind: FaultKind::StackOverflow,
        },
        Case {
            name: "clobber_registers",
            region: clobber_registers,
            kind: FaultKind::PageFault { address: Some(1) },
        },
    ];
    for threads in [1, 3] {
        let pool = Pool::with_threads(threads).unwrap();
        for case in &cases {
            let image = image(case.name, &[case.region]);
            for grid in [1000, 100_000] {
                let fault = fault(&image, &pool, grid);
                assert_eq!(fault.kind, case.kind, "{}", case.name);
                assert_eq!(fault.kernel, case.name);
                assert!(fault.threadgroup.is_some());
            }
            check_works(&pool);
        }
    }
}

#[test]
fn a_crash_names_threadgroup_and_nearest_buffer() {
    let pool = Pool::with_threads(2).unwrap();
    let crash = image("null_write", &[null_write]);
    assert_eq!(fault(&crash, &pool, 1000).threadgroup, Some([21, 0, 0]));
    let block = super::MappedMemory::guarded(4096).unwrap();
    let image = image("past_the_end", &[past_the_end]);
    let mut launch = KernelLaunch::new(&image, [1, 1, 1], [1, 1, 1]);
    // SAFETY: the block lives through the launch.
    launch.buffers[2] = unsafe { BufferBinding::new(block.pointer(), 4096, BindingAccess::Write) };
    let fault = pool.run(&launch).expect_err("writes into the guard page");
    assert_eq!(fault.detail, "0 bytes past the end of buffer 2");
}

#[test]
fn endless_kernels_time_out() {
    for threads in [1, 3] {
        let pool = Pool::with_threads(threads).unwrap();
        for region in [forever as RegionFn, forever_tight] {
            let image = image("forever", &[region]);
            for grid in [1, 10_000] {
                let start = Instant::now();
                let fault = fault(&image, &pool, grid);
                let limit = Duration::from_millis(100);
                assert_eq!(fault.kind, FaultKind::Timeout { limit });
                assert!(start.elapsed() < Duration::from_secs(2));
            }
            check_works(&pool);
        }
    }
}

#[test]
fn a_short_limit_is_kept_while_a_longer_one_runs() {
    let image = image("forever", &[forever]);
    std::thread::scope(|scope| {
        for limit in [400, 100] {
            let image = &image;
            scope.spawn(move || {
                let pool = Pool::with_threads(1).unwrap();
                let mut launch = KernelLaunch::new(image, [1, 1, 1], [1, 1, 1]);
                launch.limit = Duration::from_millis(limit);
                let start = Instant::now();
                pool.run(&launch).expect_err("endless");
                let took = start.elapsed();
                assert!(took >= launch.limit && took < launch.limit + Duration::from_secs(1));
            });
        }
    });
}

#[test]
fn concurrent_threads_launch_crash_and_hang() {
    let pool = Pool::with_threads(3).unwrap();
    let crash = image("null_write", &[null_write]);
    let hang = image("forever", &[forever]);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (pool, crash, hang) = (&pool, &crash, &hang);
            scope.spawn(move || {
                for round in 0..40 {
                    match (thread + round) % 8 {
                        0 => {
                            let found = fault(crash, pool, 2000);
                            assert!(matches!(found.kind, FaultKind::PageFault { .. }));
                        }
                        1 if round < 8 => {
                            let mut launch = KernelLaunch::new(hang, [64, 1, 1], [32, 1, 1]);
                            launch.limit = Duration::from_millis(20);
                            let found = pool.run(&launch).expect_err("endless");
                            assert!(matches!(found.kind, FaultKind::Timeout { .. }));
                        }
                        _ => check_works(pool),
                    }
                }
            });
        }
    });
}

#[test]
fn pools_can_be_created_and_dropped_repeatedly() {
    for _ in 0..50 {
        let pools: Vec<_> = (0..3).map(|_| Pool::with_threads(3).unwrap()).collect();
        pools.iter().for_each(check_works);
    }
}

fn resident_pages() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_hundred_thousand_launches_do_not_leak_memory() {
    let pool = Pool::with_threads(2).unwrap();
    let image = image("write_index", &[write_index]);
    let crash = crash_image();
    let mut out = vec![0_u32; 4096];
    let mut run = |count: u32| {
        for round in 0..count {
            let mut launch = KernelLaunch::new(&image, [64 + round % 512, 1, 1], [64, 1, 1]);
            launch.buffers[0] = bind(&mut out);
            pool.run(&launch).unwrap();
            if round % 100 == 0 {
                fault(&crash, &pool, 1000);
            }
        }
    };
    run(5_000);
    let before = resident_pages();
    let start = Instant::now();
    run(100_000);
    println!("{:?} per launch", start.elapsed() / 100_000);
    // Other tests of this process allocate concurrently.
    assert!(resident_pages() < before + 16_384, "grew beyond 64 MiB");
}

fn crash_image() -> Image {
    image("null_write", &[null_write])
}

#[test]
fn an_empty_launch_takes_microseconds() {
    let pool = Pool::new().unwrap();
    let image = image("empty_region", &[empty_region]);
    let launch = KernelLaunch::new(&image, [1, 1, 1], [1, 1, 1]);
    let best = (0..1000)
        .map(|_| {
            let start = Instant::now();
            pool.run(&launch).unwrap();
            start.elapsed()
        })
        .min()
        .unwrap();
    println!("empty launch: {best:?}");
    assert!(best < Duration::from_micros(50));
}

region!(sum_of_unbound, |lane: Lane| {
    // SAFETY: unbound buffers are readable zeros.
    unsafe {
        let sum: u32 = (0..16384).map(|i| *lane.buffer::<u32>(5).add(i)).sum();
        let parameter = *lane.buffer::<[u32; 4]>(3);
        lane.buffer::<u32>(0).write(sum + parameter[2]);
    }
    FINISHED
});

#[test]
fn unbound_buffers_read_as_zero_and_bytes_are_bound() {
    let pool = Pool::with_threads(1).unwrap();
    let image = image("sum_of_unbound", &[sum_of_unbound]);
    let mut out = [1_u32];
    let bytes = InlineBytes::new(bytemuck::bytes_of(&[1_u32, 2, 3, 4]));
    let mut launch = KernelLaunch::new(&image, [1, 1, 1], [1, 1, 1]);
    launch.buffers[0] = bind(&mut out);
    launch.buffers[3] = bytes.binding();
    pool.run(&launch).unwrap();
    assert_eq!(out[0], 3);
}

static ORDER: AtomicU64 = AtomicU64::new(0);
static NEXT_TICKET: AtomicU32 = AtomicU32::new(0);

region!(note_order, |lane: Lane| {
    let ticket = u64::from(NEXT_TICKET.fetch_add(1, Ordering::Relaxed));
    ORDER.fetch_add(ticket * u64::from(lane.at[0]), Ordering::Relaxed);
    // SAFETY: called inside a launch.
    let random = unsafe { (super::services::table().random)() };
    ORDER.fetch_add(u64::from(random), Ordering::Relaxed);
    let _ = (lane.local, lane.index);
    FINISHED
});

#[test]
fn fuzzing_is_reproducible_by_seed() {
    let pool = Pool::with_threads(3).unwrap();
    let image = image("note_order", &[note_order]);
    let run = |seed, sequence| {
        ORDER.store(0, Ordering::Relaxed);
        NEXT_TICKET.store(0, Ordering::Relaxed);
        let mut launch = KernelLaunch::new(&image, [1000, 1, 1], [8, 1, 1]);
        launch.mode = LaunchMode::Fuzz { seed };
        launch.sequence = sequence;
        pool.run(&launch).unwrap();
        ORDER.load(Ordering::Relaxed)
    };
    let first = run(1, 0);
    assert_eq!(first, run(1, 0));
    assert_ne!(first, run(2, 0));
    assert_ne!(first, run(1, 1));
}

region!(log_text, |lane: Lane| {
    let arguments = [lane.at[0].into(), c"text".as_ptr() as u64];
    // SAFETY: the table's contract.
    unsafe {
        (super::services::table().log)(
            2,
            c"sub".as_ptr(),
            c"cat".as_ptr(),
            c"thread %u logs %s".as_ptr(),
            arguments.as_ptr(),
            b"us".as_ptr(),
            2,
        );
    }
    FINISHED
});

region!(log_wild, |_: Lane| {
    let arguments = [64_u64];
    // SAFETY: the wild string is on purpose.
    unsafe {
        (super::services::table().log)(
            2,
            std::ptr::null(),
            std::ptr::null(),
            c"%s".as_ptr(),
            arguments.as_ptr(),
            b"s".as_ptr(),
            1,
        );
    }
    FINISHED
});

#[test]
fn kernels_log_from_all_threads() {
    let pool = Pool::with_threads(3).unwrap();
    let logging = image("log_text", &[log_text]);
    pool.run(&KernelLaunch::new(&logging, [2000, 1, 1], [8, 1, 1]))
        .unwrap();
    let (lines, dropped) = pool.log().take();
    assert_eq!((lines.len(), dropped), (2000, 0));
    let line = lines
        .iter()
        .find(|line| line.text == "thread 9 logs text")
        .unwrap();
    assert_eq!(
        (line.subsystem.as_str(), line.category.as_str()),
        ("sub", "cat")
    );
    assert_eq!(line.threadgroup, [1, 0, 0]);
    let wild = image("log_wild", &[log_wild]);
    let fault = fault(&wild, &pool, 100);
    assert_eq!(fault.kind, FaultKind::PageFault { address: Some(64) });
    check_works(&pool);
}

#[test]
fn crashes_outside_kernels_still_end_the_process() {
    const CHILD: &str = "BESSEMER_TEST_CRASH_OUTSIDE";
    if std::env::var_os(CHILD).is_some() {
        let pool = Pool::with_threads(2).unwrap();
        check_works(&pool);
        // SAFETY: none, on purpose.
        unsafe { std::ptr::with_exposed_provenance_mut::<u32>(64).write_volatile(1) };
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "crashes_outside_kernels_still_end_the_process",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .output()
        .unwrap();
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV));
}
