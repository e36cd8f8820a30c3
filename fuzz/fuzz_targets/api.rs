//! Anything as an API request.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| forebay::api::fuzz_check::check(input));
