//! What the fuzz targets share: files that readers open by their path, and a limit on memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory that a target may hold at a time. libFuzzer looks at what is resident once a second: it misses what is freed
/// sooner and what is reserved and never written.
const MAX_LIVE_BYTES: usize = 1 << 30;

/// The system's memory, up to the limit. Beyond it there is none: that ends the process unless the caller can do without.
struct Limited;

#[global_allocator]
static LIMITED: Limited = Limited;
static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: All memory is the system allocator's, asked for and given back with the layout that the caller gave.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = layout.size();
        if LIVE_BYTES.fetch_add(size, Ordering::Relaxed) + size > MAX_LIVE_BYTES {
            LIVE_BYTES.fetch_sub(size, Ordering::Relaxed);
            return std::ptr::null_mut();
        }
        // SAFETY: The caller keeps what this function asks for, which is what the system's asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: The memory is the system's, and of this layout: see `alloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}

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
