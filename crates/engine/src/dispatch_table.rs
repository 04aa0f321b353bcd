//! The dispatch table: which backend an op runs on, by input size, as measured on this machine.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use crate::cpu::simd;
use crate::env::{self, DeviceName};
use crate::{Device, Error, Result, Tensor};

/// Classes of ops that the table distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OpClass {
    /// Elementwise ops.
    Elementwise,
    /// Matrix multiplication.
    Matmul,
    /// Dot products of vectors.
    Dot,
    /// Reductions.
    Reduction,
}

impl OpClass {
    /// All classes.
    pub const ALL: [Self; 4] = [Self::Elementwise, Self::Matmul, Self::Dot, Self::Reduction];

    /// The name that table files use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Elementwise => "elementwise",
            Self::Matmul => "matmul",
            Self::Dot => "dot",
            Self::Reduction => "reduction",
        }
    }
}

/// A backend that an op can run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum BackendKind {
    /// The CPU, with its widest vectors and all its cores.
    Cpu,
    /// Apple's Accelerate for matmul and dot; the CPU for the rest.
    Accelerate,
    /// The system's Metal GPU.
    Metal,
    /// The system's Metal GPU, with Metal Performance Shaders for matmul.
    Mps,
    /// The software Metal device: only on request.
    Software,
}

impl BackendKind {
    /// The backends that a measurement may choose.
    pub const MEASURED: [Self; 4] = [Self::Cpu, Self::Accelerate, Self::Metal, Self::Mps];

