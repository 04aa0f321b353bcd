//! Failing compilers, invalid sources and corrupt caches.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use bessemer_hal::soft::{self, Mode, SoftOptions};
use bessemer_hal::{CompileOptions, Device, Error, FunctionConstants, MathMode};

use crate::setup::{ADD, check_add, clang, device, fast, library, options, try_library};

/// Returns line, column and text of the first diagnostic.
fn first_diagnostic(error: Error) -> (u32, u32, String) {
    let Error::Compile { diagnostics, .. } = error else {
        panic!("{error:?}");
    };
    let first = diagnostics.first().unwrap();
    assert_eq!(first.file, "test.metal");
    (first.line, first.column, first.message.clone())
}

fn toolchain(error: Error) -> String {
    match error {
        Error::Toolchain { message } => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_error_in_the_source_has_the_users_line_and_column() {
    struct Case {
        source: &'static str,
        location: (u32, u32),
        message: &'static str,
    }
    let cases = [
        Case {
            source: "#include <metal_stdlib>\nusing namespace metal;\nkernel void k(device float* a [[buffer(0)]], uint i [[thread_position_in_grid]]) {\n  a[i]   =   missing;\n}\n",
            location: (4, 14),
            message: "use of undeclared identifier 'missing'",
        },
        Case {
            source: "#include <metal_stdlib>\nusing namespace metal;\nfloat2 f(float3 v) {\n  return v;\n}\n",
            location: (4, 10),
            message: "'float3'",
        },
        Case {
            source: "#include <metal_stdlib>\nusing namespace metal;\n\n#error not today\n",
            location: (4, 2),
            message: "not today",
        },
        Case {
            source: "#include <metal_stdlib>\n#include \"not_there.h\"\n",
            location: (2, 10),
            message: "not_there.h",
        },
    ];
    let device = fast();
    for case in cases {
        let error = try_library(&device, case.source).unwrap_err();
        let text = error.to_string();
        let (line, column, message) = first_diagnostic(error);
        assert!(message.contains(case.message), "{text}");
        assert_eq!((line, column), case.location, "{text}");
    }
}

#[test]
fn an_error_inside_a_template_is_reported_when_its_kernel_is_requested() {
    let source = "#include <metal_stdlib>\nusing namespace metal;\n\
                  template <typename T> kernel void k(device T* a [[buffer(0)]]) {\n  a[0] = T::nothing;\n}\n\
                  template [[host_name(\"k_float\")]] [[kernel]] void k<float>(device float*);\n";
    let device = fast();
    let error = library(&device, source).pipeline("k_float").unwrap_err();
    let text = error.to_string();
    let (line, _, message) = first_diagnostic(error);
    assert_eq!(line, 4, "{text}");
    assert!(message.contains("float"), "{text}");
    assert!(text.contains("  a[0] = T::nothing;\n"), "{text}");
}

#[test]
fn a_missing_compiler_is_an_error_only_if_a_library_must_be_compiled() {
    let device = soft::device(SoftOptions {
        clang: Some("/nowhere/clang++".into()),
        ..options(Mode::Fast)
    })
    .unwrap();
    let message = toolchain(try_library(&device, ADD).unwrap_err());
    assert!(message.contains("apt-get install clang-19"), "{message}");
}

/// A compiler that behaves like clang until `condition` (a shell test over its arguments) holds, then runs `instead`.
pub(crate) fn broken_compiler(dir: &Path, condition: &str, instead: &str) -> PathBuf {
    let path = dir.join("clang++");
    let text = format!(
        "#!/bin/sh\necho run >> {log}\ncase \"$*\" in {condition}) {instead};; esac\nexec {clang} \"$@\"\n",
        log = dir.join("runs").display(),
        clang = clang().display(),
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn runs(dir: &Path) -> usize {
    fs::read_to_string(dir.join("runs"))
        .unwrap_or_default()
        .lines()
        .count()
}

#[test]
fn a_compiler_killed_at_any_step_is_an_error_and_a_retry_succeeds() {
    // The check of a library with one kernel is its compilation.
    let two = format!("{ADD}\nkernel void other() {{}}\n");
    for (condition, step, source) in [
        ("*-E*", "preprocessing", ADD),
        ("*-fsyntax-only*", "checking", &two),
        ("*-emit-llvm*", "compiling", ADD),
        ("*-emit-llvm*", "compiling one of two", &two),
        ("*-shared*", "linking", ADD),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let marker = dir.path().join("armed");
        fs::write(&marker, "").unwrap();
        let kill = format!("[ -e {0} ] && rm {0} && kill -9 $$", marker.display());
        let device = soft::device(SoftOptions {
            clang: Some(broken_compiler(dir.path(), condition, &kill)),
            cache_dir: Some(dir.path().join("cache")),
            ..SoftOptions::default()
        })
        .unwrap();
        let compile = |device: &Device| {
            try_library(device, source).and_then(|l| l.pipeline("add").map(|_| ()))
        };
        let message = toolchain(compile(&device).unwrap_err());
        assert!(message.contains("killed by signal 9"), "{step}: {message}");
        compile(&device).unwrap_or_else(|error| panic!("{step}: {error}"));
        check_add(&device);
    }
}

#[test]
fn a_compiler_that_erases_address_spaces_is_rejected() {
    let erase = "-Dopencl_global_device=unused -Dopencl_global_host=unused -Dopencl_local=unused";
    let no_mode = "s/ -Xclang -fsycl-is-device / /";
    let clang = clang().display().to_string();
    for script in [
        format!("exec {clang} {erase} \"$@\""),
        format!("exec {clang} $(echo \" $* \" | sed '{no_mode}')"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("clang++");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let device = soft::device(SoftOptions {
            clang: Some(path),
            cache_dir: Some(dir.path().join("cache")),
            ..options(Mode::Fast)
        })
        .unwrap();
        let message = try_library(&device, ADD).map(|_| ()).map_err(toolchain);
        let message = message.expect_err(&script);
        assert!(
            message.contains("cannot precompile Metal's headers"),
            "{script}: {message}"
        );
    }
}

#[test]
fn kernels_are_not_optimised_on_request_and_in_check_and_fuzz_mode() {
    let dir = tempfile::tempdir().unwrap();
    let marker = dir.path().join("quick");
    let note = format!("touch {}", marker.display());
    for (mode, optimize, quick) in [
        (Mode::Fast, true, false),
        (Mode::Fast, false, true),
        (Mode::Check, true, true),
        (Mode::Fuzz, true, true),
    ] {
        let device = soft::device(SoftOptions {
            optimize,
            clang: Some(broken_compiler(dir.path(), "*-disable-llvm-passes*", &note)),
            cache_dir: Some(dir.path().join("cache")),
            ..SoftOptions::in_mode(mode)
        })
        .unwrap();
        check_add(&device);
        assert_eq!(marker.exists(), quick, "{mode}, optimize: {optimize}");
        let _ = fs::remove_file(&marker);
    }
}

#[test]
fn a_warm_start_spawns_no_process_and_takes_milliseconds() {
    let dir = tempfile::tempdir().unwrap();
    let options = SoftOptions {
        clang: Some(broken_compiler(dir.path(), "nothing", "true")),
        cache_dir: Some(dir.path().join("cache")),
        ..SoftOptions::default()
    };
    let start = Instant::now();
    check_add(&soft::device(options.clone()).unwrap());
    let with_headers = start.elapsed();
    let cold = {
        let device = soft::device(options.clone()).unwrap();
        let start = Instant::now();
        let other = ADD.replace("a[i] + b[i]", "a[i] - b[i]");
        library(&device, &other).pipeline("add").unwrap();
        start.elapsed()
    };
    let before = runs(dir.path());
    assert!(before > 3);
    let mut warm = Vec::new();
    for _ in 0..20 {
        let device = soft::device(options.clone()).unwrap();
        let start = Instant::now();
        library(&device, ADD).pipeline("add").unwrap();
        warm.push(start.elapsed());
    }
    check_add(&soft::device(options).unwrap());
    assert_eq!(runs(dir.path()), before);
    warm.sort();
    println!("first {with_headers:?}, cold {cold:?}, warm {:?}", warm[10]);
    assert!(warm[0].as_millis() < 5, "{warm:?}");
}

#[test]
fn a_library_is_recompiled_when_its_includes_change() {
    let dir = tempfile::tempdir().unwrap();
    let header = dir.path().join("scale.h");
    let source = "#include <metal_stdlib>\n#include \"scale.h\"\n\
                  kernel void k(device float* a [[buffer(0)]]) { a[0] = SCALE; }\n";
    let device = fast();
    for value in [2.0_f32, 3.0] {
        fs::write(&header, format!("#define SCALE {value:?}\n")).unwrap();
        let options = CompileOptions {
            include_dirs: vec![dir.path().to_owned()],
            ..CompileOptions::labelled("test.metal")
        };
        // SAFETY: writes one element of its buffer.
        let library = unsafe { device.library(source, &options) }.unwrap();
        let pipeline = library.pipeline("k").unwrap();
        let out = crate::setup::empty::<f32>(&device, 1);
        let mut commands = device.commands();
        commands
            .dispatch(&pipeline)
            .read_write(0, &out)
            .threads(1, 1)
            .unwrap();
        commands.commit().unwrap().wait().unwrap();
        assert_eq!(out.to_vec::<f32>().unwrap(), [value]);
    }
}

#[test]
fn an_error_in_an_included_file_names_that_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("part.h"),
        "\nfloat f() { return   wrong; }\n",
    )
    .unwrap();
    let options = CompileOptions {
        include_dirs: vec![dir.path().to_owned()],
        ..CompileOptions::labelled("test.metal")
    };
    // SAFETY: does not compile.
    let error = unsafe { fast().library("#include \"part.h\"\n", &options) }.unwrap_err();
    let Error::Compile { diagnostics, .. } = &error else {
        panic!("{error:?}");
    };
    assert!(diagnostics[0].file.ends_with("part.h"), "{error}");
    assert_eq!(
        (diagnostics[0].line, diagnostics[0].column),
        (2, 22),
        "{error}"
    );
}

#[test]
fn defines_and_math_modes_reach_the_compiler() {
    let source = "kernel void k(device int* a [[buffer(0)]]) {\n\
                  a[0] = VALUE;\n\
                  #ifdef __FAST_MATH__\n a[1] = 1;\n #else\n a[1] = 0;\n #endif\n a[2] = __METAL_VERSION__ >= 300; }\n";
    let device = fast();
    for (mode, fast_math) in [
        (MathMode::Safe, 0),
        (MathMode::Relaxed, 0),
        (MathMode::Fast, 1),
    ] {
        let options = CompileOptions {
            math_mode: mode,
            defines: vec![("VALUE".into(), "41 + 1".into())],
            ..CompileOptions::labelled("test.metal")
        };
        // SAFETY: writes three elements of its buffer.
        let library = unsafe { device.library(source, &options) }.unwrap();
        let pipeline = library.pipeline("k").unwrap();
        let out = crate::setup::empty::<i32>(&device, 3);
        let mut commands = device.commands();
        commands
            .dispatch(&pipeline)
            .read_write(0, &out)
            .threads(1, 1)
            .unwrap();
        commands.commit().unwrap().wait().unwrap();
        assert_eq!(out.to_vec::<i32>().unwrap(), [42, fast_math, 1], "{mode:?}");
    }
}

#[test]
fn an_unwritable_cache_does_not_fail_a_compilation() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    // Permissions do not stop root from writing to a directory, so there is a case for each kind of failure.
    let read_only = dir.path().join("read_only");
    fs::create_dir(&read_only).unwrap();
    fs::set_permissions(&read_only, fs::Permissions::from_mode(0o555)).unwrap();
    for cache_dir in [
        Some(file.join("cache")),
        Some(read_only),
        Some("/proc/cache".into()),
        None,
    ] {
        let device = soft::device(SoftOptions {
            cache_dir,
            ..SoftOptions::default()
        })
        .unwrap();
        check_add(&device);
    }
}

#[test]
fn a_disk_that_fills_up_during_a_compilation_does_not_fail_it() {
    // clang's error if the disk is full.
    let full =
        "echo 'LLVM ERROR: IO failure on output stream: No space left on device' >&2; exit 1";
    for (step, full_dir) in [("c++-header", "cache"), ("-shared", "temporary")] {
        let dir = tempfile::tempdir().unwrap();
        let watched = match full_dir {
            "cache" => dir.path().join("cache"),
            _ => std::env::temp_dir().join("bessemer-tmp"),
        };
        let condition = format!("*{step}*{}*", watched.display());
        let device = soft::device(SoftOptions {
            clang: Some(broken_compiler(dir.path(), &condition, full)),
            cache_dir: Some(dir.path().join("cache")),
            ..SoftOptions::default()
        })
        .unwrap();
        check_add(&device);
    }
}

/// Returns every file below `dir`.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut unvisited = vec![dir.to_owned()];
    while let Some(dir) = unvisited.pop() {
        for item in fs::read_dir(dir).unwrap().flatten() {
            if item.path().is_dir() {
                unvisited.push(item.path());
            } else {
                found.push(item.path());
            }
        }
    }
    found
}

#[test]
fn corrupt_entries_of_any_kind_are_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let options = SoftOptions {
        cache_dir: Some(dir.path().join("cache")),
        ..SoftOptions::default()
    };
    check_add(&soft::device(options.clone()).unwrap());
    let files = files_below(dir.path());
    for name in ["lib-", "kernel-", "pch-", "shim.h"] {
        let is = |file: &&PathBuf| {
            file.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with(name)
        };
        assert!(files.iter().any(|f| is(&f)), "{name} in {files:?}");
    }
    let entry = |name: &str| {
        let is = |file: &&PathBuf| {
            file.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with(name)
        };
        files.iter().find(is).unwrap().clone()
    };
    // Kernels and libraries: truncated, changed, emptied.
    for name in ["lib-", "kernel-"] {
        let path = entry(name);
        let whole = fs::read(&path).unwrap();
        let mut changed = whole.clone();
        changed[whole.len() / 2] ^= 1;
        for corrupt in [&whole[..whole.len() / 2], &changed, b""] {
            fs::write(&path, corrupt).unwrap();
            check_add(&soft::device(options.clone()).unwrap());
            assert_eq!(fs::read(&path).unwrap().len(), whole.len(), "{name}");
        }
    }
    // Headers, as text and precompiled, which are only used when a kernel is compiled.
    for (name, corrupt) in [
        ("pch-", &b"CPCHgarbage"[..]),
        ("pch-", b""),
        ("shim.h", b"#error"),
    ] {
        fs::write(entry(name), corrupt).unwrap();
        for file in &files {
            let file_name = file.file_name().unwrap().to_string_lossy();
            if file_name.starts_with("kernel-") || file_name.starts_with("lib-") {
                let _ = fs::remove_file(file);
            }
        }
        check_add(&soft::device(options.clone()).unwrap());
    }
}

