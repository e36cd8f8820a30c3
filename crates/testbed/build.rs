//! Compiles the lab's BPF programs with clang; where there is none, takes the committed object.
//!
//! In continuous integration (`CI=true`) a missing clang is an error: nobody reads warnings there, and an old object
//! would be tested in the place of the source.

use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = "bpf/traffic.bpf.c";
const COMMITTED: &str = "bpf/traffic.bpf.o";

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-changed={COMMITTED}");
    println!("cargo:rerun-if-env-changed=CI");
    let object = PathBuf::from(env("OUT_DIR")).join("traffic.bpf.o");
    if clang_exists() {
        return compile(&object);
    }
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci != "true"),
        "there is no clang, and with CI=true the committed BPF object is not taken instead; install clang"
    );
    println!("cargo:warning=no clang: taking the committed {COMMITTED}");
    std::fs::copy(COMMITTED, object).expect("the committed object is part of the sources");
}

fn compile(object: &Path) {
    let mut clang = Command::new("clang");
    clang.args(["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3", "-c"]);
    // libbpf's headers, of the version that is linked.
    clang.arg(format!("-I{}", env("DEP_BPF_INCLUDE")));
    // Where Debian keeps asm/types.h; other systems have it in /usr/include.
    clang.arg(format!("-I/usr/include/{}-linux-gnu", env("CARGO_CFG_TARGET_ARCH")));
    // Nothing of the machine's paths in the object.
    clang.arg("-ffile-prefix-map=./=").arg(SOURCE).arg("-o").arg(object);
    let done = clang.status().expect("clang was there a moment ago");
    assert!(done.success(), "clang could not compile {SOURCE}");
}

fn clang_exists() -> bool {
    Command::new("clang").arg("--version").output().is_ok_and(|output| output.status.success())
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}
