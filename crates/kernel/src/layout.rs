//! bpf/forebay.h as Rust sees it. A test compares the two through the BTF of the compiled object.

use forebay_control::IfIndex;
use forebay_control::rss::RssSteering;

/// Set before loading.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Settings {
    pub(crate) queues: u32,
    pub(crate) frame_payload: u32,
    pub(crate) shared_ring: u32,
    pub(crate) never: u32,
    pub(crate) buckets: u32,
    pub(crate) stripe_mask: u32,
    pub(crate) near_mask: u32,
    pub(crate) has_shared_stripes: u32,
    pub(crate) is_weakly_ordered: u32,
    pub(crate) outlives: u32,
    pub(crate) reads_kernel: u32,
    pub(crate) port_mask: u32,
    pub(crate) secret: [u64; 5],
}

/// Counts up when the maps that outlive a daemon, or what lies in them, is no more what it was.
pub(crate) const FORMAT: u32 = 9;

impl Settings {
    /// What is in the pinned `struct format` of maps with these settings: all but what only programs care about.
    pub(crate) fn format(self) -> Vec<u8> {
        let head = [FORMAT, 0].into_iter().flat_map(u32::to_ne_bytes);
        head.chain(Self { reads_kernel: 0, ..self }.to_bytes()).collect()
    }

    /// These settings with the secret of `format`, if that is of maps made for the same.
    pub(crate) fn adopt(self, format: &[u8]) -> Option<Self> {
        let secret = format.get(format.len().checked_sub(size_of::<[u64; 5]>())?..)?;
        let (words, _) = secret.as_chunks::<8>();
        let mut adopted = self;
        for (part, word) in adopted.secret.iter_mut().zip(words) {
            *part = u64::from_ne_bytes(*word);
        }
        (adopted.format() == format).then_some(adopted)
    }

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let words = [
            self.queues,
            self.frame_payload,
            self.shared_ring,
            self.never,
            self.buckets,
            self.stripe_mask,
            self.near_mask,
            self.has_shared_stripes,
            self.is_weakly_ordered,
            self.outlives,
            self.reads_kernel,
            self.port_mask,
        ];
        let words = words.iter().flat_map(|word| word.to_ne_bytes());
        words.chain(self.secret.iter().flat_map(|word| word.to_ne_bytes())).collect()
    }
}

/// Collectors that can stand at once: two lanes, and two that follow them when the pool changes.
pub const COLLECTORS: u32 = 4;
/// Banks of the table of sockets: one a collector, and one for sockets on the ports' own netdevs.
pub(crate) const BANKS: u32 = COLLECTORS + 1;

/// Entries of a bank that are no port's: the ring that ports share, and the one for draining.
pub(crate) const OWNERS_BESIDES_PORTS: u32 = 2;

/// Where the sockets of a port are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bank {
    /// On one of the collectors, by its number below [`COLLECTORS`].
    Collector(u8),
    /// On the port's own netdev.
    Direct,
}

impl Bank {
    pub(crate) fn number(self) -> u32 {
        match self {
            Bank::Collector(number) => {
                assert!(u32::from(number) < COLLECTORS, "collector {number}");
                number.into()
            }
            Bank::Direct => COLLECTORS,
        }
    }
}

/// Both ends of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectorEnds {
    /// In the ports' namespace.
    pub transmit_ifindex: IfIndex,
    /// In the private namespace.
    pub receive_ifindex: IfIndex,
}

impl CollectorEnds {
    pub(crate) fn to_bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.transmit_ifindex.0.to_ne_bytes());
        bytes[4..].copy_from_slice(&self.receive_ifindex.0.to_ne_bytes());
        bytes
    }
}

/// `PORT_STEERS` and `PORT_STEERS_TO_OUTPUTS`.
const STEERS: u16 = 2;
const STEERS_TO_OUTPUTS: u16 = 4;

/// How the kernel programs treat what comes in on a netdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Source port id; the index of its counters.
    pub port_id: u16,
    /// Collector queue of a tcx port. Frames of an XDP port take the queue of the CPU they arrive on.
    pub queue: u16,
    /// Where its sockets are.
    pub bank: Bank,
    /// Frames may come in with their L4 checksum unfinished.
    pub leaves_checksums: bool,
    /// What else a tcx port's packets go to a queue by.
    pub steering: Option<RssSteering>,
    /// Where packets may go to several queues, a bit for each whose worker is on the netdev's NUMA node.
    pub near_queues: u64,
}

