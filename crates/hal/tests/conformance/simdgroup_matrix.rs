//! `simdgroup_matrix`.

use half::{bf16, f16};

use crate::harness::{Run, Source, source};
use crate::simd::{Lane, all};

const SOURCE: Source = source!("simdgroup_matrix.metal");

/// 8 rows of 8 from a larger matrix, by row and column.
fn tile(of: impl Fn(usize, usize) -> i32) -> Vec<i32> {
    (0..64).map(|e| of(e / 8, e % 8)).collect()
}

fn stores<T: Lane>(name: &str) {
    // Every value below 256 is exact in bfloat.
    let input: Vec<i32> = (0..220).collect();
    let at = |i: usize| i as i32;
    let shifted = |r: usize, c: usize| at(5 + 20 * r + c);
    let mut expected = [
        tile(|r, c| at(8 * r + c)),
        tile(|r, c| at(20 * r + c)),
        tile(|r, c| at(20 * (r + 2) + c + 3)),
        tile(|r, c| at(20 * c + r)),
    ]
    .concat();
    let mut wide = vec![0; 192];
    for e in 0..64 {
        wide[16 * (e / 8 + 1) + e % 8 + 4] = shifted(e / 8, e % 8);
    }
    expected.extend(wide);
    expected.extend(tile(|r, c| shifted(c, r)));
    Run::kernel(&SOURCE, &format!("stores_{name}"))
        .input(0, &all::<T>(input))
        .output::<T>(1, expected.len())
        .threads(32, 32)
        .expect(1, &all::<T>(expected));
}

#[test]
fn matrices_load_and_store_with_stride_origin_and_transposition() {
    stores::<f32>("float");
    stores::<f16>("half");
    stores::<bf16>("bfloat");
}

fn product(a: &[i32], b: &[i32], c: impl Fn(usize) -> i32) -> Vec<i32> {
    tile(|r, col| (0..8).map(|k| a[8 * r + k] * b[8 * k + col]).sum::<i32>() + c(8 * r + col))
}

fn products<T: Lane>(name: &str) {
    let a: Vec<i32> = (0..128).map(|i| (i * 7 + i / 8) % 5 - 2).collect();
    let b: Vec<i32> = (0..64).map(|i| (i * 3 + i / 8) % 4 - 1).collect();
    let c: Vec<i32> = (0..64).map(|i| i % 9).collect();
    let expected: Vec<i32> = a
        .chunks(64)
        .flat_map(|a| {
            let plain = product(a, &b, |_| 0);
            let summed = product(a, &b, |e| c[e]);
            [plain.clone(), summed.clone(), summed, plain].concat()
        })
        .collect();
    Run::kernel(&SOURCE, &format!("products_{name}"))
        .input(0, &all::<T>(a.clone()))
        .input(1, &all::<T>(b.clone()))
        .input(2, &all::<T>(c.clone()))
        .output::<T>(3, 512)
        .threads(64, 64)
        .expect(3, &all::<T>(expected));
}

#[test]
fn matrices_multiply_and_accumulate() {
    products::<f32>("float");
    products::<f16>("half");
    products::<bf16>("bfloat");
}

#[test]
fn half_operands_accumulate_in_float() {
    let inner = 24;
    let a: Vec<i32> = (0..8 * inner).map(|i| (i * 5) % 7 - 3).collect();
    // Products of hundreds exceed the range in which half is exact; float is exact.
    let b: Vec<i32> = (0..8 * inner).map(|i| 100 * ((i * 3) % 5)).collect();
    let expected: Vec<f32> = (0..64)
        .map(|e| {
            let k = |k: i32| a[((e / 8) * inner + k) as usize] * b[(8 * k + e % 8) as usize];
            (0..inner).map(k).sum::<i32>() as f32
        })
        .collect();
    Run::kernel(&SOURCE, "mixed_product")
        .input(0, &all::<f16>(a))
        .input(1, &all::<f16>(b))
        .output::<f32>(2, 64)
        .bytes(3, &inner.cast_unsigned())
        .threads(32, 32)
        .expect(2, &expected);
}

/// Row and first column of the two neighbouring elements of a lane on Apple's GPUs.
fn position(lane: usize) -> (usize, usize) {
    let quad = lane / 4;
    ((quad & 4) + (lane / 2) % 4, (quad & 2) * 2 + (lane % 2) * 2)
}

#[test]
fn lanes_have_the_same_elements_as_on_apple_gpus() {
    let input: Vec<f32> = (0..64).map(|e| e as f32).collect();
    let mut held = Vec::new();
    let mut changed = input.clone();
    for lane in 0..32 {
        let (row, column) = position(lane);
        let first = 8 * row + column;
        held.extend([first as f32, (first + 1) as f32]);
        changed[first] *= 2.0;
        changed[first + 1] += lane as f32;
    }
    changed.extend([3.5; 64]);
    changed.extend([7.0; 64]);
    Run::kernel(&SOURCE, "thread_elements")
        .input(0, &input)
        .output::<f32>(1, 64)
        .output::<f32>(2, 192)
        .threads(32, 32)
        .expect(1, &held)
        .expect(2, &changed);
}

#[test]
fn arrays_of_matrices_make_a_tiled_matmul() {
    let a: Vec<f32> = (0..256).map(|i| ((i * 7) % 11) as f32 - 5.0).collect();
    let b: Vec<f32> = (0..256).map(|i| ((i * 5) % 13) as f32 - 6.0).collect();
    let expected: Vec<f32> = (0..256)
        .map(|e| {
            (0..16)
                .map(|k| a[e / 16 * 16 + k] * b[16 * k + e % 16])
                .sum()
        })
        .collect();
    Run::kernel(&SOURCE, "arrays")
        .input(0, &a)
        .input(1, &b)
        .output::<f32>(2, 256)
        .threads(32, 32)
        .expect(2, &expected);
}
