//! Environment variables: invalid values are errors of the first operation that needs them.
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

use std::process::Command;

use bessemer::{Device, Error, Tensor, env, simd};

/// Names the variable that the process of [`child`] was started with.
const CHILD: &str = "BESSEMER_TEST_VARIABLE";

#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn child() {
    let name = std::env::var(CHILD).unwrap();
    let is_bad = |error: &Error| match error {
        Error::Environment {
            variable, value, ..
        } => *variable == name && *value == std::env::var(&name).unwrap(),
        _ => false,
    };
    let x = Tensor::from_slice(&[1.0_f32, 2.0], [2]);
    // On a device that was chosen otherwise, too; what cannot fail has its default.
    for device in [None, Some(Device::cpu())] {
        let sum = match device {
            None => &x + 1.0,
            Some(device) => x.to(&device) + 1.0,
        };
        let error = sum.to_vec::<f32>().unwrap_err();
        assert!(is_bad(&error), "{error}");
    }
    assert!(is_bad(&Device::current().unwrap_err()));
    assert!(is_bad(&Device::software().unwrap_err()));
    assert!(is_bad(&env::check().unwrap_err()));
    assert!(simd::level().is_available());
    println!("{}", env::check().unwrap_err());
}

/// The output of [`child`] with a variable set.
fn run(name: &str, value: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "child", "--nocapture"])
        .env(CHILD, name)
        .env(name, value)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{name}={value}: {said}");
    said
}

#[test]
fn an_invalid_value_is_an_error_that_names_the_allowed_ones() {
    let missing = simd::Level::ALL.into_iter().find(|l| !l.is_available());
    let cases = [
        ("BESSEMER_DEVICE", "gpu", "cpu, metal, soft or auto"),
        ("BESSEMER_THREADS", "0", "a whole number above 0"),
        ("BESSEMER_THREADS", "two", "a whole number above 0"),
        ("BESSEMER_SIMD", "sse9", "the levels of this processor"),
        ("BESSEMER_SIMD", missing.unwrap().name(), "scalar"),
        ("BESSEMER_MATMUL", "blas", "msl or mps"),
        ("BESSEMER_RED_ZONES", "yes", "0 or 1"),
        ("BESSEMER_MEMORY_CACHE_MB", "-1", "a whole number"),
    ];
    for (name, value, allowed) in cases {
        let said = run(name, value);
        let message = format!("{name} is `{value}`; allowed: ");
        assert!(said.contains(&message) && said.contains(allowed), "{said}");
    }
}

#[test]
fn an_unknown_variable_is_a_warning_that_names_the_closest() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "child", "--nocapture"])
        .env(CHILD, "BESSEMER_THREADS")
        .env("BESSEMER_THREADS", "0")
        .env("BESSEMER_CACHE_LIMIT", "0")
        .env("BESSEMER_RED_ZONE", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    for (name, remedy) in [
        (
            "BESSEMER_CACHE_LIMIT",
            "docs/environment.md lists all variables",
        ),
        ("BESSEMER_RED_ZONE", "did you mean BESSEMER_RED_ZONES?"),
    ] {
        let warning = format!("the environment variable {name} is unknown and has no effect; ");
        assert_eq!(said.matches(&warning).count(), 1, "{said}");
        assert!(said.contains(remedy), "{said}");
    }
}
