//! Compiled kernels launched by the runtime: results, faults and reports.

use std::time::Duration;

use bessemer_hal::soft::runtime::services;
use bessemer_hal::soft::runtime::{
    BindingAccess, BufferBinding, FaultKind, Image, Isolation, KernelLaunch, LaunchFault,
    LaunchMode, MappedMemory, Pool,
};
use bessemer_hal::{Report, ReportKind};

use super::harness;

fn image(source: &str, check: bool) -> Image {
    let table = std::ptr::from_ref(services::table()).cast();
    // Stays loaded until the process exits.
    let loaded = Box::leak(Box::new(harness::Image::with_table(source, check, table)));
    // SAFETY: the tables belong to the plan and stay loaded.
    unsafe {
        Image::new(
            "kernel",
            loaded.regions.clone(),
            loaded.ops.clone(),
            loaded.plan.clone(),
        )
    }
    .with_buffers([(0, "in".to_owned()), (1, "out".to_owned())])
    .with_variables([(0, "tile".to_owned())])
    .with_user_files(|file| file == "kernel.metal")
}

fn bind(data: &mut [u32], access: BindingAccess) -> BufferBinding {
    // SAFETY: the tests keep the data until the launch is over.
    unsafe { BufferBinding::new(data.as_mut_ptr().cast(), size_of_val(data), access) }
}

/// Launches `threads` threads in groups of `group` on `in` (0, 1, 2, …) and `out`, of `threads` elements each.
fn launch(
    image: &Image,
    pool: &Pool,
    [threads, group]: [u32; 2],
    mode: LaunchMode,
) -> (Result<Vec<Report>, LaunchFault>, Vec<u32>) {
    let mut input: Vec<u32> = (0..threads).collect();
    let mut out = vec![0; threads as usize];
    let mut launch = KernelLaunch::new(image, [threads, 1, 1], [group, 1, 1]);
    launch.buffers[0] = bind(&mut input, BindingAccess::Read);
    launch.buffers[1] = bind(&mut out, BindingAccess::Write);
    launch.threadgroup_memory[0] = 256;
    launch.mode = mode;
    launch.limit = Duration::from_secs(5);
    let result = pool.run(&launch).map(|done| done.reports);
    (result, out)
}

/// Sums the 64 elements of each threadgroup, with threadgroup memory and SIMD-group reductions.
const SUM: &str = "KERNEL {
  auto& tile = tgvar<0, uint[64]>();
  tile[lane] = BUF(uint, 0)[g->tgid[0] * 64 + lane];
  barrier();
  uint mine = simd_sum(tile[63 - lane]);
  barrier();
  tile[lane] = mine;
  barrier();
  BUF(uint, 1)[g->tgid[0] * 64 + lane] = tile[0] + tile[32];
}";

#[test]
fn all_modes_compute_the_same_results() {
    let expected = |index: usize| (0..64).map(|i| (index / 64 * 64 + i) as u32).sum::<u32>();
    let pool = Pool::with_threads(3).unwrap();
    let fast = image(SUM, false);
    let modes = [
        (&fast, LaunchMode::Fast),
        (&fast, LaunchMode::Fuzz { seed: 1 }),
        (&fast, LaunchMode::Fuzz { seed: 2 }),
        (&image(SUM, true), LaunchMode::Check),
    ];
    for (image, mode) in modes {
        let (result, out) = launch(image, &pool, [64 * 500, 64], mode);
        assert_eq!(result.unwrap(), [], "{mode:?}");
        for (index, &value) in out.iter().enumerate() {
            assert_eq!(value, expected(index), "{mode:?} {index}");
        }
    }
}

