//! Loops over blocks of elements: the inside of every elementwise kernel.
//!
//! A function of elements is a type that implements [`Map1`], [`Map2`] or [`Map3`]; [`map1`], [`map2`]
//! and [`map3`] make a [`Kernel`] of it, compiled for every instruction set. A kernel is a plain function
//! pointer over bytes, so that a program of steps is a list of them, chosen once and not once a block.

use std::any::TypeId;

use bytemuck::Pod;

use super::simd::{self, Isa, Task};

/// What a kernel reads: blocks of elements, at least as many as it writes, or, where [`takes_number`] says so, one
/// element for all. Blocks that the function does not take are empty.
#[derive(Clone, Copy, Default)]
pub(crate) struct Args<'a> {
    pub(crate) a: &'a [u8],
    pub(crate) b: &'a [u8],
    pub(crate) c: &'a [u8],
    /// The parameter of functions that have one.
    pub(crate) parameter: f64,
}

/// Computes the elements of a block from blocks of arguments.
pub(crate) type Kernel = fn(&Args<'_>, &mut [u8]);

/// A function of one element.
pub(crate) trait Map1<T, U> {
    /// Whether it takes more time than memory does for its elements. Functions of few instructions are never compiled
    /// above AVX2: on Zen 4, AVX-512 computes `a + b` of 10,000 elements in the same time and of 16 million in 1.4 times
    /// that, but `exp` in 0.6.
    const IS_LONG: bool;
    /// The function; `p` is the parameter of those that have one.
    fn call<I: Isa>(x: T, p: f64) -> U;
}

/// A function of blocks of as many elements, where one element at a time is not the fastest way; of many instructions.
pub(crate) trait MapAll<T, U> {
    /// The function.
    fn call<I: Isa>(from: &[T], to: &mut [U]);
}

/// A function of two elements of one type.
pub(crate) trait Map2<T, U> {
    /// As for [`Map1`].
    const IS_LONG: bool;
    /// The function.
    fn call<I: Isa>(a: T, b: T) -> U;
}

/// A function of three elements, the first of which may have another type; of few instructions.
pub(crate) trait Map3<C, T> {
    /// The function.
    fn call<I: Isa>(a: C, b: T, c: T) -> T;
}

/// Whether the kernel of a function of `arity` elements of `f32` takes a number for the whole block at a place. A number
/// in a register is one load less for every element. Other types are not worth the loops: their numbers are repeated.
pub(crate) const fn takes_number(arity: usize, place: usize) -> bool {
    arity == 2 || arity == 3 && place > 0
}

/// The number that a block of `f32` is.
#[inline(always)]
fn number<T: Pod>(block: &[T]) -> Option<T> {
    match block {
        &[number] if TypeId::of::<T>() == TypeId::of::<f32>() => Some(number),
        _ => None,
    }
}

struct Loop<'a, 'b, F>(&'a Args<'b>, &'a mut [u8], std::marker::PhantomData<F>);

struct All<F>(F);
struct One<F>(F);
struct Two<F>(F);
struct Three<F>(F);

impl<T: Pod, U: Pod, F: Map1<T, U>> Task for Loop<'_, '_, One<(T, U, F)>> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let out: &mut [U] = bytemuck::cast_slice_mut(self.1);
        let a: &[T] = &bytemuck::cast_slice(self.0.a)[..out.len()];
        let p = self.0.parameter;
        for (y, &a) in out.iter_mut().zip(a) {
            *y = F::call::<I>(a, p);
        }
    }
}

impl<T: Pod, U: Pod, F: MapAll<T, U>> Task for Loop<'_, '_, All<(T, U, F)>> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let out: &mut [U] = bytemuck::cast_slice_mut(self.1);
        F::call::<I>(&bytemuck::cast_slice(self.0.a)[..out.len()], out);
    }
}

