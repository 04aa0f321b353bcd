//! Conversions between address spaces, which Metal does not have, are errors at their location; valid code is accepted.

use bessemer_hal::soft::{self, Mode, SoftOptions};
use bessemer_hal::{Error, LanguageVersion, Library};

use crate::setup::{empty, fast, library, options, try_library};

const PROLOGUE: &str = "#include <metal_stdlib>\nusing namespace metal;\n";

/// Returns line (from the first one after the prologue), column and text of all errors of a library and its kernels.
fn errors(text: &str) -> Vec<(u32, u32, String)> {
    let check = |library: Library| {
        let names = library.function_names();
        library.check(&names.iter().map(String::as_str).collect::<Vec<_>>())
    };
    match try_library(&fast(), &format!("{PROLOGUE}{text}")).and_then(check) {
        Ok(()) => Vec::new(),
        Err(Error::Compile { diagnostics, .. }) => diagnostics
            .into_iter()
            .filter(|d| d.severity == bessemer_hal::msl::Severity::Error)
            .map(|d| (d.line - 2, d.column, d.message))
            .collect(),
        Err(error) => panic!("{text}: {error}"),
    }
}

#[test]
fn conversions_to_and_from_thread_are_rejected_at_their_location() {
    let pass = |from: &str, n: &str| {
        format!(
            "cannot pass pointer to address space '{from}' as a pointer to address space 'thread' in {n} argument"
        )
    };
    let bind = |from: &str, to: &str| {
        format!("binding reference of type '{to}' to value of type '{from}' changes address space")
    };
    let cast = |from: &str, to: &str| {
        format!("cast from '{from}' to '{to}' converts between mismatching address spaces")
    };
    let variable = |from: &str, to: &str| {
        format!("cannot initialize a variable of type '{to}' with a value of type '{from}'")
    };
    let convert = |from: &str, to: &str| {
        format!("converting '{from}' to type '{to}' changes address space of pointer")
    };
    for (text, location, message) in [
        (
            "void g(thread float* t) {}\nvoid f(device float* d) { g(d); }",
            (2, 29),
            pass("device", "1st"),
        ),
        (
            "void g(int n, thread float* t) {}\nvoid f(threadgroup float* d) {\n  g(1,   d + 4);\n}",
            (3, 10),
            pass("threadgroup", "2nd"),
        ),
        (
            "#define P(x) x\nvoid g(thread const float* t) {}\nvoid f(constant float* d) { g(P(d)); }",
            (3, 33),
            pass("constant", "1st"),
        ),
        (
            "struct S { void m(thread float* t) {} };\nvoid f(device float* d) { S s; s.m(d); }",
            (2, 36),
            pass("device", "1st"),
        ),
        (
            "template <typename T> struct S { void m(thread T* t) {}\n  void n(device T* d) { m(d); } };\nkernel void k(device float* d) { S<float> s; s.n(d); }",
            (2, 27),
            pass("device", "1st"),
        ),
        (
            "template <typename T> void g(device T* d) { thread T* t = d; }\nkernel void k(device half* d) { g(d); }",
            (1, 59),
            variable("device half *", "thread half *"),
        ),
        (
            "void g(thread float& t) {}\nvoid f(device float* d) { g(d[3]); }",
            (2, 29),
            bind("device float", "thread float"),
        ),
        (
            "template <typename T> void g(T x, thread float4& t) {}\nvoid f(device float4* d) { g(1, *d); }",
            (2, 33),
            bind("device float4", "thread float4"),
        ),
        (
            "struct S { float a; }; void g(thread S& t) {}\nvoid f(device S* d) { g(*d); }",
            (2, 25),
            bind("device S", "thread S"),
        ),
        (
            "struct S { S(thread float& x) {} };\nvoid f(device float* d) { S s(*d); }",
            (2, 31),
            bind("device float", "thread float"),
        ),
        (
            "void f(device float* d) { thread float& t = *d; }",
            (1, 45),
            bind("device float", "thread float"),
        ),
        (
            "void f(device float* d) { thread float* t = d; }",
            (1, 45),
            variable("device float *", "thread float *"),
        ),
        (
            "void f(constant float& c) { thread const float* t = &c; }",
            (1, 53),
            variable("const constant float *", "const thread float *"),
        ),
        (
            "typedef device float* P;\nvoid f(P d) { thread float* t = d; }",
            (2, 33),
            variable("device float *", "thread float *"),
        ),
        (
            "kernel void k() { threadgroup float s[4]; thread float* p = s; }",
            (1, 61),
            variable("threadgroup float *", "thread float *"),
        ),
        (
            "void f(device float* d, thread float* t) { t = d; }",
            (1, 48),
            convert("device float *", "thread float *"),
        ),
        (
            "thread float* f(device float* d) { return d; }",
            (1, 43),
            convert("device float *", "thread float *"),
        ),
        (
            "void f(device float* d, thread float* t) { t = (thread float*)d; }",
            (1, 48),
            cast("device float *", "thread float *"),
        ),
        (
            "void f(device float* d) { auto t = (thread uint*)d; }",
            (1, 36),
            cast("device float *", "thread uint *"),
        ),
        (
            "void f(device float* d) { auto t = reinterpret_cast<thread uint*>(d); }",
            (1, 36),
            cast("device float *", "thread uint *"),
        ),
        (
            "void f(device float* d) { auto t = static_cast<thread float*>(d); }",
            (1, 63),
            cast("device float *", "thread float *"),
        ),
        (
            "void f() { float x; auto d = (device float*)&x; }",
            (1, 30),
            cast("thread float *", "device float *"),
        ),
        (
            "bool f(device float* d, thread float* t) { return t == d; }",
            (1, 56),
            convert("device float *", "thread float *"),
        ),
    ] {
        assert_eq!(errors(text), [(location.0, location.1, message)], "{text}");
    }
}

