//! Kernel launches that are validated once and recorded any number of times.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytemuck::NoUninit;

use crate::access::Access;
use crate::buffer::BufferSlice;
use crate::driver::{Binding, DispatchCommand, Resource};
use crate::error::{Error, Result};
use crate::info::Limits;
use crate::pipeline::{Argument, ArgumentKind, Pipeline};
use crate::size::Size;

/// A kernel with its bindings and its grid, validated: [`Commands::record`](crate::Commands::record) adds it to commands
/// any number of times and repeats only the checks whose outcome can change.
///
/// It keeps its buffers alive. Cloning shares everything.
#[derive(Debug, Clone)]
pub struct Launch {
    pipeline: Pipeline,
    /// Bound buffers that the kernel has arguments for.
    buffers: Arc<[(BufferSlice, Access)]>,
    /// The driver's command; `None` for an empty grid, for which nothing is recorded.
    command: Option<Arc<DispatchCommand>>,
    /// Whether a bound buffer is a [stand-in](crate::Device::stand_in).
    has_stand_ins: bool,
}

impl Launch {
    /// The kernel.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Bound [stand-ins](crate::Device::stand_in), with their positions for [`Launch::with_buffers`].
    pub fn stand_ins(&self) -> impl Iterator<Item = (usize, &BufferSlice)> {
        let all = self.buffers.iter().enumerate();
        all.filter(|(_, (slice, _))| slice.buffer.inner.stand_in)
            .map(|(position, (slice, _))| (position, slice))
    }

    /// The same launch with other buffers, each at the position of the one that it replaces and as long as it.
    ///
    /// Only these replacements are checked; whatever else the launch was validated for stays true.
    ///
    /// ```
    /// use bessemer_hal::{CompileOptions, Family, StorageMode, noop};
    ///
    /// let device = noop::device(Family::Apple7);
    /// let scale = device.library_contained("", &CompileOptions::default())?.pipeline("scale")?;
    /// let later = device.stand_in(1024);
    /// let template = scale.launch().read_write(0, &later).threads(256, 256)?;
    /// let position = template.stand_ins().next().expect("one argument").0;
    /// let mut commands = device.commands();
    /// assert!(commands.record(&template).is_err(), "a stand-in has no memory");
    /// for _ in 0..2 {
    ///     let buffer = device.buffer(1024, StorageMode::Shared)?;
    ///     commands.record(&template.with_buffers([(position, (&buffer).into())])?)?;
    /// }
    /// assert_eq!(commands.len(), 2);
    /// # Ok::<(), bessemer_hal::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::WrongDevice`] for a buffer of another device, and [`Error::Launch`] for a position that has no buffer and
    /// for a replacement of another length.
    pub fn with_buffers(
        &self,
        replacements: impl IntoIterator<Item = (usize, BufferSlice)>,
    ) -> Result<Self> {
        let Some(command) = &self.command else {
            return Ok(self.clone());
        };
        let mut buffers = self.buffers.to_vec();
        let mut command = DispatchCommand::clone(command);
        for (position, slice) in replacements {
            self.pipeline.device.expect_own(&slice.buffer)?;
            let known = buffers
                .get_mut(position)
                .zip(command.bindings.get_mut(position));
            let Some(((bound, access), binding)) = known else {
                return Err(self.replacement_error(format!("no buffer is bound at {position}")));
            };
            if bound.length != slice.length {
                return Err(self.replacement_error(format!(
                    "{} bytes cannot replace the {} bytes bound at {position}",
                    slice.length, bound.length
                )));
            }
            binding.resource = Resource::Buffer {
                region: slice.region(),
                access: *access,
            };
            *bound = slice;
        }
        let has_stand_ins = buffers.iter().any(|(slice, _)| slice.buffer.inner.stand_in);
        Ok(Self {
            pipeline: self.pipeline.clone(),
            buffers: buffers.into(),
            command: Some(Arc::new(command)),
            has_stand_ins,
        })
    }

