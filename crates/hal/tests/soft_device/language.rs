//! Language versions, the rules of C++14, and warnings.

use std::fs;

use bessemer_hal::msl::{Diagnostic, Severity};
use bessemer_hal::soft::{self, Mode, SoftOptions};
use bessemer_hal::{CompileOptions, Device, Error, LanguageVersion, Library};

use crate::setup::{empty, fast, library, options, try_library};

/// Returns what one thread of kernel `k` writes to its only buffer.
fn run_k<const N: usize>(device: &Device, library: &Library) -> [i32; N] {
    let pipeline = library.pipeline("k").unwrap();
    let result = empty::<i32>(device, N);
    let mut commands = device.commands();
    let launch = commands.dispatch(&pipeline).read_write(0, &result);
    launch.threads(1, 1).unwrap();
    commands.commit().unwrap().wait().unwrap();
    result.to_vec::<i32>().unwrap().try_into().unwrap()
}

fn diagnostics<T: std::fmt::Debug>(result: Result<T, Error>) -> Vec<Diagnostic> {
    match result {
        Err(Error::Compile { diagnostics, .. }) => diagnostics,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_source_is_compiled_as_the_devices_language_version() {
    let source = "#include <metal_stdlib>\nusing namespace metal;\n\
                  kernel void k(device int* a [[buffer(0)]]) {\n\
                  a[0] = __METAL_VERSION__;\n a[1] = __cplusplus;\n\
                  #ifdef __HAVE_BFLOAT__\n a[2] = 1;\n #else\n a[2] = 0;\n #endif\n}\n";
    let bfloat = "#include <metal_stdlib>\nusing namespace metal;\n\
                  kernel void k(device bfloat* a [[buffer(0)]]) { a[0] = 1.0f; }\n";
    for language in LanguageVersion::ALL.into_iter().rev() {
        let device = soft::device(SoftOptions {
            language,
            ..options(Mode::Fast)
        })
        .unwrap();
        let has_bfloat = language >= LanguageVersion::Metal3_1;
        let number = i32::try_from(language.number()).unwrap();
        let expected = [number, 201_402, i32::from(has_bfloat)];
        assert_eq!(run_k(&device, &library(&device, source)), expected);
        // Entries of other versions in the cache do not interfere.
        let accepted = try_library(&device, bfloat).is_ok();
        assert_eq!(accepted, has_bfloat, "{language}");
    }
}

const EXTENSIONS: &str = "#include <metal_stdlib>
using namespace metal;
namespace a::b { constant int two = 2; }
struct Pair { int first, second; };
template <typename... T> int sum(T... x) { return (x + ...); }
template <typename T> T same(T x) {
  if constexpr (sizeof(T) == 4) return x;
  return x;
}
kernel void k(device int* a [[buffer(0)]]) {
  if (int x = a[0]; x > 0) a[0] = sum(x, a::b::two);
  static_assert(true);
  auto [first, second] = Pair{1, 2};
  a[1] = first + second + same(a[2]);
}
";

#[test]
fn cpp17_extensions_are_warnings_and_other_cpp17_features_errors() {
    let device = fast();
    let found = library(&device, EXTENSIONS).lint(&["k"]).unwrap();
    let mut lines: Vec<u32> = found.iter().map(|d| d.line).collect();
    lines.sort_unstable();
    assert_eq!(lines, [3, 5, 7, 11, 12, 13], "{found:?}");
    for diagnostic in found {
        assert_eq!(diagnostic.severity, Severity::Warning);
        assert_eq!(diagnostic.flag.as_deref(), Some("c++17-extensions"));
    }
    for (text, message) in [
        (
            "template <class T> struct Box { T v; Box(T x) : v(x) {} };\nvoid f() { Box b(1); }\n",
            "use of class template 'Box' requires template arguments",
        ),
        (
            "\ntemplate <auto N> struct Of {};\n",
            "'auto' not allowed in template parameter",
        ),
    ] {
        let found = diagnostics(try_library(&device, text));
        assert_eq!(found[0].line, 2, "{found:?}");
        assert!(found[0].message.contains(message), "{found:?}");
    }
}

/// Code with warnings of the user's, and code about which clang would only warn because of the rewriter or the headers.
const WITH_WARNINGS: &str = "#include <metal_stdlib>
using namespace metal;
#pragma METAL fp contract(off)
#define N 1
#define N 2
constant bool on [[function_constant(0)]];
static inline int never(int x) { return x; }
template <typename T> T twice(T x) {
  int unused = 3;
  return x + x;
}
kernel void k(device float* a [[buffer(0)]], threadgroup float* t [[threadgroup(0)]],
              device float* b [[buffer(1), function_constant(on)]], uint i [[thread_position_in_grid]]) {
  threadgroup float shared[32];
  shared[i] = twice(a[i]) + t[0] + as_type<float>(1u << i);
  if (i = 3) a[i] = shared[i] + on;
  int s = -1;
  if (s < i) a[0] = float4(a[0]).xyz.y;
}
kernel void quiet(device half* a [[buffer(0)]]) { a[0] = twice(a[0]); }
";

fn library_with_warnings(warnings: &[&str]) -> Library {
    let options = CompileOptions {
        warnings: warnings.iter().map(|&name| name.to_owned()).collect(),
        ..CompileOptions::labelled("test.metal")
    };
    // SAFETY: nothing is launched.
    unsafe { fast().library(WITH_WARNINGS, &options) }.unwrap()
}

#[test]
fn warnings_are_clangs_and_only_about_user_code() {
    for (warnings, expected) in [
        (&[][..], &[(5, "macro-redefined"), (16, "parentheses")][..]),
        (
            &["all", "extra"],
            &[
                (5, "macro-redefined"),
                (7, "unused-function"),
                (9, "unused-variable"),
                (13, "unused-parameter"),
                (16, "parentheses"),
                (18, "sign-compare"),
            ],
        ),
        (
            &["unused-variable", "no-macro-redefined"],
            &[(9, "unused-variable"), (16, "parentheses")],
        ),
        (
            &["no-macro-redefined", "no-parentheses", "nonsense"],
            &[(0, "unknown-warning-option")],
        ),
    ] {
        let found = library_with_warnings(warnings)
            .lint(&["k", "quiet"])
            .unwrap();
        let found = found.iter().filter(|d| d.severity == Severity::Warning);
        let mut found: Vec<_> = found
            .map(|d| (d.line, d.flag.as_deref().unwrap()))
            .collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{warnings:?}");
    }
}

#[test]
fn a_warning_can_be_made_an_error() {
    let library = library_with_warnings(&["error=parentheses"]);
    let found = diagnostics(library.lint(&["k"]));
    let location = |flag: &str| {
        let found = found.iter().find(|d| d.flag.as_deref() == Some(flag));
        found.map(|d| (d.severity, d.line, d.column))
    };
    assert_eq!(location("parentheses"), Some((Severity::Error, 16, 9)));
    assert_eq!(location("macro-redefined"), Some((Severity::Warning, 5, 9)));
    // The kernels still compile.
    library.pipeline("quiet").unwrap();
    assert!(library_with_warnings(&["error"]).lint(&[]).is_err());
    // Other options of clang are not warnings.
    let found = diagnostics(library_with_warnings(&["l,--version"]).lint(&[]));
    assert_eq!(found[0].message, "unknown warning option '-Wl,--version'");
}

#[test]
fn errors_past_the_limit_are_mentioned() {
    let lines: String = (0..30)
        .map(|i| format!("int f{i}() {{ return n{i}; }}\n"))
        .collect();
    let found = diagnostics(try_library(&fast(), &lines));
    let errors = found.iter().filter(|d| d.severity == Severity::Error);
    assert_eq!(errors.count(), 20);
    assert_eq!(found.last().unwrap().message, "stopped after 20 errors");
}

#[test]
fn every_error_inside_the_headers_has_a_line_of_user_code() {
    let source = "#include <metal_stdlib>\nusing namespace metal;\n\
                  kernel void k(device int4* a [[buffer(0)]]) {\n  array<void, 2> x;\n}\n";
    let found = diagnostics(try_library(&fast(), source));
    assert!(found.len() > 1, "{found:?}");
    assert!(found.iter().all(|d| d.line == 4), "{found:?}");
}

#[test]
fn include_files_precede_the_source_and_macros_may_have_parameters() {
    let dir = tempfile::tempdir().unwrap();
    let header = dir.path().join("first.h");
    let source = "kernel void k(device int* a [[buffer(0)]]) { a[0] = TWICE(THREE); }\n";
    let options = CompileOptions {
        defines: vec![("TWICE(x)".to_owned(), "((x) * 2)".to_owned())],
        include_files: vec![header.clone()],
        ..CompileOptions::labelled("test.metal")
    };
    let device = fast();
    // SAFETY: the kernel writes the first element of its buffer.
    let compile = || unsafe { device.library(source, &options) };
    fs::write(&header, "#define THREE 3\n").unwrap();
    assert_eq!(run_k(&device, &compile().unwrap()), [6]);
    // A change of its contents is noticed.
    fs::write(&header, "#define THREE 4\n").unwrap();
    assert_eq!(run_k(&device, &compile().unwrap()), [8]);
    fs::remove_file(&header).unwrap();
    let found = diagnostics(compile());
    assert!(
        found[0].message.ends_with("first.h' file not found"),
        "{found:?}"
    );
}
