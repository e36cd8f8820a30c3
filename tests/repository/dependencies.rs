//! What may depend on what: crates on crates, code on unsafe code, the product on licences.
//!
//! ```text
//!   PURE  ←  mechanism  ←  switch  ←  forebay        emulator  ←  testbed  ←  lab, tests
//! ```
//! Read from `cargo metadata`, so that a new crate has to be given its place here.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// A crate's place, from the bottom up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    Pure,
    Mechanism,
    Switch,
    Program,
    /// What tests run virtual machines with. It knows nothing of ours.
    Emulator,
    Testbed,
    Tool,
}

const LAYERS: [(&str, Layer); 16] = [
    ("forebay-policy", Layer::Pure),
    ("forebay-hints", Layer::Pure),
    ("forebay-wire", Layer::Pure),
    ("forebay-flow", Layer::Pure),
    ("forebay-control", Layer::Pure),
    ("forebay-pool", Layer::Mechanism),
    ("forebay-xsk", Layer::Mechanism),
    ("forebay-kernel", Layer::Mechanism),
    ("forebay-vhost", Layer::Mechanism),
    ("forebay-switch", Layer::Switch),
    ("forebay", Layer::Program),
    ("forebay-uml", Layer::Emulator),
    ("forebay-testbed", Layer::Testbed),
    ("forebay-lab", Layer::Tool),
    ("forebay-tests", Layer::Tool),
    ("forebay-repository", Layer::Tool),
];

/// The one pair of neighbours: a descriptor that crosses to the kernel is a frame of the pool.
const NEIGHBOURS: (&str, &str) = ("forebay-xsk", "forebay-pool");

/// The other end of a vhost-user socket, which a test bed has for its guests: a driver, and nothing of the switch.
const FRONT_END: (&str, &str) = ("forebay-testbed", "forebay-vhost");

/// What a pure crate may not use, directly: clocks are in `std` and reviewed, these bring system calls or threads.
const IMPURE: [&str; 7] = ["libc", "libbpf-rs", "libbpf-sys", "nix", "rustix", "tokio", "tracing"];

/// Crates whose purpose needs unsafe code, and the one that makes test beds. They deny it, and single files allow it.
const MAY_BE_UNSAFE: [&str; 5] =
    ["forebay-pool", "forebay-xsk", "forebay-kernel", "forebay-vhost", "forebay-uml"];
const DENIES_UNSAFE: &str = "forebay-testbed";

fn layer(name: &str) -> Option<Layer> {
    LAYERS.iter().find(|(known, _)| *known == name).map(|(_, layer)| *layer)
}

/// What for: the product, or its tests and benchmarks alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Product,
    Tests,
}

use Purpose::{Product, Tests};

/// Whether `from` may depend on `to`, both ours. Tests and benchmarks may look to the side, but not up. The
/// testbed knows the program from outside, by the types of its API; nothing uses the tools.
fn is_allowed(from: &str, to: &str, purpose: Purpose) -> bool {
    let (Some(from_layer), Some(to_layer)) = (layer(from), layer(to)) else { return false };
    match to_layer {
        Layer::Tool => false,
        Layer::Emulator => purpose == Tests || from_layer == Layer::Testbed,
        _ if from_layer == Layer::Emulator => false,
        Layer::Program | Layer::Testbed => from_layer == Layer::Tool,
        _ if (from, to) == FRONT_END => true,
        _ if from_layer == Layer::Testbed => to_layer == Layer::Pure,
        _ if (from, to) == NEIGHBOURS => true,
        _ if purpose == Tests => to_layer <= from_layer,
        Layer::Pure => true,
        _ => to_layer < from_layer,
    }
}

fn metadata(arguments: &[&str]) -> Value {
    ask_metadata(arguments).unwrap_or_else(|error| panic!("cargo metadata: {error}"))
}

fn ask_metadata(arguments: &[&str]) -> Result<Value, String> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs this test");
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(serde_json::from_slice(&output.stdout).expect("cargo writes JSON"))
}