    /// Rejects a launch with a stand-in.
    pub(crate) fn expect_memory(&self) -> Result<()> {
        if self.has_stand_ins
            && let Some((_, slice)) = self.stand_ins().next()
        {
            return Err(slice.buffer.stand_in_error());
        }
        Ok(())
    }

    fn replacement_error(&self, message: String) -> Error {
        Error::Launch {
            kernel: self.pipeline.name().to_owned(),
            message,
        }
    }

    /// Bound buffers and the kernel's access to them.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = (&BufferSlice, Access)> + Clone {
        self.buffers.iter().map(|(slice, access)| (slice, *access))
    }

    /// The driver's command.
    pub(crate) fn command(&self) -> Option<&Arc<DispatchCommand>> {
        self.command.as_ref()
    }
}

/// Builder of a [`Launch`]; from [`Pipeline::launch`].
#[derive(Debug, Clone)]
#[must_use = "there is no launch until `threads` or `threadgroups` is called"]
pub struct LaunchBuilder {
    pipeline: Pipeline,
    buffers: Vec<(u32, BufferSlice, Access)>,
    bytes: Vec<(u32, Arc<[u8]>)>,
    threadgroup_memory: Vec<(u32, usize)>,
    work: u64,
    label: Option<Cow<'static, str>>,
}

impl LaunchBuilder {
    pub(crate) fn new(pipeline: Pipeline) -> Self {
        Self {
            pipeline,
            buffers: Vec::new(),
            bytes: Vec::new(),
            threadgroup_memory: Vec::new(),
            work: 0,
            label: None,
        }
    }

