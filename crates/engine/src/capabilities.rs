//! Capabilities of a device, as far as the engine depends on them: code that reads these names no kind of device.

use crate::DType;
use crate::ops::matmul::EpilogueSteps;
use crate::ops::unary::Unary;

/// The limits of a device's kernels and what pays off on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capabilities {
    /// Maximum number of inputs of a fused elementwise kernel.
    pub(crate) max_fused_inputs: usize,
    /// What matmul kernels can run as their epilogue.
    pub(crate) matmul_epilogue: MatmulEpilogue,
    /// Whether nodes of scalar operands are cached and shared: worth it where a small op takes no longer than making a
    /// node.
    pub(crate) caches_scalars: bool,
}

/// The steps that the kernels of a matmul can run as their epilogue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MatmulEpilogue {
    /// None.
    Unsupported,
    /// A bias in `f32`, which is added to the accumulator: other dtypes would not be rounded step by step. Chains are
    /// matched as for `Full`, with these activations.
    Bias { activations: fn(Unary) -> bool },
    /// A bias, one of these activations and a residual; each step is rounded to the dtype of the result.
    Full { activations: fn(Unary) -> bool },
}

impl MatmulEpilogue {
    /// Returns `true` if any step can be fused.
    pub(crate) const fn is_supported(self) -> bool {
        !matches!(self, Self::Unsupported)
    }

    /// Returns `true` if this function can be the activation of an epilogue.
    pub(crate) fn is_activation(self, f: Unary) -> bool {
        match self {
            Self::Unsupported => false,
            Self::Bias { activations } | Self::Full { activations } => activations(f),
        }
    }

    /// Returns `true` if the kernels run these steps after a matmul of this dtype.
    pub(crate) fn allows(self, steps: EpilogueSteps, dtype: DType) -> bool {
        match self {
            Self::Unsupported => false,
            Self::Bias { .. } => {
                dtype == DType::F32 && steps.activation.is_none() && !steps.residual
            }
            Self::Full { .. } => matches!(dtype, DType::F32 | DType::F16 | DType::BF16),
        }
    }
}