impl<T: Pod, U: Pod, F: Map2<T, U>> Task for Loop<'_, '_, Two<(T, U, F)>> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let out: &mut [U] = bytemuck::cast_slice_mut(self.1);
        let len = out.len();
        let a: &[T] = bytemuck::cast_slice(self.0.a);
        let b: &[T] = bytemuck::cast_slice(self.0.b);
        match (number(a), number(b)) {
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

impl<C: Pod, T: Pod, F: Map3<C, T>> Task for Loop<'_, '_, Three<(C, T, F)>> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let out: &mut [T] = bytemuck::cast_slice_mut(self.1);
        let len = out.len();
        let a: &[C] = &bytemuck::cast_slice(self.0.a)[..len];
        let b: &[T] = bytemuck::cast_slice(self.0.b);
        let c: &[T] = bytemuck::cast_slice(self.0.c);
        let out = out.iter_mut().zip(a);
        match (number(b), number(c)) {
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
    let task = Loop::<One<(T, U, F)>>(args, out, std::marker::PhantomData);
    if F::IS_LONG {
        simd::run(task);
    } else {
        simd::run_narrow(task);
    }
}

/// The kernel of a function of blocks.
pub(crate) fn map_all<T: Pod, U: Pod, F: MapAll<T, U>>(args: &Args<'_>, out: &mut [u8]) {
    simd::run(Loop::<All<(T, U, F)>>(args, out, std::marker::PhantomData));
}

/// The kernel of a function of two elements.
pub(crate) fn map2<T: Pod, U: Pod, F: Map2<T, U>>(args: &Args<'_>, out: &mut [u8]) {
    let task = Loop::<Two<(T, U, F)>>(args, out, std::marker::PhantomData);
    if F::IS_LONG {
        simd::run(task);
    } else {
        simd::run_narrow(task);
    }
}

/// The kernel of a function of three elements.
pub(crate) fn map3<C: Pod, T: Pod, F: Map3<C, T>>(args: &Args<'_>, out: &mut [u8]) {
    simd::run_narrow(Loop::<Three<(C, T, F)>>(
        args,
        out,
        std::marker::PhantomData,
    ));
}

/// The kernel of a function that is written in place: `map!(f32 => u8, |a, b| u8::from(a < b))`. With
/// one element, the second name is that of the parameter: `map!(f32 => f32, |x; p| x * p as f32)`. Of
/// blocks: `map!([f32] => [f32], |from, to| to.copy_from_slice(from))`. The instruction set is `I`. Functions of many
/// instructions say so: `map!(long f32 => f32, |x| x.exp_on::<I>())`.
macro_rules! map {
    ([$T:ty] => [$U:ty], |$from:ident, $to:ident| $body:expr) => {{
        struct F;
        impl $crate::cpu::map::MapAll<$T, $U> for F {
            #[inline(always)]
            fn call<I: $crate::cpu::simd::Isa>($from: &[$T], $to: &mut [$U]) {
                $body
            }
        }
        $crate::cpu::map::map_all::<$T, $U, F> as $crate::cpu::map::Kernel
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
            const IS_LONG: bool = $is_long;
            #[inline(always)]
            fn call<I: $crate::cpu::simd::Isa>($x: $T, $p: f64) -> $U {
                $body
            }
        }
        $crate::cpu::map::map1::<$T, $U, F> as $crate::cpu::map::Kernel
    }};
    (@$is_long:literal $T:ty => $U:ty, |$a:ident, $b:ident| $body:expr) => {{
        struct F;
        impl $crate::cpu::map::Map2<$T, $U> for F {
            const IS_LONG: bool = $is_long;
            #[inline(always)]
            fn call<I: $crate::cpu::simd::Isa>($a: $T, $b: $T) -> $U {
                $body
            }
        }
        $crate::cpu::map::map2::<$T, $U, F> as $crate::cpu::map::Kernel
    }};
    ($C:ty, $T:ty, |$a:ident, $b:ident, $c:ident| $body:expr) => {{
        struct F;
        impl $crate::cpu::map::Map3<$C, $T> for F {
            #[inline(always)]
            fn call<I: $crate::cpu::simd::Isa>($a: $C, $b: $T, $c: $T) -> $T {
                $body
            }
        }
        $crate::cpu::map::map3::<$C, $T, F> as $crate::cpu::map::Kernel
    }};
    ($T:ty => $($map:tt)*) => {
        $crate::cpu::map::map!(@false $T => $($map)*)
    };
}
pub(crate) use map;
