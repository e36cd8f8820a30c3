//! Anything as a guest's ring, and anything done with it.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| forebay_vhost::fuzz_check::ring(input));
