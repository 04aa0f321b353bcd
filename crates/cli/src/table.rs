//! Aligned columns of text.

use std::io::{self, Write};

use anstyle::Style;

/// Rows of cells under a heading.
#[derive(Debug)]
pub(crate) struct Table {
    heading: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heading: impl Into<Vec<&'static str>>) -> Self {
        Self {
            heading: heading.into(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: impl Into<Vec<String>>) {
        self.rows.push(cells.into());
    }

    /// Writes the table; columns are as wide as their widest cell and two spaces apart.
    pub(crate) fn write(&self, out: &mut impl Write, heading: Style) -> io::Result<()> {
        let mut widths: Vec<usize> = self.heading.iter().map(|h| width(h)).collect();
        for row in &self.rows {
            for (column, cell) in widths.iter_mut().zip(row) {
                *column = (*column).max(width(cell));
            }
        }
        write!(out, "{heading}")?;
        write_row(out, self.heading.iter().copied(), &widths)?;
        writeln!(out, "{heading:#}")?;
        for row in &self.rows {
            write_row(out, row.iter().map(String::as_str), &widths)?;
            writeln!(out)?;
        }
        Ok(())
    }
}

/// Writes a row without trailing spaces.
fn write_row<'a>(
    out: &mut impl Write,
    cells: impl Iterator<Item = &'a str>,
    widths: &[usize],
) -> io::Result<()> {
    let mut blanks = 0;
    for (cell, column) in cells.zip(widths) {
        if !cell.is_empty() {
            write!(out, "{:blanks$}{cell}", "")?;
            blanks = 0;
        }
        blanks += column + 2 - width(cell);
    }
    Ok(())
}

/// Number of columns: one per character, which is correct for MSL names and types.
fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_rows_end_with_their_text() {
        let mut table = Table::new(["kernel", "index", "type"]);
        table.row(["add".to_owned(), "0".to_owned(), "float*".to_owned()]);
        table.row([String::new(), "10".to_owned(), String::new()]);
        let mut text = Vec::new();
        table.write(&mut text, Style::new()).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "kernel  index  type\nadd     0      float*\n        10\n"
        );
    }
}
