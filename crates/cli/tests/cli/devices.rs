use crate::harness::{TestDir, command, example};

#[test]
fn every_device_is_listed_with_its_properties() {
    let result = TestDir::new().bessemer("devices --json").exits(0);
    let json = result.json();
    let devices = json["devices"].as_array().unwrap();
    assert!(devices.iter().any(|d| d["kind"] == "noop"));
    for device in devices {
        let number = |property: &str| {
            let value = device[property].as_u64();
            value.unwrap_or_else(|| panic!("{property} of {device}"))
        };
        assert!(device["name"].as_str().unwrap().len() > 3, "{device}");
        assert!(device["family"].as_str().unwrap().len() > 3, "{device}");
        assert!(device["unified_memory"].is_boolean(), "{device}");
        // Minimum of every supported GPU.
        assert!(number("recommended_working_set") >= 256 << 20, "{device}");
        assert!(number("max_buffer_length") >= 256 << 20, "{device}");
        assert_eq!(number("max_threads_per_threadgroup"), 1024);
        assert_eq!(device["max_threadgroup_size"][0], 1024);
        assert_eq!(number("max_threadgroup_memory"), 32 << 10);
        assert_eq!(number("max_buffers"), 31);
        assert_eq!(number("max_inline_bytes"), 4096);
        let width = number("simd_width");
        assert_eq!(width, 32, "{device}");
        let kernel = &device["add_kernel"];
        assert_eq!(kernel["thread_execution_width"], width, "{device}");
        let threads = kernel["max_total_threads_per_threadgroup"]
            .as_u64()
            .unwrap();
        assert!((32..=1024).contains(&threads), "{device}");
        assert_eq!(kernel["static_threadgroup_memory"], 0, "{device}");
    }
    let ids: Vec<_> = devices
        .iter()
        .map(|d| d["registry_id"].as_u64().unwrap())
        .collect();
    assert_eq!(ids.len(), devices.len());
    let defaults = devices.iter().filter(|d| d["default"] == true).count();
    assert_eq!(defaults, 1, "{json}");
}

#[cfg(target_os = "linux")]
#[test]
fn linux_reports_no_gpu_and_lists_the_software_device() {
    let result = TestDir::new().bessemer("devices").exits(0);
    let lines: Vec<_> = result.stdout.lines().collect();
    assert_eq!(
        lines[0],
        "There is no Metal GPU here: this is Linux, and Metal needs macOS or iOS."
    );
    let value = |name: &str| {
        let found = lines
            .iter()
            .find_map(|line| line.trim_start().strip_prefix(name));
        found.unwrap_or_else(|| panic!("{name}: {result:?}")).trim()
    };
    assert!(
        lines
            .iter()
            .any(|l| l.starts_with("Bessemer software Metal (")),
        "{result:?}"
    );
    assert!(value("compiler ").contains("clang"), "{result:?}");
    assert!(value("cache ").starts_with('/'), "{result:?}");
    let threads = value("threads per threadgroup ");
    assert!(threads.starts_with("1024 (1024×"), "{threads}");
    let kernel = value("limits of a kernel (add)");
    assert!(
        kernel.contains("threads per threadgroup, SIMD width 32"),
        "{kernel}"
    );
    let json = TestDir::new().bessemer("devices --json").exits(0).json();
    assert_eq!(json["metal_gpu"], false);
    assert_eq!(json["devices"][0]["kind"], "software");
    assert_eq!(json["devices"][0]["default"], true);
}

#[cfg(target_os = "linux")]
#[test]
fn without_clang_devices_are_listed_with_install_instructions() {
    let cache = tempfile::tempdir().unwrap();
    let mut command = command();
    command.env("PATH", "/nowhere").env_remove("BESSEMER_CLANG");
    command.env("BESSEMER_CACHE_DIR", cache.path());
    let output = command.arg("devices").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("apt-get install clang-19"), "{text}");
    assert!(text.contains("Bessemer software Metal ("), "{text}");
    let kernels = text
        .lines()
        .filter(|l| l.contains("limits of a kernel"))
        .count();
    assert_eq!(
        kernels, 1,
        "only the recording device compiles without one: {text}"
    );
}

#[test]
fn an_invalid_environment_variable_is_named_and_is_wrong_usage() {
    let mut cases = vec![
        ("devices", "BESSEMER_THREADS", "0"),
        ("models", "BESSEMER_DEVICE", "gpu"),
    ];
    if cfg!(target_os = "linux") {
        cases.push(("devices", "BESSEMER_SOFT_FAMILY", "apple99"));
        cases.push(("msl check ADD", "BESSEMER_SOFT_OPTIMIZE", "2"));
    }
    for (line, name, value) in cases {
        let mut command = command();
        let add = example("add.metal");
        command.args(
            line.split(' ')
                .map(|word| if word == "ADD" { &*add } else { word }),
        );
        let output = command.env(name, value).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {output:?}");
        assert!(
            text.contains(&format!("{name} is `{value}`; allowed: ")),
            "{line}: {text}"
        );
    }
}
