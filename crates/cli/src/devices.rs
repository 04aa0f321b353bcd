//! `bessemer devices`: the devices of this machine.

use std::io::Write;

use anyhow::Result;
use bessemer_compat::minitensor::MetalBackend;
use bessemer_hal::{Device, DeviceInfo, DeviceKind, Pipeline};
use serde_json::{Value, json};

use crate::args::DevicesArgs;
use crate::failure::Outcome;
use crate::host::{self, Inventory, Listed};
use crate::terminal::{self, Out, bytes, style};

/// Runs the command.
pub(crate) fn run(args: &DevicesArgs, out: &mut Out) -> Result<Outcome> {
    let inventory = host::inventory()?;
    if args.json {
        terminal::write_json(out, &to_json(&inventory))?;
    } else {
        write_text(&inventory, out)?;
    }
    Ok(Outcome::Clean)
}

fn write_text(inventory: &Inventory, out: &mut impl Write) -> Result<()> {
    for note in &inventory.notes {
        writeln!(out, "{note}")?;
    }
    for (index, listed) in inventory.devices.iter().enumerate() {
        if index > 0 || !inventory.notes.is_empty() {
            writeln!(out)?;
        }
        let bold = style::STRONG;
        let mark = if listed.is_default {
            " (used by `msl` commands)"
        } else {
            ""
        };
        writeln!(out, "{bold}{}{bold:#}{mark}", listed.device.name())?;
        let mut rows = properties(listed.device.info());
        if let Some(kernel) = add_kernel(&listed.device) {
            rows.push(("limits of a kernel (add)", pipeline_text(&kernel)));
        }
        let details = listed.details.iter().map(|(n, v)| (*n, v.clone()));
        let rows: Vec<_> = rows.into_iter().chain(details).collect();
        let width = rows.iter().map(|(n, _)| n.len()).max().unwrap_or(0);
        for (name, value) in rows {
            let quiet = style::QUIET;
            writeln!(out, "  {quiet}{name:width$}{quiet:#}  {value}")?;
        }
    }
    out.flush()?;
    Ok(())
}

/// The pipeline of a simple kernel, whose limits may be below the device's; `None` if it cannot be compiled.
fn add_kernel(device: &Device) -> Option<Pipeline> {
    let backend = MetalBackend::on(&bessemer::Device::on(device.clone())).ok()?;
    backend.get_compute_pipeline("add_kernel")
}

fn pipeline_text(pipeline: &Pipeline) -> String {
    format!(
        "{} threads per threadgroup, SIMD width {}, {} of threadgroup memory",
        pipeline.max_total_threads_per_threadgroup(),
        pipeline.thread_execution_width(),
        bytes(pipeline.static_threadgroup_memory_length())
    )
}

fn properties(info: &DeviceInfo) -> Vec<(&'static str, String)> {
    let yes_no = |value: bool| if value { "yes" } else { "no" }.to_owned();
    let limits = &info.limits;
    let mut rows = vec![
        ("kind", info.kind.to_string()),
        ("family", info.family.to_string()),
        ("unified memory", yes_no(info.unified_memory)),
        ("working set", bytes(info.recommended_working_set)),
        ("longest buffer", bytes(limits.max_buffer_length)),
        (
            "threads per threadgroup",
            format!(
                "{} ({} at most)",
                limits.max_total_threads_per_threadgroup, limits.max_threads_per_threadgroup
            ),
        ),
        ("threadgroup memory", bytes(limits.max_threadgroup_memory)),
        ("SIMD width", limits.simd_width.to_string()),
        ("buffers per kernel", limits.max_buffers.to_string()),
        ("inline bytes", bytes(limits.max_inline_bytes)),
        ("headless", yes_no(info.headless)),
        ("low power", yes_no(info.low_power)),
        ("removable", yes_no(info.removable)),
        ("registry id", format!("{:#x}", info.registry_id)),
    ];
    if let Some(chip) = info.chip() {
        let bandwidth = format!("{} GB/s at least", chip.gigabytes_per_second);
        let [min, max] = chip.gpu_cores;
        rows.push(("memory bandwidth", bandwidth));
        rows.push(("GPU cores", format!("{min} to {max}")));
    }
    rows
}

fn to_json(inventory: &Inventory) -> Value {
    let gpu = |l: &&Listed| l.device.info().kind == DeviceKind::Apple;
    json!({
        "metal_gpu": inventory.devices.iter().find(gpu).is_some(),
        "notes": inventory.notes,
        "devices": inventory.devices.iter().map(device_json).collect::<Vec<_>>(),
    })
}

fn device_json(listed: &Listed) -> Value {
    let info = listed.device.info();
    let mut value = info_json(info);
    value["default"] = listed.is_default.into();
    if let Some(kernel) = add_kernel(&listed.device) {
        value["add_kernel"] = json!({
            "max_total_threads_per_threadgroup": kernel.max_total_threads_per_threadgroup(),
            "thread_execution_width": kernel.thread_execution_width(),
            "static_threadgroup_memory": kernel.static_threadgroup_memory_length(),
        });
    }
    for (name, detail) in &listed.details {
        value[name.replace(' ', "_")] = detail.clone().into();
    }
    value
}

fn info_json(info: &DeviceInfo) -> Value {
    let limits = &info.limits;
    let mut value = json!({
        "name": info.name,
        "kind": info.kind.to_string(),
        "family": info.family.name(),
        "unified_memory": info.unified_memory,
        "recommended_working_set": info.recommended_working_set,
        "max_buffer_length": limits.max_buffer_length,
        "max_threads_per_threadgroup": limits.max_total_threads_per_threadgroup,
        "max_threadgroup_size": limits.max_threads_per_threadgroup.dims(),
        "max_threadgroup_memory": limits.max_threadgroup_memory,
        "simd_width": limits.simd_width,
        "max_buffers": limits.max_buffers,
        "max_inline_bytes": limits.max_inline_bytes,
        "headless": info.headless,
        "low_power": info.low_power,
        "removable": info.removable,
        "registry_id": info.registry_id,
    });
    if let Some(chip) = info.chip() {
        value["memory_bandwidth_gb_per_s"] = chip.gigabytes_per_second.into();
        value["gpu_cores"] = json!(chip.gpu_cores);
    }
    value
}

#[cfg(test)]
mod tests {
    use bessemer_hal::{Family, noop};

    use super::*;

    #[test]
    fn bandwidth_and_cores_of_a_known_chip_are_shown() {
        let recording = noop::device(Family::Apple7);
        let shown = |info: &DeviceInfo, name: &str| {
            let rows = properties(info);
            rows.into_iter().find(|(n, _)| *n == name).map(|(_, v)| v)
        };
        let info = DeviceInfo {
            name: "Apple M1 Max".to_owned(),
            ..recording.info().clone()
        };
        let bandwidth = shown(&info, "memory bandwidth");
        assert_eq!(bandwidth.as_deref(), Some("400 GB/s at least"));
        assert_eq!(shown(&info, "GPU cores").as_deref(), Some("24 to 32"));
        assert_eq!(info_json(&info)["memory_bandwidth_gb_per_s"], 400.0);
        assert_eq!(info_json(&info)["gpu_cores"], json!([24, 32]));
        assert_eq!(shown(recording.info(), "memory bandwidth"), None);
        assert!(info_json(recording.info())["gpu_cores"].is_null());
    }
}
