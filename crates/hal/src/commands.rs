//! Recording commands.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use bytemuck::NoUninit;

use crate::access::Access;
use crate::buffer::{Buffer, BufferSlice};
use crate::device::DeviceShared;
use crate::driver::{self, Command, CommandList, Resource};
use crate::error::{Error, Fault, Result};
use crate::hazard::{Hazards, IdHasher};
use crate::launch::{Launch, LaunchBuilder};
use crate::pipeline::Pipeline;
use crate::size::Size;
use crate::storage::StorageMode;
use crate::submission::{Completion, Submission};

/// Commands being recorded: Metal's queue, command buffer and encoder in one.
///
/// Commands take effect in the order in which they are recorded. Two commands that share no bytes, or only read the
/// shared ones, may run concurrently; barriers are inserted where hazards require them.
#[derive(Debug)]
pub struct Commands {
    device: Arc<DeviceShared>,
    list: CommandList,
    hazards: Hazards,
    /// The buffers in use, by id, and whether they are written.
    used: HashMap<u64, (Buffer, bool), BuildHasherDefault<IdHasher>>,
    open_groups: usize,
}

impl Commands {
    pub(crate) fn new(device: Arc<DeviceShared>) -> Self {
        Self {
            device,
            list: CommandList::default(),
            hazards: Hazards::default(),
            used: HashMap::default(),
            open_groups: 0,
        }
    }

    /// Names the commands in GPU tools.
    pub fn set_label(&mut self, label: impl Into<Cow<'static, str>>) {
        self.list.label = Some(label.into());
    }

    /// Opens a named group of commands for GPU tools.
    pub fn push_debug_group(&mut self, label: &str) {
        self.open_groups += 1;
        self.list
            .commands
            .push(Command::PushGroup(label.to_owned()));
    }

    /// Closes the innermost group; without one this does nothing.
    pub fn pop_debug_group(&mut self) {
        if self.open_groups > 0 {
            self.open_groups -= 1;
            self.list.commands.push(Command::PopGroup);
        }
    }

    /// Number of kernels, matrix products, copies and fills recorded so far.
    pub fn len(&self) -> usize {
        let counts = |c: &&Command| {
            matches!(
                c,
                Command::Dispatch(_)
                    | Command::Copy { .. }
                    | Command::Fill { .. }
                    | Command::Product(_)
                    | Command::Synchronize { .. }
            )
        };
        self.list.commands.iter().filter(counts).count()
    }

    /// Returns whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of barriers inserted so far.
    pub fn barriers(&self) -> usize {
        let barriers = self.list.commands.iter();
        barriers.filter(|c| matches!(c, Command::Barrier)).count()
    }

