//! Converts crashes and timeouts of kernel code into values.
//!
//! Every thread that runs kernels has a [`ThreadSlot`]. While its state is [`IN_KERNEL`], a fault raised by the thread's
//! own code, or the watchdog's signal after the deadline, returns the thread to where [`ThreadSlot::contain`] entered the
//! kernel. Runtime functions that kernel code calls set [`IN_SERVICE`] ([`ThreadSlot::run_service`]): they may hold locks, so
//! they are never interrupted; a deadline that passes meanwhile takes effect when they return. In any other state a
//! signal is passed on to the previous handler.
#![expect(unsafe_code, reason = "installs signal handlers")]

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering, compiler_fence};

use super::memory::{MappedMemory, page_size};
use super::recovery::{self, FloatMode, RecoveryPoint};
use super::watchdog;

const OUTSIDE: u32 = 0;
const IN_KERNEL: u32 = 1;
const IN_SERVICE: u32 = 2;

const CAUSE_SIGNAL: u32 = 1;
const CAUSE_DEADLINE: u32 = 2;
const CAUSE_ABANDONED: u32 = 3;

/// How contained code ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContainedExit {
    /// It returned.
    Returned,
    /// It raised a signal.
    Signal {
        signal: c_int,
        code: c_int,
        address: usize,
    },
    /// Its deadline passed.
    Deadline,
    /// A service called [`ThreadSlot::abandon`].
    Abandoned,
}

/// The state of one thread that signal handlers and the watchdog share.
#[derive(Debug)]
pub(crate) struct ThreadSlot {
    point: UnsafeCell<RecoveryPoint>,
    state: AtomicU32,
    expired: AtomicBool,
    cause: AtomicU32,
    signal: AtomicI32,
    code: AtomicI32,
    address: AtomicU64,
    /// Monotonic nanoseconds; 0 for none.
    pub(super) deadline: AtomicU64,
    /// Kernel thread id, for `tgkill`.
    pub(super) thread: AtomicI32,
    /// The usable range of the thread's stack.
    stack: Range<usize>,
}

// SAFETY: `point` is only accessed by the slot's own thread and its signal handlers; the rest is atomic or
// constant.
unsafe impl Sync for ThreadSlot {}

thread_local! {
    /// For signal handlers: constant-initialised and without a destructor, so that reading it is a plain load.
    static SLOT: Cell<*const ThreadSlot> = const { Cell::new(ptr::null()) };
    static REGISTRATION: Registration = Registration::new();
}

/// A thread's registration: the slot, its entry in the watchdog's list and the thread's signal stack.
struct Registration {
    slot: &'static ThreadSlot,
    signal_stack: Option<MappedMemory>,
}

impl Registration {
    fn new() -> Self {
        install_handlers();
        let slot = Box::leak(Box::new(ThreadSlot {
            point: UnsafeCell::new(RecoveryPoint::default()),
            state: AtomicU32::new(OUTSIDE),
            expired: AtomicBool::new(false),
            cause: AtomicU32::new(0),
            signal: AtomicI32::new(0),
            code: AtomicI32::new(0),
            address: AtomicU64::new(0),
            deadline: AtomicU64::new(0),
            // SAFETY: gettid has no preconditions.
            thread: AtomicI32::new(unsafe { libc::gettid() }),
            stack: stack_of_this_thread(),
        }));
        let signal_stack = ensure_signal_stack();
        unblock_signals();
        watchdog::register(slot);
        SLOT.set(slot);
        Self { slot, signal_stack }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        SLOT.set(ptr::null());
        // From here on the watchdog neither signals the thread nor reads the slot.
        watchdog::unregister(self.slot);
        if self.signal_stack.is_some() {
            // The thread is exiting; a smaller stack that it had before may be gone already.
            // SAFETY: disabling the thread's own signal stack; no handler runs on it now.
            unsafe {
                let mut disabled: libc::stack_t = MaybeUninit::zeroed().assume_init();
                disabled.ss_flags = libc::SS_DISABLE;
                libc::sigaltstack(&raw const disabled, ptr::null_mut());
            }
        }
        // SAFETY: the slot came from `Box::leak` in `new`; nothing refers to it any more.
        drop(unsafe { Box::from_raw(ptr::from_ref(self.slot).cast_mut()) });
    }
}

/// Permission to run kernels on this thread. Not `Send`.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegisteredThread {
    slot: &'static ThreadSlot,
    not_send: PhantomData<*const ()>,
}

impl RegisteredThread {
    /// Registers the calling thread, unless it is registered already.
    pub(super) fn current() -> Self {
        // The slot lives as long as the thread, and the value cannot leave the thread.
        REGISTRATION.with(|registration| Self {
            slot: registration.slot,
            not_send: PhantomData,
        })
    }

