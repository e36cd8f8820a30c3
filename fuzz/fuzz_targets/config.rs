//! Anything as a configuration file.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| forebay_control::config::fuzz_check::check(input));
