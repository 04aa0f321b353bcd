//! Launches that are built once and recorded many times.

use bessemer_hal::noop::{self, Event};
use bessemer_hal::{Error, Launch, Result, Size};

use super::{DEVICE_NAME, binding, labelled, launch, pipeline, recording};

#[test]
fn a_launch_is_validated_once_and_recorded_many_times() -> Result<()> {
    let device = recording();
    let [from, to] = ["from", "to"].map(|label| labelled(&device, 64, label));
    let built: Launch = pipeline(&device, "k")
        .launch()
        .label("copy")
        .read(0, &from)
        .write(1, &to)
        .bytes(2, &16_u32)
        .threadgroups(2, 8)?;
    assert_eq!(built.pipeline().name(), "k");
    // A launch outlives the handles it was built from.
    drop((from, to));
    for _ in 0..2 {
        let mut commands = device.commands();
        for _ in 0..3 {
            commands.record(&built)?;
        }
        assert_eq!((commands.len(), commands.barriers()), (3, 2));
        commands.commit()?.wait()?;
    }
    Ok(())
}

#[test]
fn a_recorded_launch_equals_a_dispatch() -> Result<()> {
    let device = recording();
    let kernel = pipeline(&device, "k");
    let buffer = labelled(&device, 64, "b");
    let built = kernel
        .launch()
        .label("l")
        .read_write(0, buffer.slice(16..32)?)
        .bytes(1, &7_u32)
        .threads(10, 4)?;
    let mut commands = device.commands();
    commands.record(&built)?;
    commands
        .dispatch(&kernel)
        .label("l")
        .read_write(0, buffer.slice(16..32)?)
        .bytes(1, &7_u32)
        .threads(10, 4)?;
    commands.commit()?.wait()?;
    let record = noop::record(&device).expect("a recording device");
    let dispatches: Vec<_> = record
        .events
        .iter()
        .filter(|event| matches!(event, Event::Dispatch { .. }))
        .collect();
    assert_eq!(dispatches.len(), 2);
    assert_eq!(dispatches[0], dispatches[1]);
    Ok(())
}

#[test]
fn wrong_bindings_and_grids_fail_when_the_launch_is_built() {
    let device = recording();
    let kernel = pipeline(&device, "k");
    let buffer = labelled(&device, 16, "b");
    let twice = kernel.launch().read(0, &buffer).write(0, &buffer);
    assert_eq!(twice.threads(1, 1).err(), Some(binding("0", "bound twice")));
    let beyond = kernel.launch().read(31, &buffer);
    assert_eq!(
        beyond.threads(1, 1).err(),
        Some(binding("31", "buffer indices end at 30"))
    );
    let group = Size::x(0);
    assert_eq!(
        kernel.launch().threads(1, group).err(),
        Some(launch(
            "k",
            &format!("a threadgroup of {group} has no thread")
        ))
    );
    let stranger = labelled(&recording(), 16, "stranger");
    assert_eq!(
        kernel.launch().read(0, &stranger).threads(1, 1).err(),
        Some(Error::WrongDevice {
            what: "buffer `stranger`".to_owned(),
            device: DEVICE_NAME.to_owned(),
        })
    );
}

#[test]
fn commands_of_another_device_reject_a_launch() -> Result<()> {
    let device = recording();
    let buffer = labelled(&device, 16, "b");
    let built = pipeline(&device, "k")
        .launch()
        .write(0, &buffer)
        .threads(1, 1)?;
    let mut commands = recording().commands();
    assert_eq!(
        commands.record(&built),
        Err(Error::WrongDevice {
            what: "the pipeline of kernel `k`".to_owned(),
            device: DEVICE_NAME.to_owned(),
        })
    );
    assert!(commands.is_empty());
    Ok(())
}

#[test]
fn hazards_of_recorded_launches_become_barriers() -> Result<()> {
    let device = recording();
    let kernel = pipeline(&device, "k");
    let buffer = labelled(&device, 32, "b");
    let half = |range| kernel.launch().write(0, buffer.slice(range)?).threads(1, 1);
    let (low, high) = (half(0..16)?, half(16..32)?);
    let all = kernel.launch().read(0, &buffer).threads(1, 1)?;
    let mut commands = device.commands();
    let mut expect = |launch: &Launch, barriers: usize, why: &str| {
        commands.record(launch).expect("a valid launch");
        assert_eq!(commands.barriers(), barriers, "{why}");
    };
    expect(&low, 0, "the first");
    expect(&high, 0, "other bytes");
    expect(&all, 1, "read after write");
    expect(&all, 1, "read after read");
    expect(&low, 2, "write after read");
    Ok(())
}

#[test]
fn a_launch_of_a_mapped_buffer_is_rejected_until_the_slice_is_dropped() -> Result<()> {
    let device = recording();
    let buffer = labelled(&device, 16, "b");
    let built = pipeline(&device, "k")
        .launch()
        .write(0, &buffer)
        .threads(1, 1)?;
    let commit = || {
        let mut commands = device.commands();
        commands.record(&built)?;
        commands.commit()?.wait()
    };
    let slice = buffer.as_slice::<u32>()?;
    assert!(matches!(commit(), Err(Error::Mapped { .. })));
    drop(slice);
    commit()?;
    Ok(())
}

