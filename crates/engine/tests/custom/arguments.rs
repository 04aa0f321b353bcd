//! Arguments of every kind: dtypes, layouts, constants, threadgroup memory, in-out arguments, whole sources.

use bessemer::custom::{MetalKernel, Size};
use bessemer::{DType, Tensor};

use super::{double, on_device, run, trusted, wave};

#[test]
fn every_dtype_of_metal_passes_through() {
    let kernel = MetalKernel::body("pass", "x_t value = x[i]; out[i] = value;")
        .input("x")
        .output("out")
        .index("i")
        .build()
        .unwrap();
    for dtype in DType::ALL.into_iter().filter(|&d| d != DType::F64) {
        let values = [0.0, 1.0, 0.0, 3.0, 100.0, 7.0];
        let x = Tensor::from_slice(&values, [6]).cast(dtype);
        let y = run(kernel.call(&[&on_device(&x)]).threads(6));
        assert_eq!(y.dtype(), dtype);
        let bits = |t: &Tensor| {
            t.to(&bessemer::Device::cpu())
                .cast(DType::F64)
                .to_vec::<f64>()
        };
        assert_eq!(bits(&y).unwrap(), bits(&x).unwrap(), "{dtype}");
    }
}

#[test]
fn bytes_of_a_bool_result_become_0_or_1() {
    let kernel = MetalKernel::body("wild_bool", "((device uchar*)out)[i] = uchar(i * 2);")
        .output("out")
        .dtype("out", DType::Bool)
        .index("i")
        .build()
        .unwrap();
    let call = kernel.call(&[]).shape("out", [4]).threads(4);
    let result = device_scope(|| run(call));
    assert_eq!(result.to_vec::<bool>().unwrap(), [false, true, true, true]);
}

fn device_scope<R>(body: impl FnOnce() -> R) -> R {
    super::device().scope(body)
}

#[test]
fn scalars_of_every_dtype_reach_the_kernel() {
    let mut builder = MetalKernel::body(
        "scalars",
        "out[0] = float(b) + float(u8_) + float(i8_) + float(u16_) + float(i16_) + float(u32_) + float(i32_) \
         + float(u64_) + float(i64_) + float(f16_) + float(bf16_) + f32_;",
    )
    .output("out");
    let dtypes = DType::ALL.into_iter().filter(|&d| d != DType::F64);
    let name = |dtype: DType| match dtype {
        DType::Bool => "b".to_owned(),
        other => format!("{other}_"),
    };
    for dtype in dtypes.clone() {
        builder = builder.scalar(&name(dtype), dtype);
    }
    let kernel = builder.build().unwrap();
    let mut call = kernel
        .call(&[])
        .shape("out", [1])
        .dtype("out", DType::F32)
        .threads(1);
    for (bit, dtype) in dtypes.enumerate() {
        call = match dtype {
            DType::Bool => call.scalar(&name(dtype), true),
            _ => call.scalar(&name(dtype), 1_i64 << bit.min(6)),
        };
    }
    let expected = 1 + 2 + 4 + 8 + 16 + 32 + 6 * 64;
    let found = device_scope(|| run(call)).to_vec::<f32>().unwrap();
    assert_eq!(found, [expected as f32]);
}

#[test]
fn inputs_of_any_layout_are_contiguous_unless_the_body_names_strides() {
    let data = wave(7 * 12);
    let x = on_device(&Tensor::from_slice(&data, [7, 12]));
    let views = [
        x.clone(),
        x.t(),
        x.slice(1, 1, None, 3),
        x.slice(0, None, None, -1),
        x.narrow(1, 3, 5),
        x.narrow(0, 2, 3),
        x.narrow(0, 1, 1).broadcast_to([4, 12]),
        x.flip(&[0, 1]).t(),
    ];
    let contiguous = MetalKernel::body("copy_rows", "out[i] = x[i];")
        .input("x")
        .output("out")
        .index("i")
        .build()
        .unwrap();
    let strided = MetalKernel::body(
        "copy_strided",
        "uint rest = i; long at = 0;
         for (uint axis = x_ndim; axis-- > 0;) {
             at += long(rest % x_shape[axis]) * x_strides[axis];
             rest /= x_shape[axis];
         }
         if (i < x_size) out[i] = x[at];",
    )
    .input("x")
    .output("out")
    .index("i")
    .build()
    .unwrap();
    for view in views {
        let expected = view.to_vec::<f32>().unwrap();
        for kernel in [&contiguous, &strided] {
            let y = run(kernel.call(&[&view]).threads(view.count()));
            assert_eq!(y.shape(), view.shape());
            assert_eq!(y.to_vec::<f32>().unwrap(), expected, "{view:?}");
        }
    }
    let scalar = on_device(&Tensor::from_slice(&[5.0_f32], [1])).reshape([]);
    for kernel in [&contiguous, &strided] {
        let y = run(kernel.call(&[&scalar]).threads(1));
        assert_eq!((y.rank(), y.item::<f32>().unwrap()), (0, 5.0));
    }
}

