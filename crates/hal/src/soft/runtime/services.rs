//! Runtime services for kernel code: the `sm_rt` table.
//!
//! The table is the same for all images and modes; its functions depend on the calling thread's current launch,
//! which they find in a thread-local. Called outside a launch they do nothing.
#![expect(unsafe_code, reason = "functions that C++ code calls")]

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_void};
use std::ops::Range;
use std::ptr;

use super::fuzz::scatter;
use super::image::Image;
use super::log::{self, KernelLogLine, Log, LogArgument};
use super::math;
use super::signal::ThreadSlot;
use crate::soft::check::{AccessEvent, Checker, Defect, Verdict};

/// The table that an image receives through `sm_init`.
#[derive(Debug)]
#[repr(C)]
pub struct Table {
    /// Reports a memory access to the checker.
    pub access: unsafe extern "C" fn(*mut c_void, u32, u32),
    /// Looks up a function constant.
    pub constant: unsafe extern "C" fn(u32, *const c_char, u32, *mut c_void) -> bool,
    /// Returns whether a function constant is set.
    pub has_constant: unsafe extern "C" fn(*const c_char) -> bool,
    /// Writes to the log.
    pub log: LogFn,
    /// Returns a random number.
    pub random: unsafe extern "C" fn() -> u32,
    /// `acos`, `acosh`, `asin`, `asinh`, `atan`, `atanh`, `cos`, `cosh`, `log10`, `sin`, `sinh`, `tan`.
    pub unary: [extern "C" fn(f32) -> f32; 12],
    /// `atan2`, `fmod`, `pow`.
    pub binary: [extern "C" fn(f32, f32) -> f32; 3],
    /// `sin` of a `double`, for `sinpi` and its relatives.
    pub sin_double: extern "C" fn(f64) -> f64,
    /// Reports a loop that exhausted the iterations of its thread, in check mode.
    pub step: unsafe extern "C" fn(u32),
    /// Reports that a lane reads from an inactive lane, in check mode.
    pub inactive_lane: unsafe extern "C" fn(u32, u32),
    /// Reports a defect without a memory access: `defect(kind, a, b, c, location)`, see `check::Defect`.
    pub defect: unsafe extern "C" fn(u32, u64, u64, u64, u32),
}

/// `log(level, subsystem, category, format, args, kinds, n)`.
pub type LogFn = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    *const c_char,
    *const u64,
    *const u8,
    u32,
);

static TABLE: Table = Table {
    access,
    constant,
    has_constant,
    log: write_log,
    random,
    unary: math::UNARY,
    binary: math::BINARY,
    sin_double: math::sin_double,
    step,
    inactive_lane,
    defect,
};

/// The table for `sm_init`.
pub fn table() -> &'static Table {
    &TABLE
}

/// Flag in the access size: a write.
pub const ACCESS_WRITE: u32 = 1 << 31;
/// Flag in the access size: an atomic access.
pub const ACCESS_ATOMIC: u32 = 1 << 30;
/// Lowest of the five bits in the access size that encode log2 of the type's alignment.
pub const ACCESS_ALIGN_SHIFT: u32 = 25;

/// The calling thread's launch, for the services.
pub(super) struct CurrentLaunch<'a> {
    pub(super) slot: &'static ThreadSlot,
    pub(super) log: &'a Log,
    pub(super) image: &'a Image,
    pub(super) threadgroup: Cell<[u32; 3]>,
    /// State of the random number generator.
    pub(super) random: Cell<u64>,
    /// The running threadgroup's checker; null outside check mode.
    pub(super) checker: *mut Checker,
}

thread_local! {
    static CURRENT: Cell<*const CurrentLaunch<'static>> = const { Cell::new(ptr::null()) };
    static CONSTANTS: RefCell<Option<ConstantLookup>> = const { RefCell::new(None) };
}

impl CurrentLaunch<'_> {
    /// Makes this visible to services on the calling thread while `body` runs.
    pub(super) fn during<R>(&self, body: impl FnOnce() -> R) -> R {
        struct Reset(*const CurrentLaunch<'static>);
        impl Drop for Reset {
            fn drop(&mut self) {
                CURRENT.set(self.0);
            }
        }
        let _reset = Reset(CURRENT.get());
        CURRENT.set(ptr::from_ref(self).cast());
        body()
    }

    fn get() -> Option<&'static CurrentLaunch<'static>> {
        let current = CURRENT.get();
        // SAFETY: set by `during`, which is still running on this thread; services do not keep the reference.
        (!current.is_null()).then(|| unsafe { &*current })
    }
}

