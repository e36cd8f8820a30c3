//! Compiles the lab's BPF programs with clang; without clang the committed object is used.

use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = "bpf/traffic.bpf.c";
const COMMITTED: &str = "bpf/traffic.bpf.o";

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-changed={COMMITTED}");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("traffic.bpf.o");
    if !compile(Path::new(SOURCE), &out) {
        println!("cargo:warning=clang did not compile {SOURCE}; using the committed {COMMITTED}");
        std::fs::copy(COMMITTED, &out).expect("the committed object is part of the sources");
    }
}

fn compile(source: &Path, object: &Path) -> bool {
    let mut clang = Command::new("clang");
    clang.args(["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3", "-c"]);
    // Where Debian keeps asm/types.h; other systems have it in /usr/include.
    clang.arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH));
    // Nothing of the machine's paths in the object.
    clang.arg("-ffile-prefix-map=./=").arg(source).arg("-o").arg(object);
    clang.status().is_ok_and(|status| status.success())
}
