//! The classes of the atlas, in closed form, and the boundary pool.
//!
//! A class is `3q + r`: q has five bits, and r is 0, 1 or 2.

use super::error::FaultKind;

/// Number of classes.
pub const CLASSES: u8 = 96;

/// Bytes of the boundary pool: 96 classes of 48 pages of 256 bytes.
pub const BOUNDARY_BYTES: usize = CLASSES as usize * CLASS_BYTES as usize;

const PAGES: u8 = 48;
const PAGE_BYTES: u64 = 256;
const CLASS_BYTES: u64 = PAGES as u64 * PAGE_BYTES;

/// Number of phases of a lane.
pub(crate) const PHASES: u32 = 768;

/// Quotient and remainder of a class.
fn split(class: u8) -> Result<(u8, u8), FaultKind> {
    if class < CLASSES {
        Ok((class / 3, class % 3))
    } else {
        Err(FaultKind::InvalidClassIndex(class))
    }
}

pub(crate) fn mirror(class: u8) -> Result<u8, FaultKind> {
    let (q, r) = split(class)?;
    Ok(3 * (q ^ 1) + r)
}

pub(crate) const fn is_unity(class: u8) -> bool {
    matches!(class, 1 | 4)
}

/// Number of neighbours: 6 if the remainder is 1, otherwise 5.
pub(crate) fn degree(class: u8) -> Result<u32, FaultKind> {
    let (_, r) = split(class)?;
    Ok(if r == 1 { 6 } else { 5 })
}

/// A neighbour by index; 0 from the degree on.
pub(crate) fn neighbour(class: u8, index: u8) -> Result<u8, FaultKind> {
    let (q, r) = split(class)?;
    Ok(match (index, r) {
        (0..=3, _) => 3 * (q ^ (16 >> index)) + r,
        (4, 1) => 3 * q + 2,
        (5, 1) => 3 * q,
        (4, _) => 3 * q + 1,
        _ => 0,
    })
}

/// Offset of a byte in the boundary pool.
pub(crate) fn boundary_offset(class: u8, page: u8, byte: u8) -> Result<u64, FaultKind> {
    split(class)?;
    if page >= PAGES {
        return Err(FaultKind::InvalidBoundaryCoordinates { page, byte });
    }
    Ok(u64::from(class) * CLASS_BYTES + u64::from(page) * PAGE_BYTES + u64::from(byte))
}

/// What the lanes of a block accumulate, by class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resonance(Option<Box<[f64; CLASSES as usize]>>);

impl Resonance {
    /// Adds to a class.
    pub(crate) fn add(&mut self, class: u8, value: f64) -> Result<(), FaultKind> {
        let sums = self
            .0
            .get_or_insert_with(|| Box::new([0.0; CLASSES as usize]));
        let sum = sums.get_mut(usize::from(class));
        *sum.ok_or(FaultKind::InvalidClassIndex(class))? += value;
        Ok(())
    }

    /// Returns `true` if nothing was added.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Adds the sums of the block to those of the launch.
    pub(crate) fn add_to(&self, total: &mut [f64]) {
        for (total, sum) in total.iter_mut().zip(self.0.iter().flat_map(|b| b.iter())) {
            *total += sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neighbours(class: u8) -> Vec<u8> {
        (0..degree(class).unwrap() as u8)
            .map(|i| neighbour(class, i).unwrap())
            .collect()
    }

    #[test]
    fn neighbourhood_is_symmetric_and_has_256_edges() {
        let mut ends = 0;
        for class in 0..CLASSES {
            let all = neighbours(class);
            ends += all.len();
            for other in &all {
                assert_ne!(*other, class);
                assert!(neighbours(*other).contains(&class), "{class} {other}");
            }
            let mut distinct = all.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), all.len());
            assert_eq!(neighbour(class, all.len() as u8), Ok(0));
        }
        assert_eq!(ends, 2 * 256);
    }

    #[test]
    fn mirror_is_an_involution_without_fixed_points_that_keeps_neighbours() {
        for class in 0..CLASSES {
            let other = mirror(class).unwrap();
            assert_ne!(other, class);
            assert_eq!(mirror(other), Ok(class));
            assert!(
                !neighbours(class).contains(&other),
                "mirrors are not adjacent"
            );
            let mut mirrored: Vec<_> = neighbours(class)
                .into_iter()
                .map(|n| mirror(n).unwrap())
                .collect();
            let mut of_mirror = neighbours(other);
            mirrored.sort_unstable();
            of_mirror.sort_unstable();
            assert_eq!(mirrored, of_mirror);
        }
        assert_eq!(mirror(96), Err(FaultKind::InvalidClassIndex(96)));
    }

    #[test]
    fn unity_classes_mirror_each_other() {
        let unity: Vec<_> = (0..CLASSES).filter(|&c| is_unity(c)).collect();
        assert_eq!(unity, [1, 4]);
        assert_eq!(mirror(1), Ok(4));
    }

    #[test]
    fn boundary_coordinates_cover_the_pool() {
        assert_eq!(BOUNDARY_BYTES, 1_179_648);
        assert_eq!(boundary_offset(0, 0, 0), Ok(0));
        assert_eq!(boundary_offset(5, 2, 128), Ok(5 * 12_288 + 2 * 256 + 128));
        assert_eq!(boundary_offset(95, 47, 255), Ok(BOUNDARY_BYTES as u64 - 1));
        assert_eq!(
            boundary_offset(0, 48, 7),
            Err(FaultKind::InvalidBoundaryCoordinates { page: 48, byte: 7 })
        );
    }
}
