//! The table of instructions. The formats, the builder, the verifier and the executors follow it.

use std::borrow::Borrow;

use super::operand::{
    Address, BinaryOperation, Condition, MapOperation, MemoryScope, Operand, Predicate,
    ReduceOperation, Register, RegisterSpan,
};
use super::{atlas, builder::Builder, tensor_op};
use crate::DType;

/// Group of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Category {
    /// Loads, stores and moves.
    DataMovement,
    /// Arithmetic.
    Arithmetic,
    /// Bits, comparison and selection.
    Logic,
    /// Branches, calls and loops.
    ControlFlow,
    /// Barriers and fences.
    Synchronization,
    /// Classes, phases and the boundary pool.
    AtlasSpecific,
    /// Reductions over registers.
    Reduction,
    /// Elementary functions.
    Transcendental,
    /// Pools.
    PoolStorage,
    /// Ops on whole buffers; they run once per launch. Their operands have names in the text format.
    Tensor,
}

/// Types that an instruction is defined for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Types {
    /// All twelve: integers and floats of every width.
    All,
    /// The eight integer types.
    Int,
    /// Signed integers and floats.
    Signed,
    /// The four floating-point types.
    Float,
    /// `f32`.
    F32,
}

impl Types {
    fn contain(self, dtype: DType) -> bool {
        match self {
            Self::All => dtype != DType::Bool,
            Self::Int => dtype.is_int(),
            Self::Signed => dtype.is_float() || (dtype.is_int() && !dtype.is_unsigned()),
            Self::Float => dtype.is_float(),
            Self::F32 => dtype == DType::F32,
        }
    }

    const fn names(self) -> &'static str {
        match self {
            Self::All => "every type but bool",
            Self::Int => "integers",
            Self::Signed => "signed integers and floats",
            Self::Float => "floats",
            Self::F32 => "f32",
        }
    }
}

/// Reads the operands of an instruction, in the order of the table.
pub(super) trait OperandReader {
    type Error;

    fn dtype(&mut self) -> Result<DType, Self::Error>;
    fn register(&mut self, name: &'static str) -> Result<Register, Self::Error>;
    fn predicate(&mut self) -> Result<Predicate, Self::Error>;
    fn guard(&mut self) -> Result<Option<Predicate>, Self::Error>;
    /// One of several names, as its index.
    fn choice(&mut self, what: &'static str, names: &[&'static str]) -> Result<usize, Self::Error>;
    fn label(&mut self) -> Result<String, Self::Error>;
    fn address(&mut self) -> Result<Address, Self::Error>;
    fn integer(&mut self, name: &'static str, max: u64) -> Result<u64, Self::Error>;
    fn bits(&mut self, dtype: DType) -> Result<u64, Self::Error>;
    fn f32(&mut self, name: &'static str) -> Result<f32, Self::Error>;
    fn f64(&mut self, name: &'static str) -> Result<f64, Self::Error>;
    fn flag(&mut self, name: &'static str) -> Result<bool, Self::Error>;
}

/// The Rust type of a field, by the kind of operand that the table names.
macro_rules! field_type {
    (dtype) => { DType };
    (read) => { Register };
    (write) => { Register };
    (update) => { Register };
    (span) => { RegisterSpan };
    (test) => { Predicate };
    (set) => { Predicate };
    (guard) => { Option<Predicate> };
    (condition) => { Condition };
    (scope) => { MemoryScope };
    (map) => { MapOperation };
    (map_binary) => { BinaryOperation };
    (reduce) => { ReduceOperation };
    (label) => { String };
    (address) => { Address };
    (bits) => { u64 };
    (flag) => { bool };
    ($number:ident) => { $number };
}

/// A function for every kind of operand, from a field.
mod operand_of {
    use super::{
        Address, BinaryOperation, Condition, DType, MapOperation, MemoryScope, Operand, Predicate,
        ReduceOperation, Register, RegisterSpan,
    };

    macro_rules! kinds {
        ($($name:ident $type:ty => $variant:ident;)*) => {
            $(pub(super) fn $name(field: &$type) -> Operand<'_> {
                Operand::$variant(*field)
            })*
        };
    }

    kinds! {
        dtype DType => DType;
        test Predicate => Test;
        set Predicate => Set;
        guard Option<Predicate> => Guard;
        condition Condition => Condition;
        scope MemoryScope => Scope;
        map MapOperation => Map;
        map_binary BinaryOperation => MapBinary;
        reduce ReduceOperation => Reduce;
        address Address => Address;
        f32 f32 => F32;
        f64 f64 => F64;
        flag bool => Flag;
    }

    macro_rules! typed_kinds {
        ($($name:ident $type:ty => $variant:ident;)*) => {
            $(pub(super) fn $name(field: &$type, dtype: DType) -> Operand<'_> {
                Operand::$variant(*field, dtype)
            })*
        };
    }

    typed_kinds! {
        read Register => Read;
        write Register => Write;
        update Register => Update;
        span RegisterSpan => Span;
        bits u64 => Bits;
    }

    macro_rules! integers {
        ($($type:ident)*) => {
            $(pub(super) fn $type(field: &$type) -> Operand<'_> {
                Operand::Integer(u64::from(*field), u64::from($type::MAX))
            })*
        };
    }

    integers!(u8 u16 u32 u64);

    pub(super) fn label(field: &str) -> Operand<'_> {
        Operand::Label(field)
    }
}

