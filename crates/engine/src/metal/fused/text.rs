//! Source text of elementwise kernels.

use std::fmt::Write as _;

use super::MAX_INPUTS;
use crate::DType;
use crate::metal::kernel::msl_name;
use crate::metal::{binary, cast, ternary, unary};
use crate::ops::Rule;
use crate::ops::binary::Binary;
use crate::ops::fused::{Action, Step};
use crate::ops::ternary::Ternary;
use crate::ops::unary::Unary;

/// The name of the kernel of a program.
pub(crate) const ENTRY: &str = "fused";

/// Names of the function constants that make an input's loads vector loads.
pub(super) const VECTOR: [&str; MAX_INPUTS] = [
    "VECTOR_0",
    "VECTOR_1",
    "VECTOR_2",
    "VECTOR_3",
    "VECTOR_4",
    "VECTOR_5",
    "VECTOR_6",
    "VECTOR_7",
    "VECTOR_8",
    "VECTOR_9",
    "VECTOR_10",
    "VECTOR_11",
    "VECTOR_12",
    "VECTOR_13",
    "VECTOR_14",
    "VECTOR_15",
    "VECTOR_16",
    "VECTOR_17",
    "VECTOR_18",
    "VECTOR_19",
    "VECTOR_20",
    "VECTOR_21",
    "VECTOR_22",
    "VECTOR_23",
];

/// Names of the function constants of a table that make an input a scalar.
pub(super) const SCALAR: [&str; 3] = ["SCALAR_0", "SCALAR_1", "SCALAR_2"];

/// Names of the function constants of a table that give an input its own buffer.
pub(super) const READS: [&str; 3] = ["READS_0", "READS_1", "READS_2"];

/// Index of a function's parameter among the scalars of a table, after those of the inputs.
pub(super) const PARAMETER: usize = 3;

/// Location of a program's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum InputLocation {
    /// A buffer of its own.
    Buffer,
    /// The buffer of the result, in place.
    Output,
    /// The scalars.
    Scalar,
}

/// Elementwise steps over inputs, without the layouts, scalars and parameters, which are arguments.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Program {
    pub(super) inputs: Vec<(DType, InputLocation)>,
    pub(super) steps: Vec<Step>,
}

/// All functions of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Table {
    /// Functions of one element that are arithmetic.
    Unary,
    /// Functions of one float.
    Real,
    /// Functions of two elements.
    Binary,
    /// Functions of three elements of one type.
    Ternary,
    /// `select`.
    Select,
    /// Conversions to every type.
    Cast,
}

/// An expression for an element in the type of its arithmetic.
fn computed(dtype: DType, value: &str) -> String {
    match dtype {
        DType::F16 | DType::BF16 => format!("float({value})"),
        _ => value.to_owned(),
    }
}

/// An expression for the result of an action, in its type.
fn call(
    action: Action,
    args: &[(DType, String)],
    parameter: Option<&str>,
    result: DType,
) -> String {
    let mut all: Vec<_> = args.iter().map(|(d, v)| computed(*d, v)).collect();
    let name = match action {
        Action::Unary(f) => format!("unary_{}", f.name()),
        Action::Binary(f) => format!("binary_{}", f.name()),
        // It moves elements as they are.
        Action::Ternary(Ternary::Select) => {
            return format!(
                "ternary_select({}, {}, {})",
                args[0].1, args[1].1, args[2].1
            );
        }
        Action::Ternary(f) => format!("ternary_{}", f.name()),
        Action::Cast => format!("cast_to<{}>", msl_name(result)),
    };
    all.extend(parameter.map(str::to_owned));
    format!("{}({name}({}))", msl_name(result), all.join(", "))
}

