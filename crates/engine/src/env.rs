//! The environment variables that the engine reads, all of them.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `BESSEMER_DEVICE` | the default device: `cpu`, `metal`, `soft` or `auto` | `auto`: a Metal GPU where there is one |
//! | `BESSEMER_MATMUL` | who multiplies matrices on a Metal device: `msl`, the engine's kernels, or `mps`, Metal Performance Shaders where there are | `msl` |
//! | `BESSEMER_RED_ZONES` | `1`: results of Metal kernels lie between zones that are looked at when they are read; slow, for tests | off |
//! | `BESSEMER_THREADS` | threads of the CPU backend, this one included | the cores this process may use |
//! | `BESSEMER_SIMD` | `scalar`, `avx2`, `avx512` or `neon`; one the processor lacks is ignored | the best there is |
//! | `BESSEMER_CACHE_LIMIT` | bytes of freed memory kept for reuse | a quarter of the machine's memory |

use crate::cpu::simd::Level;
use crate::metal::MatrixLibrary;

fn read(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|v| !v.is_empty())
}

/// `BESSEMER_DEVICE`
pub(crate) fn device() -> Option<String> {
    read("BESSEMER_DEVICE")
}

/// `BESSEMER_MATMUL`, where it is a name that is known.
pub(crate) fn matmul() -> Option<MatrixLibrary> {
    MatrixLibrary::named(&read("BESSEMER_MATMUL")?)
}

/// Whether `BESSEMER_RED_ZONES` is `1`.
pub(crate) fn red_zones() -> bool {
    read("BESSEMER_RED_ZONES").is_some_and(|v| v == "1")
}

/// `BESSEMER_THREADS`, where it is a number above zero.
pub(crate) fn threads() -> Option<usize> {
    read("BESSEMER_THREADS")?.parse().ok().filter(|&n| n > 0)
}

/// `BESSEMER_SIMD`, where it names a level that the processor has.
pub(crate) fn simd() -> Option<Level> {
    let name = read("BESSEMER_SIMD")?;
    Level::ALL
        .into_iter()
        .find(|l| l.name() == name && l.is_available())
}

/// `BESSEMER_CACHE_LIMIT`, where it is a number.
pub(crate) fn cache_limit() -> Option<usize> {
    read("BESSEMER_CACHE_LIMIT")?.parse().ok()
}
