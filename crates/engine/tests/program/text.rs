//! The generated source.

use std::process::Command;

use bessemer::Device;
use bessemer::program::{DeviceMemory, ExecutionParams, LaunchConfig, Program, Register};
use bessemer_hal::soft::Mode;

use crate::soft;

const AXPY: &str = "
    mov_imm.u32 r10, 2
    setcc.u64.ge p0, %global, r3
    bra.p0 @end
    shl.u64 r11, %global, r10
    ldg.f32 r12, [r1 + r11]
    add.f32 r12, r12, r12
    stg.f32 [r2 + r11], r12
end:
    exit
";

fn params() -> ExecutionParams {
    let params = ExecutionParams::new(LaunchConfig::linear(100, 64));
    let params = params.with_register(Register(1), 1);
    params
        .with_register(Register(2), 2)
        .with_register(Register(3), 100)
}

#[test]
fn the_source_is_structured_and_has_the_instructions_as_comments() {
    let program: Program = AXPY.parse().unwrap();
    let text = program
        .compile(&Device::cpu())
        .unwrap()
        .msl(&params())
        .unwrap();
    let expected = r#"#include "program.h"
#include "binary.metal"

[[kernel, max_total_threads_per_threadgroup(64)]] void program_kernel(
    device ProgramFault* fault [[buffer(0)]],
    constant ulong* launch [[buffer(1)]],
    device const uchar* m0 [[buffer(2)]], // buffer in r1
    device uchar* m1 [[buffer(3)]], // buffer in r2
    uint3 group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]]) {
    const ulong block_number = (ulong(group.z) * launch[1] + group.y) * launch[0] + group.x;
    const ulong lane = block_number * 64 + index;
    const ulong step_limit = launch[2];
    const ulong m0_length = launch[3];
    const ulong m1_length = launch[4];
    ulong r1_u64 = launch[5];
    ulong r2_u64 = launch[6];
    ulong r3_u64 = launch[7];
    uint r10_u32 = uint(0);
    ulong r11_u64 = ulong(0);
    float r12_f32 = float(0);
    ulong global_u64 = lane;
    bool p0 = false;
    // 0: mov_imm.u32 r10, 2
    r10_u32 = uint(2ul);
    // 1: setcc.u64.ge p0, %global, r3
    p0 = global_u64 >= r3_u64;
    if (!p0) {
        // 3: shl.u64 r11, %global, r10
        r11_u64 = shifted_left(global_u64, r10_u32);
        // 4: ldg.f32 r12, [r1 + r11]
        {
            const ulong at = r11_u64;
            const uint problem = access_fault(at, 4, m0_length);
            if (problem != 0) {
                report_fault(fault, problem, 4, 0, lane, at);
                return;
            }
            r12_f32 = load<float>(m0, at);
        }
        // 5: add.f32 r12, r12, r12
        r12_f32 = float(binary_add(r12_f32, r12_f32));
        // 6: stg.f32 [r2 + r11], r12
        {
            const ulong at = r11_u64;
            const uint problem = access_fault(at, 4, m1_length);
            if (problem != 0) {
                report_fault(fault, problem, 6, 1, lane, at);
                return;
            }
            store<float>(m1, at, r12_f32);
        }
    }
    // end:
    return;
}
"#;
    assert_eq!(text, expected);
}

#[test]
fn only_irreducible_loops_have_a_dispatcher() {
    let text = |program: &str| {
        let program: Program = program.parse().unwrap();
        program
            .compile(&Device::cpu())
            .unwrap()
            .msl(&params())
            .unwrap()
    };
    let start = "mov_imm.u32 r0, 9\nsetcc.u32.eq p0, %lane, %block\n";
    let reducible = text(&format!(
        "{start}a: phase_adv 1\nb: phase_adv 2\nbra.p0 @b\nloop r0, @a\nexit"
    ));
    assert!(!reducible.contains("selector") && reducible.contains("while (true)"));
    let irreducible = text(&format!(
        "{start}bra.p0 @b\na: phase_adv 1\nb: phase_adv 2\nloop r0, @a\nexit"
    ));
    assert!(irreducible.contains("selector_0 == 1"), "{irreducible}");
}

#[test]
#[ignore = "run by the other test, in a process of its own"]
fn child() {
    let device = soft(Mode::Fast);
    let mut memory = DeviceMemory::new(&device).unwrap();
    memory.allocate(400).unwrap();
    memory.allocate(400).unwrap();
    let program: Program = AXPY.parse().unwrap();
    let compiled = program.compile(&device).unwrap();
    compiled.run(&params(), &mut memory).unwrap();
}

#[test]
fn sources_are_written_to_a_folder_on_request() {
    let folder = std::env::temp_dir().join(format!("bessemer-dump-{}", std::process::id()));
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "text::child"])
        .env("BESSEMER_DUMP_MSL", &folder)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().collect();
    assert_eq!(files.len(), 1);
    let text = std::fs::read_to_string(files[0].as_ref().unwrap().path()).unwrap();
    assert!(text.contains("// 5: add.f32 r12, r12, r12"));
    std::fs::remove_dir_all(&folder).unwrap();
}
