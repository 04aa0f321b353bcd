//! Runs ops that standard input describes, one JSON object per line, and prints the results in the same way;
//! `scripts/numpy-opinion` compares them with NumPy's.
//!
//! A case is `{"op": "sum", "inputs": [{"dtype": "f32", "shape": [2], "bytes": "0000803f00000040",
//! "permute": [0]}], "axes": [0], "keepdims": false}`; a result is a tensor in the same form without
//! `permute`, or `{"error": "…"}`.

use std::io::{BufRead, Write};

use bessemer::{DType, Tensor};
use half::{bf16, f16};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let case: Value = serde_json::from_str(&line?)?;
        let answer = answer(&case).unwrap_or_else(|error| json!({ "error": error }));
        writeln!(out, "{answer}")?;
    }
    Ok(())
}

fn answer(case: &Value) -> Result<Value, String> {
    let inputs = case["inputs"].as_array().ok_or("no inputs")?;
    let inputs: Vec<_> = inputs.iter().map(tensor).collect::<Result<_, _>>()?;
    let op = case["op"].as_str().ok_or("no op")?;
    let y = run(op, &inputs, case).ok_or_else(|| format!("{op}: not known here"))?;
    write(&y)
}

fn integers<T: TryFrom<i64>>(value: &Value) -> Vec<T> {
    let list = value.as_array().into_iter().flatten();
    list.filter_map(|i| T::try_from(i.as_i64()?).ok()).collect()
}

fn tensor(input: &Value) -> Result<Tensor, String> {
    let shape: Vec<usize> = integers(&input["shape"]);
    let text = input["bytes"].as_str().ok_or("no bytes")?;
    let bytes: Vec<u8> = (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16))
        .collect::<Result<_, _>>()
        .map_err(|e| e.to_string())?;
    macro_rules! of {
        ($T:ty) => {{
            let parts = bytes.chunks_exact(size_of::<$T>());
            let data: Vec<$T> = parts.map(bytemuck::pod_read_unaligned).collect();
            Tensor::from_vec(data, &shape)
        }};
    }
    let t = match input["dtype"].as_str().unwrap_or_default().parse() {
        Ok(DType::Bool) => Tensor::from_vec(bytes.iter().map(|&b| b != 0).collect(), &shape),
        Ok(DType::U8) => of!(u8),
        Ok(DType::U16) => of!(u16),
        Ok(DType::U32) => of!(u32),
        Ok(DType::U64) => of!(u64),
        Ok(DType::I8) => of!(i8),
        Ok(DType::I16) => of!(i16),
        Ok(DType::I32) => of!(i32),
        Ok(DType::I64) => of!(i64),
        Ok(DType::F16) => of!(f16),
        Ok(DType::BF16) => of!(bf16),
        Ok(DType::F32) => of!(f32),
        Ok(DType::F64) => of!(f64),
        Ok(other) => return Err(format!("no tensors of {other}")),
        Err(error) => return Err(error.to_string()),
    };
    Ok(match &input["permute"] {
        Value::Null => t,
        order => t.permute(&integers::<isize>(order)),
    })
}

fn write(y: &Tensor) -> Result<Value, String> {
    y.check().map_err(|e| e.to_string())?;
    macro_rules! bytes {
        ($T:ty) => {
            bytemuck::cast_slice::<$T, u8>(&y.to_vec::<$T>().map_err(|e| e.to_string())?).to_vec()
        };
    }
    let bytes: Vec<u8> = match y.dtype() {
        DType::Bool => bytes!(bool),
        DType::U8 => bytes!(u8),
        DType::U16 => bytes!(u16),
        DType::U32 => bytes!(u32),
        DType::U64 => bytes!(u64),
        DType::I8 => bytes!(i8),
        DType::I16 => bytes!(i16),
        DType::I32 => bytes!(i32),
        DType::I64 => bytes!(i64),
        DType::F16 => bytes!(f16),
        DType::BF16 => bytes!(bf16),
        DType::F32 => bytes!(f32),
        DType::F64 => bytes!(f64),
        other => return Err(format!("no tensors of {other}")),
    };
    let text: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    Ok(json!({ "dtype": y.dtype().name(), "shape": y.shape().to_vec(), "bytes": text }))
}

/// Calls the method with this name, without arguments or with the second tensor.
macro_rules! method {
    ($op:expr, $x:expr; unary: $($one:ident)*; binary: $($two:ident)*;) => {
        match ($op, $x) {
            $((stringify!($one), [x]) => Some(x.$one()),)*
            $((stringify!($two), [a, b]) => Some(a.$two(b)),)*
            _ => None,
        }
    };
}

fn run(op: &str, x: &[Tensor], case: &Value) -> Option<Tensor> {
    let simple = method!(op, x;
        unary: neg abs sign square sqrt cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan
            sinh cosh tanh asinh acosh atanh ceil floor round trunc is_nan is_inf is_finite logical_not
            bitwise_not reciprocal;
        binary: add sub mul div floor_div rem pow minimum maximum atan2 hypot eq ne lt le gt ge logical_and
            logical_or logical_xor bitwise_and bitwise_or bitwise_xor shift_left shift_right matmul outer;
    );
    if simple.is_some() {
        return simple;
    }
    let axis = case["axis"].as_i64().unwrap_or(0) as isize;
    let axes: Vec<isize> = integers(&case["axes"]);
    let keep = case["keepdims"].as_bool().unwrap_or(false);
    Some(match (op, x) {
        ("sum", [x]) => x.sum(&axes, keep),
        ("prod", [x]) => x.prod(&axes, keep),
        ("mean", [x]) => x.mean(&axes, keep),
        ("var", [x]) => x.var(&axes, keep, 0),
        ("min", [x]) => x.min(&axes, keep),
        ("max", [x]) => x.max(&axes, keep),
        ("any", [x]) => x.any(&axes, keep),
        ("all", [x]) => x.all(&axes, keep),
        ("select", [c, a, b]) => c.select(a, b),
        ("clamp", [x, low, high]) => x.clamp(low, high),
        ("cast", [x]) => x.cast(case["dtype"].as_str()?.parse().ok()?),
        ("flip", [x]) => x.flip(&[axis]),
        ("diagonal", [x]) => x.diagonal(case["k"].as_i64()? as isize, 0, 1),
        _ => return None,
    })
}
