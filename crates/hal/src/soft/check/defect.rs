//! Defects that instrumented code detects itself: private memory, shifts and divisions.

use super::{AccessEvent, Checker, Verdict, bytes};
use crate::report::ReportKind;

/// A defect reported by instrumented code, see `ir/sanitize.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defect {
    /// An access outside a private variable.
    PrivateBounds {
        offset: i64,
        size: u64,
        variable: PrivateVariableRef,
    },
    /// A read of private memory that was never written.
    PrivateUninitialised {
        offset: i64,
        size: u64,
        variable: PrivateVariableRef,
    },
    Shift {
        amount: i64,
        width: u64,
    },
    DivisionByZero,
    /// The smallest integer divided by -1.
    DivisionOverflow,
}

/// A private variable: its size and the index of its name in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PrivateVariableRef {
    size: u64,
    name: usize,
}

impl PrivateVariableRef {
    fn new(packed: u64) -> Self {
        Self {
            size: packed & u64::from(u32::MAX),
            name: (packed >> 32) as usize,
        }
    }
}

impl Defect {
    /// Decodes the arguments of the `defect` service.
    pub(crate) fn decode(kind: u32, [a, b, c]: [u64; 3]) -> Option<Self> {
        Some(match kind {
            1 => Self::PrivateBounds {
                offset: a.cast_signed(),
                size: b,
                variable: PrivateVariableRef::new(c),
            },
            2 => Self::PrivateUninitialised {
                offset: a.cast_signed(),
                size: b,
                variable: PrivateVariableRef::new(c),
            },
            3 => Self::Shift {
                amount: a.cast_signed(),
                width: b,
            },
            4 => Self::DivisionByZero,
            5 => Self::DivisionOverflow,
            _ => return None,
        })
    }

    fn kind(self) -> ReportKind {
        match self {
            Self::PrivateBounds { .. } => ReportKind::Bounds,
            Self::PrivateUninitialised { .. } => ReportKind::Uninitialised,
            Self::Shift { .. } => ReportKind::Shift,
            Self::DivisionByZero | Self::DivisionOverflow => ReportKind::Division,
        }
    }

    /// The report's message; `name` looks up the kernel's variables.
    fn message<'a>(self, name: impl FnOnce(usize) -> Option<&'a str>) -> String {
        let describe = |variable: PrivateVariableRef| match name(variable.name) {
            Some(name) => format!("private variable `{name}`"),
            None => "a private variable".to_owned(),
        };
        match self {
            Self::PrivateBounds {
                offset,
                size,
                variable,
            } => format!(
                "access to {} at offset {offset} of {}, which has {}",
                bytes(size as usize),
                describe(variable),
                bytes(variable.size as usize)
            ),
            Self::PrivateUninitialised {
                offset: 0,
                size,
                variable,
            } if size >= variable.size => {
                format!(
                    "{} is read before any value was written to it",
                    describe(variable)
                )
            }
            Self::PrivateUninitialised {
                offset,
                size,
                variable,
            } => format!(
                "read of {} at offset {offset} of {}, where no value was written",
                bytes(size as usize),
                describe(variable)
            ),
            Self::Shift { amount, width } => format!(
                "shift of a {width}-bit integer by {amount}: Metal takes the amount modulo {width}, which is {}",
                amount.rem_euclid(width.max(1).cast_signed())
            ),
            Self::DivisionByZero => "integer division by zero: the result is undefined".to_owned(),
            Self::DivisionOverflow => {
                "division of the smallest integer by -1 overflows: the result is undefined"
                    .to_owned()
            }
        }
    }
}

impl Checker {
    /// Reports a defect; after an access outside a private variable the threadgroup is abandoned.
    pub(crate) fn defect(&mut self, defect: Defect, location: u32) -> Verdict {
        if self.launch.is_null() || self.group.is_null() {
            return Verdict::Proceed;
        }
        self.location = location;
        let image = self.launch().image;
        self.report(defect.kind(), location, None, || {
            defect.message(|name| {
                image
                    .plan()
                    .privates
                    .get(name)
                    .map(String::as_str)
                    .filter(|name| !name.is_empty())
            })
        });
        match defect {
            Defect::PrivateBounds { .. } => self.abandon(),
            _ => Verdict::Proceed,
        }
    }

    /// Reports an access at an address that is not aligned for its type.
    pub(super) fn report_misaligned(
        &self,
        access: &AccessEvent,
        buffer: Option<usize>,
        target: impl FnOnce() -> String,
    ) {
        self.report(ReportKind::Misaligned, access.location, buffer, || {
            format!(
                "{} at {}: the type needs a multiple of {}",
                access.describe(),
                target(),
                access.align
            )
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_variable_the_offset_and_the_result() {
        let packed = 8 | 1 << 32;
        let names = ["", "acc"];
        for (arguments, message) in [
            (
                (2, [0, 8, packed]),
                "private variable `acc` is read before any value was written to it",
            ),
            (
                (2, [4, 4, packed]),
                "read of 4 bytes at offset 4 of private variable `acc`, where no value was written",
            ),
            (
                (1, [-4_i64 as u64, 1, 8 | 2 << 32]),
                "access to 1 byte at offset -4 of a private variable, which has 8 bytes",
            ),
            (
                (3, [33, 32, 0]),
                "shift of a 32-bit integer by 33: Metal takes the amount modulo 32, which is 1",
            ),
            (
                (3, [-1_i64 as u64, 32, 0]),
                "shift of a 32-bit integer by -1: Metal takes the amount modulo 32, which is 31",
            ),
            (
                (5, [0; 3]),
                "division of the smallest integer by -1 overflows: the result is undefined",
            ),
        ] {
            let (kind, values) = arguments;
            let defect = Defect::decode(kind, values).expect("a known kind");
            assert_eq!(defect.message(|name| names.get(name).copied()), message);
        }
        assert_eq!(Defect::decode(0, [0; 3]), None);
    }
}
