use crate::harness::{Desk, example};

#[test]
fn kernels_are_shown_as_an_aligned_table() {
    let said = Desk::new()
        .bessemer(&format!("msl kernels {}", example("scale.metal")))
        .exits(0);
    let lines: Vec<&str> = said.stdout.lines().collect();
    let column = lines[0].find("type").unwrap();
    assert!(lines[0].starts_with("kernel"), "{said:?}");
    assert_eq!(&lines[1][column..column + 19], "device const float*");
    assert!(said.stdout.contains("scale_half"), "{said:?}");
    assert!(said.stdout.contains("thread_position_in_grid"), "{said:?}");
    assert!(said.stdout.contains("function constant"), "{said:?}");
    assert!(!said.stdout.contains('\x1b'), "colours outside a terminal");
}

#[test]
fn json_has_all_that_a_host_must_know() {
    let said = Desk::new()
        .bessemer(&format!("msl kernels {} --json", example("scale.metal")))
        .exits(0);
    let json = said.json();
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
    let desk = Desk::with(
        "k.metal",
        "#include \"name.h\"\nkernel void NAME(device SCALAR* out [[buffer(0)]]) { out[0] = 1; }\n",
    );
    std::fs::create_dir(desk.path("include")).unwrap();
    desk.write("include/name.h", b"#define NAME from_header\n");
    let json = desk
        .bessemer("msl kernels k.metal --json -I include -D SCALAR=int")
        .exits(0)
        .json();
    assert_eq!(json["kernels"][0]["name"], "from_header");
    assert_eq!(json["kernels"][0]["arguments"][0]["type"], "device int*");
}

#[test]
fn a_source_may_come_from_standard_input() {
    use std::io::Write as _;
    let desk = Desk::new();
    let mut child = desk
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
    let desk = Desk::with(
        "mixed.metal",
        "kernel void add(device int* a [[buffer(0)]]) { a[0] += 1; }\n\
         kernel void image(texture2d<float> t [[texture(0)]]) {}\n",
    );
    let reason = "textures are not supported by the software device: 'texture2d'";
    let said = desk.bessemer("msl kernels mixed.metal").exits(0);
    assert!(said.stdout.contains("unsupported kernel"), "{said:?}");
    assert!(said.stdout.contains(reason), "{said:?}");
    let said = desk.bessemer("msl kernels mixed.metal --json").exits(0);
    let kernels = &said.json()["kernels"];
    assert!(kernels[0]["unsupported"].is_null(), "{said:?}");
    assert_eq!(kernels[1]["unsupported"]["message"], reason);
    assert_eq!(kernels[1]["unsupported"]["line"], 2);
}
