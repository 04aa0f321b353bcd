//! Kernel arguments, program-scope constants, and the language around them.

use bytemuck::{Pod, Zeroable};

use crate::harness::{Run, Source, source};

const SOURCE: Source = source!("argument.metal");

#[test]
fn buffer_indices_are_implied_by_the_order() {
    Run::kernel(&SOURCE, "implicit")
        .input(0, &[1.0_f32, 2., 3.])
        .bytes(1, &4.0_f32)
        .output::<f32>(2, 3)
        .threads(3, 3)
        .expect(2, &[4.0_f32, 8., 12.]);
    Run::kernel(&SOURCE, "given_indices")
        .input(30, &[1.0_f32, 2., 3.])
        .bytes(2, &3_u32)
        .output::<f32>(7, 3)
        .threads(8, 8)
        .expect(7, &[3.0_f32, 2., 1.]);
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
struct Inner {
    p: [i16; 3],
    flags: [u8; 3],
    _pad: u8,
}

#[repr(C, align(16))]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
struct Parameters {
    n: u32,
    _a: u32,
    scale: [f32; 2],
    inner: [Inner; 2],
    _b: [u8; 12],
    v: [f32; 4],
}

#[test]
fn references_pointers_and_arrays_of_constant_memory_are_read() {
    let mut parameters = Parameters::zeroed();
    parameters.n = 17;
    parameters.scale = [0.5, 0.25];
    parameters.inner[1].p[2] = -300;
    parameters.inner[0].flags[1] = 200;
    parameters.v[2] = 6.5;
    Run::kernel(&SOURCE, "references")
        .bytes(0, &parameters)
        .input(1, &[1_i64, -8_000_000])
        .bytes(2, &[1_u32, 2, 3])
        .output::<f32>(3, 8)
        .threads(1, 1)
        .expect(
            3,
            &[
                17.0_f32,
                0.25,
                -300.,
                200.,
                6.5,
                -8e6,
                321.,
                size_of::<Parameters>() as f32,
            ],
        );
}

#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
struct Item {
    weight: f32,
    id: u16,
    _pad: u16,
}

#[test]
fn structs_in_buffers_are_read_and_written_whole_and_by_member() {
    let item = |weight, id| Item {
        weight,
        id,
        _pad: 0,
    };
    Run::kernel(&SOURCE, "items")
        .update(0, &[item(1.5, 10), item(2.5, 20), item(4.0, 30)])
        .output::<f32>(1, 1)
        .bytes(2, &3_u32)
        .threads(1, 1)
        .expect(1, &[8.0_f32])
        .check(0, |launch, got: &[Item]| {
            let got: Vec<_> = got.iter().map(|i| (i.weight, i.id)).collect();
            assert_eq!(got, [(4.0, 31), (5.0, 21), (1.5, 11)], "{launch}");
        });
}

#[test]
fn program_scope_constants_have_their_values() {
    let expected: Vec<f32> = (0..12_usize)
        .map(|i| {
            let grid = [[1., 2., 3.], [4., 5., 6.]][i % 2][i % 3];
            [0.5, 1.0, 1.5, 2.0][i % 4]
                + grid
                + 7.0
                + 4.0
                + 2.5
                + 7.0
                + [9., 8., 7.][i % 3]
                + 11.0
                + [0.25, 1.5][i % 2]
        })
        .collect();
    Run::kernel(&SOURCE, "program_scope")
        .output::<f32>(0, 12)
        .threads(12, 4)
        .expect(0, &expected);
}

#[test]
fn preprocessor_and_comments_work_as_in_c() {
    let expected: Vec<u32> = (0..12).map(|i| 100 + i % 4 + i / 4 * 10).collect();
    Run::kernel(&SOURCE, "preprocessed")
        .output::<u32>(0, 12)
        .threads((4, 3), (4, 3))
        .expect(0, &expected);
}

#[test]
fn literals_have_their_types() {
    Run::kernel(&SOURCE, "literals")
        .output::<f32>(0, 10)
        .threads(1, 1)
        .expect(0, &[1.5_f32, 22.5, 1000., 97., 2., 8., 3., 2., 0.5, 3.0]);
}

#[test]
fn control_flow_works_as_in_cpp() {
    let expected: Vec<i32> = (0..20)
        .flat_map(|x| {
            let class = match x % 5 {
                0 => 100,
                1 | 2 => x + 10,
                _ => x - 10,
            };
            let mut values = [5, 3, 9, 1, 7, x];
            values.sort_unstable();
            let (mut steps, mut n) = (0, x + 1);
            loop {
                n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
                steps += 1;
                if n == 1 || steps >= 50 {
                    break;
                }
            }
            [class, values[0] + values[3] * 10 + values[5] * 100, steps]
        })
        .collect();
    Run::kernel(&SOURCE, "control_flow")
        .output::<i32>(0, 60)
        .threads(20, 20)
        .expect(0, &expected);
}
