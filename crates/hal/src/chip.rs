//! Facts about Apple's chips that Metal does not report.

/// A chip, identified by its name. Facts as published by Apple; if a chip comes in several configurations under one
/// name, the bandwidth is that of the slowest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Chip {
    /// Its name, as Metal gives it.
    pub name: &'static str,
    /// Memory bandwidth in GB/s (10⁹ bytes).
    pub gigabytes_per_second: f64,
    /// Minimum and maximum number of GPU cores that it is sold with.
    pub gpu_cores: [u32; 2],
}

impl Chip {
    /// All known chips, oldest first.
    pub const ALL: [Self; 18] = [
        Self::new("Apple M1", 68.25, [7, 8]),
        Self::new("Apple M1 Pro", 200.0, [14, 16]),
        Self::new("Apple M1 Max", 400.0, [24, 32]),
        Self::new("Apple M1 Ultra", 800.0, [48, 64]),
        Self::new("Apple M2", 100.0, [8, 10]),
        Self::new("Apple M2 Pro", 200.0, [16, 19]),
        Self::new("Apple M2 Max", 400.0, [30, 38]),
        Self::new("Apple M2 Ultra", 800.0, [60, 76]),
        Self::new("Apple M3", 100.0, [8, 10]),
        Self::new("Apple M3 Pro", 150.0, [14, 18]),
        // 400 with 40 cores.
        Self::new("Apple M3 Max", 300.0, [30, 40]),
        Self::new("Apple M3 Ultra", 819.0, [60, 80]),
        Self::new("Apple M4", 120.0, [8, 10]),
        Self::new("Apple M4 Pro", 273.0, [16, 20]),
        // 546 with 40 cores.
        Self::new("Apple M4 Max", 410.0, [32, 40]),
        Self::new("Apple M5", 153.0, [8, 10]),
        Self::new("Apple M5 Pro", 307.0, [16, 20]),
        // 614 with 40 cores.
        Self::new("Apple M5 Max", 460.0, [32, 40]),
    ];

    const fn new(name: &'static str, gigabytes_per_second: f64, gpu_cores: [u32; 2]) -> Self {
        Self {
            name,
            gigabytes_per_second,
            gpu_cores,
        }
    }

    /// Returns the chip of a device of this name; `None` if it is unknown, as every GPU that is not Apple's.
    pub fn named(name: &str) -> Option<&'static Self> {
        static ALL: [Chip; Chip::ALL.len()] = Chip::ALL;
        ALL.iter().find(|chip| chip.name == name.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chip_is_found_by_its_full_name() {
        let bandwidth = |name: &str| Chip::named(name).map(|chip| chip.gigabytes_per_second);
        let cases = [
            ("Apple M1", Some(68.25)),
            ("Apple M1 Pro", Some(200.0)),
            ("Apple M1 Max", Some(400.0)),
            ("Apple M1 Ultra", Some(800.0)),
            ("Apple M2", Some(100.0)),
            ("Apple M3 Max", Some(300.0)),
            ("Apple M4 Max", Some(410.0)),
            ("Apple M1 Extreme", None),
            ("Apple Paravirtual device", None),
            ("AMD Radeon Pro 5500M", None),
            ("", None),
        ];
        for (name, expected) in cases {
            assert_eq!(bandwidth(name), expected, "{name}");
        }
    }

    /// Bandwidths and cores as in the document; its 8 cores of the M1 are the larger configuration, and its 400 GB/s
    /// of the M1 Ultra are the M1 Max's.
    #[test]
    fn the_chips_of_the_document_have_its_figures() {
        let cases = [
            ("Apple M1", 68.25, [7, 8]),
            ("Apple M1 Pro", 200.0, [14, 16]),
            ("Apple M1 Max", 400.0, [24, 32]),
            ("Apple M1 Ultra", 800.0, [48, 64]),
            ("Apple M2", 100.0, [8, 10]),
            ("Apple M3", 100.0, [8, 10]),
            ("Apple M3 Max", 300.0, [30, 40]),
        ];
        for (name, bandwidth, cores) in cases {
            let chip = Chip::named(name).unwrap();
            assert_eq!(
                (chip.gigabytes_per_second, chip.gpu_cores),
                (bandwidth, cores),
                "{name}"
            );
        }
    }

    #[test]
    fn names_are_unique_and_core_counts_are_in_order() {
        for (i, chip) in Chip::ALL.iter().enumerate() {
            let same = |other: &Chip| other.name == chip.name;
            assert_eq!(Chip::ALL.iter().position(same), Some(i));
            assert!(chip.gigabytes_per_second >= 60.0, "{}", chip.name);
            let [min, max] = chip.gpu_cores;
            assert!(0 < min && min <= max, "{}", chip.name);
        }
    }
}
