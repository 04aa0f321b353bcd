//! `msl test`.

use crate::harness::{RunOutput, TestDir, example, npy};

const ADD_SOURCE: &str = "\
kernel void add(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                device float* out [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    out[i] = a[i] + b[i];
}
";

/// A test of `add` with three buffers of four floats and these expected values.
fn add_test(name: &str, options: &str, expected: &str) -> String {
    format!(
        "[[test]]\nname = \"{name}\"\n{options}\n\
         [test.buffers]\na = \"iota:f32:4\"\nb = \"ones:f32:4\"\nout = \"zeros:f32:4\"\n\
         [[test.dispatch]]\nkernel = \"add\"\ngrid = 4\nthreadgroup = 2\n\
         bind = {{ a = \"a\", 1 = \"b\", out = \"out\" }}\n\
         [test.expect]\n{expected}\n"
    )
}

/// A directory with `add.metal` and a test file.
fn test_dir(tests: &str) -> TestDir {
    let test_dir = TestDir::with("kernels/add.metal", ADD_SOURCE);
    let file = format!("source = \"../kernels/add.metal\"\n{tests}");
    test_dir.write("tests/add.toml", file.as_bytes());
    test_dir
}

fn test(tests: &str) -> RunOutput {
    test_dir(tests).bessemer("msl test tests/add.toml")
}

#[test]
fn the_examples_pass() {
    let result = TestDir::new()
        .bessemer(&format!("msl test {}", example("")))
        .exits(0);
    assert!(result.stdout.contains("ok   "), "{result:?}");
    assert!(result.stdout.contains("11 passed, 0 failed"), "{result:?}");
}

#[test]
fn wrong_values_are_shown_with_index_value_and_error() {
    let good = add_test("right", "", "out = [1, 2, 3, 4]");
    let bad = add_test(
        "wrong",
        "",
        "out = { values = [1, 2.5, 3, nan], abs = 0.25 }",
    );
    let test_dir = test_dir(&(good + &bad));
    let result = test_dir.bessemer("msl test tests").exits(3);
    let lines: Vec<&str> = result.stdout.lines().collect();
    assert!(
        lines[0].starts_with("ok   tests/add.toml: right (check, "),
        "{result:?}"
    );
    assert!(
        lines[1].starts_with("FAIL tests/add.toml: wrong (check, "),
        "{result:?}"
    );
    let difference = "out[1]: got 2.0, expected 2.5 (error 5.000e-1, ";
    assert!(lines[2].trim().starts_with(difference), "{result:?}");
    assert!(
        lines[3].contains("out[3]: got 4.0, expected NaN"),
        "{result:?}"
    );
    assert!(lines[4].contains("2 of 4 values differ"), "{result:?}");
    assert!(lines[5].starts_with("1 passed, 1 failed"), "{result:?}");

    let json = test_dir.bessemer("msl test tests --json").exits(3).json();
    assert_eq!(json["exit_code"], 3);
    assert_eq!((&json["passed"], &json["failed"]), (&1.into(), &1.into()));
    let failure = &json["tests"][1]["failures"][0];
    assert_eq!(failure["kind"], "values");
    assert_eq!(failure["first"][0]["got"], 2.0);
    assert_eq!(failure["first"][0]["expected"], 2.5);
    assert_eq!(failure["first"][1]["expected"], "NaN");
    assert_eq!(failure["differing"], 2);

    let result = test_dir.bessemer("msl test tests --format github").exits(3);
    let annotation = result.stdout.lines().next().unwrap();
    let expected = "::error file=tests/add.toml,line=29,col=7,title=bessemer%3A test/values::wrong";
    assert!(annotation.starts_with(expected), "{result:?}");
    let sarif = test_dir
        .bessemer("msl test tests --format sarif")
        .exits(3)
        .json();
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "test/values");

    test_dir.bessemer("msl test tests --filter right").exits(0);
    let result = test_dir
        .bessemer("msl test tests --filter nothing")
        .exits(2);
    assert!(
        result.stderr.contains("no test name contains `nothing`"),
        "{result:?}"
    );
}

