//! The dispatch table: which device an op of so many elements runs on, as measured on this machine.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use crate::backends::array::{ArrayBackend, ArrayOp};
use crate::cpu::simd;
use crate::{Device, Error, Result, Tensor};

/// Which backend does an op, from how many elements on.
///
/// `bessemer tune` measures it once and keeps it in the cache directory. It is asked for ops that nothing else
/// places: those of tensors that were not moved, outside any [`Device::scope`], without [`Device::set_default`] and
/// without `BESSEMER_DEVICE`. Of those, elementwise ops, matrix products and reductions are measured; all others run
/// on the default device. An op with an input that is still to be computed on the GPU stays there, since the CPU would
/// have to wait for it. Without a table, all run on the default device.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DispatchTable {
    /// Op, smallest number of elements, backend; the last one that fits counts.
    pub(crate) rows: Vec<(ArrayOp, usize, ArrayBackend)>,
    pub(crate) measured: bool,
}

/// The measured table; the outer `None` until it was looked for.
static MEASURED: RwLock<Option<Option<Arc<DispatchTable>>>> = RwLock::new(None);

/// First line of a table's file; a change of what is measured changes it.
const HEADER: &str = "bessemer tune 3";

impl DispatchTable {
    /// Reads a table: lines of an op, the smallest number of elements and a backend, such as `matmul 4096 metal`.
    ///
    /// # Errors
    /// [`Error::Invalid`], with the line that is wrong.
    pub fn parse(text: &str) -> Result<Self> {
        let row = |line: &str| {
            let mut words = line.split_whitespace();
            let name = words.next()?;
            let op = ArrayOp::ALL.into_iter().find(|op| op.name() == name)?;
            let count = words.next()?.parse().ok()?;
            let backend = ArrayBackend::named(words.next()?)?;
            // Slow, and only there by request.
            let is_row = backend != ArrayBackend::Software && words.next().is_none();
            is_row.then_some((op, count, backend))
        };
        let rows = text.lines().map(|line| {
            row(line).ok_or_else(|| Error::Invalid {
                op: "dispatch table",
                reason: format!("`{line}` is not an op, a number of elements and a backend"),
            })
        });
        Ok(Self {
            rows: rows.collect::<Result<_>>()?,
            measured: true,
        })
    }

    /// Uses this table from now on, with `gpu` as the device of its rows for Metal: as if the system had that GPU
    /// and the table had been measured on it. A device that was chosen otherwise is still preferred.
    pub fn apply(self, gpu: &Device) {
        install(self);
        Device::set_auto(gpu);
    }

    /// Whether it was measured.
    pub const fn is_measured(&self) -> bool {
        self.measured
    }

    /// The backend for an op on so many elements.
    pub fn choose(&self, op: ArrayOp, count: usize) -> ArrayBackend {
        let fits = |row: &&(ArrayOp, usize, ArrayBackend)| row.0 == op && row.1 <= count;
        self.rows
            .iter()
            .rev()
            .find(fits)
            .map_or(ArrayBackend::Cpu, |row| row.2)
    }

    fn text(&self) -> String {
        use fmt::Write as _;
        let mut text = String::new();
        for (op, count, backend) in &self.rows {
            let _ = writeln!(text, "{} {count} {backend}", op.name());
        }
        text
    }
}

impl fmt::Display for DispatchTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.measured {
            true => "measured",
            false => "by preference",
        };
        write!(f, "choices {how}:")?;
        for (op, count, backend) in &self.rows {
            write!(f, "\n  {} from {count} elements on: {backend}", op.name())?;
        }
        Ok(())
    }
}

/// The device of an op that nothing else places, where the default device is a GPU that was found by itself.
pub(crate) fn device(op: ArrayOp, inputs: &[&Tensor], gpu: Device) -> Device {
    let is_pending = |t: &Tensor| t.node.constant.is_none() && t.node.value.get().is_none();
    if inputs
        .iter()
        .any(|t| is_pending(t) && t.node.place.device == gpu)
    {
        return gpu;
    }
    let Some(table) = measured() else {
        return gpu;
    };
    let count = inputs.iter().map(|t| t.count()).max().unwrap_or(0);
    match table.choose(op, count) {
        ArrayBackend::Cpu | ArrayBackend::Accelerate => Device::cpu(),
        _ => gpu,
    }
}

