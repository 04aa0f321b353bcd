//! `msl test`.

use crate::harness::{Desk, Said, example, npy};

const ADD: &str = "\
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

/// A desk with `add.metal` and a file of tests.
fn desk(tests: &str) -> Desk {
    let desk = Desk::with("kernels/add.metal", ADD);
    let file = format!("source = \"../kernels/add.metal\"\n{tests}");
    desk.write("tests/add.toml", file.as_bytes());
    desk
}

fn test(tests: &str) -> Said {
    desk(tests).bessemer("msl test tests/add.toml")
}

#[test]
fn the_examples_pass() {
    let said = Desk::new()
        .bessemer(&format!("msl test {}", example("")))
        .exits(0);
    assert!(said.stdout.contains("ok   "), "{said:?}");
    assert!(said.stdout.contains("11 passed, 0 failed"), "{said:?}");
}

#[test]
fn wrong_values_are_shown_with_index_value_and_error() {
    let good = add_test("right", "", "out = [1, 2, 3, 4]");
    let bad = add_test(
        "wrong",
        "",
        "out = { values = [1, 2.5, 3, nan], abs = 0.25 }",
    );
    let desk = desk(&(good + &bad));
    let said = desk.bessemer("msl test tests").exits(3);
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert!(
        lines[0].starts_with("ok   tests/add.toml: right (check, "),
        "{said:?}"
    );
    assert!(
        lines[1].starts_with("FAIL tests/add.toml: wrong (check, "),
        "{said:?}"
    );
    let difference = "out[1]: got 2.0, expected 2.5 (error 5.000e-1, ";
    assert!(lines[2].trim().starts_with(difference), "{said:?}");
    assert!(
        lines[3].contains("out[3]: got 4.0, expected NaN"),
        "{said:?}"
    );
    assert!(lines[4].contains("2 of 4 values differ"), "{said:?}");
    assert!(lines[5].starts_with("1 passed, 1 failed"), "{said:?}");

    let json = desk.bessemer("msl test tests --json").exits(3).json();
    assert_eq!(json["exit_code"], 3);
    assert_eq!((&json["passed"], &json["failed"]), (&1.into(), &1.into()));
    let failure = &json["tests"][1]["failures"][0];
    assert_eq!(failure["kind"], "values");
    assert_eq!(failure["first"][0]["got"], 2.0);
    assert_eq!(failure["first"][0]["expected"], 2.5);
    assert_eq!(failure["first"][1]["expected"], "NaN");
    assert_eq!(failure["differing"], 2);

    let said = desk.bessemer("msl test tests --format github").exits(3);
    let annotation = said.stdout.lines().next().unwrap();
    let place = "::error file=tests/add.toml,line=29,col=7,title=bessemer%3A test/values::wrong";
    assert!(annotation.starts_with(place), "{said:?}");
    let sarif = desk
        .bessemer("msl test tests --format sarif")
        .exits(3)
        .json();
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "test/values");

    desk.bessemer("msl test tests --filter right").exits(0);
    let said = desk.bessemer("msl test tests --filter nothing").exits(2);
    assert!(said.stderr.contains("no test has `nothing`"), "{said:?}");
}

#[test]
fn tolerances_decide() {
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
        let said = test(&add_test("t", "", &expected));
        assert_eq!(said.code, code, "{tolerance}: {said:?}");
    }
}

#[test]
fn expected_values_come_from_files_generators_and_other_buffers() {
    let desk = desk(
        &(add_test("file", "", "out = \"out.npy\"")
            + &add_test("table", "", "out = { from = \"out.npy\", ulp = 1 }")
            + &add_test(
                "generator",
                "",
                "a = \"iota:i32:4\"\nb = { buffer = \"b\" }",
            )),
    );
    desk.write("tests/out.npy", &npy("4,", &[1.0, 2.0, 3.0, 4.0]));
    let said = desk.bessemer("msl test tests").exits(0);
    assert!(said.stdout.contains("3 passed"), "{said:?}");
    desk.write("tests/out.npy", &npy("4,", &[1.0, 2.0, 3.0, 5.0]));
    let said = desk.bessemer("msl test tests").exits(3);
    assert!(said.stdout.contains("1 passed, 2 failed"), "{said:?}");
    desk.write("tests/out.npy", &npy("3,", &[1.0, 2.0, 3.0]));
    let said = desk.bessemer("msl test tests").exits(2);
    assert!(
        said.stdout.contains("3 for the 4 values of the buffer"),
        "{said:?}"
    );
}

