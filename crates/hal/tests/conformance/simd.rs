//! SIMD-group functions.

use std::fmt::Debug;

use bytemuck::Pod;
use half::{bf16, f16};

use crate::harness::{Run, Source, source};

const SOURCE: Source = source!("simd.metal");

/// A type of SIMD-group functions that small integers convert to.
pub(crate) trait Lane: Pod + PartialEq + Debug {
    fn of(value: i32) -> Self;
}

macro_rules! lane {
    ($($type:ty => $convert:expr),* $(,)?) => {$(
        impl Lane for $type {
            fn of(value: i32) -> Self {
                $convert(value)
            }
        }
    )*};
}
lane!(f32 => |v| v as f32, f16 => |v| f16::from_f32(v as f32), bf16 => |v| bf16::from_f32(v as f32),
      i32 => |v| v, u32 => |v| v as u32, i16 => |v| v as i16, u16 => |v| v as u16, i8 => |v| v as i8,
      u8 => |v| v as u8);

pub(crate) fn all<T: Lane>(values: impl IntoIterator<Item = i32>) -> Vec<T> {
    values.into_iter().map(T::of).collect()
}

/// Values of two SIMD-groups whose sums fit every type exactly.
fn values() -> Vec<i32> {
    (0..64).map(|i| (i * 5 + i / 32) % 4).collect()
}

fn arithmetic<T: Lane>(name: &str) {
    let input = values();
    let expected = input.chunks(32).flat_map(|group| {
        (0..32).flat_map(move |l| {
            let doubled = |lanes: usize| (0..lanes).filter(|k| k % 16 == 3).count() as u32;
            [
                group.iter().sum(),
                group.iter().copied().fold(i32::MIN, i32::max),
                group.iter().copied().fold(i32::MAX, i32::min),
                group[..=l].iter().sum(),
                group[..l].iter().sum(),
                4,
                2_i32.pow(doubled(l + 1)),
                2_i32.pow(doubled(l)),
                group[5],
                group[0],
            ]
        })
    });
    Run::kernel(&SOURCE, &format!("arithmetic_{name}"))
        .input(0, &all::<T>(input.clone()))
        .output::<T>(1, 640)
        .threads(64, 64)
        .expect(1, &all::<T>(expected));
}

#[test]
fn reductions_and_scans_of_floating_point_lanes() {
    arithmetic::<f32>("float");
    arithmetic::<f16>("half");
}

#[test]
fn reductions_and_scans_of_integer_lanes() {
    arithmetic::<i32>("int");
    arithmetic::<u32>("uint");
    arithmetic::<i16>("short");
    arithmetic::<u16>("ushort");
    arithmetic::<i8>("char");
    arithmetic::<u8>("uchar");
}

#[test]
fn bitwise_reductions_combine_all_lanes() {
    fn check<T: Lane>(name: &str) {
        let input: Vec<i32> = (0..32).map(|i| 0x40 | 1 << (i % 3) | (i & 8)).collect();
        let fold = |f: fn(i32, i32) -> i32| input.iter().copied().reduce(f).unwrap();
        let row = [fold(|a, b| a & b), fold(|a, b| a | b), fold(|a, b| a ^ b)];
        Run::kernel(&SOURCE, &format!("bitwise_{name}"))
            .input(0, &all::<T>(input))
            .output::<T>(1, 96)
            .threads(32, 32)
            .expect(1, &all::<T>(row.repeat(32)));
    }
    check::<i32>("int");
    check::<u32>("uint");
    check::<i16>("short");
    check::<u8>("uchar");
}

/// The source lane of lane `l`, or the lane of the filling data.
pub(crate) enum From {
    Data(usize),
    Fill(usize),
}

fn fill_up(l: usize, delta: usize, modulo: usize) -> From {
    let (base, l) = (l / modulo * modulo, l % modulo);
    if l >= delta {
        From::Data(base + l - delta)
    } else {
        From::Fill(base + modulo - delta + l)
    }
}

fn fill_down(l: usize, delta: usize, modulo: usize) -> From {
    let (base, l) = (l / modulo * modulo, l % modulo);
    if l + delta < modulo {
        From::Data(base + l + delta)
    } else {
        From::Fill(base + l + delta - modulo)
    }
}

fn shuffles<T: Lane>(name: &str) {
    let input: Vec<i32> = (0..64).map(|i| i + 1).collect();
    let expected = (0..64_usize).flat_map(|i| {
        let (group, l) = (i / 32, i % 32);
        [
            From::Data(31 - l),
            From::Data(l * 3 % 32),
            From::Data(l ^ 1),
            From::Data(l ^ 13),
            From::Data(if l >= 1 { l - 1 } else { l }),
            From::Data(if l >= 16 { l - 16 } else { l }),
            From::Data(if l + 1 < 32 { l + 1 } else { l }),
            From::Data(if l + 7 < 32 { l + 7 } else { l }),
            From::Data((l + 29) % 32),
            From::Data((l + 3) % 32),
            fill_up(l, 4, 32),
            fill_down(l, 4, 32),
            fill_up(l, 3, 8),
            fill_down(l, 3, 8),
        ]
        .map(|from| match from {
            From::Data(l) => (group * 32 + l + 1) as i32,
            From::Fill(l) => ((1 - group) * 32 + l + 1) as i32,
        })
    });
    Run::kernel(&SOURCE, &format!("shuffles_{name}"))
        .input(0, &all::<T>(input))
        .output::<T>(1, 14 * 64)
        .threads(64, 64)
        .expect(1, &all::<T>(expected));
}

