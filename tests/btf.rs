//! Our reading of BTF held against bpftool's, on all of the running kernel's structs and unions.

use std::collections::HashMap;
use std::process::Command;

use forebay_hints::{Btf, TypeId};
use serde::Deserialize;

const KERNEL: &str = "/sys/kernel/btf/vmlinux";
/// What bpftool calls what has no name.
const NAMELESS: &str = "(anon)";
/// A kernel of our size has at least so many structs and unions.
const SAMPLE: usize = 10_000;

#[derive(Deserialize)]
struct Dump {
    types: Vec<Type>,
}

#[derive(Deserialize)]
struct Type {
    id: u32,
    kind: String,
    name: String,
    size: Option<u64>,
    type_id: Option<u32>,
    #[serde(default)]
    members: Vec<Member>,
}

#[derive(Deserialize)]
struct Member {
    name: String,
    type_id: u32,
    bits_offset: u64,
    #[serde(default)]
    bitfield_size: u8,
}

type Found<'a> = (&'a str, u32, u64, Option<u8>);

impl Dump {
    fn composite(types: &HashMap<u32, &Type>, id: u32) -> Option<u32> {
        let found = types.get(&id)?;
        match found.kind.as_str() {
            "STRUCT" | "UNION" => Some(id),
            "TYPEDEF" | "CONST" | "VOLATILE" | "RESTRICT" | "TYPE_TAG" => {
                Self::composite(types, found.type_id?)
            }
            _ => None,
        }
    }

    fn fields<'a>(types: &HashMap<u32, &'a Type>, id: u32, at: u64) -> Vec<Found<'a>> {
        let of = |member: &'a Member| {
            let offset = at + member.bits_offset;
            match Self::composite(types, member.type_id) {
                Some(part) if member.name == NAMELESS => Self::fields(types, part, offset),
                _ => {
                    let name = if member.name == NAMELESS { "" } else { member.name.as_str() };
                    let bits = Some(member.bitfield_size).filter(|bits| *bits > 0);
                    vec![(name, member.type_id, offset, bits)]
                }
            }
        };
        types[&id].members.iter().flat_map(of).collect()
    }
}

#[test]
fn the_kernels_structs_are_read_as_bpftool_reads_them() {
    let dumped = Command::new("bpftool").args(["-j", "btf", "dump", "file", KERNEL]).output();
    let dumped = dumped.expect("bpftool can be started (apt-get install bpftool)");
    assert!(dumped.status.success(), "bpftool: {}", String::from_utf8_lossy(&dumped.stderr));
    let dump: Dump = serde_json::from_slice(&dumped.stdout).expect("bpftool writes JSON");
    let types: HashMap<u32, &Type> = dump.types.iter().map(|found| (found.id, found)).collect();

    let bytes = std::fs::read(KERNEL).expect("the kernel has BTF (CONFIG_DEBUG_INFO_BTF)");
    let btf = Btf::parse(&bytes).expect("the kernel's BTF can be read");
    assert_eq!(btf.len(), dump.types.len());

    let mut compared = 0;
    for found in dump.types.iter().filter(|found| matches!(found.kind.as_str(), "STRUCT" | "UNION")) {
        let name = &found.name;
        let fields = btf.fields(TypeId(found.id)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let ours: Vec<Found<'_>> = fields
            .iter()
            .map(|field| (field.name, field.type_id.0, field.bit_offset, field.bit_field))
            .collect();
        assert_eq!(ours, Dump::fields(&types, found.id, 0), "{name}");
        assert_eq!(btf.bytes(TypeId(found.id)).ok(), found.size, "{name}");
        compared += 1;
    }
    assert!(compared >= SAMPLE, "only {compared} structs and unions");
}
