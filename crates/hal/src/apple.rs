//! Apple GPUs.
