//! The shader files of hologram's plan, and what their kernels may be launched on.
//!
//! Kernels have the arguments that the plan gives them, and behind them the number of elements, so that a lane without an
//! element does nothing.

use bessemer_hal::Buffer;

const MATH: &str = include_str!("shaders/math.metal");
const ACTIVATION: &str = include_str!("shaders/activation.metal");
const REDUCE: &str = include_str!("shaders/reduce.metal");
const LINALG: &str = include_str!("shaders/linalg.metal");

/// Length of the arguments of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// All buffers have `n` elements.
    Elementwise,
    /// The input has `n` elements, the output one.
    Reduction,
    /// Matrices: launched by `MetalExecutor::gemm` alone.
    Matrix,
}

/// A kernel of the shader files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shader {
    pub(super) name: &'static str,
    pub(super) source: &'static str,
    /// Number of buffers.
    buffers: usize,
    extent: Extent,
}

const fn shader(
    name: &'static str,
    source: &'static str,
    buffers: usize,
    extent: Extent,
) -> Shader {
    Shader {
        name,
        source,
        buffers,
        extent,
    }
}

pub(super) const GEMM: Shader = shader("gemm", LINALG, 3, Extent::Matrix);

const SHADERS: [Shader; 8] = [
    shader("vector_add", MATH, 3, Extent::Elementwise),
    shader("vector_mul", MATH, 3, Extent::Elementwise),
    shader("relu", ACTIVATION, 2, Extent::Elementwise),
    shader("sigmoid", ACTIVATION, 2, Extent::Elementwise),
    shader("reduce_sum", REDUCE, 2, Extent::Reduction),
    shader("reduce_min", REDUCE, 2, Extent::Reduction),
    shader("reduce_max", REDUCE, 2, Extent::Reduction),
    GEMM,
];

/// The kernel of a name.
pub(super) fn by_name(name: &str) -> Option<Shader> {
    SHADERS.into_iter().find(|s| s.name == name)
}

/// The kernel, if the text is that of our files.
pub(super) fn of_source(name: &str, source: &str) -> Option<Shader> {
    by_name(name).filter(|s| s.source == source)
}

impl Shader {
    /// The number of elements that all of its lanes stay within, or why the kernel cannot run on these buffers.
    pub(super) fn element_count(self, buffers: &[Buffer]) -> Result<u32, String> {
        if buffers.len() != self.buffers {
            return Err(format!(
                "{} has {} buffers, not {}",
                self.name,
                self.buffers,
                buffers.len()
            ));
        }
        let elements = |buffer: &Buffer| buffer.length() / size_of::<f32>();
        let count = match (self.extent, buffers) {
            (Extent::Elementwise, _) => buffers.iter().map(elements).min(),
            (Extent::Reduction, [input, output]) if elements(output) > 0 => Some(elements(input)),
            (Extent::Reduction, _) => return Err("the output has no element".to_owned()),
            (Extent::Matrix, _) => {
                return Err("gemm has sizes: call `MetalExecutor::gemm`".to_owned());
            }
        };
        // A lane that steps behind the last element must not wrap around.
        let count = i32::try_from(count.unwrap_or(0));
        count
            .map(i32::cast_unsigned)
            .map_err(|_| format!("{} takes fewer than 2^31 elements", self.name))
    }
}
