//! Expressions for the instructions that only compute.

use crate::DType;
use crate::metal::kernel::msl_name;
use crate::program::{Condition, Instruction, Operand, Register, RegisterSpan, Value};

/// The variable of a register that holds a type.
pub(super) fn variable(register: Register, dtype: DType) -> String {
    let name = register.to_string();
    format!("{}_{dtype}", name.trim_start_matches('%'))
}

/// Type of the values of an operand.
pub(super) fn dtype(operand: Operand<'_>) -> Option<DType> {
    match operand {
        Operand::DType(dtype)
        | Operand::Read(_, dtype)
        | Operand::Write(_, dtype)
        | Operand::Update(_, dtype)
        | Operand::Span(_, dtype) => Some(dtype),
        _ => None,
    }
}

/// A constant.
pub(super) fn constant(value: Value) -> String {
    let (dtype, bits) = (value.dtype(), value.bits());
    let name = msl_name(dtype);
    let is_simple = |x: f32| x == 0.0 || x.is_normal();
    match dtype {
        DType::F32 => {
            let x = f32::from_bits(bits as u32);
            if is_simple(x) {
                format!("{x:?}f")
            } else {
                format!("as_type<float>({bits:#010x}u)")
            }
        }
        DType::F16 | DType::BF16 => format!("as_type<{name}>(ushort({bits:#06x}))"),
        DType::I64 if bits == 1 << 63 => "long(0x8000000000000000ul)".to_owned(),
        _ if dtype.is_unsigned() => format!("{name}({bits}ul)"),
        // The bits are zero-extended.
        _ => {
            let unused = 64 - 8 * dtype.size() as u32;
            format!("{name}({}l)", (bits << unused).cast_signed() >> unused)
        }
    }
}

/// The register that an instruction writes without being able to fail, its type and the value. `None` for other instructions.
pub(super) fn result(instruction: &Instruction) -> Option<(Register, DType, String)> {
    use Instruction as I;
    let unary = |function: &str, dtype, dst, src| {
        let x = computed(src, dtype);
        Some((dst, dtype, format!("{}({function}({x}))", msl_name(dtype))))
    };
    let binary = |function: &str, dtype, dst, [a, b]: [Register; 2]| {
        Some((dst, dtype, call(function, dtype, [a, b])))
    };
    match *instruction {
        I::Mov { dtype, dst, src } => Some((dst, dtype, variable(src, dtype))),
        I::MovImm { dtype, dst, value } => {
            Some((dst, dtype, constant(Value::from_bits(dtype, value))))
        }
        I::Cvt {
            dtype,
            dst_type,
            dst,
            src,
        } => {
            let value = format!(
                "converted<{}>({})",
                msl_name(dst_type),
                computed(src, dtype)
            );
            Some((dst, dst_type, value))
        }
        I::Add {
            dtype,
            dst,
            src1,
            src2,
        } => binary("binary_add", dtype, dst, [src1, src2]),
        I::Sub {
            dtype,
            dst,
            src1,
            src2,
        } => binary("binary_sub", dtype, dst, [src1, src2]),
        I::Mul {
            dtype,
            dst,
            src1,
            src2,
        } => binary("binary_mul", dtype, dst, [src1, src2]),
        I::Div {
            dtype,
            dst,
            src1,
            src2,
        } if dtype.is_float() => binary("binary_div", dtype, dst, [src1, src2]),
        I::Min {
            dtype,
            dst,
            src1,
            src2,
        } => binary("least", dtype, dst, [src1, src2]),
        I::Max {
            dtype,
            dst,
            src1,
            src2,
        } => binary("greatest", dtype, dst, [src1, src2]),
        I::And {
            dtype,
            dst,
            src1,
            src2,
        } => binary("binary_bitwise_and", dtype, dst, [src1, src2]),
        I::Or {
            dtype,
            dst,
            src1,
            src2,
        } => binary("binary_bitwise_or", dtype, dst, [src1, src2]),
        I::Xor {
            dtype,
            dst,
            src1,
            src2,
        } => binary("binary_bitwise_xor", dtype, dst, [src1, src2]),
        I::Pow {
            dtype,
            dst,
            src1,
            src2,
        } => binary("binary_pow", dtype, dst, [src1, src2]),
        I::Mad {
            dtype,
            dst,
            a,
            b,
            c,
        } => {
            let product = widened(&call("binary_mul", dtype, [a, b]), dtype);
            let sum = format!("binary_add({product}, {})", computed(c, dtype));
            Some((dst, dtype, format!("{}({sum})", msl_name(dtype))))
        }
        I::Fma {
            dtype,
            dst,
            a,
            b,
            c,
        } => {
            let [a, b, c] = [a, b, c].map(|r| computed(r, dtype));
            Some((
                dst,
                dtype,
                format!("{}(fma({a}, {b}, {c}))", msl_name(dtype)),
            ))
        }
        I::Abs { dtype, dst, src } => unary("unary_abs", dtype, dst, src),
        I::Neg { dtype, dst, src } => unary("unary_neg", dtype, dst, src),
        I::Not { dtype, dst, src } => unary("unary_bitwise_not", dtype, dst, src),
        I::Exp { dtype, dst, src } => unary("unary_exp", dtype, dst, src),
        I::Log { dtype, dst, src } => unary("unary_log", dtype, dst, src),
        I::Log2 { dtype, dst, src } => unary("unary_log2", dtype, dst, src),
        I::Log10 { dtype, dst, src } => unary("unary_log10", dtype, dst, src),
        I::Sqrt { dtype, dst, src } => unary("unary_sqrt", dtype, dst, src),
        I::Rsqrt { dtype, dst, src } => unary("unary_rsqrt", dtype, dst, src),
        I::Sin { dtype, dst, src } => unary("unary_sin", dtype, dst, src),
        I::Cos { dtype, dst, src } => unary("unary_cos", dtype, dst, src),
        I::Tan { dtype, dst, src } => unary("unary_tan", dtype, dst, src),
        I::Tanh { dtype, dst, src } => unary("unary_tanh", dtype, dst, src),
        I::Sigmoid { dtype, dst, src } => unary("unary_sigmoid", dtype, dst, src),
        I::Shl {
            dtype,
            dst,
            src,
            amount,
        } => shift("shifted_left", dtype, dst, [src, amount]),
        I::Shr {
            dtype,
            dst,
            src,
            amount,
        } => shift("shifted_right", dtype, dst, [src, amount]),
        I::Sel {
            dtype,
            dst,
            pred,
            src_true,
            src_false,
        } => {
            let [yes, no] = [src_true, src_false].map(|r| variable(r, dtype));
            Some((dst, dtype, format!("{pred} ? {yes} : {no}")))
        }
        I::ReduceAdd { dtype, dst, src } => Some((dst, dtype, reduce("binary_add", dtype, src))),
        I::ReduceMul { dtype, dst, src } => Some((dst, dtype, reduce("binary_mul", dtype, src))),
        I::ReduceMin { dtype, dst, src } => Some((dst, dtype, reduce("least", dtype, src))),
        I::ReduceMax { dtype, dst, src } => Some((dst, dtype, reduce("greatest", dtype, src))),
        I::ClsGet { dst } => Some((dst, DType::U8, "uchar(block_number % 96)".to_owned())),
        I::PhaseGet { dst } => Some((dst, DType::U32, "phase".to_owned())),
        _ => None,
    }
}