#[test]
fn a_strided_input_is_not_copied() {
    let kernel = MetalKernel::body("first_column", "out[i] = x[i * x_strides[0]];")
        .input("x")
        .output("out")
        .index("i")
        .build()
        .unwrap();
    let device = bessemer::Device::on(bessemer_hal::noop::device(bessemer_hal::Family::Apple7));
    let x = Tensor::from_slice(&wave(64), [8, 8]).to(&device).t();
    let y = kernel
        .call(&[&x])
        .shape("out", [8])
        .threads(8)
        .run()
        .unwrap();
    assert_eq!(bessemer::explain(&[&y]).unwrap().steps.len(), 1);
}

#[test]
fn function_constants_are_given_by_name() {
    let header = "inline float power(float x) { float y = 1; for (uint k = 0; k < N; k++) y *= x; return y; }";
    let kernel = MetalKernel::body(
        "power",
        "out[i] = NEGATE ? -power(x[i]) : power(x[i]) + OFFSET;",
    )
    .input("x")
    .output("out")
    .constant("N", DType::U32)
    .constant("NEGATE", DType::Bool)
    .constant("OFFSET", DType::F32)
    .header(header)
    .index("i")
    .build()
    .unwrap();
    let x = on_device(&Tensor::from_slice(&[1.0_f32, 2.0, 3.0], [3]));
    let call = |n: u32, negate: bool| {
        let call = kernel.call(&[&x]).threads(3).constant("OFFSET", 0.5);
        run(call.constant("NEGATE", negate).constant("N", n))
            .to_vec::<f32>()
            .unwrap()
    };
    assert_eq!(call(2, true), [-1.0, -4.0, -9.0]);
    assert_eq!(call(3, false), [1.5, 8.5, 27.5]);
}

#[test]
fn position_attributes_and_sizes_are_there_if_named() {
    let body = "const uint3 p = thread_position_in_grid;
        out[(p.z * threads_per_grid.y + p.y) * threads_per_grid.x + p.x] =
            p.x + 10 * p.y + 100 * p.z + 1000 * out_ndim + 10000 * (thread_index_in_simdgroup & 0) + 100000 * out_shape[2];";
    let kernel = MetalKernel::body("positions", body)
        .output("out")
        .dtype("out", DType::U32)
        .build()
        .unwrap();
    let call = kernel
        .call(&[])
        .shape("out", [2, 3, 4])
        .threads((4, 3, 2))
        .group((2, 3));
    let found = device_scope(|| run(call)).to_vec::<u32>().unwrap();
    let expected = (0..24_u32).map(|i| i % 4 + 10 * (i / 4 % 3) + 100 * (i / 12) + 3000 + 400_000);
    assert_eq!(found, expected.collect::<Vec<_>>());
}

#[test]
fn an_inout_argument_is_a_new_value() {
    let x = on_device(&Tensor::from_slice(&wave(100), [100]));
    let y = run(double().call(&[&x]).threads(100));
    let z = run(double().call(&[&y]).threads(50));
    let data = wave(100);
    assert_eq!(
        x.to_vec::<f32>().unwrap(),
        data,
        "its argument keeps its value"
    );
    let twice: Vec<f32> = data.iter().map(|v| 2.0 * v).collect();
    assert_eq!(y.to_vec::<f32>().unwrap(), twice);
    let found = z.to_vec::<f32>().unwrap();
    assert_eq!(
        found[50..],
        twice[50..],
        "what the kernel does not write stays"
    );
    assert_eq!(found[49], 2.0 * twice[49]);
}

#[test]
fn an_inout_argument_may_be_a_view_a_constant_or_an_input_too() {
    let x = on_device(&Tensor::from_slice(&wave(24), [4, 6]));
    let y = run(double().call(&[&x.t()]).threads(24));
    let expected: Vec<f32> = x
        .t()
        .to_vec::<f32>()
        .unwrap()
        .iter()
        .map(|v| 2.0 * v)
        .collect();
    assert_eq!(y.to_vec::<f32>().unwrap(), expected);

    let ones = Tensor::ones([5], DType::F32).to(&super::device());
    assert_eq!(
        run(double().call(&[&ones]).threads(5))
            .to_vec::<f32>()
            .unwrap(),
        [2.0; 5]
    );

    let add = MetalKernel::body("add_to", "total[i] += x[n - 1 - i];")
        .inout("total")
        .input("x")
        .scalar("n", DType::U32)
        .index("i")
        .build()
        .unwrap();
    let x = on_device(&Tensor::from_slice(&[1.0_f32, 2.0, 3.0], [3]));
    let sum = run(add.call(&[&x, &x]).scalar("n", 3).threads(3));
    drop(x);
    assert_eq!(
        sum.to_vec::<f32>().unwrap(),
        [4.0; 3],
        "it does not overwrite what it reads"
    );
}

