//! Enters kernel code such that it can be abandoned at any instruction.
//!
//! [`enter`] saves the callee-saved registers and the resume address; [`leave`] returns there from a function that
//! kernel code called, and [`redirect`] does the same from a signal handler, by editing the interrupted context.
//! Either way `enter` returns a second time, like `setjmp`: no frame in between is unwound, so none of them may
//! hold a lock or anything with a destructor.
//!
//! Kernel code runs in its own floating-point mode, whatever the mode of the calling thread: round to nearest, no
//! traps, single-precision subnormals flushed to zero ([`FloatMode::Kernel`]). `enter` restores the caller's mode,
//! and [`FloatMode::set`] restores Rust's mode in a function that kernel code called.
#![expect(
    unsafe_code,
    reason = "switches stacks and edits signal contexts, which only assembly can express"
)]

use std::arch::{asm, naked_asm};
use std::ffi::c_void;

/// Stack pointer and address at which to resume when kernel code is abandoned.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct RecoveryPoint {
    /// Stack pointer inside [`enter`].
    pub(super) stack: usize,
    /// Address of its resume path.
    pub(super) resume: usize,
}

/// A floating-point mode of the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FloatMode {
    /// Rust's mode: IEEE 754 with subnormals.
    Host,
    /// The mode of kernels: single-precision subnormal inputs and results are flushed to zero. Half precision keeps
    /// its subnormals: conversions on x86-64 ignore the mode, and ARM has a separate bit (`FZ16`), which stays 0.
    Kernel,
}

/// MXCSR: all exceptions masked, round to nearest.
#[cfg(target_arch = "x86_64")]
const HOST_MXCSR: u32 = 0x1f80;
/// The same with flush-to-zero and denormals-are-zero.
#[cfg(target_arch = "x86_64")]
const KERNEL_MXCSR: u32 = HOST_MXCSR | 0x8040;
/// FPCR: round to nearest, no traps.
#[cfg(target_arch = "aarch64")]
const HOST_FPCR: u64 = 0;
/// The same with `FZ`, which covers inputs and results.
#[cfg(target_arch = "aarch64")]
const KERNEL_FPCR: u64 = 1 << 24;

impl FloatMode {
    /// Switches the calling thread to this mode.
    ///
    /// # Safety
    /// [`FloatMode::Kernel`] is for kernel code only: Rust code must not compute with floats until the mode is
    /// restored.
    #[inline]
    pub(super) unsafe fn set(self) {
        #[cfg(target_arch = "x86_64")]
        let word = match self {
            Self::Host => HOST_MXCSR,
            Self::Kernel => KERNEL_MXCSR,
        };
        #[cfg(target_arch = "aarch64")]
        let word = match self {
            Self::Host => HOST_FPCR,
            Self::Kernel => KERNEL_FPCR,
        };
        #[cfg(target_arch = "x86_64")]
        // SAFETY: loads a valid control word; the caller runs no Rust float code in the kernel mode.
        unsafe {
            asm!("ldmxcsr [{}]", in(reg) &raw const word, options(nostack, readonly));
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            asm!("msr fpcr, {}", in(reg) word, options(nostack, nomem));
        }
    }
}

/// Calls `body(data)` in the kernels' floating-point mode. Returns 0 if it returned and 1 if it was abandoned.
///
/// # Safety
/// `point` must be writable and stay valid while the body runs; the body must not unwind.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn enter(
    point: *mut RecoveryPoint,
    body: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
) -> u32 {
    // Besides the callee-saved registers, the control words of the two floating-point units belong to the caller.
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 24",
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        "mov dword ptr [rsp + 8], {kernel}",
        "ldmxcsr [rsp + 8]",
        "mov [rdi], rsp",
        "lea rax, [rip + 2f]",
        "mov [rdi + 8], rax",
        "mov rdi, rdx",
        "call rsi",
        "xor eax, eax",
        "jmp 3f",
        "2:",
        "cld",
        "fnclex",
        "mov eax, 1",
        "3:",
        "ldmxcsr [rsp]",
        "fldcw [rsp + 4]",
        "add rsp, 24",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
        kernel = const KERNEL_MXCSR,
    )
}

/// Calls `body(data)` in the kernels' floating-point mode. Returns 0 if it returned and 1 if it was abandoned.
///
/// # Safety
/// `point` must be writable and stay valid while the body runs; the body must not unwind.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn enter(
    point: *mut RecoveryPoint,
    body: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
) -> u32 {
    naked_asm!(
        "sub sp, sp, #176",
        "stp x29, x30, [sp]",
        "stp x19, x20, [sp, #16]",
        "stp x21, x22, [sp, #32]",
        "stp x23, x24, [sp, #48]",
        "stp x25, x26, [sp, #64]",
        "stp x27, x28, [sp, #80]",
        "stp d8, d9, [sp, #96]",
        "stp d10, d11, [sp, #112]",
        "stp d12, d13, [sp, #128]",
        "stp d14, d15, [sp, #144]",
        "mrs x9, fpcr",
        "str x9, [sp, #160]",
        "mov x9, #{kernel}",
        "msr fpcr, x9",
        "mov x29, sp",
        "mov x9, sp",
        "str x9, [x0]",
        "adr x9, 2f",
        "str x9, [x0, #8]",
        "mov x0, x2",
        "blr x1",
        "mov w0, #0",
        "b 3f",
        "2:",
        "mov w0, #1",
        "3:",
        "ldr x9, [sp, #160]",
        "msr fpcr, x9",
        "ldp d14, d15, [sp, #144]",
        "ldp d12, d13, [sp, #128]",
        "ldp d10, d11, [sp, #112]",
        "ldp d8, d9, [sp, #96]",
        "ldp x27, x28, [sp, #80]",
        "ldp x25, x26, [sp, #64]",
        "ldp x23, x24, [sp, #48]",
        "ldp x21, x22, [sp, #32]",
        "ldp x19, x20, [sp, #16]",
        "ldp x29, x30, [sp]",
        "add sp, sp, #176",
        "ret",
        kernel = const KERNEL_FPCR,
    )
}

/// Abandons everything called since [`enter`] filled `point`.
///
/// # Safety
/// That `enter` must still be running on this thread, and no frame above it may hold a lock or own anything.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn leave(point: *const RecoveryPoint) -> ! {
    naked_asm!("mov rsp, [rdi]", "jmp [rdi + 8]")
}

/// Abandons everything called since [`enter`] filled `point`.
///
/// # Safety
/// That `enter` must still be running on this thread, and no frame above it may hold a lock or own anything.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn leave(point: *const RecoveryPoint) -> ! {
    naked_asm!("ldr x9, [x0]", "ldr x10, [x0, #8]", "mov sp, x9", "br x10",)
}

/// Makes an interrupted thread resume at `point` once the signal handler returns.
///
/// # Safety
/// `context` must be the handler's third argument, and `point` must belong to an [`enter`] that is still running
/// on the interrupted thread.
pub(super) unsafe fn redirect(context: *mut c_void, point: RecoveryPoint) {
    let context = context.cast::<libc::ucontext_t>();
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel passes a ucontext_t to SA_SIGINFO handlers; general registers may be edited in place.
    unsafe {
        let registers = &mut (*context).uc_mcontext.gregs;
        registers[libc::REG_RSP as usize] = point.stack as i64;
        registers[libc::REG_RIP as usize] = point.resume as i64;
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        (*context).uc_mcontext.sp = point.stack as u64;
        (*context).uc_mcontext.pc = point.resume as u64;
    }
}