    /// `cpu`, `accelerate`, `metal`, `mps` or `soft`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Accelerate => "accelerate",
            Self::Metal => "metal",
            Self::Mps => "mps",
            Self::Software => "soft",
        }
    }

    /// The backend of a [`BackendKind::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        Self::MEASURED
            .into_iter()
            .chain([Self::Software])
            .find(|b| b.name() == name)
    }

    /// The backend that `BESSEMER_DEVICE` names, if any.
    pub fn from_env() -> Option<Self> {
        match env::settings().device? {
            DeviceName::Auto => None,
            DeviceName::Cpu => Some(Self::Cpu),
            DeviceName::Metal => Some(Self::Metal),
            DeviceName::Software => Some(Self::Software),
        }
    }

    /// The device that the backend runs on.
    ///
    /// # Errors
    /// [`Error::Device`] or [`Error::Unsupported`], if it is not available on this machine.
    pub fn device(self) -> Result<Device> {
        match self {
            Self::Cpu => Ok(Device::cpu()),
            Self::Accelerate if cfg!(target_vendor = "apple") => Ok(Device::cpu()),
            Self::Accelerate => Err(Error::Unsupported {
                op: "accelerate",
                what: "Accelerate is a part of macOS and iOS".to_owned(),
                device: "this system".to_owned(),
            }),
            Self::Metal => Device::metal(),
            Self::Mps => {
                let device = Device::metal()?;
                if device.hal().is_some_and(|d| d.multiplies_matrices()) {
                    return Ok(device);
                }
                Err(Error::Unsupported {
                    op: "mps",
                    what: "Metal Performance Shaders".to_owned(),
                    device: device.name().to_owned(),
                })
            }
            Self::Software => Device::software(),
        }
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One row of a [`DispatchTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DispatchRow {
    /// The ops that the row is for.
    pub op: OpClass,
    /// Smallest number of elements that the row is for.
    pub min_elements: usize,
    /// The backend to use.
    pub backend: BackendKind,
}

/// Which backend runs an op, by number of elements.
///
/// `bessemer tune` measures it once and keeps it in the cache directory. It applies to ops whose device is not chosen
/// otherwise: by [`Tensor::to`], [`Device::scope`], [`Device::set_default`] or `BESSEMER_DEVICE`. Elementwise ops,
/// matmul and reductions are measured; all others run on the default device. An op with an input that is still pending
/// on the GPU stays there, since the CPU would have to wait for it. Without a table, every op runs on the default
/// device.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DispatchTable {
    /// The last row that matches applies.
    rows: Vec<DispatchRow>,
    is_measured: bool,
}

/// The table measured on this machine; the outer `None` until its file was looked for.
static MEASURED: RwLock<Option<Option<Arc<DispatchTable>>>> = RwLock::new(None);

/// First line of a table's file; bump the number when the measurements change.
const HEADER: &str = "bessemer tune 3";

impl DispatchTable {
    /// A table of rows, of which the last that matches applies.
    pub const fn new(rows: Vec<DispatchRow>, is_measured: bool) -> Self {
        Self { rows, is_measured }
    }

    /// The table that was measured on this machine, in this process or an earlier one.
    pub fn measured() -> Option<Arc<Self>> {
        let read = MEASURED.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = &*read {
            return table.clone();
        }
        drop(read);
        let found = load().map(Arc::new);
        let mut table = MEASURED.write().unwrap_or_else(PoisonError::into_inner);
        table.get_or_insert(found).clone()
    }

    /// Parses a table: lines of an op, the smallest number of elements and a backend, such as `matmul 4096 metal`.
    ///
    /// # Errors
    /// [`Error::Invalid`], with the offending line.
    pub fn parse(text: &str) -> Result<Self> {
        let row = |line: &str| {
            let mut words = line.split_whitespace();
            let name = words.next()?;
            let op = OpClass::ALL.into_iter().find(|op| op.name() == name)?;
            let min_elements = words.next()?.parse().ok()?;
            let backend = BackendKind::from_name(words.next()?)?;
            // The software device is slow, so it is only used on request.
            let is_row = backend != BackendKind::Software && words.next().is_none();
            is_row.then_some(DispatchRow {
                op,
                min_elements,
                backend,
            })
        };
        let rows = text.lines().map(|line| {
            row(line).ok_or_else(|| Error::Invalid {
                op: "dispatch table",
                reason: format!("`{line}` is not an op, a number of elements and a backend"),
            })
        });
        Ok(Self {
            rows: rows.collect::<Result<_>>()?,
            is_measured: true,
        })
    }

    /// Uses this table from now on, for the whole process.
    pub fn install(self) {
        *MEASURED.write().unwrap_or_else(PoisonError::into_inner) = Some(Some(Arc::new(self)));
    }

    /// Installs this table with `gpu` as the device of its Metal rows, as if it were the system's GPU. A device that
    /// was chosen otherwise still takes precedence.
    pub fn apply(self, gpu: &Device) {
        self.install();
        Device::set_auto(gpu);
    }

    /// Returns `true` if the table was measured, `false` if it is a default.
    pub const fn is_measured(&self) -> bool {
        self.is_measured
    }

    /// The rows.
    pub fn rows(&self) -> &[DispatchRow] {
        &self.rows
    }

    /// The backend for an op on `count` elements.
    pub fn choose(&self, op: OpClass, count: usize) -> BackendKind {
        self.rows
            .iter()
            .rev()
            .find(|row| row.op == op && row.min_elements <= count)
            .map_or(BackendKind::Cpu, |row| row.backend)
    }

    /// Writes the table to the cache directory, for later processes.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn save(&self) -> Result<()> {
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
        // Rename atomically: another process may be reading.
        let temporary = path.with_extension(format!("{}.part", std::process::id()));
        let text = format!("{HEADER}\nmachine {}\n{}", machine(), self.text());
        std::fs::write(&temporary, text).map_err(fail)?;
        std::fs::rename(&temporary, &path).map_err(fail)
    }

    fn text(&self) -> String {
        use fmt::Write as _;
        let mut text = String::new();
        for row in &self.rows {
            let (op, min) = (row.op.name(), row.min_elements);
            let _ = writeln!(text, "{op} {min} {}", row.backend);
        }
        text
    }
}

impl fmt::Display for DispatchTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = if self.is_measured {
            "measured"
        } else {
            "by preference"
        };
        write!(f, "choices {origin}:")?;
        for row in &self.rows {
            let (op, min) = (row.op.name(), row.min_elements);
            write!(f, "\n  {op} from {min} elements on: {}", row.backend)?;
        }
        Ok(())
    }
}

/// The device of an op whose device is not chosen otherwise, where the default device is an automatically found GPU.
pub(crate) fn device(op: OpClass, inputs: &[&Tensor], gpu: Device) -> Device {
    let is_pending = |t: &Tensor| t.node.constant.is_none() && t.node.value.get().is_none();
    if inputs
        .iter()
        .any(|t| is_pending(t) && t.node.placement.device == gpu)
    {
        return gpu;
    }
    let Some(table) = DispatchTable::measured() else {
        return gpu;
    };
    let count = inputs.iter().map(|t| t.count()).max().unwrap_or(0);
    match table.choose(op, count) {
        BackendKind::Cpu | BackendKind::Accelerate => Device::cpu(),
        _ => gpu,
    }
}

/// Identifies the machine that a table is measured on.
fn machine() -> String {
    let metal = Device::metal().map_or("none".to_owned(), |d| d.name().to_owned());
    let name = format!(
        "{}-{}-{metal}",
        std::env::consts::ARCH,
        simd::level().name()
    );
    let is_safe = |c: char| c.is_ascii_alphanumeric() || c == '-';
    name.chars()
        .map(|c| if is_safe(c) { c } else { '_' })
        .collect()
}

/// Path of this machine's table.
fn path() -> Option<PathBuf> {
    let dir = env::cache_dir()?;
    Some(dir.join(format!("tune-{}.txt", machine())))
}

/// Loads the saved table. A damaged file, or one of another version or machine, is ignored with a warning.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_round_trip_through_text_and_the_last_matching_row_wins() {
        let row = |op, min_elements, backend| DispatchRow {
            op,
            min_elements,
            backend,
        };
        let rows = vec![
            row(OpClass::Matmul, 0, BackendKind::Cpu),
            row(OpClass::Matmul, 4096, BackendKind::Metal),
            row(OpClass::Dot, 0, BackendKind::Cpu),
        ];
        let table = DispatchTable::new(rows, true);
        assert_eq!(DispatchTable::parse(&table.text()), Ok(table.clone()));
        assert_eq!(table.choose(OpClass::Matmul, 4095), BackendKind::Cpu);
        assert_eq!(table.choose(OpClass::Matmul, 4096), BackendKind::Metal);
        assert_eq!(table.choose(OpClass::Dot, 1 << 30), BackendKind::Cpu);
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
