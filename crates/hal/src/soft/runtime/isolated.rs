//! Isolation.

/// Isolation.
#[derive(Debug)]
pub struct Isolation;
