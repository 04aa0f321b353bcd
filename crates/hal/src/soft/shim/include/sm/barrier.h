// <metal_compute>: barriers, memory orders and scopes.
#pragma once

namespace metal {
enum class mem_flags : uint {
  mem_none = 0,
  mem_device = 1,
  mem_threadgroup = 2,
  mem_device_and_threadgroup = 3,
  mem_texture = 4,
  mem_threadgroup_imageblock = 8,
  mem_object_data = 16,
};
SM_CX mem_flags operator|(mem_flags a, mem_flags b) { return (mem_flags)((uint)a | (uint)b); }
SM_CX mem_flags operator&(mem_flags a, mem_flags b) { return (mem_flags)((uint)a & (uint)b); }

enum memory_order {
  memory_order_relaxed = __ATOMIC_RELAXED,
  memory_order_acquire = __ATOMIC_ACQUIRE,
  memory_order_release = __ATOMIC_RELEASE,
  memory_order_acq_rel = __ATOMIC_ACQ_REL,
  memory_order_seq_cst = __ATOMIC_SEQ_CST,
};
enum thread_scope {
  thread_scope_thread,
  thread_scope_simdgroup,
  thread_scope_threadgroup,
  thread_scope_device,
};

SM_FN void threadgroup_barrier(mem_flags flags) { sm_sync_tg((uint)flags); }
SM_FN void threadgroup_barrier(mem_flags flags, thread_scope) { sm_sync_tg((uint)flags); }
SM_FN void simdgroup_barrier(mem_flags flags) { sm_sync_sg((uint)flags); }
SM_FN void simdgroup_barrier(mem_flags flags, thread_scope) { sm_sync_sg((uint)flags); }

// The scheduler never moves a lane between CPU threads without a full fence, so a fence inside a
// kernel only has to order memory towards other threadgroups.
SM_FN void atomic_thread_fence(mem_flags, memory_order = memory_order_seq_cst,
                               thread_scope = thread_scope_device) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
}  // namespace metal
