use std::process::Stdio;

use crate::harness::{TestDir, command, example};

#[test]
fn every_command_has_help_with_examples() {
    for line in [
        "--help",
        "generate --help",
        "chat --help",
        "embed --help",
        "perplexity --help",
        "pull --help",
        "models --help",
        "inspect --help",
        "quantize --help",
        "devices --help",
        "msl kernels --help",
        "msl check --help",
        "msl run --help",
        "msl test --help",
        "program run --help",
        "program verify --help",
        "program msl --help",
        "program asm --help",
        "program disasm --help",
        "cache --help",
    ] {
        let result = TestDir::new().bessemer(line).exits(0);
        assert!(result.stdout.contains("Examples:"), "{line}: {result:?}");
    }
    for command in [
        "",
        "msl check ",
        "msl run ",
        "msl test ",
        "msl kernels ",
        "program run ",
    ] {
        let help = TestDir::new().bessemer(&format!("{command}--help")).stdout;
        for code in [0, 1, 2, 3, 4, 130] {
            assert!(help.contains(&format!("\n  {code} ")), "{command}: {help}");
        }
    }
    TestDir::new().bessemer("msl --help").exits(0);
    TestDir::new().bessemer("program --help").exits(0);
    let result = TestDir::new().bessemer("--version").exits(0);
    assert!(result.stdout.starts_with("bessemer "), "{result:?}");
}

#[test]
fn wrong_usage_has_exit_code_two_and_a_reason() {
    struct Case(&'static str, &'static str);
    let cases = [
        Case("", "Usage"),
        Case("nonsense", "nonsense"),
        Case("pull", "NAME"),
        Case("pull gpt-9", "known models are smollm2, stories15m, minilm"),
        Case("inspect gone.gguf", "no file or listed model `gone.gguf`"),
        Case("inspect smollm2 --context 0", "from 1 to"),
        Case("inspect smollm2", "run `bessemer pull smollm2`"),
        Case("quantize a.gguf b.gguf", "--to"),
        Case("quantize a.gguf b.gguf --to q9", "q6_k"),
        Case("msl", "Usage"),
        Case("msl check", "FILE"),
        Case("msl run ADD", "--grid"),
        Case("msl run ADD --grid 0x", "is not a size"),
        Case(
            "msl run ADD --grid 1 --threadgroup 1,2,3,4",
            "more than three",
        ),
        Case("msl run ADD --grid 1 --buffer in.npy", "has no `=`"),
        Case(
            "msl run ADD --grid 1 --buffer 0=zeros:f65:4",
            "unknown type `f65`",
        ),
        Case(
            "msl run ADD --grid 1 --buffer 0=zeros:f64:4",
            "Metal has no f64; use f32",
        ),
        Case("msl run ADD --grid 1 --bytes 0=64", "has no type"),
        Case("msl run ADD --grid 1 --const 0=u8:256", "does not fit u8"),
        Case("msl run ADD --grid 1 --mode slow", "slow"),
        Case("msl run ADD --grid 1 --repeat 0", "from 1 to"),
        Case(
            "msl run ADD --grid 1 --out 3=x.npy",
            "there is no --buffer 3",
        ),
        Case("msl run ADD --grid 1 --kernel sub", "no kernel `sub`"),
        Case(
            "msl run ADD --grid 1 --buffer 0=gone.npy",
            "cannot read gone.npy",
        ),
        Case("msl run ADD --grid 1 --buffer 0=ADD", "nothing is bound"),
        Case(
            "msl run ADD --grid 1 --buffer 0=zeros:f32:1 --buffer 0=zeros:f32:1",
            "bound twice",
        ),
        Case("msl run ADD --grid 1 --buffer 9=zeros:f32:1", "argument"),
        Case(
            "msl run ADD --grid 1 --buffer 0=zeros:f32:9999999999999",
            "longer than the device's maximum",
        ),
        Case(
            "msl run SCALE --grid 1",
            "2 kernels; choose one with --kernel",
        ),
        Case(
            "msl run SCALE --kernel scale_half --grid 1 --const x=bool:true",
            "it has with_bias",
        ),
    ];
    for Case(line, expected) in cases {
        let line = line
            .replace("ADD", &example("add.metal"))
            .replace("SCALE", &example("scale.metal"));
        let result = TestDir::new().bessemer(&line);
        assert_eq!(result.code, 2, "{line}: {result:?}");
        assert!(result.stderr.contains(expected), "{line}: {result:?}");
        assert_eq!(result.stdout, "", "{line}");
    }
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    for line in ["devices", "msl run --help", "msl kernels SCALE"] {
        let line = line.replace("SCALE", &example("scale.metal"));
        let mut child = command()
            .args(line.split_whitespace())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Closed before anything is written.
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{line}");
        assert!(output.status.success(), "{line}: {output:?}");
    }
}

#[test]
fn colours_can_be_forced_and_forbidden() {
    let run = |name: &str| {
        let mut command = command();
        command.env(name, "1").arg("devices");
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert!(run("CLICOLOR_FORCE").contains('\x1b'));
    assert!(!run("NO_COLOR").contains('\x1b'));
}

#[test]
fn the_cache_can_be_found_measured_and_emptied_by_kind() {
    let test_dir = TestDir::new();
    let cache = test_dir.path("cache");
    let run = |line: &str| {
        let mut command = test_dir.command();
        command.env("BESSEMER_CACHE_DIR", &cache);
        let output = command.args(line.split_whitespace()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(run("cache path"), format!("{}\n", cache.display()));
    assert!(run("cache").contains("0 bytes in 0 files"));
    for (name, len) in [
        ("soft-v1/kernel", 10_usize),
        ("models/m/model.gguf", 3000),
        ("tune-x.txt", 7),
        ("theirs", 5),
    ] {
        let path = cache.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, vec![0; len]).unwrap();
    }
    let all = run("cache stats");
    assert!(all.contains("2.9 KiB in 3 files"), "{all}");
    // The report matches the removed files.
    let cleared = run("cache clear");
    assert!(
        cleared.contains("removed 10 bytes in 1 file\n"),
        "{cleared}"
    );
    assert!(cleared.contains("kept; --models removes them"), "{cleared}");
    assert!(!cache.join("soft-v1").exists() && cache.join("models/m/model.gguf").exists());
    let cleared: serde_json::Value =
        serde_json::from_str(&run("cache clear --models --json")).unwrap();
    assert_eq!(
        (&cleared["files"], &cleared["bytes"]),
        (&1.into(), &3000.into())
    );
    assert_eq!(cleared["kinds"]["models"]["removed"], true);
    assert_eq!(cleared["kinds"]["kernels"]["removed"], false);
    assert!(!cache.join("models").exists() && cache.join("tune-x.txt").exists());
    assert!(run("cache clear --all").contains("removed 7 bytes in 1 file\n"));
    assert!(run("cache").contains("0 bytes in 0 files"));
    assert!(cache.join("theirs").exists(), "a foreign file");
}

#[test]
fn a_damaged_file_is_the_same_error_in_every_command() {
    let test_dir = TestDir::with("x.gguf", "GGUF and no more");
    for line in [
        "generate -m x.gguf Hi",
        "chat -m x.gguf",
        "embed -m x.gguf Hi",
        "perplexity -m x.gguf x.gguf",
        "inspect x.gguf",
        "quantize x.gguf y.gguf --to q8_0",
    ] {
        let result = test_dir.bessemer(line).exits(2);
        let times = result.stderr.matches("x.gguf").count();
        assert_eq!(times, 1, "{line} names it once: {result:?}");
    }
}
