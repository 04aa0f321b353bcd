//! Values of the functions, computed with at least 60 digits and rounded to f64: the rows of `exact.tsv`.

/// A row.
pub(super) struct Case {
    pub(super) x: f64,
    /// The second argument, or 0.
    pub(super) y: f64,
    pub(super) value: f64,
}

/// The rows of a function.
pub(super) fn cases(function: &str) -> Vec<Case> {
    let rows = include_str!("exact.tsv").lines();
    let rows = rows.filter(|row| !row.starts_with('#'));
    rows.filter_map(|row| {
        let numbers = row.strip_prefix(function)?.strip_prefix('\t')?;
        let numbers: Vec<f64> = numbers.split('\t').map(|n| n.parse().unwrap()).collect();
        let &[x, y, value] = &numbers[..] else {
            panic!("a row of {} numbers: {row}", numbers.len());
        };
        Some(Case { x, y, value })
    })
    .collect()
}
