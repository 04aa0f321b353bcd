//! Prints the instruction sets that this processor has and the CPU backend has kernels for, lowest first:
//! what `BESSEMER_SIMD` takes, and after a `+` what is detected besides.
#![expect(clippy::print_stdout, reason = "a program that prints is meant to")]

fn main() {
    for name in bessemer::simd::detected() {
        println!("{name}");
    }
}
