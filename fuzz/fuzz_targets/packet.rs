//! The packet parser and the completion of checksums, on any bytes cut anywhere.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| forebay_wire::fuzz_check::packet(input));
