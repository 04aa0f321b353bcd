//! Block formats against ggml: `tests/data/ggml_quant` has rows of weights, their blocks as quantised by ggml, the
//! dequantised values, and their products with a vector.
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

use std::fs;
use std::path::{Path, PathBuf};

use bessemer::quant::{
    BlockFormat, Precision, Product, QuantMatrix, dequantize, multiply, multiply_fine, quantize,
};
use bessemer_testing::tolerance::bound;

const COLS: usize = 512;
const ROWS: usize = 5;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/ggml_quant")
        .join(name)
}

fn floats(name: &str) -> Vec<f32> {
    let bytes = fs::read(file(name)).unwrap();
    let (words, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty());
    words.iter().map(|w| f32::from_le_bytes(*w)).collect()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
}

fn index(format: BlockFormat) -> serde_json::Value {
    let text = fs::read_to_string(file("index.json")).unwrap();
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    all["types"][format.name().to_uppercase()].clone()
}

fn blocks(format: BlockFormat) -> Vec<u8> {
    fs::read(file(&format!("{}.q", format.name().to_uppercase()))).unwrap()
}

#[test]
fn block_sizes_and_type_ids_match_ggml() {
    for format in BlockFormat::ALL {
        let index = index(format);
        assert_eq!(index["ggml_type"], format.ggml_type());
        assert_eq!(index["block"], format.block_len());
        assert_eq!(index["block_bytes"], format.block_bytes());
        assert_eq!(
            index["row_bytes"],
            format.row_bytes(COLS).unwrap(),
            "{format}"
        );
        assert_eq!(
            BlockFormat::from_ggml_type(format.ggml_type()),
            Some(format)
        );
        assert_eq!(format.name().parse(), Ok(format));
        assert_eq!(format.name().to_uppercase().parse(), Ok(format));
    }
    assert_eq!(BlockFormat::from_ggml_type(0), None);
}

#[test]
fn dequantisation_is_bit_identical_to_ggml() {
    for format in BlockFormat::ALL {
        let expected = floats(&format!("{}.deq_f32", format.name().to_uppercase()));
        let mut actual = vec![0.0; expected.len()];
        dequantize(format, &blocks(format), &mut actual).unwrap();
        assert_eq!(bits(&actual), bits(&expected), "{format}");
    }
}

#[test]
fn quantisation_is_bit_identical_to_ggml() {
    let source = floats("src_5x512.f32");
    for format in BlockFormat::ALL {
        let (expected, actual) = (blocks(format), quantize(format, &source).unwrap());
        let size = format.block_bytes();
        let pairs = actual.chunks(size).zip(expected.chunks(size));
        for (i, (a, e)) in pairs.enumerate() {
            assert_eq!(a, e, "block {i} of {format}");
        }
    }
}

#[test]
fn round_trip_error_matches_ggml() {
    let source = floats("src_5x512.f32");
    for format in BlockFormat::ALL {
        let mut back = vec![0.0; source.len()];
        dequantize(format, &quantize(format, &source).unwrap(), &mut back).unwrap();
        let expected = &index(format)["rel_rmse_rows0_3"];
        for row in 0..ROWS - 1 {
            let pairs = || {
                let range = row * COLS..(row + 1) * COLS;
                source[range.clone()].iter().zip(&back[range])
            };
            let error: f64 = pairs().map(|(a, b)| f64::from(a - b).powi(2)).sum();
            let size: f64 = pairs().map(|(a, _)| f64::from(*a).powi(2)).sum();
            let expected = expected[row].as_f64().unwrap();
            assert!(
                ((error / size).sqrt() - expected).abs() < bound::QUANT_ROUND_TRIP,
                "row {row} of {format}"
            );
        }
    }
}

#[test]
fn rejects_lengths_that_are_not_whole_blocks() {
    let error = quantize(BlockFormat::Q4K, &[0.0; 32]).unwrap_err();
    assert!(error.to_string().contains("256"), "{error}");
    let error = dequantize(BlockFormat::Q8_0, &[0; 33], &mut [0.0; 32]).unwrap_err();
    assert!(error.to_string().contains("34 bytes"), "{error}");
    assert!("q9".parse::<BlockFormat>().is_err());
}

#[test]
fn arbitrary_bytes_dequantise_without_panic() {
    // Files are not trusted: any bytes must dequantise to some value.
    for format in BlockFormat::ALL {
        for fill in [0x00, 0xFF, 0x7C, 0xA5] {
            let mut to = vec![0.0; format.block_len()];
            dequantize(format, &vec![fill; format.block_bytes()], &mut to).unwrap();
        }
    }
}

