//! Atomic operations.

use crate::harness::{Run, Source, source};

const SOURCE: Source = source!("atomic.metal");

#[test]
fn device_atomics_of_all_kinds() {
    let n = 500_i32;
    let mut ints = [0, 10, 1000, -1000, 0xff, 0, 0];
    let mut uints = [5, 1_000_000, u32::MAX, 7, 0];
    let (ints_before, uints_before) = (ints, uints);
    for i in 0..n {
        ints[0] += i - 100;
        ints[1] -= 3;
        ints[2] = ints[2].min(50 - i);
        ints[3] = ints[3].max(i - 400);
        ints[4] &= !(1 << (i % 8));
        ints[5] |= 1 << (i % 20);
        ints[6] ^= i;
        uints[0] = u32::wrapping_add(uints[0], 0x0100_0001);
        uints[1] -= 1;
        uints[2] = uints[2].min(0x8000_0000 + i.cast_unsigned());
        uints[3] = uints[3].max(0x8000_0000 + i.cast_unsigned());
        uints[4] ^= 1 << (i % 32);
    }
    Run::kernel(&SOURCE, "device_integers")
        .update(0, &ints_before)
        .update(1, &uints_before)
        .threads(n as usize, 64)
        .expect(0, &ints)
        .expect(1, &uints);
}

#[test]
fn every_thread_gets_its_own_ticket() {
    Run::kernel(&SOURCE, "tickets")
        .output::<u32>(0, 1)
        .output::<u32>(1, 300)
        .update(2, &[u32::MAX])
        .threads(300, 32)
        .expect(0, &[300_u32])
        .check(1, |launch, taken: &[u32]| {
            let mut taken = taken.to_vec();
            taken.sort_unstable();
            assert_eq!(taken, (1..=300).collect::<Vec<u32>>(), "{launch}");
        })
        .check(2, |launch, last: &[u32]| {
            assert!(last[0] < 300, "{launch}: {last:?}");
        });
}

#[test]
fn atomics_return_the_value_before() {
    let expected = [12, 12, 13, 15, 10, 2, 11, 4, -4, 0, 40, 40];
    Run::kernel(&SOURCE, "results")
        .output::<i32>(0, 1)
        .output::<i32>(1, expected.len())
        .threads(1, 1)
        .expect(0, &[40])
        .expect(1, &expected);
}

#[test]
fn compare_and_exchange_loops_terminate_without_lost_updates() {
    let input: Vec<f32> = (0..1000).map(|i| ((i * 7919) % 1009) as f32).collect();
    Run::kernel(&SOURCE, "compare_exchange")
        .output::<f32>(0, 1)
        .input(1, &input)
        .output::<i32>(2, 1)
        .threads(1000, 100)
        .expect(0, &[input.iter().copied().fold(0.0, f32::max)])
        .expect(2, &[input.iter().sum::<f32>() as i32]);
}

#[test]
fn float_atomics_add_in_device_memory() {
    let input: Vec<f32> = (0..1024).map(|i| (i % 9) as f32 * 0.25).collect();
    Run::kernel(&SOURCE, "floats")
        .update(0, &[1.0_f32, 0., 0., 0., 0.])
        .input(1, &input)
        .threads(1024, 128)
        .expect(0, &[1.0 + input.iter().sum::<f32>(), -512., 2.5, 5., 8.]);
}

#[test]
fn threadgroup_atomics_count_a_histogram() {
    let input: Vec<u8> = (0..1000_u32).map(|i| (i * i % 251) as u8).collect();
    let mut expected = [0_u32; 17];
    for value in &input {
        expected[usize::from(value % 16)] += 1;
        expected[16] = expected[16].max(u32::from(*value));
    }
    Run::kernel(&SOURCE, "histogram")
        .input(0, &input)
        .output::<u32>(1, 17)
        .bytes(2, &1000_u32)
        .threadgroups(4, 256)
        .expect(1, &expected);
}

#[test]
fn atomics_work_in_structs() {
    Run::kernel(&SOURCE, "in_structs")
        .update(0, &[0, 40, 0_u32])
        .update(1, &[0_u32])
        .threads(100, 32)
        .expect(0, &[40, 40, 780_u32])
        .check(1, |launch, seen: &[u8]| assert_eq!(seen[0], 1, "{launch}"));
}
