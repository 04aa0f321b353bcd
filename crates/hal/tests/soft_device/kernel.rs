//! Correct kernels against references.

use bessemer_hal::soft::{self, Mode, SoftOptions};
use bessemer_hal::{Device, FunctionConstants};

use crate::compiler::broken_compiler;
use crate::setup::{
    ADD, assert_close, check_add, device, empty, fast, library, options, ramp, shared,
};

#[test]
fn vector_addition_matches_the_definition() {
    for mode in Mode::ALL {
        check_add(&device(mode));
    }
}

/// The threadgroups have more threads than there are elements; the excess threads read and write nothing.
#[test]
fn a_kernel_guards_the_edge_of_its_grid() {
    for mode in Mode::ALL {
        let device = device(mode);
        let pipeline = library(&device, ADD).pipeline("add").unwrap();
        let (n, launched) = (300, 512);
        let (a, b) = (ramp(n), ramp(2 * n)[n..].to_vec());
        let (left, right) = (shared(&device, &a), shared(&device, &b));
        let sum = shared(&device, &vec![9.0_f32; launched]);
        let mut commands = device.commands();
        commands
            .dispatch(&pipeline)
            .read(0, &left)
            .read(1, &right)
            .read_write(2, &sum)
            .bytes(3, &(n as u32))
            .threadgroups(launched / 256, 256)
            .unwrap();
        commands.commit().unwrap().wait().unwrap();
        let mut expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        expected.resize(launched, 9.0);
        assert_eq!(sum.to_vec::<f32>().unwrap(), expected, "{mode:?}");
    }
}

