//! Quad-group functions.

use half::f16;

use crate::harness::{Run, Source, source};
use crate::simd::{Lane, all};

const SOURCE: Source = source!("quad.metal");

fn quads<T: Lane>(name: &str) {
    let input: Vec<i32> = (0..64).map(|i| (i * 3 + i / 4) % 5 + 1).collect();
    let expected = (0..64_usize).flat_map(|i| {
        let (base, l) = (i / 4 * 4, i % 4);
        let quad = &input[base..base + 4];
        // The neighbouring quad-group, whose values fill in.
        let other = &input[base ^ 4..(base ^ 4) + 4];
        [
            quad.iter().sum(),
            quad.iter().copied().fold(i32::MIN, i32::max),
            quad.iter().copied().fold(i32::MAX, i32::min),
            quad.iter().product(),
            quad[..=l].iter().sum(),
            quad[..l].iter().sum(),
            quad[..=l].iter().product(),
            quad[..l].iter().product(),
            quad[2],
            quad[0],
            quad[3 - l],
            quad[l ^ 1],
            quad[l.saturating_sub(1)],
            quad[(l + 1).min(3)],
            quad[(l + 3) % 4],
            quad[(l + 1) % 4],
            if l >= 1 { quad[l - 1] } else { other[3] },
            if l + 2 < 4 { quad[l + 2] } else { other[l - 2] },
        ]
    });
    Run::kernel(&SOURCE, &format!("quads_{name}"))
        .input(0, &all::<T>(input.clone()))
        .output::<T>(1, 18 * 64)
        .threads(64, 64)
        .expect(1, &all::<T>(expected));
}

#[test]
fn quad_functions_combine_and_move_four_lanes() {
    quads::<f32>("float");
    quads::<f16>("half");
    quads::<i32>("int");
    quads::<u16>("ushort");
}

#[test]
fn quad_votes_cover_four_lanes() {
    let input: Vec<u32> = (0..32).map(|i| (i * 11) % 13).collect();
    let expected: Vec<u32> = (0..32_usize)
        .flat_map(|i| {
            let quad = &input[i / 4 * 4..i / 4 * 4 + 4];
            let odd = |l: usize| (quad[l] % 2) << l;
            [
                quad.iter().fold(!0, |a, b| a & b),
                quad.iter().fold(0, |a, b| a | b),
                quad.iter().fold(0, |a, b| a ^ b),
                u32::from(quad.iter().all(|v| *v < 8)),
                u32::from(quad.contains(&5)),
                (0..4).map(odd).sum(),
                15,
                u32::from(i % 4 == 0),
                0,
            ]
        })
        .collect();
    Run::kernel(&SOURCE, "quad_bits_and_votes")
        .input(0, &input)
        .output::<u32>(1, expected.len())
        .threads(32, 32)
        .expect(1, &expected);
}
