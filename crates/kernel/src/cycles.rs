//! The processor's time stamp counter. Unsafe code.
#![allow(unsafe_code, reason = "an instruction without a safe name")]

/// Ticks of the processor's time stamp counter, which runs at one rate whatever the processor's clock does; nanoseconds
/// where there is none. Packet path.
#[inline]
pub fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction, and Linux lets user space use it.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_counter_goes_forward() {
        let before = super::cycles();
        assert!(super::cycles() >= before);
    }
}
