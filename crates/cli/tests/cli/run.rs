use serde_json::Value;

use crate::harness::{TestDir, example, npy, read_npy};

/// Line 11 reads what another thread of the group writes in line 10, without a barrier between them.
const RACY_SOURCE: &str = "\
#include <metal_stdlib>
using namespace metal;

kernel void reverse(device const float* in [[buffer(0)]],
                    device float* out [[buffer(1)]],
                    threadgroup float* tile [[threadgroup(0)]],
                    uint i [[thread_position_in_grid]],
                    uint t [[thread_index_in_threadgroup]],
                    uint threads [[threads_per_threadgroup]]) {
    tile[t] = in[i];
    out[i] = tile[threads - 1 - t];
}
";

#[test]
fn arrays_are_loaded_and_saved() {
    let test_dir = TestDir::new();
    let a: Vec<f32> = (0..12_u8).map(f32::from).collect();
    test_dir.write("a.npy", &npy("3, 4", &a));
    test_dir.write("b.npy", &npy("12,", &[0.5; 12]));
    for mode in [
        "",
        "--mode fast",
        "--mode check",
        "--mode fuzz",
        "--mode isolated",
    ] {
        let result = test_dir
            .bessemer(&format!(
                "msl run {} --grid 12 --threadgroup 4 --buffer 0=a.npy --buffer 1=b.npy \
                 --buffer 2=zeros:f32:3x4 --out 2=sum.npy {mode}",
                example("add.metal")
            ))
            .exits(0);
        assert!(result.stdout.contains("clean"), "{result:?}");
        let (header, sum) = read_npy(&test_dir.read("sum.npy"));
        assert_eq!(
            header,
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }"
        );
        let expected: Vec<f32> = a.iter().map(|v| v + 0.5).collect();
        assert_eq!(sum, expected, "{mode}");
    }
}

#[test]
fn softmax_over_rows_is_correct() {
    let test_dir = TestDir::new();
    let rows: Vec<f32> = (0..4 * 100)
        .map(|i| ((i * 37) % 101) as f32 / 10.0)
        .collect();
    test_dir.write("in.npy", &npy("4, 100", &rows));
    for mode in ["fast", "check", "isolated"] {
        test_dir
            .bessemer(&format!(
                "msl run {} --kernel softmax --threadgroups 4 --threadgroup 64 --buffer 0=in.npy \
             --buffer 1=zeros:f32:4x100 --bytes 2=u32:100 --threadgroup-memory 0=128 \
             --mode {mode} --out 1=out.npy",
                example("softmax.metal")
            ))
            .exits(0);
        let (_, out) = read_npy(&test_dir.read("out.npy"));
        for (row, result) in rows.chunks(100).zip(out.chunks(100)) {
            let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let exponentials: Vec<f64> = row.iter().map(|v| f64::from(v - largest).exp()).collect();
            let sum: f64 = exponentials.iter().sum();
            for (expected, found) in exponentials.iter().zip(result) {
                assert!((expected / sum - f64::from(*found)).abs() < 1e-6);
            }
        }
    }
}

#[test]
fn json_has_time_reports_and_logs() {
    let result = TestDir::new()
        .bessemer(&format!(
            "msl run {} --grid 4 --buffer 0=iota:f32:4 --buffer 1=fill:f32:4:0.5 \
             --buffer 2=zeros:f32:4 --print 2 --repeat 3 --json",
            example("add.metal")
        ))
        .exits(0);
    let json = result.json();
    assert!(json["time_ms"].as_f64().unwrap() >= 0.0);
    assert_eq!(json["reports"], Value::Array(vec![]));
    assert_eq!(json["logs"], Value::Array(vec![]));
    assert_eq!(json["values"]["2"].to_string(), "[0.5,1.5,2.5,3.5]");
}

