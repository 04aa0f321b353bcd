//! Buffers of every mode, ranges, order of commands, limits of pipelines, options.

use bessemer_hal::{
    ArgumentKind, CompileOptions, Device, Error, Library, MathMode, NO_COPY_ALIGNMENT_BYTES,
    Result, StorageMode,
};

use crate::harness::{Source, compile, source, targets};

const SOURCE: Source = source!("storage.metal");

fn options() -> CompileOptions {
    CompileOptions {
        defines: vec![("VALUE".to_owned(), "40 + 2".to_owned())],
        ..CompileOptions::labelled(SOURCE.path)
    }
}

fn library(device: &Device) -> Library {
    compile(device, SOURCE.text, &options()).expect("the kernels compile")
}

/// Runs a test on every target; a failure names the target.
fn on_every_target(test: impl Fn(&Device, &Library) -> Result<()>) {
    for target in targets() {
        test(&target.device, &library(&target.device))
            .unwrap_or_else(|error| panic!("{}: {error}", target.name));
    }
}

#[test]
fn private_buffers_are_filled_and_read_by_copies() {
    on_every_target(|device, library| {
        let add = library.pipeline("add_one")?;
        let input = device.buffer_with_data(&[1.0_f32, 2., 3., 4.], StorageMode::Private)?;
        let output = device.buffer(16, StorageMode::Private)?;
        let host = device.buffer(16, StorageMode::Shared)?;
        let mut commands = device.commands();
        commands
            .dispatch(&add)
            .read(0, &input)
            .write(1, &output)
            .threads(4, 4)?;
        commands.copy(&output, &host)?;
        commands.commit()?.wait()?;
        assert_eq!(host.to_vec::<f32>()?, [2., 3., 4., 5.]);
        Ok(())
    });
}

#[test]
fn managed_buffers_are_announced_and_synchronised() {
    on_every_target(|device, library| {
        let double = library.pipeline("double_in_place")?;
        let buffer = device.buffer_with_data(&[1.0_f32, 2., 3., 4.], StorageMode::Managed)?;
        buffer.as_mut_slice::<f32>()?[1] = 10.0;
        buffer.did_modify_range(4..8)?;
        let mut commands = device.commands();
        commands
            .dispatch(&double)
            .read_write(0, &buffer)
            .threads(4, 4)?;
        commands.synchronize(&buffer)?;
        commands.commit()?.wait()?;
        assert_eq!(buffer.to_vec::<f32>()?, [2., 20., 6., 8.]);
        Ok(())
    });
}

#[test]
fn a_kernel_accesses_the_bound_range() {
    on_every_target(|device, library| {
        let add = library.pipeline("add_one")?;
        let values: Vec<f32> = (0..256).map(|v| v as f32).collect();
        let input = device.buffer_with_data(&values, StorageMode::Shared)?;
        let output = device.buffer(1024, StorageMode::Shared)?;
        let mut commands = device.commands();
        commands.fill(&output, 0)?;
        commands
            .dispatch(&add)
            .read(0, &input.slice(256..512)?)
            .write(1, &output.slice(512..768)?)
            .threads(64, 32)?;
        let completed = commands.commit()?.wait()?;
        assert!(completed.gpu_end >= completed.gpu_start);
        let got = output.to_vec::<f32>()?;
        let expected: Vec<f32> = (0..64).map(|i| (64 + i + 1) as f32).collect();
        assert_eq!(got[128..192], expected);
        assert!(got[..128].iter().chain(&got[192..]).all(|v| *v == 0.0));
        Ok(())
    });
}

#[test]
fn commands_take_effect_in_order() {
    on_every_target(|device, library| {
        let double = library.pipeline("double_in_place")?;
        let add = library.pipeline("add_one")?;
        let a = device.buffer_with_data(&[1.0_f32; 1000], StorageMode::Shared)?;
        let b = device.buffer(4000, StorageMode::Shared)?;
        let mut submissions = Vec::new();
        for _ in 0..5 {
            let mut commands = device.commands();
            commands.push_debug_group("round");
            commands
                .dispatch(&double)
                .read_write(0, &a)
                .threads(1000, 64)?;
            commands
                .dispatch(&add)
                .read(0, &a)
                .write(1, &b)
                .threads(1000, 64)?;
            commands.copy(&b, &a)?;
            commands.pop_debug_group();
            submissions.push(commands.commit()?);
        }
        // x becomes 2x + 1, five times: 1, 3, 7, 15, 31, 63.
        assert_eq!(a.to_vec::<f32>()?, vec![63.0; 1000]);
        assert!(submissions.iter().all(|s| s.wait().is_ok()));
        Ok(())
    });
}

#[test]
#[expect(unsafe_code, reason = "hands over memory it owns")]
fn caller_memory_is_used_in_place() {
    #[repr(align(16384))]
    struct Page([f32; NO_COPY_ALIGNMENT_BYTES / 4]);
    on_every_target(|device, library| {
        let double = library.pipeline("double_in_place")?;
        let page = Box::leak(Box::new(Page([1.5; NO_COPY_ALIGNMENT_BYTES / 4])));
        let pointer = std::ptr::NonNull::from(&mut page.0).cast();
        // SAFETY: the page is never freed and nothing else has its address.
        let buffer = unsafe { device.buffer_no_copy(pointer, NO_COPY_ALIGNMENT_BYTES, ()) }?;
        let mut commands = device.commands();
        commands
            .dispatch(&double)
            .read_write(0, &buffer)
            .threads(NO_COPY_ALIGNMENT_BYTES / 4, 256)?;
        commands.commit()?.wait()?;
        let slice = buffer.as_slice::<f32>()?;
        assert_eq!(slice.as_ptr().addr(), pointer.addr().get());
        assert!(slice.iter().all(|v| *v == 3.0));
        Ok(())
    });
}

