//! Where a pointer comes from, as values of the instrumented code.

/// The private variable that a pointer points into. All three are operands in LLVM IR's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    /// Address of the variable's shadow; null where every byte counts as written.
    pub(super) shadow: String,
    /// Bytes from the start of the variable.
    pub(super) offset: String,
    /// Size in bytes in the low half, number of the name in the high half; 0 where the variable is not known.
    pub(super) info: String,
}

impl Origin {
    /// The origin of pointers that do not point into tracked variables.
    pub(super) fn unknown() -> Self {
        Self {
            shadow: "null".into(),
            offset: "0".into(),
            info: "0".into(),
        }
    }

    /// Whether an access to `size` bytes is known to be inside the variable.
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

    /// The three operands as arguments of a call.
    pub(super) fn arguments(&self) -> String {
        format!(
            "ptr {}, i64 {}, i64 {}",
            self.shadow, self.offset, self.info
        )
    }
}