unsafe extern "C" fn access(pointer: *mut c_void, size_and_flags: u32, location: u32) {
    with_checker(|checker| {
        checker.access(AccessEvent {
            address: pointer as usize,
            size: (size_and_flags & ((1 << ACCESS_ALIGN_SHIFT) - 1)) as usize,
            write: size_and_flags & ACCESS_WRITE != 0,
            atomic: size_and_flags & ACCESS_ATOMIC != 0,
            align: 1 << (size_and_flags >> ACCESS_ALIGN_SHIFT & 31),
            location,
        })
    });
}

unsafe extern "C" fn step(location: u32) {
    with_checker(|checker| checker.iterations_exhausted(location));
}

unsafe extern "C" fn inactive_lane(reader: u32, source: u32) {
    with_checker(|checker| checker.inactive_lane(reader, source));
}

/// Calls the running threadgroup's checker, and aborts the threadgroup if its verdict is to abandon it.
#[inline]
fn with_checker(check: impl FnOnce(&mut Checker) -> Verdict) {
    let Some(current) = CurrentLaunch::get() else {
        return;
    };
    let Some(checker) = ptr::NonNull::new(current.checker) else {
        return;
    };
    let verdict = current.slot.run_service(|| {
        // SAFETY: the worker's checker; observers and services never overlap, so this is the only reference to it.
        check(unsafe { &mut *checker.as_ptr() })
    });
    if verdict == Verdict::Abandon {
        // SAFETY: this frame and its caller own nothing, and their caller is kernel code.
        unsafe { current.slot.abandon() };
    }
}

unsafe extern "C" fn defect(kind: u32, a: u64, b: u64, c: u64, location: u32) {
    let Some(current) = CurrentLaunch::get() else {
        return;
    };
    let Some(checker) = ptr::NonNull::new(current.checker) else {
        return;
    };
    let Some(defect) = Defect::decode(kind, [a, b, c]) else {
        return;
    };
    let verdict = current.slot.run_service(|| {
        // SAFETY: as in `access`.
        let checker = unsafe { &mut *checker.as_ptr() };
        checker.defect(defect, location)
    });
    if verdict == Verdict::Abandon {
        // SAFETY: this frame owns nothing, and its caller is kernel code.
        unsafe { current.slot.abandon() };
    }
}