#[test]
fn conversions_between_other_spaces_are_rejected() {
    for (text, location, message) in [
        (
            "void f(device float* d) { threadgroup float* t = d; }",
            (1, 46),
            "cannot initialize a variable of type 'threadgroup float *' with an lvalue of type 'device float *'",
        ),
        (
            "void f(device float* d, threadgroup float* t) { t = d + 4; }",
            (1, 55),
            "assigning 'device float *' to 'threadgroup float *' changes address space of pointer",
        ),
        (
            "void f(constant float* c, uint i) { const device float* d = &c[i]; }",
            (1, 57),
            "cannot initialize a variable of type 'const device float *' with an rvalue of type 'const constant float *'",
        ),
        (
            "void f() { float x = 1; device float* p = &x; }",
            (1, 39),
            "cannot initialize a variable of type 'device float *' with an rvalue of type 'float *'",
        ),
        (
            "device float* f(threadgroup float* t) { return t; }",
            (1, 48),
            "cannot initialize return object of type 'device float *' with an lvalue of type 'threadgroup float *'",
        ),
        (
            "void g(threadgroup float* t, int n) {} void f(device float* d) { g(d, 1); }",
            (1, 66),
            "no matching function for call to 'g'",
        ),
        (
            "void f(device float* d) { auto c = (constant float*)d; }",
            (1, 36),
            "C-style cast from 'device float *' to 'const constant float *' converts between mismatching address spaces",
        ),
        (
            "void f(bool b, device float* d, threadgroup float* t) { float x = *(b ? d : t); }",
            (1, 71),
            "incompatible operand types ('device float *' and 'threadgroup float *')",
        ),
    ] {
        assert_eq!(
            errors(text),
            [(location.0, location.1, message.to_owned())],
            "{text}"
        );
    }
}

