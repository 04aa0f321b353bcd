//! Results are bit-identical on every machine and instruction set, optimised or not.

use bessemer_hal::soft::{self, InstructionSet, Mode, SoftOptions};
use bessemer_hal::{CompileOptions, Device, MathMode, StorageMode};
use half::{bf16, f16};

use crate::setup::{cache, device, library, options, shared};

/// Number of results per thread.
const RESULTS_PER_THREAD: usize = 56;

/// FNV-1a hash of the bits of all results with safe math, the same on every machine.
const SAFE_MATH_DIGEST: u64 = 0x7870_a45e_a5a8_3546;

/// Operations whose bits could depend on the processor or on the compiler's target.
const SOURCE: &str = "#include <metal_stdlib>
using namespace metal;
kernel void mixture(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                    device const float* c [[buffer(2)]], device float* out [[buffer(3)]],
                    uint i [[thread_position_in_grid]]) {
  float x = a[i], y = b[i], z = c[i];
  half h = half(x), k = half(y);
  bfloat p = bfloat(x), q = bfloat(y);
  device float* o = out + 56 * i;
  o[0] = x + y; o[1] = x * y; o[2] = x / y; o[3] = x * y + z; o[4] = fma(x, y, z);
  o[5] = sqrt(fabs(x)); o[6] = 1.0f / sqrt(fabs(y)); o[7] = rsqrt(fabs(x)); o[8] = 1.0f / x;
  o[9] = x - y * z; o[10] = (x + y) + z; o[11] = x * y * z;
  o[12] = h + k; o[13] = h * k; o[14] = h / k; o[15] = fma(h, k, half(z)); o[16] = h; o[17] = h * k + half(z);
  o[18] = p + q; o[19] = p * q; o[20] = p / q; o[21] = p; o[22] = p * q + bfloat(z); o[23] = bfloat(float(h));
  o[24] = floor(x); o[25] = ceil(x); o[26] = rint(x); o[27] = round(x); o[28] = trunc(x); o[29] = fract(x);
  o[30] = min(x, y); o[31] = max(x, y); o[32] = fmod(x, y); o[33] = clamp(x, -1.0f, 1.0f);
  o[34] = exp(x); o[35] = log(fabs(x)); o[36] = sin(x); o[37] = cos(x); o[38] = tan(x); o[39] = tanh(x);
  o[40] = pow(fabs(x), y); o[41] = asin(x); o[42] = acosh(fabs(x) + 1.0f); o[43] = atan2(x, y); o[44] = sinh(x);
  o[45] = log10(fabs(y)); o[46] = exp2(y); o[47] = sinpi(x); o[48] = asinh(x); o[49] = cosh(y);
  o[50] = simd_sum(x); o[51] = simd_prefix_inclusive_sum(y); o[52] = (int)x; o[53] = (float)as_type<uint>(y);
  o[54] = ldexp(x, 7); o[55] = mix(x, y, z);
}
";

/// Numbers of every magnitude and sign, including subnormals of all formats, infinities and NaN.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed;
    (0..count)
        .map(|i| {
            state = state
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x14057b7ef767814f);
            let bits = (state >> 32) as u32;
            match i % 8 {
                0 => f32::from_bits(bits),
                1 => f32::from_bits(bits & 0x807f_ffff),
                2 => f16::from_bits(bits as u16 & 0x83ff).to_f32(),
                3 => bf16::from_bits(bits as u16).to_f32(),
                4 => f16::from_bits(bits as u16).to_f32(),
                _ => (bits as i32) as f32 / 2_f32.powi(27),
            }
        })
        .collect()
}

/// Returns the bits of all results, with NaNs replaced by one pattern, since no standard fixes theirs.
fn run(device: &Device, math_mode: MathMode) -> Vec<u32> {
    let count = 4096;
    let options = CompileOptions {
        math_mode,
        ..CompileOptions::labelled("test.metal")
    };
    // SAFETY: every thread writes its own results.
    let library = unsafe { device.library(SOURCE, &options) }.unwrap();
    let pipeline = library.pipeline("mixture").unwrap();
    let inputs = [1, 2, 3].map(|seed| shared(device, &numbers(seed, count)));
    let out = device
        .buffer(
            count * RESULTS_PER_THREAD * size_of::<f32>(),
            StorageMode::Shared,
        )
        .unwrap();
    let mut commands = device.commands();
    let mut dispatch = commands.dispatch(&pipeline);
    for (index, input) in (0..).zip(&inputs) {
        dispatch = dispatch.read(index, input);
    }
    dispatch.read_write(3, &out).threads(count, 64).unwrap();
    commands.commit().unwrap().wait().unwrap();
    let results = out.to_vec::<f32>().unwrap();
    let bits = |x: &f32| if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() };
    results.iter().map(bits).collect()
}

