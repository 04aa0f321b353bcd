//! The MSL front end: rewriting, reflection and rejection of small programs.

use bessemer_hal::LanguageVersion;
use bessemer_hal::msl::{
    AddressSpace, ArgumentKind, Builtin, DiagnosticKind, Translation, translate, translate_as,
};

fn accept(text: &str) -> Translation {
    translate_as(text, "a.metal", LanguageVersion::Metal3_2)
        .unwrap_or_else(|errors| panic!("{text}\n{errors:?}"))
}

/// The C++ text between the prologue and the epilogue, white space collapsed.
fn cpp(text: &str) -> String {
    let translation = accept(text);
    let lines: Vec<&str> = translation
        .cpp
        .lines()
        .filter(|line| !line.starts_with('#') && !line.starts_with("namespace metal { SM_PLAIN_"))
        .collect();
    lines
        .join(" ")
        .split_ascii_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

fn refuse(text: &str) -> Vec<String> {
    match translate(text, "a.metal") {
        Ok(_) => panic!("accepted: {text}"),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn rewrites_constructs_that_cpp_lacks() {
    struct Case {
        msl: &'static str,
        cpp: &'static str,
    }
    for Case { msl, cpp: expected } in [
        Case {
            msl: "constant float pi = 3.14;",
            cpp: "sm_constant const float pi = 3.14f;",
        },
        Case {
            msl: "constexpr constant const static half h = 1.0h;",
            cpp: "constexpr sm_constant const static half h = 1.0f16;",
        },
        Case {
            msl: "float f(const device float4* p) { return p->xyz.yx.x; }",
            cpp: "inline float f(const sm_device float4* p) { return p->swz(::sm::I<0,1,2>{}).swz(::sm::I<1,0>{}).x; }",
        },
        Case {
            msl: "void f(thread float4& v) { v.xy = 1.0; v.zw += v.xy; ++v.rg; v.xy.y = 2; }",
            cpp: "inline void f( float4& v) { v.swzref(::sm::I<0,1>{}) = 1.0f; \
                  v.swzref(::sm::I<2,3>{}) += v.swz(::sm::I<0,1>{}); ++v.swzref(::sm::I<0,1>{}); v.y = 2; }",
        },
        Case {
            msl: "template<typename T> void f(device T* p) { p[0] = static_cast<T>(1.5e-3); }",
            cpp: "template<typename T> void f(sm_device T* p) { p[0] = ::sm::scast<T>(1.5e-3f); }",
        },
        Case {
            msl: "static inline int g(coherent(system) device int* p) { return *p; }",
            cpp: "static inline int g( sm_device int* p) { return *p; }",
        },
        Case {
            msl: "template void f<float>(device float* p);",
            cpp: "",
        },
        Case {
            msl: "__attribute__((noinline)) int g() { return 1; }",
            cpp: "inline __attribute__((always_inline)) int g() { return 1; }",
        },
        Case {
            msl: "extern \"C\" int g();",
            cpp: "extern \"C\" inline int g();",
        },
    ] {
        assert_eq!(cpp(msl), expected, "{msl}");
    }
}

#[test]
fn rewrites_threadgroup_variables_as_references() {
    let text = "kernel void k(device float* o, uint t [[thread_position_in_threadgroup]]) {\n\
                threadgroup float a[32][N > 2 ? 4 : 8], b;\n\
                alignas(16) threadgroup vec<half, 4> c[2] = {};\n\
                threadgroup float* p = a[0];\n\
                threadgroup float (&r)[32] = q; }\nconstant int N = 3;";
    let translation = accept(text);
    let lines: Vec<&str> = translation.cpp.lines().collect();
    assert_eq!(
        lines[3],
        "struct sm_tg_0 { float a[32][N > 2 ? 4 : 8]; }; auto& a = ::sm::tgvar<0, sm_tg_0>().a; \
         struct sm_tg_1 { float b; }; auto& b = ::sm::tgvar<1, sm_tg_1>().b;"
    );
    assert_eq!(
        lines[4],
        "struct sm_tg_2 { alignas (16) vec<half, 4> c[2]; }; auto& c = ::sm::tgvar<2, sm_tg_2>().c;"
    );
    assert_eq!(lines[5], "sm_threadgroup float* p = a[0];");
    let names: Vec<_> = translation
        .variables
        .iter()
        .map(|v| (v.id, v.name.as_str(), v.line))
        .collect();
    assert_eq!(names, [(0, "a", 2), (1, "b", 2), (2, "c", 3)]);
}

#[test]
fn keeps_one_of_the_declarations_that_differ_in_address_spaces() {
    let text = "struct S { float v; S() thread = default; S() threadgroup = default; S() constant = default;\n\
                operator float() const thread { return v; } operator float() const device { return v; }\n\
                float get(int i) const constant { return v; } };\n\
                float load(const device float* p) { return *p; }\n\
                float load(constant float* q) { return *q; }\n\
                float load(device float* q) { return *q; }\n\
                template<typename T> struct X; template<typename T> struct X<device T*> { int a; };\n\
                template<typename T> struct X<threadgroup T*> { int a; };";
    assert_eq!(
        cpp(text),
        "struct S { float v; S() = default; operator float() const { return v; } \
         float get(int i) const { return v; } }; \
         inline float load(const sm_device float* p) { return *p; } \
         inline float load(sm_constant const float* q) { return *q; } \
         inline float load(sm_device float* q) { return *q; } \
         template<typename T> struct X; template<typename T> struct X<sm_device T*> { int a; }; \
         template<typename T> struct X<sm_threadgroup T*> { int a; };"
    );
    let methods = "struct S { int f() device { return 1; } int f() threadgroup { return 2; } };";
    assert_eq!(
        refuse(methods),
        [
            "a.metal:1:41: error: a declaration that differs from another one in the address space of its object only, \
             and does something else, is not supported by the software device"
        ]
    );
}

#[test]
fn fields_named_like_swizzles_stay_fields() {
    let text = "struct S { float ba; union { float rg; int i; }; };\n\
                float f(thread S& s, float4 v) { s.ba = 1; return s.ba + v.ba.x + s.rg; }";
    let out = cpp(text);
    assert!(
        out.contains("auto swz(::sm::I<2,3>) -> decltype((this->ba)) { return (this->ba); }"),
        "{out}"
    );
    // The accessor of a field in an anonymous union belongs to the enclosing class.
    assert!(
        out.contains("union { float rg; int i; }; auto swz(::sm::I<0,1>)"),
        "{out}"
    );
    assert!(out.contains("s.swzref(::sm::I<2,3>{}) = 1;"), "{out}");
    assert!(
        out.contains("s.swz(::sm::I<2,3>{}) + v.swz(::sm::I<2,3>{}).x"),
        "{out}"
    );
    assert_eq!(
        refuse("struct S { float xy; float rg; };"),
        [
            "a.metal:1:28: error: fields 'xy' and 'rg' in one class are not supported: both spell the same swizzle"
        ]
    );
    assert_eq!(
        cpp(
            "struct S { float2 xy() const thread; }; float2 f(S s) { return s.xy(); } S g() { return {.xy = 1}; }"
        ),
        "struct S { float2 xy() const ; }; inline float2 f(S s) { return s.xy(); } inline S g() { return {.xy = 1}; }"
    );
}

#[test]
fn function_constants_are_read_at_load_time() {
    let text = "constant bool has_mask [[function_constant(3)]];\n\
                constant constexpr uint n [[function_constant(1 + 1)]];\n\
                constexpr constant uint m = n * 2;\n\
                constant bool b = is_function_constant_defined(has_mask) ? has_mask : true;";
    let translation = accept(text);
    let lines: Vec<&str> = translation.cpp.lines().collect();
    assert_eq!(
        lines[2],
        "sm_constant const bool has_mask  = ::sm::fconst{(3), \"has_mask\"};"
    );
    assert_eq!(
        lines[3],
        "sm_constant const  uint n  = ::sm::fconst{(1 + 1), \"n\"};"
    );
    assert_eq!(lines[4], " sm_constant const uint m = n * 2;");
    assert_eq!(
        lines[5],
        "sm_constant const bool b = ::sm::fc_defined(\"has_mask\") ? SM_OPERAND(has_mask) : true;"
    );
    let constants: Vec<_> = translation
        .reflection
        .constants
        .iter()
        .map(|c| (c.name.as_str(), c.index, c.type_name.as_str()))
        .collect();
    assert_eq!(constants, [("has_mask", 3, "bool"), ("n", 2, "uint")]);
}

#[test]
fn drops_pragmas_that_contain_macros() {
    let text = "void f() {\n#pragma unroll (MIN(4, N))\nfor (;;) {}\n#pragma unroll\nfor (;;) {}\n#pragma unroll(4)\n}";
    let translation = accept(text);
    let pragmas: Vec<&str> = translation
        .cpp
        .lines()
        .filter(|line| line.starts_with("#pragma unroll"))
        .collect();
    assert_eq!(pragmas, ["#pragma unroll", "#pragma unroll(4)"]);
}

#[test]
fn reflects_every_kind_of_argument() {
    let text = "enum { OUT = 5 };\nconstant bool gate [[function_constant(0)]];\n\
        [[kernel, max_total_threads_per_threadgroup(32 * 4)]] void k(\n\
        device const float* a, constant int64_t s[3], constant Params& p [[buffer(2)]],\n\
        device metal::vec<half, 4>* o [[buffer(OUT)]], threadgroup float* m [[threadgroup(1)]], threadgroup half* n,\n\
        const device uint* x [[buffer(7), function_constant(gate)]],\n\
        uint3 t [[thread_position_in_grid]], ushort l [[thread_index_in_simdgroup]]) {}";
    let reflection = accept(text).reflection;
    let kernel = reflection.kernel("k").expect("reflected");
    assert_eq!((kernel.file.as_str(), kernel.line), ("a.metal", 3));
    assert_eq!(kernel.max_total_threads, Some(128));
    let arguments: Vec<_> = kernel
        .arguments
        .iter()
        .map(|a| {
            (
                a.name.as_str(),
                a.kind,
                a.address_space,
                a.writable,
                a.type_name.as_str(),
                a.by_reference,
                a.gate.as_deref(),
            )
        })
        .collect();
    use AddressSpace::{Constant, Device, Thread, Threadgroup};
    let buffer = |index| ArgumentKind::Buffer { index };
    let memory = |index| ArgumentKind::ThreadgroupMemory { index };
    let position = ArgumentKind::Builtin(Builtin::ThreadPositionInGrid);
    let lane = ArgumentKind::Builtin(Builtin::ThreadIndexInSimdgroup);
    assert_eq!(
        arguments,
        [
            ("a", buffer(0), Device, false, "float", false, None),
            ("s", buffer(1), Constant, false, "int64_t", false, None),
            ("p", buffer(2), Constant, false, "Params", true, None),
            (
                "o",
                buffer(5),
                Device,
                true,
                "metal::vec<half, 4>",
                false,
                None
            ),
            ("m", memory(1), Threadgroup, true, "float", false, None),
            ("n", memory(0), Threadgroup, true, "half", false, None),
            ("x", buffer(7), Device, false, "uint", false, Some("gate")),
            ("t", position, Thread, false, "uint3", false, None),
            ("l", lane, Thread, false, "ushort", false, None),
        ]
    );
    let json = serde_json::to_string(&reflection).expect("serialises");
    let back: bessemer_hal::msl::Reflection = serde_json::from_str(&json).expect("reads back");
    assert_eq!(back, reflection);
}

#[test]
fn reads_every_spelling_of_an_instantiation() {
    let text = "template<typename T, int N = 4> [[kernel, max_total_threads_per_threadgroup(N * 8)]] void f(\n\
        device T* p [[buffer(0)]], constant vec<T, N>& v [[buffer(1)]]) {}\n\
        typedef decltype(f<float, 2>) f_t;\n\
        template [[host_name(\"f_\" \"float\")]] [[kernel]] void f<float, 2>(device float*, constant vec<float, 2>&);\n\
        template [[host_name(\"f_half\")]] [[kernel]] decltype(f<half>) f<half>;\n\
        template [[host_name(\"f_alias\")]] kernel f_t f<float, 2>;\n\
        template [[host_name(\"f_deduced\")]] [[kernel]] void f(device uint* p [[buffer(0)]], constant vec<uint, 4>& v);\n\
        namespace n { template<class T> kernel void g(device T* p) {}\n\
        struct S {}; template [[host_name(\"g_S\")]] [[kernel]] void g<S>(device S* p); }\n\
        template<> [[host_name(\"f_special\")]] kernel void f<int, 1>(device int* p, constant vec<int, 1>& v) {}\n\
        namespace n { kernel void plain() {} }";
    let translation = accept(text);
    let kernels: Vec<_> = translation
        .reflection
        .kernels
        .iter()
        .map(|k| {
            (
                k.name.as_str(),
                k.function.as_str(),
                k.line,
                k.max_total_threads,
            )
        })
        .collect();
    assert_eq!(
        kernels,
        [
            ("f_float", "f<float, 2>", 4, Some(16)),
            ("f_half", "f<half>", 5, Some(32)),
            ("f_alias", "f<float, 2>", 6, Some(16)),
            ("f_deduced", "f", 7, Some(32)),
            ("g_S", "n::g<S>", 9, None),
            ("f_special", "f<int, 1>", 10, None),
            ("n::plain", "n::plain", 11, None),
        ]
    );
    let types: Vec<_> = translation.reflection.kernels[0]
        .arguments
        .iter()
        .map(|a| a.type_name.as_str())
        .collect();
    assert_eq!(types, ["float", "vec<float, 2>"]);
    assert_eq!(
        translation.glue("f_float").as_deref(),
        Some(
            "\n# 4 \"a.metal\"\n\
             SM_KERNEL((&::f<float, 2>), ::sm::B<::sm::BUFFER,0>, ::sm::B<::sm::BUFFER,1>)\n\
             # 4 \"a.metal\"\nSM_GATES(true, true)\n"
        )
    );
    assert_eq!(
        translation.glue("f_deduced").as_deref(),
        Some(
            "\n# 7 \"a.metal\"\n\
             SM_KERNEL((static_cast<void (*)(sm_device uint* p , sm_constant const vec<uint, 4>& v)>(&::f)), \
             ::sm::B<::sm::BUFFER,0>, ::sm::B<::sm::BUFFER,1>)\n\
             # 7 \"a.metal\"\nSM_GATES(true, true)\n"
        )
    );
    assert_eq!(
        translation.glue("g_S").as_deref(),
        Some(
            "\n# 9 \"a.metal\"\nnamespace n { static constexpr auto sm_entry = &g<S>; }\n\
             # 9 \"a.metal\"\nSM_KERNEL((::n::sm_entry), ::sm::B<::sm::BUFFER,0>)\n\
             # 9 \"a.metal\"\nSM_GATES(true)\n"
        )
    );
    assert_eq!(translation.glue("absent"), None);
}

#[test]
fn gates_follow_their_parameters() {
    let text = "constant bool m [[function_constant(0)]];\n\
        kernel void k(device float* a [[buffer(0), function_constant(m)]], uint i [[thread_position_in_grid]]) {}";
    let glue = accept(text).glue("k").expect("a kernel");
    assert!(glue.ends_with("SM_GATES((m), true)\n"), "{glue}");
    assert!(
        glue.contains("::sm::B<::sm::BI_thread_position_in_grid,0>"),
        "{glue}"
    );
}

#[test]
fn maps_columns_to_the_users_source() {
    let text = "kernel void k(constant float* a, device float4* o) { o[0].xyz = a[1] * 2.0; bad }";
    let translation = accept(text);
    let line = translation.cpp.lines().nth(2).expect("the line");
    for word in ["k(", "* a", "= a", "bad"] {
        let out = line.find(word).expect(word) + 1;
        let original = text.find(word).expect(word) + 1;
        let mapped = translation
            .columns
            .original("a.metal", 1, u32::try_from(out).unwrap());
        assert_eq!(mapped as usize, original, "{word}");
    }
    assert_eq!(translation.columns.original("other", 9, 12), 12);
}

#[test]
fn keeps_lines_and_markers() {
    let text = "# 1 \"m.metal\"\n# 1 \"inc/metal_stdlib\" 1 3\ntypedef double d;\n# 2 \"m.metal\" 2\n\
                kernel void k(\n  device float* a [[\n  buffer(0)]]) {\n threadgroup float\n   x[2]; }\ntemplate\nvoid f<int>();\nint last();";
    let translation = accept(text);
    let lines: Vec<&str> = translation.cpp.lines().collect();
    let expected = text.lines().count();
    assert_eq!(lines.len(), expected + 3, "{}", translation.cpp);
    assert_eq!(lines[2], "# 1 \"m.metal\"");
    assert_eq!(lines[expected + 1], "inline int last();");
    assert_eq!(translation.reflection.kernels[0].file, "m.metal");
    assert_eq!(translation.reflection.kernels[0].line, 2);
}

#[test]
fn names_unsupported_features() {
    for (text, error) in [
        (
            "kernel void k(texture2d<float> t [[texture(0)]]) {}",
            "a.metal:1:15: error: textures are not supported by the software device: 'texture2d'",
        ),
        (
            "kernel void k(sampler s [[sampler(0)]]) {}",
            "a.metal:1:15: error: samplers are not supported by the software device: 'sampler'",
        ),
        (
            "kernel void k(device float* a, ushort2 p [[pixel_position_in_tile]]) {}",
            "a.metal:1:44: error: [[pixel_position_in_tile]] is not supported by the software device",
        ),
        (
            "struct B { device float* p; }; struct A { B b[2]; }; kernel void k(constant A& a) {}",
            "a.metal:1:77: error: argument buffers are not supported by the software device: 'A' contains the pointer 'b'",
        ),
        (
            "vertex float4 v(uint i [[vertex_id]]) { return 0; }",
            "a.metal:1:1: error: vertex functions are not supported by the software device",
        ),
        (
            "[[fragment]] float4 f() { return 0; }",
            "a.metal:1:3: error: fragment functions are not supported by the software device",
        ),
        (
            "kernel void k(raytracing::instance_acceleration_structure a [[buffer(0)]]) {}",
            "a.metal:1:15: error: ray tracing is not supported by the software device: 'raytracing'",
        ),
        (
            "using t = mpp::tensor_ops::matmul2d;",
            "a.metal:1:11: error: Metal performance primitives are not supported by the software device: 'mpp'",
        ),
        (
            "void f() { goto end; end: return; }",
            "a.metal:1:12: error: 'goto' is not supported in Metal",
        ),
        (
            "struct A { virtual void f() const thread; };",
            "a.metal:1:12: error: 'virtual' is not supported in Metal",
        ),
        (
            "struct A { device float* data; }; kernel void k(constant A& a) {}",
            "a.metal:1:58: error: argument buffers are not supported by the software device: 'A' contains the pointer 'data'",
        ),
        (
            "threadgroup float shared_[4];",
            "a.metal:1:1: error: threadgroup variables at program scope are not supported by the software device",
        ),
    ] {
        let errors = refuse(text);
        assert_eq!(errors.first().map(String::as_str), Some(error), "{text}");
    }
    accept(
        "struct A { A() thread = default; A(int) thread = delete; }; void f(float sampler) { float x = sampler * 2.0; }",
    );
}

/// The names of the supported kernels, and those of the others with the reason.
fn offered(text: &str) -> (Vec<String>, Vec<(String, String)>) {
    let (mut left, mut refused) = (Vec::new(), Vec::new());
    let translation = accept(text);
    for kernel in &translation.reflection.kernels {
        match &kernel.unsupported {
            None => left.push(kernel.name.clone()),
            Some(why) => {
                assert_eq!(why.kind, DiagnosticKind::Unsupported);
                assert_eq!(translation.glue(&kernel.name), None);
                let place = format!("{}:{} {}", why.line, why.column, why.message);
                refused.push((kernel.name.clone(), place));
            }
        }
    }
    (left, refused)
}

#[test]
fn an_unsupported_feature_affects_the_kernels_that_reach_it() {
    struct Case {
        text: &'static str,
        refused: &'static [&'static str],
        gone: &'static [&'static str],
        kept: &'static [&'static str],
    }
    for Case {
        text,
        refused,
        gone,
        kept,
    } in [
        Case {
            text: "float4 get(texture2d<float> t) { return 1; } float get(float x) { return x; } \
                   kernel void k(texture2d<float> t [[texture(0)]]) {} kernel void ok(device float* a) { a[0] = get(a[1]); }",
            refused: &["k"],
            gone: &["texture2d", "void k"],
            kept: &["float get(float x)"],
        },
        Case {
            text: "struct VO { float4 p [[position]]; }; vertex VO v(uint i [[vertex_id]]) { return {}; } \
                   [[fragment]] float4 f(VO in [[stage_in]], texture2d<float> t) { return 1; } kernel void ok(device VO* a) {}",
            refused: &[],
            gone: &["float4 f", "VO v", "texture2d"],
            kept: &["struct VO"],
        },
        Case {
            text: "using Image = texture2d<half>; struct Set { Image image; float scale; }; struct Other { float s; }; \
                   float scale(thread Set& s) { return s.scale; } float scale(thread Other& o) { return o.s; } \
                   kernel void k(constant Set& s) {} kernel void ok(device float* a) { Other o; a[0] = scale(o); }",
            refused: &["k"],
            gone: &["Image", "Set"],
            kept: &["scale( Other& o)"],
        },
        Case {
            text: "struct A { device float* p; }; kernel void k(device A* a) {} kernel void ok(device float* p) { A a; a.p = p; }",
            refused: &["k"],
            gone: &["void k"],
            kept: &["A a;"],
        },
        Case {
            text: "#pragma mark\nusing namespace mpp::tensor_ops; float inner(float x) { mpp::tensor_ops::matmul2d op; return x; } \
                   float inner(int x) { return x; } float outer(float x) { return inner(x); } float other(float x) { return x; } \
                   kernel void k(device float* a) { a[0] = outer(1); } kernel void ok(device float* a) { a[0] = other(1); }",
            refused: &["k"],
            gone: &["inner", "outer", "mpp"],
            kept: &["other"],
        },
        Case {
            text: "template <typename T> kernel void k(T t [[texture(0)]], device float* a) {} template <typename T> kernel void ok(device T* a) {} \
                   template [[host_name(\"t\")]] kernel void k<texture2d<float>>(texture2d<float>, device float*); \
                   template [[host_name(\"f\")]] kernel void ok<float>(device float*);",
            refused: &["t"],
            gone: &["texture2d"],
            kept: &["void ok"],
        },
        Case {
            text: "constexpr sampler s(filter::linear); float half_of(float s) { return s / 2; } \
                   kernel void k(sampler s) {} kernel void ok(device float* a) { float s = 1; a[0] = half_of(s); }",
            refused: &["k"],
            gone: &["void k"],
            kept: &["constexpr sampler s(filter::linear);", "half_of"],
        },
    ] {
        let (left, found) = offered(text);
        assert_eq!(left.len(), 1, "{text}");
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, refused, "{text}");
        let cpp = cpp(text);
        for word in gone {
            assert!(!cpp.contains(word), "{word} in {cpp}");
        }
        for word in kept {
            assert!(cpp.contains(word), "no {word} in {cpp}");
        }
    }
    let text = "kernel void a(device float* x) {}\nkernel void b(device float* x,\n  texture2d<float> t [[texture(0)]]) {}";
    let expected = "3:3 textures are not supported by the software device: 'texture2d'".to_owned();
    assert_eq!(offered(text).1, [("b".to_owned(), expected)]);
}

