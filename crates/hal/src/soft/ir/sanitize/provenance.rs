//! Pointer provenance, as values of the instrumented code.

/// The private variable that a pointer is derived from. All three are operands in LLVM IR text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Provenance {
    /// Address of the variable's shadow memory; null if every byte counts as written.
    pub(super) shadow: String,
    /// Offset in bytes from the start of the variable.
    pub(super) offset: String,
    /// Size in bytes in the low half, name index in the high half; 0 if the variable is unknown.
    pub(super) info: String,
}

impl Provenance {
    /// The provenance of pointers that are not derived from tracked variables.
    pub(super) fn unknown() -> Self {
        Self {
            shadow: "null".into(),
            offset: "0".into(),
            info: "0".into(),
        }
    }

    /// Returns whether an access of `size` bytes is statically in bounds.
    pub(super) fn is_inside(&self, size: u64) -> bool {
        let (Ok(offset), Ok(info)) = (self.offset.parse::<i64>(), self.info.parse::<u64>()) else {
            return false;
        };
        let length = info & u64::from(u32::MAX);
        info == 0
            || u64::try_from(offset)
                .ok()
                .and_then(|offset| offset.checked_add(size))
                .is_some_and(|end| end <= length)
    }

    pub(super) fn has_shadow(&self) -> bool {
        self.shadow != "null"
    }

    /// The three operands as call arguments.
    pub(super) fn arguments(&self) -> String {
        format!(
            "ptr {}, i64 {}, i64 {}",
            self.shadow, self.offset, self.info
        )
    }
}