#[test]
fn a_launch_without_threads_is_checked_and_records_nothing() -> Result<()> {
    let device = recording();
    let kernel = pipeline(&device, "k");
    let buffer = labelled(&device, 16, "b");
    let empty = kernel.launch().write(0, &buffer).threads(0, 1)?;
    let mut commands = device.commands();
    commands.record(&empty)?;
    assert!(commands.is_empty());
    let twice = kernel.launch().write(0, &buffer).write(0, &buffer);
    assert_eq!(twice.threads(0, 1).err(), Some(binding("0", "bound twice")));
    Ok(())
}

#[test]
fn a_launch_with_stand_ins_is_recorded_once_buffers_replace_them() -> Result<()> {
    let device = recording();
    let kernel = pipeline(&device, "k");
    let (fixed, later) = (labelled(&device, 64, "fixed"), device.stand_in(64));
    let template = kernel
        .launch()
        .read(0, &fixed)
        .write(1, later.slice(16..48)?)
        .bytes(2, &7_u32)
        .threads(10, 4)?;
    let found: Vec<_> = template
        .stand_ins()
        .map(|(at, slice)| {
            (
                at,
                slice.buffer().is(&later),
                slice.offset(),
                slice.length(),
            )
        })
        .collect();
    assert_eq!(found, [(1, true, 16, 32)]);
    let target = labelled(&device, 128, "target");
    let bound = template.with_buffers([(1, target.slice(32..64)?)])?;
    assert_eq!(bound.stand_ins().count(), 0);
    let direct = kernel
        .launch()
        .read(0, &fixed)
        .write(1, target.slice(32..64)?)
        .bytes(2, &7_u32)
        .threads(10, 4)?;
    let mut commands = device.commands();
    commands.record(&bound)?;
    commands.record(&direct)?;
    assert_eq!(commands.barriers(), 1, "both write the same bytes");
    commands.commit()?.wait()?;
    let events = noop::record(&device).expect("a recording device").events;
    let dispatches: Vec<_> = events
        .iter()
        .filter(|event| matches!(event, Event::Dispatch { .. }))
        .collect();
    assert_eq!(dispatches[0], dispatches[1]);
    Ok(())
}

#[test]
fn stand_ins_are_rejected_wherever_memory_is_needed() -> Result<()> {
    let device = recording();
    let kernel = pipeline(&device, "k");
    let (memory, later) = (labelled(&device, 64, "b"), device.stand_in(64));
    let is_refused = |outcome: Result<()>| matches!(outcome, Err(Error::Storage { .. }));
    let template = kernel.launch().write(0, &later).threads(1, 1)?;
    let mut commands = device.commands();
    assert!(is_refused(commands.record(&template)));
    assert!(is_refused(commands.copy(&memory, &later)));
    assert!(is_refused(commands.copy(&later, &memory)));
    assert!(is_refused(commands.fill(&later, 0)));
    assert!(commands.is_empty());
    assert!(is_refused(later.to_vec::<u8>().map(|_| ())));
    assert!(is_refused(later.write(0, &[0_u8])));
    let replace = |at: usize, slice| template.with_buffers([(at, slice)]).map(|_| ());
    let message = |text: &str| Err(launch("k", text));
    assert_eq!(
        replace(1, (&memory).into()),
        message("no buffer is bound at 1")
    );
    assert_eq!(
        replace(0, memory.slice(0..32)?),
        message("32 bytes cannot replace the 64 bytes bound at 0")
    );
    let other = recording();
    let foreign = labelled(&other, 64, "foreign");
    assert!(matches!(
        replace(0, (&foreign).into()),
        Err(Error::WrongDevice { .. })
    ));
    Ok(())
}

#[test]
fn a_grid_can_be_checked_before_there_are_buffers() {
    let device = recording();
    let kernel = pipeline(&device, "k");
    let builder = || kernel.launch().threadgroup_memory(0, 1024);
    assert_eq!(builder().check_grid(8, 8), Ok(()));
    assert_eq!(builder().grid_of((3, 2), 8), Ok(Size::xy(24, 2)));
    let message = "a threadgroup of 1025×1×1 is larger than the maximum of 1024 threads";
    assert_eq!(builder().check_grid(8, 1025), Err(launch("k", message)));
    let message = "a grid of 18446744073709551615×1×1 groups overflows";
    assert_eq!(builder().grid_of(usize::MAX, 2), Err(launch("k", message)));
    let message = "33792 bytes of threadgroup memory are more than the maximum of 32768";
    let too_much = builder().threadgroup_memory(1, 32 << 10);
    assert_eq!(too_much.check_grid(8, 8), Err(launch("k", message)));
}
