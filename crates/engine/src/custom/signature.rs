//! The signature that is generated around the body of a kernel.
//!
//! The text depends on the dtypes only: shapes and strides are arguments. `#line` directives give the body and the header
//! their own lines, so that messages about them have the lines that the user wrote.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use bessemer_hal::msl::Builtin;

use super::definition::{Definition, Role};
use crate::metal::msl_name;
use crate::{DType, Error, Layout, MAX_RANK, Result};

/// Numbers that `x_shape`, `x_ndim` and `x_size` of one tensor take: the lengths of the axes, the rank, the count.
const SIZES_PER_TENSOR: usize = MAX_RANK + 2;
/// Numbers that `x_strides` of one tensor takes: the offset of the first element, and the strides.
const STRIDES_PER_TENSOR: usize = MAX_RANK + 1;

/// The signatures of a kernel, by the dtypes of its tensor arguments.
#[derive(Default)]
pub(super) struct SignatureCache(Mutex<HashMap<Vec<DType>, Arc<Signature>>>);

impl SignatureCache {
    /// The signature for these dtypes, generated on first use.
    pub(super) fn get(
        &self,
        definition: &Definition,
        body: &str,
        dtypes: &[DType],
    ) -> Arc<Signature> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(signature) = known.get(dtypes) {
            return Arc::clone(signature);
        }
        let new = Arc::new(Signature::new(definition, body, dtypes));
        known.insert(dtypes.to_vec(), Arc::clone(&new));
        new
    }
}

impl fmt::Debug for SignatureCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SignatureCache")
    }
}

/// The generated text of a body kernel, and what it takes besides the declared arguments.
pub(super) struct Signature {
    pub(super) text: String,
    /// For each tensor argument, whether the body names its shape, rank or size.
    pub(super) names_sizes: Vec<bool>,
    /// For each tensor argument, whether the body names its strides.
    pub(super) names_strides: Vec<bool>,
}

/// The words of a text that could be identifiers.
fn words(text: &str) -> HashSet<&str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .collect()
}

impl Signature {
    /// Generates the text for the dtypes of the tensor arguments.
    fn new(definition: &Definition, body: &str, dtypes: &[DType]) -> Self {
        let header = definition.header.as_deref().unwrap_or_default();
        let named = words(body);
        let in_header = words(header);
        let tensors = || definition.tensors.iter();
        let names = |tensor: &str, suffixes: &[&str]| {
            suffixes
                .iter()
                .any(|suffix| named.contains(format!("{tensor}{suffix}").as_str()))
        };
        let names_sizes: Vec<bool> = tensors()
            .map(|t| names(&t.name, &["_shape", "_ndim", "_size"]))
            .collect();
        let names_strides: Vec<bool> = tensors().map(|t| names(&t.name, &["_strides"])).collect();

        let name = definition.name;
        let mut text = format!(
            "#line 1 \"{name} (generated)\"\n#include <metal_stdlib>\nusing namespace metal;\n"
        );
        for (tensor, dtype) in tensors().zip(dtypes) {
            let alias = format!("{}_t", tensor.name);
            if named.contains(alias.as_str()) || in_header.contains(alias.as_str()) {
                let _ = writeln!(text, "typedef {} {alias};", msl_name(*dtype));
            }
        }
        for constant in &definition.constants {
            let type_name = msl_name(constant.dtype);
            let (name, slot) = (&constant.name, constant.slot);
            let _ = writeln!(
                text,
                "constant {type_name} {name} [[function_constant({slot})]];"
            );
        }
        if !header.is_empty() {
            let _ = write!(
                text,
                "#line 1 \"{name} (header)\"\n{header}\n#line 1 \"{name} (kernel)\"\n"
            );
        }

        let mut parameters = Vec::new();
        let mut prologue = String::new();
        let mut layouts = (0, 0);
        for (i, (tensor, dtype)) in tensors().zip(dtypes).enumerate() {
            let of = &tensor.name;
            let is_strided_input = names_strides[i] && tensor.role == Role::Input;
            let type_name = if tensor.is_atomic {
                format!("atomic_{}", msl_name(*dtype))
            } else {
                msl_name(*dtype).to_owned()
            };
            let access = if tensor.role == Role::Input {
                "const "
            } else {
                ""
            };
            let pointer = format!("device {access}{type_name}*");
            let argument = if is_strided_input {
                format!("bessemer_{of}")
            } else {
                of.clone()
            };
            parameters.push(format!("{pointer} {argument} [[buffer({})]]", tensor.slot));
            if names_sizes[i] {
                let at = layouts.0;
                for (suffix, value) in [
                    (
                        "shape",
                        format!("constant uint* {of}_shape = bessemer_sizes + {at}"),
                    ),
                    (
                        "ndim",
                        format!("const uint {of}_ndim = bessemer_sizes[{}]", at + MAX_RANK),
                    ),
                    (
                        "size",
                        format!(
                            "const uint {of}_size = bessemer_sizes[{}]",
                            at + MAX_RANK + 1
                        ),
                    ),
                ] {
                    if names(of, &[&format!("_{suffix}")]) {
                        let _ = writeln!(prologue, "    {value};");
                    }
                }
                layouts.0 += SIZES_PER_TENSOR;
            }
            if names_strides[i] {
                let at = layouts.1;
                if is_strided_input {
                    let _ = writeln!(
                        prologue,
                        "    {pointer} {of} = bessemer_{of} + bessemer_strides[{at}];"
                    );
                }
                let _ = writeln!(
                    prologue,
                    "    constant long* {of}_strides = bessemer_strides + {};",
                    at + 1
                );
                layouts.1 += STRIDES_PER_TENSOR;
            }
        }
        for scalar in &definition.scalars {
            let (type_name, name, slot) = (msl_name(scalar.dtype), &scalar.name, scalar.slot);
            parameters.push(format!("constant {type_name}& {name} [[buffer({slot})]]"));
        }
        let sizes = Self::sizes_slot(definition);
        if layouts.0 > 0 {
            parameters.push(format!("constant uint* bessemer_sizes [[buffer({sizes})]]"));
        }
        if layouts.1 > 0 {
            parameters.push(format!(
                "constant long* bessemer_strides [[buffer({})]]",
                sizes + 1
            ));
        }
        for memory in &definition.threadgroup {
            let (type_name, name, slot) = (msl_name(memory.dtype), &memory.name, memory.slot);
            parameters.push(format!(
                "threadgroup {type_name}* {name} [[threadgroup({slot})]]"
            ));
        }
        for builtin in Builtin::ALL {
            let name = builtin.name();
            let is_index = builtin == Builtin::ThreadPositionInGrid && definition.index.is_some();
            if is_index || named.contains(name) {
                let type_name = if has_dimensions(builtin) {
                    "uint3"
                } else {
                    "uint"
                };
                parameters.push(format!("{type_name} {name} [[{name}]]"));
            }
        }
        if let Some(index) = &definition.index {
            let _ = writeln!(
                prologue,
                "    const uint {index} = thread_position_in_grid.x;"
            );
        }
        let _ = write!(
            text,
            "kernel void {name}(\n    {})\n{{\n{prologue}#line 1 \"{name}\"\n{body}\n#line 1 \"{name} (end)\"\n}}\n",
            parameters.join(",\n    ")
        );
        Self {
            text,
            names_sizes,
            names_strides,
        }
    }