/// A type of fields, and how they are read. Constants of a type are bits that depend on it.
trait Field: Sized {
    fn read<R: OperandReader>(
        reader: &mut R,
        name: &'static str,
        dtype: Option<DType>,
    ) -> Result<Self, R::Error>;
}

macro_rules! fields {
    ($($type:ty: |$reader:ident, $name:ident, $dtype:ident| $read:expr;)*) => {
        $(impl Field for $type {
            fn read<R: OperandReader>(
                $reader: &mut R,
                $name: &'static str,
                $dtype: Option<DType>,
            ) -> Result<Self, R::Error> {
                $read
            }
        })*
    };
}

fields! {
    DType: |reader, _name, _dtype| reader.dtype();
    Register: |reader, name, _dtype| reader.register(name);
    RegisterSpan: |reader, name, _dtype| Ok(Self {
        base: reader.register(name)?,
        count: reader.integer("count", u64::from(u32::MAX))? as u32,
    });
    Predicate: |reader, _name, _dtype| reader.predicate();
    Option<Predicate>: |reader, _name, _dtype| reader.guard();
    String: |reader, _name, _dtype| reader.label();
    Address: |reader, _name, _dtype| reader.address();
    f32: |reader, name, _dtype| reader.f32(name);
    f64: |reader, name, _dtype| reader.f64(name);
    bool: |reader, name, _dtype| reader.flag(name);
    u8: |reader, name, _dtype| Ok(reader.integer(name, u64::from(Self::MAX))? as Self);
    u16: |reader, name, _dtype| Ok(reader.integer(name, u64::from(Self::MAX))? as Self);
    u32: |reader, name, _dtype| Ok(reader.integer(name, u64::from(Self::MAX))? as Self);
    u64: |reader, name, dtype| match dtype {
        Some(dtype) => reader.bits(dtype),
        None => reader.integer(name, Self::MAX),
    };
    Condition: |reader, _name, _dtype| choice(reader, "condition", Self::ALL, Self::name);
    MemoryScope: |reader, _name, _dtype| choice(reader, "scope", Self::ALL, Self::name);
    MapOperation: |reader, _name, _dtype| choice(reader, "operation", Self::ALL, Self::name);
    BinaryOperation: |reader, _name, _dtype| choice(reader, "operation", Self::ALL, Self::name);
    ReduceOperation: |reader, _name, _dtype| choice(reader, "operation", Self::ALL, Self::name);
}

fn choice<R: OperandReader, T: Copy>(
    reader: &mut R,
    what: &'static str,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<T, R::Error> {
    let names: Vec<_> = all.iter().map(|&value| name(value)).collect();
    Ok(all[reader.choice(what, &names)?])
}

