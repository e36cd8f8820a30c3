//! Compiles the BPF programs with clang; where there is none, takes the object committed beside their source.
//!
//! In continuous integration (`CI=true`) a missing clang is an error: nobody reads warnings there, and an old object
//! would be tested in the place of the source.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let root = PathBuf::from(env("CARGO_MANIFEST_DIR")).join("../../bpf");
    let object = PathBuf::from(env("OUT_DIR")).join("forebay.bpf.o");
    println!("cargo:rerun-if-changed={}", root.display());
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-env-changed=CI");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    if !clang_exists(&clang) {
        assert!(
            std::env::var_os("CI").is_none_or(|ci| ci != "true"),
            "there is no {clang}, and with CI=true the committed BPF object is not taken instead; install clang"
        );
        println!("cargo:warning=no {clang}: taking the committed BPF object");
        std::fs::copy(root.join("forebay.bpf.o"), object)
            .expect("the committed object is part of the source");
        return;
    }
    compile(&clang, &root, &object);
}

fn compile(clang: &str, root: &Path, object: &Path) {
    let done = Command::new(clang)
        .args(["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3"])
        // The object names its source by this path, whichever folder it is built in.
        .arg(format!("-ffile-prefix-map={}=bpf", root.display()))
        .arg(format!("-I{}", env("DEP_BPF_INCLUDE")))
        .args(multiarch_include().map(|path| format!("-I{path}")))
        .arg("-c")
        .arg(root.join("forebay.bpf.c"))
        .arg("-o")
        .arg(object)
        .status()
        .expect("clang was there a moment ago");
    assert!(done.success(), "clang could not compile bpf/forebay.bpf.c");
}

fn clang_exists(clang: &str) -> bool {
    Command::new(clang).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Where Debian and its kin keep `asm/types.h`.
fn multiarch_include() -> Option<String> {
    let arch = env("CARGO_CFG_TARGET_ARCH");
    let path = format!("/usr/include/{arch}-linux-gnu");
    Path::new(&path).is_dir().then_some(path)
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}
