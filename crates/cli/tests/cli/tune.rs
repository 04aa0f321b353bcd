use serde_json::Value;

use crate::harness::command;

/// Runs `bessemer tune` with its own cache.
fn tune(cache: &std::path::Path, args: &[&str]) -> String {
    let mut command = command();
    command.env("BESSEMER_CACHE_DIR", cache);
    let output = command.arg("tune").args(args).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn measurements_are_used_afterwards() {
    let cache = tempfile::tempdir().unwrap();
    let json =
        |args: &[&str]| -> Value { serde_json::from_str(&tune(cache.path(), args)).unwrap() };
    assert_eq!(json(&["--show", "--json"])["measured"], false);
    let result = json(&["--json"]);
    let rows = result["measurements"].as_array().unwrap();
    for op in ["elementwise", "matmul", "dot", "reduction"] {
        let of_op = rows
            .iter()
            .filter(|r| r["op"] == op && r["backend"] == "cpu");
        assert_eq!(of_op.count(), 4, "{op} in four sizes");
    }
    assert!(rows.iter().all(|r| r["seconds"].as_f64().unwrap() > 0.0));
    let after = json(&["--show", "--json"]);
    assert_eq!(after["measured"], true);
    assert_eq!(after["choices"], result["choices"]);
    let text = tune(cache.path(), &["--show"]);
    assert!(text.starts_with("Detected backends: cpu ("), "{text}");
    assert!(text.contains("choices measured:"), "{text}");
}

#[test]
fn a_damaged_or_foreign_table_is_ignored_with_a_warning() {
    let cache = tempfile::tempdir().unwrap();
    tune(cache.path(), &[]);
    let entries = std::fs::read_dir(cache.path()).unwrap();
    let mut tables = entries.map(|e| e.unwrap().path());
    let table = tables.find(|p| p.to_string_lossy().contains("tune-"));
    let table = table.expect("the table exists");
    let kept = std::fs::read_to_string(&table).unwrap();
    let foreign = kept.replace("machine ", "machine other-");
    for text in ["", "nonsense", &kept[..kept.len() - 3], &foreign] {
        std::fs::write(&table, text).unwrap();
        let mut command = command();
        command.env("BESSEMER_CACHE_DIR", cache.path());
        let output = command.args(["tune", "--show", "--json"]).output().unwrap();
        let warning = String::from_utf8_lossy(&output.stderr);
        assert!(warning.starts_with("warning: "), "{text:?}: {warning}");
        assert!(warning.contains("is ignored"), "{text:?}: {warning}");
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(result["measured"], false, "{text:?}");
    }
    std::fs::write(&table, kept).unwrap();
    let result: Value = serde_json::from_str(&tune(cache.path(), &["--show", "--json"])).unwrap();
    assert_eq!(result["measured"], true);
}
