//! Memory that will be read soon. Unsafe code.

/// Bytes of a cache line on the processors that this is for.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Begins to bring a value into the cache, where the processor can be told, and does not wait for it. Packet path.
#[inline]
pub fn prefetch<T: ?Sized>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let (first, bytes) = (std::ptr::from_ref(value).cast::<i8>(), size_of_val(value));
        for at in (0..bytes).step_by(LINE) {
            // SAFETY: every x86-64 processor has the instruction, which reads nothing that a program could see and
            // never faults; `at` lies within the value.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(first.add(at)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
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