/// The file that defines the function of an action on elements of a type.
fn file(action: Action, dtype: DType) -> String {
    match action {
        Action::Unary(f) if f.file() != "unary" => format!("{}.h", f.file()),
        Action::Binary(f) if f.file() != "binary" && dtype.is_float() => format!("{}.h", f.file()),
        Action::Unary(_) => "unary.metal".to_owned(),
        Action::Binary(_) => "binary.metal".to_owned(),
        Action::Ternary(_) => "ternary.metal".to_owned(),
        Action::Cast => "cast.metal".to_owned(),
    }
}

/// Number of arguments of a step.
const fn arity(action: Action) -> usize {
    match action {
        Action::Unary(_) | Action::Cast => 1,
        Action::Binary(_) => 2,
        Action::Ternary(_) => 3,
    }
}

fn include(text: &mut String, file: &str) {
    let line = format!("#include \"{file}\"\n");
    if !text.contains(&line) {
        text.push_str(&line);
    }
}

impl Program {
    /// The source of the kernel.
    pub(crate) fn text(&self) -> String {
        let mut types: Vec<_> = self.inputs.iter().map(|(dtype, _)| *dtype).collect();
        let mut text = String::from("#include \"elementwise.h\"\n");
        let mut body = String::new();
        let scalars = self
            .inputs
            .iter()
            .filter(|(_, s)| *s == InputLocation::Scalar);
        let mut next = scalars.count();
        for step in &self.steps {
            let args: Vec<_> = step.args[..arity(step.action)]
                .iter()
                .map(|&v| (types[usize::from(v)], format!("v{v}")))
                .collect();
            include(&mut text, &file(step.action, args[0].0));
            let parameter = match step.action {
                Action::Unary(f) if f.parameter().is_some() => {
                    next += 1;
                    Some(format!("scalar<float>(scalars[{}])", next - 1))
                }
                _ => None,
            };
            let call = call(step.action, &args, parameter.as_deref(), step.dtype);
            let dtype = msl_name(step.dtype);
            let _ = writeln!(body, "        const {dtype} v{} = {call};", types.len());
            types.push(step.dtype);
        }
        let result = msl_name(*types.last().expect("a program has a step"));
        self.write(&mut text, &body, result, types.len() - 1, next > 0);
        text
    }

    fn write(&self, text: &mut String, body: &str, result: &str, last: usize, scalars: bool) {
        let walked = || {
            self.inputs
                .iter()
                .filter(|(_, s)| *s != InputLocation::Scalar)
        };
        let _ = writeln!(text, "FUNCTION_CONSTANT(bool, VECTOR_OUTPUT);");
        for name in &VECTOR[..walked().count()] {
            let _ = writeln!(text, "FUNCTION_CONSTANT(bool, {name});");
        }
        let _ = writeln!(
            text,
            "kernel void ENTRY({ENTRY})(device stored_t<{result}>* output, constant Extent& extent,"
        );
        if walked().count() > 0 {
            text.push_str("    constant ViewStrides* views,\n");
        }
        if scalars {
            text.push_str("    constant ulong* scalars,\n");
        }
        for (i, (dtype, source)) in self.inputs.iter().enumerate() {
            if *source == InputLocation::Buffer {
                let dtype = msl_name(*dtype);
                let _ = writeln!(text, "    device const stored_t<{dtype}>* input_{i},");
            }
        }
        text.push_str("    uint2 at [[thread_position_in_grid]]) {\n");
        text.push_str("    const ThreadSpan span = thread_span(extent, at);\n");
        let (mut walked, mut number) = (0, 0);
        for (i, (dtype, source)) in self.inputs.iter().enumerate() {
            let dtype = msl_name(*dtype);
            if *source == InputLocation::Scalar {
                let _ = writeln!(
                    text,
                    "    const {dtype} v{i} = scalar<{dtype}>(scalars[{number}]);"
                );
                number += 1;
                continue;
            }
            let from = match source {
                InputLocation::Output => format!("(device const stored_t<{dtype}>*)output"),
                _ => format!("input_{i}"),
            };
            let _ = writeln!(
                text,
                "    {dtype} x{i}[ELEMENTS_PER_THREAD];\n    load_elements<{dtype}>(x{i}, {from}, extent.walk, views[{walked}], \
                 span, VECTOR_{walked});"
            );
            walked += 1;
        }
        let _ = writeln!(text, "    {result} results[ELEMENTS_PER_THREAD];");
        text.push_str("    for (uint k = 0; k < ELEMENTS_PER_THREAD; k++) {\n");
        for (i, (dtype, source)) in self.inputs.iter().enumerate() {
            if *source != InputLocation::Scalar {
                let _ = writeln!(text, "        const {} v{i} = x{i}[k];", msl_name(*dtype));
            }
        }
        text.push_str(body);
        let _ = writeln!(text, "        results[k] = v{last};\n    }}");
        let _ = writeln!(
            text,
            "    store_elements<{result}>(results, output, span, VECTOR_OUTPUT);\n}}"
        );
    }
}