fn items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().expect("cargo metadata's format is stable").iter()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().expect("cargo metadata's format is stable")
}

/// Every (crate, dependency) of the workspace.
fn edges(metadata: &Value) -> Vec<(&str, &str, Purpose)> {
    let mut edges = Vec::new();
    for package in items(metadata, "packages") {
        let to = items(package, "dependencies");
        edges.extend(to.map(|to| (text(package, "name"), text(to, "name"), purpose(to))));
    }
    edges
}

fn purpose(dependency: &Value) -> Purpose {
    if dependency["kind"] == "dev" { Tests } else { Product }
}

#[test]
fn every_crate_depends_only_on_what_lies_below_it() {
    let metadata = metadata(&["--no-deps"]);
    for (from, to, purpose) in edges(&metadata) {
        let is_ours = to == "forebay" || to.starts_with("forebay-");
        let is_fine = !is_ours || is_allowed(from, to, purpose);
        assert!(is_fine, "{from} may not depend on {to}; see the layout in ARCHITECTURE.md");
    }
}

#[test]
fn every_crate_has_its_place() {
    for package in items(&metadata(&["--no-deps"]), "packages") {
        let name = text(package, "name");
        assert!(layer(name).is_some(), "{name} is new: give it a layer in tests/repository/dependencies.rs");
    }
}

#[test]
fn a_forbidden_edge_is_recognised() {
    for (from, to) in [
        ("forebay-policy", "forebay-kernel"),
        ("forebay-pool", "forebay-xsk"),
        ("forebay-kernel", "forebay-pool"),
        ("forebay-kernel", "forebay-switch"),
        ("forebay-switch", "forebay"),
        ("forebay", "forebay-testbed"),
        ("forebay-testbed", "forebay-switch"),
        ("forebay-testbed", "forebay-lab"),
        ("forebay-tests", "forebay-lab"),
        ("forebay-switch", "forebay-tests"),
        ("forebay-vhost", "forebay-uml"),
        ("forebay-uml", "forebay-wire"),
        ("forebay-switch", "forebay-unheard-of"),
    ] {
        assert!(!is_allowed(from, to, Product), "{from} -> {to}");
    }
    assert!(!is_allowed("forebay-xsk", "forebay-switch", Tests));
    assert!(!is_allowed("forebay-switch", "forebay-testbed", Tests));
    assert!(!is_allowed("forebay-testbed", "forebay-kernel", Tests));
}

#[test]
fn an_allowed_edge_is_recognised() {
    for (from, to) in [
        ("forebay-xsk", "forebay-pool"),
        ("forebay-kernel", "forebay-control"),
        ("forebay-testbed", "forebay-control"),
        ("forebay-testbed", "forebay-uml"),
        ("forebay-lab", "forebay-testbed"),
        ("forebay-lab", "forebay-kernel"),
        ("forebay-tests", "forebay-testbed"),
    ] {
        assert!(is_allowed(from, to, Product), "{from} -> {to}");
    }
    assert!(is_allowed("forebay-xsk", "forebay-kernel", Tests));
    assert!(is_allowed("forebay-vhost", "forebay-uml", Tests));
}

#[test]
fn pure_crates_use_nothing_that_makes_system_calls() {
    let metadata = metadata(&["--no-deps"]);
    for (from, to, purpose) in edges(&metadata) {
        let is_pure = layer(from) == Some(Layer::Pure) && purpose == Product;
        assert!(!is_pure || !IMPURE.contains(&to), "{from} is pure and may not depend on {to}");
    }
}

#[test]
fn unsafe_code_is_forbidden_outside_the_mechanism_crates() {
    for package in items(&metadata(&["--no-deps"]), "packages") {
        let name = text(package, "name");
        let denies = MAY_BE_UNSAFE.contains(&name) || name == DENIES_UNSAFE;
        let wanted = if denies { "#![deny(unsafe_code)]" } else { "#![forbid(unsafe_code)]" };
        for root in items(package, "targets").filter(|target| is_shipped(target)) {
            let path = text(root, "src_path");
            let source = std::fs::read_to_string(path).expect("cargo knows the file");
            let says_so = source.lines().any(|line| line == wanted || line == "#![forbid(unsafe_code)]");
            assert!(says_so, "{path} does not say {wanted}");
        }
    }
}

