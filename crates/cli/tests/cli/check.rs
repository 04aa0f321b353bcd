use crate::harness::{Desk, example};

const BROKEN: &str = "\
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
const TEMPLATE: &str = "\
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
    let said = Desk::new()
        .bessemer(&format!("msl check {}", files.join(" ")))
        .exits(0);
    assert!(said.stdout.contains("4 kernels in 3 files"), "{said:?}");
    assert_eq!(said.stderr, "");
}

#[test]
fn a_directory_is_all_its_metal_files() {
    let desk = Desk::with("kernels/b/broken.metal", BROKEN);
    desk.write(
        "kernels/first.metal",
        b"kernel void one(device int* p [[buffer(0)]]) { p[0] = 1; }",
    );
    desk.write("kernels/notes.txt", b"no kernel");
    desk.write("kernels/.git/old.metal", b"no kernel either");
    desk.write("empty/notes.txt", b"");
    let said = desk.bessemer("msl check kernels").exits(1);
    assert!(said.stdout.contains("in 2 files"), "{said:?}");
    assert!(
        said.stdout.contains("broken.metal:9:14: error: "),
        "{said:?}"
    );
    assert!(!said.stdout.contains("old.metal"), "{said:?}");
    desk.bessemer("msl check kernels/first.metal").exits(0);
    let said = desk.bessemer("msl check empty").exits(2);
    assert!(said.stderr.contains("no .metal file in empty"), "{said:?}");
}

#[test]
fn an_error_has_its_file_line_column_and_a_caret() {
    let desk = Desk::with("broken.metal", BROKEN);
    let said = desk.bessemer("msl check broken.metal").exits(1);
    let mut lines = said.stdout.lines();
    let first = lines.next().unwrap();
    assert!(first.starts_with("broken.metal:9:14: error: "), "{said:?}");
    assert!(first.contains("unknown_name"), "{said:?}");
    let text = lines.next().unwrap();
    let caret = lines.next().unwrap();
    let column = text.find("unknown_name").unwrap();
    assert_eq!(caret.find('^'), Some(column), "{said:?}");
}

