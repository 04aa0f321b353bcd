//! Linear functions of a lane's position, and ranges of lanes.

use std::cmp::Ordering;

use crate::program::LaunchConfig;

/// `block * number of the block + lane * number of the lane in it + constant`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Linear {
    block: i128,
    lane: i128,
    constant: i128,
}

/// Coefficients beyond this are not followed: their products could overflow.
const MAX_COEFFICIENT: i128 = 1 << 80;

impl Linear {
    pub(super) const fn constant(constant: i128) -> Self {
        Self {
            block: 0,
            lane: 0,
            constant,
        }
    }

    /// The value, if it is the same for all lanes.
    pub(super) fn as_constant(self) -> Option<i128> {
        (self.block == 0 && self.lane == 0).then_some(self.constant)
    }

    fn map(self, other: Self, f: impl Fn(i128, i128) -> i128) -> Option<Self> {
        let result = Self {
            block: f(self.block, other.block),
            lane: f(self.lane, other.lane),
            constant: f(self.constant, other.constant),
        };
        let all = [result.block, result.lane, result.constant];
        all.iter()
            .all(|c| c.abs() <= MAX_COEFFICIENT)
            .then_some(result)
    }

    pub(super) fn add(self, other: Self) -> Option<Self> {
        self.map(other, |a, b| a + b)
    }

    pub(super) fn sub(self, other: Self) -> Option<Self> {
        self.map(other, |a, b| a - b)
    }

    /// The product, if one of them is a constant.
    pub(super) fn mul(self, other: Self) -> Option<Self> {
        let (linear, factor) = match (self.as_constant(), other.as_constant()) {
            (_, Some(factor)) => (self, factor),
            (Some(factor), None) => (other, factor),
            (None, None) => return None,
        };
        let coefficients = [linear.block, linear.lane, linear.constant];
        let is_small = |c: &i128| {
            c.checked_mul(factor)
                .is_some_and(|p| p.abs() <= MAX_COEFFICIENT)
        };
        if !coefficients.iter().all(is_small) {
            return None;
        }
        linear.map(linear, |a, _| a * factor)
    }
}

/// Consecutive lanes of a launch, at least one.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneRange {
    pub(super) first: u64,
    /// The last lane.
    last: u64,
    block_lanes: u64,
    /// Blocks and lanes have one dimension only.
    is_flat: bool,
}

/// The order of a linear function and 0.
pub(super) enum Comparison {
    /// The same for all lanes.
    Same(Ordering),
    /// From this lane on, it is another one.
    ChangesAt(u64),
    Unknown,
}

impl LaneRange {
    /// All lanes of a launch; `None` if there are none.
    pub(super) fn of(config: &LaunchConfig) -> Option<Self> {
        let block_lanes = config.block_lanes();
        let last = (config.blocks() * block_lanes).checked_sub(1)?;
        let (grid, block) = (config.grid, config.block);
        Some(Self {
            first: 0,
            last,
            block_lanes,
            is_flat: [grid.y, grid.z, block.y, block.z] == [1; 4],
        })
    }

    pub(super) const fn len(self) -> usize {
        (self.last - self.first + 1) as usize
    }

    /// The lanes before one of the range, and those from it on.
    pub(super) const fn split(self, first: u64) -> (Self, Self) {
        let (mut low, mut high) = (self, self);
        low.last = first - 1;
        high.first = first;
        (low, high)
    }

    /// Number of the lane in the grid.
    pub(super) fn global(self) -> Linear {
        Linear {
            block: self.block_lanes.into(),
            lane: 1,
            constant: 0,
        }
    }

    /// Position of the lane in its block along x.
    pub(super) fn lane_x(self) -> Option<Linear> {
        self.is_flat.then_some(Linear {
            block: 0,
            lane: 1,
            constant: 0,
        })
    }

    /// Position of the block in the grid along x.
    pub(super) fn block_x(self) -> Option<Linear> {
        self.is_flat.then_some(Linear {
            block: 1,
            lane: 0,
            constant: 0,
        })
    }