/// The value of a register in the type that it is computed in.
fn computed(register: Register, dtype: DType) -> String {
    widened(&variable(register, dtype), dtype)
}

fn widened(value: &str, dtype: DType) -> String {
    match dtype {
        DType::F16 | DType::BF16 => format!("float({value})"),
        _ => value.to_owned(),
    }
}

/// A function of two registers, rounded to their type.
pub(super) fn call(function: &str, dtype: DType, [a, b]: [Register; 2]) -> String {
    let [a, b] = [a, b].map(|r| computed(r, dtype));
    format!("{}({function}({a}, {b}))", msl_name(dtype))
}

fn shift(
    function: &str,
    dtype: DType,
    dst: Register,
    [x, amount]: [Register; 2],
) -> Option<(Register, DType, String)> {
    let (x, amount) = (variable(x, dtype), variable(amount, DType::U32));
    Some((dst, dtype, format!("{function}({x}, {amount})")))
}

/// A function of several registers, from the first to the last.
fn reduce(function: &str, dtype: DType, span: RegisterSpan) -> String {
    let name = msl_name(dtype);
    let mut registers = span.registers();
    let first = registers.next().map(|r| variable(r, dtype));
    registers.fold(first.unwrap_or_default(), |sum, register| {
        let (sum, next) = (widened(&sum, dtype), computed(register, dtype));
        format!("{name}({function}({sum}, {next}))")
    })
}

/// A comparison of two registers. With NaN it is false, except `!=`.
pub(super) fn comparison(condition: Condition, dtype: DType, [a, b]: [Register; 2]) -> String {
    let operator = match condition {
        Condition::Eq => "==",
        Condition::Ne => "!=",
        Condition::Lt | Condition::Ltu => "<",
        Condition::Le | Condition::Leu => "<=",
        Condition::Gt | Condition::Gtu => ">",
        Condition::Ge | Condition::Geu => ">=",
    };
    format!("{} {operator} {}", computed(a, dtype), computed(b, dtype))
}
