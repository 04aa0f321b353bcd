//! What the host must know of a program: its kernels with their arguments, and its function constants.

mod argument;
mod kernel;

use serde::{Deserialize, Serialize};

pub use super::builtin::Builtin;
use super::diagnostic::Diagnostic;
pub(crate) use argument::Shape;
pub(crate) use kernel::reflect;

/// Metal's argument tables have this many buffer and threadgroup-memory slots.
pub const SLOTS: u32 = 31;

/// The kernels and function constants of a program, in the order of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reflection {
    /// Every kernel that the host can ask for.
    pub kernels: Vec<Kernel>,
    /// Every function constant that the host can set.
    pub constants: Vec<FunctionConstant>,
}

impl Reflection {
    /// The kernel of a host name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }
}

/// A kernel function, or one instantiation of a kernel template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// The name that the host asks for.
    pub name: String,
    /// The function, qualified and with its template arguments.
    pub function: String,
    /// In the order of the parameters.
    pub arguments: Vec<Argument>,
    /// `[[max_total_threads_per_threadgroup(n)]]`
    pub max_total_threads: Option<u32>,
    /// Where it is defined or instantiated.
    pub file: String,
    /// Where it is defined or instantiated, from 1.
    pub line: u32,
    /// Why the software device cannot run it; then its arguments are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsupported: Option<Diagnostic>,
}

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Argument {
    /// Empty where the parameter has none.
    pub name: String,
    /// Where its value comes from.
    pub kind: ArgumentKind,
    /// As written; `thread` for values.
    pub address_space: AddressSpace,
    /// The kernel may write through it: neither `const` nor `constant`.
    pub writable: bool,
    /// The type, or what a pointer, reference or array refers to; without address space and `const`.
    pub type_name: String,
    /// `T&` rather than `T*` or `T[n]`.
    pub by_reference: bool,
    /// The condition of `[[function_constant(…)]]`; the argument exists where it is true.
    pub gate: Option<String>,
}

/// Where a kernel argument comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ArgumentKind {
    /// A slot of the buffer table.
    Buffer {
        /// 0 to 30
        index: u32,
    },
    /// Threadgroup memory that the host sizes.
    ThreadgroupMemory {
        /// 0 to 30
        index: u32,
    },
    /// The thread's place in the grid and its relatives.
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
    /// A thread's own.
    Thread,
}

impl AddressSpace {
    /// The address space of a keyword.
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