    /// Coefficient and constant, if the function depends on the number of the lane in the grid only.
    pub(super) fn of_global(self, linear: Linear) -> Option<(i128, i128)> {
        let follows = linear.block == linear.lane * i128::from(self.block_lanes);
        let is_single = self.first == self.last;
        if follows {
            Some((linear.lane, linear.constant))
        } else if is_single {
            Some((0, self.at(linear, self.first)))
        } else if self.first / self.block_lanes == self.last / self.block_lanes {
            // Lanes of one block.
            let block = i128::from(self.first / self.block_lanes);
            let start = block * (linear.block - linear.lane * i128::from(self.block_lanes));
            Some((linear.lane, linear.constant + start))
        } else {
            None
        }
    }

    fn at(self, linear: Linear, lane: u64) -> i128 {
        let (block, lane) = (lane / self.block_lanes, lane % self.block_lanes);
        linear.block * i128::from(block) + linear.lane * i128::from(lane) + linear.constant
    }

    /// Bounds of the function: the least and the greatest value, or beyond.
    pub(super) fn bounds(self, linear: Linear) -> Option<(i128, i128)> {
        let corners = if self.of_global(linear).is_some() {
            vec![self.at(linear, self.first), self.at(linear, self.last)]
        } else {
            let (low, high) = (self.first / self.block_lanes, self.last / self.block_lanes);
            let lanes = self.block_lanes;
            [low, high]
                .into_iter()
                .flat_map(|b| [b * lanes, b * lanes + lanes - 1])
                .map(|lane| self.at(linear, lane))
                .collect()
        };
        Some((*corners.iter().min()?, *corners.iter().max()?))
    }

    /// Compares a function with 0.
    pub(super) fn compare(self, linear: Linear) -> Comparison {
        if let Some((low, high)) = self.bounds(linear) {
            match (low.cmp(&0), high.cmp(&0)) {
                (low, high) if low == high => return Comparison::Same(low),
                _ => {}
            }
        }
        if self.of_global(linear).is_none() {
            return Comparison::Unknown;
        }
        let ordering = |lane| self.at(linear, lane).cmp(&0);
        let first = ordering(self.first);
        // The order is monotonic along the lanes: the first lane with another one, by bisection.
        let (mut same, mut other) = (self.first, self.last);
        while other - same > 1 {
            let middle = same + (other - same) / 2;
            if ordering(middle) == first {
                same = middle;
            } else {
                other = middle;
            }
        }
        Comparison::ChangesAt(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_block_and_lane_is_one_of_the_global_number() {
        let range = LaneRange::of(&LaunchConfig::linear(1000, 100)).unwrap();
        let hundred = Linear::constant(100);
        let index = range.block_x().unwrap().mul(hundred).unwrap();
        let index = index.add(range.lane_x().unwrap()).unwrap();
        assert_eq!(range.of_global(index), Some((1, 0)));
        assert_eq!(range.bounds(index), Some((0, 999)));
        assert_eq!(range.of_global(range.lane_x().unwrap()), None);
        assert_eq!(range.bounds(range.lane_x().unwrap()), Some((0, 99)));
    }

    #[test]
    fn a_comparison_that_changes_splits_the_lanes() {
        let range = LaneRange::of(&LaunchConfig::linear(1000, 100)).unwrap();
        let changes = |bound| {
            let difference = range.global().sub(Linear::constant(bound)).unwrap();
            match range.compare(difference) {
                Comparison::ChangesAt(lane) => Ok(lane),
                Comparison::Same(ordering) => Err(ordering),
                Comparison::Unknown => panic!("it is linear"),
            }
        };
        assert_eq!(changes(970), Ok(970));
        assert_eq!(changes(0), Ok(1));
        assert_eq!(changes(999), Ok(999));
        assert_eq!(changes(1000), Err(Ordering::Less));
        assert_eq!(changes(-1), Err(Ordering::Greater));
    }
}
