use crate::harness::{TestDir, example};

const BROKEN_SOURCE: &str = "\
#include <metal_stdlib>
using namespace metal;

kernel void good(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    out[i] = 1.0f;
}

kernel void bad(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    out[i] = unknown_name + 1.0f;
}
";

/// Only its instantiation for `float` is wrong.
const TEMPLATE_SOURCE: &str = "\
template <typename T>
kernel void first(device T* in [[buffer(0)]], device float* out [[buffer(1)]],
                  uint i [[thread_position_in_grid]]) {
    out[i] = in[i].x;
}
template [[host_name(\"first_float\")]] kernel void first<float>(device float*, device float*, uint);
template [[host_name(\"first_float2\")]] kernel void first<float2>(device float2*, device float*, uint);
";

#[test]
fn sources_that_compile_are_clean() {
    let files = ["add.metal", "softmax.metal", "scale.metal"].map(example);
    let result = TestDir::new()
        .bessemer(&format!("msl check {}", files.join(" ")))
        .exits(0);
    assert!(result.stdout.contains("4 kernels in 3 files"), "{result:?}");
    assert_eq!(result.stderr, "");
}

#[test]
fn a_directory_means_all_its_metal_files() {
    let test_dir = TestDir::with("kernels/b/broken.metal", BROKEN_SOURCE);
    test_dir.write(
        "kernels/first.metal",
        b"kernel void one(device int* p [[buffer(0)]]) { p[0] = 1; }",
    );
    test_dir.write("kernels/notes.txt", b"no kernel");
    test_dir.write("kernels/.git/old.metal", b"no kernel either");
    test_dir.write("empty/notes.txt", b"");
    let result = test_dir.bessemer("msl check kernels").exits(1);
    assert!(result.stdout.contains("in 2 files"), "{result:?}");
    assert!(
        result.stdout.contains("broken.metal:9:14: error: "),
        "{result:?}"
    );
    assert!(!result.stdout.contains("old.metal"), "{result:?}");
    test_dir.bessemer("msl check kernels/first.metal").exits(0);
    let result = test_dir.bessemer("msl check empty").exits(2);
    assert!(
        result.stderr.contains("no .metal file in empty"),
        "{result:?}"
    );
}

#[test]
fn an_error_has_its_file_line_column_and_a_caret() {
    let test_dir = TestDir::with("broken.metal", BROKEN_SOURCE);
    let result = test_dir.bessemer("msl check broken.metal").exits(1);
    let mut lines = result.stdout.lines();
    let first = lines.next().unwrap();
    assert!(
        first.starts_with("broken.metal:9:14: error: "),
        "{result:?}"
    );
    assert!(first.contains("unknown_name"), "{result:?}");
    let text = lines.next().unwrap();
    let caret = lines.next().unwrap();
    let column = text.find("unknown_name").unwrap();
    assert_eq!(caret.find('^'), Some(column), "{result:?}");
}

#[test]
fn json_has_the_same_diagnostics() {
    let test_dir = TestDir::with("broken.metal", BROKEN_SOURCE);
    let json = test_dir
        .bessemer("msl check broken.metal --json")
        .exits(1)
        .json();
    assert_eq!(json["errors"], 1);
    let diagnostic = &json["diagnostics"][0];
    assert_eq!(diagnostic["file"], "broken.metal");
    assert_eq!(diagnostic["line"], 9);
    assert_eq!(diagnostic["column"], 14);
    assert_eq!(diagnostic["severity"], "error");
    assert_eq!(diagnostic["kind"], "compiler");
}

#[test]
fn every_instantiation_is_compiled_and_a_single_one_can_be_selected() {
    let test_dir = TestDir::with("first.metal", TEMPLATE_SOURCE);
    for depth in ["", "--full", "--quick"] {
        let result = test_dir
            .bessemer(&format!("msl check first.metal {depth}"))
            .exits(1);
        assert!(
            result.stdout.contains("first.metal:4:19: error"),
            "{result:?}"
        );
    }
    test_dir
        .bessemer("msl check first.metal --kernel first_float")
        .exits(1);
    test_dir
        .bessemer("msl check first.metal --kernel first_float2")
        .exits(0);
}

#[test]
fn many_kernels_are_checked_in_one_compilation() {
    let names = ["add.metal", "softmax.metal", "scale.metal"].map(example);
    let result = TestDir::new()
        .bessemer(&format!("msl check --quick {}", names.join(" ")))
        .exits(0);
    assert!(result.stdout.contains("4 kernels in 3 files"), "{result:?}");
    assert!(result.stdout.contains("no code generated"), "{result:?}");
    let kernels: String = (0..20)
        .map(|i| {
            format!(
                "kernel void outer{i}(device int* a [[buffer(0)]]) {{ a[0] = {i}; }}\n\
                 namespace n{i} {{ constant bool on [[function_constant({i})]];\n\
                 kernel void inner{i}(device int* a [[buffer(0)]],\n\
                 device int* b [[buffer(1), function_constant(on)]]) {{ if (on) a[0] = b[0]; }} }}\n"
            )
        })
        .collect();
    let test_dir = TestDir::with("many.metal", &kernels);
    let result = test_dir.bessemer("msl check many.metal").exits(0);
    assert!(
        result.stdout.contains("40 kernels in 1 file: all correct"),
        "{result:?}"
    );
}

#[test]
fn a_full_check_finds_errors_of_code_generation() {
    let test_dir = TestDir::with(
        "large.metal",
        "#include <metal_stdlib>
using namespace metal;
kernel void large(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
    threadgroup float tile[10000];
    tile[i] = out[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = tile[i ^ 1];
}
",
    );
    let result = test_dir.bessemer("msl check large.metal --full").exits(1);
    assert!(result.stdout.contains("large.metal:3: error"), "{result:?}");
    assert!(result.stdout.contains("40000 bytes"), "{result:?}");
}

#[test]
fn code_that_apple_s_compiler_rejects_is_rejected() {
    let test_dir = TestDir::with(
        "k.metal",
        "kernel void k(device float* out [[buffer(0)]]) {\n    double x = 1;\n    out[0] = x;\n}\n",
    );
    let result = test_dir.bessemer("msl check k.metal").exits(1);
    assert!(result.stdout.contains("k.metal:2:5: error"), "{result:?}");
    assert!(result.stdout.contains("double"), "{result:?}");
}

#[test]
fn a_missing_file_is_reported_in_one_line() {
    let result = TestDir::new().bessemer("msl check nothing.metal").exits(2);
    assert_eq!(
        result.stderr,
        "error: cannot read nothing.metal: No such file or directory (os error 2)\n"
    );
}

#[test]
fn an_unknown_kernel_suggests_the_closest_name() {
    let result = TestDir::new()
        .bessemer(&format!("msl check {} --kernel ad", example("add.metal")))
        .exits(2);
    assert!(result.stderr.contains("did you mean `add`?"), "{result:?}");
}

#[test]
fn kernels_compile_without_values_of_function_constants() {
    TestDir::new()
        .bessemer(&format!("msl check --full {}", example("scale.metal")))
        .exits(0);
}

const CARELESS_SOURCE: &str = "\
kernel void k(device int* out [[buffer(0)]]) {
    int unused = 3;
    if (out[0] = 4) out[1] = TWICE(1);
}
";

#[test]
fn warnings_are_shown_and_can_be_made_errors() {
    let test_dir = TestDir::with("k.metal", CARELESS_SOURCE);
    test_dir.write("first.h", b"#define TWICE(x) (x * 2)\n");
    let check = "msl check -include first.h k.metal";
    let warning = "k.metal:3:16: warning: using the result of an assignment as a condition without parentheses [-Wparentheses]";
    for depth in ["", "--full", "--quick"] {
        let result = test_dir.bessemer(&format!("{check} {depth}")).exits(0);
        assert!(result.stdout.contains(warning), "{result:?}");
        assert!(!result.stdout.contains("unused"), "{result:?}");
    }
    let result = test_dir
        .bessemer(&format!("{check} -Wall -Wno-parentheses"))
        .exits(0);
    assert!(
        result
            .stdout
            .contains("k.metal:2:9: warning: unused variable 'unused' [-Wunused-variable]"),
        "{result:?}"
    );
    assert!(!result.stdout.contains("parentheses"), "{result:?}");
    let result = test_dir.bessemer(&format!("{check} -Werror")).exits(1);
    assert!(
        result.stdout.contains(&warning.replace("warning", "error")),
        "{result:?}"
    );
    let json = test_dir
        .bessemer(&format!("{check} --json -Wall -Werror=unused-variable"))
        .exits(1)
        .json();
    assert_eq!(json["errors"], 1);
    let found = json["diagnostics"].as_array().unwrap().iter();
    let mut found: Vec<_> = found
        .map(|d| (d["severity"].as_str().unwrap(), d["flag"].as_str().unwrap()))
        .collect();
    found.sort_unstable();
    assert_eq!(
        found,
        [("error", "unused-variable"), ("warning", "parentheses")]
    );
}

#[test]
fn macros_with_parameters_are_defined_on_the_command_line() {
    let test_dir = TestDir::with("k.metal", CARELESS_SOURCE);
    let result = test_dir
        .bessemer("msl check k.metal -D TWICE(x)=(x*2)")
        .exits(0);
    assert!(result.stdout.contains("all compile"), "{result:?}");
    let result = test_dir.bessemer("msl check k.metal -D TWICE(x=2").exits(2);
    assert!(
        result.stderr.contains("is not a parameter list"),
        "{result:?}"
    );
    test_dir
        .bessemer("msl kernels k.metal --include-file nowhere.h")
        .exits(1);
}

#[test]
fn the_language_version_is_set_as_for_clang() {
    let test_dir = TestDir::with(
        "k.metal",
        "kernel void k(device bfloat* out [[buffer(0)]]) { out[0] = 1.0bf; }\n",
    );
    for version in ["", "-std=metal3.1", "--std metal3.2"] {
        test_dir
            .bessemer(&format!("msl check k.metal {version}"))
            .exits(0);
    }
    let result = test_dir
        .bessemer("msl check k.metal -std=metal3.0")
        .exits(1);
    let message = "k.metal:1:22: error: 'bfloat' needs metal3.1 or newer (compiling as metal3.0)";
    assert!(result.stdout.contains(message), "{result:?}");
    let result = test_dir
        .bessemer("msl check k.metal -std=metal1.0")
        .exits(2);
    assert!(
        result.stderr.contains("metal3.0, metal3.1, metal3.2"),
        "{result:?}"
    );
}

#[test]
fn a_comment_that_suppresses_nothing_is_a_warning() {
    let test_dir = TestDir::with(
        "k.metal",
        "kernel void k(device int* a [[buffer(0)]]) {\n    a[0] = 1; // bessemer: allow(rase)\n}\n",
    );
    let result = test_dir.bessemer("msl check k.metal").exits(0);
    assert!(result.stdout.contains("k.metal:2:"), "{result:?}");
    assert!(result.stdout.contains("warning: "), "{result:?}");
    assert!(result.stdout.contains("`rase`"), "{result:?}");
}
