use crate::harness::Desk;
#[cfg(target_os = "linux")]
use crate::harness::command;

#[test]
fn every_device_is_listed_with_its_properties() {
    let said = Desk::new().bessemer("devices --json").exits(0);
    let json = said.json();
    let devices = json["devices"].as_array().unwrap();
    assert!(devices.iter().any(|d| d["kind"] == "noop"));
    for device in devices {
        for property in [
            "name",
            "kind",
            "family",
            "unified_memory",
            "recommended_working_set",
            "max_threads_per_threadgroup",
            "max_threadgroup_memory",
            "simd_width",
            "max_buffer_length",
            "registry_id",
        ] {
            assert!(!device[property].is_null(), "{property} of {device}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn on_linux_it_says_that_there_is_no_gpu_and_what_there_is() {
    let said = Desk::new().bessemer("devices").exits(0);
    assert!(said.stdout.contains("no Metal GPU"), "{said:?}");
    assert!(said.stdout.contains("software Metal"), "{said:?}");
    assert!(said.stdout.contains("compiler"), "{said:?}");
    assert!(said.stdout.contains("cache"), "{said:?}");
    let json = Desk::new().bessemer("devices --json").exits(0).json();
    assert_eq!(json["metal_gpu"], false);
    assert_eq!(json["devices"][0]["kind"], "software");
    assert_eq!(json["devices"][0]["default"], true);
}

#[cfg(target_os = "linux")]
#[test]
fn without_clang_it_says_what_to_install_and_still_lists_devices() {
    let mut command = command();
    command.env("PATH", "/nowhere").env_remove("BESSEMER_CLANG");
    let output = command.arg("devices").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("install"), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_mistake_in_the_environment_is_named() {
    let mut command = command();
    command.env("BESSEMER_SOFT_FAMILY", "apple99");
    let output = command.arg("devices").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains("BESSEMER_SOFT_FAMILY"), "{text}");
    assert!(text.contains("apple99"), "{text}");
}