#[test]
fn an_unexpected_report_fails_and_an_expected_one_passes() {
    let racy = |options: &str| {
        let desk = Desk::new();
        let tests = format!(
            "source = \"RACE\"\n[[test]]\nname = \"race\"\n{options}\n\
             [test.buffers]\nin = \"ones:f32:64\"\nout = \"zeros:f32:1\"\n\
             [[test.dispatch]]\nkernel = \"sum\"\ngrid = 64\nthreadgroup = 64\n\
             bind = {{ in = \"in\", out = \"out\" }}\nthreadgroup-memory = {{ partial = \"1K\" }}\n"
        );
        desk.write(
            "t.toml",
            tests.replace("RACE", &example("race.metal")).as_bytes(),
        );
        desk
    };
    let said = racy("").bessemer("msl test t.toml").exits(3);
    assert!(said.stdout.contains("race.metal:10:"), "{said:?}");
    assert!(said.stdout.contains(": race: "), "{said:?}");
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
    let said = racy(options).bessemer("msl test t.toml").exits(3);
    let message = "expected a report of kind `race`, there was none";
    assert!(said.stdout.contains(message), "{said:?}");
}

#[test]
fn every_mode_and_seed_is_run() {
    // The first lane to come writes: the order of lanes decides.
    let source = "#include <metal_stdlib>\nusing namespace metal;\n\
        kernel void first(device atomic_uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {\n\
        uint none = 0; atomic_compare_exchange_weak_explicit(out, &none, i + 1, memory_order_relaxed, memory_order_relaxed); }\n";
    let desk = Desk::with("first.metal", source);
    let tests = |mode: &str| {
        format!(
            "source = \"first.metal\"\n[[test]]\nname = \"first\"\n{mode}\n\
             [test.buffers]\nout = \"zeros:u32:1\"\n\
             [[test.dispatch]]\nkernel = \"first\"\ngrid = 64\nbind = {{ out = \"out\" }}\n\
             [test.expect]\nout = [1]\n"
        )
    };
    desk.write("t.toml", tests("mode = \"fast\"").as_bytes());
    desk.bessemer("msl test t.toml").exits(0);
    desk.write(
        "t.toml",
        tests("mode = [\"fast\", \"fuzz\"]\nseeds = [5, 6, 7, 8]").as_bytes(),
    );
    let said = desk.bessemer("msl test t.toml").exits(3);
    assert!(said.stdout.contains("(fuzz, seed "), "{said:?}");
}

#[test]
fn compile_options_reach_the_kernel() {
    let desk = Desk::with(
        "k/scale.metal",
        "#include \"factor.h\"\nkernel void scale(device int* a [[buffer(0)]]) { a[0] = a[0] * FACTOR + EXTRA; }\n",
    );
    desk.write("t/inc/factor.h", b"#define FACTOR 3\n");
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
    desk.write("t/t.toml", tests.as_bytes());
    desk.bessemer("msl test t/t.toml").exits(0);
    desk.write("t/t.toml", tests.replace("\"fast\"", "\"slow\"").as_bytes());
    let said = desk.bessemer("msl test t/t.toml").exits(2);
    assert!(said.stderr.contains("t/t.toml:7:8: "), "{said:?}");
    assert!(said.stderr.contains("slow"), "{said:?}");
}

#[test]
fn language_versions_and_files_to_include_are_options() {
    let desk = Desk::with(
        "version.metal",
        "kernel void version(device int* a [[buffer(0)]]) { a[0] = __METAL_VERSION__ + EXTRA; }\n",
    );
    desk.write("prefix.h", b"#define EXTRA 1\n");
    for (version, expected) in [("metal3.0", 301), ("metal3.2", 321)] {
        let tests = format!(
            "source = \"version.metal\"\ncompile = {{ std = \"{version}\", include-file = [\"prefix.h\"] }}\n\
             [[test]]\nname = \"version\"\n[test.buffers]\na = \"zeros:i32:1\"\n\
             [[test.dispatch]]\nkernel = \"version\"\ngrid = 1\nbind = {{ a = \"a\" }}\n\
             [test.expect]\na = [{expected}]\n"
        );
        desk.write("t.toml", tests.as_bytes());
        desk.bessemer("msl test t.toml").exits(0);
    }
}

#[test]
fn a_kernel_that_does_not_compile_is_told_from_a_defect() {
    let desk = desk(&add_test("t", "", "out = [1, 2, 3, 4]"));
    desk.write("kernels/add.metal", ADD.replace("b[i]", "c[i]").as_bytes());
    let said = desk.bessemer("msl test tests").exits(1);
    assert!(said.stdout.contains("add.metal:3:21: error: "), "{said:?}");
    let json = desk.bessemer("msl test tests --json").exits(1).json();
    assert_eq!(json["tests"][0]["failures"][0]["kind"], "compile");
    let mut command = desk.command();
    command.env("BESSEMER_CLANG", "/not/there");
    command.env("BESSEMER_CACHE_DIR", desk.path("cache"));
    let output = command.args(["msl", "test", "tests", "--json"]).output();
    let json = Said::from(output.unwrap()).exits(4).json();
    assert_eq!(json["tests"][0]["failures"][0]["error"]["kind"], "tool");
}