    /// The kernel.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

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
        self.buffers.push((index, buffer.into(), access));
        self
    }

    /// Passes a value with the command, for a `constant T&` argument.
    pub fn bytes<T: NoUninit>(self, index: u32, value: &T) -> Self {
        self.set_bytes(index, bytemuck::bytes_of(value))
    }

    /// Passes up to 4 KB with the command.
    pub fn set_bytes(mut self, index: u32, bytes: &[u8]) -> Self {
        self.bytes.push((index, bytes.into()));
        self
    }

    /// Sets the length of a `threadgroup T* [[threadgroup(index)]]` argument.
    pub fn threadgroup_memory(mut self, index: u32, bytes: usize) -> Self {
        self.threadgroup_memory.push((index, bytes));
        self
    }

    /// Sets the cost of the launch, in bytes that the device could move in the same time. Drivers that split long lists
    /// into command buffers use it if it exceeds their estimate from the bindings and the grid.
    pub fn work(mut self, bytes: u64) -> Self {
        self.work = bytes;
        self
    }

    /// Names the launch in GPU tools.
    pub fn label(mut self, label: impl Into<Cow<'static, str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Checks everything but the bindings: the grid, the threadgroup and its memory. A caller without its buffers yet can
    /// reject a launch early with it.
    ///
    /// # Errors
    /// [`Error::Launch`], [`Error::Misaligned`], [`Error::Binding`].
    pub fn check_grid(&self, grid: impl Into<Size>, threadgroup: impl Into<Size>) -> Result<()> {
        self.check_shape(grid.into(), threadgroup.into())?;
        self.check_threadgroup_memory()
    }

    /// Builds a launch of exactly `grid` threads; threadgroups at the edges are smaller if the sizes do not divide.
    ///
    /// # Errors
    /// [`Error::Binding`], [`Error::Launch`], [`Error::Misaligned`], and [`Error::WrongDevice`] for a buffer of another
    /// device than the kernel's.
    pub fn threads(self, grid: impl Into<Size>, threadgroup: impl Into<Size>) -> Result<Launch> {
        self.build(grid.into(), threadgroup.into())
    }

    /// Builds a launch of `groups` full threadgroups.
    ///
    /// # Errors
    /// As [`LaunchBuilder::threads`].
    pub fn threadgroups(
        self,
        groups: impl Into<Size>,
        threadgroup: impl Into<Size>,
    ) -> Result<Launch> {
        let (groups, threadgroup) = (groups.into(), threadgroup.into());
        let grid = self.grid_of(groups, threadgroup)?;
        self.build(grid, threadgroup)
    }

    /// The threads of a grid of threadgroups.
    ///
    /// # Errors
    /// [`Error::Launch`] if their number overflows.
    pub fn grid_of(&self, groups: impl Into<Size>, threadgroup: impl Into<Size>) -> Result<Size> {
        let (groups, threadgroup) = (groups.into(), threadgroup.into());
        let product = |a: usize, b: usize| {
            a.checked_mul(b)
                .ok_or_else(|| self.launch_error(format!("a grid of {groups} groups overflows")))
        };
        Ok(Size::new(
            product(groups.width, threadgroup.width)?,
            product(groups.height, threadgroup.height)?,
            product(groups.depth, threadgroup.depth)?,
        ))
    }

    fn build(mut self, grid: Size, threadgroup: Size) -> Result<Launch> {
        self.check_shape(grid, threadgroup)?;
        self.check_bindings()?;
        self.drop_unused_bindings();
        if grid.is_empty() {
            return Ok(Launch {
                pipeline: self.pipeline,
                buffers: Arc::default(),
                command: None,
                has_stand_ins: false,
            });
        }
        for (_, slice, _) in &self.buffers {
            self.pipeline.device.expect_own(&slice.buffer)?;
        }
        let buffers = self.buffers.iter().map(|(index, slice, access)| Binding {
            index: *index,
            resource: Resource::Buffer {
                region: slice.region(),
                access: *access,
            },
        });
        let bytes = self.bytes.into_iter().map(|(index, bytes)| Binding {
            index,
            resource: Resource::Bytes(bytes),
        });
        let command = DispatchCommand {
            pipeline: self.pipeline.raw.clone(),
            bindings: buffers.chain(bytes).collect(),
            threadgroup_memory: self.threadgroup_memory,
            grid,
            threadgroup,
            work: self.work,
            label: self.label,
        };
        let has_stand_ins = self
            .buffers
            .iter()
            .any(|(_, slice, _)| slice.buffer.inner.stand_in);
        let buffers = self.buffers.into_iter();
        Ok(Launch {
            pipeline: self.pipeline,
            buffers: buffers.map(|(_, slice, access)| (slice, access)).collect(),
            command: Some(Arc::new(command)),
            has_stand_ins,
        })
    }

    fn limits(&self) -> &Limits {
        self.pipeline.device.limits()
    }

    /// Drops bindings at indices that the kernel has no argument for: as in Metal, they are allowed, and cause no hazards.
    fn drop_unused_bindings(&mut self) {
        let Some(arguments) = &self.pipeline.raw.info().arguments else {
            return;
        };
        let known = |index: u32| {
            let kind = ArgumentKind::Buffer(index);
            arguments.iter().any(|argument| argument.kind == kind)
        };
        self.buffers.retain(|(index, ..)| known(*index));
        self.bytes.retain(|(index, _)| known(*index));
    }

    fn check_shape(&self, grid: Size, threadgroup: Size) -> Result<()> {
        let limits = self.limits();
        if threadgroup.is_empty() {
            return Err(self.launch_error(format!("a threadgroup of {threadgroup} has no thread")));
        }
        let max_threads = self.pipeline.max_total_threads_per_threadgroup();
        let largest = limits.max_threads_per_threadgroup.dims();
        let fits = threadgroup.total().is_some_and(|t| t <= max_threads)
            && threadgroup.dims().iter().zip(largest).all(|(d, m)| *d <= m);
        if !fits {
            return Err(self.launch_error(format!(
                "a threadgroup of {threadgroup} is larger than the maximum of {max_threads} threads"
            )));
        }
        // Metal counts threads with 32 bits in each dimension.
        if grid.dims().iter().any(|d| u32::try_from(*d).is_err()) || grid.total().is_none() {
            return Err(self.launch_error(format!("a grid of {grid} threads is too large")));
        }
        Ok(())
    }

    fn check_bindings(&self) -> Result<()> {
        let limits = self.limits();
        let mut bound = BTreeMap::new();
        for (index, length, access) in self.bound() {
            if index >= limits.max_buffers {
                return Err(self.binding_error(
                    &format!("{index}"),
                    format!("buffer indices end at {}", limits.max_buffers - 1),
                ));
            }
            if bound.insert(index, (length, access)).is_some() {
                return Err(self.binding_error(&format!("{index}"), "bound twice".to_owned()));
            }
        }
        if let Some((index, bytes)) = self
            .bytes
            .iter()
            .find(|(_, b)| b.len() > limits.max_inline_bytes)
        {
            return Err(self.binding_error(
                &format!("{index}"),
                format!(
                    "{} inline bytes are more than {}; use a buffer",
                    bytes.len(),
                    limits.max_inline_bytes
                ),
            ));
        }
        self.check_threadgroup_memory()?;
        let Some(arguments) = &self.pipeline.raw.info().arguments else {
            return Ok(());
        };
        for argument in arguments {
            if let ArgumentKind::Buffer(index) = argument.kind {
                self.check_buffer_argument(argument, bound.get(&index))?;
            } else if let ArgumentKind::ThreadgroupMemory(index) = argument.kind {
                let given = self.threadgroup_memory.iter().any(|(i, _)| *i == index);
                if argument.active && !given {
                    return Err(self.binding_error(
                        &argument.name,
                        format!("no length given for threadgroup memory {index}"),
                    ));
                }
            }
        }
        Ok(())
    }

    fn check_buffer_argument(
        &self,
        argument: &Argument,
        bound: Option<&(usize, Access)>,
    ) -> Result<()> {
        let fail = |message: String| Err(self.binding_error(&argument.name, message));
        let Some((length, access)) = bound else {
            return if argument.active {
                fail("nothing is bound".to_owned())
            } else {
                Ok(())
            };
        };
        if *length < argument.min_bytes {
            return fail(format!(
                "{length} bytes are bound, the kernel needs {}",
                argument.min_bytes
            ));
        }
        if argument.access.writes() && !access.writes() {
            return fail("bound for reading, but the kernel may write it".to_owned());
        }
        Ok(())
    }

    fn check_threadgroup_memory(&self) -> Result<()> {
        let limits = self.limits();
        let mut total = self.pipeline.static_threadgroup_memory_length();
        for (position, (index, bytes)) in self.threadgroup_memory.iter().enumerate() {
            let earlier = &self.threadgroup_memory[..position];
            if earlier.iter().any(|(i, _)| i == index) {
                return Err(self.binding_error(
                    &format!("threadgroup {index}"),
                    "a length is given twice".to_owned(),
                ));
            }
            if !bytes.is_multiple_of(16) {
                return Err(Error::Misaligned {
                    what: format!("the length of threadgroup memory {index}"),
                    value: *bytes,
                    alignment: 16,
                });
            }
            if *index >= limits.max_buffers {
                return Err(self.binding_error(
                    &format!("threadgroup {index}"),
                    format!("threadgroup indices end at {}", limits.max_buffers - 1),
                ));
            }
            total = total.saturating_add(*bytes);
        }
        if total > limits.max_threadgroup_memory {
            return Err(self.launch_error(format!(
                "{total} bytes of threadgroup memory are more than the maximum of {}",
                limits.max_threadgroup_memory
            )));
        }
        Ok(())
    }

    /// Index, length and access of everything bound.
    fn bound(&self) -> impl Iterator<Item = (u32, usize, Access)> + '_ {
        let buffers = self.buffers.iter().map(|(i, s, a)| (*i, s.length, *a));
        let bytes = self.bytes.iter().map(|(i, b)| (*i, b.len(), Access::Read));
        buffers.chain(bytes)
    }

    fn launch_error(&self, message: String) -> Error {
        Error::Launch {
            kernel: self.pipeline.name().to_owned(),
            message,
        }
    }

    fn binding_error(&self, argument: &str, message: String) -> Error {
        Error::Binding {
            kernel: self.pipeline.name().to_owned(),
            argument: argument.to_owned(),
            message,
        }
    }
}