#[test]
fn defects_are_reported_on_their_lines() {
    struct Case {
        name: &'static str,
        body: &'static str,
        found: &'static [(ReportKind, u32)],
    }
    let cases = [
        Case {
            name: "clean",
            body: "uint i = g->tgid[0] * 64 + lane;
              BUF(uint, 1)[i] = BUF(uint, 0)[i];",
            found: &[],
        },
        Case {
            name: "overrun",
            body: "uint i = g->tgid[0] * 64 + lane;
              BUF(uint, 1)[i + 1] = 5;",
            found: &[(ReportKind::Bounds, 3)],
        },
        Case {
            name: "no barrier",
            body: "auto& tile = tgvar<0, uint[64]>();
              tile[lane] = lane;
              BUF(uint, 1)[g->tgid[0] * 64 + lane] = tile[63 - lane];",
            found: &[(ReportKind::Race, 3), (ReportKind::Race, 4)],
        },
        Case {
            name: "barrier over the wrong memory",
            body: "auto& tile = tgvar<0, uint[64]>();
              tile[lane] = lane;
              sm_sync_tg(1);
              BUF(uint, 1)[g->tgid[0] * 64 + lane] = tile[63 - lane];",
            found: &[(ReportKind::Race, 5)],
        },
        Case {
            name: "SIMD-group barrier for a whole threadgroup",
            body: "auto& tile = tgvar<0, uint[64]>();
              tile[lane] = lane;
              sm_sync_sg(2);
              BUF(uint, 1)[g->tgid[0] * 64 + lane] = tile[63 - lane];",
            found: &[(ReportKind::Race, 3), (ReportKind::Race, 5)],
        },
        Case {
            name: "SIMD-group barrier for its SIMD-group",
            body: "auto& tile = tgvar<0, uint[64]>();
              tile[lane] = lane;
              sm_sync_sg(2);
              BUF(uint, 1)[g->tgid[0] * 64 + lane] = tile[lane ^ 31];",
            found: &[],
        },
        Case {
            name: "uninitialised",
            body: "auto& tile = tgvar<0, uint[64]>();
              if (lane < 63) tile[lane] = lane;
              barrier();
              BUF(uint, 1)[g->tgid[0] * 64 + lane] = tile[lane];",
            found: &[(ReportKind::Uninitialised, 5)],
        },
        Case {
            name: "variable overrun",
            body: "auto& tile = tgvar<0, uint[64]>();
              tile[lane + 1] = lane;",
            found: &[(ReportKind::Bounds, 3)],
        },
        Case {
            name: "argument overrun",
            body: "((ulong*)g->tgmem[0])[lane] = lane;",
            found: &[(ReportKind::Bounds, 2)],
        },
        Case {
            name: "missing threadgroup memory",
            body: "((uint*)g->tgmem[3])[lane] = lane;",
            found: &[(ReportKind::ThreadgroupMemory, 2)],
        },
        Case {
            name: "early return",
            body: "if (lane == 7) return;
              barrier();
              BUF(uint, 1)[g->tgid[0] * 64 + lane] = 1;",
            found: &[(ReportKind::EarlyReturn, 3)],
        },
        Case {
            name: "race between threadgroups",
            body: "if (lane == 0)
                BUF(uint, 1)[0] = 1;",
            found: &[(ReportKind::Race, 3)],
        },
        Case {
            name: "atomics between threadgroups",
            body: "__atomic_fetch_add(BUF(uint, 1), 1u, __ATOMIC_RELAXED);",
            found: &[],
        },
        Case {
            name: "atomic counter in threadgroup memory",
            body: "auto& tile = tgvar<0, uint[64]>();
              if (lane == 0) __atomic_store_n(&tile[0], 0u, __ATOMIC_RELAXED);
              barrier();
              __atomic_fetch_add(&tile[0], 1u, __ATOMIC_RELAXED);
              barrier();
              if (lane == 0) __atomic_fetch_add(BUF(uint, 1), tile[0], __ATOMIC_RELAXED);",
            found: &[],
        },
        Case {
            name: "write to the input",
            body: "BUF(uint, 0)[g->tgid[0] * 64 + lane] = 1;",
            found: &[(ReportKind::Bounds, 2)],
        },
        Case {
            name: "null",
            body: "*(uint*)(ulong)(lane * 4) = 1;",
            found: &[(ReportKind::Bounds, 2)],
        },
    ];
    let pool = Pool::with_threads(2).unwrap();
    for case in cases {
        let image = image(&format!("KERNEL {{\n{}\n}}", case.body), true);
        let (result, _) = launch(&image, &pool, [256, 64], LaunchMode::Check);
        let reports = result.unwrap();
        let found: Vec<_> = reports.iter().map(|r| (r.kind, r.line)).collect();
        assert_eq!(found, case.found, "{}: {reports:#?}", case.name);
        assert!(reports.iter().all(|r| r.file == "kernel.metal"));
    }
}

#[test]
fn compiled_crashes_and_hangs_are_faults() {
    struct Case {
        body: &'static str,
        kind: fn(FaultKind) -> bool,
    }
    let cases = [
        Case {
            body: "BUF(uint, 1)[lane] = 7 / (BUF(uint, 0)[0] * lane);",
            kind: |kind| kind == FaultKind::DivisionByZero,
        },
        Case {
            body: "BUF(uint, 1)[(1ul << 40) + lane] = 7;",
            kind: |kind| matches!(kind, FaultKind::PageFault { .. }),
        },
        Case {
            body: "auto* p = (volatile uint*)g->buf[0]; while (p[0] == 0) { barrier(); }",
            kind: |kind| matches!(kind, FaultKind::Timeout { .. }),
        },
        Case {
            body: "BUF(uint, 7)[lane] = 7;",
            kind: |kind| matches!(kind, FaultKind::PageFault { .. }),
        },
    ];
    let pool = Pool::with_threads(2).unwrap();
    let sum = image(SUM, false);
    let isolation = Isolation::new().unwrap();
    for case in cases {
        let image = image(&format!("KERNEL {{\n{}\n}}", case.body), false);
        let mut input = vec![0_u32; 1024];
        let out = MappedMemory::shared(4096).unwrap();
        let mut plan = KernelLaunch::new(&image, [1024, 1, 1], [64, 1, 1]);
        plan.buffers[0] = bind(&mut input, BindingAccess::Read);
        // SAFETY: the block lives until the launches are over.
        plan.buffers[1] = unsafe { BufferBinding::new(out.pointer(), 4096, BindingAccess::Write) };
        plan.limit = Duration::from_millis(200);
        let in_process = pool.run(&plan).expect_err(case.body);
        assert!((case.kind)(in_process.kind), "{}: {in_process}", case.body);
        let isolated = isolation
            .run(plan.limit, pool.log(), |sole| sole.run(&plan))
            .expect_err(case.body);
        assert!((case.kind)(isolated.kind), "{}: {isolated}", case.body);
        launch(&sum, &pool, [64, 64], LaunchMode::Fast).0.unwrap();
    }
}
