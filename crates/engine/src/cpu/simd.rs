//! One source, many instruction sets.
//!
//! A kernel is written once, as plain loops in an `#[inline(always)]` `Task::run`, and compiled for every
//! [`Level`]: the loop is inlined into a function with the target features of the level, for which the compiler
//! vectorises it. Features are detected at run time; `table` lists which of them each family of kernels uses.
#![cfg_attr(
    target_arch = "x86_64",
    expect(
        unsafe_code,
        reason = "functions compiled for an instruction set are called after it was detected"
    )
)]

mod table;

use std::sync::atomic::{AtomicU8, Ordering};

pub(crate) use self::table::{Family, Features, MAX_MATVEC_ROWS};
use crate::env;

/// An instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Level {
    /// The target's baseline: SSE2 on x86-64, NEON on 64-bit ARM (without fused multiply-add, so that every
    /// target can test this level).
    Scalar,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX-512 (F, BW, DQ, VL) besides AVX2.
    Avx512,
    /// NEON with FMA.
    Neon,
}

impl Level {
    /// All levels, lowest first.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Avx2, Self::Avx512, Self::Neon];

    /// The name, as in `BESSEMER_SIMD`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
        }
    }

    /// Returns true if this processor has it.
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                std::arch::is_x86_feature_detected!("avx2")
                    && std::arch::is_x86_feature_detected!("fma")
                    && std::arch::is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_available()
                    && std::arch::is_x86_feature_detected!("avx512f")
                    && std::arch::is_x86_feature_detected!("avx512bw")
                    && std::arch::is_x86_feature_detected!("avx512dq")
                    && std::arch::is_x86_feature_detected!("avx512vl")
            }
            #[cfg(target_arch = "aarch64")]
            Self::Neon => true,
            #[cfg_attr(
                not(any(target_arch = "x86_64", target_arch = "aarch64")),
                expect(unreachable_patterns, reason = "the arms above depend on the target")
            )]
            _ => false,
        }
    }

    fn best() -> Self {
        Self::ALL
            .into_iter()
            .rev()
            .find(|l| l.is_available())
            .unwrap_or(Self::Scalar)
    }
}

/// The features in use, as `Features as u8 + 1`; 0 before detection.
static FEATURES: AtomicU8 = AtomicU8::new(0);

/// The features in use: those of [`level`] that this processor has.
pub(crate) fn features() -> Features {
    match FEATURES.load(Ordering::Relaxed) {
        0 => use_level(env::settings().simd.unwrap_or_else(Level::best)),
        n => Features::ALL[usize::from(n) - 1],
    }
}

fn use_level(level: Level) -> Features {
    let features = Features::of(level);
    FEATURES.store(features as u8 + 1, Ordering::Relaxed);
    features
}

/// The highest level that kernels run at: the best that this processor has, unless `BESSEMER_SIMD` or [`set_level`]
/// overrides it. Kernels use a lower level if that was measured to be faster.
pub fn level() -> Level {
    features().level()
}

/// Sets the highest level for the whole process. Returns false, and changes nothing, if the processor lacks it.
pub fn set_level(level: Level) -> bool {
    let available = level.is_available();
    if available {
        use_level(level);
    }
    available
}

/// The names of all instruction sets that this processor has and some kernel uses: the levels, and their extensions
/// (`avx512+vnni`, `neon+dotprod`, `neon+i8mm`).
pub fn detected() -> Vec<&'static str> {
    Features::ALL
        .into_iter()
        .filter(|f| f.is_available())
        .map(Features::name)
        .collect()
}

/// The features that the kernels of a family use.
#[inline]
pub(crate) fn chosen(family: Family) -> Features {
    family.choose(features())
}

/// Properties of the instruction set that a kernel is compiled for.
pub(crate) trait Isa: Copy + Send + Sync + 'static {
    /// The level.
    const LEVEL: Level;
    /// True if a fused multiply-add is one instruction.
    const FMA: bool;
}

/// A floating-point type with a multiply-add that is fused if that is fast.
pub(crate) trait MulAdd: Copy {
    /// `self * b + c`, rounded once if [`Isa::FMA`] is true, otherwise twice.
    fn mul_add_on<I: Isa>(self, b: Self, c: Self) -> Self;
}