    /// The thread's slot.
    pub(super) fn slot(self) -> &'static ThreadSlot {
        self.slot
    }
}

/// Runs code of an image outside a launch, such as its initialisers. Returns the signal it crashed with.
///
/// # Safety
/// As [`ThreadSlot::contain`].
pub(crate) unsafe fn attempt(body: impl FnOnce()) -> Option<c_int> {
    // SAFETY: the caller's promise.
    match unsafe { RegisteredThread::current().slot().contain(body) } {
        ContainedExit::Signal { signal, .. } => Some(signal),
        ContainedExit::Returned | ContainedExit::Deadline | ContainedExit::Abandoned => None,
    }
}

impl ThreadSlot {
    /// The slot of the calling thread, if it is registered.
    #[inline]
    pub(crate) fn current() -> Option<&'static Self> {
        let slot = SLOT.get();
        // SAFETY: set from a live registration of this thread and cleared before that ends.
        (!slot.is_null()).then(|| unsafe { &*slot })
    }

    /// Runs `body`, which may crash, hang or be abandoned.
    ///
    /// # Safety
    /// Everything that `body` calls outside [`ThreadSlot::run_service`] must be kernel code, or code whose frames hold no lock
    /// and own nothing: it may stop at any instruction.
    #[inline]
    pub(super) unsafe fn contain<F: FnOnce()>(&self, body: F) -> ContainedExit {
        struct Call<'a, F> {
            slot: &'a ThreadSlot,
            body: Option<F>,
        }
        unsafe extern "C" fn trampoline<F: FnOnce()>(data: *mut c_void) {
            // SAFETY: `data` is the `Call` below, which outlives this call.
            let call = unsafe { &mut *data.cast::<Call<'_, F>>() };
            let slot = call.slot;
            if let Some(body) = call.body.take() {
                slot.set_state(IN_KERNEL);
                body();
                slot.set_state(OUTSIDE);
            }
        }
        let mut call = Call {
            slot: self,
            body: Some(body),
        };
        self.cause.store(0, Ordering::Relaxed);
        self.expired.store(false, Ordering::Relaxed);
        // SAFETY: the point belongs to this thread's slot; the trampoline is `extern "C"`, so it cannot unwind.
        let abandoned = unsafe {
            recovery::enter(
                self.point.get(),
                trampoline::<F>,
                (&raw mut call).cast::<c_void>(),
            )
        };
        if abandoned == 0 {
            return ContainedExit::Returned;
        }
        match self.cause.load(Ordering::Relaxed) {
            CAUSE_SIGNAL => ContainedExit::Signal {
                signal: self.signal.load(Ordering::Relaxed),
                code: self.code.load(Ordering::Relaxed),
                address: self.address.load(Ordering::Relaxed) as usize,
            },
            CAUSE_DEADLINE => ContainedExit::Deadline,
            _ => ContainedExit::Abandoned,
        }
    }

    /// Runs a service on behalf of kernel code, in the host's floating-point mode and without interruption. Outside
    /// kernel code it just runs.
    #[inline]
    pub(crate) fn run_service<R>(&self, service: impl FnOnce() -> R) -> R {
        if self.state.load(Ordering::Relaxed) != IN_KERNEL {
            return service();
        }
        self.check_headroom();
        self.set_state(IN_SERVICE);
        // SAFETY: this is the mode that Rust code expects.
        unsafe { FloatMode::Host.set() };
        let result = service();
        // SAFETY: only kernel code follows.
        unsafe { FloatMode::Kernel.set() };
        self.set_state(IN_KERNEL);
        if self.expired.load(Ordering::Relaxed) {
            drop(result);
            self.bail(CAUSE_DEADLINE);
        }
        result
    }

    /// Aborts contained code that has left too little stack for a service: an overflow inside a service would be fatal.
    #[inline]
    fn check_headroom(&self) {
        const HEADROOM_BYTES: usize = 64 * 1024;
        let marker = 0_u8;
        let stack_pointer = &raw const marker as usize;
        if stack_pointer < self.stack.start.saturating_add(HEADROOM_BYTES)
            && stack_pointer >= self.stack.start
        {
            self.signal.store(libc::SIGSEGV, Ordering::Relaxed);
            self.code.store(0, Ordering::Relaxed);
            self.address
                .store(self.stack.start as u64, Ordering::Relaxed);
            self.bail(CAUSE_SIGNAL);
        }
    }

    /// Aborts the contained code that called the running service.
    ///
    /// # Safety
    /// No frame between here and the kernel may hold a lock or own anything.
    #[inline]
    pub(crate) unsafe fn abandon(&self) {
        if self.state.load(Ordering::Relaxed) != OUTSIDE {
            self.bail(CAUSE_ABANDONED);
        }
    }

    /// The range of this thread's stack that contained code may use, below the frame that entered it.
    pub(crate) fn kernel_stack(&self) -> Range<usize> {
        // SAFETY: only this thread writes the point.
        let point = unsafe { *self.point.get() };
        self.stack.start..point.stack
    }

    /// Returns whether a fault at `address` is a stack overflow.
    pub(super) fn overflowed(&self, address: usize) -> bool {
        // A thread's guard is at least one page; larger frames may land a little further down.
        let reach = 16 * page_size();
        address < self.stack.start + page_size()
            && address >= self.stack.start.saturating_sub(reach)
    }

    #[cold]
    fn bail(&self, cause: u32) -> ! {
        self.cause.store(cause, Ordering::Relaxed);
        self.set_state(OUTSIDE);
        // SAFETY: the state was not OUTSIDE, so the `enter` that filled the point is still running on this thread.
        unsafe { recovery::leave(self.point.get()) }
    }

    #[inline]
    fn set_state(&self, state: u32) {
        // Only this thread's signal handlers depend on the order.
        compiler_fence(Ordering::SeqCst);
        self.state.store(state, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }
}

