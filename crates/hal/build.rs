//! Hashes the source of the kernel compiler: cached images are used only by the version that compiled them.

use std::fs;
use std::path::{Path, PathBuf};

/// Sources that determine the contents of an image. The shim is hashed at run time, together with its files.
const SOURCES: [&str; 7] = [
    "src/msl.rs",
    "src/msl",
    "src/soft/compile.rs",
    "src/soft/compile",
    "src/soft/ir.rs",
    "src/soft/ir",
    "src/soft/plan.rs",
];

fn main() {
    let mut files = Vec::new();
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
        collect(Path::new(source), &mut files);
    }
    files.sort();
    // FNV-1a: this only has to differ when a file does.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for file in files {
        for byte in fs::read(&file).unwrap_or_default() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    println!("cargo::rustc-env=SOFT_CODEGEN={hash:016x}");
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    if let Ok(listing) = fs::read_dir(path) {
        for item in listing.flatten() {
            collect(&item.path(), files);
        }
    } else {
        files.push(path.to_owned());
    }
}
