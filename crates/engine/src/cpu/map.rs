//! The inner loops of all elementwise kernels, over blocks of elements.
//!
//! A function of elements is a type that implements [`Map1`], [`Map2`] or [`Map3`]; [`map1`], [`map2`] and [`map3`] turn
//! it into an [`ElementwiseKernel`], compiled for every instruction set. A kernel is a plain function pointer over
//! bytes: a fused program is a list of them, chosen once per program and not once per block.

use std::any::TypeId;
use std::marker::PhantomData;

use bytemuck::Pod;

use super::simd::{self, Isa, Task};

/// The arguments of a kernel: blocks of at least as many elements as it writes or, where [`takes_scalar`] allows it, a
/// single element that is broadcast. Unused arguments are empty.
#[derive(Clone, Copy, Default)]
pub(crate) struct Args<'a> {
    pub(crate) a: &'a [u8],
    pub(crate) b: &'a [u8],
    pub(crate) c: &'a [u8],
    /// The parameter of parametric functions.
    pub(crate) parameter: f64,
}

/// Computes the elements of a block from blocks of arguments.
pub(crate) type ElementwiseKernel = fn(&Args<'_>, &mut [u8]);

/// A function of one element.
pub(crate) trait Map1<T, U> {
    /// Whether the function is compute-bound. Memory-bound functions are never compiled above AVX2: on Zen 4, AVX-512
    /// takes the same time as AVX2 for `a + b` of 10,000 elements and 1.4 times that for 16 million, but 0.6 times for
    /// `exp`.
    const IS_COMPUTE_BOUND: bool;
    /// Applies the function; `p` is the parameter of parametric functions.
    fn call<I: Isa>(x: T, p: f64) -> U;
}

/// A compute-bound function from blocks to blocks of equal length, for functions that are faster on whole blocks than
/// element by element.
pub(crate) trait MapAll<T, U> {
    /// Applies the function.
    fn call<I: Isa>(from: &[T], to: &mut [U]);
}

/// A function of two elements of one type.
pub(crate) trait Map2<T, U> {
    /// See [`Map1::IS_COMPUTE_BOUND`].
    const IS_COMPUTE_BOUND: bool;
    /// Applies the function.
    fn call<I: Isa>(a: T, b: T) -> U;
}

/// A memory-bound function of three elements, the first of which may have another type.
pub(crate) trait Map3<C, T> {
    /// Applies the function.
    fn call<I: Isa>(a: C, b: T, c: T) -> T;
}

/// Whether the kernel of a function of `arity` `f32` elements takes a scalar as argument number `position`. A scalar in
/// a register saves one load per element. Other types are not worth the additional loops: their scalars are splatted.
pub(crate) const fn takes_scalar(arity: usize, position: usize) -> bool {
    arity == 2 || arity == 3 && position > 0
}

/// Returns the scalar if an `f32` argument is one.
#[inline(always)]
fn scalar<T: Pod>(block: &[T]) -> Option<T> {
    match block {
        &[scalar] if TypeId::of::<T>() == TypeId::of::<f32>() => Some(scalar),
        _ => None,
    }
}

/// The loop of a kernel over a block.
struct MapLoop<'a, 'b, F> {
    args: &'a Args<'b>,
    out: &'a mut [u8],
    function: PhantomData<F>,
}

impl<'a, 'b, F> MapLoop<'a, 'b, F> {
    fn new(args: &'a Args<'b>, out: &'a mut [u8]) -> Self {
        Self {
            args,
            out,
            function: PhantomData,
        }
    }
}

struct BlockwiseLoop<F>(F);
struct UnaryLoop<F>(F);
struct BinaryLoop<F>(F);
struct TernaryLoop<F>(F);

impl<T: Pod, U: Pod, F: Map1<T, U>> Task for MapLoop<'_, '_, UnaryLoop<(T, U, F)>> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let out: &mut [U] = bytemuck::cast_slice_mut(self.out);
        let a: &[T] = &bytemuck::cast_slice(self.args.a)[..out.len()];
        let p = self.args.parameter;
        for (y, &a) in out.iter_mut().zip(a) {
            *y = F::call::<I>(a, p);
        }
    }
}

impl<T: Pod, U: Pod, F: MapAll<T, U>> Task for MapLoop<'_, '_, BlockwiseLoop<(T, U, F)>> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let out: &mut [U] = bytemuck::cast_slice_mut(self.out);
        F::call::<I>(&bytemuck::cast_slice(self.args.a)[..out.len()], out);
    }
}

impl<T: Pod, U: Pod, F: Map2<T, U>> Task for MapLoop<'_, '_, BinaryLoop<(T, U, F)>> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let out: &mut [U] = bytemuck::cast_slice_mut(self.out);
        let len = out.len();
        let a: &[T] = bytemuck::cast_slice(self.args.a);
        let b: &[T] = bytemuck::cast_slice(self.args.b);
        match (scalar(a), scalar(b)) {
            (None, None) => {
                for ((y, &a), &b) in out.iter_mut().zip(&a[..len]).zip(&b[..len]) {
                    *y = F::call::<I>(a, b);
                }
            }
            (None, Some(b)) => {
                for (y, &a) in out.iter_mut().zip(&a[..len]) {
                    *y = F::call::<I>(a, b);
                }
            }
            (Some(a), None) => {
                for (y, &b) in out.iter_mut().zip(&b[..len]) {
                    *y = F::call::<I>(a, b);
                }
            }
            (Some(a), Some(b)) => out.fill(F::call::<I>(a, b)),
        }
    }
}

