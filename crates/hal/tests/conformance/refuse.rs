//! Sources that must not compile, with the line of the error.

use bessemer_hal::{CompileOptions, Error, Result};

use crate::harness::{compile, targets};

struct Case {
    name: &'static str,
    /// `REFUSED` marks the line the error must be on.
    text: &'static str,
    /// A word of the software device's message.
    says: &'static str,
    /// Apple's compiler accepts it; the software device has to reject it.
    apple_has_it: bool,
}

const CASES: &[Case] = &[
    Case {
        name: "double",
        text: "kernel void k(device float* out) {
            double x = 1.0;  // REFUSED
            out[0] = x;
        }",
        says: "double",
        apple_has_it: false,
    },
    Case {
        name: "double in a signature",
        text: "float f(
            double x) {  // REFUSED
            return 1;
        }
        kernel void k(device float* out) { out[0] = f(1); }",
        says: "double",
        apple_has_it: false,
    },
    Case {
        name: "a pointer parameter without address space",
        text: "float f(
            float* p) {  // REFUSED
            return *p;
        }
        kernel void k(device float* out) { out[0] = 1; }",
        says: "address space",
        apple_has_it: false,
    },
    Case {
        name: "a local pointer without address space",
        text: "kernel void k(device float* out) {
            float x = 1;
            float* p = &x;  // REFUSED
            out[0] = *p;
        }",
        says: "address space",
        apple_has_it: false,
    },
    Case {
        name: "a reference parameter without address space",
        text: "void f(
            float& x) {  // REFUSED
            x = 1;
        }
        kernel void k(device float* out) { float x; f(x); out[0] = x; }",
        says: "address space",
        apple_has_it: false,
    },
    Case {
        name: "a pointer member without address space",
        text: "struct S {
            int* p;  // REFUSED
        };
        kernel void k(device int* out) { out[0] = sizeof(S); }",
        says: "address space",
        apple_has_it: false,
    },
    Case {
        name: "a threadgroup pointer made from a device pointer",
        text: "kernel void k(device float* out) {
            threadgroup float* p = out;  // REFUSED
            p[0] = 1;
        }",
        says: "cannot initialize",
        apple_has_it: false,
    },
    Case {
        name: "a device pointer passed for a threadgroup pointer",
        text: "void f(threadgroup float* p) { p[0] = 1; }
        kernel void k(device float* out) {
            f(out);  // REFUSED
        }",
        says: "no matching function",
        apple_has_it: false,
    },
    Case {
        name: "a thread pointer to threadgroup memory",
        text: "kernel void k(device float* out) {
            threadgroup float shared[4];
            thread float* p = shared;  // REFUSED
            out[0] = p[0];
        }",
        says: "cannot initialize",
        apple_has_it: false,
    },
    Case {
        name: "a write to constant memory",
        text: "kernel void k(device float* out, constant float* c) {
            c[0] = 1;  // REFUSED
            out[0] = 2;
        }",
        says: "read-only",
        apple_has_it: false,
    },
    Case {
        name: "a write through a const pointer",
        text: "kernel void k(device float* out, const device float* c) {
            c[0] = 1;  // REFUSED
            out[0] = 2;
        }",
        says: "read-only",
        apple_has_it: false,
    },
    Case {
        name: "missing vector components",
        text: "kernel void k(device float4* out) {
            out[0] = float4(1, 2);  // REFUSED
        }",
        says: "float4",
        apple_has_it: false,
    },
    Case {
        name: "too many vector components",
        text: "kernel void k(device float4* out) {
            out[0] = float4(float3(1), float2(2));  // REFUSED
        }",
        says: "float4",
        apple_has_it: false,
    },
    Case {
        name: "a component the vector does not have",
        text: "kernel void k(device float* out, constant float2& v) {
            out[0] = v.z;  // REFUSED
        }",
        says: "z",
        apple_has_it: false,
    },
    Case {
        name: "vectors of different lengths",
        text: "kernel void k(device float3* out, constant float2& v) {
            out[0] = v;  // REFUSED
        }",
        says: "no viable",
        apple_has_it: false,
    },
    Case {
        name: "an unknown function",
        text: "kernel void k(device float* out) {
            out[0] = nonsense(1);  // REFUSED
        }",
        says: "nonsense",
        apple_has_it: false,
    },
    Case {
        name: "a syntax error",
        text: "kernel void k(device float* out) {
            out[0] = 1 +;  // REFUSED
        }",
        says: "expected",
        apple_has_it: false,
    },
    Case {
        name: "one index for two buffers",
        text: "kernel void k(device float* a [[buffer(1)]],
            device float* b [[buffer(1)]]) {  // REFUSED
            a[0] = b[0];
        }",
        says: "buffer",
        apple_has_it: false,
    },
    Case {
        name: "a kernel that returns something",
        text: "
        kernel float k(device float* a) {  // REFUSED
            return a[0];
        }",
        says: "void",
        apple_has_it: false,
    },
    Case {
        name: "an exception",
        text: "kernel void k(device float* out) {
            throw 1;  // REFUSED
        }",
        says: "throw",
        apple_has_it: false,
    },
    Case {
        name: "a virtual function",
        text: "struct S {
            virtual int f();  // REFUSED
        };
        kernel void k(device float* out) { out[0] = 1; }",
        says: "virtual",
        apple_has_it: false,
    },
    Case {
        name: "operator new",
        text: "kernel void k(device float* out) {
            thread int* p = new int(3);  // REFUSED
            out[0] = *p;
        }",
        says: "new",
        apple_has_it: false,
    },
    Case {
        name: "a texture",
        text: "kernel void k(
            texture2d<float, access::read> image [[texture(0)]],  // REFUSED
            device float* out [[buffer(0)]]) {
            out[0] = image.read(uint2(0, 0)).x;
        }",
        says: "texture",
        apple_has_it: true,
    },
    Case {
        name: "a sampler",
        text: "kernel void k(device float* out [[buffer(0)]],
            sampler s [[sampler(0)]]) {  // REFUSED
            out[0] = 1;
        }",
        says: "sampler",
        apple_has_it: true,
    },
    Case {
        name: "ray tracing",
        text: "#include <metal_raytracing>
        using namespace metal::raytracing;
        kernel void k(device float* out [[buffer(0)]],
            primitive_acceleration_structure scene [[buffer(1)]]) {  // REFUSED
            out[0] = 1;
        }",
        says: "acceleration_structure",
        apple_has_it: true,
    },
    Case {
        name: "an imageblock",
        text: "struct Pixel { half4 colour; };
        kernel void k(
            imageblock<Pixel> block,  // REFUSED
            device float* out [[buffer(0)]]) {
            out[0] = 1;
        }",
        says: "imageblock",
        apple_has_it: true,
    },
    Case {
        name: "tensor operations",
        text: "
        #include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
        kernel void k(device float* out [[buffer(0)]]) {
            mpp::tensor_ops::matmul2d_descriptor shape(8, 8, 8);  // REFUSED
            out[0] = 1;
        }",
        says: "Metal performance primitives",
        apple_has_it: true,
    },
    Case {
        name: "a vertex function",
        text: "
        vertex float4 k(uint id [[vertex_id]]) {  // REFUSED
            return float4(id);
        }",
        says: "vertex",
        apple_has_it: true,
    },
];

