use std::io::Write as _;
use std::process::Stdio;

use serde_json::json;

use crate::harness::{RunOutput, TestDir, npy, program_example, read_npy};

/// Lane 2 divides by zero: line 6.
const DIVIDE: &str = "\
; b1[i] = 12 / b0[i]
    mov_imm.u32 r5, 2
    shl.u64 r0, %global, r5
    ldg.i32 r1, [b1 + r0]
    mov_imm.i32 r2, 12
    div.i32 r3, r2, r1
    stg.i32 [b2 + r0], r3
";

const VECTOR_ADD: &str = "--grid 3 --block 4 --register r1=1 --register r2=2 --register r3=3 --register r4=10 \
     --buffer 1=iota:f32:10 --buffer 2=fill:f32:10:0.5 --buffer 3=zeros:f32:10";

#[test]
fn a_program_runs_on_the_given_buffers() {
    for executor in ["", "--device cpu", "--device soft", "--interpreter"] {
        runs_on_the_given_buffers(executor);
    }
}

fn runs_on_the_given_buffers(executor: &str) {
    let test_dir = TestDir::new();
    let line = format!(
        "program run {} {VECTOR_ADD} {executor} --print 3:3 --out 3=sum.npy",
        program_example("vector_add.isa")
    );
    let result = test_dir.bessemer(&line).exits(0);
    let expected = "buffer 3 (f32 10): 0.5 1.5 2.5 …\n";
    assert!(result.stdout.starts_with(expected), "{result:?}");
    assert!(result.stdout.ends_with("clean\n"), "{result:?}");
    let (_, sum) = read_npy(&test_dir.read("sum.npy"));
    let expected: Vec<f32> = (0..10_u8).map(|i| f32::from(i) + 0.5).collect();
    assert_eq!(sum, expected);
    let json = test_dir.bessemer(&format!("{line} --json")).exits(0).json();
    assert_eq!(json["values"]["3"], json!([0.5, 1.5, 2.5]));
    assert_eq!(json["faults"], json!([]));
    assert_eq!(json["exit_code"], 0);
}

#[test]
fn lanes_of_a_block_share_memory() {
    let test_dir = TestDir::new();
    let values: Vec<f32> = (0..128_u8).map(f32::from).collect();
    test_dir.write("in.npy", &npy("128,", &values));
    for device in ["cpu", "soft"] {
        let json = test_dir
            .bessemer(&format!(
                "program run {} --grid 2 --block 64 --shared 256 --register r1=1 --register r2=2 \
                 --buffer 1=in.npy --buffer 2=zeros:f32:2 --print 2 --device {device} --json",
                program_example("block_sum.isa")
            ))
            .exits(0)
            .json();
        assert_eq!(json["values"]["2"], json!([2016.0, 6112.0]), "{device}");
    }
}

#[test]
fn a_text_that_is_no_program_is_shown_at_its_place() {
    let test_dir = TestDir::with("bad.isa", "    exit\n    add.f32 r0, r1\n");
    for command in [
        "run bad.isa --grid 1",
        "verify bad.isa",
        "asm bad.isa -o bad.bsmp",
        "disasm bad.isa",
    ] {
        let result = test_dir.bessemer(&format!("program {command}")).exits(1);
        let at = "bad.isa:2:19: error: expected `,`";
        assert!(result.stderr.starts_with(at), "{command}: {result:?}");
        assert!(result.stderr.contains("add.f32 r0, r1\n"), "{result:?}");
        assert_eq!(result.stdout, "", "{command}");
    }
    assert!(!test_dir.path("bad.bsmp").exists());
    let result = test_dir.bessemer("program run bad.isa --grid 1 --json");
    let json = result.exits(1).json();
    assert_eq!(json["error"]["line"], 2);
    assert_eq!(json["error"]["column"], 19);
}

