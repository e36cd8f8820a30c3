//! Circles: source files of one crate that take items from each other, directly or through other files.
//!
//! Who reads one file of a circle has to read all of them. An item that two files need belongs in a third one below them.
//! `imports.rs` says what counts.

mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use imports::{Crate, Imports};

/// Files that take items from each other.
type Circle = BTreeSet<String>;

/// Circles that still stand, by crate. This list may only shrink.
const KNOWN: [(&str, &[&str]); 1] = [("forebay", &["api.rs", "api/openapi.rs", "api/show.rs"])];

#[test]
fn no_files_take_items_from_each_other_but_those_named_here() {
    let mut gone: Vec<_> = KNOWN.to_vec();
    for (name, source) in libraries() {
        let imports = Crate::read(&source).imports();
        for circle in circles(&imports) {
            let files: Vec<&str> = circle.iter().map(String::as_str).collect();
            let is_known = KNOWN.iter().any(|(of, known)| *of == name && **known == *files);
            assert!(is_known, "a new circle in the crate {name}:\n{}", arrows(&imports, &circle));
            gone.retain(|(of, known)| *of != name || **known != *files);
        }
    }
    assert!(gone.is_empty(), "these circles are gone, strike them from KNOWN: {gone:?}");
}

/// Name and `src` of each library below `crates`.
fn libraries() -> Vec<(String, PathBuf)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates");
    let folders = std::fs::read_dir(crates).expect("the folder is part of the source");
    let mut found: Vec<_> = folders
        .map(|folder| folder.expect("reading a folder does not fail half-way"))
        .map(|folder| (folder.file_name().display().to_string(), folder.path().join("src")))
        .filter(|(_, source)| source.join("lib.rs").exists())
        .collect();
    found.sort();
    found
}

fn circles(imports: &Imports) -> BTreeSet<Circle> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|(file, _)| (file.as_str(), reached_from(imports, file))).collect();
    let among = |file: &str, others: &BTreeSet<&str>| -> Circle {
        let back = |other: &&&str| reached.get(**other).is_some_and(|reached| reached.contains(file));
        others.iter().filter(back).map(|other| (*other).to_owned()).collect()
    };
    let all = reached.iter().map(|(file, others)| among(file, others));
    all.filter(|circle| !circle.is_empty()).collect()
}

/// Returns the files that `file` takes items from, directly or through other files.
fn reached_from<'a>(imports: &'a Imports, file: &'a str) -> BTreeSet<&'a str> {
    let (mut reached, mut left) = (BTreeSet::new(), vec![file]);
    while let Some(at) = left.pop() {
        let next = imports.keys().filter(|(from, _)| from == at).map(|(_, to)| to.as_str());
        left.extend(next.filter(|to| reached.insert(*to)));
    }
    reached
}

/// Describes what the files of a circle take from each other, one line for two files.
fn arrows(imports: &Imports, circle: &Circle) -> String {
    let within = imports.iter().filter(|((from, to), _)| circle.contains(from) && circle.contains(to));
    within.map(|((from, to), names)| format!("  {from} takes from {to}: {names:?}\n")).collect()
}

#[test]
fn a_circle_is_recognised() {
    let of = |arrows: &[(&str, &str)]| -> Vec<Vec<String>> {
        let imports = arrows.iter().map(|(from, to)| (((*from).into(), (*to).into()), BTreeSet::new()));
        circles(&imports.collect()).into_iter().map(|circle| circle.into_iter().collect()).collect()
    };
    assert!(of(&[("a", "b"), ("b", "c"), ("a", "c")]).is_empty());
    assert_eq!(of(&[("a", "b"), ("b", "c"), ("c", "b")]), [["b", "c"]]);
    assert_eq!(of(&[("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]), [["a", "b", "c"]]);
}

#[test]
fn items_are_found_where_they_are_defined() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = [
        ("lib.rs", "mod a; mod b; pub use b::Thing; pub fn top() {}"),
        (
            "a.rs",
            "mod part; use crate::Thing; fn f() -> Thing { part::g(); todo!() } struct Whole; fn h() {}",
        ),
        ("a/part.rs", "use super::Whole; pub fn g() { super::h(); crate::b::make(vec![crate::top()]); }"),
        ("b.rs", "pub struct Thing; pub fn make<T>(_: T) {} #[cfg(test)] mod tests { use crate::a; }"),
    ];
    std::fs::create_dir(folder.path().join("a")).expect("a folder");
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).expect("a file");
    }
    let imports = Crate::read(folder.path()).imports();
    let found: Vec<String> = imports
        .iter()
        .map(|((from, to), names)| {
            format!("{from} {to} {}", names.iter().cloned().collect::<Vec<_>>().join(","))
        })
        .collect();
    let wanted = [
        "a.rs a/part.rs g",
        "a.rs b.rs Thing",
        "a/part.rs a.rs h",
        "a/part.rs b.rs make",
        "a/part.rs lib.rs top",
    ];
    assert_eq!(found, wanted);
}