    /// Starts a launch: bind arguments, then give the grid.
    ///
    /// ```no_run
    /// # fn f(commands: &mut bessemer_hal::Commands, add: &bessemer_hal::Pipeline, a: &bessemer_hal::Buffer,
    /// #      b: &bessemer_hal::Buffer, c: &bessemer_hal::Buffer) -> bessemer_hal::Result<()> {
    /// commands.dispatch(add).read(0, a).read(1, b).write(2, c).bytes(3, &1024_u32).threads(1024, 256)?;
    /// # Ok(()) }
    /// ```
    pub fn dispatch(&mut self, pipeline: &Pipeline) -> Dispatch<'_> {
        Dispatch {
            commands: self,
            launch: pipeline.launch(),
        }
    }

    /// Adds a launch that was validated when it was built.
    ///
    /// # Errors
    /// [`Error::WrongDevice`], and [`Error::Storage`] for a launch with a [stand-in](crate::Device::stand_in). Nothing is
    /// recorded then.
    pub fn record(&mut self, launch: &Launch) -> Result<()> {
        self.expect_own(launch.pipeline())?;
        launch.expect_memory()?;
        if let Some(command) = launch.command() {
            event!(
                TRACE,
                "launch",
                kernel = launch.pipeline().name(),
                grid = format_args!("{}", command.grid),
                threadgroup = format_args!("{}", command.threadgroup),
                bytes = launch
                    .buffers()
                    .map(|(slice, _)| slice.length())
                    .sum::<usize>()
            );
            self.record_accesses(launch.buffers());
            self.push(Command::Dispatch(Arc::clone(command)));
        }
        Ok(())
    }

    /// Rejects a kernel of another device.
    fn expect_own(&self, pipeline: &Pipeline) -> Result<()> {
        if pipeline.device.id == self.device.id {
            Ok(())
        } else {
            Err(Error::WrongDevice {
                what: format!("the pipeline of kernel `{}`", pipeline.name()),
                device: self.device.name().to_owned(),
            })
        }
    }

    /// Copies bytes between two ranges of equal length.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] when the lengths differ, [`Error::WrongDevice`], and
    /// [`Error::Launch`] when the ranges overlap in one buffer.
    pub fn copy(
        &mut self,
        source: impl Into<BufferSlice>,
        target: impl Into<BufferSlice>,
    ) -> Result<()> {
        let (source, target) = (source.into(), target.into());
        if source.length != target.length {
            return Err(target.buffer.out_of_bounds(target.offset, source.length));
        }
        let overlap = source.buffer.is(&target.buffer)
            && source.offset < target.offset + target.length
            && target.offset < source.offset + source.length;
        if overlap {
            return Err(Error::Launch {
                kernel: "copy".to_owned(),
                message: format!("source and target overlap in {}", source.buffer.describe()),
            });
        }
        self.touch(&[(&source, Access::Read), (&target, Access::Write)])?;
        if source.length > 0 {
            self.list.commands.push(Command::Copy {
                source: source.region(),
                target: target.region(),
            });
        }
        Ok(())
    }

    /// Sets every byte of a range to a value.
    ///
    /// # Errors
    /// [`Error::WrongDevice`].
    pub fn fill(&mut self, target: impl Into<BufferSlice>, value: u8) -> Result<()> {
        let target = target.into();
        self.touch(&[(&target, Access::Write)])?;
        if target.length > 0 {
            self.list.commands.push(Command::Fill {
                target: target.region(),
                value,
            });
        }
        Ok(())
    }

    /// Copies what kernels wrote to a managed buffer to its host copy.
    ///
    /// # Errors
    /// [`Error::Storage`] for other modes, [`Error::WrongDevice`].
    pub fn synchronize(&mut self, buffer: &Buffer) -> Result<()> {
        if buffer.storage_mode() != StorageMode::Managed {
            return Err(buffer.storage_error("synchronize", "only managed buffers have two copies"));
        }
        self.touch(&[(&buffer.into(), Access::ReadWrite)])?;
        self.list.commands.push(Command::Synchronize {
            buffer: buffer.inner.raw.clone(),
        });
        Ok(())
    }

    /// Submits the commands to the device and returns without waiting.
    ///
    /// # Errors
    /// [`Error::Mapped`] when the host holds a slice of a buffer that the commands conflict with, and the driver's
    /// errors. Nothing has run then.
    pub fn commit(mut self) -> Result<Submission> {
        for _ in 0..self.open_groups {
            self.list.commands.push(Command::PopGroup);
        }
        event!(
            DEBUG,
            "commit",
            commands = self.len(),
            barriers = self.barriers()
        );
        let completion = Arc::new(Completion::default());
        if self.device.submission_fails() {
            return Err(Error::Execution {
                fault: Fault::DeviceLost,
                kernel: None,
                message: "an injected failure".to_owned(),
            });
        }
        let mut added: Vec<&Buffer> = Vec::with_capacity(self.used.len());
        let mut outcome = Ok(());
        for (buffer, writes) in self.used.values() {
            outcome = buffer.add_pending(&completion, *writes);
            if outcome.is_err() {
                break;
            }
            added.push(buffer);
        }
        let list = std::mem::take(&mut self.list);
        let outcome = outcome.and_then(|()| self.device.raw.submit(list, completion.clone()));
        if let Err(error) = outcome {
            for buffer in added {
                buffer.remove_pending(&completion);
            }
            return Err(error);
        }
        Ok(Submission::new(completion))
    }

    /// The device of the commands.
    pub(crate) fn device(&self) -> &DeviceShared {
        &self.device
    }

    /// Adds a command whose accesses were recorded with [`Commands::touch`].
    pub(crate) fn push(&mut self, command: Command) {
        self.list.commands.push(command);
    }

    /// Checks that the buffers belong to this device, records the accesses, and inserts a barrier if one is needed.
    pub(crate) fn touch(&mut self, slices: &[(&BufferSlice, Access)]) -> Result<()> {
        for (slice, _) in slices {
            self.device.expect_usable(&slice.buffer)?;
        }
        self.record_accesses(slices.iter().copied());
        Ok(())
    }

    /// Records accesses to buffers of this device, and inserts a barrier if one is needed.
    fn record_accesses<'s>(
        &mut self,
        slices: impl Iterator<Item = (&'s BufferSlice, Access)> + Clone,
    ) {
        let accesses = slices
            .clone()
            .map(|(slice, access)| (slice.buffer.id(), slice.range(), access));
        if self.hazards.record(accesses) {
            self.list.commands.push(Command::Barrier);
        }
        for (slice, access) in slices {
            self.used
                .entry(slice.buffer.id())
                .or_insert_with(|| (slice.buffer.clone(), false))
                .1 |= access.writes();
        }
    }
}