#[test]
fn a_fault_names_the_line_and_the_lane_and_keeps_what_was_written() {
    let test_dir = TestDir::with("divide.isa", DIVIDE);
    let line = "--grid 1 --block 4 --buffer 1=in.bin:i32 --buffer 2=fill:i32:4:-1 --print 2";
    let values = [1_i32, 2, 0, 4].map(i32::to_le_bytes).concat();
    test_dir.write("in.bin", &values);
    for executor in ["--device cpu", "--device soft", "--interpreter"] {
        let result = test_dir.bessemer(&format!("program run divide.isa {line} {executor}"));
        let result = result.exits(3);
        let at = "divide.isa:6:5: fault: instruction 4, lane 2: division by zero\n";
        assert!(result.stdout.starts_with(at), "{result:?}");
        assert!(result.stdout.contains(": 12 6 -1 3\n"), "{result:?}");
        assert!(result.stdout.ends_with("1 fault\n"), "{result:?}");
    }
    let json = test_dir
        .bessemer(&format!("program run divide.isa {line} --json"))
        .exits(3)
        .json();
    assert_eq!(json["faults"][0]["instruction"], 4);
    assert_eq!(json["faults"][0]["line"], 6);
    assert_eq!(json["values"]["2"], json!([12, 6, -1, 3]));

    // A binary file has no lines, but instructions.
    test_dir
        .bessemer("program asm divide.isa -o divide.bsmp")
        .exits(0);
    let result = test_dir.bessemer(&format!("program run divide.bsmp {line}"));
    let at = "divide.bsmp: fault: instruction 4, lane 2: division by zero (`div.i32 r3, r2, r1`)\n";
    assert!(result.stdout.starts_with(at), "{result:?}");
}

#[test]
fn many_faults_are_counted() {
    let test_dir = TestDir::with("fault.isa", "    stg.u32 [b9], %lane\n");
    let result = test_dir.bessemer("program run fault.isa --grid 3 --block 10 --interpreter");
    let result = result.exits(3);
    assert!(
        result.stdout.contains("… and 14 faults more\n"),
        "{result:?}"
    );
    assert!(result.stdout.ends_with("30 faults\n"), "{result:?}");
}

#[test]
fn both_formats_are_the_same_program() {
    let test_dir = TestDir::new();
    for name in ["vector_add", "block_sum"] {
        let text = program_example(&format!("{name}.isa"));
        let run = |line: String| test_dir.bessemer(&line).exits(0);
        run(format!("program asm {text} -o a.bsmp"));
        run("program disasm a.bsmp -o a.isa".to_owned());
        run("program asm a.isa -o b.bsmp".to_owned());
        let bytes = test_dir.read("a.bsmp");
        assert!(bytes.starts_with(b"BSMP"));
        assert_eq!(bytes, test_dir.read("b.bsmp"));
        let shown = run("program disasm b.bsmp".to_owned()).stdout;
        assert_eq!(shown.as_bytes(), test_dir.read("a.isa"));
    }
}

#[test]
fn an_input_is_never_overwritten() {
    let test_dir = TestDir::with("a.isa", "    exit\n");
    std::os::unix::fs::symlink(test_dir.path("a.isa"), test_dir.path("link.isa")).unwrap();
    for line in [
        "asm a.isa -o a.isa",
        "asm a.isa -o ./a.isa",
        "asm a.isa -o link.isa",
        "disasm link.isa -o a.isa",
    ] {
        let result = test_dir.bessemer(&format!("program {line}")).exits(2);
        assert!(result.stderr.contains("is the input"), "{line}: {result:?}");
        assert_eq!(test_dir.read("a.isa"), b"    exit\n", "{line}");
    }
}