/// A type that the table names by a field, or as a constant.
fn type_of(dtype: impl Borrow<DType>) -> DType {
    *dtype.borrow()
}

macro_rules! optional_type {
    () => {
        None
    };
    ($dtype:expr) => {
        Some(type_of($dtype))
    };
}

/// Declares [`Instruction`] and everything that follows from the table. A row is
///
/// ```text
/// opcode Variant builder_method "mnemonic" Category Types { field: kind(type), … };
/// ```
///
/// where `Types` are those that the field `dtype` can have (`All` where there is none). The kinds are functions of
/// `operand_of`; a type is given where a register is read or written.
macro_rules! instructions {
    ($(
        $(#[$doc:meta])*
        $opcode:literal $variant:ident $method:ident $mnemonic:literal $category:ident $types:ident {
            $($field:ident: $kind:ident $(($dtype:expr))?),*
        };
    )*) => {
        /// An instruction. `dtype` is the type that it works on; registers must hold that type where nothing else is said.
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        #[expect(missing_docs, reason = "operands are explained by the instruction")]
        pub enum Instruction {
            $(
                $(#[$doc])*
                $variant { $($field: field_type!($kind)),* },
            )*
        }

        impl Instruction {
            /// Opcode, mnemonic and category of every instruction.
            pub const TABLE: &[(u8, &'static str, Category)] =
                &[$(($opcode, $mnemonic, Category::$category)),*];

            /// Number of the instruction in the binary format.
            pub const fn opcode(&self) -> u8 {
                match self {
                    $(Self::$variant { .. } => $opcode,)*
                }
            }

            /// Name in the text format.
            pub const fn mnemonic(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $mnemonic,)*
                }
            }

            /// Group of the instruction.
            pub const fn category(&self) -> Category {
                match self {
                    $(Self::$variant { .. } => Category::$category,)*
                }
            }

            /// Types that the instruction is defined for.
            const fn types(&self) -> Types {
                match self {
                    $(Self::$variant { .. } => Types::$types,)*
                }
            }

            /// Calls `f` with the name and the value of every operand.
            pub fn for_each_operand<'a>(&'a self, mut f: impl FnMut(&'static str, Operand<'a>)) {
                match self {
                    $(Self::$variant { $($field),* } => {
                        $(f(stringify!($field), operand_of::$kind($field $(, type_of($dtype))?));)*
                    })*
                }
            }

            /// The instruction of an opcode, with the operands of a reader. `None` for an unknown opcode.
            pub(super) fn read<R: OperandReader>(
                opcode: u8,
                reader: &mut R,
            ) -> Option<Result<Self, R::Error>> {
                match opcode {
                    $($opcode => {
                        let read = |_reader: &mut R| {
                            $(let $field: field_type!($kind) =
                                Field::read(_reader, stringify!($field), optional_type!($($dtype)?))?;)*
                            Ok(Self::$variant { $($field),* })
                        };
                        Some(read(reader))
                    })*
                    _ => None,
                }
            }
        }

        impl Builder {
            $(builder_method! { $category $(#[$doc])* $method $variant { $($field: $kind),* } })*
        }
    };
}

/// The method of [`Builder`] for an instruction. Those with dozens of operands have none: [`Builder::push`] takes them by name.
macro_rules! builder_method {
    (Tensor $($row:tt)*) => {};
    ($category:ident $(#[$doc:meta])* $method:ident $variant:ident { $($field:ident: $kind:ident),* }) => {
        $(#[$doc])*
        pub fn $method(&mut self $(, $field: impl Into<field_type!($kind)>)*) -> &mut Self {
            self.push(Instruction::$variant { $($field: $field.into()),* })
        }
    };
}

instructions! {
    /// Loads an element: `dst = *address`.
    1 Ldg ldg "ldg" DataMovement All { dtype: dtype, dst: write(dtype), address: address };
    /// Stores an element: `*address = src`.
    2 Stg stg "stg" DataMovement All { dtype: dtype, address: address, src: read(dtype) };
    /// Loads an element of shared memory. The address is an offset: its handle is ignored.
    3 Lds lds "lds" DataMovement All { dtype: dtype, dst: write(dtype), address: address };
    /// Stores an element to shared memory. The address is an offset: its handle is ignored.
    4 Sts sts "sts" DataMovement All { dtype: dtype, address: address, src: read(dtype) };
    /// `dst = src`
    5 Mov mov "mov" DataMovement All { dtype: dtype, dst: write(dtype), src: read(dtype) };
    /// `dst = value`, given as bits; integers are truncated.
    6 MovImm mov_imm "mov_imm" DataMovement All { dtype: dtype, dst: write(dtype), value: bits(dtype) };
    /// `dst = src as dst_type`, as in Rust: floats to integers saturate, and NaN becomes 0.
    7 Cvt cvt "cvt" DataMovement All { dtype: dtype, dst_type: dtype, dst: write(dst_type), src: read(dtype) };
    /// `dst = src1 + src2`; integers wrap.
    8 Add add "add" Arithmetic All { dtype: dtype, dst: write(dtype), src1: read(dtype), src2: read(dtype) };
    /// `dst = src1 - src2`; integers wrap.
    9 Sub sub "sub" Arithmetic All { dtype: dtype, dst: write(dtype), src1: read(dtype), src2: read(dtype) };
    /// `dst = src1 * src2`; integers wrap.
    10 Mul mul "mul" Arithmetic All { dtype: dtype, dst: write(dtype), src1: read(dtype), src2: read(dtype) };
    /// `dst = src1 / src2`; integers truncate, `MIN / -1` wraps, and division by zero is a fault.
    11 Div div "div" Arithmetic All { dtype: dtype, dst: write(dtype), src1: read(dtype), src2: read(dtype) };
    /// `dst = a * b + c`, rounded twice; integers wrap.
    12 Mad mad "mad" Arithmetic All { dtype: dtype, dst: write(dtype), a: read(dtype), b: read(dtype), c: read(dtype) };
    /// `dst = a * b + c`, rounded once.
    13 Fma fma "fma" Arithmetic Float {
        dtype: dtype, dst: write(dtype), a: read(dtype), b: read(dtype), c: read(dtype)
    };
    /// `dst = min(src1, src2)`; a NaN is ignored.
    14 Min min "min" Arithmetic All { dtype: dtype, dst: write(dtype), src1: read(dtype), src2: read(dtype) };
    /// `dst = max(src1, src2)`; a NaN is ignored.
    15 Max max "max" Arithmetic All { dtype: dtype, dst: write(dtype), src1: read(dtype), src2: read(dtype) };
    /// `dst = |src|`; the smallest integer stays itself.
    16 Abs abs "abs" Arithmetic Signed { dtype: dtype, dst: write(dtype), src: read(dtype) };
    /// `dst = -src`; the smallest integer stays itself.
    17 Neg neg "neg" Arithmetic Signed { dtype: dtype, dst: write(dtype), src: read(dtype) };
    /// `dst = src1 & src2`
    18 And and "and" Logic Int { dtype: dtype, dst: write(dtype), src1: read(dtype), src2: read(dtype) };
    /// `dst = src1 | src2`
    19 Or or "or" Logic Int { dtype: dtype, dst: write(dtype), src1: read(dtype), src2: read(dtype) };
    /// `dst = src1 ^ src2`
    20 Xor xor "xor" Logic Int { dtype: dtype, dst: write(dtype), src1: read(dtype), src2: read(dtype) };
    /// `dst = !src`
    21 Not not "not" Logic Int { dtype: dtype, dst: write(dtype), src: read(dtype) };
    /// `dst = src << amount`, modulo the width.
    22 Shl shl "shl" Logic Int { dtype: dtype, dst: write(dtype), src: read(dtype), amount: read(DType::U32) };
    /// `dst = src >> amount`, modulo the width; arithmetic for signed integers.
    23 Shr shr "shr" Logic Int { dtype: dtype, dst: write(dtype), src: read(dtype), amount: read(DType::U32) };
    /// `dst = src1 cond src2`; a comparison with NaN is false, except `ne`.
    24 SetCc set_cc "setcc" Logic All { dtype: dtype, cond: condition, dst: set, src1: read(dtype), src2: read(dtype) };
    /// `dst = pred ? src_true : src_false`
    25 Sel sel "sel" Logic All {
        dtype: dtype, dst: write(dtype), pred: test, src_true: read(dtype), src_false: read(dtype)
    };
    /// Jumps to a label, if the guard holds.
    26 Bra bra "bra" ControlFlow All { pred: guard, target: label };
    /// Calls a label: `ret` continues behind this instruction.
    27 Call call "call" ControlFlow All { target: label };
    /// Returns from the last call.
    28 Ret ret "ret" ControlFlow All {};
    /// Decrements the counter and jumps, unless the counter is 0.
    29 Loop loop_ "loop" ControlFlow All { count: update(DType::U32), body: label };
    /// Ends the lane.
    30 Exit exit "exit" ControlFlow All {};
    /// Waits until every lane of the block that has not ended waits at a barrier of this id.
    31 BarSync bar_sync "bar_sync" Synchronization All { id: u8 };
    /// Orders memory accesses among the lanes of a scope.
    32 MemFence mem_fence "mem_fence" Synchronization All { scope: scope };
    /// `dst = class of the block`: the block's number modulo 96.
    33 ClsGet cls_get "cls_get" AtlasSpecific All { dst: write(DType::U8) };
    /// `dst = mirror class of src`
    34 Mirror mirror "mirror" AtlasSpecific All { dst: write(DType::U8), src: read(DType::U8) };
    /// `dst = the class of the block is a unity class`; epsilon has no effect.
    35 UnityTest unity_test "unity_test" AtlasSpecific All { dst: set, epsilon: f64 };
    /// `dst = number of neighbours of class`
    36 NbrCount nbr_count "nbr_count" AtlasSpecific All { dst: write(DType::U32), class: read(DType::U8) };
    /// `dst = neighbour of class`, 0 behind the last.
    37 NbrGet nbr_get "nbr_get" AtlasSpecific All { dst: write(DType::U8), class: read(DType::U8), index: u8 };
    /// `resonance[class] += value`, a table of the launch.
    38 ResAccum res_accum "res_accum" AtlasSpecific All { class: read(DType::U8), value: read(DType::F64) };
    /// `dst = phase of the lane`
    39 PhaseGet phase_get "phase_get" AtlasSpecific All { dst: write(DType::U32) };
    /// `phase = (phase + delta) mod 768`
    40 PhaseAdv phase_adv "phase_adv" AtlasSpecific All { delta: u16 };
    /// `dst = class * 12288 + page * 256 + byte`, an offset in the boundary pool.
    41 BoundMap bound_map "bound_map" AtlasSpecific All {
        dst: write(DType::U64), class: read(DType::U8), page: read(DType::U8), byte: read(DType::U8)
    };
    /// `dst = sum of src`, from the first register to the last.
    42 ReduceAdd reduce_add "reduce_add" Reduction All { dtype: dtype, dst: write(dtype), src: span(dtype) };
    /// `dst = min of src`; NaN is ignored.
    43 ReduceMin reduce_min "reduce_min" Reduction All { dtype: dtype, dst: write(dtype), src: span(dtype) };
    /// `dst = max of src`; NaN is ignored.
    44 ReduceMax reduce_max "reduce_max" Reduction All { dtype: dtype, dst: write(dtype), src: span(dtype) };
    /// `dst = product of src`, from the first register to the last.
    45 ReduceMul reduce_mul "reduce_mul" Reduction All { dtype: dtype, dst: write(dtype), src: span(dtype) };
    /// `dst = e^src`
    46 Exp exp "exp" Transcendental Float { dtype: dtype, dst: write(dtype), src: read(dtype) };
    /// `dst = ln(src)`
    47 Log log "log" Transcendental Float { dtype: dtype, dst: write(dtype), src: read(dtype) };
    /// `dst = log2(src)`
    48 Log2 log2 "log2" Transcendental Float { dtype: dtype, dst: write(dtype), src: read(dtype) };
    /// `dst = log10(src)`
    49 Log10 log10 "log10" Transcendental Float { dtype: dtype, dst: write(dtype), src: read(dtype) };
    /// `dst = sqrt(src)`, correctly rounded.
    50 Sqrt sqrt "sqrt" Transcendental Float { dtype: dtype, dst: write(dtype), src: read(dtype) };
    /// `dst = 1 / sqrt(src)`
    51 Rsqrt rsqrt "rsqrt" Transcendental Float { dtype: dtype, dst: write(dtype), src: read(dtype) };
    /// `dst = src1^src2`
    52 Pow pow "pow" Transcendental Float { dtype: dtype, dst: write(dtype), src1: read(dtype), src2: read(dtype) };
    /// `dst = sin(src)`
    53 Sin sin "sin" Transcendental Float { dtype: dtype, dst: write(dtype), src: read(dtype) };
    /// `dst = cos(src)`
    54 Cos cos "cos" Transcendental Float { dtype: dtype, dst: write(dtype), src: read(dtype) };
    /// `dst = tan(src)`
    55 Tan tan "tan" Transcendental Float { dtype: dtype, dst: write(dtype), src: read(dtype) };
    /// `dst = tanh(src)`
    56 Tanh tanh "tanh" Transcendental Float { dtype: dtype, dst: write(dtype), src: read(dtype) };
    /// `dst = 1 / (1 + e^-src)`
    57 Sigmoid sigmoid "sigmoid" Transcendental Float { dtype: dtype, dst: write(dtype), src: read(dtype) };
    /// Layer normalisation of `num_positions` rows of `hidden_dim` elements.
    58 LayerNorm layer_norm "layer_norm" Tensor F32 {
        dtype: dtype, input: read(DType::U64), gamma: read(DType::U64), beta: read(DType::U64),
        output: read(DType::U64), num_positions: u32, hidden_dim: u32, eps: f32
    };
    /// Group normalisation of an NCHW buffer.
    59 GroupNorm group_norm "group_norm" Tensor F32 {
        dtype: dtype, input: read(DType::U64), gamma: read(DType::U64), beta: read(DType::U64),
        output: read(DType::U64), batch_size: u32, num_channels: u32, height: u32, width: u32, num_groups: u32,
        eps: f32
    };
    /// Batch normalisation of an NCHW buffer with given statistics.
    60 BatchNorm batch_norm "batch_norm" Tensor F32 {
        dtype: dtype, input: read(DType::U64), scale: read(DType::U64), bias: read(DType::U64),
        mean: read(DType::U64), variance: read(DType::U64), output: read(DType::U64), batch_size: u32,
        num_channels: u32, height: u32, width: u32, eps: f32
    };
    /// Two-dimensional convolution of an NCHW buffer with OIHW weights.
    61 Conv2d conv2d "conv2d" Tensor F32 {
        dtype: dtype, input: read(DType::U64), weights: read(DType::U64), bias: read(DType::U64),
        output: read(DType::U64), batch_size: u32, in_channels: u32, in_height: u32, in_width: u32,
        out_channels: u32, kernel_h: u32, kernel_w: u32, stride_h: u32, stride_w: u32, pad_top: u32, pad_left: u32,
        pad_bottom: u32, pad_right: u32, dilation_h: u32, dilation_w: u32, group: u32, has_bias: flag
    };
    /// Nearest-neighbour upsampling of an NCHW buffer.
    62 NearestUpsample2d nearest_upsample2d "nearest_upsample2d" Tensor F32 {
        dtype: dtype, input: read(DType::U64), output: read(DType::U64), batch_size: u32, num_channels: u32,
        in_height: u32, in_width: u32, scale_factor: u32
    };
    /// Matrix multiplication `c = a·b`, row-major.
    63 Gemm gemm "gemm" Tensor F32 {
        dtype: dtype, matrix_a: read(DType::U64), matrix_b: read(DType::U64), matrix_c: read(DType::U64), m: u32,
        k: u32, n: u32
    };
    /// Allocates a zeroed pool for the launch; `dst` is its handle.
    64 PoolAlloc pool_alloc "pool_alloc" PoolStorage All { dst: write(DType::U64), size: u64 };
    /// Frees a pool.
    65 PoolFree pool_free "pool_free" PoolStorage All { handle: read(DType::U64) };
    /// Loads an element of a pool at an offset in bytes.
    66 PoolLoad pool_load "pool_load" PoolStorage All {
        dtype: dtype, dst: write(dtype), pool: read(DType::U64), offset: read(DType::U64)
    };
    /// Stores an element to a pool at an offset in bytes.
    67 PoolStore pool_store "pool_store" PoolStorage All {
        dtype: dtype, pool: read(DType::U64), offset: read(DType::U64), src: read(dtype)
    };
    /// `output[i] = operation(input[i])`
    68 ParallelMap parallel_map "parallel_map" Tensor F32 {
        dtype: dtype, operation: map, input: read(DType::U64), output: read(DType::U64), count: u32
    };
    /// `output[i] = operation(input_a[i], input_b[i])`
    69 ParallelMapBinary parallel_map_binary "parallel_map_binary" Tensor F32 {
        dtype: dtype, operation: map_binary, input_a: read(DType::U64), input_b: read(DType::U64),
        output: read(DType::U64), count: u32
    };
    /// `output[0] = operation of all input[i]`, in order.
    70 ParallelReduce parallel_reduce "parallel_reduce" Tensor F32 {
        dtype: dtype, operation: reduce, input: read(DType::U64), output: read(DType::U64), count: u32
    };
}

impl Instruction {
    /// The label that the instruction refers to.
    pub fn label(&self) -> Option<&str> {
        match self {
            Self::Bra { target, .. } | Self::Call { target } => Some(target),
            Self::Loop { body, .. } => Some(body),
            _ => None,
        }
    }

    /// Checks operands that depend on nothing but the instruction.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut problem = None;
        self.for_each_operand(|name, operand| {
            let found = match operand {
                Operand::DType(dtype) if !self.types().contain(dtype) => Some(format!(
                    "not defined for {dtype}, only for {}",
                    self.types().names()
                )),
                Operand::Test(p) | Operand::Set(p) | Operand::Guard(Some(p))
                    if usize::from(p.0) >= Predicate::COUNT =>
                {
                    Some(format!("there is no predicate {p}, only p0 to p15"))
                }
                Operand::Span(span, _)
                    if span.count == 0 || u32::from(span.base.0) + span.count > 256 =>
                {
                    Some(format!(
                        "{} registers from {} on: there must be 1 at least, up to r255",
                        span.count, span.base
                    ))
                }
                Operand::Address(Address::PhiCoordinate { class, page, byte }) => {
                    atlas::boundary_offset(class, page, byte)
                        .err()
                        .map(|fault| fault.to_string())
                }
                Operand::F32(value) if !value.is_finite() => Some(format!("{name} is {value}")),
                Operand::F64(value) if !value.is_finite() => Some(format!("{name} is {value}")),
                _ => None,
            };
            problem = problem.take().or(found);
        });
        if let Self::SetCc { dtype, cond, .. } = self
            && cond.is_unsigned()
            && !dtype.is_unsigned()
        {
            problem = Some(format!("condition {cond} is not defined for {dtype}"));
        }
        problem
            .or_else(|| tensor_op::check(self).err())
            .map_or(Ok(()), Err)
    }
}

impl Category {
    /// Returns `true` if operands have names in the text format.
    pub(super) fn has_named_operands(self) -> bool {
        self == Self::Tensor
    }
}

/// Opcode and category of a mnemonic.
pub(super) fn by_mnemonic(mnemonic: &str) -> Option<(u8, Category)> {
    let found = Instruction::TABLE.iter().find(|(_, m, _)| *m == mnemonic);
    found.map(|&(opcode, _, category)| (opcode, category))
}