impl PortConfig {
    /// `struct near_port` of the port's netdev.
    pub(crate) fn near(self, ifindex: IfIndex) -> u64 {
        let [a, b, c, d] = ifindex.0.to_ne_bytes();
        let ([e, f], [g, h]) = (self.port_id.to_ne_bytes(), u16::from(self.leaves_checksums).to_ne_bytes());
        u64::from_ne_bytes([a, b, c, d, e, f, g, h])
    }

    pub(crate) fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&self.port_id.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.queue.to_ne_bytes());
        bytes[4..6].copy_from_slice(&(self.bank.number() as u16).to_ne_bytes());
        let steers = match self.steering {
            None => 0,
            Some(RssSteering::Hash) => STEERS,
            Some(RssSteering::Output) => STEERS | STEERS_TO_OUTPUTS,
        };
        bytes[6..8].copy_from_slice(&(u16::from(self.leaves_checksums) | steers).to_ne_bytes());
        bytes[8..].copy_from_slice(&self.near_queues.to_ne_bytes());
        bytes
    }
}

/// Last bytes of `struct port_origin`, which are the layout's id of a packet without hints.
pub const LAYOUT_ORIGIN: u32 = 0x4642_7071;
/// Bytes of an origin, which lie below the packet and its hints.
pub const ORIGIN_BYTES: usize = 8;

/// The source port id in an origin. `None`: the packet has no origin.
pub fn source_port(origin: &[u8; ORIGIN_BYTES]) -> Option<u16> {
    let word = |at: usize| u32::from_ne_bytes([origin[at], origin[at + 1], origin[at + 2], origin[at + 3]]);
    (word(4) == LAYOUT_ORIGIN).then(|| u16::try_from(word(0)).ok()).flatten()
}

/// The structs of hints that our own programs write; their ids are 1, 2, ….
pub const OWN_LAYOUTS: [&str; 2] = ["forebay_hints___xdp", "forebay_hints___collector"];

/// Slots of stations' generations.
pub(crate) const STATIONS: u32 = 16_384;

/// `struct departure`s of one worker.
pub(crate) const DEPARTURES_A_WORKER: u32 = 128;

/// Words of `struct port_counters`.
pub(crate) const COUNTER_WORDS: usize = 8;

#[cfg(test)]
mod tests {
    use libbpf_rs::btf::types::{MemberAttr, Struct};
    use libbpf_rs::btf::{Btf, HasSize as _};

    use std::mem::offset_of;

    use super::*;
    use crate::accounts::{Pool, Ring};
    use crate::flows::{Flow, Says};
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

