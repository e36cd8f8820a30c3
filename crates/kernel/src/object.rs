//! The compiled BPF object: opened, sized, bound to the collector and loaded.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};

use caps::{CapSet, Capability};
use forebay_control::IfIndex;
use forebay_control::memory::FlowShape;
use forebay_hints::program::PortProgram;
use libbpf_rs::{
    MapCore as _, MapHandle, MapType, Object, ObjectBuilder, OpenObject, PrintLevel, ProgramType,
};

use crate::flows::Flow;
use crate::hash::Secret;
use crate::layout::{BANKS, DEPARTURES_A_WORKER, OWNERS_BESIDES_PORTS, Settings};
use crate::link::BOUND_WITH_FRAGS;
use crate::{DatapathError, Pins, generations, link};

/// ELF wants its bytes aligned.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);
static ALIGNED: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/forebay.bpf.o")));
pub(crate) static OBJECT: &[u8] = &ALIGNED.0;

/// What programs of others are linked to.
pub const PORT_PROGRAM: PortProgram<'static> = PortProgram { object: OBJECT, licence: "Dual BSD/GPL" };

/// The program that calls functions of others' objects.
pub(crate) const LINKED: &str = "xdp_port_linked";

/// Programs that use metadata kfuncs: they load only for one netdev.
const BOUND: [&str; 3] = ["collector", "xdp_port_bound", "xdp_port_hinted"];

/// Maps that outlive the daemon: what the programs need for following flows.
pub(crate) const OUTLIVING: [&str; 8] = [
    "near_ports",
    "flows",
    "flow_counts",
    "generations",
    "outputs",
    "number_classes",
    "prefix_classes",
    "format",
];

/// The sections of variables that are tables.
const TABLE_PREFIX: &str = ".data.";

/// How large the maps are and what the programs know from the start.
#[derive(Clone, Copy, Debug)]
pub struct DatapathOptions {
    /// Most ports; their ids are below it. At most 65,536.
    pub max_ports: u32,
    /// Collector queues, one for each worker.
    pub queues: u32,
    /// Bytes of a packet that one frame holds.
    pub frame_payload: u32,
    /// Most flows in the kernel.
    pub max_flows: u32,
    /// The first collector's receiving end, in the namespace where the object is loaded.
    pub collector_rx: IfIndex,
}

/// Loads all programs. Runs in the namespace of the collector's receiving end, to which some are bound.
///
/// With `adopted`, maps are those that are pinned there.
pub(crate) fn load(
    options: &DatapathOptions,
    settings: &Settings,
    adopted: Option<&Pins>,
) -> Result<Object, DatapathError> {
    // Not that it knows no section of ours; what the verifier says, it says as a warning.
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| eprint!("{text}"))));
    let mut open =
        ObjectBuilder::default().open_memory(OBJECT).map_err(DatapathError::bpf("open the BPF object"))?;
    size_maps(&mut open, options, settings)?;
    for mut map in open.maps_mut() {
        let name = name_of(map.name());
        let table = table_bytes(&name, settings);
        if let Some(bytes) = table {
            map.set_value_size(bytes).map_err(DatapathError::bpf("size a table"))?;
        }
        if let Some(pins) = adopted.filter(|_| OUTLIVING.contains(&name.as_str())) {
            map.reuse_pinned_map(pins.path(&name)).map_err(DatapathError::bpf("adopt a pinned map"))?;
        } else if let Some(bytes) = table {
            let table = create_table(&name, bytes)?;
            map.reuse_fd(table.as_fd()).map_err(DatapathError::bpf("share a table with the programs"))?;
        }
    }
    for mut program in open.progs_mut() {
        if BOUND.iter().any(|name| program.name() == *name) {
            program.set_ifindex(options.collector_rx.0);
            program.set_flags(BOUND_WITH_FRAGS);
        }
        // It is loaded for each object that is linked to it.
        program.set_autoload(program.name() != LINKED);
    }
    let object = open
        .load()
        .map_err(DatapathError::bpf("load the BPF programs (needs CAP_BPF, CAP_NET_ADMIN and Linux 6.8)"))?;
    for program in object.progs().filter(|program| BOUND.iter().any(|name| program.name() == *name)) {
        link::check_room(program.as_fd(), program.insns().len())?;
    }
    Ok(object)
}

/// What the programs know from the start.
pub(crate) fn settings(options: &DatapathOptions, secret: Secret) -> Settings {
    let cpus = possible_cpus();
    let shape = FlowShape::new(options.max_flows, cpus);
    Settings {
        queues: options.queues,
        frame_payload: options.frame_payload,
        shared_ring: options.max_ports,
        never: 0,
        buckets: shape.buckets,
        stripe_mask: shape.stripes - 1,
        // Interface indices come one after the other, so that ports that were made together share no place.
        near_mask: (2 * options.max_ports).next_power_of_two() - 1,
        has_shared_stripes: (cpus > shape.stripes).into(),
        is_weakly_ordered: (!cfg!(any(target_arch = "x86_64", target_arch = "s390x"))).into(),
        outlives: 0,
        reads_kernel: caps::has_cap(None, CapSet::Effective, Capability::CAP_PERFMON).unwrap_or(false).into(),
        port_mask: options.max_ports.next_power_of_two() - 1,
        secret: secret.0,
    }
}

