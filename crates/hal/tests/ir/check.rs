//! Check mode reports every access with its source location, and every synchronisation.

use std::cell::RefCell;
use std::ffi::c_void;

use bessemer_hal::soft::group::{Divergence, Observer, Strategy};

use super::harness::Image;

const WRITE: u32 = 1 << 31;
const ATOMIC: u32 = 1 << 30;

/// Encodes an access of `size` bytes with an alignment of `size`.
const fn aligned(size: u32) -> u32 {
    size | size.trailing_zeros() << 25
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Access {
    address: usize,
    size_and_flags: u32,
    location: u32,
}

thread_local! {
    static RECORDED: RefCell<Vec<Access>> = const { RefCell::new(Vec::new()) };
}

extern "C" fn record(address: *mut c_void, size_and_flags: u32, location: u32) {
    RECORDED.with_borrow_mut(|recorded| {
        recorded.push(Access {
            address: address.addr(),
            size_and_flags,
            location,
        })
    });
}

#[repr(C)]
struct Table {
    access: extern "C" fn(*mut c_void, u32, u32),
}

static TABLE: Table = Table { access: record };

fn checked_image(source: &str) -> Image {
    Image::with_table(source, true, (&raw const TABLE).cast())
}

/// Returns the distinct accesses of a run as (line, column, size and flags), in order of appearance.
fn distinct_accesses(image: &Image, accesses: &[Access]) -> Vec<(u32, u32, u32)> {
    let mut list = Vec::new();
    for access in accesses {
        let at = &image.plan.locations[access.location as usize];
        assert_eq!(at.file, "kernel.metal");
        if !list.contains(&(at.line, at.column, access.size_and_flags)) {
            list.push((at.line, at.column, access.size_and_flags));
        }
    }
    list
}

fn run(
    image: &Image,
    threads: u32,
    buffers: &mut [Vec<u32>],
    observer: &mut impl Observer,
) -> Vec<Access> {
    RECORDED.take();
    image.observe(
        [1, 1, 1],
        [threads, 1, 1],
        buffers,
        Strategy::Ordered,
        observer,
    );
    RECORDED.take()
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Log(Vec<String>);

impl Observer for Log {
    fn lane(&mut self, lane: u32) {
        if lane == 0 {
            self.0.push("lane 0".into());
        }
    }
    fn collective(&mut self, simdgroup: u32, site: u32, mask: u32) {
        self.0
            .push(format!("collective {simdgroup} {site} {mask:#x}"));
    }
    fn barrier(&mut self, site: u32) {
        self.0.push(format!("barrier {site}"));
    }
    fn diverged(&mut self, divergence: Divergence) {
        self.0.push(format!("{divergence:?}"));
    }
    fn early_return(&mut self, site: u32, lane: u32, finished: u32) {
        self.0
            .push(format!("early return {site} {lane} {finished}"));
    }
}

#[test]
fn accesses_carry_size_kind_and_location() {
    let source = "KERNEL {
  unsigned short* s = (unsigned short*)g->tgmem[0];
  s[lane] = BUF(uint, 0)[lane];
  barrier();
  BUF(ulong, 1)[lane] = s[(lane + 1) % g->nthreads];
}";
    let image = checked_image(source);
    let mut buffers = [vec![5, 6, 7], vec![0; 6]];
    let mut log = Log::default();
    let accesses = run(&image, 3, &mut buffers, &mut log);
    assert_eq!(buffers[1], [6, 0, 7, 0, 5, 0]);
    assert_eq!(
        distinct_accesses(&image, &accesses),
        [
            (3, 13, aligned(4)),
            (3, 11, aligned(2) | WRITE),
            (5, 25, aligned(2)),
            (5, 23, aligned(8) | WRITE)
        ]
    );
    assert_eq!(accesses[0].address, buffers[0].as_ptr().addr());
    assert_eq!(log.0, ["lane 0", "barrier 1", "lane 0"]);
    let site = &image.plan.locations[image.plan.sites[0].location as usize];
    let outer = &image.plan.locations[site.inlined_at.expect("barrier() was inlined") as usize];
    assert_eq!(
        (outer.file.as_str(), outer.line, outer.column),
        ("kernel.metal", 4, 3)
    );
}

#[test]
fn atomics_are_performed_and_reported() {
    let source = "KERNEL {
  __atomic_fetch_add(&BUF(uint, 0)[0], lane + 1, __ATOMIC_RELAXED);
  barrier();
  uint old = __atomic_load_n(&BUF(uint, 0)[0], __ATOMIC_RELAXED), want = 10;
  __atomic_compare_exchange_n(&BUF(uint, 0)[1], &want, 11, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  BUF(uint, 0)[2 + lane] = old + want;
}";
    let image = checked_image(source);
    let mut buffers = [vec![0, 10, 0, 0, 0]];
    let accesses = run(&image, 3, &mut buffers, &mut Log::default());
    assert_eq!(buffers[0], [6, 11, 16, 17, 17]);
    let kinds: Vec<(u32, u32)> = distinct_accesses(&image, &accesses)
        .iter()
        .map(|(line, _, size_and_flags)| (*line, *size_and_flags))
        .collect();
    assert_eq!(
        kinds,
        [
            (2, aligned(4) | ATOMIC | WRITE),
            (4, aligned(4) | ATOMIC),
            (5, aligned(4) | ATOMIC | WRITE),
            (6, aligned(4) | WRITE)
        ]
    );
}

#[test]
fn bulk_copies_are_two_accesses() {
    let source = "struct Block { uint v[16]; };
KERNEL {
  if (lane == 0) ((Block*)g->tgmem[0])[1] = BUF(Block, 0)[0];
  barrier();
  BUF(uint, 1)[lane] = ((uint*)g->tgmem[0])[16 + lane];
}";
    let image = checked_image(source);
    let mut buffers = [(0..16).collect(), vec![0; 16]];
    let accesses = run(&image, 16, &mut buffers, &mut Log::default());
    assert_eq!(buffers[1], (0..16).collect::<Vec<u32>>());
    let kinds: Vec<(u32, u32)> = distinct_accesses(&image, &accesses)
        .iter()
        .map(|(line, _, size_and_flags)| (*line, *size_and_flags))
        .collect();
    assert_eq!(
        kinds,
        [
            (3, 64),
            (3, 64 | WRITE),
            (5, aligned(4)),
            (5, aligned(4) | WRITE)
        ]
    );
}

#[test]
fn functions_that_are_not_inlined_report_accesses() {
    let source = "__attribute__((noinline)) void put(uint* p, uint v) {
  p[1] = v;
}
KERNEL { put(BUF(uint, 0) + lane, lane); }";
    let image = checked_image(source);
    let mut buffers = [vec![9; 4]];
    let accesses = run(&image, 3, &mut buffers, &mut Log::default());
    assert_eq!(buffers[0], [9, 0, 1, 2]);
    assert_eq!(distinct_accesses(&image, &accesses), [(2, 8, 4 | WRITE)]);
}