impl<C: Pod, T: Pod, F: Map3<C, T>> Task for MapLoop<'_, '_, TernaryLoop<(C, T, F)>> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let out: &mut [T] = bytemuck::cast_slice_mut(self.out);
        let len = out.len();
        let a: &[C] = &bytemuck::cast_slice(self.args.a)[..len];
        let b: &[T] = bytemuck::cast_slice(self.args.b);
        let c: &[T] = bytemuck::cast_slice(self.args.c);
        let out = out.iter_mut().zip(a);
        match (scalar(b), scalar(c)) {
            (None, None) => {
                for (((y, &a), &b), &c) in out.zip(&b[..len]).zip(&c[..len]) {
                    *y = F::call::<I>(a, b, c);
                }
            }
            (None, Some(c)) => {
                for ((y, &a), &b) in out.zip(&b[..len]) {
                    *y = F::call::<I>(a, b, c);
                }
            }
            (Some(b), None) => {
                for ((y, &a), &c) in out.zip(&c[..len]) {
                    *y = F::call::<I>(a, b, c);
                }
            }
            (Some(b), Some(c)) => {
                for (y, &a) in out {
                    *y = F::call::<I>(a, b, c);
                }
            }
        }
    }
}

/// The kernel of a function of one element.
pub(crate) fn map1<T: Pod, U: Pod, F: Map1<T, U>>(args: &Args<'_>, out: &mut [u8]) {
    let task = MapLoop::<UnaryLoop<(T, U, F)>>::new(args, out);
    if F::IS_COMPUTE_BOUND {
        simd::run(task);
    } else {
        simd::run_narrow(task);
    }
}

/// The kernel of a function of blocks.
pub(crate) fn map_all<T: Pod, U: Pod, F: MapAll<T, U>>(args: &Args<'_>, out: &mut [u8]) {
    simd::run(MapLoop::<BlockwiseLoop<(T, U, F)>>::new(args, out));
}

/// The kernel of a function of two elements.
pub(crate) fn map2<T: Pod, U: Pod, F: Map2<T, U>>(args: &Args<'_>, out: &mut [u8]) {
    let task = MapLoop::<BinaryLoop<(T, U, F)>>::new(args, out);
    if F::IS_COMPUTE_BOUND {
        simd::run(task);
    } else {
        simd::run_narrow(task);
    }
}

/// The kernel of a function of three elements.
pub(crate) fn map3<C: Pod, T: Pod, F: Map3<C, T>>(args: &Args<'_>, out: &mut [u8]) {
    simd::run_narrow(MapLoop::<TernaryLoop<(C, T, F)>>::new(args, out));
}

/// Defines the kernel of an inline function: `map!(f32 => u8, |a, b| u8::from(a < b))`. The parameter of a unary
/// function follows a semicolon: `map!(f32 => f32, |x; p| x * p as f32)`. A function of blocks has slice types:
/// `map!([f32] => [f32], |from, to| to.copy_from_slice(from))`. `I` is the instruction set. `long` marks a compute-bound
/// function: `map!(long f32 => f32, |x| x.exp_on::<I>())`.
macro_rules! map {
    ([$T:ty] => [$U:ty], |$from:ident, $to:ident| $body:expr) => {{
        struct F;
        impl $crate::cpu::map::MapAll<$T, $U> for F {
            #[inline(always)]
            fn call<I: $crate::cpu::simd::Isa>($from: &[$T], $to: &mut [$U]) {
                $body
            }
        }
        $crate::cpu::map::map_all::<$T, $U, F> as $crate::cpu::map::ElementwiseKernel
    }};
    (long $($map:tt)*) => {
        $crate::cpu::map::map!(@true $($map)*)
    };
    (@$is_long:literal $T:ty => $U:ty, |$x:ident| $body:expr) => {
        $crate::cpu::map::map!(@$is_long $T => $U, |$x; _p| $body)
    };
    (@$is_long:literal $T:ty => $U:ty, |$x:ident; $p:ident| $body:expr) => {{
        struct F;
        impl $crate::cpu::map::Map1<$T, $U> for F {
            const IS_COMPUTE_BOUND: bool = $is_long;
            #[inline(always)]
            fn call<I: $crate::cpu::simd::Isa>($x: $T, $p: f64) -> $U {
                $body
            }
        }
        $crate::cpu::map::map1::<$T, $U, F> as $crate::cpu::map::ElementwiseKernel
    }};
    (@$is_long:literal $T:ty => $U:ty, |$a:ident, $b:ident| $body:expr) => {{
        struct F;
        impl $crate::cpu::map::Map2<$T, $U> for F {
            const IS_COMPUTE_BOUND: bool = $is_long;
            #[inline(always)]
            fn call<I: $crate::cpu::simd::Isa>($a: $T, $b: $T) -> $U {
                $body
            }
        }
        $crate::cpu::map::map2::<$T, $U, F> as $crate::cpu::map::ElementwiseKernel
    }};
    ($C:ty, $T:ty, |$a:ident, $b:ident, $c:ident| $body:expr) => {{
        struct F;
        impl $crate::cpu::map::Map3<$C, $T> for F {
            #[inline(always)]
            fn call<I: $crate::cpu::simd::Isa>($a: $C, $b: $T, $c: $T) -> $T {
                $body
            }
        }
        $crate::cpu::map::map3::<$C, $T, F> as $crate::cpu::map::ElementwiseKernel
    }};
    ($T:ty => $($map:tt)*) => {
        $crate::cpu::map::map!(@false $T => $($map)*)
    };
}
pub(crate) use map;
