//! Non-temporal stores.
//!
//! A result far larger than the caches is evicted before it is read again. With ordinary stores, each of its cache lines
//! is first read from memory (read for ownership), only to be overwritten: a third of the traffic of `a + b`. Such
//! results are computed in scratch memory instead and copied with non-temporal stores, which bypass the caches.
#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "non-temporal stores are intrinsics on pointers")
)]

/// Results of at least this many bytes are written with non-temporal stores. Measured for `a + b`: at 16 MiB there is no
/// difference, at 64 MiB it takes 10 ms instead of 17.
pub(super) const MIN_NONTEMPORAL_BYTES: usize = 32 << 20;

/// Whether the target has non-temporal stores.
pub(super) const AVAILABLE: bool = cfg!(target_arch = "x86_64");

/// Copies a block with non-temporal stores. [`fence`] must follow the last one.
#[cfg(target_arch = "x86_64")]
#[expect(
    clippy::cast_ptr_alignment,
    reason = "loads may be unaligned, and stores are aligned"
)]
pub(super) fn copy(from: &[u8], to: &mut [u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};

    assert_eq!(from.len(), to.len());
    let head = to.as_ptr().align_offset(16).min(to.len());
    let (from_head, from) = from.split_at(head);
    let (to_head, to) = to.split_at_mut(head);
    to_head.copy_from_slice(from_head);
    let body_len = to.len() / 16 * 16;
    let (body, tail) = to.split_at_mut(body_len);
    tail.copy_from_slice(&from[body_len..]);
    for (from, to) in from.chunks_exact(16).zip(body.chunks_exact_mut(16)) {
        // SAFETY: both are 16 bytes, `to` is aligned to 16 since `head` bytes were skipped, and SSE2 is part of x86-64.
        unsafe {
            let value = _mm_loadu_si128(from.as_ptr().cast::<__m128i>());
            _mm_stream_si128(to.as_mut_ptr().cast::<__m128i>(), value);
        }
    }
}

/// Copies a block.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn copy(from: &[u8], to: &mut [u8]) {
    to.copy_from_slice(from);
}

/// Orders the stores of [`copy`] before all later stores of this thread.
pub(super) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction has no operands; SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn copies_every_byte_at_any_alignment() {
        let from: Vec<u8> = (0..300).map(|i| i as u8).collect();
        for start in 0..20 {
            for len in [0, 1, 15, 16, 17, 64, 250] {
                let mut to = vec![0; 300];
                super::copy(&from[start..start + len], &mut to[20 - start..][..len]);
                super::fence();
                assert_eq!(to[20 - start..][..len], from[start..start + len]);
                assert_eq!(
                    to.iter().filter(|&&x| x != 0).count(),
                    from[start..start + len].iter().filter(|&&x| x != 0).count()
                );
            }
        }
    }
}
