//! Code that Apple's compiler rejects is rejected here; code that it accepts is accepted.

use bessemer_hal::LanguageVersion::{self, Metal3_0, Metal3_1, Metal3_2};
use bessemer_hal::msl::{translate, translate_as};

fn errors(text: &str) -> Vec<String> {
    match translate(text, "a.metal") {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn rejects_code_that_apple_rejects() {
    let pointer =
        "pointer type must have an address space: device, constant, threadgroup or thread";
    let reference =
        "reference type must have an address space: device, constant, threadgroup or thread";
    for (text, place, message) in [
        (
            "double x(float y) { return y; }",
            "1:1",
            "'double' is not supported in Metal",
        ),
        (
            "void f() { long double d; }",
            "1:17",
            "'double' is not supported in Metal",
        ),
        ("void f(float* p) {}", "1:8", pointer),
        ("void f(const float4 &p) {}", "1:8", reference),
        ("struct S { int a; }; void f(S& s) {}", "1:29", reference),
        ("struct S { half* data; };", "1:12", pointer),
        ("void f() { float x; float* p = &x; }", "1:21", pointer),
        (
            "void f(device char* c) { device float* p = (float*)c; }",
            "1:45",
            pointer,
        ),
        (
            "void f(device char* c) { auto p = reinterpret_cast<const uint*>(c); }",
            "1:52",
            pointer,
        ),
        ("float* f() { return nullptr; }", "1:1", pointer),
        (
            "int counter = 0;",
            "1:5",
            "program-scope variable 'counter' must be in the constant address space",
        ),
        (
            "kernel int k() { return 1; }",
            "1:8",
            "kernel 'k' must return void",
        ),
        (
            "constexpr int n = 3;",
            "1:15",
            "program-scope variable 'n' must be in the constant address space",
        ),
        (
            "const float t[2] = {1, 2};",
            "1:13",
            "program-scope variable 't' must be in the constant address space",
        ),
        (
            "void f() { auto g = [](int x) { return x; }; }",
            "1:21",
            "lambda expressions need metal3.2 or newer (compiling as metal3.1)",
        ),
        (
            "void f(uint n) { uint half = n / 2; }",
            "1:23",
            "'half' is a type in Metal and cannot be the name of a variable",
        ),
        (
            "kernel void k(device float* p) [[max_total_threads_per_threadgroup(64)]] {}",
            "1:34",
            "'max_total_threads_per_threadgroup' attribute cannot be applied to types: it must precede the function",
        ),
        (
            "kernel\n[[max_total_threads_per_threadgroup(256)]]\nvoid k(device float* p) {}",
            "2:3",
            "an attribute list cannot appear here: it must precede 'kernel'",
        ),
        (
            "void f() { threadgroup float s[4]; }",
            "1:12",
            "threadgroup variables can be declared in kernel functions only",
        ),
        (
            "int f() { static int calls = 0; return calls; }",
            "1:11",
            "static local variables must be in the constant address space",
        ),
        (
            "struct S { threadgroup float x; };",
            "1:12",
            "field may not be qualified with an address space: 'threadgroup'",
        ),
        (
            "kernel void k(device float* p, float i [[thread_position_in_grid]]) {}",
            "1:32",
            "invalid type 'float' for [[thread_position_in_grid]]: it must be ushort, uint or a vector of them",
        ),
        (
            "kernel void k(device int* p, uint i [[thread_position_in_grid]], uint3 g [[threadgroup_position_in_grid]]) {}",
            "1:66",
            "[[threadgroup_position_in_grid]] and [[thread_position_in_grid]] must have the same number of components, not 3 and 1",
        ),
    ] {
        let expected = format!("a.metal:{place}: error: {message}");
        assert_eq!(errors(text), [expected], "{text}");
    }
}

#[test]
fn accepts_code_that_apple_accepts() {
    for text in [
        "template<typename T> void f(T* p, T& q) {}",
        "using ptr = device float; void f(ptr* p) {}",
        "typedef constant uint4 C; void f(C& c) {}",
        "void f(device float* d) { auto p = d; auto* q = d; const auto& r = *d; }",
        "void f(float device* p, const constant half& h) {}",
        "template<void (*g)(device const float*, thread half&)> void f() {}",
        "void f(float a, float b) { float c = a * b; bool d = a & 1; c * a; }",
        "void f(device float* p, threadgroup float* q) { { device float* q = p; device float* r = q; } }",
        "void f(device float* p, threadgroup float* q) { for (threadgroup float* p = q; p; ++p) {} device float* r = p; }",
        "void f(device float* p, threadgroup float* q) { float x = q[0]; p[1] = q[0]; *p = *q; device float* s = p + (q - q); }",
        "void g(device float* p) {} void g(threadgroup float* p) {} void f(threadgroup float* t) { g(t); }",
        "void g(const thread float& x) {} void f(device float* d) { g(d[0]); }",
        "struct S { float a; void f(thread float& x) thread { x = a; } };",
        "int f(int n) { return n < 2 ? 1 : n * f(n - 1); } kernel void exp(device float* a) { a[0] = exp(a[0]); }",
        "int f(int n) { return n; } float f(float n) { return f(int(n)); }",
        "constant constexpr int n = 3; constexpr constant float x = 1; static constant float t[2] = {1, 2};",
        "struct S { static constant constexpr int n = 3; device float* p; threadgroup float& q; };",
        "void f() { static constant float t[2] = {1, 2}; constexpr int n = 3; const int m = t[0] + n; }",
        "void f(half half_of) { half x = half(half_of), y[2] = {half(1), x}; vec<half, 2> z; }",
        "[[max_total_threads_per_threadgroup(64)]] kernel void k(device float* p) {}",
        "kernel void k(uint3 g [[threadgroup_position_in_grid]], ushort3 t [[thread_position_in_threadgroup]], ushort i [[thread_index_in_threadgroup]]) {}",
        "struct S { device float* operator[](uint i); }; void f(thread int* a, uint i) { int b[2] = {a[i], a[0]}; }",
        "template<typename T> constant constexpr bool v = sizeof(T) > 2;",
        "void f(device float4* p) { device float* q = (device float*)p; thread float* r = nullptr; }",
        "kernel void f() { threadgroup float s[8][4]; threadgroup float* p = &s[1][2]; threadgroup float* q = s[1]; }",
        "void f(device int* a) { uint sz = sizeof(float*) + 1; }",
        "struct B { int x; }; B g(); struct B h(struct B b) { return b; }",
    ] {
        assert_eq!(errors(text), [""; 0], "{text}");
    }
}

#[test]
fn features_of_later_versions_are_rejected_by_name() {
    let refused =
        |text: &str, language: LanguageVersion| match translate_as(text, "a.metal", language) {
            Ok(_) => None,
            Err(errors) => Some(errors[0].message.clone()),
        };
    for (text, feature, since) in [
        ("void f() { bfloat x = 0; }", "'bfloat' needs", Metal3_1),
        (
            "void f() { metal::bfloat4 x; }",
            "'bfloat4' needs",
            Metal3_1,
        ),
        (
            "void f(device packed_bfloat2* x) {}",
            "'packed_bfloat2' needs",
            Metal3_1,
        ),
        (
            "void f() { simdgroup_bfloat8x8 m; }",
            "'simdgroup_bfloat8x8' needs",
            Metal3_1,
        ),
        ("void f() { auto x = 1.5bf; }", "'1.5bf' needs", Metal3_1),
        (
            "float f(float x) { return nextafter(x, 1.0f); }",
            "'nextafter' needs",
            Metal3_1,
        ),
        (
            "constant os_log log(\"a\", \"b\");",
            "'os_log' needs",
            Metal3_2,
        ),
        (
            "void f() { os_log_default.log(\"a\"); }",
            "'os_log_default' needs",
            Metal3_2,
        ),
        (
            "void f() { atomic_thread_fence(mem_flags::mem_device); }",
            "'atomic_thread_fence' needs",
            Metal3_2,
        ),
        (
            "void f(coherent(device) device uint* p) {}",
            "'coherent' needs",
            Metal3_2,
        ),
        (
            "void f() { auto g = [](int x) { return x; }; }",
            "lambda expressions need",
            Metal3_2,
        ),
    ] {
        for language in LanguageVersion::ALL {
            let expected = (language < since)
                .then(|| format!("{feature} {since} or newer (compiling as {language})"));
            assert_eq!(refused(text, language), expected, "{text} as {language}");
        }
    }
    // The user's own names, and lookalikes.
    for text in [
        "namespace mine { struct os_log { void log() const; }; } void f() { mine::os_log l; }",
        "float nextafter(float x, int y) { return x; } float f(float x) { return nextafter(x, 1); }",
        "uint f() { return 0xbf + 0xBF; }",
        "struct S { int bfloat; }; int f(S s) { return s.bfloat; }",
        "typedef ushort bfloat; bfloat f() { return 1; }",
        "float f() { float nextafter = 1; return nextafter; }",
        "float coherent(float x) { return x; } float f(float x) { return coherent(x); }",
    ] {
        assert_eq!(refused(text, Metal3_0), None, "{text}");
    }
}