const SOFTMAX: &str = "#include <metal_stdlib>
using namespace metal;
kernel void softmax(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                    constant uint& columns [[buffer(2)]], threadgroup float* scratch [[threadgroup(0)]],
                    uint row [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                    uint group [[simdgroup_index_in_threadgroup]], uint groups [[simdgroups_per_threadgroup]],
                    uint t [[thread_position_in_threadgroup]], uint threads [[threads_per_threadgroup]]) {
  x += row * columns;
  y += row * columns;
  float m = -INFINITY;
  for (uint i = t; i < columns; i += threads) m = max(m, x[i]);
  m = simd_max(m);
  if (lane == 0) scratch[group] = m;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  m = simd_max(lane < groups ? scratch[lane] : -INFINITY);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float s = 0;
  for (uint i = t; i < columns; i += threads) s += exp(x[i] - m);
  s = simd_sum(s);
  if (lane == 0) scratch[group] = s;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  s = simd_sum(lane < groups ? scratch[lane] : 0.0f);
  for (uint i = t; i < columns; i += threads) y[i] = exp(x[i] - m) / s;
}
";

/// Runs the softmax kernel over the rows of `x`.
fn softmax(device: &Device, x: &[f32], columns: usize) -> Vec<f32> {
    let pipeline = library(device, SOFTMAX).pipeline("softmax").unwrap();
    let (input, output) = (shared(device, x), empty::<f32>(device, x.len()));
    let mut commands = device.commands();
    commands
        .dispatch(&pipeline)
        .read(0, &input)
        .read_write(1, &output)
        .bytes(2, &(columns as u32))
        .threadgroup_memory(0, 128)
        .threadgroups(x.len() / columns, 128)
        .unwrap();
    commands.commit().unwrap().wait().unwrap();
    output.to_vec().unwrap()
}

#[test]
fn unoptimised_kernels_give_the_same_bits() {
    let x = ramp(7 * 300);
    let quick = soft::device(SoftOptions {
        optimize: false,
        ..options(Mode::Fast)
    });
    assert_eq!(softmax(&fast(), &x, 300), softmax(&quick.unwrap(), &x, 300));
}

#[test]
fn softmax_with_simd_reductions_matches_the_definition() {
    let (rows, columns) = (7, 300);
    let x = ramp(rows * columns);
    let mut expected = Vec::new();
    for row in x.chunks(columns) {
        let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f32 = row.iter().map(|v| (v - max).exp()).sum();
        expected.extend(row.iter().map(|v| (v - max).exp() / sum));
    }
    for mode in Mode::ALL {
        assert_close(&softmax(&device(mode), &x, columns), &expected, 1e-5);
    }
}

const RMS_NORM: &str = "#include <metal_stdlib>
using namespace metal;
constant uint THREADS = 64;
kernel void rmsnorm(device const float* x, device const float* w, device float* y,
                    constant uint& columns, constant float& eps,
                    uint row [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup float partial[THREADS];
  float sum = 0;
  for (uint i = t; i < columns; i += THREADS) sum += x[row * columns + i] * x[row * columns + i];
  partial[t] = sum;
  for (uint stride = THREADS / 2; stride > 0; stride /= 2) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t < stride) partial[t] += partial[t + stride];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float scale = rsqrt(partial[0] / columns + eps);
  for (uint i = t; i < columns; i += THREADS) y[row * columns + i] = x[row * columns + i] * scale * w[i];
}
";

#[test]
fn rmsnorm_with_a_barrier_tree_matches_the_definition() {
    let (rows, columns) = (5, 250);
    let x = ramp(rows * columns);
    let w = ramp(columns);
    let mut expected = Vec::new();
    for row in x.chunks(columns) {
        let mean: f32 = row.iter().map(|v| v * v).sum::<f32>() / columns as f32;
        let scale = 1.0 / (mean + 1e-5).sqrt();
        expected.extend(row.iter().zip(&w).map(|(v, w)| v * scale * w));
    }
    for mode in Mode::ALL {
        let device = device(mode);
        let pipeline = library(&device, RMS_NORM).pipeline("rmsnorm").unwrap();
        assert_eq!(pipeline.static_threadgroup_memory_length(), 256);
        let (input, weight) = (shared(&device, &x), shared(&device, &w));
        let output = empty::<f32>(&device, x.len());
        let mut commands = device.commands();
        commands
            .dispatch(&pipeline)
            .read(0, &input)
            .read(1, &weight)
            .read_write(2, &output)
            .bytes(3, &(columns as u32))
            .bytes(4, &1e-5_f32)
            .threadgroups(rows, 64)
            .unwrap();
        commands.commit().unwrap().wait().unwrap();
        assert_close(&output.to_vec().unwrap(), &expected, 1e-5);
    }
}

const MATMUL: &str = "#include <metal_stdlib>
using namespace metal;
#define TILE 8
kernel void matmul(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                   device float* c [[buffer(2)]], constant uint3& size [[buffer(3)]],
                   uint2 at [[thread_position_in_grid]], uint2 t [[thread_position_in_threadgroup]]) {
  threadgroup float left[TILE][TILE];
  threadgroup float right[TILE][TILE];
  const uint m = size.x, n = size.y, k = size.z;
  float sum = 0;
  for (uint start = 0; start < k; start += TILE) {
    left[t.y][t.x] = at.y < m && start + t.x < k ? a[at.y * k + start + t.x] : 0;
    right[t.y][t.x] = start + t.y < k && at.x < n ? b[(start + t.y) * n + at.x] : 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = 0; i < TILE; i++) sum += left[t.y][i] * right[i][t.x];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (at.y < m && at.x < n) c[at.y * n + at.x] = sum;
}
";

#[test]
fn tiled_matmul_matches_the_definition() {
    let (m, n, k) = (19, 21, 30);
    let (a, b) = (ramp(m * k), ramp(k * n));
    let mut expected = vec![0.0; m * n];
    for row in 0..m {
        for column in 0..n {
            expected[row * n + column] = (0..k).map(|i| a[row * k + i] * b[i * n + column]).sum();
        }
    }
    for mode in Mode::ALL {
        let device = device(mode);
        let pipeline = library(&device, MATMUL).pipeline("matmul").unwrap();
        let (left, right) = (shared(&device, &a), shared(&device, &b));
        let output = empty::<f32>(&device, m * n);
        let mut commands = device.commands();
        commands
            .dispatch(&pipeline)
            .read(0, &left)
            .read(1, &right)
            .read_write(2, &output)
            .bytes(3, &[m as u32, n as u32, k as u32, 0])
            .threadgroups((n.div_ceil(8), m.div_ceil(8)), (8, 8))
            .unwrap();
        commands.commit().unwrap().wait().unwrap();
        assert_close(&output.to_vec().unwrap(), &expected, 1e-5);
    }
}

const CONSTANTS: &str = "#include <metal_stdlib>
using namespace metal;
constant float scale [[function_constant(0)]];
constant bool biased [[function_constant(1)]];
constant uint unused [[function_constant(2)]];
constant float twice = scale * 2;
kernel void apply(device float* x [[buffer(0)]], device const float* bias [[buffer(1), function_constant(biased)]],
                  uint i [[thread_position_in_grid]]) {
  x[i] = x[i] * scale + twice;
  if (biased) x[i] += bias[i];
}
";

#[test]
fn function_constants_specialise_a_kernel_without_compiling_it_again() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("compiled");
    let note = format!("echo >> {}", log.display());
    let counted = SoftOptions {
        clang: Some(broken_compiler(dir.path(), "*-emit-llvm*", &note)),
        cache_dir: Some(dir.path().join("cache")),
        ..options(Mode::Fast)
    };
    let compiled = || std::fs::read_to_string(&log).unwrap().len();
    let device = soft::device(counted.clone()).unwrap();
    apply_constants(&device, &[(2.0, false)]);
    let once = compiled();
    assert!(once > 0, "a kernel was compiled");
    apply_constants(&device, &[(3.0, false), (2.0, true), (2.0, false)]);
    assert_eq!(compiled(), once, "other constants need no compilation");
    let next = soft::device(counted).unwrap();
    apply_constants(&next, &[(2.0, false), (5.0, true)]);
    assert_eq!(compiled(), once, "a later device finds it in the cache");
}

