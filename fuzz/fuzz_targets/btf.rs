//! Anything as a program's BTF.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| forebay_hints::fuzz_check::check(input));