unsafe extern "C" fn random() -> u32 {
    let Some(current) = CurrentLaunch::get() else {
        return 0;
    };
    let state = current.random.get();
    current
        .random
        .set(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
    (scatter(state) >> 32) as u32
}

/// Text copied out of kernel memory, which is not trusted.
struct CopiedText<const N: usize> {
    bytes: [u8; N],
    used: usize,
}

impl<const N: usize> CopiedText<N> {
    fn new() -> Self {
        Self {
            bytes: [0; N],
            used: 0,
        }
    }

    /// Appends the C string at `text` and returns its range; truncated if it does not fit.
    ///
    /// # Safety
    /// May fault if `text` is a wild pointer: only call this in contained code.
    unsafe fn append(&mut self, text: *const c_char) -> Range<usize> {
        let start = self.used;
        if text.is_null() {
            return start..start;
        }
        let mut source = text.cast::<u8>();
        while self.used < N {
            // SAFETY: the string has not ended; otherwise the caller's promise.
            let byte = unsafe { source.read() };
            if byte == 0 {
                break;
            }
            self.bytes[self.used] = byte;
            self.used += 1;
            // SAFETY: as above.
            source = unsafe { source.add(1) };
        }
        start..self.used
    }
}

unsafe extern "C" fn write_log(
    level: u32,
    subsystem: *const c_char,
    category: *const c_char,
    format: *const c_char,
    arguments: *const u64,
    kinds: *const u8,
    count: u32,
) {
    const MAX_LOG_ARGUMENTS: usize = 32;
    let Some(current) = CurrentLaunch::get() else {
        return;
    };
    // First copy everything that may fault into plain arrays: a wild `%s` ends the kernel like any wild pointer.
    let mut text = CopiedText::<2048>::new();
    let mut kind = [0_u8; MAX_LOG_ARGUMENTS];
    let mut value = [0_u64; MAX_LOG_ARGUMENTS];
    let mut string = [const { 0..0 }; MAX_LOG_ARGUMENTS];
    let count = (count as usize).min(MAX_LOG_ARGUMENTS);
    // SAFETY: contained code, see `CopiedText::append`; the arrays have `count` entries by the table's contract.
    let (subsystem, category, format) = unsafe {
        let format = text.append(format);
        for index in 0..count {
            kind[index] = kinds.add(index).read();
            value[index] = arguments.add(index).read_unaligned();
            if kind[index] == b's' {
                string[index] = text.append(ptr::with_exposed_provenance(value[index] as usize));
            }
        }
        let subsystem = text.append(subsystem);
        (subsystem, text.append(category), format)
    };
    current.slot.run_service(|| {
        let slice = |range: Range<usize>| &text.bytes[range];
        let lossy = |range| String::from_utf8_lossy(slice(range)).into_owned();
        let arguments: Vec<_> = (0..count)
            .map(|index| match kind[index] {
                b'f' => LogArgument::Float(f64::from_bits(value[index])),
                b's' => LogArgument::Text(slice(string[index].clone())),
                b'p' => LogArgument::Pointer(value[index]),
                b'i' => LogArgument::Signed(value[index] as i64),
                _ => LogArgument::Unsigned(value[index]),
            })
            .collect();
        current.log.push(KernelLogLine {
            level,
            subsystem: lossy(subsystem),
            category: lossy(category),
            text: log::format(slice(format), &arguments),
            kernel: current.image.name().to_owned(),
            threadgroup: current.threadgroup.get(),
        });
    });
}

/// Type of a function constant, with the numbers that images use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are MSL's type names")]
pub enum ConstantType {
    Bool = 1,
    Float = 2,
    Half = 3,
    Char = 11,
    Short = 12,
    Int = 14,
    Long = 18,
    Uchar = 21,
    Ushort = 22,
    Uint = 24,
    Ulong = 28,
}

impl ConstantType {
    /// Size of a value in bytes.
    pub fn size(self) -> usize {
        match self {
            Self::Bool | Self::Char | Self::Uchar => 1,
            Self::Half | Self::Short | Self::Ushort => 2,
            Self::Float | Self::Int | Self::Uint => 4,
            Self::Long | Self::Ulong => 8,
        }
    }

    /// The name in MSL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Float => "float",
            Self::Half => "half",
            Self::Char => "char",
            Self::Short => "short",
            Self::Int => "int",
            Self::Long => "long",
            Self::Uchar => "uchar",
            Self::Ushort => "ushort",
            Self::Uint => "uint",
            Self::Ulong => "ulong",
        }
    }

    fn from_number(number: u32) -> Option<Self> {
        const ALL: [ConstantType; 11] = [
            ConstantType::Bool,
            ConstantType::Float,
            ConstantType::Half,
            ConstantType::Char,
            ConstantType::Short,
            ConstantType::Int,
            ConstantType::Long,
            ConstantType::Uchar,
            ConstantType::Ushort,
            ConstantType::Uint,
            ConstantType::Ulong,
        ];
        ALL.into_iter().find(|&kind| kind as u32 == number)
    }
}

/// Values of function constants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConstantTable {
    entries: Vec<ConstantEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ConstantEntry {
    index: Option<u32>,
    name: Option<String>,
    kind: ConstantType,
    bits: u64,
}

/// A constant whose value has a different type than the kernel declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConstantMismatch {
    /// The constant's name in the source.
    pub name: String,
    /// Its declared type.
    pub declared: &'static str,
    /// The type of the value.
    pub given: &'static str,
}

struct ConstantLookup {
    table: ConstantTable,
    /// Names found so far.
    defined: Vec<String>,
    mismatches: Vec<ConstantMismatch>,
}

impl ConstantTable {
    /// Sets a constant by index; the low bytes of `bits` are the value.
    pub fn set_index(&mut self, index: u32, kind: ConstantType, bits: u64) {
        self.entries.retain(|entry| entry.index != Some(index));
        self.entries.push(ConstantEntry {
            index: Some(index),
            name: None,
            kind,
            bits,
        });
    }

    /// Sets a constant by name.
    pub fn set_name(&mut self, name: &str, kind: ConstantType, bits: u64) {
        self.entries
            .retain(|entry| entry.name.as_deref() != Some(name));
        self.entries.push(ConstantEntry {
            index: None,
            name: Some(name.to_owned()),
            kind,
            bits,
        });
    }

    fn get(&self, index: u32, name: &str) -> Option<&ConstantEntry> {
        self.entries.iter().find(|entry| {
            entry.index == Some(index) || (!name.is_empty() && entry.name.as_deref() == Some(name))
        })
    }

