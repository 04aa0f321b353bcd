//! Output for other programs: always one valid document.

use serde_json::Value;

use crate::harness::{RunOutput, TestDir, example};

const BROKEN_SOURCE: &str = "\
template <typename T>
T first(T value) { return value.x; }
kernel void k(device float* out [[buffer(0)]]) {
    /* é */ out[0] = unknown_name;
    out[1] = first(out[0]);
}
";

/// Fails unless a SARIF log has the properties that SARIF 2.1.0 requires; returns its run.
#[track_caller]
fn run_of(result: &RunOutput) -> Value {
    let log = result.json();
    assert_eq!(log["version"], "2.1.0");
    assert!(log["$schema"].as_str().unwrap().contains("sarif-2.1.0"));
    let runs = log["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1);
    let run = &runs[0];
    let driver = &run["tool"]["driver"];
    assert_eq!(driver["name"], "bessemer");
    let invocation = &run["invocations"][0];
    assert!(invocation["executionSuccessful"].is_boolean());
    assert_eq!(invocation["exitCode"], result.code);
    for notification in invocation["toolExecutionNotifications"].as_array().unwrap() {
        assert!(notification["message"]["text"].is_string());
    }
    let bases = run["originalUriBaseIds"].as_object().unwrap();
    let rules = driver["rules"].as_array().unwrap();
    for rule in rules {
        assert!(rule["id"].is_string() && rule["shortDescription"]["text"].is_string());
    }
    for result in run["results"].as_array().unwrap() {
        assert!(result["message"]["text"].is_string(), "{result}");
        let level = result["level"].as_str().unwrap();
        assert!(["none", "note", "warning", "error"].contains(&level));
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(rules[index]["id"], result["ruleId"]);
        let related = result["relatedLocations"].as_array();
        let locations = result["locations"].as_array().unwrap().iter();
        for location in locations.chain(related.into_iter().flatten()) {
            let physical = &location["physicalLocation"];
            let artifact = &physical["artifactLocation"];
            let uri = artifact["uri"].as_str().unwrap();
            if let Some(base) = artifact["uriBaseId"].as_str() {
                assert!(
                    bases.contains_key(base) && !uri.starts_with('/'),
                    "{result}"
                );
            }
            if let Some(region) = physical["region"].as_object() {
                assert!(region["startLine"].as_u64().unwrap() >= 1, "{result}");
            }
        }
    }
    run.clone()
}

#[test]
fn errors_of_the_compiler_are_sarif_results_with_their_notes() {
    let test_dir = TestDir::with("dir with blank/broken.metal", BROKEN_SOURCE);
    let result = RunOutput::from(
        test_dir
            .command()
            .args(["msl", "check", "./dir with blank/broken.metal"])
            .args(["--format", "sarif"])
            .output()
            .unwrap(),
    )
    .exits(1);
    let run = run_of(&result);
    let results = run["results"].as_array().unwrap();
    let physical = |value: &Value| value["physicalLocation"].clone();
    let first = physical(&results[0]["locations"][0]);
    let uri = &first["artifactLocation"]["uri"];
    assert_eq!(uri, "dir%20with%20blank/broken.metal");
    let with_note = results.iter().find(|r| !r["relatedLocations"].is_null());
    let note = &with_note.unwrap()["relatedLocations"][0];
    assert_eq!(physical(note)["region"]["startLine"], 5);
    assert!(
        note["message"]["text"]
            .as_str()
            .unwrap()
            .contains("instantiation")
    );
    let unknown = results.iter().find(|r| {
        let text = r["message"]["text"].as_str().unwrap();
        text.contains("unknown_name")
    });
    let region = &physical(&unknown.unwrap()["locations"][0])["region"];
    // In characters: byte 23 comes after a letter of two bytes.
    assert_eq!(
        (&region["startLine"], &region["startColumn"]),
        (&4.into(), &22.into())
    );
}

#[test]
fn reports_of_check_mode_are_findings() {
    let run = |format: &str| {
        TestDir::new()
            .bessemer(&format!(
                "msl run {} --grid 8 --buffer 0=iota:f32:8 --buffer 1=ones:f32:7 \
                 --buffer 2=zeros:f32:8 --mode check --format {format}",
                example("add.metal")
            ))
            .exits(3)
    };
    let sarif = run_of(&run("sarif"));
    assert_eq!(sarif["results"][0]["ruleId"], "check/bounds");
    let physical = &sarif["results"][0]["locations"][0]["physicalLocation"];
    assert_eq!(physical["region"]["startLine"], 9);
    let lines = run("github").stdout;
    assert!(lines.starts_with("::error file="), "{lines}");
    assert!(lines.contains("add.metal,line=9,col="), "{lines}");
    assert!(
        lines.contains(",title=bessemer%3A check/bounds::"),
        "{lines}"
    );
}

#[test]
fn a_kernel_that_compiles_and_runs_clean_has_no_findings() {
    let add = example("add.metal");
    let result = TestDir::new().bessemer(&format!("msl check {add} --format sarif"));
    assert_eq!(run_of(&result.exits(0))["results"], Value::Array(vec![]));
    let result = TestDir::new().bessemer(&format!("msl check {add} --format github"));
    assert!(!result.exits(0).stdout.contains("::"));
}

#[test]
fn annotations_are_escaped_to_one_line() {
    let test_dir = TestDir::with("a,b.metal", BROKEN_SOURCE);
    let result = test_dir
        .bessemer("msl check a,b.metal --format github")
        .exits(1);
    let lines: Vec<&str> = result.stdout.lines().collect();
    let unknown = lines.iter().find(|l| l.contains("unknown_name")).unwrap();
    assert!(
        unknown.starts_with("::error file=a%2Cb.metal,line=4,col=22,title=bessemer%3A compile/"),
        "{unknown}"
    );
    let noted = lines.iter().find(|l| l.contains("note: ")).unwrap();
    assert!(noted.contains("%0Aa,b.metal:5: note: "), "{noted}");
    assert!(lines.last().unwrap().contains("in 1 file: "), "{lines:?}");
}

/// Covers every way in which a command can fail.
#[test]
fn every_failure_writes_one_document_with_the_exit_code() {
    struct Case {
        line: &'static str,
        clang: Option<&'static str>,
        code: i32,
        kind: &'static str,
    }
    let case = |line, code, kind| Case {
        line,
        clang: None,
        code,
        kind,
    };
    let cases = [
        case("msl kernels gone.metal", 2, "usage"),
        case("msl check gone.metal", 2, "usage"),
        case("msl check k.metal --kernel other", 2, "usage"),
        case("msl check empty", 2, "usage"),
        case("msl run gone.metal --grid 1", 2, "usage"),
        case("msl run k.metal --grid 1", 2, "usage"),
        case("msl run k.metal --grid 1 --buffer 0=gone.npy", 2, "usage"),
        case("msl run k.metal --grid 1 --out 0=x.npy", 2, "usage"),
        case("msl test gone.toml", 2, "usage"),
        case("msl test bad.toml", 2, "usage"),
        Case {
            clang: Some("/not/there"),
            ..case("msl check k.metal", 4, "tool")
        },
        Case {
            clang: Some("/not/there"),
            ..case("msl kernels k.metal", 4, "tool")
        },
        Case {
            clang: Some("/not/there"),
            ..case("msl run k.metal --grid 1 --buffer 0=zeros:i32:1", 4, "tool")
        },
    ];
    let test_dir = TestDir::with(
        "k.metal",
        "kernel void k(device int* a [[buffer(0)]]) { a[0] = 1; }",
    );
    test_dir.write("bad.toml", b"x = ");
    std::fs::create_dir(test_dir.path("empty")).unwrap();
    for Case {
        line,
        clang,
        code,
        kind,
    } in cases
    {
        let run = |option: &str| {
            let mut command = test_dir.command();
            if let Some(clang) = clang {
                command.env("BESSEMER_CLANG", clang);
                command.env("BESSEMER_CACHE_DIR", test_dir.path("cache"));
            }
            command.args(line.split_whitespace());
            RunOutput::from(command.args(option.split_whitespace()).output().unwrap()).exits(code)
        };
        let result = run("--json");
        let json = result.json();
        assert_eq!(json["exit_code"], code, "{line}");
        assert_eq!(json["error"]["kind"], kind, "{line}");
        let message = json["error"]["message"].as_str().unwrap();
        assert!(result.stderr.contains(message), "{line}: {result:?}");
        if !line.contains("kernels") {
            let sarif = run_of(&run("--format sarif"));
            assert_eq!(sarif["invocations"][0]["executionSuccessful"], false);
            let lines = run("--format github").stdout;
            assert!(
                lines.starts_with("::error title=bessemer::"),
                "{line}: {lines}"
            );
        }
    }
}

#[test]
fn json_results_have_the_exit_code_too() {
    let test_dir = TestDir::with("broken.metal", BROKEN_SOURCE);
    for (line, code) in [
        ("msl check broken.metal --json", 1),
        ("msl kernels broken.metal --json", 1),
        ("msl run broken.metal --grid 1 --json", 1),
        ("msl check ADD --format json", 0),
        ("msl kernels ADD --json", 0),
    ] {
        let line = line.replace("ADD", &example("add.metal"));
        let json = test_dir.bessemer(&line).exits(code).json();
        assert_eq!(json["exit_code"], code, "{line}");
    }
    test_dir
        .bessemer("msl check broken.metal --json --format text")
        .exits(2);
}
