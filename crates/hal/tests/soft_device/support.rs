//! Unsupported features make the kernels that use them fail, and not the whole library.

use std::time::{Duration, Instant};

use bessemer_hal::Error;
use bessemer_hal::soft::Mode;

use crate::setup::{device, empty, fast, library, shared, try_library};

const MIXED: &str = "#include <metal_stdlib>
using namespace metal;
struct Corner { float4 place [[position]]; float2 uv; };
vertex Corner corner(uint i [[vertex_id]], constant float4* v [[buffer(0)]]) { return {v[i], v[i].xy}; }
fragment float4 shade(Corner in [[stage_in]], texture2d<float> t [[texture(0)]], sampler s [[sampler(0)]]) {
  return t.sample(s, in.uv);
}
constexpr sampler linear(filter::linear, address::clamp_to_edge, coord::normalized);
float4 fetch(texture2d<float, access::sample> t, float2 at) { return t.sample(linear, at); }
float luma(float4 c) { return dot(c.rgb, float3(0.25, 0.5, 0.25)); }
struct Set { device float* data; };
kernel void image(texture2d<float, access::read> from [[texture(0)]], device float* out [[buffer(0)]],
                  uint2 at [[thread_position_in_grid]]) {
  out[at.x] = luma(from.read(at));
}
kernel void set(constant Set& set [[buffer(0)]], uint i [[thread_position_in_grid]]) { set.data[i] = 1; }
kernel void sampled(device float4* out [[buffer(0)]], texture2d<float> t [[texture(0)]]) { out[0] = fetch(t, 0.5f); }
kernel void grey(device float4* a [[buffer(0)]], uint i [[thread_position_in_grid]]) { a[i] = luma(a[i]); }
";

#[test]
fn kernels_beside_unsupported_ones_run() {
    for mode in [Mode::Fast, Mode::Check] {
        let device = device(mode);
        let library = library(&device, MIXED);
        let names = ["image", "set", "sampled", "grey"];
        assert_eq!(library.function_names(), names);
        let kernels = &library.reflection().unwrap().kernels;
        let supported: Vec<bool> = kernels.iter().map(|k| k.unsupported.is_none()).collect();
        assert_eq!(supported, [false, false, false, true]);
        assert_eq!(library.check(&["grey"]), Ok(()));
        let pipeline = library.pipeline("grey").unwrap();
        let buffer = shared(&device, &[1.0_f32, 2., 3., 4., 8., 0., 4., 1.]);
        let mut commands = device.commands();
        let dispatch = commands.dispatch(&pipeline).read_write(0, &buffer);
        dispatch.threads(2, 2).unwrap();
        commands.commit().unwrap().wait().unwrap();
        let expected = [2.0_f32, 2., 2., 2., 3., 3., 3., 3.];
        assert_eq!(buffer.to_vec::<f32>().unwrap(), expected);
    }
}

#[test]
fn an_unsupported_kernel_is_rejected_at_its_line_when_it_is_requested() {
    let device = fast();
    let library = library(&device, MIXED);
    let messages = |error: Error| match error {
        Error::Compile { diagnostics, .. } => {
            let message = |d: &bessemer_hal::msl::Diagnostic| (d.line, d.column, d.message.clone());
            diagnostics.iter().map(message).collect::<Vec<_>>()
        }
        other => panic!("{other}"),
    };
    let textures = "textures are not supported by the software device: 'texture2d'";
    let buffers = "argument buffers are not supported by the software device: 'Set' contains the pointer 'data'";
    let image = (12, 19, textures.to_owned());
    let set = (16, 26, buffers.to_owned());
    let sampled = (17, 55, textures.to_owned());
    for (name, expected) in [("image", &image), ("set", &set), ("sampled", &sampled)] {
        assert_eq!(
            messages(library.pipeline(name).unwrap_err()),
            std::slice::from_ref(expected)
        );
    }
    let names = ["image", "set", "sampled", "grey"];
    assert_eq!(
        messages(library.check(&names).unwrap_err()),
        [image, set, sampled]
    );
    // The same from the cache.
    let again = try_library(&device, MIXED).unwrap();
    assert!(again.pipeline("image").is_err());
    assert!(again.pipeline("grey").is_ok());
}

