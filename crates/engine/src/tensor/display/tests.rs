#![expect(clippy::approx_constant, reason = "digits to be printed")]

use half::{bf16, f16};

use crate::{DType, Element, Error, Tensor};

fn tensor<T: Element>(data: &[T], shape: &[usize]) -> Tensor {
    Tensor::from_slice(data, shape)
}

#[test]
fn text_matches_numpy() {
    struct Case {
        tensor: Tensor,
        precision: Option<usize>,
        /// The output of NumPy 2.4; with a precision, in `floatmode="fixed"`.
        text: &'static str,
    }
    let case = |tensor, precision, text| Case {
        tensor,
        precision,
        text,
    };
    let cases = [
        case(tensor(&[1.0, 2.0, 3.0_f32], &[3]), None, "[1. 2. 3.]"),
        case(
            tensor(&[1.5, -0.25, 100.0, 0.0_f32], &[2, 2]),
            None,
            "[[  1.5   -0.25]\n [100.     0.  ]]",
        ),
        case(tensor(&[0.1, 0.2, 0.3_f32], &[3]), None, "[0.1 0.2 0.3]"),
        case(
            tensor(&[0.3333333333333333, 0.6666666666666666_f64], &[2]),
            None,
            "[0.33333333 0.66666667]",
        ),
        case(tensor(&[1e-05, 1.0_f32], &[2]), None, "[1.e-05 1.e+00]"),
        case(
            tensor(&[10000000000.0, 1.0_f64], &[2]),
            None,
            "[1.e+10 1.e+00]",
        ),
        case(
            tensor(&[1234567.0, 1.0_f32], &[2]),
            None,
            "[1.234567e+06 1.000000e+00]",
        ),
        case(
            tensor(&[1234567.0, 100000.0_f64], &[2]),
            None,
            "[1234567.  100000.]",
        ),
        case(
            tensor(&[f32::NAN, 1.0, f32::INFINITY, -f32::INFINITY], &[4]),
            None,
            "[ nan   1.  inf -inf]",
        ),
        case(tensor(&[f32::NAN, f32::NAN], &[2]), None, "[nan nan]"),
        case(
            tensor(&[1e-300, -1e+100_f64], &[2]),
            None,
            "[ 1.e-300 -1.e+100]",
        ),
        case(tensor(&[0.0, -0.0_f32], &[2]), None, "[ 0. -0.]"),
        case(tensor(&[3.141_592_7_f32], &[]), None, "3.1415927"),
        case(tensor(&[1e-07_f32], &[]), None, "1e-07"),
        case(tensor(&[1e+20_f64], &[]), None, "1e+20"),
        case(tensor(&[2.0_f32], &[]), None, "2.0"),
        case(tensor(&[f32::NAN], &[]), None, "nan"),
        case(
            tensor(&[1.0, -22.5, 3.14159, 0.001_f32], &[2, 2]),
            Some(3),
            "[[ 1.000e+00 -2.250e+01]\n [ 3.142e+00  1.000e-03]]",
        ),
        case(
            tensor(&[1e-09, 1.0_f32], &[2]),
            Some(2),
            "[1.00e-09 1.00e+00]",
        ),
        case(tensor(&[2.5_f32], &[]), Some(0), "2."),
        case(tensor(&[2.0, f32::INFINITY], &[2]), Some(1), "[2.0 inf]"),
        case(tensor(&[1, -20, 300_i32], &[3]), None, "[  1 -20 300]"),
        case(tensor(&[0, 255_u8], &[1, 2]), None, "[[  0 255]]"),
        case(
            tensor(&[-9223372036854775808, 9223372036854775807_i64], &[2]),
            None,
            "[-9223372036854775808  9223372036854775807]",
        ),
        case(tensor(&[7_i32], &[]), None, "7"),
        case(
            tensor(&[1, 2, 3, 4, 5, 6, 7, 8_i32], &[2, 2, 2]),
            None,
            "[[[1 2]\n  [3 4]]\n\n [[5 6]\n  [7 8]]]",
        ),
        case(
            tensor(&[1, 2, 3, 4_i32], &[2, 1, 2, 1]),
            None,
            "[[[[1]\n   [2]]]\n\n\n [[[3]\n   [4]]]]",
        ),
        case(
            Tensor::from_slice(&[true, false, true], [3]),
            None,
            "[ true false  true]",
        ),
        case(Tensor::from_slice(&[true], []), None, "true"),
        case(
            Tensor::arange(0, 1001, 1, DType::I32),
            None,
            "[   0    1    2 ...  998  999 1000]",
        ),
        case(
            Tensor::arange(0, 1000, 1, DType::I32)
                .reshape([2, 500])
                .index(0, 0)
                .narrow(0, 0, 30),
            None,
            "[ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23\n 24 25 26 27 28 29]",
        ),
        case(
            Tensor::arange(0, 10000, 1, DType::F32).reshape([100, 100]),
            None,
            "[[0.000e+00 1.000e+00 2.000e+00 ... 9.700e+01 9.800e+01 9.900e+01]\n [1.000e+02 1.010e+02 1.020e+02 ... 1.970e+02 1.980e+02 1.990e+02]\n [2.000e+02 2.010e+02 2.020e+02 ... 2.970e+02 2.980e+02 2.990e+02]\n ...\n [9.700e+03 9.701e+03 9.702e+03 ... 9.797e+03 9.798e+03 9.799e+03]\n [9.800e+03 9.801e+03 9.802e+03 ... 9.897e+03 9.898e+03 9.899e+03]\n [9.900e+03 9.901e+03 9.902e+03 ... 9.997e+03 9.998e+03 9.999e+03]]",
        ),
        case(
            Tensor::arange(0, 2400, 1, DType::I64)
                .reshape([2, 8, 150])
                .flip(&[2]),
            None,
            "[[[ 149  148  147 ...    2    1    0]\n  [ 299  298  297 ...  152  151  150]\n  [ 449  448  447 ...  302  301  300]\n  ...\n  [ 899  898  897 ...  752  751  750]\n  [1049 1048 1047 ...  902  901  900]\n  [1199 1198 1197 ... 1052 1051 1050]]\n\n [[1349 1348 1347 ... 1202 1201 1200]\n  [1499 1498 1497 ... 1352 1351 1350]\n  [1649 1648 1647 ... 1502 1501 1500]\n  ...\n  [2099 2098 2097 ... 1952 1951 1950]\n  [2249 2248 2247 ... 2102 2101 2100]\n  [2399 2398 2397 ... 2252 2251 2250]]]",
        ),
        case(
            Tensor::linspace(0.0, 1.0, 20, DType::F64),
            None,
            "[0.         0.05263158 0.10526316 0.15789474 0.21052632 0.26315789\n 0.31578947 0.36842105 0.42105263 0.47368421 0.52631579 0.57894737\n 0.63157895 0.68421053 0.73684211 0.78947368 0.84210526 0.89473684\n 0.94736842 1.        ]",
        ),
        case(
            Tensor::arange(0, 6, 1, DType::I32).reshape([2, 3]).t(),
            None,
            "[[0 3]\n [1 4]\n [2 5]]",
        ),
    ];
    for Case {
        tensor,
        precision,
        text,
    } in cases
    {
        let written = match precision {
            Some(n) => format!("{tensor:.n$}"),
            None => tensor.to_string(),
        };
        assert_eq!(written, text, "{tensor:?}");
    }
}