#[test]
fn products_agree_with_ggml() {
    let x = floats("act_512.f32");
    for format in BlockFormat::ALL {
        let index = index(format);
        let matrix = QuantMatrix::from_bytes(format, [ROWS, COLS], blocks(format)).unwrap();
        let product = |matrix: &QuantMatrix, precision| {
            let mut to = [0.0; ROWS];
            multiply(
                &x,
                precision,
                &mut [Product {
                    matrix,
                    to: &mut to,
                }],
            )
            .unwrap();
            to
        };
        let exact = product(&matrix, Precision::Exact);
        let fast = product(&matrix.repacked(), Precision::Fast);
        let mut weights = vec![0.0; COLS];
        for row in 0..ROWS {
            matrix.row(row, &mut weights);
            // Maximum error of rounding activations to 8 bits: half a step of the block of 32, times the weight.
            let top = |x: &[f32]| f64::from(x.iter().fold(0.0_f32, |top, v| top.max(v.abs())));
            let groups = || weights.chunks(32).zip(x.chunks(32));
            let max_error: f64 = groups()
                .map(|(w, x)| w.iter().map(|&w| f64::from(w.abs())).sum::<f64>() * top(x) / 254.0)
                .sum();
            // Random differences between our product and ggml's. With blocks of 32 both have the same integers, but
            // ggml's scales are f16, with an error of up to 2⁻¹¹. With blocks of 256 ggml has one scale for the block,
            // so that both round independently, with an error of up to half a step.
            let mut variance = 0.0;
            for (i, (w, own)) in groups().enumerate() {
                let square: f64 = w.iter().map(|&w| f64::from(w).powi(2)).sum();
                let dot: f64 = w.iter().zip(own).map(|(&w, &x)| f64::from(w * x)).sum();
                if format.block_len() == 256 {
                    let theirs = top(&x[i / 8 * 256..][..256]);
                    let steps = (top(own).powi(2) + theirs.powi(2)) / (127.0 * 127.0);
                    variance += square * steps / 12.0;
                } else {
                    // In formats with a minimum, its product with the sum of activations has a separate scale.
                    let least = w.iter().fold(f32::INFINITY, |l, &w| l.min(w));
                    let sum: f64 = own.iter().map(|&x| f64::from(least * x)).sum();
                    variance += ((dot - sum).powi(2) + sum.powi(2)) / 2048_f64.powi(2) / 3.0;
                }
            }
            let number = |key: &str| index[key][row].as_f64().unwrap();
            let off = (f64::from(exact[row]) - number("dot_of_dequantised_f64")).abs();
            assert!(
                off <= max_error * bound::QUANT_SUM_SHARE,
                "{format} row {row} exact: {off}"
            );
            let off = (f64::from(fast[row]) - number("vec_dot_rows")).abs();
            assert!(
                off <= 4.0 * variance.sqrt() + max_error * bound::QUANT_SUM_SHARE,
                "{format} row {row} fast: {off}"
            );
        }
    }
}

#[test]
fn repacking_does_not_change_products() {
    // Partial panels of rows, and partial batches of vectors.
    const ROWS: usize = 21;
    let number = |i: usize| ((i * 7919 + 13) % 2003) as f32 / 1001.5 - 1.0;
    let source: Vec<f32> = (0..ROWS * COLS)
        .map(|i| number(i) * number(i / 77))
        .collect();
    for format in BlockFormat::ALL {
        let blocks = quantize(format, &source).unwrap();
        let matrix = QuantMatrix::from_bytes(format, [ROWS, COLS], blocks).unwrap();
        let repacked = matrix.repacked();
        for vectors in [1, 2, 3, 4, 7, 13] {
            let x: Vec<f32> = (0..vectors * COLS).map(|i| number(3 * i + 5)).collect();
            let product = |matrix: &QuantMatrix, precision| {
                let mut to = vec![0.0; vectors * ROWS];
                let products = &mut [Product {
                    matrix,
                    to: &mut to,
                }];
                multiply(&x, precision, products).unwrap();
                to
            };
            let plain = product(&matrix, Precision::Fast);
            let fast = product(&repacked, Precision::Fast);
            let exact = product(&matrix, Precision::Exact);
            let [fine, fine_plain] = [&repacked, &matrix].map(|matrix| {
                let mut to = vec![0.0; vectors * ROWS];
                let products = &mut [Product {
                    matrix,
                    to: &mut to,
                }];
                multiply_fine(&x, products).unwrap();
                to
            });
            for i in 0..plain.len() {
                let near = (plain[i] - fast[i]).abs() < bound::QUANT_ORDER;
                assert!(near, "{format} {vectors}: {} {}", plain[i], fast[i]);
                let near = (exact[i] - fast[i]).abs() < bound::EIGHT_BIT;
                assert!(near, "{format} {vectors}: {} {}", exact[i], fast[i]);
                for fine in [&fine, &fine_plain] {
                    let near = (exact[i] - fine[i]).abs() < bound::FIXED_POINT;
                    assert!(near, "{format} {vectors}: {} {}", exact[i], fine[i]);
                }
            }
        }
    }
}