    /// Index of the buffer with the sizes; the strides follow.
    fn sizes_slot(definition: &Definition) -> u32 {
        definition.buffer_count()
    }

    /// The generated arguments for these layouts, by buffer index.
    ///
    /// # Errors
    /// [`Error::Invalid`] for lengths that do not fit into 32 bits.
    pub(super) fn arguments(
        &self,
        definition: &Definition,
        layouts: &[Layout],
    ) -> Result<Vec<(u32, Vec<u8>)>> {
        let mut sizes: Vec<u32> = Vec::new();
        let mut strides: Vec<i64> = Vec::new();
        for (i, (layout, tensor)) in layouts.iter().zip(&definition.tensors).enumerate() {
            if self.names_sizes[i] {
                let end = sizes.len() + MAX_RANK;
                let to_u32 = |n: usize| {
                    u32::try_from(n).map_err(|_| Error::Invalid {
                        op: definition.name,
                        reason: format!(
                            "the sizes of `{}` {} do not fit into 32 bits",
                            tensor.name,
                            layout.shape()
                        ),
                    })
                };
                for &len in layout.shape().iter() {
                    sizes.push(to_u32(len)?);
                }
                sizes.resize(end, 1);
                sizes.push(layout.shape().rank() as u32);
                sizes.push(to_u32(layout.count())?);
            }
            if self.names_strides[i] {
                let end = strides.len() + STRIDES_PER_TENSOR;
                strides.push((layout.offset() - layout.span().start) as i64);
                strides.extend(layout.strides().iter().map(|&s| s as i64));
                strides.resize(end, 0);
            }
        }
        let slot = Self::sizes_slot(definition);
        let mut arguments = Vec::new();
        if !sizes.is_empty() {
            arguments.push((slot, bytemuck::cast_slice(&sizes).to_vec()));
        }
        if !strides.is_empty() {
            arguments.push((slot + 1, bytemuck::cast_slice(&strides).to_vec()));
        }
        Ok(arguments)
    }
}

/// Returns whether an attribute has a component for each dimension of the grid.
fn has_dimensions(builtin: Builtin) -> bool {
    matches!(
        builtin,
        Builtin::ThreadPositionInGrid
            | Builtin::ThreadsPerGrid
            | Builtin::ThreadPositionInThreadgroup
            | Builtin::ThreadsPerThreadgroup
            | Builtin::ThreadgroupPositionInGrid
            | Builtin::ThreadgroupsPerGrid
            | Builtin::DispatchThreadsPerThreadgroup
            | Builtin::GridOrigin
            | Builtin::GridSize
    )
}