#[test]
fn a_library_without_a_supported_kernel_is_rejected() {
    let text = MIXED.replace("kernel void grey", "void grey");
    let Err(Error::Compile { diagnostics, .. }) = try_library(&fast(), &text) else {
        panic!("accepted");
    };
    let lines: Vec<u32> = diagnostics.iter().map(|d| d.line).collect();
    assert_eq!(lines, [4, 5, 5, 9, 12, 16, 17], "{diagnostics:#?}");
}

const UNUSED: &str = "#include <metal_stdlib>
using namespace metal;
constant bool twice [[function_constant(0)]];
template <bool flag>
kernel void pick(device int* out [[buffer(0)]], const device int* a [[buffer(1)]], constant int& b [[buffer(2)]],
                 threadgroup int* scratch [[threadgroup(0)]], uint i [[thread_position_in_grid]]) {
  out[i] = flag ? int(i) * 2 : a[i] + b;
}
template [[host_name(\"index\")]] kernel decltype(pick<true>) pick<true>;
template [[host_name(\"sum\")]] kernel decltype(pick<false>) pick<false>;
kernel void reference(device int* out [[buffer(0)]], constant int& n [[buffer(3)]], device atomic_int* count [[buffer(30)]],
                      uint i [[thread_position_in_grid]]) {
  if (i < 2) atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
  out[i] = 1;
}
";

#[test]
fn arguments_that_the_compiled_kernel_does_not_use_may_stay_unbound() {
    for mode in [Mode::Fast, Mode::Check] {
        let device = device(mode);
        let library = library(&device, UNUSED);
        let out = empty::<i32>(&device, 4);
        let run = |name: &str, others: &[u32]| {
            let pipeline = library.pipeline(name).unwrap();
            let input = shared(&device, &[5, 6, 7, 8]);
            let mut commands = device.commands();
            let mut dispatch = commands.dispatch(&pipeline).read_write(0, &out);
            for index in others {
                dispatch = dispatch.read_write(*index, &input);
            }
            dispatch.threads(4, 4)?;
            commands.commit()?.wait()?;
            Ok(out.to_vec::<i32>().unwrap())
        };
        assert_eq!(run("index", &[]), Ok(vec![0, 2, 4, 6]));
        assert_eq!(run("sum", &[1, 2]), Ok(vec![10, 11, 12, 13]));
        assert_eq!(run("reference", &[30]), Ok(vec![1; 4]));
        let argument = |outcome: Result<_, Error>| match outcome {
            Err(Error::Binding { argument, .. }) => argument,
            other => panic!("{other:?}"),
        };
        assert_eq!(argument(run("sum", &[1])), "b");
        assert_eq!(argument(run("sum", &[2])), "a");
        assert_eq!(argument(run("reference", &[])), "count");
    }
}

#[test]
fn recursion_that_synchronises_is_rejected() {
    let text = "#include <metal_stdlib>
using namespace metal;
int climb(threadgroup int* s, int n) {
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return n == 0 ? s[0] : climb(s, n - 1) + 1;
}
kernel void k(device int* a, constant int& n) {
  threadgroup int s[1];
  s[0] = 1;
  a[0] = climb(s, n);
}
kernel void ok(device int* a) { a[0] = 1; }
";
    let library = library(&fast(), text);
    let Err(Error::Compile { diagnostics, .. }) = library.pipeline("k") else {
        panic!("accepted");
    };
    assert_eq!(diagnostics[0].line, 7);
    let message = &diagnostics[0].message;
    assert!(
        message.contains("'climb', which calls itself and synchronises"),
        "{message}"
    );
    assert!(library.pipeline("ok").is_ok());
}

#[test]
fn creating_a_library_does_not_wait_for_a_kernel_that_is_slow_to_compile() {
    let mut text = "#include <metal_stdlib>\nusing namespace metal;\n".to_owned();
    text += "float f0(float x) { return sin(x) * cos(x) + x; }\n";
    for n in 1..12 {
        let call = format!("f{}", n - 1);
        text += &format!(
            "float f{n}(float x) {{ return {call}(x) * {call}(x + 1) + {call}(x - {call}(x * {n})); }}\n"
        );
    }
    text += "kernel void k(device float* a) { a[0] = f11(a[1]); }\n";
    let start = Instant::now();
    let library = library(&fast(), &text);
    assert_eq!(library.function_names(), ["k"]);
    assert_eq!(library.check(&["k"]), Ok(()));
    let took = start.elapsed();
    assert!(took < Duration::from_secs(100), "{took:?}");
}