#[test]
fn shuffles_move_values_between_lanes() {
    shuffles::<f32>("float");
    shuffles::<f16>("half");
    shuffles::<i32>("int");
    shuffles::<u16>("ushort");
    shuffles::<u8>("uchar");
}

#[test]
fn simd_functions_work_by_component_on_vectors() {
    let input: Vec<f32> = (0..32)
        .flat_map(|i| [i, i * 2, 31 - i, i % 3].map(|v| v as f32))
        .collect();
    let at = |lane: usize| -> [f32; 4] { input[4 * lane..4 * lane + 4].try_into().unwrap() };
    let sum = |lanes: usize, c: usize| (0..lanes).map(|l| at(l)[c]).sum::<f32>();
    let expected: Vec<f32> = (0..32)
        .flat_map(|l| {
            let down = at(if l + 2 < 32 { l + 2 } else { l });
            [
                [0, 1, 2, 3].map(|c| sum(32, c)),
                at(l ^ 2),
                at(9),
                [31.0, 62.0, sum(l, 2), sum(l, 3)],
                [down[0], down[1], down[2], 0.0],
                at(31 - l),
            ]
            .concat()
        })
        .collect();
    Run::kernel(&SOURCE, "on_vectors")
        .input(0, &input)
        .output::<f32>(1, expected.len())
        .threads(32, 32)
        .expect(1, &expected);
}

#[test]
fn votes_cover_every_lane() {
    let input: Vec<u32> = (0..64).map(|i| i % 32).collect();
    let thirds = (0..32)
        .filter(|l| l % 3 == 0)
        .map(|l| 1_u64 << l)
        .sum::<u64>();
    let masks: Vec<u64> = [thirds, 0xffff_ffff].repeat(64);
    let rows: Vec<u32> = (0..64)
        .flat_map(|i| [1, 0, 1, 0, 1, 1, u32::from(i % 32 == 0), 21])
        .collect();
    Run::kernel(&SOURCE, "votes")
        .input(0, &input)
        .output::<u64>(1, 128)
        .output::<u32>(2, 512)
        .threads(64, 32)
        .expect(1, &masks)
        .expect(2, &rows);
}

#[test]
fn simd_functions_work_in_uniform_branches() {
    let input: Vec<i32> = (0..128).map(|i| (i * 31) % 17).collect();
    let mut values: Vec<i32> = input
        .chunks(32)
        .enumerate()
        .flat_map(|(g, c)| {
            let value = if g % 2 == 0 {
                c.iter().sum()
            } else {
                *c.iter().max().unwrap()
            };
            [value; 32]
        })
        .collect();
    for (g, group) in values.chunks_mut(32).enumerate() {
        for k in 0..g {
            let before = group.to_vec();
            for (l, v) in group.iter_mut().enumerate() {
                *v += before[l ^ (1 << k)] + 1;
            }
        }
    }
    Run::kernel(&SOURCE, "uniform_branches")
        .input(0, &input)
        .output::<i32>(1, 128)
        .threads(128, 128)
        .expect(1, &values);
}

#[test]
fn lanes_outside_a_branch_are_inactive() {
    let input: Vec<i32> = (0..64).collect();
    let expected: Vec<i32> = (0..64_usize)
        .map(|i| {
            let base = i / 32 * 32;
            if i % 32 < 12 {
                input[base..base + 12].iter().sum()
            } else {
                -1
            }
        })
        .collect();
    Run::kernel(&SOURCE, "some_lanes")
        .input(0, &input)
        .output::<i32>(1, 64)
        .threads(64, 64)
        .expect(1, &expected);
}

#[test]
fn the_last_simd_group_may_have_fewer_lanes() {
    let input: Vec<i32> = (0..43).map(|i| (i * 7) % 11).collect();
    let mut masks = Vec::new();
    let expected: Vec<i32> = input
        .chunks(32)
        .flat_map(|c| {
            masks.extend(vec![(1_u64 << c.len()) - 1; c.len()]);
            (0..c.len()).flat_map(|l| {
                [
                    c.iter().sum(),
                    *c.iter().max().unwrap(),
                    c[..l].iter().sum(),
                    c[0],
                    1,
                ]
            })
        })
        .collect();
    Run::kernel(&SOURCE, "partial_group")
        .input(0, &input)
        .output::<i32>(1, expected.len())
        .output::<u64>(2, 43)
        .threads(43, 64)
        .expect(1, &expected)
        .expect(2, &masks);
}

#[test]
fn reductions_can_be_built_from_shuffles() {
    let input: Vec<f32> = (0..96).map(|i| ((i * 13) % 29) as f32).collect();
    let expected: Vec<f32> = input
        .chunks(32)
        .flat_map(|c| {
            let odd = c.iter().filter(|v| **v as i32 & 1 == 1).count();
            [
                c.iter().sum(),
                c.iter().copied().fold(0.0, f32::max),
                odd as f32,
            ]
        })
        .collect();
    Run::kernel(&SOURCE, "by_shuffles")
        .input(0, &input)
        .output::<f32>(1, expected.len())
        .threads(96, 96)
        .expect(1, &expected);
}