/// Libraries and programs; not tests, benchmarks and build scripts, nor the tests' own empty library.
fn is_shipped(target: &Value) -> bool {
    let is_code = items(target, "kind").any(|kind| kind == "lib" || kind == "bin");
    is_code && text(target, "name") != "forebay_tests"
}

#[test]
fn the_testbed_keeps_its_unsafe_code_in_one_module() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/testbed/src");
    let mut allowing = Vec::new();
    for file in rust_files(&sources) {
        let source = std::fs::read_to_string(&file).expect("the file was just listed");
        if source.contains("allow(unsafe_code") || source.contains("expect(unsafe_code") {
            allowing.push(file.strip_prefix(&sources).expect("it was listed below").to_owned());
        }
    }
    assert_eq!(allowing, [Path::new("sys/mod.rs")], "files that allow unsafe code");
}

fn rust_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder is part of the source");
    let paths = entries.map(|entry| entry.expect("reading a folder does not fail half-way").path());
    paths
        .flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

#[test]
fn every_licence_is_one_that_deny_toml_allows() {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    check_licences(&metadata(&["--filter-platform", &platform]));
}

/// They are a workspace of their own, which no other test looks at.
#[test]
fn the_fuzz_targets_have_a_lock_file_that_is_up_to_date_and_licences_that_deny_toml_allows() {
    match ask_metadata(&["--manifest-path", "../../fuzz/Cargo.toml"]) {
        Ok(metadata) => check_licences(&metadata),
        Err(error) if error.contains("--locked was passed") => {
            panic!("run `cargo metadata --manifest-path fuzz/Cargo.toml >/dev/null`: {error}")
        }
        // Nothing else is built from them, so their crates may be missing.
        Err(error) => println!("SKIP: crates of the fuzz targets ({})", error.trim()),
    }
}

fn check_licences(metadata: &Value) {
    let deny = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deny.toml"))
        .expect("deny.toml is part of the source");
    let deny: toml::Table = deny.parse().expect("deny.toml is TOML");
    let allowed = licences(&deny["licenses"]["allow"]);
    let exceptions = deny["licenses"]["exceptions"].as_array().expect("a list of exceptions");
    for package in items(metadata, "packages") {
        let (name, licence) = (text(package, "name"), package["license"].as_str());
        let licence = licence.unwrap_or_else(|| panic!("{name} does not say its licence"));
        let its = exceptions.iter().filter(|exception| exception["crate"].as_str() == Some(name));
        let more = its.flat_map(|exception| licences(&exception["allow"]));
        let allowed: Vec<&str> = allowed.iter().copied().chain(more).collect();
        assert!(is_permitted(licence, &allowed), "{name}: {licence}; deny.toml allows {allowed:?}");
    }
}

fn licences(list: &toml::Value) -> Vec<&str> {
    list.as_array().expect("a list of licences").iter().filter_map(toml::Value::as_str).collect()
}

/// Whether one of the ways a licence expression can be fulfilled needs allowed licences only.
fn is_permitted(licence: &str, allowed: &[&str]) -> bool {
    let expression = spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX);
    let expression =
        expression.unwrap_or_else(|error| panic!("`{licence}` is not an SPDX expression: {error}"));
    expression.evaluate(|needed| allowed.contains(&needed.to_string().as_str()))
}

#[test]
fn a_licence_that_asks_for_more_is_recognised() {
    let allowed = ["MIT", "BSD-2-Clause"];
    assert!(is_permitted("MIT/Apache-2.0", &allowed));
    assert!(is_permitted("LGPL-2.1-only OR BSD-2-Clause", &allowed));
    assert!(!is_permitted("MIT AND GPL-3.0-only", &allowed));
    assert!(!is_permitted("GPL-2.0-only", &allowed));
}