#[test]
fn a_race_is_reported_at_its_line() {
    let test_dir = TestDir::with("racy.metal", RACY_SOURCE);
    let line = "msl run racy.metal --grid 64 --threadgroup 64 --buffer 0=iota:f32:64 \
                --buffer 1=zeros:f32:64 --threadgroup-memory 0=256 --mode check";
    let json = test_dir.bessemer(&format!("{line} --json")).exits(3).json();
    let report = &json["reports"][0];
    assert_eq!(report["kind"], "race", "{json}");
    assert_eq!(report["kernel"], "reverse");
    assert_eq!(report["file"], "racy.metal");
    assert!(report["line"] == 11 || report["line"] == 10, "{json}");
    assert_eq!(report["thread"].as_array().unwrap().len(), 3);
    assert!(report.as_object().unwrap().contains_key("buffer"));
    assert!(!report["message"].as_str().unwrap().is_empty());

    let result = test_dir.bessemer(line).exits(3);
    assert!(result.stdout.contains("racy.metal:1"), "{result:?}");
    assert!(result.stdout.contains(": race: "), "{result:?}");
    assert!(result.stdout.contains('^'), "{result:?}");
}

#[test]
fn an_access_past_a_buffer_is_reported_with_the_buffer() {
    let json = TestDir::new()
        .bessemer(&format!(
            "msl run {} --grid 8 --buffer 0=iota:f32:8 --buffer 1=ones:f32:7 \
             --buffer 2=zeros:f32:8 --mode check --json",
            example("add.metal")
        ))
        .exits(3)
        .json();
    let report = &json["reports"][0];
    assert_eq!(report["kind"], "bounds", "{json}");
    assert_eq!(report["buffer"], 1);
    assert_eq!(report["line"], 9);
    assert_eq!(report["thread"].to_string(), "[7,0,0]");
}

#[test]
fn a_kernel_that_never_ends_is_a_timeout() {
    let test_dir = TestDir::with(
        "spin.metal",
        "kernel void spin(device volatile int* a [[buffer(0)]]) { while (a[0] == 0) {} }",
    );
    for mode in ["isolated", "check"] {
        let json = test_dir
            .bessemer(&format!(
                "msl run spin.metal --grid 1 --buffer 0=zeros:i32:1 --timeout-ms 300 \
                 --mode {mode} --json"
            ))
            .exits(3)
            .json();
        assert_eq!(json["reports"][0]["kind"], "timeout", "{mode}: {json}");
        assert_eq!(json["reports"][0]["kernel"], "spin");
    }
}

#[test]
fn a_crashing_kernel_is_a_report() {
    let test_dir = TestDir::with(
        "wild.metal",
        "kernel void wild(device int* a [[buffer(0)]]) { a[0x10000000000ul] = 1; }",
    );
    let json = test_dir
        .bessemer("msl run wild.metal --grid 1 --buffer 0=zeros:i32:1 --json")
        .exits(3)
        .json();
    assert_eq!(json["reports"][0]["kind"], "crash", "{json}");
    assert_eq!(json["reports"][0]["file"], "wild.metal", "{json}");
}

#[test]
fn threadgroup_memory_that_is_missing_or_too_much_is_a_report() {
    let test_dir = TestDir::with("racy.metal", RACY_SOURCE);
    for memory in ["", "--threadgroup-memory 0=40K"] {
        let json = test_dir
            .bessemer(&format!(
                "msl run racy.metal --grid 64 --threadgroup 64 --buffer 0=iota:f32:64 \
                 --buffer 1=zeros:f32:64 {memory} --json"
            ))
            .exits(3)
            .json();
        assert_eq!(json["reports"][0]["kind"], "threadgroup-memory", "{json}");
    }
}