#[test]
fn half_precision_is_shown_with_its_shortest_digits() {
    let third = 1.0 / 3.0;
    let x = Tensor::from_slice(&[0.1, 1.5, 1000.0].map(f16::from_f64), [3]);
    assert_eq!(x.to_string(), "[1.0e-01 1.5e+00 1.0e+03]");
    let x = Tensor::from_slice(&[0.1, third].map(f16::from_f64), [2]);
    assert_eq!(x.to_string(), "[0.1    0.3333]");
    let x = Tensor::from_slice(&[0.1, third, 100.0].map(bf16::from_f64), [3]);
    assert_eq!(x.to_string(), "[  0.1     0.334 100.   ]");
    assert_eq!(Tensor::scalar(f16::MAX).to_string(), "6.55e+04");
}

#[test]
fn only_shown_elements_are_read() {
    // More elements than fit in any memory.
    let x = Tensor::full([1 << 25, 1 << 25], 7, DType::U8);
    let row = "[7 7 7 ... 7 7 7]";
    let expected = format!("[{row}\n {row}\n {row}\n ...\n {row}\n {row}\n {row}]");
    assert_eq!(x.to_string(), expected);
}

#[test]
fn empty_tensors_show_their_shape() {
    assert_eq!(
        Tensor::zeros([0, 3], DType::F32).to_string(),
        "[] of shape [0, 3]"
    );
}

#[test]
fn the_alternate_form_adds_type_and_shape() {
    let x = Tensor::from_slice(&[1, 2], [2, 1]);
    assert_eq!(format!("{x:#}"), "[[1]\n [2]]\ni32 [2, 1]");
}

#[test]
fn errors_are_shown_instead_of_values() {
    let bad = Tensor::from_slice(&[1, 2], [3]);
    assert_eq!(bad.to_string(), bad.check().unwrap_err().to_string());
    // This one fails when it is evaluated.
    let huge = Tensor::arange(0, 1_u64 << 57, 1, DType::I64);
    assert!(huge.check().is_ok());
    assert!(huge.to_string().starts_with("arange: no memory for"));
    assert!(matches!(huge.eval(), Err(Error::OutOfMemory { .. })));
}

#[test]
fn precision_is_limited_to_the_digits_a_float_can_have() {
    let x = Tensor::from_slice(&[0.5_f64, f64::NAN], [2]);
    assert_eq!(format!("{x:.300}").len(), 2 * 302 + 4);
    let least = Tensor::from_slice(&[f64::from_bits(1), 1.0], [2]);
    for precision in [1074, 2000, 65535] {
        assert!(format!("{least:.precision$}").contains("4.940656458412465441765687928682"));
    }
}

#[test]
fn debug_shows_the_pending_op_and_does_not_evaluate() {
    let x = Tensor::arange(0, 6, 1, DType::I32);
    assert_eq!(format!("{x:?}"), "Tensor(i32 [6], arange pending)");
    let view = x.reshape([2, 3]).t();
    assert_eq!(
        format!("{view:?}"),
        "Tensor(i32 [3, 2], view by [1, 3] from 0, arange pending)"
    );
    x.eval().unwrap();
    assert_eq!(format!("{x:?}"), "Tensor(i32 [6])");
    let bad = Tensor::from_slice(&[1, 2], [3]);
    assert_eq!(
        format!("{bad:?}"),
        format!("Tensor({})", bad.check().unwrap_err())
    );
}
