//! Prints the SIMD levels of this processor that the CPU backend supports, lowest first: the values of `BESSEMER_SIMD`,
//! and after a `+` further detected features.
#![expect(clippy::print_stdout, reason = "a program that prints is meant to")]

fn main() {
    for name in bessemer::simd::detected() {
        println!("{name}");
    }
}
