//! Functions that instrumented code calls; they are inlined before any other optimisation.

use std::fmt::Write;

use crate::soft::ir::tsan::DEFECT_MARKER;

/// Kinds of defects, as decoded in `check/defect.rs`.
pub(super) const BOUNDS: u32 = 1;
pub(super) const UNINITIALISED: u32 = 2;
pub(super) const SHIFT: u32 = 3;
pub(super) const DIVISION_BY_ZERO: u32 = 4;
pub(super) const DIVISION_OVERFLOW: u32 = 5;

/// Access sizes in bytes for which there are specialized functions.
pub(super) const SCALAR_ACCESS_BYTES: [u64; 5] = [1, 2, 4, 8, 16];

/// Returns the helpers; their accesses carry the metadata node `nosanitize`.
///
/// A marker might not return, so the optimiser must not move it, or an access after it, even if undefined behaviour
/// follows.
pub(super) fn definitions(nosanitize: u32) -> String {
    let skip = format!(", !nosanitize !{nosanitize}");
    let head = "alwaysinline nounwind {\n";
    let mut out = format!(
        "declare void @{DEFECT_MARKER}(i1, i32, i64, i64, i64) nounwind memory(inaccessiblemem: readwrite)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
define internal void @sm.inside(i64 %offset, i64 %size, i64 %info) {head}\
  %length = and i64 %info, 4294967295
  %known = icmp ne i64 %info, 0
  %last = sub i64 %length, %size
  %past = icmp ugt i64 %offset, %last
  %large = icmp ugt i64 %size, %length
  %out = or i1 %past, %large
  %bad = and i1 %known, %out
  call void @{DEFECT_MARKER}(i1 %bad, i32 {BOUNDS}, i64 %offset, i64 %size, i64 %info)
  ret void
}}
define internal void @sm.write(ptr %shadow, i64 %offset, i64 %size) {head}\
  %none = icmp eq ptr %shadow, null
  br i1 %none, label %done, label %write
write:
  %p = getelementptr i8, ptr %shadow, i64 %offset
  call void @llvm.memset.p0.i64(ptr %p, i8 0, i64 %size, i1 false){skip}
  br label %done
done:
  ret void
}}
define internal void @sm.escape(ptr %shadow, i64 %info) {head}\
  %size = and i64 %info, 4294967295
  call void @sm.write(ptr %shadow, i64 0, i64 %size)
  ret void
}}
define internal void @sm.copy(ptr %to, i64 %at, ptr %from, i64 %offset, i64 %size) {head}\
  %none = icmp eq ptr %to, null
  br i1 %none, label %done, label %some
some:
  %p = getelementptr i8, ptr %to, i64 %at
  %written = icmp eq ptr %from, null
  br i1 %written, label %write, label %copy
write:
  call void @llvm.memset.p0.i64(ptr %p, i8 0, i64 %size, i1 false){skip}
  br label %done
copy:
  %q = getelementptr i8, ptr %from, i64 %offset
  call void @llvm.memmove.p0.p0.i64(ptr %p, ptr %q, i64 %size, i1 false){skip}
  br label %done
done:
  ret void
}}
"
    );
    for size in SCALAR_ACCESS_BYTES {
        let bits = size * 8;
        let _ = write!(
            out,
            "define internal void @sm.read{size}(ptr %shadow, i64 %offset, i64 %info) {head}\
  %none = icmp eq ptr %shadow, null
  br i1 %none, label %done, label %read
read:
  %p = getelementptr i8, ptr %shadow, i64 %offset
  %bits = load i{bits}, ptr %p, align 1{skip}
  %bad = icmp eq i{bits} %bits, -1
  call void @{DEFECT_MARKER}(i1 %bad, i32 {UNINITIALISED}, i64 %offset, i64 {size}, i64 %info)
  br label %done
done:
  ret void
}}
define internal void @sm.write{size}(ptr %shadow, i64 %offset) {head}\
  %none = icmp eq ptr %shadow, null
  br i1 %none, label %done, label %write
write:
  %p = getelementptr i8, ptr %shadow, i64 %offset
  store i{bits} 0, ptr %p, align 1{skip}
  br label %done
done:
  ret void
}}
"
        );
    }
    out
}
