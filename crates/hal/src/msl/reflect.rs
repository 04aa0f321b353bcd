//! Reflection for the host: kernels with their arguments, and function constants.

mod argument;
mod kernel;

pub use super::builtin::Builtin;
pub(crate) use argument::Shape;
pub(crate) use kernel::reflect;

use serde::{Deserialize, Serialize};

use super::diagnostic::Diagnostic;

/// Number of buffer slots and of threadgroup memory slots in Metal's argument tables.
pub const SLOTS: u32 = 31;

/// The kernels and function constants of a program, in text order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reflection {
    /// Every kernel that the host can request.
    pub kernels: Vec<Kernel>,
    /// Every function constant that the host can set.
    pub constants: Vec<FunctionConstant>,
}

impl Reflection {
    /// Looks up a kernel by host name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }
}

/// A kernel function, or one instantiation of a kernel template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// The host name.
    pub name: String,
    /// The function, qualified and with its template arguments.
    pub function: String,
    /// In parameter order.
    pub arguments: Vec<Argument>,
    /// `[[max_total_threads_per_threadgroup(n)]]`
    pub max_total_threads: Option<u32>,
    /// File of its definition or instantiation.
    pub file: String,
    /// Line of its definition or instantiation, from 1.
    pub line: u32,
    /// Why the software device cannot run it; its arguments are unknown then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsupported: Option<Diagnostic>,
}

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Argument {
    /// Empty if the parameter has no name.
    pub name: String,
    /// Where its value comes from.
    pub kind: ArgumentKind,
    /// As written; `thread` for values.
    pub address_space: AddressSpace,
    /// Whether the kernel may write through it: it is neither `const` nor `constant`.
    pub writable: bool,
    /// The type, or the type that a pointer, reference or array refers to; without address space and `const`.
    pub type_name: String,
    /// `T&` rather than `T*` or `T[n]`.
    pub by_reference: bool,
    /// The condition of `[[function_constant(…)]]`; the argument exists if it is true.
    pub gate: Option<String>,
}

/// Where a kernel argument comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ArgumentKind {
    /// A slot in the buffer table.
    Buffer {
        /// 0 to 30
        index: u32,
    },
    /// Threadgroup memory whose size the host sets.
    ThreadgroupMemory {
        /// 0 to 30
        index: u32,
    },
    /// A thread position or a related builtin value.
    Builtin(Builtin),
}

/// Metal's address spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressSpace {
    /// Buffers, read and write.
    Device,
    /// Buffers and program-scope variables, read only.
    Constant,
    /// Shared by the threads of a threadgroup.
    Threadgroup,
    /// Private to a thread.
    Thread,
}

impl AddressSpace {
    /// Parses an address space keyword.
    pub(crate) fn from_keyword(word: &str) -> Option<Self> {
        match word {
            "device" => Some(Self::Device),
            "constant" => Some(Self::Constant),
            "threadgroup" => Some(Self::Threadgroup),
            "thread" => Some(Self::Thread),
            _ => None,
        }
    }

    /// The keyword.
    pub fn keyword(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Constant => "constant",
            Self::Threadgroup => "threadgroup",
            Self::Thread => "thread",
        }
    }
}

/// A function constant: `constant bool x [[function_constant(3)]];`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionConstant {
    /// Its name.
    pub name: String,
    /// Its index, 0 to 65535.
    pub index: u32,
    /// Its type as written.
    pub type_name: String,
}