#[test]
fn red_zones_separate_threadgroup_variables() {
    let source = "KERNEL {
  auto& a = tgvar<0, float[5]>(); auto& b = tgvar<1, uchar[3]>();
  a[lane] = lane; b[lane] = lane; barrier(); BUF(float, 0)[lane] = a[2 - lane] + b[lane];
}";
    let image = checked_image(source);
    let v = &image.plan.variables;
    assert!(
        v[0].offset >= 64 && v[1].offset >= v[0].offset + v[0].size + 64,
        "{v:?}"
    );
    assert!(image.plan.arena_bytes >= v[1].offset + v[1].size + 64);
}

#[test]
fn the_observer_is_notified_of_divergence_and_early_returns() {
    let source = "KERNEL {
  if (lane == 5) return;
  float v = lane;
  if (lane < 8) v = simd_sum(v); else v = simd_max(v);
  if (lane < 2) { BUF(float, 0)[lane] = v; barrier(); BUF(float, 0)[lane] += 1; }
  else { BUF(float, 0)[lane] = v; barrier(); BUF(float, 0)[lane] += 2; }
}";
    let image = checked_image(source);
    let mut buffers = [vec![0; 40]];
    let mut log = Log::default();
    run(&image, 40, &mut buffers, &mut log);
    let has = |text: &str| log.0.iter().any(|l| l.contains(text));
    assert!(
        has("mask: 223, other: "),
        "lanes 0 to 7 without 5: {:?}",
        log.0
    );
    assert!(has("collective 0 ") && has("0xffffff00"), "{:?}", log.0);
    assert!(has("early return"), "{:?}", log.0);
    assert!(has("Barrier { site: "), "{:?}", log.0);
    assert_eq!(f32::from_bits(buffers[0][0]), 24.0);
    assert_eq!(f32::from_bits(buffers[0][2]), 25.0);
    assert_eq!(f32::from_bits(buffers[0][20]), 33.0);
    assert_eq!(f32::from_bits(buffers[0][35]), 41.0);
}
