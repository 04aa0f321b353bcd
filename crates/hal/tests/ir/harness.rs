//! Compiles C++ kernels through the pass and runs them.

use std::ffi::{CString, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bessemer_hal::soft::group::{
    self, KernelCode, Observer, OpFn, RegionFn, SmGroup, Strategy, Unobserved,
};
use bessemer_hal::soft::ir::{Options, Outcome, fission};
use bessemer_hal::soft::plan::KernelPlan;

/// The declarations of the shim, and some SIMD-group operations.
pub(crate) const PRELUDE: &str = r#"
typedef unsigned uint; typedef unsigned long ulong; typedef unsigned char uchar;
struct sm_group { void* buf[31]; void* tgmem[31]; void* arena;
  uint grid[3], tgs[3], ngroups[3], tgid[3], dims[3], nthreads; };
struct sm_rt { void (*access)(void*, uint, uint); };
extern "C" {
  __attribute__((convergent)) void sm_sync_tg(uint flags);
  __attribute__((convergent)) void sm_sync_sg(uint flags);
  __attribute__((const)) uint sm_lane(void);
  __attribute__((const)) const sm_group* sm_self(void);
  __attribute__((const)) void* sm_tgvar(uint id, ulong size, ulong align);
  const sm_rt* sm_rt_table;
}
namespace sm {
  typedef void (*simd_op)(const void* const* args, void* ret, uint mask);
  template<class R, class... A> __attribute__((convergent)) R sync_simd(simd_op op, A... a);
  template<class T> void op_sum(const void* const* a, void* r, uint m) {
    T s = 0;
    for (uint i = 0; i < 32; i++) if (m >> i & 1) s += ((const T*)a[0])[i];
    for (uint i = 0; i < 32; i++) if (m >> i & 1) ((T*)r)[i] = s;
  }
  template<class T> void op_max(const void* const* a, void* r, uint m) {
    T s = 0; bool any = false;
    for (uint i = 0; i < 32; i++) if (m >> i & 1) { T v = ((const T*)a[0])[i]; s = any && s > v ? s : v; any = true; }
    for (uint i = 0; i < 32; i++) if (m >> i & 1) ((T*)r)[i] = s;
  }
  template<class T> void op_shuffle(const void* const* a, void* r, uint m) {
    T t[32]; for (uint i = 0; i < 32; i++) t[i] = ((const T*)a[0])[i];
    for (uint i = 0; i < 32; i++) if (m >> i & 1) ((T*)r)[i] = t[((const uint*)a[1])[i] & 31];
  }
}
template<class T> inline T simd_sum(T v) { return sm::sync_simd<T, T>(&sm::op_sum<T>, v); }
template<class T> inline T simd_max(T v) { return sm::sync_simd<T, T>(&sm::op_max<T>, v); }
template<class T> inline T simd_shuffle(T v, uint l) { return sm::sync_simd<T, T, uint>(&sm::op_shuffle<T>, v, l); }
inline void barrier() { sm_sync_tg(2); }
template<uint ID, class T> inline T& tgvar() { return *(T*)sm_tgvar(ID, sizeof(T), alignof(T)); }
#define KERNEL extern "C" void sm_kernel(const sm_group* g, uint x, uint y, uint z, uint lane)
#define BUF(T, i) ((T*)g->buf[i])
"#;

/// A kernel ready to run.
pub(crate) struct Image {
    pub(crate) plan: KernelPlan,
    /// The module that the pass wrote.
    pub(crate) text: String,
    pub(crate) regions: Vec<RegionFn>,
    pub(crate) ops: Vec<OpFn>,
    handle: *mut c_void,
    _directory: tempfile::TempDir,
}

/// Returns a supported clang.
fn clang() -> String {
    let names = [
        "clang++-19",
        "clang++-20",
        "clang++-18",
        "clang++-17",
        "clang++",
    ];
    let works = |name: &&str| {
        Command::new(name)
            .arg("--version")
            .output()
            .is_ok_and(|o| o.status.success())
    };
    let found = names.iter().find(|name| works(name));
    found
        .expect("these tests need clang 17 to 20: install it with `apt-get install clang-19`")
        .to_string()
}

fn compile(arguments: &[&str], files: &[&Path]) {
    let output = Command::new(clang())
        .args(arguments)
        .args(files)
        .output()
        .expect("clang starts");
    assert!(
        output.status.success(),
        "clang {arguments:?}:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Returns the option for the instruction set that the software device targets.
fn march() -> String {
    format!("-march={}", bessemer_hal::soft::InstructionSet::native())
}

/// Compiles `source` to the IR that the device passes to the fission pass.
pub(crate) fn front_end_ir(source: &str, check: bool, directory: &Path) -> String {
    let cpp = directory.join("kernel.cpp");
    let ll = directory.join("kernel.ll");
    fs::write(
        &cpp,
        format!("{PRELUDE}\n#line 1 \"kernel.metal\"\n{source}"),
    )
    .expect("the directory is writable");
    let march = march();
    let mut arguments = vec![
        "-O1",
        "-fno-vectorize",
        "-fno-slp-vectorize",
        "-fno-unroll-loops",
        "-S",
        "-emit-llvm",
    ];
    arguments.extend([
        "-fno-exceptions",
        "-Xclang",
        "-fconvergent-functions",
        &march,
        "-ffp-contract=off",
        "-fno-math-errno",
        "-w",
        "-fPIC",
    ]);
    if check {
        arguments.extend(["-fsanitize=thread", "-g1"]);
    }
    let output = ll.to_str().expect("the path is text").to_owned();
    arguments.extend(["-o", &output]);
    compile(&arguments, &[&cpp]);
    fs::read_to_string(&ll).expect("clang wrote its output")
}

/// Runs the pass, with the rounds of inlining that it requests.
pub(crate) fn pass(text: String, check: bool, directory: &Path) -> (String, KernelPlan) {
    let mut text = text;
    for _ in 0..3 {
        match fission(&text, &Options { check }).expect("the pass splits the module") {
            Outcome::Done { text, plan } => return (text, plan),
            Outcome::Inline { text: marked } => {
                let (from, to) = (directory.join("marked.ll"), directory.join("inlined.ll"));
                fs::write(&from, marked).expect("the directory is writable");
                let output = to.to_str().expect("the path is text").to_owned();
                compile(
                    &["-x", "ir", "-O1", "-S", "-emit-llvm", "-o", &output],
                    &[&from],
                );
                text = fs::read_to_string(&to).expect("clang wrote its output");
            }
        }
    }
    panic!("the pass requests inlining after every round");
}

fn symbol(handle: *mut c_void, name: &str) -> *mut c_void {
    let name = CString::new(name).expect("a name without zero bytes");
    // SAFETY: the handle comes from dlopen and is open.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    assert!(!address.is_null(), "the image exports {name:?}");
    address
}

impl Image {
    pub(crate) fn new(source: &str) -> Self {
        Self::with_table(source, false, std::ptr::null())
    }

    /// Builds and loads an image and passes `table` to its `sm_init`.
    pub(crate) fn with_table(source: &str, check: bool, table: *const c_void) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let first = front_end_ir(source, check, directory.path());
        let (text, plan) = pass(first, check, directory.path());
        let ll: PathBuf = directory.path().join("regions.ll");
        let so = directory.path().join("image.so");
        fs::write(&ll, &text).expect("the directory is writable");
        let output = so.to_str().expect("the path is text").to_owned();
        let level = if check { "-O1" } else { "-O2" };
        let march = march();
        let flags = [
            "-x",
            "ir",
            level,
            &march,
            "-fPIC",
            "-shared",
            "-Wno-pass-failed",
            "-Wno-override-module",
        ];
        let mut arguments = flags.to_vec();
        arguments.extend(["-o", &output]);
        compile(&arguments, &[&ll]);
        let path = CString::new(output).expect("a path without zero bytes");
        // SAFETY: the image has no constructors.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "the image loads");
        let regions = symbol(handle, "sm_regions").cast::<RegionFn>();
        let mut ops = Vec::new();
        let count = plan
            .sites
            .iter()
            .filter(|s| !s.args.is_empty())
            .map(|s| s.op + 1)
            .max()
            .unwrap_or(0);
        if count > 0 {
            let table = symbol(handle, "sm_ops").cast::<OpFn>();
            // SAFETY: the table has an entry for every operation of the plan.
            ops = unsafe { std::slice::from_raw_parts(table, count as usize) }.to_vec();
        }
        // SAFETY: the table has an entry for every region of the plan.
        let regions =
            unsafe { std::slice::from_raw_parts(regions, plan.regions as usize) }.to_vec();
        type Init = unsafe extern "C" fn(*const c_void);
        // SAFETY: `sm_init` has this signature.
        let init = unsafe { std::mem::transmute::<*mut c_void, Init>(symbol(handle, "sm_init")) };
        // SAFETY: the table is what the image expects, or null for images that do not use it.
        unsafe { init(table) };
        Self {
            plan,
            text,
            regions,
            ops,
            handle,
            _directory: directory,
        }
    }

    /// Runs a grid of `groups` threadgroups of `dims` threads.
    pub(crate) fn run(
        &self,
        groups: [u32; 3],
        dims: [u32; 3],
        buffers: &mut [Vec<u32>],
        strategy: Strategy,
    ) {
        self.observe(groups, dims, buffers, strategy, &mut Unobserved);
    }

    pub(crate) fn observe(
        &self,
        groups: [u32; 3],
        dims: [u32; 3],
        buffers: &mut [Vec<u32>],
        strategy: Strategy,
        observer: &mut impl Observer,
    ) {
        let mut shared = vec![0u64; 4096];
        let mut arena = vec![0u64; self.plan.arena_bytes / 8 + 16];
        let mut context = vec![0u64; self.plan.context_bytes / 8 + 16];
        // The result must not depend on old contents.
        context.fill(0xdead_beef_dead_beef);
        let offset = context.as_ptr().align_offset(64);
        let mut group = SmGroup {
            tgs: dims,
            dims,
            ngroups: groups,
            ..SmGroup::default()
        };
        group.nthreads = dims.iter().product();
        for axis in 0..3 {
            group.grid[axis] = groups[axis] * dims[axis];
        }
        for (slot, buffer) in group.buf.iter_mut().zip(buffers.iter_mut()) {
            *slot = buffer.as_mut_ptr().cast();
        }
        group.tgmem[0] = shared.as_mut_ptr().cast();
        let start = arena.as_ptr().align_offset(64);
        group.arena = arena[start..].as_mut_ptr().cast();
        let kernel = KernelCode {
            regions: &self.regions,
            ops: &self.ops,
            plan: &self.plan,
        };
        for z in 0..groups[2] {
            for y in 0..groups[1] {
                for x in 0..groups[0] {
                    group.tgid = [x, y, z];
                    let context = context[offset..].as_mut_ptr().cast();
                    // SAFETY: the image is loaded and belongs to its plan; the context and the buffers are large
                    // enough for the kernels of these tests.
                    unsafe { group::run(kernel, &group, context, strategy, observer) };
                }
            }
        }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: the image is not used after the drop.
        unsafe { libc::dlclose(self.handle) };
    }
}

/// Runs `source` with every strategy and returns the buffers, which must agree.
pub(crate) fn run_all(
    source: &str,
    groups: [u32; 3],
    dims: [u32; 3],
    buffers: &[Vec<u32>],
) -> Vec<Vec<u32>> {
    let image = Image::new(source);
    let mut result = buffers.to_vec();
    image.run(groups, dims, &mut result, Strategy::Fast);
    for strategy in [
        Strategy::Ordered,
        Strategy::Shuffled(1),
        Strategy::Shuffled(0x5eed),
    ] {
        let mut other = buffers.to_vec();
        image.run(groups, dims, &mut other, strategy);
        assert!(
            other == result,
            "{strategy:?} and Fast disagree for {dims:?}"
        );
    }
    result
}

pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

pub(crate) fn floats(values: &[u32]) -> Vec<f32> {
    values.iter().map(|v| f32::from_bits(*v)).collect()
}
