//! Thread-position attributes.

use crate::harness::{Run, Source, source};

const SOURCE: Source = source!("position.metal");

/// Threads of the group at `position` in one dimension: the last one may be smaller.
fn threads_here(grid: usize, group: usize, position: usize) -> usize {
    group.min(grid - position * group)
}

#[test]
fn attributes_of_one_dimensional_grids_with_smaller_last_groups() {
    for kernel in ["positions_uint", "positions_ushort"] {
        for (grid, group) in [(1, 1), (64, 32), (100, 48), (130, 128), (7, 64), (96, 33)] {
            let expected: Vec<u32> = (0..grid)
                .flat_map(|i| {
                    // A group larger than the grid is truncated like any last group.
                    let position = i / group;
                    let here = threads_here(grid, group, position);
                    let index = i % group;
                    [
                        i,
                        grid,
                        index,
                        here,
                        group,
                        position,
                        grid.div_ceil(group),
                        index,
                        index % 32,
                        index / 32,
                        32,
                        32,
                        here.div_ceil(32),
                        group.div_ceil(32),
                        index % 4,
                        index / 4,
                        here.div_ceil(4),
                        group.div_ceil(4),
                    ]
                })
                .map(|v| v as u32)
                .collect();
            Run::kernel(&SOURCE, kernel)
                .output::<u32>(0, 18 * grid)
                .threads(grid, group)
                .expect(0, &expected);
        }
    }
}

/// The seven vectors of a thread, with `dims` components each, then its index in the group if that is defined.
fn vectors(grid: [usize; 3], group: [usize; 3], at: [usize; 3], dims: usize) -> (Vec<u32>, bool) {
    let mut rows = [[0; 3]; 7];
    for d in 0..3 {
        let position = at[d] / group[d];
        rows[0][d] = at[d];
        rows[1][d] = grid[d];
        rows[2][d] = at[d] % group[d];
        rows[3][d] = threads_here(grid[d], group[d], position);
        rows[4][d] = group[d];
        rows[5][d] = position;
        rows[6][d] = grid[d].div_ceil(group[d]);
    }
    let values = rows.iter().flat_map(|r| &r[..dims]).map(|v| *v as u32);
    (values.collect(), rows[3] == group)
}

fn check_vectors(kernel: &str, grid: [usize; 3], group: [usize; 3], dims: usize) {
    let stride = 7 * dims + 1;
    Run::kernel(&SOURCE, kernel)
        .output::<u32>(0, stride * grid.iter().product::<usize>())
        .threads(grid, group)
        .check(0, |launch, got: &[u32]| {
            for (linear, row) in got.chunks(stride).enumerate() {
                let at = [
                    linear % grid[0],
                    linear / grid[0] % grid[1],
                    linear / grid[0] / grid[1],
                ];
                let (expected, whole) = vectors(grid, group, at, dims);
                assert_eq!(&row[..stride - 1], expected, "{launch}, thread {at:?}");
                if whole {
                    let [x, y, z] = [0, 1, 2].map(|d| at[d] % group[d]);
                    let index = x + group[0] * (y + group[1] * z);
                    assert_eq!(row[stride - 1] as usize, index, "{launch}, thread {at:?}");
                }
            }
        });
}

#[test]
fn attributes_of_two_dimensional_grids() {
    for kernel in ["positions_uint2", "positions_ushort2"] {
        for (grid, group) in [
            ([8, 6, 1], [4, 3, 1]),
            ([10, 7, 1], [4, 3, 1]),
            ([3, 2, 1], [8, 8, 1]),
            ([33, 5, 1], [32, 2, 1]),
        ] {
            check_vectors(kernel, grid, group, 2);
        }
    }
}

#[test]
fn attributes_of_three_dimensional_grids() {
    for kernel in ["positions_uint3", "positions_ushort3"] {
        for (grid, group) in [
            ([4, 4, 4], [2, 2, 2]),
            ([5, 4, 3], [2, 3, 2]),
            ([1, 1, 9], [1, 1, 4]),
            ([40, 1, 2], [32, 1, 1]),
        ] {
            check_vectors(kernel, grid, group, 3);
        }
    }
}

#[test]
fn a_scalar_position_is_the_first_coordinate() {
    let mut expected = [0; 16];
    expected[..5].fill(6_u32);
    expected[15] = 0x3fff_ffff;
    Run::kernel(&SOURCE, "scalar_in_two_dimensions")
        .output::<u32>(0, 16)
        .threads((5, 6), (5, 6))
        .expect(0, &expected);
}

#[test]
fn simd_groups_are_consecutive_thread_indices() {
    for (width, height) in [(8, 8), (32, 3), (64, 2), (16, 6)] {
        let expected: Vec<u32> = (0..width * height).flat_map(|i| [i as u32; 3]).collect();
        Run::kernel(&SOURCE, "lanes_of_rows")
            .output::<u32>(0, 3 * width * height)
            .threads((width, height), (width, height))
            .expect(0, &expected);
    }
}

#[test]
fn whole_threadgroups_make_a_grid_of_their_product() {
    let expected: Vec<u32> = (0..6 * 4 * 4)
        .map(|i| i % 6 * 100 + i / 6 % 4 * 10 + i / 24)
        .collect();
    Run::kernel(&SOURCE, "bare")
        .output::<u32>(0, 6 * 4 * 4)
        .threadgroups((2, 4, 1), (3, 1, 4))
        .expect(0, &expected);
}