/// The table that was measured on this machine, if there is one.
pub(crate) fn measured() -> Option<Arc<DispatchTable>> {
    let read = MEASURED.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(table) = &*read {
        return table.clone();
    }
    drop(read);
    let found = load().map(Arc::new);
    let mut table = MEASURED.write().unwrap_or_else(PoisonError::into_inner);
    table.get_or_insert(found).clone()
}

pub(crate) fn install(table: DispatchTable) {
    *MEASURED.write().unwrap_or_else(PoisonError::into_inner) = Some(Some(Arc::new(table)));
}

/// The machine that a table is measured on.
fn machine() -> String {
    let metal = Device::metal().map_or("none".to_owned(), |d| d.name().to_owned());
    let name = format!(
        "{}-{}-{metal}",
        std::env::consts::ARCH,
        simd::level().name()
    );
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    name.chars()
        .map(|c| if is_plain(c) { c } else { '_' })
        .collect()
}

/// Where the table of this machine is kept.
fn path() -> Option<PathBuf> {
    let dir = bessemer_hal::env::cache_dir()?;
    Some(dir.join(format!("tune-{}.txt", machine())))
}

/// What was measured before. A file that makes no sense is ignored, with a warning.
fn load() -> Option<DispatchTable> {
    let path = path()?;
    let text = match std::fs::read_to_string(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return None,
        other => other.map_err(|e| e.to_string()),
    };
    let table = text.and_then(|text| {
        let head = format!("{HEADER}\nmachine {}\n", machine());
        match text.strip_prefix(&head) {
            Some(rows) => DispatchTable::parse(rows).map_err(|e| e.to_string()),
            None => Err("it was not measured by this version on this machine".to_owned()),
        }
    });
    match table {
        Ok(table) => Some(table),
        Err(reason) => {
            eprintln!(
                "warning: {} is ignored: {reason}; run `bessemer tune` to measure again",
                path.display()
            );
            None
        }
    }
}

/// Keeps a table for the next process.
pub(crate) fn save(table: &DispatchTable) -> Result<()> {
    let Some(path) = path() else {
        return Ok(());
    };
    let fail = |e: std::io::Error| Error::File {
        path: path.display().to_string(),
        reason: e.to_string(),
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(fail)?;
    }
    // Whole or not at all: another process may be reading.
    let part = path.with_extension(format!("{}.part", std::process::id()));
    let text = format!("{HEADER}\nmachine {}\n{}", machine(), table.text());
    std::fs::write(&part, text).map_err(fail)?;
    std::fs::rename(&part, &path).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_as_it_was_written_and_the_last_row_that_fits_counts() {
        let table = DispatchTable {
            rows: vec![
                (ArrayOp::Matmul, 0, ArrayBackend::Cpu),
                (ArrayOp::Matmul, 4096, ArrayBackend::Metal),
                (ArrayOp::Dot, 0, ArrayBackend::Cpu),
            ],
            measured: true,
        };
        assert_eq!(DispatchTable::parse(&table.text()), Ok(table.clone()));
        assert_eq!(table.choose(ArrayOp::Matmul, 4095), ArrayBackend::Cpu);
        assert_eq!(table.choose(ArrayOp::Matmul, 4096), ArrayBackend::Metal);
        assert_eq!(table.choose(ArrayOp::Dot, 1 << 30), ArrayBackend::Cpu);
        for text in [
            "something else",
            "matmul x cpu",
            "matmul 0 cpu more",
            "matmul 0",
            "matmul 0 soft",
        ] {
            assert!(DispatchTable::parse(text).is_err(), "{text}");
        }
    }
}