impl Table {
    /// The name of the kernel.
    pub(crate) const fn entry(self) -> &'static str {
        match self {
            Self::Unary => "unary",
            Self::Real => "real",
            Self::Binary => "binary",
            Self::Ternary => "ternary",
            Self::Select => "select",
            Self::Cast => "cast",
        }
    }

    /// The table that has an action, and the number of its case; conversions are to a type.
    pub(super) fn case(action: Action, to: DType) -> (Self, u32) {
        fn position<T: PartialEq>(all: &[T], one: T) -> u32 {
            let found = all.iter().position(|other| *other == one);
            found.expect("one of all") as u32
        }
        match action {
            Action::Unary(f) => (Self::of(f), position(Unary::ALL, f.bare())),
            Action::Binary(f) => (Self::Binary, position(Binary::ALL, f)),
            Action::Ternary(Ternary::Select) => (Self::Select, 0),
            Action::Ternary(f) => (Self::Ternary, position(Ternary::ALL, f)),
            Action::Cast => (Self::Cast, position(&DType::ALL, to)),
        }
    }

    /// The table that has a function of one element.
    fn of(f: Unary) -> Self {
        match f.file() {
            "unary" => Self::Unary,
            _ => Self::Real,
        }
    }

    /// The actions for elements of a type, with their numbers and the types of their results.
    fn cases(self, dtype: DType) -> Vec<(usize, Action, DType)> {
        match self {
            Self::Unary | Self::Real => {
                let own = Unary::ALL.iter().enumerate();
                own.filter(|(_, f)| Self::of(**f) == self)
                    .filter_map(|(i, &f)| Some((i, Action::Unary(f), unary::result(f, dtype)?)))
                    .collect()
            }
            Self::Binary => Binary::ALL
                .iter()
                .enumerate()
                .filter_map(|(i, &f)| Some((i, Action::Binary(f), binary::result(f, dtype)?)))
                .collect(),
            Self::Ternary => Ternary::ALL
                .iter()
                .enumerate()
                .filter(|(_, f)| ternary::is_of_one_type(**f, dtype))
                .map(|(i, &f)| (i, Action::Ternary(f), dtype))
                .collect(),
            Self::Select => vec![(0, Action::Ternary(Ternary::Select), dtype)],
            Self::Cast => DType::ALL
                .into_iter()
                .enumerate()
                .filter(|&(_, to)| cast::exists(dtype, to))
                .map(|(i, to)| (i, Action::Cast, to))
                .collect(),
        }
    }

    fn inputs(self, dtype: DType) -> Vec<DType> {
        match self {
            Self::Unary | Self::Real | Self::Cast => vec![dtype],
            Self::Binary => vec![dtype; 2],
            Self::Ternary => vec![dtype; 3],
            Self::Select => vec![DType::Bool, dtype, dtype],
        }
    }

    /// The source of the kernel for elements of a type.
    pub(crate) fn text(self, dtype: DType) -> String {
        let inputs = self.inputs(dtype);
        let cases = self.cases(dtype);
        let mut text = String::from("#include \"elementwise.h\"\n");
        for (_, action, _) in &cases {
            include(&mut text, &file(*action, dtype));
        }
        let _ = writeln!(
            text,
            "FUNCTION_CONSTANT(bool, VECTOR_OUTPUT);\nFUNCTION_CONSTANT(uint, CASE);"
        );
        for i in 0..inputs.len() {
            for name in [VECTOR[i], SCALAR[i], READS[i]] {
                let _ = writeln!(text, "FUNCTION_CONSTANT(bool, {name});");
            }
        }
        let _ = writeln!(
            text,
            "kernel void ENTRY({})(device uchar* output [[buffer(0)]],\n    \
             constant Extent& extent [[buffer(1)]], constant ViewStrides* views [[buffer(2)]],\n    \
             constant ulong* scalars [[buffer(3)]],",
            self.entry()
        );
        for (i, dtype) in inputs.iter().enumerate() {
            let _ = writeln!(
                text,
                "    device const stored_t<{}>* input_{i} [[buffer({}), function_constant(READS_{i})]],",
                msl_name(*dtype),
                i + 4
            );
        }
        text.push_str("    uint2 at [[thread_position_in_grid]]) {\n");
        text.push_str("    const ThreadSpan span = thread_span(extent, at);\n");
        for (i, dtype) in inputs.iter().enumerate() {
            let dtype = msl_name(*dtype);
            let _ = writeln!(
                text,
                "    {dtype} x{i}[ELEMENTS_PER_THREAD];\n    \
                 if (SCALAR_{i}) {{\n        splat<{dtype}>(x{i}, scalar<{dtype}>(scalars[{i}]));\n    \
                 }} else if (READS_{i}) {{\n        \
                 load_elements<{dtype}>(x{i}, input_{i}, extent.walk, views[{i}], span, VECTOR_{i});\n    \
                 }} else {{\n        \
                 load_elements<{dtype}>(x{i}, (device const stored_t<{dtype}>*)output, extent.walk, views[{i}], \
                 span, VECTOR_{i});\n    }}"
            );
        }
        Self::write_cases(&mut text, &inputs, &cases);
        text.push_str("}\n");
        text
    }

    /// Writes the cases, grouped by result type, so that there is one store for each type.
    fn write_cases(text: &mut String, inputs: &[DType], cases: &[(usize, Action, DType)]) {
        let mut results: Vec<DType> = Vec::new();
        for (.., result) in cases {
            if !results.contains(result) {
                results.push(*result);
            }
        }
        for result in &results {
            let own = || cases.iter().filter(|(.., dtype)| dtype == result);
            let is_own: Vec<_> = own().map(|(i, ..)| format!("CASE == {i}")).collect();
            let name = msl_name(*result);
            let _ = writeln!(
                text,
                "    if ({}) {{\n        {name} results[ELEMENTS_PER_THREAD];\n        switch (CASE) {{",
                is_own.join(" || ")
            );
            for (i, action, _) in own() {
                let args: Vec<_> = inputs
                    .iter()
                    .enumerate()
                    .map(|(n, dtype)| (*dtype, format!("x{n}[k]")))
                    .collect();
                let parameter = match action {
                    Action::Unary(f) if f.parameter().is_some() => {
                        Some(format!("scalar<float>(scalars[{PARAMETER}])"))
                    }
                    _ => None,
                };
                let call = call(*action, &args, parameter.as_deref(), *result);
                let _ = writeln!(
                    text,
                    "        case {i}:\n            for (uint k = 0; k < ELEMENTS_PER_THREAD; k++) {{\n                \
                     results[k] = {call};\n            }}\n            break;"
                );
            }
            let _ = writeln!(
                text,
                "        }}\n        store_elements<{name}>(results, (device stored_t<{name}>*)output, span, \
                 VECTOR_OUTPUT);\n    }}"
            );
        }
    }
}