#[test]
fn a_kernel_that_does_not_compile_is_shown_at_its_line() {
    let test_dir = TestDir::with(
        "k.metal",
        "kernel void k(device int* a [[buffer(0)]]) {\n  a[0] = b;\n}\n",
    );
    let result = test_dir
        .bessemer("msl run k.metal --grid 1 --buffer 0=zeros:i32:1")
        .exits(1);
    assert!(
        result.stderr.contains("k.metal:2:10: error: "),
        "{result:?}"
    );
    assert_eq!(result.stdout, "");
    let json = test_dir
        .bessemer("msl run k.metal --grid 1 --buffer 0=zeros:i32:1 --json")
        .exits(1)
        .json();
    assert_eq!(json["time_ms"], Value::Null);
    assert_eq!(json["reports"], Value::Array(vec![]));
    assert_eq!(json["diagnostics"][0]["line"], 2);
}

#[test]
fn function_constants_are_set_by_index_and_by_name() {
    let run = |constant: &str| {
        let result = TestDir::new().bessemer(&format!(
            "msl run {} --kernel scale_half --grid 4 --buffer 0=iota:f16:4 \
             --buffer 1=zeros:f16:4 --bytes 3=f32:2 {constant} --print 1 --json",
            example("scale.metal")
        ));
        result.exits(0).json()["values"]["1"].to_string()
    };
    assert_eq!(run("--const 0=bool:false"), "[0.0,2.0,4.0,6.0]");
    let biased = "--const with_bias=bool:true --bytes 2=f32:0.5";
    assert_eq!(run(biased), "[0.5,2.5,4.5,6.5]");
}

#[test]
fn values_are_converted_offset_and_written_raw() {
    let test_dir = TestDir::new();
    test_dir.write(
        "copy.metal",
        b"kernel void copy(device const bfloat* in [[buffer(0)]], device bfloat* out [[buffer(1)]],\n\
          uint i [[thread_position_in_grid]]) { out[i] = in[i]; }",
    );
    test_dir.write("in.npy", &npy("4,", &[1.0, 2.5, -3.0, 100.0]));
    test_dir
        .bessemer(
            "msl run copy.metal --grid 3 --buffer 0=in.npy:bf16 --offset 0=2 \
         --buffer 1=zeros:bf16:4 --out 1=out.npy --out 1=out.bin",
        )
        .exits(0);
    let (header, out) = read_npy(&test_dir.read("out.npy"));
    assert!(header.contains("'<f4'"), "{header}");
    assert_eq!(out, [2.5, -3.0, 100.0, 0.0]);
    let raw = [0x20, 0x40, 0x40, 0xc0, 0xc8, 0x42, 0, 0];
    assert_eq!(test_dir.read("out.bin"), raw);
    let result = test_dir
        .bessemer(
            "msl run copy.metal --grid 4 --buffer 0=out.bin:bf16 --buffer 1=zeros:bf16:4 --print 1",
        )
        .exits(0);
    assert!(result.stdout.contains("2.5 -3.0 100.0 0.0"), "{result:?}");
}

#[test]
fn f64_arrays_are_rejected_with_the_remedy() {
    let test_dir = TestDir::new();
    let mut file = npy("1,", &[0.0, 0.0]);
    let at = file.windows(3).position(|w| w == b"<f4").unwrap();
    file[at + 2] = b'8';
    test_dir.write("double.npy", &file);
    let line = format!(
        "msl run {} --grid 1 --buffer 0=double.npy",
        example("add.metal")
    );
    let result = test_dir.bessemer(&line).exits(2);
    assert!(result.stderr.contains("double.npy:f32"), "{result:?}");
}

#[test]
fn lines_that_kernels_log_are_shown() {
    let test_dir = TestDir::with(
        "log.metal",
        "#include <metal_stdlib>
#include <metal_logging>
using namespace metal;
kernel void talk(device int* a [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    os_log_default.log(\"value %d of %u\", a[i], i);
}
",
    );
    let line = "msl run -std=metal3.2 log.metal --grid 1 --buffer 0=fill:i32:1:-7";
    let result = test_dir.bessemer(line).exits(0);
    assert!(result.stderr.contains("value -7 of 0"), "{result:?}");
    let json = test_dir.bessemer(&format!("{line} --json")).exits(0).json();
    assert_eq!(json["logs"][0]["message"], "value -7 of 0");
}
