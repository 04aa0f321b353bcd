use bessemer::{DType, Tensor};
use bessemer_testing::case::{check, shape};
use bessemer_testing::layout::same;
use bessemer_testing::{Array, Value};

#[test]
fn every_type_and_shape_is_filled() {
    for dtype in DType::ALL {
        check(&format!("full of {dtype}"), 20, shape(5, 3000), |shape| {
            let filled = |v: i128| Array::from_fn(dtype, shape, |_| Value::Int(v).cast(dtype));
            same(&Tensor::zeros(&shape[..], dtype), &filled(0))?;
            same(&Tensor::ones(&shape[..], dtype), &filled(1))?;
            same(&Tensor::full(&shape[..], 1, dtype), &filled(1))
        });
    }
}
