//! SARIF 2.1.0, the format of code scanning services.

use serde_json::{Value, json};

use crate::excerpt::Sources;
use crate::msl::finding::{Finding, Findings, Location};

/// Base id of relative URIs: the directory the command ran in.
const BASE_URI_ID: &str = "%SRCROOT%";

/// The log of one run.
pub(crate) fn document(findings: &Findings<'_>, sources: &mut Sources) -> Value {
    let mut rules: Vec<&str> = findings.findings.iter().map(|f| &*f.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    let results: Vec<_> = findings
        .findings
        .iter()
        .map(|finding| result(finding, &rules, sources))
        .collect();
    let notifications: Vec<_> = findings
        .failures
        .iter()
        .map(|failure| json!({ "level": "error", "message": { "text": failure } }))
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "bessemer",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules.iter().map(|id| rule(id)).collect::<Vec<_>>(),
            } },
            "invocations": [{
                "executionSuccessful": findings.failures.is_empty(),
                "exitCode": findings.outcome.code(),
                "toolExecutionNotifications": notifications,
            }],
            "originalUriBaseIds": { BASE_URI_ID: {
                "description": { "text": "The directory the command ran in." },
            } },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn rule(id: &str) -> Value {
    json!({
        "id": id,
        "shortDescription": { "text": description(id) },
        "defaultConfiguration": { "level": "error" },
    })
}

/// One sentence about a rule.
fn description(id: &str) -> String {
    let text = match id {
        "compile/compiler" => "The compiler rejects the source",
        "compile/refused" => "Apple's compiler rejects this",
        "compile/unsupported" => "The software device does not support this Metal feature",
        "check/bounds" => "Access outside a buffer or a threadgroup variable",
        "check/race" => "Data race between threads",
        "check/uninitialised" => "Memory read before it was written",
        "check/divergent-barrier" => "Threads of a threadgroup wait at different barriers",
        "check/early-return" => "A barrier that some threads of the threadgroup never reach",
        "check/divergent-simd" => "Lanes of a SIMD-group in different SIMD-group operations",
        "check/threadgroup-memory" => "Threadgroup memory exceeds the limit or is not set",
        "check/crash" => "The kernel crashes",
        "check/timeout" => "The kernel does not end within the time limit",
        "test/values" => "Values of a kernel test differ from the expected ones",
        "test/report" => "A kernel test lacks the report it expects",
        other => return format!("{} found by bessemer", other.replace('/', ": ")),
    };
    text.to_owned()
}

fn result(finding: &Finding, rules: &[&str], sources: &mut Sources) -> Value {
    let mut result = json!({
        "ruleId": finding.rule,
        "ruleIndex": rules.binary_search(&&*finding.rule).unwrap_or(0),
        "level": if finding.is_error { "error" } else { "warning" },
        "message": { "text": finding.message },
        "locations": location(&finding.location, sources).into_iter().collect::<Vec<_>>(),
    });
    let related: Vec<_> = finding
        .related
        .iter()
        .filter_map(|(related, text)| {
            let mut value = location(related, sources)?;
            value["message"] = json!({ "text": text });
            Some(value)
        })
        .collect();
    if !related.is_empty() {
        result["relatedLocations"] = related.into();
    }
    result
}

/// Converts a location; `None` if it is not in a file.
fn location(location: &Location, sources: &mut Sources) -> Option<Value> {
    let path = location.relative_path()?;
    let is_relative = !path.starts_with('/') && !path.starts_with("../");
    let artifact = if is_relative {
        json!({ "uri": escape_path(&path), "uriBaseId": BASE_URI_ID })
    } else if path.starts_with('/') {
        json!({ "uri": format!("file://{}", escape_path(&path)) })
    } else {
        json!({ "uri": escape_path(&path) })
    };
    let mut physical = json!({ "artifactLocation": artifact });
    if location.line > 0 {
        physical["region"] = json!({ "startLine": location.line });
        let column = location.column_in_characters(sources);
        if column > 0 {
            physical["region"]["startColumn"] = column.into();
        }
    }
    Some(json!({ "physicalLocation": physical }))
}

/// A path as part of a URI.
fn escape_path(path: &str) -> String {
    path.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Outcome;

    fn finding(file: &str, rule: &str) -> Finding {
        Finding {
            rule: rule.to_owned(),
            is_error: true,
            message: "no".to_owned(),
            location: Location {
                file: file.to_owned(),
                line: 2,
                column: 3,
            },
            related: Vec::new(),
        }
    }

    #[test]
    fn results_point_to_their_rules_and_relative_files() {
        let findings = [
            finding("a b.metal", "compile/refused"),
            finding("/x/k.metal", "check/race"),
            finding("<stdin>", "check/new-kind"),
        ];
        let findings = Findings {
            findings: &findings,
            failures: &["no clang".to_owned()],
            outcome: Outcome::ToolFailed,
        };
        let log = document(&findings, &mut Sources::default());
        let run = &log["runs"][0];
        for result in run["results"].as_array().unwrap() {
            let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
            let rules = &run["tool"]["driver"]["rules"];
            assert_eq!(rules[index]["id"], result["ruleId"]);
        }
        let physical = |i: usize| run["results"][i]["locations"][0]["physicalLocation"].clone();
        assert_eq!(physical(0)["artifactLocation"]["uri"], "a%20b.metal");
        assert_eq!(physical(0)["artifactLocation"]["uriBaseId"], "%SRCROOT%");
        assert_eq!(
            physical(0)["region"],
            json!({ "startLine": 2, "startColumn": 3 })
        );
        assert_eq!(physical(1)["artifactLocation"]["uri"], "file:///x/k.metal");
        assert_eq!(run["results"][2]["locations"], json!([]));
        assert_eq!(run["invocations"][0]["executionSuccessful"], false);
        assert_eq!(run["invocations"][0]["exitCode"], 4);
    }
}
