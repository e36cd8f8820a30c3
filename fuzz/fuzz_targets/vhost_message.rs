//! Anything as a front end's stream.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| forebay_vhost::fuzz_check::messages(input));