/// Monotonic time in nanoseconds; async-signal-safe.
pub(super) fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the time into our own structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Signals that a crash raises.
const CRASH_SIGNALS: [c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
];

struct Handlers {
    /// The previous handlers of each of [`CRASH_SIGNALS`] and then of the alarm.
    previous: [UnsafeCell<libc::sigaction>; CRASH_SIGNALS.len() + 1],
    alarm: c_int,
}

// SAFETY: written once before our handlers are installed, by the thread that installs them, and only read after.
unsafe impl Sync for Handlers {}
// SAFETY: plain data.
unsafe impl Send for Handlers {}

static HANDLERS: OnceLock<&'static Handlers> = OnceLock::new();
/// The same, readable from a handler without the lock's slow path.
static INSTALLED: std::sync::atomic::AtomicPtr<Handlers> =
    std::sync::atomic::AtomicPtr::new(ptr::null_mut());

/// Returns the signal with which the watchdog interrupts a thread.
pub(super) fn alarm_signal() -> c_int {
    install_handlers().alarm
}

fn install_handlers() -> &'static Handlers {
    HANDLERS.get_or_init(|| {
        let handlers: &'static Handlers = Box::leak(Box::new(Handlers {
            previous: std::array::from_fn(|_| {
                // SAFETY: all-zero is a valid sigaction (default action).
                UnsafeCell::new(unsafe { MaybeUninit::zeroed().assume_init() })
            }),
            alarm: free_signal(),
        }));
        INSTALLED.store(ptr::from_ref(handlers).cast_mut(), Ordering::Release);
        for (index, &signal) in CRASH_SIGNALS.iter().chain([&handlers.alarm]).enumerate() {
            let handler = if signal == handlers.alarm {
                on_alarm as *const () as usize
            } else {
                on_crash as *const () as usize
            };
            // SAFETY: both handlers have the SA_SIGINFO signature and are async-signal-safe. The previous action is
            // stored first, so that a signal in between finds it.
            unsafe {
                let previous = handlers.previous[index].get();
                libc::sigaction(signal, ptr::null(), previous);
                let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
                action.sa_sigaction = handler;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
                libc::sigemptyset(&raw mut action.sa_mask);
                libc::sigaction(signal, &raw const action, ptr::null_mut());
            }
        }
        handlers
    })
}

