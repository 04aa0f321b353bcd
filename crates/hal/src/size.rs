//! Grid and threadgroup sizes.

use std::fmt;

/// A three-dimensional size, as Metal's `MTLSize`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Size {
    /// Columns: neighbouring threads differ in x.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Layers.
    pub depth: usize,
}

impl Size {
    /// A one-dimensional size.
    pub const fn x(width: usize) -> Self {
        Self::new(width, 1, 1)
    }

    /// A two-dimensional size.
    pub const fn xy(width: usize, height: usize) -> Self {
        Self::new(width, height, 1)
    }

    /// A size in all three dimensions.
    pub const fn new(width: usize, height: usize, depth: usize) -> Self {
        Self {
            width,
            height,
            depth,
        }
    }

    /// Number of elements; `None` when it does not fit a `usize`.
    pub fn total(self) -> Option<usize> {
        self.width.checked_mul(self.height)?.checked_mul(self.depth)
    }

    /// Returns true if any dimension is zero: such a grid has no threads.
    pub fn is_empty(self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }

    /// The three dimensions in order.
    pub const fn dims(self) -> [usize; 3] {
        [self.width, self.height, self.depth]
    }
}

impl From<usize> for Size {
    fn from(width: usize) -> Self {
        Self::x(width)
    }
}

impl From<(usize, usize)> for Size {
    fn from((width, height): (usize, usize)) -> Self {
        Self::xy(width, height)
    }
}

impl From<(usize, usize, usize)> for Size {
    fn from((width, height, depth): (usize, usize, usize)) -> Self {
        Self::new(width, height, depth)
    }
}

impl From<[usize; 3]> for Size {
    fn from([width, height, depth]: [usize; 3]) -> Self {
        Self::new(width, height, depth)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}×{}×{}", self.width, self.height, self.depth)
    }
}