#[test]
fn a_template_for_thread_accepts_no_other_space() {
    for (text, location, message) in [
        (
            "template <typename T> void g(thread T* t) {}\nvoid f(device float* d) { g(d); }",
            (2, 27),
            "no matching function for call to 'g'",
        ),
        (
            "template <typename T> void g(thread const T& t, int n);\ntemplate <typename T> void g(T thread const& t, int n) {}\nvoid f(device float* d) { g(*d, 1); }",
            (3, 27),
            "no matching function for call to 'g'",
        ),
        (
            "template <typename T> struct S { enum { n = 1 }; };\ntemplate <typename T> struct S<thread T*> { enum { n = 2 }; };\nint f() { return S<device float*>::n; }",
            (2, 44),
            "static assertion failed due to requirement 'in_thread<device float>': this template is for the thread address space",
        ),
        (
            "template <typename T> int g(thread T* t) { return 1; }\ntemplate <> int g<int>(thread int* t) { return 2; }\nint f(device float* d) { return g(d); }",
            (1, 43),
            "static assertion failed due to requirement 'in_thread<device float>': this template is for the thread address space",
        ),
    ] {
        let found = errors(text);
        assert_eq!(
            found[0],
            (location.0, location.1, message.to_owned()),
            "{text}"
        );
    }
    // Another viable candidate is preferred.
    let device = fast();
    let text = "template <typename T> int g(thread T* t) { return 1; }
template <typename T> int g(T t) { return 2; }
template <typename T> int h(thread T& t);
template <typename T> int h(device T& t) { return 4; }
template <typename T> int h(thread T& t) { return 3; }
template <> int h<int>(thread int& t) { return 5; }
struct S { template <typename T> int m(thread T* t); };
template <typename T> int S::m(thread T* t) { return 6; }
template <typename T> struct U { template <typename V> int m(thread V* t, thread T* u); };
template <typename T> template <typename V> int U<T>::m(thread V* t, thread T* u) { return 7; }
template <typename T> struct W { enum { n = 8 }; };
template <typename T> struct W<thread T*> { enum { n = 9 }; };
template <typename T> struct W<device T*> { enum { n = 10 }; };
kernel void k(device int* o) {
  int x = 0; float y = 0; S s; U<int> u;
  o[0] = g(&x); o[1] = g(o); o[2] = h(y); o[3] = h(*o); o[4] = h(x); o[5] = s.m(&y); o[6] = u.m(&y, &x);
  o[7] = W<int>::n; o[8] = W<thread int*>::n; o[9] = W<device int*>::n;
}";
    let library = library(&device, &format!("{PROLOGUE}{text}"));
    let pipeline = library.pipeline("k").unwrap();
    let out = empty::<i32>(&device, 10);
    let mut commands = device.commands();
    let dispatch = commands.dispatch(&pipeline).read_write(0, &out);
    dispatch.threads(1, 1).unwrap();
    commands.commit().unwrap().wait().unwrap();
    assert_eq!(
        out.to_vec::<i32>().unwrap(),
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    );
}

#[test]
fn variables_arrays_and_atomics_follow_metals_rules() {
    let relaxed = "'order' argument must be 'memory_order_relaxed'";
    let device_only = "is unavailable: atomic_float is supported in the device address space only";
    for (text, message) in [
        ("void f() { device float x; }", "address space"),
        ("void f(uint n) { float a[n]; }", "variable length array"),
        (
            "void f(device atomic_uint* a) { atomic_fetch_add_explicit(a, 1u, memory_order_acq_rel); }",
            relaxed,
        ),
        (
            "void f(device atomic_int* a) { atomic_store_explicit(a, 1, memory_order_release); }",
            relaxed,
        ),
        (
            "uint f(threadgroup atomic_uint* a) { return atomic_load_explicit(a, memory_order_acquire); }",
            relaxed,
        ),
        (
            "void f(threadgroup atomic_float* a) { atomic_fetch_add_explicit(a, 1.0f, memory_order_relaxed); }",
            device_only,
        ),
        (
            "void f(device atomic_ulong* a) { atomic_fetch_add_explicit(a, 1ul, memory_order_relaxed); }",
            "no matching function",
        ),
    ] {
        let found = errors(text);
        assert!(
            found.len() == 1 && found[0].2.contains(message),
            "{text}: {found:?}"
        );
    }
    for text in [
        "void f(threadgroup atomic_uint* a) { atomic_fetch_max_explicit(a, 1u, memory_order_relaxed); }",
        "void f(device atomic_float* a) { atomic_fetch_add_explicit(a, 1.0f, memory_order_relaxed); }",
        "float f(threadgroup atomic_float* a) { return atomic_load_explicit(a, memory_order_relaxed); }",
        "void f(device atomic_ulong* a) { atomic_max_explicit(a, 1ul, memory_order_relaxed); }",
    ] {
        assert_eq!(errors(text), [], "{text}");
    }
    let fences = "void f() { atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device); atomic_thread_fence(mem_flags::mem_device, memory_order_acq_rel); }";
    let newer = soft::device(SoftOptions {
        language: LanguageVersion::Metal3_2,
        ..options(Mode::Fast)
    });
    let fences = format!("{PROLOGUE}{fences}");
    assert!(try_library(&newer.unwrap(), &fences).is_ok());
}

