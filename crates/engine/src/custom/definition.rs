//! The definition of a custom kernel: its text, and its arguments in the order of their declaration.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bessemer_hal::msl::Builtin;

use super::KernelCall;
use super::signature::SignatureCache;
use crate::{DType, Error, Result, Shape, Tensor};

/// A custom kernel: text in Metal Shading Language and the arguments it takes.
///
/// Cloning it is cheap. It is compiled on the first call for every combination of devices, dtypes and constants.
#[derive(Clone, Debug)]
pub struct MetalKernel {
    definition: Arc<Definition>,
    signatures: Arc<SignatureCache>,
}

/// Builder of a [`MetalKernel`]: declares its arguments.
#[derive(Clone, Debug)]
#[must_use = "there is no kernel until `build` is called"]
pub struct MetalKernelBuilder {
    definition: Definition,
    /// Number of buffer arguments so far.
    buffers: u32,
    /// The first invalid declaration.
    problem: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Definition {
    pub(super) name: &'static str,
    pub(super) text: KernelText,
    pub(super) tensors: Vec<TensorArgument>,
    pub(super) scalars: Vec<ValueArgument>,
    pub(super) constants: Vec<ValueArgument>,
    pub(super) threadgroup: Vec<ValueArgument>,
    /// Text before the kernel.
    pub(super) header: Option<String>,
    /// Name of the thread's position along x.
    pub(super) index: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) enum KernelText {
    /// The body of the kernel.
    Body(String),
    /// A source with the kernel.
    Whole(String),
}

/// How a kernel uses a tensor argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Input,
    InOut,
    Output,
}

/// A tensor argument.
#[derive(Clone, Debug)]
pub(super) struct TensorArgument {
    pub(super) name: String,
    pub(super) role: Role,
    /// The dtype that it must have, or of an output, that it has unless a call says otherwise.
    pub(super) dtype: Option<DType>,
    /// Whether its elements are atomic in the kernel.
    pub(super) is_atomic: bool,
    /// The shape of an output.
    pub(super) shape: Option<ShapeRule>,
    /// Index of the buffer, unless a source says otherwise.
    pub(super) slot: u32,
}

/// A scalar, a function constant or threadgroup memory.
#[derive(Clone, Debug)]
pub(super) struct ValueArgument {
    pub(super) name: String,
    pub(super) dtype: DType,
    /// Index of the buffer, constant or threadgroup memory, unless a source says otherwise.
    pub(super) slot: u32,
}

/// A function from the shapes of the tensor arguments to the shape of an output.
#[derive(Clone)]
pub(super) struct ShapeRule(pub(super) Arc<ShapeFunction>);

type ShapeFunction = dyn Fn(&[Shape]) -> Result<Shape> + Send + Sync;

impl fmt::Debug for ShapeRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShapeRule")
    }
}

impl MetalKernel {
    /// A kernel of this name with a generated signature around `body`, which is statements.
    pub fn body(name: &str, body: impl Into<String>) -> MetalKernelBuilder {
        MetalKernelBuilder::new(name, KernelText::Body(body.into()))
    }

    /// The kernel of this name in a whole source. Arguments are declared with the names that they have in the source.
    pub fn source(name: &str, source: impl Into<String>) -> MetalKernelBuilder {
        MetalKernelBuilder::new(name, KernelText::Whole(source.into()))
    }

    /// Its name, which is the op in errors and plans and the label in GPU tools.
    pub fn name(&self) -> &'static str {
        self.definition.name
    }

    /// A call with these tensors, one for each input and in-out argument in the order of their declaration.
    pub fn call(&self, tensors: &[&Tensor]) -> KernelCall {
        let (definition, signatures) = (Arc::clone(&self.definition), Arc::clone(&self.signatures));
        KernelCall::new(definition, signatures, tensors)
    }
}

impl MetalKernelBuilder {
    fn new(name: &str, text: KernelText) -> Self {
        let problem = (!is_identifier(name))
            .then(|| format!("`{name}` is no name for a kernel: it must be an identifier"));
        Self {
            definition: Definition {
                name: if problem.is_none() {
                    interned(name)
                } else {
                    "custom kernel"
                },
                text,
                tensors: Vec::new(),
                scalars: Vec::new(),
                constants: Vec::new(),
                threadgroup: Vec::new(),
                header: None,
                index: None,
            },
            buffers: 0,
            problem,
        }
    }

    /// Declares a tensor that the kernel reads: `device const T* name`.
    pub fn input(self, name: &str) -> Self {
        self.tensor(name, Role::Input)
    }

