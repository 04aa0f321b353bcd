//! Compensated summation, so that a reference in `f64` is accurate enough to judge `f64`.

/// A running sum with an error compensation (Neumaier).
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    sum: f64,
    lost: f64,
}

impl Sum {
    /// Adds a number.
    pub fn add(&mut self, x: f64) {
        let sum = self.sum + x;
        // The exact error of the addition: Knuth's two-sum.
        let b = sum - self.sum;
        self.lost += (self.sum - (sum - b)) + (x - b);
        self.sum = sum;
    }

    /// Adds a product, as if it were not rounded.
    pub fn add_product(&mut self, a: f64, b: f64) {
        let p = a * b;
        self.add(p);
        if p.is_finite() {
            self.lost += a.mul_add(b, -p);
        }
    }

    /// The sum.
    pub fn total(self) -> f64 {
        // After an infinity the compensation is NaN while the sum itself is right.
        if self.lost.is_finite() && self.sum.is_finite() {
            self.sum + self.lost
        } else {
            self.sum
        }
    }
}

/// The sum of some numbers.
pub fn sum(x: impl IntoIterator<Item = f64>) -> f64 {
    let mut s = Sum::default();
    x.into_iter().for_each(|x| s.add(x));
    s.total()
}

/// The sum of the products of pairs.
pub fn dot(pairs: impl IntoIterator<Item = (f64, f64)>) -> f64 {
    let mut s = Sum::default();
    pairs.into_iter().for_each(|(a, b)| s.add_product(a, b));
    s.total()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_terms_are_not_lost() {
        assert_eq!(sum([1.0, 1e100, 1.0, -1e100]), 2.0);
        assert_eq!(dot([(1e8 + 1.0, 1e8 - 1.0), (-1e8, 1e8)]), -1.0);
    }

    #[test]
    fn infinities_and_nan_propagate() {
        assert_eq!(sum([1.0, f64::INFINITY, 2.0]), f64::INFINITY);
        assert!(sum([f64::INFINITY, -f64::INFINITY]).is_nan());
        assert_eq!(dot([(f64::INFINITY, 1.0), (2.0, 2.0)]), f64::INFINITY);
    }
}