/// Compiles a library and its kernel; the software device compiles kernels on demand.
fn attempt(target: usize, text: &str) -> Result<()> {
    let options = CompileOptions::labelled("refused.metal");
    let library = compile(&targets()[target].device, text, &options)?;
    library.pipeline("k").map(|_| ())
}

#[test]
fn code_that_apples_compiler_rejects_is_rejected_on_the_same_line() {
    let mut failures = Vec::new();
    for (index, target) in targets().iter().enumerate() {
        let apple = target.name == "apple";
        for case in CASES.iter().filter(|c| !(apple && c.apple_has_it)) {
            let text = format!(
                "#include <metal_stdlib>\nusing namespace metal;\n{}\n",
                case.text
            );
            let line = 1 + text
                .lines()
                .position(|l| l.contains("REFUSED"))
                .expect("every case marks its line");
            let problem = match attempt(index, &text) {
                Ok(()) => "it compiled".to_owned(),
                Err(Error::Compile { diagnostics, .. }) => {
                    let hit = diagnostics.iter().find(|d| {
                        d.line as usize == line && (apple || d.message.contains(case.says))
                    });
                    match hit {
                        Some(_) => continue,
                        None => format!("{diagnostics:#?}"),
                    }
                }
                Err(other) => format!("another error: {other}"),
            };
            failures.push(format!(
                "{} on {}: expected a message with `{}` on line {line}, got {problem}",
                case.name, target.name, case.says
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn the_same_kernels_compile_once_corrected() {
    let text = "#include <metal_stdlib>
        using namespace metal;
        float f(const thread float* p) { return *p; }
        float g(device float* p) { return *p; }
        float h(threadgroup float* p) { return *p; }
        void set(thread float& x) { x = 1; }
        struct S { device int* p; };
        kernel void k(device float* out, constant float2& v, uint i [[thread_index_in_threadgroup]]) {
            threadgroup float shared[8192];
            shared[i] = v.y;
            float x = 1;
            thread float* p = &x;
            set(x);
            threadgroup float* q = shared;
            float4 w = float4(v, 1, 2);
            out[i] = f(p) + g(out) + h(q) + w.z + sizeof(S);
        }";
    for (index, target) in targets().iter().enumerate() {
        assert_eq!(attempt(index, text), Ok(()), "{}", target.name);
    }
}

#[test]
fn a_kernel_with_too_much_threadgroup_memory_makes_no_pipeline() {
    let text = "#include <metal_stdlib>
        using namespace metal;
        kernel void k(device float* out, uint i [[thread_index_in_threadgroup]]) {
            threadgroup float big[8196];
            big[i] = 1;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            out[i] = big[8195 - i];
        }";
    for (index, target) in targets().iter().enumerate() {
        match attempt(index, text) {
            Err(Error::Launch { kernel, message }) => {
                assert_eq!(kernel, "k", "{}", target.name);
                for bytes in ["32784", "32768"] {
                    assert!(message.contains(bytes), "{}: {message}", target.name);
                }
            }
            other => panic!("{}: {other:?}", target.name),
        }
    }
}