#[test]
fn a_damaged_file_is_refused_with_its_byte() {
    let test_dir = TestDir::with("a.isa", "    exit\n");
    test_dir.bessemer("program asm a.isa -o a.bsmp").exits(0);
    let mut bytes = test_dir.read("a.bsmp");
    bytes.truncate(bytes.len() - 1);
    test_dir.write("cut.bsmp", &bytes);
    test_dir.write("bytes.isa", &[0xff, 0xfe, 0]);
    for (line, expected) in [
        ("disasm cut.bsmp", "cut.bsmp: byte "),
        ("run cut.bsmp --grid 1", "cut.bsmp: byte "),
        ("verify bytes.isa", "neither a program nor text"),
        ("verify gone.isa", "cannot read gone.isa"),
        ("disasm a.isa -o gone/a.isa", "cannot write gone/a.isa"),
    ] {
        let result = test_dir.bessemer(&format!("program {line}")).exits(2);
        assert!(result.stderr.contains(expected), "{line}: {result:?}");
    }
}

#[test]
fn a_program_is_read_from_standard_input() {
    let test_dir = TestDir::new();
    let mut child = test_dir
        .command()
        .args(["program", "disasm", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"exit // now").unwrap();
    drop(stdin);
    let result = RunOutput::from(child.wait_with_output().unwrap());
    assert_eq!(result.stdout, "    exit\n");
}

#[test]
fn the_interpreter_has_f64_and_resonance() {
    let text = "\
    ldg.f64 r1, [b1]
    add.f64 r1, r1, r1
    stg.f64 [b1], r1
    cls_get r2
    res_accum r2, r1
";
    let test_dir = TestDir::with("f64.isa", text);
    let json = test_dir
        .bessemer(
            "program run f64.isa --grid 1 --block 1 --interpreter --buffer 1=fill:f64:1:0.1 --print 1 --json",
        )
        .exits(0)
        .json();
    assert_eq!(json["values"]["1"], json!([0.2]));
    assert_eq!(json["resonance"], json!({ "0": 0.2 }));
}

#[test]
fn wrong_arguments_are_explained() {
    struct Case(&'static str, &'static str);
    let test_dir = TestDir::with("a.isa", "    exit\n");
    for Case(line, expected) in [
        Case("run a.isa", "--grid"),
        Case("run a.isa --grid 1 --block 0", "a block has 0 lanes"),
        Case("run a.isa --grid 1 --block 2048", "a block has 2048 lanes"),
        Case("run a.isa --grid 5000000000", "too large"),
        Case(
            "run a.isa --grid 1 --shared 64K",
            "65536 bytes of shared memory",
        ),
        Case("run a.isa --grid 1 --register r1", "has no `=`"),
        Case("run a.isa --grid 1 --register r252=0", "r0 to r251"),
        Case("run a.isa --grid 1 --print 3", "there is no --buffer 3"),
        Case("run a.isa --grid 1 --out 3=x.npy", "there is no --buffer 3"),
        Case(
            "run a.isa --grid 1 --buffer 1=zeros:u8:1 --buffer 1=zeros:u8:1",
            "buffer 1 is bound twice",
        ),
        Case("run a.isa --grid 1 --buffer 1=zeros:bool:1", "no bool"),
        Case("run a.isa --grid 1 --buffer 1=gone.npy", "gone.npy"),
        Case("run a.isa --grid 1 --buffer 0=zeros:u8:1", "boundary pool"),
        Case(
            "run a.isa --grid 1 --device cpu --interpreter",
            "--interpreter",
        ),
        Case("verify a.isa --register x=1", "`x` is not a register"),
        Case("msl a.isa --block 0", "a block has 0 lanes"),
        Case("asm a.isa", "--out"),
        Case("", "Usage"),
    ] {
        let result = test_dir.bessemer(&format!("program {line}"));
        assert_eq!(result.code, 2, "{line}: {result:?}");
        assert!(result.stderr.contains(expected), "{line}: {result:?}");
        assert_eq!(result.stdout, "", "{line}");
    }
}

#[test]
fn verify_says_which_executor_refuses_the_program_and_where() {
    let test_dir = TestDir::new();
    let example = program_example("vector_add.isa");
    let line = format!("program verify {example} -r r1=1 -r r2=2 -r r3=3");
    let result = test_dir.bessemer(&format!("{line} -r r4=4")).exits(0);
    let accepted = "interpreter: accepted\ncpu: accepted\nmetal: accepted\n";
    assert_eq!(result.stdout, accepted);
    let result = test_dir.bessemer(&line).exits(1);
    let refused = "interpreter: accepted\ncpu: accepted\nmetal: refused\n";
    assert!(result.stdout.starts_with(refused), "{result:?}");
    let at = "vector_add.isa:4:5: error: r4 is read, but may not have been written\n";
    assert!(result.stdout.contains(at), "{result:?}");
    let json = test_dir.bessemer(&format!("{line} --json")).exits(1).json();
    assert_eq!(json["instructions"], 8);
    assert_eq!(json["executors"][0]["accepted"], true);
    assert_eq!(json["executors"][2]["name"], "metal");
    assert_eq!(json["executors"][2]["problem"]["line"], 4);

    test_dir.write("f64.isa", b"    mov_imm.u32 r0, 1\n    ldg.f64 r1, [b1]\n");
    let result = test_dir.bessemer("program verify f64.isa").exits(1);
    let at = "f64.isa:2:5: error: ldg: Metal has no f64";
    assert!(result.stdout.contains(at), "{result:?}");
    let line = "program run f64.isa --grid 1 --block 1 --buffer 1=zeros:f64:1 --device soft";
    let result = test_dir.bessemer(line).exits(1);
    assert!(result.stderr.starts_with(at), "{result:?}");
}

#[test]
fn msl_compiles_on_its_own_and_computes_what_the_program_does() {
    let test_dir = TestDir::new();
    let example = program_example("vector_add.isa");
    let registers = "-r r1=1 -r r2=2 -r r3=3 -r r4=4 --block 8";
    let line = format!("program msl {example} {registers} -o vector_add.metal");
    test_dir.bessemer(&line).exits(0);
    test_dir
        .bessemer("msl check vector_add.metal --full")
        .exits(0);
    // As the comment at the beginning says: the grid, the step limit, the lengths, and then the registers by use.
    let text = String::from_utf8(test_dir.read("vector_add.metal")).unwrap();
    let comment = "lane is stopped; bytes of buffer 2; bytes of buffer 3; bytes of buffer 4; r1; r2; r3; r4.\n";
    assert!(text.contains(comment), "{text}");
    let json = test_dir
        .bessemer(
            "msl run vector_add.metal --kernel vector_add --threadgroups 1 --threadgroup 8 --mode check \
             --buffer 0=zeros:u64:4 --bytes 1=u64:1,1,1000,20,20,20,1,2,3,4 \
             --buffer 2=iota:f32:5 --buffer 3=fill:f32:5:0.5 --buffer 4=fill:f32:5:-1 --print 4 --print 0:1 --json",
        )
        .exits(0)
        .json();
    assert_eq!(json["values"]["4"], json!([0.5, 1.5, 2.5, 3.5, -1.0]));
    assert_eq!(json["values"]["0"], json!([0]), "no fault");

    let brief = test_dir.bessemer(&format!("program msl {example} {registers} --brief"));
    let brief = brief.exits(0).stdout;
    assert!(brief.contains("#include \"program.h\""), "{brief}");
    let named = test_dir.bessemer(&format!("program msl {example} {registers} --name add_2"));
    assert!(named.exits(0).stdout.contains("void add_2("));
    let wrong = test_dir.bessemer(&format!("program msl {example} {registers} --name 2add"));
    assert!(wrong.exits(2).stderr.contains("not the name of a kernel"));
    let input = format!("program msl {example} {registers} -o {example}");
    assert!(
        test_dir
            .bessemer(&input)
            .exits(2)
            .stderr
            .contains("is the input")
    );
    test_dir.write(
        "map.isa",
        b"parallel_map.f32.abs input=r1, output=r2, count=4\n",
    );
    let several = test_dir
        .bessemer("program msl map.isa -r r1=1 -r r2=2")
        .exits(1);
    let at = "map.isa:1:1: error: parallel_map: a library has one kernel";
    assert!(several.stderr.starts_with(at), "{several:?}");
}
