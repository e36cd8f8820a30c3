//! Memory that will be read soon. Unsafe code.
#![allow(unsafe_code, reason = "an instruction without a safe name")]

/// Bytes of a cache line on the processors that this is for.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Begins to bring a value into the cache, where the processor can be told, and does not wait for it. Packet path.
#[inline]
pub fn prefetch<T: ?Sized>(value: &T) {
    prefetch_bytes(std::ptr::from_ref(value).cast(), size_of_val(value));
}

/// The same for whatever lies in the `bytes` from `first`, which need not be there.
#[inline]
pub(crate) fn prefetch_bytes(first: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        for at in (0..bytes).step_by(LINE) {
            // SAFETY: every x86-64 processor has the instruction, which reads nothing that a program could see and
            // never faults, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(at).cast()) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (first, bytes);
}

#[cfg(test)]
mod tests {
    #[test]
    fn anything_can_be_asked_for() {
        super::prefetch(&[0u8; 1000]);
        super::prefetch::<[u64]>(&[]);
        super::prefetch(&());
    }
}
