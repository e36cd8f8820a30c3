//! bpf/forebay.h as Rust sees it. A test compares the two through the BTF of the compiled object.

/// Set before loading.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Settings {
    pub(crate) collector_ifindex: u32,
    pub(crate) collector_queues: u32,
    pub(crate) frame_payload: u32,
    pub(crate) reserved: u32,
}

impl Settings {
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.collector_ifindex.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.collector_queues.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.frame_payload.to_ne_bytes());
        bytes
    }
}

/// How the kernel programs treat what comes in on a netdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PortConfig {
    /// Source port id; the index of its counters.
    pub port_id: u16,
    /// Collector queue of a tcx port. Frames of an XDP port take the queue of the CPU they arrive on.
    pub queue: u16,
    /// Zero.
    pub reserved: u32,
}

impl PortConfig {
    pub(crate) fn to_bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..2].copy_from_slice(&self.port_id.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.queue.to_ne_bytes());
        bytes[4..].copy_from_slice(&self.reserved.to_ne_bytes());
        bytes
    }
}

/// `struct departure`s of one worker.
pub(crate) const DEPARTURES_A_WORKER: u32 = 64;

/// Words of `struct port_counters`.
pub(crate) const COUNTER_WORDS: usize = 8;

#[cfg(test)]
mod tests {
    use libbpf_rs::btf::types::{MemberAttr, Struct};
    use libbpf_rs::btf::{Btf, HasSize as _};

    use std::mem::offset_of;

    use super::*;
    use crate::accounts::{Pool, Ring};
    use crate::object::OBJECT;

    fn offsets(btf: &Btf<'_>, name: &str) -> (usize, Vec<(String, u32)>) {
        let found: Struct<'_> =
            btf.type_by_name(name).unwrap_or_else(|| panic!("struct {name} in the object's BTF"));
        let members = found
            .iter()
            .map(|member| {
                let name = member.name.expect("a named member").to_string_lossy().into_owned();
                let MemberAttr::Normal { offset } = member.attr else { panic!("no bit-fields here") };
                (name, offset / 8)
            })
            .collect();
        (found.size(), members)
    }

    #[test]
    fn both_sides_read_the_same_layout() {
        let file = std::env::temp_dir().join(format!("forebay-layout-{}.o", std::process::id()));
        std::fs::write(&file, OBJECT).expect("a temporary file");
        let btf = Btf::from_path(&file).expect("the object has BTF");
        std::fs::remove_file(&file).expect("it was just written");

        assert_eq!(
            offsets(&btf, "settings"),
            (
                size_of::<Settings>(),
                vec![
                    ("collector_ifindex".into(), 0),
                    ("collector_queues".into(), 4),
                    ("frame_payload".into(), 8),
                    ("reserved".into(), 12)
                ]
            )
        );
        assert_eq!(
            offsets(&btf, "port_config"),
            (
                size_of::<PortConfig>(),
                vec![("port_id".into(), 0), ("queue".into(), 2), ("reserved".into(), 4)]
            )
        );
        // crates/xsk/src/transmit/departures.rs has the other side.
        let departure = ["ifindex", "length", "again", "tag_bytes", "result", "reserved", "packet"];
        let departure = departure.map(str::to_owned).into_iter().zip([0, 4, 6, 7, 8, 12, 16]).collect();
        assert_eq!(offsets(&btf, "departure"), (2048, departure));
        let names =
            |names: &[(&str, u32)]| names.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect();
        let ring = [
            ("taken", 0),
            ("reserved_taken", 8),
            ("settled", offset_of!(Ring, settled) as u32),
            ("depth", offset_of!(Ring, depth) as u32),
            ("reserve", offset_of!(Ring, reserve) as u32),
            ("th", offset_of!(Ring, th) as u32),
            ("limit", offset_of!(Ring, limit) as u32),
            ("reserved_settled", offset_of!(Ring, reserved) as u32),
        ];
        assert_eq!(offsets(&btf, "ring_account"), (size_of::<Ring>(), names(&ring)));
        let pool = [
            ("taken", 0),
            ("reserved_taken", 8),
            ("settled", offset_of!(Pool, settled) as u32),
            ("size", offset_of!(Pool, size) as u32),
            ("reserved_settled", offset_of!(Pool, reserved) as u32),
        ];
        assert_eq!(offsets(&btf, "pool_account"), (size_of::<Pool>(), names(&pool)));
        let (bytes, members) = offsets(&btf, "port_counters");
        assert_eq!(bytes, COUNTER_WORDS * 8);
        let names: Vec<_> = members.iter().map(|(name, at)| (name.as_str(), *at)).collect();
        assert_eq!(
            names,
            [
                ("offered_packets", 0),
                ("collected_packets", 8),
                ("unclaimed_packets", 16),
                ("refused_packets", 24),
                ("over_threshold_packets", 32),
                ("reserved", 40),
            ]
        );
    }
}
