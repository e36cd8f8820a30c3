//! Compiles the library that is loaded in front of the C library.

use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/preload/mod.rs";

fn main() {
    println!("cargo:rerun-if-changed=src/preload");
    let library = PathBuf::from(env("OUT_DIR")).join("preload.so");
    let done = Command::new(env("RUSTC"))
        .args(["--crate-name", "preload", "--crate-type", "cdylib", "--edition", "2024"])
        .args(["-O", "-C", "panic=abort", "-C", "strip=symbols"])
        .args(["--target", &env("TARGET")])
        .arg(SOURCE)
        .arg("-o")
        .arg(library)
        .status()
        .expect("rustc runs this build");
    assert!(done.success(), "rustc could not compile {SOURCE}");
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}