#[test]
fn json_has_the_same_diagnostics() {
    let desk = Desk::with("broken.metal", BROKEN);
    let json = desk
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
fn every_instantiation_is_compiled_and_a_single_one_can_be_chosen() {
    let desk = Desk::with("first.metal", TEMPLATE);
    for depth in ["", "--full", "--quick"] {
        let said = desk
            .bessemer(&format!("msl check first.metal {depth}"))
            .exits(1);
        assert!(said.stdout.contains("first.metal:4:19: error"), "{said:?}");
    }
    desk.bessemer("msl check first.metal --kernel first_float")
        .exits(1);
    desk.bessemer("msl check first.metal --kernel first_float2")
        .exits(0);
}

#[test]
fn many_kernels_are_checked_at_once() {
    let names = ["add.metal", "softmax.metal", "scale.metal"].map(example);
    let said = Desk::new()
        .bessemer(&format!("msl check --quick {}", names.join(" ")))
        .exits(0);
    assert!(said.stdout.contains("4 kernels in 3 files"), "{said:?}");
    assert!(said.stdout.contains("no code generated"), "{said:?}");
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
    let desk = Desk::with("many.metal", &kernels);
    let said = desk.bessemer("msl check many.metal").exits(0);
    assert!(
        said.stdout.contains("40 kernels in 1 file: all correct"),
        "{said:?}"
    );
}

#[test]
fn what_only_code_generation_finds_is_found_in_full() {
    let desk = Desk::with(
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
    let said = desk.bessemer("msl check large.metal --full").exits(1);
    assert!(said.stdout.contains("large.metal:3: error"), "{said:?}");
    assert!(said.stdout.contains("40000 bytes"), "{said:?}");
}

#[test]
fn what_apple_refuses_is_refused() {
    let desk = Desk::with(
        "k.metal",
        "kernel void k(device float* out [[buffer(0)]]) {\n    double x = 1;\n    out[0] = x;\n}\n",
    );
    let said = desk.bessemer("msl check k.metal").exits(1);
    assert!(said.stdout.contains("k.metal:2:5: error"), "{said:?}");
    assert!(said.stdout.contains("double"), "{said:?}");
}

#[test]
fn a_file_that_is_missing_is_said_in_a_sentence() {
    let said = Desk::new().bessemer("msl check nothing.metal").exits(2);
    assert_eq!(
        said.stderr,
        "error: cannot read nothing.metal: No such file or directory (os error 2)\n"
    );
}

#[test]
fn an_unknown_kernel_is_answered_with_the_closest_name() {
    let said = Desk::new()
        .bessemer(&format!("msl check {} --kernel ad", example("add.metal")))
        .exits(2);
    assert!(said.stderr.contains("did you mean `add`?"), "{said:?}");
}

#[test]
fn function_constants_without_values_do_not_keep_a_kernel_from_compiling() {
    Desk::new()
        .bessemer(&format!("msl check --full {}", example("scale.metal")))
        .exits(0);
}

const CARELESS: &str = "\
kernel void k(device int* out [[buffer(0)]]) {
    int unused = 3;
    if (out[0] = 4) out[1] = TWICE(1);
}
";

#[test]
fn warnings_are_shown_and_can_be_made_errors() {
    let desk = Desk::with("k.metal", CARELESS);
    desk.write("first.h", b"#define TWICE(x) (x * 2)\n");
    let check = "msl check -include first.h k.metal";
    let warning = "k.metal:3:16: warning: using the result of an assignment as a condition without parentheses [-Wparentheses]";
    for depth in ["", "--full", "--quick"] {
        let said = desk.bessemer(&format!("{check} {depth}")).exits(0);
        assert!(said.stdout.contains(warning), "{said:?}");
        assert!(!said.stdout.contains("unused"), "{said:?}");
    }
    let said = desk
        .bessemer(&format!("{check} -Wall -Wno-parentheses"))
        .exits(0);
    assert!(
        said.stdout
            .contains("k.metal:2:9: warning: unused variable 'unused' [-Wunused-variable]"),
        "{said:?}"
    );
    assert!(!said.stdout.contains("parentheses"), "{said:?}");
    let said = desk.bessemer(&format!("{check} -Werror")).exits(1);
    assert!(
        said.stdout.contains(&warning.replace("warning", "error")),
        "{said:?}"
    );
    let json = desk
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
    let desk = Desk::with("k.metal", CARELESS);
    let said = desk
        .bessemer("msl check k.metal -D TWICE(x)=(x*2)")
        .exits(0);
    assert!(said.stdout.contains("all compile"), "{said:?}");
    let said = desk.bessemer("msl check k.metal -D TWICE(x=2").exits(2);
    assert!(said.stderr.contains("is not a parameter list"), "{said:?}");
    desk.bessemer("msl kernels k.metal --include-file nowhere.h")
        .exits(1);
}

#[test]
fn the_language_version_is_chosen_as_for_clang() {
    let desk = Desk::with(
        "k.metal",
        "kernel void k(device bfloat* out [[buffer(0)]]) { out[0] = 1.0bf; }\n",
    );
    for version in ["", "-std=metal3.1", "--std metal3.2"] {
        desk.bessemer(&format!("msl check k.metal {version}"))
            .exits(0);
    }
    let said = desk.bessemer("msl check k.metal -std=metal3.0").exits(1);
    let message = "k.metal:1:22: error: 'bfloat' needs metal3.1 or newer (compiling as metal3.0)";
    assert!(said.stdout.contains(message), "{said:?}");
    let said = desk.bessemer("msl check k.metal -std=metal1.0").exits(2);
    assert!(
        said.stderr.contains("metal3.0, metal3.1, metal3.2"),
        "{said:?}"
    );
}

#[test]
fn a_comment_that_suppresses_nothing_is_a_warning() {
    let desk = Desk::with(
        "k.metal",
        "kernel void k(device int* a [[buffer(0)]]) {\n    a[0] = 1; // bessemer: allow(rase)\n}\n",
    );
    let said = desk.bessemer("msl check k.metal").exits(0);
    assert!(said.stdout.contains("k.metal:2:"), "{said:?}");
    assert!(said.stdout.contains("warning: "), "{said:?}");
    assert!(said.stdout.contains("`rase`"), "{said:?}");
}
