//! What the fuzz targets share: files that readers open by their path.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The directory of this process, made once.
fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let name = format!("bessemer-fuzz-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).expect("a directory for the inputs");
        directory
    })
}

/// Writes a file that no other process uses, and returns its path.
pub fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = directory().join(name);
    std::fs::write(&path, bytes).expect("room for the input");
    path
}