#[test]
fn a_kernel_may_have_several_results() {
    let body = "const float v = x[i]; square[i] = v * v; is_negative[i] = v < 0; if (i == 0) count[0] = x_size;";
    let kernel = MetalKernel::body("several", body)
        .input("x")
        .output("square")
        .output("is_negative")
        .dtype("is_negative", DType::Bool)
        .inout("count")
        .index("i")
        .build()
        .unwrap();
    let x = on_device(&Tensor::from_slice(&[1.0_f32, -2.0, 3.0], [3]));
    let count = on_device(&Tensor::from_slice(&[7_u32, 8], [2]));
    let results = trusted(kernel.call(&[&x, &count]).threads(3))
        .run_all()
        .unwrap();
    let [square, is_negative, counted] = &results[..] else {
        panic!("{results:?}");
    };
    // In any order, and each on its own.
    assert_eq!(counted.to_vec::<u32>().unwrap(), [3, 8]);
    let after = square + 1.0;
    assert_eq!(after.to_vec::<f32>().unwrap(), [2.0, 5.0, 10.0]);
    assert_eq!(is_negative.to_vec::<bool>().unwrap(), [false, true, false]);
    assert_eq!(count.to_vec::<u32>().unwrap(), [7, 8]);
}

const SCALED_SOURCE: &str = "#include <metal_stdlib>
using namespace metal;

constant bool DOUBLE [[function_constant(3)]];

kernel void unused(device float* x [[buffer(0)]]) { x[0] = 1; }

kernel void scaled(constant float& factor [[buffer(4)]],
                   device float* out [[buffer(1)]],
                   device const float* x [[buffer(2)]],
                   constant float* table [[buffer(0)]],
                   threadgroup float* shared [[threadgroup(1)]],
                   uint i [[thread_position_in_grid]],
                   uint t [[thread_index_in_threadgroup]]) {
    shared[t] = x[i] * factor + table[i % 2];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = DOUBLE ? 2 * shared[t] : shared[t];
}
";

fn whole() -> bessemer::custom::MetalKernelBuilder {
    MetalKernel::source("scaled", SCALED_SOURCE)
        .input("x")
        .input("table")
        .output("out")
        .scalar("factor", DType::F32)
        .constant("DOUBLE", DType::Bool)
        .threadgroup("shared", DType::F32)
}

#[test]
fn a_whole_source_is_bound_by_its_own_names() {
    let kernel = whole().build().unwrap();
    let data = wave(65);
    // Neither begins at an address that the `constant` address space of every GPU allows.
    let x = on_device(&Tensor::from_slice(&data, [65])).narrow(0, 1, 64);
    let table = on_device(&Tensor::from_slice(&[9.0_f32, 1.0, 2.0], [3])).narrow(0, 1, 2);
    for is_doubled in [false, true] {
        let call = kernel
            .call(&[&x, &table])
            .scalar("factor", 3.0)
            .constant("DOUBLE", is_doubled);
        let call = call
            .threadgroup("shared", 16)
            .threads(64)
            .group(Size::x(16));
        let found = run(call).to_vec::<f32>().unwrap();
        let factor = if is_doubled { 2.0 } else { 1.0 };
        let expected = (0..64).map(|i| factor * (data[i + 1] * 3.0 + [1.0, 2.0][i % 2]));
        assert_eq!(found, expected.collect::<Vec<_>>());
    }
}

#[test]
fn arguments_of_a_whole_source_must_match_its_signature() {
    let x = on_device(&Tensor::from_slice(&wave(64), [64]));
    let refusal = |builder: bessemer::custom::MetalKernelBuilder, tensors: &[&Tensor]| {
        let call = builder
            .build()
            .unwrap()
            .call(tensors)
            .threads(64)
            .scalar("factor", 1.0);
        super::refusal(call.constant("DOUBLE", true).threadgroup("shared", 256))
    };
    assert_eq!(
        refusal(whole().input("other"), &[&x, &x, &x]),
        "scaled: `other` is declared, but the kernel has only `factor`, `out`, `x`, `table`, `shared`"
    );
    let small = MetalKernel::source("scaled", SCALED_SOURCE)
        .input("x")
        .output("out")
        .scalar("factor", DType::F32)
        .constant("DOUBLE", DType::Bool)
        .threadgroup("shared", DType::F32);
    assert_eq!(
        refusal(small, &[&x]),
        "scaled: the kernel has an argument `table` that is not declared"
    );
    let swapped = MetalKernel::source("scaled", SCALED_SOURCE)
        .input("out")
        .output("x")
        .scalar("factor", DType::F32)
        .constant("DOUBLE", DType::Bool)
        .threadgroup("shared", DType::F32);
    assert_eq!(
        refusal(swapped, &[&x]),
        "scaled: the kernel may write input `out`; make it `const` there, or declare it as in-out"
    );
}

#[test]
fn the_page_shows_the_text_that_is_compiled() {
    let page = include_str!("../../../../docs/custom-kernels.md");
    let x = Tensor::zeros([4], DType::F32);
    let text = super::axpy().call(&[&x, &x]).msl().unwrap();
    assert!(page.contains(&format!("```metal\n{text}```")), "{text}");
}