    /// Declares a tensor that the kernel reads and writes: `device T* name`. The call gives its initial value, and the
    /// result is a new tensor: the memory of one that is not used otherwise is updated in place, others are copied first.
    pub fn inout(self, name: &str) -> Self {
        self.tensor(name, Role::InOut)
    }

    /// Declares a tensor that the kernel writes: `device T* name`. It has the shape and the dtype of the first tensor of
    /// the call unless there is a rule, or the call says otherwise. Elements that the kernel does not write have arbitrary
    /// values; see [`KernelCall::init`].
    pub fn output(self, name: &str) -> Self {
        self.tensor(name, Role::Output)
    }

    /// Requires a dtype of an input or in-out argument, or sets that of an output. Without it a kernel is compiled for the
    /// dtypes of each call.
    pub fn dtype(mut self, name: &str, dtype: DType) -> Self {
        if let Some(tensor) = self.declared(name) {
            tensor.dtype = Some(dtype);
        }
        self
    }

    /// Makes the elements of a tensor atomic: `device atomic_uint* name` for `u32`, and likewise for `i32` and `f32`.
    pub fn atomic(mut self, name: &str) -> Self {
        if let Some(tensor) = self.declared(name) {
            tensor.is_atomic = true;
        }
        self
    }

    /// Sets the shape of an output as a function of the shapes of the call's tensors.
    pub fn shape_rule(
        mut self,
        name: &str,
        rule: impl Fn(&[Shape]) -> Result<Shape> + Send + Sync + 'static,
    ) -> Self {
        match self.declared(name) {
            Some(tensor) if tensor.role == Role::Output => {
                tensor.shape = Some(ShapeRule(Arc::new(rule)));
            }
            Some(_) => self.fail(format!(
                "`{name}` is no output: its shape is that of a tensor"
            )),
            None => {}
        }
        self
    }

    /// Declares a scalar, which can differ between calls: `constant T& name`.
    pub fn scalar(mut self, name: &str, dtype: DType) -> Self {
        let slot = self.buffer();
        self.expect_dtype(name, dtype, dtype != DType::F64);
        self.definition.scalars.push(value(name, dtype, slot));
        self
    }

    /// Declares a function constant: a value that the kernel is specialised for, `constant T name`.
    pub fn constant(mut self, name: &str, dtype: DType) -> Self {
        let slot = self.definition.constants.len() as u32;
        self.expect_dtype(name, dtype, !matches!(dtype, DType::F64 | DType::BF16));
        self.definition.constants.push(value(name, dtype, slot));
        self
    }

    /// Declares threadgroup memory, whose length the call gives: `threadgroup T* name`.
    pub fn threadgroup(mut self, name: &str, dtype: DType) -> Self {
        let slot = self.definition.threadgroup.len() as u32;
        self.expect_dtype(name, dtype, dtype != DType::F64);
        self.definition.threadgroup.push(value(name, dtype, slot));
        self
    }

    /// Sets text before the kernel: functions, types, macros. Constants and types of elements can be used in it.
    pub fn header(mut self, text: impl Into<String>) -> Self {
        if matches!(self.definition.text, KernelText::Whole(_)) {
            self.fail("a whole source has no header: write it into the source".to_owned());
        }
        self.definition.header = Some(text.into());
        self
    }

    /// Names the thread's position along x: `uint name`.
    pub fn index(mut self, name: &str) -> Self {
        if matches!(self.definition.text, KernelText::Whole(_)) {
            self.fail("a whole source declares its positions itself".to_owned());
        }
        self.definition.index = Some(name.to_owned());
        self
    }

    /// Checks the declarations. The text is compiled by the first call.
    ///
    /// # Errors
    /// [`Error::Invalid`] for names that are no identifiers, that are taken, or that nothing declares, dtypes that Metal
    /// lacks, and a kernel without a result.
    pub fn build(self) -> Result<MetalKernel> {
        let Self {
            definition,
            problem,
            ..
        } = self;
        let problem = problem.or_else(|| definition.problem());
        match problem {
            Some(reason) => Err(Error::Invalid {
                op: definition.name,
                reason,
            }),
            None => Ok(MetalKernel {
                definition: Arc::new(definition),
                signatures: Arc::default(),
            }),
        }
    }

    fn tensor(mut self, name: &str, role: Role) -> Self {
        let slot = self.buffer();
        self.definition.tensors.push(TensorArgument {
            name: name.to_owned(),
            role,
            dtype: None,
            is_atomic: false,
            shape: None,
            slot,
        });
        self
    }

