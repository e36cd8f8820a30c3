//! The lab's BPF object, compiled by the build script from bpf/traffic.bpf.c.

use libbpf_rs::{MapCore, Object, ObjectBuilder, ProgramMut};

use crate::{LabError, Result};

static BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/traffic.bpf.o"));

/// Loads the object, all of its programs and maps.
pub(crate) fn load() -> Result<Object> {
    load_with_bare_ifindex(0)
}

/// Loads the object with the netdev that `bare_tcx` sends to, which is a constant from then on.
pub(crate) fn load_with_bare_ifindex(ifindex: u32) -> Result<Object> {
    let failed = |error| LabError::bpf("loading the lab's BPF programs", error);
    // A copy on the heap, because libelf wants it aligned.
    let bytes = BYTES.to_vec();
    let open = ObjectBuilder::default().name("fb_lab").and_then(|builder| builder.open_memory(&bytes));
    let mut open = open.map_err(failed)?;
    let constants = open.maps_mut().find(|map| map.name().to_string_lossy().ends_with(".rodata"));
    let mut constants = constants.expect("the object has the constants of its source");
    let values = constants.initial_value_mut().expect("constants have values");
    values[..4].copy_from_slice(&ifindex.to_ne_bytes());
    open.load().map_err(failed)
}

/// A program of the object.
pub(crate) fn program<'object>(object: &'object mut Object, name: &str) -> ProgramMut<'object> {
    let mut programs = object.progs_mut();
    programs.find(|program| program.name() == name).expect("the object has the programs of its source")
}

/// Writes entry 0 of a map.
pub(crate) fn set(object: &Object, map: &str, value: u32) -> Result<()> {
    let map = find_map(object, map);
    let done = map.update(&0u32.to_ne_bytes(), &value.to_ne_bytes(), libbpf_rs::MapFlags::ANY);
    done.map_err(|error| LabError::bpf("setting up the lab's BPF programs", error))
}

/// A map of the object.
pub(crate) fn find_map<'object>(object: &'object Object, name: &str) -> libbpf_rs::Map<'object> {
    object.maps().find(|map| map.name() == name).expect("the object has the maps of its source")
}