impl Settings {
    /// How large the flow table is.
    pub(crate) fn flow_shape(&self) -> FlowShape {
        FlowShape { buckets: self.buckets, stripes: self.stripe_mask + 1 }
    }
}

fn possible_cpus() -> u32 {
    libbpf_rs::num_possible_cpus().map_or(1, |cpus| cpus as u32)
}

/// A map's name; that of a table is its variable's.
pub(crate) fn name_of(map: &OsStr) -> String {
    let name = map.to_string_lossy();
    name.strip_prefix(TABLE_PREFIX).unwrap_or(&name).to_owned()
}

/// libbpf calls the map after the object: `NAME.rodata`.
pub(crate) fn is_constants(name: &OsStr) -> bool {
    name.to_string_lossy().ends_with(".rodata")
}

/// How large a table is; nothing for other maps.
fn table_bytes(name: &str, settings: &Settings) -> Option<u32> {
    let bytes = match name {
        "near_ports" => Some((settings.near_mask as usize + 1) * size_of::<u64>()),
        "flows" => Some(settings.flow_shape().places() as usize * size_of::<Flow>()),
        "generations" => Some(generations::words(settings.port_mask + 1) * size_of::<u64>()),
        _ => None,
    };
    bytes.map(|bytes| bytes as u32)
}

/// libbpf would fill such a map with a copy of its own.
fn create_table(name: &str, bytes: u32) -> Result<MapHandle, DatapathError> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags: libbpf_sys::BPF_F_MMAPABLE,
        ..Default::default()
    };
    let key = size_of::<u32>() as u32;
    MapHandle::create(MapType::Array, Some(name), key, bytes, 1, &options)
        .map_err(DatapathError::bpf("make a table that programs share"))
}

fn size_maps(
    open: &mut OpenObject,
    options: &DatapathOptions,
    settings: &Settings,
) -> Result<(), DatapathError> {
    for mut map in open.maps_mut() {
        let name = name_of(map.name());
        let entries = match name.as_str() {
            "flow_counts" => settings.flow_shape().counts(),
            "ports" | "counters" | "hinted" | "outputs" | "loop_probes" => options.max_ports,
            "sockets" => BANKS * (options.max_ports + OWNERS_BESIDES_PORTS) * options.queues,
            "ring_accounts" => (options.max_ports + 1) * options.queues,
            "long_queues" => options.queues,
            "departures" => DEPARTURES_A_WORKER * options.queues,
            _ if is_constants(map.name()) => {
                let bytes = settings.to_bytes();
                map.set_initial_value(&bytes).map_err(DatapathError::bpf("set the programs' constants"))?;
                continue;
            }
            _ => continue,
        };
        map.set_max_entries(entries).map_err(DatapathError::bpf("size a BPF map"))?;
    }
    Ok(())
}

/// A handle of its own on one map of the object.
pub(crate) fn map(object: &Object, name: &'static str) -> Result<MapHandle, DatapathError> {
    let map =
        object.maps().find(|map| name_of(map.name()) == name).ok_or(DatapathError::Object { what: name })?;
    MapHandle::try_from(&map).map_err(DatapathError::bpf("take a BPF map's handle"))
}

/// A handle of its own on each map that other objects may share: all but the constants.
pub(crate) fn shared_maps(object: &Object) -> Result<Vec<(OsString, MapHandle)>, DatapathError> {
    let maps = object.maps().filter(|map| !is_constants(map.name()));
    maps.map(|map| Ok((map.name().to_owned(), MapHandle::try_from(&map)?)))
        .collect::<libbpf_rs::Result<_>>()
        .map_err(DatapathError::bpf("take a BPF map's handle"))
}

/// A descriptor of its own on one program of the object.
pub(crate) fn program(object: &Object, name: &'static str) -> Result<OwnedFd, DatapathError> {
    let program =
        object.progs().find(|program| program.name() == name).ok_or(DatapathError::Object { what: name })?;
    debug_assert!(matches!(program.prog_type(), ProgramType::Xdp | ProgramType::SchedCls));
    program
        .as_fd()
        .try_clone_to_owned()
        .map_err(|source| DatapathError::System { what: "duplicate a program's descriptor", source })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `BPF_STX | BPF_DW | BPF_ATOMIC`, and `BPF_FETCH` in what it is to do.
    const ATOMIC: u8 = 0xdb;
    const FETCH: i32 = 1;
    const STACK: u8 = 10;

    /// Nothing of a program's stack needs an atomic operation but for the order of what is around it, and without a
    /// result it orders nothing.
    #[test]
    fn what_keeps_loads_in_order_has_a_result() {
        let open = ObjectBuilder::default().open_memory(OBJECT).expect("an object");
        let programs = open.progs().map(|program| program.insns()).collect::<Vec<_>>();
        let atomics = programs.iter().copied().flatten();
        let ordering: Vec<_> = atomics
            .filter(|insn| insn.code == ATOMIC && insn.dst_reg() == STACK)
            .map(|insn| insn.imm)
            .collect();
        assert!(!ordering.is_empty() && ordering.iter().all(|what| what & FETCH != 0), "{ordering:?}");
    }
}