/// FNV-1a.
fn digest(bits: &[u32]) -> u64 {
    let bytes = bits.iter().flat_map(|word| word.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[test]
fn results_are_the_same_bits_for_every_instruction_set() {
    for math in [MathMode::Safe, MathMode::Relaxed, MathMode::Fast] {
        let mut first: Option<Vec<u32>> = None;
        for set in InstructionSet::ALL {
            if !set.is_supported() {
                continue;
            }
            for (mode, optimize) in [
                (Mode::Fast, true),
                (Mode::Fast, false),
                (Mode::Check, false),
            ] {
                let options = SoftOptions {
                    cache_dir: Some(cache().to_owned()),
                    instruction_set: set,
                    optimize,
                    ..SoftOptions::in_mode(mode)
                };
                let bits = run(&soft::device(options).unwrap(), math);
                let known = first.get_or_insert_with(|| bits.clone());
                let differs = (0..bits.len()).find(|&i| bits[i] != known[i]);
                if let Some(i) = differs {
                    let [got, known] = [bits[i], known[i]].map(f32::from_bits);
                    let (result, thread) = (i % RESULTS_PER_THREAD, i / RESULTS_PER_THREAD);
                    panic!(
                        "{set}, {mode}, optimised {optimize}, {math:?}: result {result} of thread {thread} is {got:e}, not {known:e}"
                    );
                }
            }
        }
        if math == MathMode::Safe {
            let found = digest(&first.unwrap());
            assert_eq!(found, SAFE_MATH_DIGEST, "{found:#018x}");
        }
    }
}

#[test]
fn an_unsupported_instruction_set_is_an_error() {
    let missing = InstructionSet::ALL
        .into_iter()
        .find(|set| !set.is_supported());
    let set = missing.expect("no machine has both x86-64 and ARM");
    let options = SoftOptions {
        instruction_set: set,
        ..options(Mode::Fast)
    };
    let error = soft::device(options).unwrap_err().to_string();
    assert!(error.contains(set.name()), "{error}");
}

#[test]
fn every_mode_flushes_subnormal_floats_and_restores_the_hosts_float_mode() {
    let source = "kernel void k(device const float* a [[buffer(0)]], device float* o [[buffer(1)]],\n\
                  uint i [[thread_position_in_grid]]) { o[i] = a[i] * 0.5f + a[i]; }\n";
    let min_normal = f32::MIN_POSITIVE;
    let (count, subnormal) = (1 << 16, min_normal / 4.0);
    let input: Vec<f32> = (0..count)
        .map(|i| if i % 2 == 0 { subnormal } else { min_normal })
        .collect();
    let expected: Vec<f32> = (0..count)
        .map(|i| if i % 2 == 0 { 0.0 } else { min_normal })
        .collect();
    for mode in Mode::ALL {
        let device = device(mode);
        let library = library(&device, source);
        let pipeline = library.pipeline("k").unwrap();
        let a = shared(&device, &input);
        let out = shared(&device, &vec![1.0_f32; count]);
        for _ in 0..3 {
            let mut commands = device.commands();
            let dispatch = commands.dispatch(&pipeline);
            let dispatch = dispatch.read(0, &a).read_write(1, &out);
            dispatch.threads(count, 64).unwrap();
            commands.commit().unwrap().wait().unwrap();
            assert_eq!(out.to_vec::<f32>().unwrap(), expected, "{mode}");
        }
        // The thread that launched may have run threadgroups itself.
        let (x, half) = std::hint::black_box((min_normal, 0.5_f32));
        assert_eq!((x * half).to_bits(), 0x0040_0000, "{mode}");
        assert_eq!(std::hint::black_box(subnormal) * 4.0, min_normal, "{mode}");
    }
}