macro_rules! mul_add {
    ($($type:ty),*) => {$(
        impl MulAdd for $type {
            #[inline(always)]
            fn mul_add_on<I: Isa>(self, b: Self, c: Self) -> Self {
                if I::FMA { self.mul_add(b, c) } else { self * b + c }
            }
        }
    )*};
}
mul_add!(f32, f64);

/// A kernel: loops in an `#[inline(always)]` `run` that the compiler vectorises for `I`.
pub(crate) trait Task {
    /// Its return type.
    type Output;
    /// Runs it. Implementations must be `#[inline(always)]`, and so must all functions they call.
    fn run<I: Isa>(self) -> Self::Output;
}

macro_rules! isa {
    ($name:ident, $fma:expr) => {
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name;
        impl Isa for $name {
            const LEVEL: Level = Level::$name;
            const FMA: bool = $fma;
        }
    };
}

isa!(Scalar, false);
#[cfg(target_arch = "x86_64")]
isa!(Avx2, true);
#[cfg(target_arch = "x86_64")]
isa!(Avx512, true);
#[cfg(target_arch = "aarch64")]
isa!(Neon, true);

/// Runs a task of [`Family::Elementwise`].
#[inline]
pub(crate) fn run<T: Task>(task: T) -> T::Output {
    run_as(Family::Elementwise, task)
}

/// Runs a task of a family.
#[inline]
pub(crate) fn run_as<T: Task>(family: Family, task: T) -> T::Output {
    run_at(chosen(family).level(), task)
}

/// Runs a task of [`Family::Streaming`], which never uses more than AVX2: another copy of each kernel would only cost code
/// size and compile time.
#[inline]
pub(crate) fn run_narrow<T: Task>(task: T) -> T::Output {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
    fn avx2<T: Task>(task: T) -> T::Output {
        task.run::<Avx2>()
    }

    match chosen(Family::Streaming).level() {
        // SAFETY: a level is chosen only where `is_available` found its features on this processor, and
        // those of AVX-512 include those of AVX2.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::Avx512 => unsafe { avx2(task) },
        #[cfg(target_arch = "aarch64")]
        Level::Neon => task.run::<Neon>(),
        _ => task.run::<Scalar>(),
    }
}

/// Runs a task at a level, or at [`Level::Scalar`] if the target does not have that level.
#[inline]
pub(crate) fn run_at<T: Task>(at: Level, task: T) -> T::Output {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
    fn avx2<T: Task>(task: T) -> T::Output {
        task.run::<Avx2>()
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt"
    )]
    fn avx512<T: Task>(task: T) -> T::Output {
        task.run::<Avx512>()
    }

    match at {
        // SAFETY: a level is in use, or passed here by a test, only where `is_available` found its
        // features on this processor; every processor with AVX2 has the bit instructions named here.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { avx2(task) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { avx512(task) },
        #[cfg(target_arch = "aarch64")]
        Level::Neon => task.run::<Neon>(),
        _ => task.run::<Scalar>(),
    }
}

/// Test support for kernels.
#[cfg(test)]
pub(crate) mod testing {
    use super::{Level, level};

    /// Returns true if the processor is emulated and slow: then only its own level is tested, with fewer cases.
    fn is_emulated() -> bool {
        std::env::var_os("BESSEMER_TEST_EMULATED").is_some()
    }

    /// Every level that this processor has; only the best one if it is emulated.
    pub(crate) fn levels() -> impl Iterator<Item = Level> {
        let best = level();
        let is_tested = move |l: &Level| l.is_available() && (!is_emulated() || *l == best);
        Level::ALL.into_iter().filter(is_tested)
    }

    /// The cases of a test, or those for an emulated processor.
    pub(crate) fn cases<T>(all: T, emulated: T) -> T {
        if is_emulated() { emulated } else { all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct ReportLevel;
    impl Task for ReportLevel {
        type Output = Level;
        #[inline(always)]
        fn run<I: Isa>(self) -> Level {
            I::LEVEL
        }
    }

    #[test]
    fn a_task_runs_at_the_requested_level() {
        for level in testing::levels() {
            assert_eq!(run_at(level, ReportLevel), level);
        }
    }

    #[test]
    fn a_level_the_processor_lacks_is_refused() {
        let missing = Level::ALL.into_iter().find(|l| !l.is_available());
        if let Some(missing) = missing {
            let before = level();
            assert!(!set_level(missing));
            assert_eq!(level(), before);
        }
    }
}