#[test]
fn many_devices_compile_the_same_kernel_concurrently() {
    let dir = tempfile::tempdir().unwrap();
    let options = SoftOptions {
        cache_dir: Some(dir.path().join("cache")),
        ..SoftOptions::default()
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| check_add(&soft::device(options.clone()).unwrap()));
        }
    });
    let left: Vec<_> = files_below(dir.path())
        .into_iter()
        .filter(|p| p.file_name().unwrap().to_string_lossy().contains("tmp-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn many_processes_compile_the_same_kernel_concurrently() {
    const CACHE_VARIABLE: &str = "BESSEMER_TEST_CACHE";
    if let Some(cache) = std::env::var_os(CACHE_VARIABLE) {
        check_add(
            &soft::device(SoftOptions {
                cache_dir: Some(cache.into()),
                ..SoftOptions::default()
            })
            .unwrap(),
        );
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let children: Vec<_> = (0..3)
        .map(|_| {
            std::process::Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "compiler::many_processes_compile_the_same_kernel_concurrently",
                ])
                .env(CACHE_VARIABLE, dir.path())
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn invalid_function_constants_are_typed_errors() {
    let source = "#include <metal_stdlib>\nusing namespace metal;\n\
                  constant uint count [[function_constant(4)]];\n\
                  constant uint other [[function_constant(5)]];\n\
                  constant uint maybe [[function_constant(6)]];\n\
                  constant uint chosen = is_function_constant_defined(maybe) ? maybe : 9;\n\
                  kernel void k(device uint* a [[buffer(0)]]) { a[0] = count + chosen; }\n\
                  kernel void l(device uint* a [[buffer(0)]]) { a[0] = other; }\n";
    let device = fast();
    let library = library(&device, source);
    let make = |constants: FunctionConstants| {
        let function = library.function_with("k", constants).unwrap();
        function.pipeline().map(|_| ())
    };
    let message = |outcome: bessemer_hal::Result<()>| match outcome {
        Err(Error::Binding {
            kernel,
            argument,
            message,
        }) => {
            assert_eq!(kernel, "k");
            format!("{argument}: {message}")
        }
        other => panic!("{other:?}"),
    };
    let good = FunctionConstants::new().with(4, 3_u32);
    make(good.clone()).unwrap();
    make(good.clone().with(6, 1_u32)).unwrap();
    let wrong = message(make(FunctionConstants::new().with(4, 3_i32)));
    assert!(wrong.contains("`count` is of type uint"), "{wrong}");
    assert!(wrong.contains("the given value is of type int"), "{wrong}");
    let unknown = message(make(good.with(7, 1_u32)));
    assert!(unknown.contains("declares no such constant"), "{unknown}");
    let unset = message(make(FunctionConstants::new()));
    assert!(unset.contains("4 (`count`, uint)"), "{unset}");
    assert!(!unset.contains("other"), "{unset}");
}

#[test]
fn too_much_threadgroup_memory_is_rejected_with_both_sizes() {
    let source = "#include <metal_stdlib>\nusing namespace metal;\n\
                  kernel void k(device float* a [[buffer(0)]], uint t [[thread_index_in_threadgroup]]) {\n\
                  threadgroup float big[9000];\n big[t] = a[t];\n\
                  threadgroup_barrier(mem_flags::mem_threadgroup);\n a[t] = big[8999 - t];\n}\n";
    for mode in [Mode::Fast, Mode::Check] {
        let error = library(&device(mode), source).pipeline("k").unwrap_err();
        let Error::Launch { kernel, message } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(kernel, "k");
        assert!(
            message.contains("36000") && message.contains("32768"),
            "{message}"
        );
    }
}