/// Runs the kernel with each pair of constants and checks its results.
fn apply_constants(device: &Device, cases: &[(f32, bool)]) {
    let library = library(device, CONSTANTS);
    for &(scale, biased) in cases {
        let constants = FunctionConstants::new().with(0, scale).with(1, biased);
        let pipeline = library
            .function_with("apply", constants)
            .unwrap()
            .pipeline()
            .unwrap();
        assert_eq!(pipeline.arguments()[1].active, biased);
        let (x, bias) = (
            shared(device, &[1.0_f32, 2.0]),
            shared(device, &[10.0_f32; 2]),
        );
        let mut commands = device.commands();
        let mut dispatch = commands.dispatch(&pipeline).read_write(0, &x);
        if biased {
            dispatch = dispatch.read(1, &bias);
        }
        dispatch.threads(2, 2).unwrap();
        commands.commit().unwrap().wait().unwrap();
        let expected =
            [1.0, 2.0].map(|v| v * scale + scale * 2.0 + if biased { 10.0 } else { 0.0 });
        assert_eq!(x.to_vec::<f32>().unwrap(), expected);
    }
}

const TEMPLATES: &str = "#include <metal_stdlib>
using namespace metal;
template <typename T, int K>
kernel void scale(device T* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = x[i] * T(K); }
template [[host_name(\"scale_float_3\")]] [[kernel]] void scale<float, 3>(device float*, uint);
template [[host_name(\"scale_half_2\")]] [[kernel]] void scale<half, 2>(device half*, uint);
typedef decltype(scale<int, 5>) scale_t;
template [[host_name(\"scale_int_5\")]] [[kernel]] scale_t scale<int, 5>;
";

#[test]
fn template_instantiations_are_found_by_their_host_names() {
    let device = fast();
    let library = library(&device, TEMPLATES);
    assert_eq!(
        library.function_names(),
        ["scale_float_3", "scale_half_2", "scale_int_5"]
    );
    let floats = shared(&device, &[1.5_f32; 40]);
    let integers = shared(&device, &[7_i32; 40]);
    let mut commands = device.commands();
    for (name, buffer) in [("scale_float_3", &floats), ("scale_int_5", &integers)] {
        let pipeline = library.pipeline(name).unwrap();
        commands
            .dispatch(&pipeline)
            .read_write(0, buffer)
            .threads(40, 32)
            .unwrap();
    }
    commands.commit().unwrap().wait().unwrap();
    assert_eq!(floats.to_vec::<f32>().unwrap(), [4.5; 40]);
    assert_eq!(integers.to_vec::<i32>().unwrap(), [35; 40]);
}

const MISALIGNED: &str = "#include <metal_stdlib>
using namespace metal;
kernel void misaligned(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                    uint i [[thread_position_in_grid]]) {
  device const float4* from = (device const float4*)(x + 5 * i);
  device float4* to = (device float4*)(y + 5 * i);
  *to = *from;
  y[5 * i + 4] = x[5 * i + 4];
}
";

#[test]
fn misaligned_vectors_are_read_and_written() {
    let x = ramp(5 * 33);
    for mode in Mode::ALL {
        let device = device(mode);
        let pipeline = library(&device, MISALIGNED).pipeline("misaligned").unwrap();
        let (input, output) = (shared(&device, &x), empty::<f32>(&device, x.len()));
        let mut commands = device.commands();
        commands
            .dispatch(&pipeline)
            .read(0, &input)
            .read_write(1, &output)
            .threads(33, 32)
            .unwrap();
        commands.commit().unwrap().wait().unwrap();
        assert_eq!(output.to_vec::<f32>().unwrap(), x);
    }
}

#[test]
fn a_grid_is_covered_once_for_any_threadgroup_size() {
    const COUNT: &str = "#include <metal_stdlib>
    using namespace metal;
    kernel void count(device atomic_uint* seen [[buffer(0)]], uint i [[thread_position_in_grid]],
                      uint n [[threads_per_grid]]) {
      atomic_fetch_add_explicit(&seen[i], n, memory_order_relaxed);
    }
    kernel void group_of(device uint* at [[buffer(0)]], uint i [[thread_position_in_grid]],
                      uint group [[threadgroup_position_in_grid]]) {
      at[i] = group;
    }
    ";
    let device = fast();
    let library = library(&device, COUNT);
    let (count, group_of) = (library.pipeline("count"), library.pipeline("group_of"));
    let (count, group_of) = (count.unwrap(), group_of.unwrap());
    for (grid, threadgroup) in [(5000, 32), (5000, 96), (5000, 33), (1, 64), (4096, 1024)] {
        let (seen, at) = (empty::<u32>(&device, grid), empty::<u32>(&device, grid));
        let mut commands = device.commands();
        for (pipeline, buffer) in [(&count, &seen), (&group_of, &at)] {
            let dispatch = commands.dispatch(pipeline).read_write(0, buffer);
            dispatch.threads(grid, threadgroup).unwrap();
        }
        commands.commit().unwrap().wait().unwrap();
        assert_eq!(seen.to_vec::<u32>().unwrap(), vec![grid as u32; grid]);
        let groups: Vec<_> = (0..grid).map(|i| (i / threadgroup) as u32).collect();
        assert_eq!(at.to_vec::<u32>().unwrap(), groups);
    }
}

/// All forms of threadgroup variable declarations: 64 threads reverse an array in each of them.
#[test]
fn threadgroup_variables_are_shared_however_they_are_declared() {
    let forms = [
        ("", "threadgroup uint s[64];"),
        ("", "uint threadgroup s[64];"),
        ("", "unsigned threadgroup int s[64];"),
        ("", "threadgroup __attribute__((aligned(16))) uint s[64];"),
        ("", "threadgroup uint __attribute__((aligned(16))) s[64];"),
        ("", "threadgroup uint s[64] __attribute__((aligned(16)));"),
        ("", "alignas(16) threadgroup uint s[64];"),
        ("", "threadgroup alignas(16) uint s[64];"),
        ("", "static threadgroup uint s[64];"),
        ("", "threadgroup volatile uint s[64];"),
        ("", "threadgroup metal::array<uint, 64> s;"),
        ("", "threadgroup uint other, s[64], last;"),
        ("", "threadgroup uint s[64] = {};"),
        ("typedef threadgroup uint TU;", "TU s[64];"),
        ("using TU = threadgroup uint;", "TU s[64];"),
        ("typedef threadgroup uint TA[64];", "TA s;"),
        ("", "typedef threadgroup uint TU; TU s[64];"),
        (
            "",
            "threadgroup struct L { uint v[64]; } l; threadgroup uint* s = l.v;",
        ),
        (
            "",
            "threadgroup struct { uint v[64]; } l; threadgroup uint* s = l.v;",
        ),
        (
            "",
            "threadgroup union { uint v[64]; int w[64]; } l; threadgroup uint* s = l.v;",
        ),
        (
            "struct L { uint v[64]; };",
            "threadgroup L l; threadgroup uint* s = l.v;",
        ),
        (
            "struct L { uint v[64]; };",
            "struct L threadgroup l; threadgroup uint* s = l.v;",
        ),
        (
            "template <class T> struct L { T v[64]; };",
            "threadgroup L<uint> l; threadgroup auto& s = l.v;",
        ),
        (
            "constant uint N = 8;",
            "threadgroup uint rows[N][N > 4 ? 8 : 4]; threadgroup uint* s = &rows[0][0];",
        ),
    ];
    for mode in [Mode::Fast, Mode::Check] {
        let device = device(mode);
        for (before, form) in forms {
            let source = format!(
                "#include <metal_stdlib>\nusing namespace metal;\n{before}\n\
                 kernel void k(device uint* o [[buffer(0)]], uint t [[thread_position_in_threadgroup]]) {{\n\
                 {form}\ns[t] = t + 1;\nthreadgroup_barrier(mem_flags::mem_threadgroup);\no[t] = s[63 - t];\n}}\n"
            );
            let pipeline = library(&device, &source).pipeline("k").unwrap();
            let buffer = shared(&device, &[0_u32; 64]);
            let mut commands = device.commands();
            commands
                .dispatch(&pipeline)
                .read_write(0, &buffer)
                .threads(64, 64)
                .unwrap();
            commands.commit().unwrap().wait().unwrap();
            let expected: Vec<u32> = (1..=64).rev().collect();
            assert_eq!(
                buffer.to_vec::<u32>().unwrap(),
                expected,
                "{mode}: {before} {form}"
            );
        }
    }
}

#[test]
fn methods_for_every_address_space_return_references_to_their_object() {
    let text = "#include <metal_stdlib>
using namespace metal;
template <typename T, size_t N> struct Array {
  T elements[N ? N : 1];
  thread T& operator[](size_t i) thread { return elements[i]; }
  constexpr const thread T& operator[](size_t i) const thread { return elements[i]; }
  device T& operator[](size_t i) device { return elements[i]; }
  constexpr const device T& operator[](size_t i) const device { return elements[i]; }
  constexpr const constant T& operator[](size_t i) const constant { return elements[i]; }
  threadgroup T& operator[](size_t i) threadgroup { return elements[i]; }
  constexpr const threadgroup T& operator[](size_t i) const threadgroup { return elements[i]; }
};
constant Array<int, 2> table = {{5, 6}};
template <typename T, uint A> void copy(thread T (&to)[A], constant T (&from)[A]) { for (uint i = 0; i < A; i++) to[i] = from[i]; }
template <typename T, uint A> void copy(thread T (&to)[A], device T (&from)[A]) { for (uint i = 0; i < A; i++) to[i] = from[i]; }
template <typename T, uint A> void copy(device T (&to)[A], thread const T (&from)[A]) { for (uint i = 0; i < A; i++) to[i] = from[i]; }
kernel void k(device Array<int, 2>* a [[buffer(0)]], constant Array<int, 2>& c [[buffer(1)]]) {
  threadgroup Array<int, 2> shared_;
  Array<int, 2> own;
  own[0] = table[1] + c[0];
  shared_[1] = own[0] + a[0][1];
  a[1][0] = shared_[1];
  int plain[2];
  copy(plain, a[0].elements);
  copy(a[2].elements, plain);
  copy(plain, c.elements);
  a[1][1] = plain[1];
}
";
    for mode in [Mode::Fast, Mode::Check] {
        let device = device(mode);
        let pipeline = library(&device, text).pipeline("k").unwrap();
        let (a, c) = (
            shared(&device, &[1, 2, 0, 0, 0, 0]),
            shared(&device, &[10, 20]),
        );
        let mut commands = device.commands();
        let dispatch = commands.dispatch(&pipeline).read_write(0, &a).read(1, &c);
        dispatch.threads(1, 1).unwrap();
        commands.commit().unwrap().wait().unwrap();
        assert_eq!(a.to_vec::<i32>().unwrap(), [1, 2, 18, 20, 1, 2]);
    }
}

#[test]
fn functions_and_classes_are_chosen_by_address_space() {
    const SOURCE: &str = "#include <metal_stdlib>
using namespace metal;
uint space(device const uint*) { return 1; }
uint space(constant const uint*) { return 2; }
uint space(threadgroup const uint*) { return 3; }
uint space(thread const uint*) { return 4; }
uint of(device uint&) { return 1; }
uint of(threadgroup uint&) { return 3; }
uint of(thread uint&) { return 4; }
template <class P> struct Space { static constant constexpr uint value = 4; };
template <class T> struct Space<device T*> { static constant constexpr uint value = 1; };
template <class T> struct Space<constant T*> { static constant constexpr uint value = 2; };
template <class T> struct Space<threadgroup T*> { static constant constexpr uint value = 3; };
template <class P> uint space_of(P) { return Space<P>::value; }
kernel void k(device uint* o [[buffer(0)]], constant uint& c [[buffer(1)]]) {
  threadgroup uint s;
  s = 0;
  uint t = 0;
  o[0] = space(o); o[1] = space(&c); o[2] = space(&s); o[3] = space(&t);
  o[4] = of(o[9]); o[5] = of(s); o[6] = of(t);
  o[7] = space_of(o); o[8] = space_of(&c); o[9] = space_of(&s); o[10] = space_of(&t);
}
";
    for mode in Mode::ALL {
        let device = device(mode);
        let pipeline = library(&device, SOURCE).pipeline("k").unwrap();
        let buffer = shared(&device, &[0_u32; 11]);
        let mut commands = device.commands();
        commands
            .dispatch(&pipeline)
            .read_write(0, &buffer)
            .bytes(1, &7_u32)
            .threads(1, 1)
            .unwrap();
        commands.commit().unwrap().wait().unwrap();
        let found = buffer.to_vec::<u32>().unwrap();
        assert_eq!(found, [1, 2, 3, 4, 1, 3, 4, 1, 2, 3, 4], "{mode}");
    }
}
