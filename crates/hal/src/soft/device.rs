//! The device of the software driver.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::buffer::{Buffer, BytesInUse, Placement};
use super::compile::KernelCompiler;
use super::library::Library;
use super::queue::Queue;
use super::{Mode, SoftOptions};
use crate::driver::{self, CommandList, Contents, HostMemory};
use crate::error::{Error, Result};
use crate::info::{DeviceInfo, DeviceKind};
use crate::library::CompileOptions;
use crate::storage::StorageMode;
use crate::submission::Completion;

/// The software driver's device.
#[derive(Debug)]
pub struct Soft {
    info: DeviceInfo,
    options: SoftOptions,
    compiler: Arc<KernelCompiler>,
    queue: Queue,
    in_use: Arc<BytesInUse>,
}

impl Soft {
    /// Creates a device and starts its threads.
    ///
    /// # Errors
    /// `Unavailable` if threads cannot be created or the machine lacks the instruction set.
    pub(super) fn new(options: SoftOptions) -> Result<Self> {
        let memory = physical_memory();
        // As on Apple silicon: a quarter of the machine's memory is left to the system and host programs.
        let working_set = memory / 4 * 3;
        let unavailable = |error: std::io::Error| Error::Unavailable {
            device: "the software Metal device".to_owned(),
            reason: format!("its threads cannot be started: {error}"),
        };
        if !options.instruction_set.is_supported() {
            return Err(Error::Unavailable {
                device: "the software Metal device".to_owned(),
                reason: format!("this machine does not have {}", options.instruction_set),
            });
        }
        let queue = Queue::new(&options).map_err(unavailable)?;
        Ok(Self {
            info: DeviceInfo {
                name: format!("Bessemer software Metal ({})", cpu_name()),
                kind: DeviceKind::Software,
                family: options.family,
                unified_memory: true,
                recommended_working_set: working_set,
                registry_id: 0,
                headless: true,
                low_power: false,
                removable: false,
                limits: options.family.limits(working_set),
            },
            compiler: Arc::new(KernelCompiler::new(&options).map_err(unavailable)?),
            queue,
            options,
            in_use: Arc::default(),
        })
    }

    /// The options the device was created with.
    pub fn options(&self) -> &SoftOptions {
        &self.options
    }

    pub(super) fn executed(&self) -> BTreeMap<String, u64> {
        self.queue.executed()
    }

    pub(super) fn suppressed(&self) -> u64 {
        self.queue.suppressed()
    }

    fn placement(&self) -> Placement {
        match self.options.mode {
            Mode::Fast | Mode::Fuzz => Placement::Plain,
            Mode::Check => Placement::Guarded,
            Mode::Isolated => Placement::Shared,
        }
    }

    fn out_of_memory(&self, requested: usize) -> Error {
        Error::OutOfMemory {
            device: self.info.name.clone(),
            requested,
            in_use: self.in_use.bytes(),
            limit: self.info.recommended_working_set,
        }
    }
}

impl driver::Device for Soft {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate(
        &self,
        length: usize,
        mode: StorageMode,
        contents: Contents,
    ) -> Result<Arc<dyn driver::Buffer>> {
        let Ok(buffer) = Buffer::allocate(length, mode, self.placement(), &self.in_use) else {
            return Err(self.out_of_memory(length));
        };
        // The system's memory is zeroed. Code that relies on zeros it did not request must fail here, not on a GPU.
        if contents == Contents::Unspecified
            && matches!(self.options.mode, Mode::Check | Mode::Fuzz)
        {
            buffer.poison();
        }
        Ok(Arc::new(buffer))
    }

    fn adopt(&self, memory: HostMemory) -> Result<Arc<dyn driver::Buffer>> {
        let length = memory.length;
        match Buffer::adopt(memory, self.placement(), &self.in_use) {
            Ok(buffer) => Ok(Arc::new(buffer)),
            Err(_) => Err(self.out_of_memory(length)),
        }
    }

    fn compile(&self, source: &str, options: &CompileOptions) -> Result<Arc<dyn driver::Library>> {
        Ok(Arc::new(Library::new(
            self.compiler.clone(),
            source,
            options,
            self.info.limits,
        )?))
    }

    fn submit(&self, list: CommandList, completion: Arc<Completion>) -> Result<()> {
        self.queue.submit(list, completion)
    }

    fn start_capture(&self, _: &Path) -> Result<()> {
        Err(Error::Unsupported {
            what: "GPU capture".to_owned(),
            device: self.info.name.clone(),
        })
    }

    fn stop_capture(&self) {}

    fn contains_kernels(&self) -> bool {
        self.options.mode == Mode::Isolated
    }

    fn multiplies_matrices(&self) -> bool {
        true
    }
}

/// Returns the bytes of memory this process may use: the machine's, or the cgroup limit.
fn physical_memory() -> usize {
    const FALLBACK_BYTES: usize = 4 << 30;
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo")
        .and_then(|text| {
            let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
            let kilobytes: usize = line.trim().strip_suffix(" kB")?.parse().ok()?;
            kilobytes.checked_mul(1024)
        })
        .unwrap_or(FALLBACK_BYTES);
    let cgroup = read("/sys/fs/cgroup/memory.max")
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(usize::MAX);
    machine.min(cgroup)
}

/// Returns the CPU's name.
fn cpu_name() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        text.lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| key.trim() == name)
            .map(|(_, value)| value.trim().to_owned())
            .filter(|value| !value.is_empty())
    };
    field("model name")
        .or_else(|| field("Model"))
        .or_else(|| field("Hardware"))
        .unwrap_or_else(|| format!("{} CPU", std::env::consts::ARCH))
}
