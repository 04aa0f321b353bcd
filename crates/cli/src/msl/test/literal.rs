//! Literal values in a test, possibly in nested lists.

use anyhow::{Result, bail};
use bessemer::DType;
use bessemer::npy::Array;
use toml::Value;

use crate::dtype::{Elements as _, Number};

/// Parses literal values of a type; the nesting of the lists determines the shape.
pub(super) fn array(value: &Value, dtype: DType) -> Result<Array> {
    let mut data = Vec::new();
    let shape = append(value, dtype, &mut data)?;
    Ok(Array { dtype, shape, data })
}

/// Appends a value's elements and returns its shape.
fn append(value: &Value, dtype: DType, data: &mut Vec<u8>) -> Result<Vec<usize>> {
    let Value::Array(items) = value else {
        let number = number(value, dtype)?;
        let start = data.len();
        data.resize(start + dtype.size(), 0);
        dtype.store(number, &mut data[start..]);
        return Ok(Vec::new());
    };
    let mut inner: Option<Vec<usize>> = None;
    for item in items {
        let shape = append(item, dtype, data)?;
        match &inner {
            Some(first) if *first != shape => bail!("the lists have different lengths"),
            _ => inner = Some(shape),
        }
    }
    let mut shape = vec![items.len()];
    shape.extend(inner.unwrap_or_default());
    Ok(shape)
}

fn number(value: &Value, dtype: DType) -> Result<Number> {
    match value {
        Value::Float(v) if dtype.is_float() => Ok(Number::Float(*v)),
        // Integers in range, and floats without a decimal point.
        Value::Integer(v) => dtype.parse(&v.to_string()),
        Value::Boolean(v) if dtype == DType::Bool => Ok(Number::Int((*v).into())),
        // For values that TOML cannot express: 64-bit unsigned integers.
        Value::String(text) => dtype.parse(text),
        Value::Float(v) => bail!("{v} is not a value of type {dtype}"),
        Value::Boolean(v) => bail!("{v} is not a value of type {dtype}"),
        other => bail!("a {} is not a value of type {dtype}", other.type_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, dtype: DType) -> Result<Array> {
        let table: toml::Table = format!("v = {text}").parse().unwrap();
        array(&table["v"], dtype)
    }

    #[test]
    fn nested_lists_have_a_shape() {
        let array = parse("[[1, 2.5, -3], [nan, inf, 4]]", DType::F32).unwrap();
        assert_eq!(array.shape, [2, 3]);
        let shown: Vec<_> = array
            .data
            .chunks_exact(4)
            .map(|e| DType::F32.format(e))
            .collect();
        assert_eq!(shown, ["1.0", "2.5", "-3.0", "NaN", "inf", "4.0"]);
        assert_eq!(parse("7", DType::U8).unwrap().shape, [0; 0]);
        assert_eq!(parse("[]", DType::U8).unwrap().shape, [0]);
    }

    #[test]
    fn values_outside_the_type_are_rejected() {
        let message = |text, dtype| parse(text, dtype).unwrap_err().to_string();
        assert!(message("[1.5]", DType::I32).contains("1.5 is not a value of type i32"));
        assert!(message("[256]", DType::U8).contains("does not fit u8"));
        assert!(message("[[1], [2, 3]]", DType::U8).contains("different lengths"));
        assert!(message("[true]", DType::F32).contains("not a value of type f32"));
        assert_eq!(
            parse("['18446744073709551615']", DType::U64).unwrap().data,
            [255; 8]
        );
    }
}
