//! `bessemer devices`: what can run kernels here.

use crate::args::DevicesArgs;
use crate::failure::Outcome;
use crate::host::{self, Inventory, Listed};
use crate::terminal::{self, Out, bytes, style};
use anyhow::Result;
use bessemer_hal::{DeviceInfo, DeviceKind};
use serde_json::{Value, json};
use std::io::Write;

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
        let mark = if listed.is_default { " (default)" } else { "" };
        writeln!(out, "{bold}{}{bold:#}{mark}", listed.device.name())?;
        let rows = properties(listed.device.info());
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

fn properties(info: &DeviceInfo) -> Vec<(&'static str, String)> {
    let yes_no = |value: bool| if value { "yes" } else { "no" }.to_owned();
    let limits = &info.limits;
    vec![
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
    ]
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
    let limits = &info.limits;
    let mut value = json!({
        "name": info.name,
        "kind": info.kind.to_string(),
        "default": listed.is_default,
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
    for (name, detail) in &listed.details {
        value[name.replace(' ', "_")] = detail.clone().into();
    }
    value
}
