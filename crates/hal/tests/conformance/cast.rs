//! Conversions by value and by bits.

use half::{bf16, f16};

use crate::harness::{Run, Source, source};

const SOURCE: Source = source!("cast.metal");

#[test]
fn as_type_keeps_the_bits() {
    let v = [0x3fc0_1234_u32, 0xdead_beef, 0x0102_3c00, 0x4142_4344];
    let expected = [
        v[0],
        v[1],
        v[0],
        v[0].rotate_left(16),
        v[1].swap_bytes(),
        v[2].rotate_left(16),
        v[2] & 0xffff,
        v[3] & 0xffff,
        v[3],
        v[0],
        v[1],
        v[1],
        v[0],
        0x3f80_0000,
        0xc000,
        0x8000_0000,
        1,
    ];
    Run::kernel(&SOURCE, "bits")
        .input(0, &v)
        .output::<u32>(1, expected.len())
        .threads(1, 1)
        .expect(1, &expected);
}

#[test]
fn floats_become_integers_by_truncation() {
    let values = [
        0.0_f32, -0.0, 0.9, -0.9, 1.5, -1.5, 2.999, 200.7, -100.2, 255.0, 1e-30,
    ];
    let magnitudes = values.map(f32::abs);
    Run::kernel(&SOURCE, "from_float")
        .input(0, &values)
        .output::<i32>(1, values.len())
        .output::<u32>(2, values.len())
        .output::<i16>(3, values.len())
        .output::<u8>(4, values.len())
        .output::<i64>(5, values.len())
        .output::<u16>(6, values.len())
        .output::<u16>(7, values.len())
        .output::<u16>(8, values.len())
        .threads(values.len(), 32)
        .expect(1, &values.map(|v| v as i32))
        .expect(2, &magnitudes.map(|v| v as u32))
        .expect(3, &values.map(|v| v as i16))
        .expect(4, &magnitudes.map(|v| v as u8))
        .expect(5, &values.map(|v| v as i64 * 3))
        .expect(6, &values.map(|v| u16::from(v != 0.0)))
        .expect(7, &values.map(|v| f16::from_f32(v).to_bits()))
        .expect(8, &values.map(|v| bf16::from_f32(v).to_bits()));
}

#[test]
fn floats_round_to_the_nearest_even_narrow_value() {
    // Half: 11 bits of significand, so 2049 and 2051 lie half-way; bfloat has 8: 257 and 259 do.
    let values = [
        2048.0_f32,
        2049.0,
        2050.0,
        2051.0,
        2049.001,
        257.0,
        259.0,
        257.01,
        1.0 / 3.0,
        65504.0,
        65519.0,
        65520.0,
        1e6,
        -1e6,
        3.3e38,
        0.1,
        -0.1,
    ];
    let halves = values.map(f16::from_f32);
    let bfloats = values.map(bf16::from_f32);
    let back: Vec<f32> = (0..values.len())
        .flat_map(|i| [halves[i].to_f32(), bfloats[i].to_f32()])
        .collect();
    Run::kernel(&SOURCE, "narrow")
        .input(0, &values)
        .output::<f16>(1, values.len())
        .output::<bf16>(2, values.len())
        .output::<f32>(3, 2 * values.len())
        .threads(values.len(), 32)
        .expect(1, &halves)
        .expect(2, &bfloats)
        .expect(3, &back);
}

#[test]
fn integers_round_to_the_nearest_even_float() {
    let values = [
        0,
        1,
        -1,
        7,
        16_777_217,
        16_777_219,
        i32::MAX,
        i32::MIN,
        2049,
        -2051,
    ];
    let floats: Vec<f32> = values
        .iter()
        .flat_map(|v| {
            [
                *v as f32,
                v.cast_unsigned() as f32,
                (i64::from(*v) << 20) as f32,
            ]
        })
        .collect();
    Run::kernel(&SOURCE, "from_integers")
        .input(0, &values)
        .output::<f32>(1, floats.len())
        .output::<f16>(2, values.len())
        .threads(values.len(), 32)
        .expect(1, &floats)
        .expect(2, &values.map(|v| f16::from_f32(f32::from(v as i16))));
}

#[test]
fn half_and_bfloat_convert_into_each_other() {
    let values = [0.0_f32, 1.0, -2.5, 1.0 + 1.0 / 1024.0, 65504.0, 3.140_625].map(f16::from_f32);
    let bfloats = values.map(|v| bf16::from_f32(v.to_f32()));
    Run::kernel(&SOURCE, "between_narrow")
        .input(0, &values)
        .output::<bf16>(1, values.len())
        .output::<f16>(2, values.len())
        .threads(values.len(), 32)
        .expect(1, &bfloats)
        .expect(2, &bfloats.map(|v| f16::from_f32(v.to_f32())));
}
