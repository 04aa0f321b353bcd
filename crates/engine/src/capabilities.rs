//! What a device can fuse. The graph passes ask for this value, so that they name no device.

use crate::DType;
use crate::ops::matmul::Then;
use crate::ops::unary::Unary;

/// The limits of a device's kernels, as far as the graph passes depend on them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capabilities {
    /// Inputs that a fused elementwise kernel may have.
    pub(crate) max_fused_inputs: usize,
    /// What matmul kernels can run as their epilogue.
    pub(crate) matmul_epilogue: MatmulEpilogue,
}

/// The steps that the kernels of a matmul can run as their epilogue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MatmulEpilogue {
    /// None.
    Unsupported,
    /// A bias in `f32`, which is added to the accumulator: other dtypes would not be rounded step by step. The search
    /// for a chain is that of `Full`, with its activations.
    Bias { activations: fn(Unary) -> bool },
    /// A bias, one of these activations and a residual, each rounded to the dtype of the result.
    Full { activations: fn(Unary) -> bool },
}

impl MatmulEpilogue {
    /// Whether there is any.
    pub(crate) const fn is_supported(self) -> bool {
        !matches!(self, Self::Unsupported)
    }

    /// Whether this function can be the activation of an epilogue.
    pub(crate) fn is_activation(self, f: Unary) -> bool {
        match self {
            Self::Unsupported => false,
            Self::Bias { activations } | Self::Full { activations } => activations(f),
        }
    }

    /// Whether the kernels run these steps after a matmul of this dtype.
    pub(crate) fn allows(self, steps: Then, dtype: DType) -> bool {
        match self {
            Self::Unsupported => false,
            Self::Bias { .. } => {
                dtype == DType::F32 && steps.activation.is_none() && !steps.residual
            }
            Self::Full { .. } => matches!(dtype, DType::F32 | DType::F16 | DType::BF16),
        }
    }
}