#[test]
fn mistakes_in_a_file_of_tests_are_shown_at_their_place() {
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
        let desk = desk(&add_test("t", "", "out = [1]"));
        let file = String::from_utf8(desk.read("tests/add.toml")).unwrap();
        let wrong = file.replacen(old, new, 1);
        assert_ne!(file, wrong, "{old}");
        desk.write("tests/add.toml", wrong.as_bytes());
        let said = desk.bessemer("msl test tests").exits(2);
        assert!(said.stderr.contains(expected), "{new}: {said:?}");
        assert!(said.stderr.contains("tests/add.toml:"), "{new}: {said:?}");
    }
}

#[test]
fn mistakes_that_the_kernel_shows_fail_their_test_only() {
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
        let desk = desk(&(add_test("t", "", "out = [1, 2, 3, 4]") + &good));
        let file = String::from_utf8(desk.read("tests/add.toml")).unwrap();
        desk.write("tests/add.toml", file.replacen(old, new, 1).as_bytes());
        let said = desk.bessemer("msl test tests").exits(2);
        assert!(said.stdout.contains(expected), "{new}: {said:?}");
        assert!(
            said.stdout.contains("1 passed, 1 failed"),
            "{new}: {said:?}"
        );
        let said = desk.bessemer("msl test tests --format github").exits(2);
        let annotation =
            "::error file=tests/add.toml,line=3,col=8,title=bessemer%3A test/error::t ";
        assert!(said.stdout.starts_with(annotation), "{new}: {said:?}");
    }
}

/// A kernel with a race that the values do not show, and a test of it.
fn racy_desk() -> Desk {
    let desk = Desk::with(
        "same.metal",
        "kernel void same(device int* a [[buffer(0)]]) {\n    a[0] = 7;\n}\n",
    );
    let tests = "source = \"same.metal\"\n[[test]]\nname = \"same\"\n\
        [test.buffers]\na = \"zeros:i32:1\"\n\
        [[test.dispatch]]\nkernel = \"same\"\ngrid = 64\nbind = { a = \"a\" }\n\
        [test.expect]\na = [7]\n";
    desk.write("t.toml", tests.as_bytes());
    desk
}

#[test]
fn reports_of_a_baseline_are_accepted_and_new_ones_are_not() {
    let desk = racy_desk();
    desk.bessemer("msl test t.toml").exits(3);
    desk.bessemer("msl test t.toml --baseline known.json")
        .exits(2);
    desk.bessemer("msl test t.toml --baseline known.json --update-baseline")
        .exits(0);
    let said = desk
        .bessemer("msl test t.toml --baseline known.json")
        .exits(0);
    let closing = "1 passed, 0 failed, 1 known report";
    assert!(said.stdout.contains(closing), "{said:?}");
    assert_eq!(said.stderr, "");
    let run =
        "msl run same.metal --grid 64 --buffer 0=zeros:i32:1 --mode check --baseline known.json";
    let said = desk.bessemer(run).exits(0);
    assert!(said.stdout.contains("clean, 1 known report"), "{said:?}");
    let json = desk.bessemer(&format!("{run} --json")).exits(0).json();
    assert_eq!(json["known"], 1, "{json}");

    // Values are still compared, and another line is news.
    let tests = String::from_utf8(desk.read("t.toml")).unwrap();
    desk.write("t.toml", tests.replace("[7]", "[8]").as_bytes());
    let said = desk
        .bessemer("msl test t.toml --baseline known.json")
        .exits(3);
    assert!(said.stdout.contains("got 7, expected 8"), "{said:?}");
    let kernel = String::from_utf8(desk.read("same.metal")).unwrap();
    desk.write("same.metal", kernel.replace('7', "8").as_bytes());
    let said = desk
        .bessemer("msl test t.toml --baseline known.json")
        .exits(3);
    assert!(said.stdout.contains("same.metal:2:"), "{said:?}");

    // What is not needed any more is named, and a damaged file is refused.
    desk.write(
        "same.metal",
        kernel.replace("a[0] = 7", "a[0] + 7").as_bytes(),
    );
    desk.write("t.toml", tests.replace("[7]", "[0]").as_bytes());
    let said = desk
        .bessemer("msl test t.toml --baseline known.json")
        .exits(0);
    assert!(said.stderr.contains("is not reported any more"), "{said:?}");
    desk.write("known.json", b"{");
    let said = desk
        .bessemer("msl test t.toml --baseline known.json")
        .exits(2);
    assert!(said.stderr.contains("known.json: the baseline"), "{said:?}");
    desk.bessemer("msl test t.toml --update-baseline").exits(2);
}
