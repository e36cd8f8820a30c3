//! Anything as the file that one daemon leaves to the next.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| forebay_control::saved::fuzz_check::check(input));