        let named =
            |names: &[(&str, u32)]| names.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect();
        let settings = [
            ("queues", offset_of!(Settings, queues) as u32),
            ("frame_payload", offset_of!(Settings, frame_payload) as u32),
            ("shared_ring", offset_of!(Settings, shared_ring) as u32),
            ("never", offset_of!(Settings, never) as u32),
            ("buckets", offset_of!(Settings, buckets) as u32),
            ("stripe_mask", offset_of!(Settings, stripe_mask) as u32),
            ("near_mask", offset_of!(Settings, near_mask) as u32),
            ("has_shared_stripes", offset_of!(Settings, has_shared_stripes) as u32),
            ("is_weakly_ordered", offset_of!(Settings, is_weakly_ordered) as u32),
            ("outlives", offset_of!(Settings, outlives) as u32),
            ("reads_kernel", offset_of!(Settings, reads_kernel) as u32),
            ("port_mask", offset_of!(Settings, port_mask) as u32),
            ("secret", offset_of!(Settings, secret) as u32),
        ];
        assert_eq!(offsets(&btf, "settings"), (size_of::<Settings>(), named(&settings)));
        let config = [("port_id", 0), ("queue", 2), ("bank", 4), ("flags", 6), ("near_queues", 8)];
        assert_eq!(offsets(&btf, "port_config"), (16, named(&config)));
        assert_eq!(offsets(&btf, "near_port"), (8, named(&[("ifindex", 0), ("port_id", 4), ("flags", 6)])));
        let flow = [
            ("key", offset_of!(Flow, key) as u32),
            ("decided", offset_of!(Flow, decided) as u32),
            ("version", offset_of!(Flow, version) as u32),
            ("ifindex", offset_of!(Flow, ifindex) as u32),
            ("says", offset_of!(Flow, says) as u32),
        ];
        assert_eq!(offsets(&btf, "flow"), (size_of::<Flow>(), named(&flow)));
        let says = [
            ("output", offset_of!(Says, output) as u32),
            ("max_length", offset_of!(Says, max_length) as u32),
            ("source", offset_of!(Says, source) as u32),
            ("destination", offset_of!(Says, destination) as u32),
            ("action", offset_of!(Says, action) as u32),
            ("tag", offset_of!(Says, tag) as u32),
            ("vid", offset_of!(Says, vid) as u32),
            ("mark", offset_of!(Says, mark) as u32),
        ];
        assert_eq!(offsets(&btf, "flow_says"), (size_of::<Says>(), named(&says)));
        assert_eq!(
            offsets(&btf, "flow_count"),
            (32, named(&[("packets", 0), ("bytes", 8), ("checked", 16), ("reserved", 24)]))
        );
        let prefix = named(&[("bits", 0), ("which", 4), ("address", 8)]);
        assert_eq!(offsets(&btf, "prefix_key"), (24, prefix));
        let numbers =
            named(&[("source_port", 0), ("destination_port", 2), ("ethertype", 4), ("protocol", 6)]);
        assert_eq!(offsets(&btf, "number_classes"), (8, numbers));
        let format = [("version", 0), ("reserved", 4), ("settings", 8)];
        assert_eq!(offsets(&btf, "format"), (8 + size_of::<Settings>(), named(&format)));
        let ends = [("transmit_ifindex", 0), ("receive_ifindex", 4)];
        assert_eq!(offsets(&btf, "collector_ends"), (8, named(&ends)));
        // crates/xsk/src/transmit/departures.rs has the other side.
        let departure = ["ifindex", "length", "again", "tag_bytes", "result", "mark", "packet"];
        let departure = departure.map(str::to_owned).into_iter().zip([0, 4, 6, 7, 8, 12, 16]).collect();
        assert_eq!(offsets(&btf, "departure"), (2048, departure));
        let ring = [
            ("taken", 0),
            ("long_taken", 8),
            ("long_at", 16),
            ("reserved_taken", 24),
            ("settled", offset_of!(Ring, settled) as u32),
            ("depth", offset_of!(Ring, depth) as u32),
            ("reserve", offset_of!(Ring, reserve) as u32),
            ("th", offset_of!(Ring, th) as u32),
            ("limit", offset_of!(Ring, limit) as u32),
            ("long_settled", offset_of!(Ring, long_settled) as u32),
            ("reserved_settled", offset_of!(Ring, reserved) as u32),
        ];
        assert_eq!(offsets(&btf, "ring_account"), (size_of::<Ring>(), named(&ring)));
        let pool = [
            ("taken", 0),
            ("reserved_taken", 8),
            ("settled", offset_of!(Pool, settled) as u32),
            ("size", offset_of!(Pool, size) as u32),
            ("headroom", offset_of!(Pool, headroom) as u32),
            ("first_burst", offset_of!(Pool, first_burst) as u32),
            ("reserved_settled", offset_of!(Pool, reserved) as u32),
        ];
        assert_eq!(offsets(&btf, "pool_account"), (size_of::<Pool>(), named(&pool)));
        // crates/kernel/src/probes.rs has the other side.
        assert_eq!(offsets(&btf, "loop_watch"), (16, named(&[("switch_id", 0), ("seen", 8)])));
        assert_eq!(offsets(&btf, "loop_probes_seen"), (72, named(&[("count", 0), ("probes", 8)])));
        let (bytes, members) = offsets(&btf, "port_counters");
        assert_eq!(bytes, COUNTER_WORDS * 8);
        let names: Vec<_> = members.iter().map(|(name, at)| (name.as_str(), *at)).collect();
        assert_eq!(
            names,
            [
                ("slow_path_packets", 0),
                ("collected_packets", 8),
                ("unclaimed_packets", 16),
                ("refused_packets", 24),
                ("over_threshold_packets", 32),
                ("ring_full_packets", 40),
                ("too_big_packets", 48),
                ("far_packets", 56),
            ]
        );
    }

    #[test]
    fn an_origin_names_its_port_and_nothing_else_does() {
        let origin = |port: u32, layout: u32| {
            let mut bytes = [0; ORIGIN_BYTES];
            bytes[..4].copy_from_slice(&port.to_ne_bytes());
            bytes[4..].copy_from_slice(&layout.to_ne_bytes());
            bytes
        };
        assert_eq!(source_port(&origin(7, LAYOUT_ORIGIN)), Some(7));
        assert_eq!(source_port(&origin(70_000, LAYOUT_ORIGIN)), None);
        assert_eq!(source_port(&origin(7, 0)), None);
    }
}
