//! Versions of the Metal Shading Language.

use std::fmt;
use std::str::FromStr;

/// A version of the Metal Shading Language.
///
/// All of them are C++14 with the extensions that clang accepts from later standards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum LanguageVersion {
    /// Metal 3.0: macOS 13, iOS 16.
    Metal3_0,
    /// Metal 3.1: macOS 14, iOS 17. Adds `bfloat`.
    #[default]
    Metal3_1,
    /// Metal 3.2: macOS 15, iOS 18. Adds logging, coherent buffers, fences and lambda expressions.
    Metal3_2,
}

impl LanguageVersion {
    /// All versions, oldest first.
    pub const ALL: [Self; 3] = [Self::Metal3_0, Self::Metal3_1, Self::Metal3_2];

    /// The name that Apple's compiler accepts after `-std=`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metal3_0 => "metal3.0",
            Self::Metal3_1 => "metal3.1",
            Self::Metal3_2 => "metal3.2",
        }
    }

    /// The value of `__METAL_VERSION__`.
    pub fn number(self) -> u32 {
        match self {
            Self::Metal3_0 => 300,
            Self::Metal3_1 => 310,
            Self::Metal3_2 => 320,
        }
    }
}

impl fmt::Display for LanguageVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for LanguageVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|version| version.name() == text)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::name).join(", ");
                format!("unknown language version `{text}`; known are {names}")
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_back_from_their_names_and_are_ordered() {
        for version in LanguageVersion::ALL {
            assert_eq!(version.to_string().parse(), Ok(version));
        }
        assert!(LanguageVersion::ALL.is_sorted_by(|a, b| a < b && a.number() < b.number()));
        assert_eq!(
            "metal2.4".parse::<LanguageVersion>(),
            Err(
                "unknown language version `metal2.4`; known are metal3.0, metal3.1, metal3.2"
                    .to_owned()
            )
        );
    }
}