#[test]
fn a_pipeline_has_the_limit_of_its_kernel() {
    on_every_target(|device, library| {
        let narrow = library.pipeline("narrow")?;
        assert_eq!(narrow.max_total_threads_per_threadgroup(), 64);
        assert_eq!(narrow.thread_execution_width(), 32);
        let out = device.buffer(512, StorageMode::Shared)?;
        let mut commands = device.commands();
        let wide = commands.dispatch(&narrow).write(0, &out).threads(128, 65);
        assert!(matches!(wide, Err(Error::Launch { .. })), "{wide:?}");
        commands.dispatch(&narrow).write(0, &out).threads(128, 64)?;
        commands.commit()?.wait()?;
        assert_eq!(out.to_vec::<u32>()?, (0..128).collect::<Vec<_>>());
        Ok(())
    });
}

#[test]
fn arguments_are_known_and_must_be_bound_in_full() {
    on_every_target(|device, library| {
        let kernel = library.pipeline("needs_all")?;
        let mut kinds: Vec<_> = kernel
            .arguments()
            .iter()
            .map(|a| (&*a.name, a.kind))
            .collect();
        kinds.sort_by_key(|(name, _)| name.to_owned());
        assert_eq!(
            kinds,
            [
                ("out", ArgumentKind::Buffer(1)),
                ("wide", ArgumentKind::Buffer(0))
            ]
        );
        let out = device.buffer(4, StorageMode::Shared)?;
        let mut commands = device.commands();
        let refused = [
            commands.dispatch(&kernel).write(1, &out).threads(1, 1),
            commands
                .dispatch(&kernel)
                .set_bytes(0, &[0; 32])
                .write(1, &out)
                .threads(1, 1),
        ];
        for result in refused {
            match result {
                Err(Error::Binding {
                    kernel, argument, ..
                }) => {
                    assert_eq!((&*kernel, &*argument), ("needs_all", "wide"));
                }
                other => panic!("{other:?}"),
            }
        }
        commands
            .dispatch(&kernel)
            .bytes(0, &[7.5_f32; 12])
            .write(1, &out)
            .threads(1, 1)?;
        commands.commit()?.wait()?;
        assert_eq!(out.to_vec::<f32>()?, [7.5]);
        Ok(())
    });
}

#[test]
fn an_empty_grid_runs_nothing_and_empty_buffers_may_be_bound() {
    on_every_target(|device, library| {
        let add = library.pipeline("add_one")?;
        let empty = device.buffer(0, StorageMode::Shared)?;
        let out = device.buffer(0, StorageMode::Shared)?;
        let mut commands = device.commands();
        commands
            .dispatch(&add)
            .read(0, &empty)
            .write(1, &out)
            .threads(0, 32)?;
        commands.commit()?.wait()?;
        assert!(out.to_vec::<f32>()?.is_empty());
        Ok(())
    });
}

#[test]
fn macros_reach_the_source() {
    for target in targets() {
        for (flag, expected) in [(true, [42, 1]), (false, [42, 2])] {
            let mut options = options();
            if flag {
                options.defines.push(("FLAG".to_owned(), "1".to_owned()));
            }
            let library = compile(&target.device, SOURCE.text, &options).unwrap();
            assert_eq!(run_defined(&target.device, &library), Ok(expected.to_vec()));
        }
    }
}

#[test]
fn every_math_mode_runs_the_same_kernels() {
    for target in targets() {
        for math_mode in [MathMode::Safe, MathMode::Relaxed, MathMode::Fast] {
            let options = CompileOptions {
                math_mode,
                ..options()
            };
            let library = compile(&target.device, SOURCE.text, &options).unwrap();
            assert_eq!(run_defined(&target.device, &library), Ok(vec![42, 2]));
            let double = library.pipeline("double_in_place").unwrap();
            let data = [0.5_f32, -3.0, 1e10];
            let buffer = target
                .device
                .buffer_with_data(&data, StorageMode::Shared)
                .unwrap();
            let mut commands = target.device.commands();
            commands
                .dispatch(&double)
                .read_write(0, &buffer)
                .threads(3, 32)
                .unwrap();
            commands.commit().unwrap().wait().unwrap();
            assert_eq!(buffer.to_vec::<f32>(), Ok(vec![1.0, -6.0, 2e10]));
        }
    }
}

fn run_defined(device: &Device, library: &Library) -> Result<Vec<i32>> {
    let out = device.buffer(8, StorageMode::Shared)?;
    let kernel = library.pipeline("defined")?;
    let mut commands = device.commands();
    commands.dispatch(&kernel).write(0, &out).threads(1, 1)?;
    commands.commit()?.wait()?;
    out.to_vec()
}