#[test]
fn conversions_that_metal_allows_are_accepted() {
    for text in [
        // The object of a method, and copies of objects in any space.
        "struct S { float a; float get() const { return a; } void set(float x) device { a = x; } };\nkernel void k(device S* s, constant S& c) { S t = *s; *s = t; s[1] = c; s->set(c.get()); S u(*s); float x = s[2].get(); }",
        "struct S { float a; };\nvoid f(device S* s, threadgroup S* t) { *t = *s; S x[2] = {*s, *t}; }",
        // A reference to const may refer to a copy.
        "void g(const thread float& x) {}\nvoid f(device float* d) { g(d[0]); const thread float& y = *d; }",
        // Vectors and matrices in any space.
        "void f(device float4* v, constant float4x4& m) { v[0] += v[1]; v[0].xy = v[1].zw; v[1] *= 2; v[2] = m * v[3]; v[0].x = 1; v[1] = m[0]; }",
        "void f(device packed_float3* p, threadgroup half4* h) { p[0] = p[1] * 2; p[0] += float3(1); h[0] = half4(1); h[1].yz = h[0].xw; }",
        // Library functions on atomics in every space, and with results in `thread`.
        "void f(device atomic_uint* a, threadgroup atomic_int* b) { uint e = 1; atomic_fetch_add_explicit(a, 1u, memory_order_relaxed);\n atomic_store_explicit(b, 1, memory_order_relaxed); atomic_compare_exchange_weak_explicit(a, &e, 2u, memory_order_relaxed, memory_order_relaxed); }",
        "void f(device float* d, threadgroup half* t) { simdgroup_float8x8 m; simdgroup_load(m, d, 8); simdgroup_store(m, d, 8); simdgroup_half8x8 n; simdgroup_load(n, t, 8); }",
        "void f(device float* d) { float x, y; d[0] = modf(d[2], y) + sincos(d[3], x); }",
        // Overloads and templates that name the space.
        "void g(thread float* p) {} void g(device float* p) {} void g(threadgroup float* p) {}\nvoid f(device float* d, threadgroup float* t) { float x; g(&x); g(d); g(t); }",
        "template <typename T> void g(T p) { *p = 1; }\nvoid f(device float* d, thread float* t) { g(d); g(t); }",
        "template <typename P> struct It { P p; float next() thread { return *p++; } };\nvoid f(device float* d) { It<device float*> i{d}; i.next(); float x; It<thread float*> j{&x}; j.next(); }",
        "void f(device char* c, thread char* t) { auto a = (device float*)c; auto b = (thread float*)t; auto n = (ulong)c; auto d = (device float*)n; }",
        "void f(bool b, device float4* d) { float4 x = b ? d[0] : float4(1); device float4* e = b ? d : nullptr; float y = b ? d[0].x : 2; }",
        // Elements of vectors and matrices are in the space of the vector or matrix.
        "void f(device float4x4* m, threadgroup float2x2* t) { ((device float*)&m[0][1])[2] = 1; (threadgroup float2&)t[0][1] = 2; }",
        // Strings are in constant memory.
        "struct Log { constexpr Log(constant char*, constant char*) constant {} template <typename... A> void put(constant char*, A...) const constant {} };\nconstant Log l(\"a\", \"b\" \"c\");\nstatic_assert(sizeof(int) == 4, \"size\");\nkernel void k() { l.put(\"%d\", 1); }",
        "constant float table[2] = {1, 2};\nkernel void k(device float* d) { threadgroup float s[4]; threadgroup float* p = s; p[0] = table[0]; constant float* c = table; d[0] = c[1]; }",
    ] {
        assert_eq!(errors(text), [], "{text}");
    }
}