/// Returns a real-time signal that is not in use in this process.
fn free_signal() -> c_int {
    let candidates = (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev();
    for signal in candidates {
        // SAFETY: only reads the current action.
        let free = unsafe {
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            libc::sigaction(signal, ptr::null(), &raw mut action) == 0
                && action.sa_sigaction == libc::SIG_DFL
        };
        if free {
            return signal;
        }
    }
    libc::SIGRTMAX()
}

unsafe extern "C" fn on_crash(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    if let Some(slot) = ThreadSlot::current()
        && slot.state.load(Ordering::Relaxed) == IN_KERNEL
        // SAFETY: `info` is the handler's argument.
        && unsafe { (*info).si_code } > 0
    {
        slot.cause.store(CAUSE_SIGNAL, Ordering::Relaxed);
        slot.signal.store(signal, Ordering::Relaxed);
        // SAFETY: as above; the fault signals carry an address.
        unsafe {
            slot.code.store((*info).si_code, Ordering::Relaxed);
            slot.address
                .store((*info).si_addr() as u64, Ordering::Relaxed);
        }
        slot.set_state(OUTSIDE);
        // SAFETY: the state was IN_KERNEL, so the point's `enter` is running on this thread.
        unsafe { recovery::redirect(context, *slot.point.get()) };
        return;
    }
    // SAFETY: the handler's own arguments.
    unsafe { chain(signal, info, context) };
}

unsafe extern "C" fn on_alarm(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(slot) = ThreadSlot::current() else {
        // SAFETY: the handler's own arguments.
        unsafe { chain(signal, info, context) };
        return;
    };
    // A late signal may arrive during the next launch, which has its own deadline.
    let deadline = slot.deadline.load(Ordering::Relaxed);
    if deadline == 0 || now() < deadline {
        return;
    }
    match slot.state.load(Ordering::Relaxed) {
        IN_KERNEL => {
            slot.cause.store(CAUSE_DEADLINE, Ordering::Relaxed);
            slot.set_state(OUTSIDE);
            // SAFETY: the state was IN_KERNEL, so the point's `enter` is running on this thread.
            unsafe { recovery::redirect(context, *slot.point.get()) };
        }
        IN_SERVICE => slot.expired.store(true, Ordering::Relaxed),
        _ => {}
    }
}

/// Passes a signal on to the handler that was installed before ours.
///
/// # Safety
/// Must be called from a signal handler with its own arguments.
unsafe fn chain(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let handlers = INSTALLED.load(Ordering::Acquire);
    if handlers.is_null() {
        return;
    }
    // SAFETY: never freed once installed.
    let handlers = unsafe { &*handlers };
    let index = CRASH_SIGNALS
        .iter()
        .position(|&crash| crash == signal)
        .unwrap_or(CRASH_SIGNALS.len());
    // SAFETY: written before our handlers were installed.
    let previous = unsafe { &*handlers.previous[index].get() };
    match previous.sa_sigaction {
        libc::SIG_IGN => {}
        libc::SIG_DFL => {
            if signal == handlers.alarm {
                return;
            }
            // Restores the default action, and raises the signal again for when this handler has returned.
            // SAFETY: async-signal-safe calls only.
            unsafe {
                let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
                action.sa_sigaction = libc::SIG_DFL;
                libc::sigemptyset(&raw mut action.sa_mask);
                libc::sigaction(signal, &raw const action, ptr::null_mut());
                libc::raise(signal);
            }
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            type SigInfoHandler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            // SAFETY: registered with SA_SIGINFO, so it has this signature.
            unsafe {
                let handler = std::mem::transmute::<usize, SigInfoHandler>(handler);
                handler(signal, info, context);
            }
        }
        handler => {
            // SAFETY: registered without SA_SIGINFO, so it takes the signal alone.
            unsafe {
                let handler = std::mem::transmute::<usize, unsafe extern "C" fn(c_int)>(handler);
                handler(signal);
            }
        }
    }
}

/// Gives the thread a signal stack unless its own is large enough: a stack overflow must be survivable, even with a
/// previous handler that needs space. The standard library gives its threads 8 KiB.
fn ensure_signal_stack() -> Option<MappedMemory> {
    /// The signal frame with AVX-512 and AMX state is about 12 KiB.
    const SIGNAL_STACK_BYTES: usize = 64 * 1024;
    // SAFETY: reads the thread's own setting, then replaces it with memory that lives in the registration.
    unsafe {
        let mut current: libc::stack_t = MaybeUninit::zeroed().assume_init();
        libc::sigaltstack(ptr::null(), &raw mut current);
        if current.ss_flags & libc::SS_DISABLE == 0 && current.ss_size >= SIGNAL_STACK_BYTES / 2 {
            return None;
        }
        let block = MappedMemory::guarded(SIGNAL_STACK_BYTES).ok()?;
        let stack = libc::stack_t {
            ss_sp: block.pointer().cast(),
            ss_flags: 0,
            ss_size: block.length(),
        };
        (libc::sigaltstack(&raw const stack, ptr::null_mut()) == 0).then_some(block)
    }
}

fn unblock_signals() {
    // SAFETY: only changes the calling thread's mask, for signals this module handles.
    unsafe {
        let mut set: libc::sigset_t = MaybeUninit::zeroed().assume_init();
        libc::sigemptyset(&raw mut set);
        for signal in CRASH_SIGNALS {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::sigaddset(&raw mut set, alarm_signal());
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut());
    }
}

fn stack_of_this_thread() -> Range<usize> {
    // SAFETY: attributes of the calling thread, destroyed after use.
    unsafe {
        let mut attributes: libc::pthread_attr_t = MaybeUninit::zeroed().assume_init();
        if libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) != 0 {
            return 0..usize::MAX;
        }
        let mut low = ptr::null_mut();
        let mut size = 0;
        libc::pthread_attr_getstack(&raw const attributes, &raw mut low, &raw mut size);
        libc::pthread_attr_destroy(&raw mut attributes);
        low as usize..low as usize + size
    }
}
