//! Threadgroup memory and barriers.

use crate::harness::{Run, Source, source};

const SOURCE: Source = source!("memory.metal");

#[test]
fn a_tree_reduction_over_many_simd_groups() {
    for (threads, groups) in [(32, 3), (64, 2), (256, 2), (1024, 1)] {
        let input: Vec<i32> = (0..(threads * groups) as i32).map(|i| i * 3 - 50).collect();
        let expected: Vec<i32> = input.chunks(threads).map(|c| c.iter().sum()).collect();
        Run::kernel(&SOURCE, "tree_sum")
            .input(0, &input)
            .output::<i32>(1, groups)
            .memory(0, threads * 4)
            .threadgroups(groups, threads)
            .expect(1, &expected);
    }
}

#[test]
fn simd_groups_exchange_data_in_threadgroup_memory() {
    for (threads, groups) in [(32, 1), (96, 2), (1024, 2)] {
        let input: Vec<f32> = (0..threads * groups).map(|i| (i % 7) as f32).collect();
        let expected: Vec<f32> = input
            .chunks(threads)
            .enumerate()
            .flat_map(|(g, c)| vec![c.iter().sum::<f32>() + g as f32; threads])
            .collect();
        Run::kernel(&SOURCE, "two_level_sum")
            .input(0, &input)
            .output::<f32>(1, threads * groups)
            .threadgroups(groups, threads)
            .expect(1, &expected);
    }
}

#[test]
fn several_threadgroup_variables_do_not_overlap() {
    let expected: Vec<u32> = (0..64_u32)
        .flat_map(|i| {
            let j = 63 - i;
            [
                j % 33 + 1,
                2 * j,
                1000 + j,
                i % 8 * 8 + i / 8,
                j + 2,
                j,
                7 * j,
                164,
                1,
            ]
        })
        .collect();
    Run::kernel(&SOURCE, "several_variables")
        .output::<u32>(0, 9 * 64)
        .memory(0, 64 * 8)
        .memory(1, 64 * 2)
        .threads(64, 64)
        .expect(0, &expected);
}

#[test]
fn barriers_work_in_functions_templates_loops_and_branches() {
    for (threads, rounds) in [(8, 1), (40, 5), (128, 6), (33, 0)] {
        let mut values: Vec<i32> = (0..threads as i32).collect();
        for round in 0..rounds {
            if round % 2 == 0 {
                values.reverse();
            } else {
                values.rotate_left(3);
            }
        }
        Run::kernel(&SOURCE, "barriers_in_functions")
            .output::<i32>(0, threads)
            .bytes(1, &rounds)
            .memory(0, (threads * 4).next_multiple_of(16))
            .threads(threads, threads)
            .expect(0, &values);
    }
}

#[test]
fn values_of_every_type_live_across_barriers() {
    let input: Vec<f32> = (0..128).map(|i| (i % 16) as f32).collect();
    let expected: Vec<f32> = (0..128_usize)
        .map(|i| {
            let a = input[i];
            let odd = if i % 2 == 1 { 0.5 } else { 0.0 };
            let local: f32 = (0..5)
                .filter(|k| *k != i % 5)
                .map(|k| a * (k + 1) as f32)
                .sum();
            (a + 1.0) + a + f32::from(i as i8) + i as f32 + odd + 4.0 * a + 6.0 + local + a + a
        })
        .collect();
    Run::kernel(&SOURCE, "live_across")
        .input(0, &input)
        .output::<f32>(1, 128)
        .threads(128, 128)
        .expect(1, &expected);
}

#[test]
fn a_device_barrier_makes_writes_visible_in_the_threadgroup() {
    let expected: Vec<i32> = (0..192).map(|k| (k % 64 + 1) % 64 * 10 + k / 64).collect();
    Run::kernel(&SOURCE, "through_device_memory")
        .output::<i32>(0, 192)
        .threadgroups(3, 64)
        .expect(0, &expected);
}

#[test]
fn a_simdgroup_barrier_orders_its_lanes() {
    let expected: Vec<i32> = (0..128)
        .map(|i| {
            let j = i ^ 1;
            2 * (j / 32 * 32 + (j % 32 + 5) % 32)
        })
        .collect();
    Run::kernel(&SOURCE, "within_simdgroups")
        .output::<i32>(0, 128)
        .threads(128, 128)
        .expect(0, &expected);
}

#[test]
fn loops_with_barriers_may_end_early_for_all() {
    for n in [1, 2, 100, 256_usize] {
        let input: Vec<i32> = (0..n as i32).map(|i| (i * 7919) % 101 - 50).collect();
        let expected: Vec<i32> = (1..=n).map(|k| *input[..k].iter().max().unwrap()).collect();
        Run::kernel(&SOURCE, "prefix_maximum")
            .input(0, &input)
            .output::<i32>(1, n)
            .bytes(2, &(n as u32))
            .threads(256, 256)
            .expect(1, &expected);
    }
}

#[test]
fn tiles_are_transposed_through_threadgroup_memory() {
    let (width, height) = (40_usize, 20_usize);
    let input: Vec<f32> = (0..width * height).map(|i| i as f32).collect();
    let expected: Vec<f32> = (0..width * height)
        .map(|k| input[k % height * width + k / height])
        .collect();
    Run::kernel(&SOURCE, "transpose_tiles")
        .input(0, &input)
        .output::<f32>(1, width * height)
        .bytes(2, &[width as u32, height as u32])
        .threadgroups((3, 2), (16, 16))
        .expect(1, &expected);
}

#[test]
fn all_of_the_threadgroup_memory_can_be_used() {
    let expected: Vec<f32> = (0..256)
        .map(|i| (0..32).map(|k| ((i * 32 + k + 4096) % 8192) as f32).sum())
        .collect();
    Run::kernel(&SOURCE, "all_of_it")
        .output::<f32>(0, 256)
        .threads(256, 256)
        .expect(0, &expected);
}
