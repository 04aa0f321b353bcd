//! Recording commands.

use crate::access::Access;
use crate::buffer::{Buffer, BufferSlice};
use crate::device::DeviceShared;
use crate::driver::{self, Command, CommandList, Resource};
use crate::error::{Error, Fault, Result};
use crate::hazard::Hazards;
use crate::launch::{Launch, LaunchBuilder};
use crate::pipeline::Pipeline;
use crate::size::Size;
use crate::storage::StorageMode;
use crate::submission::{Completion, Submission};
use bytemuck::NoUninit;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Commands being recorded: Metal's queue, command buffer and encoder in one.
///
/// Commands take effect in the order in which they are recorded. Where two of them touch no common
/// bytes, or only read them, they may run at the same time; barriers are placed where they must be.
#[derive(Debug)]
pub struct Commands {
    device: Arc<DeviceShared>,
    list: CommandList,
    hazards: Hazards,
    used: BTreeMap<u64, (Buffer, bool)>,
    open_groups: usize,
}

impl Commands {
    pub(crate) fn new(device: Arc<DeviceShared>) -> Self {
        Self {
            device,
            list: CommandList::default(),
            hazards: Hazards::default(),
            used: BTreeMap::new(),
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

    /// Number of kernels, products, copies and fills recorded so far.
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

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of barriers placed so far.
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
    /// [`Error::WrongDevice`]. Nothing is recorded then.
    pub fn record(&mut self, launch: &Launch) -> Result<()> {
        self.expect_own(launch.pipeline())?;
        if let Some(command) = launch.command() {
            self.order(launch.buffers());
            self.push(Command::Dispatch(Arc::clone(command)));
        }
        Ok(())
    }

    /// Refuses a kernel of another device.
    fn expect_own(&self, pipeline: &Pipeline) -> Result<()> {
        match pipeline.device.id == self.device.id {
            true => Ok(()),
            false => Err(Error::WrongDevice {
                what: format!("the pipeline of kernel `{}`", pipeline.name()),
                device: self.device.name().to_owned(),
            }),
        }
    }

    /// Copies bytes between buffers; both ranges have the same length.
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

    /// Sets every byte of a range.
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

    /// Brings what kernels wrote into a managed buffer to the host's copy of it.
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

    /// Hands the commands to the device and returns at once.
    ///
    /// # Errors
    /// [`Error::Mapped`] when the host holds a slice of a buffer the commands conflict with, and what
    /// the driver refuses. Nothing has run then.
    pub fn commit(mut self) -> Result<Submission> {
        for _ in 0..self.open_groups {
            self.list.commands.push(Command::PopGroup);
        }
        let completion = Arc::new(Completion::default());
        if self.device.submission_fails() {
            return Err(Error::Execution {
                fault: Fault::DeviceLost,
                kernel: None,
                message: "an injected failure".to_owned(),
            });
        }
        let mut enlisted: Vec<&Buffer> = Vec::with_capacity(self.used.len());
        let mut outcome = Ok(());
        for (buffer, writes) in self.used.values() {
            outcome = buffer.enlist(&completion, *writes);
            if outcome.is_err() {
                break;
            }
            enlisted.push(buffer);
        }
        let list = std::mem::take(&mut self.list);
        let outcome = outcome.and_then(|()| self.device.raw.submit(list, completion.clone()));
        if let Err(error) = outcome {
            for buffer in enlisted {
                buffer.discharge(&completion);
            }
            return Err(error);
        }
        Ok(Submission::new(completion))
    }

    /// The device that they are for.
    pub(crate) fn device(&self) -> &DeviceShared {
        &self.device
    }

    /// Adds a command whose buffers were [`Commands::touch`]ed.
    pub(crate) fn push(&mut self, command: Command) {
        self.list.commands.push(command);
    }

    /// Checks that buffers belong here, notes their use, and places a barrier if one is needed.
    pub(crate) fn touch(&mut self, slices: &[(&BufferSlice, Access)]) -> Result<()> {
        for (slice, _) in slices {
            self.device.expect_own(&slice.buffer)?;
        }
        self.order(slices.iter().copied());
        Ok(())
    }

    /// Notes the use of buffers that belong here, and places a barrier if one is needed.
    fn order<'s>(&mut self, slices: impl Iterator<Item = (&'s BufferSlice, Access)> + Clone) {
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

/// A [`LaunchBuilder`] whose launch is recorded at once.
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

    /// Gives the length of a `threadgroup T* [[threadgroup(index)]]` argument.
    pub fn threadgroup_memory(mut self, index: u32, bytes: usize) -> Self {
        self.launch = self.launch.threadgroup_memory(index, bytes);
        self
    }

    /// Says what the launch costs, as bytes that the device could move meanwhile. Drivers that cut long lists into command
    /// buffers go by it where it is more than what the bindings and the grid suggest.
    pub fn work(mut self, bytes: u64) -> Self {
        self.launch = self.launch.work(bytes);
        self
    }

    /// Names the launch in GPU tools.
    pub fn label(mut self, label: impl Into<Cow<'static, str>>) -> Self {
        self.launch = self.launch.label(label);
        self
    }

    /// Launches exactly `grid` threads; threadgroups at the edges are smaller where it does not divide.
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

/// Counts for tests of drivers: bytes each command reads and writes according to its bindings.
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
            let kept = if product.beta == 0.0 { 0 } else { result };
            (left + right + kept, result)
        }
        Command::Copy { source, target } => (bytes(source), bytes(target)),
        Command::Fill { target, .. } => (0, bytes(target)),
        _ => (0, 0),
    }
}