#[test]
fn tolerances_are_applied() {
    struct Case(&'static str, i32);
    let cases = [
        Case("abs = 0.5", 0),
        Case("abs = 0.4", 3),
        Case("rel = 0.2", 0),
        Case("rel = 0.1", 3),
        Case("ulp = 2097152", 0),
        Case("ulp = 2097151", 3),
        Case("abs = 0.1, rel = 0.2", 0),
    ];
    for Case(tolerance, code) in cases {
        let expected = format!("out = {{ values = [1, 2.5, 3, 4], {tolerance} }}");
        let result = test(&add_test("t", "", &expected));
        assert_eq!(result.code, code, "{tolerance}: {result:?}");
    }
}

#[test]
fn expected_values_come_from_files_generators_and_other_buffers() {
    let test_dir = test_dir(
        &(add_test("file", "", "out = \"out.npy\"")
            + &add_test("table", "", "out = { from = \"out.npy\", ulp = 1 }")
            + &add_test(
                "generator",
                "",
                "a = \"iota:i32:4\"\nb = { buffer = \"b\" }",
            )),
    );
    test_dir.write("tests/out.npy", &npy("4,", &[1.0, 2.0, 3.0, 4.0]));
    let result = test_dir.bessemer("msl test tests").exits(0);
    assert!(result.stdout.contains("3 passed"), "{result:?}");
    test_dir.write("tests/out.npy", &npy("4,", &[1.0, 2.0, 3.0, 5.0]));
    let result = test_dir.bessemer("msl test tests").exits(3);
    assert!(result.stdout.contains("1 passed, 2 failed"), "{result:?}");
    test_dir.write("tests/out.npy", &npy("3,", &[1.0, 2.0, 3.0]));
    let result = test_dir.bessemer("msl test tests").exits(2);
    assert!(
        result.stdout.contains("3 for the 4 values of the buffer"),
        "{result:?}"
    );
}

#[test]
fn an_unexpected_report_fails_and_an_expected_one_passes() {
    let racy = |options: &str| {
        let test_dir = TestDir::new();
        let tests = format!(
            "source = \"RACE\"\n[[test]]\nname = \"race\"\n{options}\n\
             [test.buffers]\nin = \"ones:f32:64\"\nout = \"zeros:f32:1\"\n\
             [[test.dispatch]]\nkernel = \"sum\"\ngrid = 64\nthreadgroup = 64\n\
             bind = {{ in = \"in\", out = \"out\" }}\nthreadgroup-memory = {{ partial = \"1K\" }}\n"
        );
        test_dir.write(
            "t.toml",
            tests.replace("RACE", &example("race.metal")).as_bytes(),
        );
        test_dir
    };
    let result = racy("").bessemer("msl test t.toml").exits(3);
    assert!(result.stdout.contains("race.metal:10:"), "{result:?}");
    assert!(result.stdout.contains(": race: "), "{result:?}");
    let sarif = racy("").bessemer("msl test t.toml --format sarif").json();
    let result = &sarif["runs"][0]["results"][0];
    assert_eq!(result["ruleId"], "check/race");
    assert_eq!(
        result["relatedLocations"][0]["message"]["text"],
        "in test `race`"
    );
    racy("expect-report = \"race\"")
        .bessemer("msl test t.toml")
        .exits(0);
    racy("expect-report = \"bounds\"")
        .bessemer("msl test t.toml")
        .exits(3);
    let options = "expect-report = \"race\"\nmode = \"fast\"";
    let result = racy(options).bessemer("msl test t.toml").exits(3);
    let message = "expected a report of kind `race`, there was none";
    assert!(result.stdout.contains(message), "{result:?}");
}

#[test]
fn every_mode_and_seed_is_run() {
    // The first lane writes: the result depends on the order of lanes.
    let source = "#include <metal_stdlib>\nusing namespace metal;\n\
        kernel void first(device atomic_uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {\n\
        uint none = 0; atomic_compare_exchange_weak_explicit(out, &none, i + 1, memory_order_relaxed, memory_order_relaxed); }\n";
    let test_dir = TestDir::with("first.metal", source);
    let tests = |mode: &str| {
        format!(
            "source = \"first.metal\"\n[[test]]\nname = \"first\"\n{mode}\n\
             [test.buffers]\nout = \"zeros:u32:1\"\n\
             [[test.dispatch]]\nkernel = \"first\"\ngrid = 64\nbind = {{ out = \"out\" }}\n\
             [test.expect]\nout = [1]\n"
        )
    };
    test_dir.write("t.toml", tests("mode = \"fast\"").as_bytes());
    test_dir.bessemer("msl test t.toml").exits(0);
    test_dir.write(
        "t.toml",
        tests("mode = [\"fast\", \"fuzz\"]\nseeds = [5, 6, 7, 8]").as_bytes(),
    );
    let result = test_dir.bessemer("msl test t.toml").exits(3);
    assert!(result.stdout.contains("(fuzz, seed "), "{result:?}");
}

#[test]
fn compile_options_reach_the_kernel() {
    let test_dir = TestDir::with(
        "k/scale.metal",
        "#include \"factor.h\"\nkernel void scale(device int* a [[buffer(0)]]) { a[0] = a[0] * FACTOR + EXTRA; }\n",
    );
    test_dir.write("t/inc/factor.h", b"#define FACTOR 3\n");
    let tests = "source = \"../k/scale.metal\"\n\
        [compile]\ninclude = [\"inc\"]\ndefine = [\"EXTRA=1\"]\nmath = \"fast\"\n\
        [[test]]\nname = \"of the file\"\n\
        [test.buffers]\na = { dtype = \"i32\", values = [5] }\n\
        [[test.dispatch]]\nkernel = \"scale\"\ngrid = 1\nbind = { a = \"a\" }\n\
        [test.expect]\na = [16]\n\
        [[test]]\nname = \"of the test\"\ncompile = { math = \"safe\", define = [\"EXTRA=2\"] }\n\
        [test.buffers]\na = { dtype = \"i32\", values = [5] }\n\
        [[test.dispatch]]\nkernel = \"scale\"\ngrid = 1\nbind = { a = \"a\" }\n\
        [test.expect]\na = [17]\n";
    test_dir.write("t/t.toml", tests.as_bytes());
    test_dir.bessemer("msl test t/t.toml").exits(0);
    test_dir.write("t/t.toml", tests.replace("\"fast\"", "\"slow\"").as_bytes());
    let result = test_dir.bessemer("msl test t/t.toml").exits(2);
    assert!(result.stderr.contains("t/t.toml:7:8: "), "{result:?}");
    assert!(result.stderr.contains("slow"), "{result:?}");
}

#[test]
fn language_versions_and_files_to_include_are_options() {
    let test_dir = TestDir::with(
        "version.metal",
        "kernel void version(device int* a [[buffer(0)]]) { a[0] = __METAL_VERSION__ + EXTRA; }\n",
    );
    test_dir.write("prefix.h", b"#define EXTRA 1\n");
    for (version, expected) in [("metal3.0", 301), ("metal3.2", 321)] {
        let tests = format!(
            "source = \"version.metal\"\ncompile = {{ std = \"{version}\", include-file = [\"prefix.h\"] }}\n\
             [[test]]\nname = \"version\"\n[test.buffers]\na = \"zeros:i32:1\"\n\
             [[test.dispatch]]\nkernel = \"version\"\ngrid = 1\nbind = {{ a = \"a\" }}\n\
             [test.expect]\na = [{expected}]\n"
        );
        test_dir.write("t.toml", tests.as_bytes());
        test_dir.bessemer("msl test t.toml").exits(0);
    }
}

#[test]
fn compile_errors_are_distinguished_from_defects() {
    let test_dir = test_dir(&add_test("t", "", "out = [1, 2, 3, 4]"));
    test_dir.write(
        "kernels/add.metal",
        ADD_SOURCE.replace("b[i]", "c[i]").as_bytes(),
    );
    let result = test_dir.bessemer("msl test tests").exits(1);
    assert!(
        result.stdout.contains("add.metal:3:21: error: "),
        "{result:?}"
    );
    let json = test_dir.bessemer("msl test tests --json").exits(1).json();
    assert_eq!(json["tests"][0]["failures"][0]["kind"], "compile");
    let mut command = test_dir.command();
    command.env("BESSEMER_CLANG", "/not/there");
    command.env("BESSEMER_CACHE_DIR", test_dir.path("cache"));
    let output = command.args(["msl", "test", "tests", "--json"]).output();
    let json = RunOutput::from(output.unwrap()).exits(4).json();
    assert_eq!(json["tests"][0]["failures"][0]["error"]["kind"], "tool");
}

#[test]
fn mistakes_in_a_test_file_are_reported_with_their_location() {
    struct Case(&'static str, &'static str, &'static str);
    let cases = [
        Case("grid = 4", "grid = ", "tests/add.toml:11:8: "),
        Case("grid = 4", "grids = 4", ":11:1: unknown field `grids`"),
        Case("grid = 4", "grid = -4", ":11:8: expected a size"),
        Case(
            "grid = 4\n",
            "",
            ":10:10: expected either `grid` or `threadgroups`",
        ),
        Case("kernel = \"add\"", "", "missing field `kernel`"),
        Case(
            "a = \"a\"",
            "a = \"x\"",
            ":13:14: no buffer `x`; there are a, b, out",
        ),
        Case(
            "iota:f32:4",
            "iota:f99:4",
            ":6:5: buffer `a`: unknown type `f99`",
        ),
        Case(
            "\"ones:f32:4\"",
            "{ dtype = \"u8\", values = [256] }",
            ":7:5: buffer `b`: 256 does not fit u8",
        ),
        Case(
            "out = [1]",
            "none = [1]",
            ":15:8: expected values of `none`: no buffer `none`",
        ),
        Case(
            "out = [1]",
            "out = { values = [1], abs = -1.0 }",
            "`abs` is not a tolerance",
        ),
        Case(
            "out = [1]",
            "out = { abs = 1.0 }",
            "expected one of `values`, `from` and `buffer`",
        ),
        Case(
            "out = [1]",
            "out = { values = [1], eps = 1.0 }",
            "unknown field `eps`",
        ),
        Case(
            "name = \"t\"",
            "name = \"t\"\nmode = \"slow\"",
            ":4:8: unknown mode `slow`",
        ),
        Case(
            "name = \"t\"",
            "name = \"t\"\nexpect-report = \"rase\"",
            "unknown variant `rase`",
        ),
        Case(
            "name = \"t\"",
            "name = \"t\"\nexpect-report = \"race\"",
            ":4:17: a test that expects a report",
        ),
        Case("source =", "sauce =", "unknown field `sauce`"),
    ];
    for Case(old, new, expected) in cases {
        let test_dir = test_dir(&add_test("t", "", "out = [1]"));
        let file = String::from_utf8(test_dir.read("tests/add.toml")).unwrap();
        let wrong = file.replacen(old, new, 1);
        assert_ne!(file, wrong, "{old}");
        test_dir.write("tests/add.toml", wrong.as_bytes());
        let result = test_dir.bessemer("msl test tests").exits(2);
        assert!(result.stderr.contains(expected), "{new}: {result:?}");
        assert!(
            result.stderr.contains("tests/add.toml:"),
            "{new}: {result:?}"
        );
    }
}

#[test]
fn mistakes_found_with_the_kernel_fail_only_their_test() {
    struct Case(&'static str, &'static str, &'static str);
    let cases = [
        Case("kernel = \"add\"", "kernel = \"ad\"", "did you mean `add`?"),
        Case(
            "a = \"a\"",
            "x = \"a\"",
            "has no buffer argument `x`; it has a, b, out",
        ),
        Case(
            "threadgroup = 2",
            "threadgroup = 4096",
            "cannot be launched",
        ),
        Case(
            "threadgroup = 2",
            "constants = { on = \"bool:true\" }",
            "no function constant `on`",
        ),
        Case(
            "source = \"../kernels/add.metal\"",
            "source = \"gone.metal\"",
            "cannot read tests/gone.metal",
        ),
    ];
    for Case(old, new, expected) in cases {
        let good = add_test(
            "good",
            "source = \"../kernels/add.metal\"",
            "out = [1, 2, 3, 4]",
        );
        let test_dir = test_dir(&(add_test("t", "", "out = [1, 2, 3, 4]") + &good));
        let file = String::from_utf8(test_dir.read("tests/add.toml")).unwrap();
        test_dir.write("tests/add.toml", file.replacen(old, new, 1).as_bytes());
        let result = test_dir.bessemer("msl test tests").exits(2);
        assert!(result.stdout.contains(expected), "{new}: {result:?}");
        assert!(
            result.stdout.contains("1 passed, 1 failed"),
            "{new}: {result:?}"
        );
        let result = test_dir.bessemer("msl test tests --format github").exits(2);
        let annotation =
            "::error file=tests/add.toml,line=3,col=8,title=bessemer%3A test/error::t ";
        assert!(result.stdout.starts_with(annotation), "{new}: {result:?}");
    }
}

/// A kernel with a race that does not affect the values, and a test of it.
fn racy_test_dir() -> TestDir {
    let test_dir = TestDir::with(
        "same.metal",
        "kernel void same(device int* a [[buffer(0)]]) {\n    a[0] = 7;\n}\n",
    );
    let tests = "source = \"same.metal\"\n[[test]]\nname = \"same\"\n\
        [test.buffers]\na = \"zeros:i32:1\"\n\
        [[test.dispatch]]\nkernel = \"same\"\ngrid = 64\nbind = { a = \"a\" }\n\
        [test.expect]\na = [7]\n";
    test_dir.write("t.toml", tests.as_bytes());
    test_dir
}

#[test]
fn reports_of_a_baseline_are_accepted_and_new_ones_are_not() {
    let test_dir = racy_test_dir();
    test_dir.bessemer("msl test t.toml").exits(3);
    test_dir
        .bessemer("msl test t.toml --baseline known.json")
        .exits(2);
    test_dir
        .bessemer("msl test t.toml --baseline known.json --update-baseline")
        .exits(0);
    let result = test_dir
        .bessemer("msl test t.toml --baseline known.json")
        .exits(0);
    let closing = "1 passed, 0 failed, 1 known report";
    assert!(result.stdout.contains(closing), "{result:?}");
    assert_eq!(result.stderr, "");
    let run =
        "msl run same.metal --grid 64 --buffer 0=zeros:i32:1 --mode check --baseline known.json";
    let result = test_dir.bessemer(run).exits(0);
    assert!(
        result.stdout.contains("clean, 1 known report"),
        "{result:?}"
    );
    let json = test_dir.bessemer(&format!("{run} --json")).exits(0).json();
    assert_eq!(json["known"], 1, "{json}");

    // Values are still compared, and a changed line is not in the baseline.
    let tests = String::from_utf8(test_dir.read("t.toml")).unwrap();
    test_dir.write("t.toml", tests.replace("[7]", "[8]").as_bytes());
    let result = test_dir
        .bessemer("msl test t.toml --baseline known.json")
        .exits(3);
    assert!(result.stdout.contains("got 7, expected 8"), "{result:?}");
    let kernel = String::from_utf8(test_dir.read("same.metal")).unwrap();
    test_dir.write("same.metal", kernel.replace('7', "8").as_bytes());
    let result = test_dir
        .bessemer("msl test t.toml --baseline known.json")
        .exits(3);
    assert!(result.stdout.contains("same.metal:2:"), "{result:?}");

    // Stale entries are named, and a damaged file is rejected.
    test_dir.write(
        "same.metal",
        kernel.replace("a[0] = 7", "a[0] + 7").as_bytes(),
    );
    test_dir.write("t.toml", tests.replace("[7]", "[0]").as_bytes());
    let result = test_dir
        .bessemer("msl test t.toml --baseline known.json")
        .exits(0);
    assert!(
        result.stderr.contains("is not reported any more"),
        "{result:?}"
    );
    test_dir.write("known.json", b"{");
    let result = test_dir
        .bessemer("msl test t.toml --baseline known.json")
        .exits(2);
    assert!(
        result.stderr.contains("known.json: the baseline"),
        "{result:?}"
    );
    test_dir
        .bessemer("msl test t.toml --update-baseline")
        .exits(2);
}
