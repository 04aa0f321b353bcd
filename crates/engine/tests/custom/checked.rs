//! `check`: the same call on the checking device.

use bessemer::custom::{MetalKernel, ReportKind};
use bessemer::{DType, Device, Tensor};

use super::{axpy, double, on_device, wave};

#[test]
fn a_correct_kernel_gives_no_report() {
    let x = Tensor::from_slice(&wave(100), [100]);
    // The device of the tensors does not matter, and nothing is promised.
    for x in [
        x.to(&Device::cpu()),
        on_device(&x),
        on_device(&x).slice(0, None, None, -1),
    ] {
        let call = axpy().call(&[&x, &x]).scalar("a", 2.0).threads(100);
        assert_eq!(call.check().unwrap(), []);
    }
    let call = double().call(&[&x]).threads(100);
    assert_eq!(call.check().unwrap(), []);
    assert_eq!(x.to_vec::<f32>().unwrap(), wave(100));
}

#[test]
fn a_race_is_reported_at_the_line_of_the_body() {
    let body = "scratch[t] = x[i];\nif (t == 0) {\n    out[0] = scratch[1];\n}\n";
    let kernel = MetalKernel::body(
        "racy",
        format!("const uint t = thread_index_in_threadgroup;\n{body}"),
    )
    .input("x")
    .output("out")
    .threadgroup("scratch", DType::F32)
    .index("i")
    .build()
    .unwrap();
    let x = Tensor::from_slice(&wave(64), [64]);
    let call = kernel
        .call(&[&x])
        .shape("out", [1])
        .threads(64)
        .group(64)
        .threadgroup("scratch", 64);
    let reports = call.check().unwrap();
    assert_eq!(reports.len(), 1, "{reports:?}");
    let report = &reports[0];
    assert_eq!(
        (report.kind, report.kernel.as_str()),
        (ReportKind::Race, "racy")
    );
    assert_eq!(report.file, "racy");
    assert!([2, 4].contains(&report.line), "{report}");
}

#[test]
fn an_access_out_of_bounds_is_reported_at_its_line_with_its_thread() {
    let kernel = MetalKernel::body("shift", "\n\nout[i + 1] = x[i];")
        .input("x")
        .output("out")
        .index("i")
        .build()
        .unwrap();
    let x = Tensor::from_slice(&wave(64), [64]);
    let reports = kernel.call(&[&x]).threads(64).check().unwrap();
    assert_eq!(reports.len(), 1, "{reports:?}");
    let report = &reports[0];
    assert_eq!(
        (report.kind, report.line, report.count),
        (ReportKind::Bounds, 3, 1)
    );
    assert_eq!(report.thread, Some([63, 0, 0]));
    // The device is usable afterwards, and a comment allows what is meant to be.
    assert_eq!(kernel.call(&[&x]).threads(63).check().unwrap(), []);
}

#[test]
fn a_comment_in_the_body_suppresses_a_report() {
    let body = "// bessemer: allow(race) every thread writes the same value\nout[0] = 1;";
    let kernel = MetalKernel::body("same_value", body)
        .output("out")
        .dtype("out", DType::F32)
        .build()
        .unwrap();
    let call = kernel.call(&[]).shape("out", [1]).threads(64);
    assert_eq!(call.check().unwrap(), []);
    let loud = MetalKernel::body("same_value", body.replace("allow", "deny"))
        .output("out")
        .dtype("out", DType::F32)
        .build()
        .unwrap();
    let reports = loud
        .call(&[])
        .shape("out", [1])
        .threads(64)
        .check()
        .unwrap();
    assert_eq!((reports[0].kind, reports[0].line), (ReportKind::Race, 2));
}

#[test]
fn errors_of_a_call_are_errors_of_its_check() {
    let x = Tensor::from_slice(&wave(4), [4]);
    let error = axpy().call(&[&x, &x]).threads(4).check().unwrap_err();
    assert_eq!(error.to_string(), "axpy: scalar `a` has no value");
}

#[test]
fn a_wild_pointer_is_reported_and_harms_nothing() {
    let body = "device float* wild = (device float*)(ulong(x) + (1ul << (20 + i)));\n*wild = 1.0f;\nout[i] = *wild;";
    let kernel = MetalKernel::body("wild", body)
        .input("x")
        .output("out")
        .index("i")
        .build()
        .unwrap();
    let x = Tensor::from_slice(&wave(40), [40]);
    let reports = kernel.call(&[&x]).threads(40).check().unwrap();
    assert!(!reports.is_empty());
    for report in &reports {
        assert_eq!(report.kind, ReportKind::Bounds, "{report}");
        assert!([2, 3].contains(&report.line), "{report}");
    }
    let call = axpy().call(&[&x, &x]).scalar("a", 2.0).threads(40);
    assert_eq!(call.check().unwrap(), []);
}
