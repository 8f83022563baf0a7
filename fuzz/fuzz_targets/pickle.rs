//! Fuzzes `pickle`, see `targets.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wpack_fuzz::run("pickle", data));