#[test]
fn checks_indices_and_names() {
    for (text, kind, error) in [
        (
            "kernel void k(device int* a [[buffer(31)]]) {}",
            DiagnosticKind::Index,
            "a.metal:1:31: error: [[buffer(31)]]: the index must be 0 to 30",
        ),
        (
            "kernel void k(device int* a [[buffer(N)]]) {}",
            DiagnosticKind::Index,
            "a.metal:1:31: error: [[buffer(N)]]: the index is not an integer constant",
        ),
        (
            "kernel void k(device int* a [[buffer(1)]], device int* b [[buffer(1)]]) {}",
            DiagnosticKind::DuplicateIndex,
            "a.metal:1:44: error: two parameters at [[buffer(1)]]",
        ),
        (
            "kernel void k(device int* a [[bufer(1)]]) {}",
            DiagnosticKind::UnknownAttribute,
            "a.metal:1:31: error: unknown attribute 'bufer'",
        ),
        (
            "[[host_name(\"k\")]] kernel void a() {}\nkernel void k() {}",
            DiagnosticKind::DuplicateKernel,
            "a.metal:2:1: error: two kernels are named 'k'; the first is at a.metal:1",
        ),
        (
            "template [[host_name(\"x\")]] [[kernel]] void f<int>();",
            DiagnosticKind::UnknownKernel,
            "a.metal:1:45: error: there is no kernel template named 'f'",
        ),
        (
            "kernel void k(uint i) {}",
            DiagnosticKind::Refused,
            "a.metal:1:15: error: kernel parameter 'i' needs an attribute such as [[thread_position_in_grid]], or an address space",
        ),
        (
            "constant int x [[function_constant(70000)]];",
            DiagnosticKind::Index,
            "a.metal:1:18: error: [[function_constant(70000)]]: the index must be a constant from 0 to 65535",
        ),
    ] {
        let errors = translate(text, "a.metal").expect_err(text);
        assert_eq!(errors[0].to_string(), error);
        assert_eq!(errors[0].kind, kind);
    }
    accept(
        "constant bool g [[function_constant(0)]]; constant bool n = !g;\n\
         kernel void k(device int* a [[buffer(1), function_constant(g)]], device float* b [[buffer(1), function_constant(n)]]) {}",
    );
}