    /// Answers the constant lookups of `initialise` (an image's `sm_init`) from this table. Returns the names of
    /// the constants that have a value, for [`Image::with_constants`](super::Image::with_constants): kernels may
    /// query them later.
    ///
    /// # Errors
    /// The constants that were looked up with a different type than their value has.
    pub fn during(&self, initialise: impl FnOnce()) -> Result<Vec<String>, Vec<ConstantMismatch>> {
        let named = self.entries.iter().filter_map(|entry| entry.name.clone());
        let lookup = ConstantLookup {
            table: self.clone(),
            defined: named.collect(),
            mismatches: Vec::new(),
        };
        let previous = CONSTANTS.replace(Some(lookup));
        initialise();
        match CONSTANTS.replace(previous) {
            Some(lookup) if !lookup.mismatches.is_empty() => Err(lookup.mismatches),
            Some(lookup) => Ok(lookup.defined),
            None => Ok(Vec::new()),
        }
    }
}

/// # Safety
/// `name` must be null or a C string.
unsafe fn text<'a>(name: *const c_char) -> &'a str {
    if name.is_null() {
        return "";
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("")
}

unsafe extern "C" fn constant(
    index: u32,
    name: *const c_char,
    kind: u32,
    out: *mut c_void,
) -> bool {
    // SAFETY: images pass string literals.
    let name = unsafe { text(name) };
    CONSTANTS.with_borrow_mut(|lookup| {
        let Some(lookup) = lookup else {
            return false;
        };
        let Some(entry) = lookup.table.get(index, name) else {
            return false;
        };
        let declared = ConstantType::from_number(kind);
        if declared != Some(entry.kind) {
            let mismatch = ConstantMismatch {
                name: name.to_owned(),
                declared: declared.map_or("another type", ConstantType::name),
                given: entry.kind.name(),
            };
            lookup.mismatches.push(mismatch);
            return false;
        }
        let bytes = entry.bits.to_le_bytes();
        // SAFETY: `out` points to a value of the declared type.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast(), entry.kind.size()) };
        if !lookup.defined.iter().any(|other| other == name) {
            lookup.defined.push(name.to_owned());
        }
        true
    })
}

unsafe extern "C" fn has_constant(name: *const c_char) -> bool {
    // SAFETY: images pass string literals.
    let name = unsafe { text(name) };
    if let Some(current) = CurrentLaunch::get() {
        return current.image.defines(name);
    }
    CONSTANTS.with_borrow(|lookup| {
        lookup
            .as_ref()
            .is_some_and(|lookup| lookup.defined.iter().any(|other| other == name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(index: u32, name: &CStr, kind: ConstantType) -> Option<u32> {
        let mut out = 0_u32;
        // SAFETY: `out` fits the 4-byte types used here.
        let found = unsafe {
            (table().constant)(
                index,
                name.as_ptr(),
                kind as u32,
                (&raw mut out).cast::<c_void>(),
            )
        };
        found.then_some(out)
    }

    #[test]
    fn constants_are_found_by_index_and_name_while_an_image_initialises() {
        let mut constants = ConstantTable::default();
        constants.set_index(3, ConstantType::Uint, 77);
        constants.set_index(3, ConstantType::Uint, 78);
        constants.set_name("scale", ConstantType::Float, u64::from(1.5_f32.to_bits()));
        let defined = constants.during(|| {
            assert_eq!(lookup(3, c"n", ConstantType::Uint), Some(78));
            let scale = lookup(9, c"scale", ConstantType::Float);
            assert_eq!(scale, Some(1.5_f32.to_bits()));
            assert_eq!(lookup(4, c"other", ConstantType::Int), None);
            // SAFETY: string literals.
            unsafe {
                assert!((table().has_constant)(c"n".as_ptr()));
                assert!(!(table().has_constant)(c"other".as_ptr()));
            }
        });
        assert_eq!(defined, Ok(vec!["scale".to_owned(), "n".to_owned()]));
        assert_eq!(lookup(3, c"n", ConstantType::Uint), None);
    }

    #[test]
    fn a_constant_of_another_type_is_an_error() {
        let mut constants = ConstantTable::default();
        constants.set_index(0, ConstantType::Int, 1);
        let result = constants.during(|| {
            lookup(0, c"flag", ConstantType::Bool);
        });
        let mismatch = ConstantMismatch {
            name: "flag".into(),
            declared: "bool",
            given: "int",
        };
        assert_eq!(result, Err(vec![mismatch]));
    }
}
