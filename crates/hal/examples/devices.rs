//! Lists the Metal devices of this system with their properties.
//!
//! ```sh
//! cargo run -p bessemer-hal --example devices
//! ```

use std::io::{self, Write};

use bessemer_hal::{Device, Family, noop};

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for device in &devices(&mut out)? {
        describe(&mut out, device)?;
    }
    describe(&mut out, &noop::device(Family::Apple7))
}

#[cfg(target_vendor = "apple")]
fn devices(out: &mut impl Write) -> io::Result<Vec<Device>> {
    let devices = bessemer_hal::apple::all();
    if devices.is_empty() {
        writeln!(out, "The system offers this process no Metal GPU.")?;
    }
    Ok(devices)
}

#[cfg(target_os = "linux")]
fn devices(out: &mut impl Write) -> io::Result<Vec<Device>> {
    use bessemer_hal::soft::{self, SoftOptions};
    writeln!(out, "There is no Metal GPU on this system.")?;
    match SoftOptions::from_env().and_then(soft::device) {
        Ok(device) => Ok(vec![device]),
        Err(error) => {
            writeln!(out, "{error}")?;
            Ok(Vec::new())
        }
    }
}

#[cfg(not(any(target_vendor = "apple", target_os = "linux")))]
fn devices(out: &mut impl Write) -> io::Result<Vec<Device>> {
    writeln!(out, "There is no Metal GPU on this system.")?;
    Ok(Vec::new())
}

fn describe(out: &mut impl Write, device: &Device) -> io::Result<()> {
    let info = device.info();
    let limits = &info.limits;
    let gib = |bytes: usize| bytes as f64 / f64::from(1 << 30);
    writeln!(out, "{} ({}, {})", info.name, info.kind, info.family)?;
    writeln!(out, "  registry id                {}", info.registry_id)?;
    writeln!(out, "  unified memory             {}", info.unified_memory)?;
    writeln!(
        out,
        "  recommended working set    {:.1} GiB",
        gib(info.recommended_working_set)
    )?;
    writeln!(
        out,
        "  longest buffer             {:.1} GiB",
        gib(limits.max_buffer_length)
    )?;
    writeln!(
        out,
        "  threads per threadgroup    {} ({})",
        limits.max_total_threads_per_threadgroup, limits.max_threads_per_threadgroup
    )?;
    writeln!(
        out,
        "  threadgroup memory         {} KiB",
        limits.max_threadgroup_memory / 1024
    )?;
    writeln!(out, "  SIMD width                 {}", limits.simd_width)
}