/// A [`LaunchBuilder`] that records its launch when it is complete.
#[derive(Debug)]
#[must_use = "nothing is recorded until `threads` or `threadgroups` is called"]
pub struct Dispatch<'a> {
    commands: &'a mut Commands,
    launch: LaunchBuilder,
}

impl Dispatch<'_> {
    /// Binds a buffer, or a range of one, that the kernel reads.
    pub fn read(self, index: u32, buffer: impl Into<BufferSlice>) -> Self {
        self.bind(index, buffer, Access::Read)
    }

    /// Binds a buffer, or a range of one, that the kernel writes without reading it.
    pub fn write(self, index: u32, buffer: impl Into<BufferSlice>) -> Self {
        self.bind(index, buffer, Access::Write)
    }

    /// Binds a buffer, or a range of one, that the kernel reads and writes.
    pub fn read_write(self, index: u32, buffer: impl Into<BufferSlice>) -> Self {
        self.bind(index, buffer, Access::ReadWrite)
    }

    /// Binds a buffer, or a range of one.
    pub fn bind(mut self, index: u32, buffer: impl Into<BufferSlice>, access: Access) -> Self {
        self.launch = self.launch.bind(index, buffer, access);
        self
    }

    /// Passes a value with the command, for a `constant T&` argument.
    pub fn bytes<T: NoUninit>(self, index: u32, value: &T) -> Self {
        self.set_bytes(index, bytemuck::bytes_of(value))
    }

    /// Passes up to 4 KB with the command.
    pub fn set_bytes(mut self, index: u32, bytes: &[u8]) -> Self {
        self.launch = self.launch.set_bytes(index, bytes);
        self
    }

    /// Sets the length of a `threadgroup T* [[threadgroup(index)]]` argument.
    pub fn threadgroup_memory(mut self, index: u32, bytes: usize) -> Self {
        self.launch = self.launch.threadgroup_memory(index, bytes);
        self
    }

    /// Sets the cost of the launch, in bytes that the device could move in the same time. Drivers that split long lists
    /// into command buffers use it if it exceeds their estimate from the bindings and the grid.
    pub fn work(mut self, bytes: u64) -> Self {
        self.launch = self.launch.work(bytes);
        self
    }

    /// Names the launch in GPU tools.
    pub fn label(mut self, label: impl Into<Cow<'static, str>>) -> Self {
        self.launch = self.launch.label(label);
        self
    }

    /// Launches exactly `grid` threads; threadgroups at the edges are smaller if the sizes do not divide.
    ///
    /// # Errors
    /// [`Error::WrongDevice`], and as [`LaunchBuilder::threads`]. Nothing is recorded then.
    pub fn threads(self, grid: impl Into<Size>, threadgroup: impl Into<Size>) -> Result<()> {
        self.commands.expect_own(self.launch.pipeline())?;
        let launch = self.launch.threads(grid, threadgroup)?;
        self.commands.record(&launch)
    }

    /// Launches `groups` full threadgroups.
    ///
    /// # Errors
    /// As [`Dispatch::threads`].
    pub fn threadgroups(self, groups: impl Into<Size>, threadgroup: impl Into<Size>) -> Result<()> {
        self.commands.expect_own(self.launch.pipeline())?;
        let launch = self.launch.threadgroups(groups, threadgroup)?;
        self.commands.record(&launch)
    }
}

/// Bytes that a command reads and writes according to its bindings.
pub(crate) fn traffic(command: &Command) -> (u64, u64) {
    let bytes = |region: &driver::Region| region.length as u64;
    match command {
        Command::Dispatch(dispatch) => {
            dispatch
                .bindings
                .iter()
                .fold((0, 0), |(read, written), binding| match &binding.resource {
                    Resource::Buffer { region, access } => (
                        read + if access.reads() { bytes(region) } else { 0 },
                        written + if access.writes() { bytes(region) } else { 0 },
                    ),
                    Resource::Bytes(inline) => (read + inline.len() as u64, written),
                })
        }
        Command::Product(product) => {
            let [left, right, result] =
                [&product.left, &product.right, &product.result].map(|m| bytes(&m.region));
            let accumulated = if product.beta == 0.0 { 0 } else { result };
            (left + right + accumulated, result)
        }
        Command::Copy { source, target } => (bytes(source), bytes(target)),
        Command::Fill { target, .. } => (0, bytes(target)),
        _ => (0, 0),
    }
}
