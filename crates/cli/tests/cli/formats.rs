//! Output for other programs: always one valid document, whatever happens.

use crate::harness::{Desk, Said, example};
use serde_json::Value;

const BROKEN: &str = "\
template <typename T>
T first(T value) { return value.x; }
kernel void k(device float* out [[buffer(0)]]) {
    /* é */ out[0] = unknown_name;
    out[1] = first(out[0]);
}
";

/// Fails unless a SARIF log has the properties that SARIF 2.1.0 requires; returns its run.
#[track_caller]
fn run_of(said: &Said) -> Value {
    let log = said.json();
    assert_eq!(log["version"], "2.1.0");
    assert!(log["$schema"].as_str().unwrap().contains("sarif-2.1.0"));
    let runs = log["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1);
    let run = &runs[0];
    let driver = &run["tool"]["driver"];
    assert_eq!(driver["name"], "bessemer");
    let invocation = &run["invocations"][0];
    assert!(invocation["executionSuccessful"].is_boolean());
    assert_eq!(invocation["exitCode"], said.code);
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
            let place = &location["physicalLocation"];
            let artifact = &place["artifactLocation"];
            let uri = artifact["uri"].as_str().unwrap();
            if let Some(base) = artifact["uriBaseId"].as_str() {
                assert!(
                    bases.contains_key(base) && !uri.starts_with('/'),
                    "{result}"
                );
            }
            if let Some(region) = place["region"].as_object() {
                assert!(region["startLine"].as_u64().unwrap() >= 1, "{result}");
            }
        }
    }
    run.clone()
}

#[test]
fn errors_of_the_compiler_are_sarif_results_with_their_notes() {
    let desk = Desk::with("dir with blank/broken.metal", BROKEN);
    let said = Said::from(
        desk.command()
            .args(["msl", "check", "./dir with blank/broken.metal"])
            .args(["--format", "sarif"])
            .output()
            .unwrap(),
    )
    .exits(1);
    let run = run_of(&said);
    let results = run["results"].as_array().unwrap();
    let place = |value: &Value| value["physicalLocation"].clone();
    let first = place(&results[0]["locations"][0]);
    let uri = &first["artifactLocation"]["uri"];
    assert_eq!(uri, "dir%20with%20blank/broken.metal");
    let with_note = results.iter().find(|r| !r["relatedLocations"].is_null());
    let note = &with_note.unwrap()["relatedLocations"][0];
    assert_eq!(place(note)["region"]["startLine"], 5);
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
    let region = &place(&unknown.unwrap()["locations"][0])["region"];
    // In characters: byte 23 comes after a letter of two bytes.
    assert_eq!(
        (&region["startLine"], &region["startColumn"]),
        (&4.into(), &22.into())
    );
}

#[test]
fn reports_of_check_mode_are_findings() {
    let run = |format: &str| {
        Desk::new()
            .bessemer(&format!(
                "msl run {} --grid 8 --buffer 0=iota:f32:8 --buffer 1=ones:f32:7 \
                 --buffer 2=zeros:f32:8 --mode check --format {format}",
                example("add.metal")
            ))
            .exits(3)
    };
    let sarif = run_of(&run("sarif"));
    assert_eq!(sarif["results"][0]["ruleId"], "check/bounds");
    let place = &sarif["results"][0]["locations"][0]["physicalLocation"];
    assert_eq!(place["region"]["startLine"], 9);
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
    let said = Desk::new().bessemer(&format!("msl check {add} --format sarif"));
    assert_eq!(run_of(&said.exits(0))["results"], Value::Array(vec![]));
    let said = Desk::new().bessemer(&format!("msl check {add} --format github"));
    assert!(!said.exits(0).stdout.contains("::"));
}

#[test]
fn annotations_are_escaped_and_stand_on_one_line() {
    let desk = Desk::with("a,b.metal", BROKEN);
    let said = desk
        .bessemer("msl check a,b.metal --format github")
        .exits(1);
    let lines: Vec<&str> = said.stdout.lines().collect();
    let unknown = lines.iter().find(|l| l.contains("unknown_name")).unwrap();
    assert!(
        unknown.starts_with("::error file=a%2Cb.metal,line=4,col=22,title=bessemer%3A compile/"),
        "{unknown}"
    );
    let noted = lines.iter().find(|l| l.contains("note: ")).unwrap();
    assert!(noted.contains("%0Aa,b.metal:5: note: "), "{noted}");
    assert!(lines.last().unwrap().contains("in 1 file: "), "{lines:?}");
}

/// Every way in which a command cannot do its work.
#[test]
fn whatever_fails_there_is_one_document_with_the_exit_code_in_it() {
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
    let desk = Desk::with(
        "k.metal",
        "kernel void k(device int* a [[buffer(0)]]) { a[0] = 1; }",
    );
    desk.write("bad.toml", b"x = ");
    std::fs::create_dir(desk.path("empty")).unwrap();
    for Case {
        line,
        clang,
        code,
        kind,
    } in cases
    {
        let run = |option: &str| {
            let mut command = desk.command();
            if let Some(clang) = clang {
                command.env("BESSEMER_CLANG", clang);
                command.env("BESSEMER_CACHE_DIR", desk.path("cache"));
            }
            command.args(line.split_whitespace());
            Said::from(command.args(option.split_whitespace()).output().unwrap()).exits(code)
        };
        let said = run("--json");
        let json = said.json();
        assert_eq!(json["exit_code"], code, "{line}");
        assert_eq!(json["error"]["kind"], kind, "{line}");
        let message = json["error"]["message"].as_str().unwrap();
        assert!(said.stderr.contains(message), "{line}: {said:?}");
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
fn json_has_the_exit_code_when_there_is_something_to_say_as_well() {
    let desk = Desk::with("broken.metal", BROKEN);
    for (line, code) in [
        ("msl check broken.metal --json", 1),
        ("msl kernels broken.metal --json", 1),
        ("msl run broken.metal --grid 1 --json", 1),
        ("msl check ADD --format json", 0),
        ("msl kernels ADD --json", 0),
    ] {
        let line = line.replace("ADD", &example("add.metal"));
        let json = desk.bessemer(&line).exits(code).json();
        assert_eq!(json["exit_code"], code, "{line}");
    }
    desk.bessemer("msl check broken.metal --json --format text")
        .exits(2);
}