    /// The next buffer index.
    fn buffer(&mut self) -> u32 {
        self.buffers += 1;
        self.buffers - 1
    }

    fn declared(&mut self, name: &str) -> Option<&mut TensorArgument> {
        let at = self.definition.tensors.iter().position(|t| t.name == name);
        match at {
            Some(at) => self.definition.tensors.get_mut(at),
            None => {
                self.fail(format!("no tensor `{name}` is declared before this"));
                None
            }
        }
    }

    fn expect_dtype(&mut self, name: &str, dtype: DType, is_supported: bool) {
        if !is_supported {
            self.fail(format!(
                "`{name}` cannot be {dtype}: Metal has no such argument"
            ));
        }
    }

    fn fail(&mut self, reason: String) {
        self.problem.get_or_insert(reason);
    }
}

fn value(name: &str, dtype: DType, slot: u32) -> ValueArgument {
    ValueArgument {
        name: name.to_owned(),
        dtype,
        slot,
    }
}

impl Definition {
    pub(super) fn is_body(&self) -> bool {
        matches!(self.text, KernelText::Body(_))
    }

    /// Number of buffers that are declared.
    pub(super) fn buffer_count(&self) -> u32 {
        (self.tensors.len() + self.scalars.len()) as u32
    }

    /// The input and in-out arguments, for which a call gives tensors.
    pub(super) fn given(&self) -> impl Iterator<Item = &TensorArgument> + Clone {
        self.tensors.iter().filter(|t| t.role != Role::Output)
    }

    /// The outputs.
    pub(super) fn outputs(&self) -> impl Iterator<Item = &TensorArgument> + Clone {
        self.tensors.iter().filter(|t| t.role == Role::Output)
    }

    /// What is wrong with the declarations.
    fn problem(&self) -> Option<String> {
        let values = [&self.scalars, &self.constants, &self.threadgroup];
        let values = values.into_iter().flatten().map(|v| v.name.as_str());
        let tensors = self.tensors.iter().map(|t| t.name.as_str());
        let declared: Vec<&str> = tensors.chain(values).chain(self.index.as_deref()).collect();
        for (i, name) in declared.iter().enumerate() {
            if !is_identifier(name) {
                return Some(format!(
                    "`{name}` is no name for an argument: it must be an identifier"
                ));
            }
            if declared[..i].contains(name) {
                let is_output = |role| {
                    self.tensors
                        .iter()
                        .any(|t| t.name == *name && t.role == role)
                };
                return Some(if is_output(Role::Output) && is_output(Role::Input) {
                    format!("output `{name}` is an input too; declare it once, as in-out")
                } else {
                    format!("`{name}` is declared twice")
                });
            }
            if self.is_body()
                && let Some(what) = self.generated(name)
            {
                return Some(format!("the name `{name}` is taken: it is {what}"));
            }
        }
        if self.tensors.iter().all(|t| t.role == Role::Input) {
            return Some("a kernel without an output or in-out argument has no result".to_owned());
        }
        let double = self.tensors.iter().find(|t| t.dtype == Some(DType::F64));
        if let Some(tensor) = double {
            return Some(format!("`{}` cannot be f64: Metal has none", tensor.name));
        }
        let input = self
            .tensors
            .iter()
            .find(|t| t.is_atomic && t.role == Role::Input);
        if let Some(tensor) = input {
            return Some(format!(
                "`{}` is an input: an atomic one is in-out",
                tensor.name
            ));
        }
        None
    }

    /// What a name stands for in every body, if anything.
    fn generated(&self, name: &str) -> Option<String> {
        if Builtin::from_name(name).is_some() {
            return Some("a position attribute".to_owned());
        }
        let of = |suffix: &str| {
            let tensor = name.strip_suffix(suffix)?;
            self.tensors.iter().find(|t| t.name == tensor)
        };
        ["_shape", "_strides", "_ndim", "_size", "_t"]
            .iter()
            .find_map(|suffix| of(suffix))
            .map(|tensor| format!("a property of `{}`", tensor.name))
    }
}

/// Returns whether a name is an identifier that is free for users.
fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with("bessemer_")
}

/// The name with the lifetime that names of ops have. Every name is kept once for the life of the process.
pub(super) fn interned(name: &str) -> &'static str {
    static NAMES: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_default();
    match names.get(name) {
        Some(known) => known,
        None => {
            let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
            names.insert(name);
            name
        }
    }
}
