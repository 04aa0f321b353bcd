use crate::harness::{TestDir, example};

#[test]
fn kernels_are_shown_as_an_aligned_table() {
    let result = TestDir::new()
        .bessemer(&format!("msl kernels {}", example("scale.metal")))
        .exits(0);
    let lines: Vec<&str> = result.stdout.lines().collect();
    let column = lines[0].find("type").unwrap();
    assert!(lines[0].starts_with("kernel"), "{result:?}");
    assert_eq!(&lines[1][column..column + 19], "device const float*");
    assert!(result.stdout.contains("scale_half"), "{result:?}");
    assert!(
        result.stdout.contains("thread_position_in_grid"),
        "{result:?}"
    );
    assert!(result.stdout.contains("function constant"), "{result:?}");
    assert!(
        !result.stdout.contains('\x1b'),
        "colours outside a terminal"
    );
}

#[test]
fn json_has_everything_that_a_host_needs() {
    let result = TestDir::new()
        .bessemer(&format!("msl kernels {} --json", example("scale.metal")))
        .exits(0);
    let json = result.json();
    let kernels = json["kernels"].as_array().unwrap();
    let names: Vec<_> = kernels
        .iter()
        .map(|k| k["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["scale_float", "scale_half"]);
    let arguments = &json["kernels"][1]["arguments"];
    assert_eq!(arguments[0]["type"], "device const half*");
    assert_eq!(arguments[0]["access"], "read");
    assert_eq!(arguments[1]["index"], 1);
    assert_eq!(arguments[1]["access"], "read-write");
    assert_eq!(arguments[2]["gate"], "with_bias");
    assert_eq!(arguments[4]["builtin"], "thread_position_in_grid");
    assert_eq!(json["constants"][0]["name"], "with_bias");
    assert_eq!(json["constants"][0]["index"], 0);
    assert_eq!(json["constants"][0]["type"], "bool");
}

#[test]
fn macros_and_include_directories_reach_the_source() {
    let test_dir = TestDir::with(
        "k.metal",
        "#include \"name.h\"\nkernel void NAME(device SCALAR* out [[buffer(0)]]) { out[0] = 1; }\n",
    );
    std::fs::create_dir(test_dir.path("include")).unwrap();
    test_dir.write("include/name.h", b"#define NAME from_header\n");
    let json = test_dir
        .bessemer("msl kernels k.metal --json -I include -D SCALAR=int")
        .exits(0)
        .json();
    assert_eq!(json["kernels"][0]["name"], "from_header");
    assert_eq!(json["kernels"][0]["arguments"][0]["type"], "device int*");
}

#[test]
fn a_source_may_come_from_standard_input() {
    use std::io::Write as _;
    let test_dir = TestDir::new();
    let mut child = test_dir
        .command()
        .args(["msl", "kernels", "-", "--json"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input
        .write_all(b"kernel void k(device int* a [[buffer(7)]]) { a[0] = 1; }")
        .unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["kernels"][0]["arguments"][0]["index"], 7);
}

#[test]
fn unsupported_kernels_are_listed_with_the_reason() {
    let test_dir = TestDir::with(
        "mixed.metal",
        "kernel void add(device int* a [[buffer(0)]]) { a[0] += 1; }\n\
         kernel void image(texture2d<float> t [[texture(0)]]) {}\n",
    );
    let reason = "textures are not supported by the software device: 'texture2d'";
    let result = test_dir.bessemer("msl kernels mixed.metal").exits(0);
    assert!(result.stdout.contains("unsupported kernel"), "{result:?}");
    assert!(result.stdout.contains(reason), "{result:?}");
    let result = test_dir.bessemer("msl kernels mixed.metal --json").exits(0);
    let kernels = &result.json()["kernels"];
    assert!(kernels[0]["unsupported"].is_null(), "{result:?}");
    assert_eq!(kernels[1]["unsupported"]["message"], reason);
    assert_eq!(kernels[1]["unsupported"]["line"], 2);
}
