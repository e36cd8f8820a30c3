//! The ports as the packet path sees them: a snapshot that the control thread replaces as a whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_control::rss::RssSteering;
use forebay_control::vlan::VlanMode;
use forebay_control::{IfIndex, PortId};
use forebay_kernel::Generations;

use crate::counters::{LatencyCells, PortCells};
use crate::output::Output;
use crate::rules::RuleSet;
use crate::vlan::PortVlans;

/// 2^64 divided by the golden ratio: it tells close numbers apart.
const MIXER: u64 = 0x9e37_79b9_7f4a_7c15;

/// No flow id is known: ids are 32 bits.
const NO_FLOW_ID: u64 = u64::MAX;

/// Flow ids count up, and begin anew.
#[inline]
fn is_after(flow_id: u32, last: u32) -> bool {
    flow_id.wrapping_sub(last).cast_signed() > 0
}

/// Netdevs that packets of a port with several members leave by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ways {
    all: Arc<[IfIndex]>,
    /// By worker, those on its NUMA node, or all where none is there. Empty: all are equally near.
    near: Arc<[Arc<[IfIndex]>]>,
}

impl Ways {
    /// Netdevs with their nodes, for workers on these nodes.
    pub(crate) fn new(netdevs: &[(IfIndex, Option<u32>)], workers: &[Option<u32>]) -> Self {
        let all: Arc<[IfIndex]> = netdevs.iter().map(|(ifindex, _)| *ifindex).collect();
        let on = |node: &Option<u32>| -> Arc<[IfIndex]> {
            let is_there = |(_, at): &&(IfIndex, Option<u32>)| node.is_some() && at == node;
            let there: Arc<[IfIndex]> =
                netdevs.iter().filter(is_there).map(|(ifindex, _)| *ifindex).collect();
            if there.is_empty() { Arc::clone(&all) } else { there }
        };
        let near: Arc<[_]> = workers.iter().map(on).collect();
        let is_alike = near.iter().all(|ways| *ways == all);
        Self { all, near: if is_alike { Arc::default() } else { near } }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// For packets of ports that this worker serves.
    #[inline]
    fn from(&self, worker: Option<usize>) -> &[IfIndex] {
        worker.and_then(|worker| self.near.get(worker)).unwrap_or(&self.all)
    }
}

/// One port in a snapshot.
#[derive(Clone, Debug)]
pub(crate) struct PortEntry {
    pub(crate) id: PortId,
    /// Where its packets leave; `None` while the netdev is down or gone.
    pub(crate) output: Option<Output>,
    pub(crate) mode: VlanMode,
    pub(crate) vlans: PortVlans,
    pub(crate) isolated: bool,
    /// There is a loop behind it: what comes in is dropped, and nothing is sent (its netdev is not named above).
    pub(crate) is_blocked: bool,
    /// Longest packet that it sends, without the Ethernet header.
    pub(crate) mtu: u32,
    /// TCP segments that leave by it are joined: its netdev leaves large packets whole or cuts them at once, or its guest
    /// takes them.
    pub(crate) takes_joints: bool,
    /// Packets may come in with their L4 checksum unfinished (XDP on a virtual netdev).
    pub(crate) completes_checksums: bool,
    pub(crate) cells: Arc<PortCells>,
    /// Where its packets' hints may tell when they arrived.
    pub(crate) latency: Option<Arc<LatencyCells>>,
    /// Its packets come in by XDP.
    pub(crate) is_xdp: bool,
    /// Its packets come from a virtual machine, where no kernel program sees them.
    pub(crate) is_guest: bool,
    /// XDP programs may send frames to it.
    pub(crate) takes_frames: bool,
    /// Of a port with several members, the netdevs that its packets leave by.
    pub(crate) ways: Ways,
    /// The worker that serves it, if one does for all of its packets.
    pub(crate) home: Option<usize>,
    /// Its packets go to workers by this, if they may go to several.
    pub(crate) steering: Option<RssSteering>,
    /// The worker of each of its channels, if it has any that rules can name.
    pub(crate) channels: Arc<[usize]>,
    /// The station at the other end of its veth, where packets for it can be put at once.
    pub(crate) peer: Option<u64>,
    /// Its XDP program tells what a flow says user space is to be told ([`forebay_kernel::FlowAction::Tell`]).
    pub(crate) is_told: bool,
    /// Flow ids of its packets up to this one were given before it changed, and stand for packets that may differ now:
    /// other rules may be asked of them in another VLAN. [`NO_FLOW_ID`]: none is known.
    pub(crate) last_flow_id_before: Arc<AtomicU64>,
    /// Somebody captures it: each packet must come to user space.
    pub(crate) is_captured: bool,
    /// That of what is above; [`Topology::succeed`] sets it.
    pub(crate) generation: u64,
}

impl PortEntry {
    /// Returns a port with these VLANs and nothing else: it has no output, and packets of it take no short cuts.
    pub(crate) fn new(id: PortId, mode: VlanMode, cells: Arc<PortCells>) -> Self {
        Self {
            id,
            output: None,
            vlans: PortVlans::new(&mode),
            mode,
            isolated: false,
            is_blocked: false,
            mtu: 1500,
            takes_joints: false,
            completes_checksums: false,
            cells,
            latency: None,
            is_xdp: false,
            is_guest: false,
            takes_frames: false,
            ways: Ways::default(),
            home: None,
            steering: None,
            channels: Arc::default(),
            peer: None,
            is_told: false,
            last_flow_id_before: Self::no_flow_ids(),
            is_captured: false,
            generation: 0,
        }
    }

    /// What [`PortEntry::last_flow_id_before`] is of a port that has just changed.
    pub(crate) fn no_flow_ids() -> Arc<AtomicU64> {
        Arc::new(AtomicU64::new(NO_FLOW_ID))
    }

    /// Flow ids that are given from now on, after this one, stand for packets of the port as it is.
    pub(crate) fn knows_flow_ids_after(&self, last: u32) {
        self.last_flow_id_before.store(last.into(), Ordering::Relaxed);
    }

    #[inline]
    fn knows_flow_id(&self, flow_id: u32) -> bool {
        match self.last_flow_id_before.load(Ordering::Relaxed) {
            NO_FLOW_ID => false,
            last => is_after(flow_id, last as u32),
        }
    }

    /// Where a packet between these stations leaves that came in at `input`. All packets between two stations leave by one
    /// member, in order.
    #[inline]
    pub(crate) fn way_out(&self, src: u64, dst: u64, input: Option<&PortEntry>) -> Option<Output> {
        let output = self.output?;
        if self.ways.is_empty() {
            return Some(output);
        }
        let ways = self.ways.from(input.and_then(|input| input.home));
        // The upper half of a product depends on all of its factors' bits.
        let hash = (src ^ dst.rotate_left(17)).wrapping_mul(MIXER) >> 32;
        Some(Output::Netdev(ways[((hash * ways.len() as u64) >> 32) as usize]))
    }

    /// Whether packets from and to this port are decided about as with `other`.
    fn decides_like(&self, other: &PortEntry) -> bool {
        self.output == other.output
            && self.mode == other.mode
            && self.isolated == other.isolated
            && self.is_blocked == other.is_blocked
            && self.mtu == other.mtu
            && self.ways == other.ways
            && self.channels == other.channels
            && self.is_xdp == other.is_xdp
            && self.takes_frames == other.takes_frames
            && self.peer == other.peer
            && self.is_captured == other.is_captured
    }
}

/// All ports at one moment, with the lists that flooding walks.
#[derive(Debug, Default)]
pub(crate) struct Topology {
    ports: Vec<Option<PortEntry>>,
    /// Index into `lists` of each VLAN's list; VLANs that no port names share list 0.
    list_of_vlan: Vec<u16>,
    lists: Vec<Box<[PortId]>>,
    /// That of the switch; odd while the kernel looks flows up.
    generation: u64,
    /// It follows them too.
    carries_flows: bool,
    /// Flow ids up to this one stand for packets that other rules had told apart.
    last_flow_id_before: u32,
    rules: Arc<RuleSet>,
    /// A port takes joint packets.
    takes_joints: bool,
    /// No other snapshot has it.
    serial: u64,
}

impl Topology {
    /// Builds the snapshot: linear in ports, times the VLANs that ports name.
    pub(crate) fn new(entries: impl IntoIterator<Item = PortEntry>) -> Self {
        let mut topology = Self {
            ports: Vec::new(),
            list_of_vlan: vec![0; 4096],
            lists: Vec::new(),
            generation: 0,
            carries_flows: false,
            last_flow_id_before: 0,
            rules: Arc::default(),
            takes_joints: false,
            serial: 0,
        };
        for entry in entries {
            topology.takes_joints |= entry.takes_joints;
            let index = usize::from(entry.id.0);
            if topology.ports.len() <= index {
                topology.ports.resize(index + 1, None);
            }
            topology.ports[index] = Some(entry);
        }
        topology.make_lists();
        topology
    }

    /// Gives each port, present and past, the generation that follows from what it was in `before`. Returns those that
    /// changed, to be told to the kernel once this snapshot is what workers see.
    pub(crate) fn succeed(&mut self, before: &Topology, generations: &Generations) -> Vec<(PortId, u64)> {
        self.serial = before.serial + 1;
        let mut changed = Vec::new();
        let ids = self.ports.len().max(before.ports.len()) as u16;
        for id in (0..ids).map(PortId) {
            let last = generations.of_port(id.0);
            let is_same = match (before.port(id), self.port(id)) {
                (Some(old), Some(new)) => new.decides_like(old),
                (None, None) => true,
                _ => false,
            };
            if let (true, Some(old), Some(Some(new))) =
                (is_same, before.port(id), self.ports.get_mut(usize::from(id.0)))
            {
                new.last_flow_id_before = Arc::clone(&old.last_flow_id_before);
            }
            let generation = last + u64::from(!is_same);
            if !is_same {
                changed.push((id, generation));
            }
            if let Some(Some(entry)) = self.ports.get_mut(usize::from(id.0)) {
                entry.generation = generation;
            }
        }
        changed
    }

    /// Gives each port the generation that it has: what it was before is what it is now.
    pub(crate) fn keep(&mut self, generations: &Generations) {
        for entry in self.ports.iter_mut().flatten() {
            entry.generation = generations.of_port(entry.id.0);
        }
    }

    /// The rules, and the generation of the switch that decisions under this snapshot are made in.
    pub(crate) fn set_rules(&mut self, rules: Arc<RuleSet>, generation: u64) {
        self.rules = rules;
        self.generation = generation;
    }

    /// Whether the kernel follows flows that it looks up, and which flow ids were given under other rules.
    pub(crate) fn set_flows(&mut self, carries_flows: bool, last_flow_id_before: u32) {
        self.carries_flows = carries_flows;
        self.last_flow_id_before = last_flow_id_before;
    }

    /// Whether packets of this port with this flow id fall under the same rule.
    #[inline]
    pub(crate) fn knows_flow_id(&self, port: &PortEntry, flow_id: u32) -> bool {
        flow_id != 0 && is_after(flow_id, self.last_flow_id_before) && port.knows_flow_id(flow_id)
    }

    /// Whether any port takes joint packets.
    #[inline]
    pub(crate) fn takes_joints(&self) -> bool {
        self.takes_joints
    }

    /// Tells snapshots apart.
    #[inline]
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    #[inline]
    pub(crate) fn rules(&self) -> &RuleSet {
        &self.rules
    }

    /// The generation of the switch.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether the kernel looks flows up: decisions are worth offering.
    #[inline]
    pub(crate) fn looks_up_flows(&self) -> bool {
        self.generation & 1 == 1
    }

    /// Whether it follows those that it can.
    #[inline]
    pub(crate) fn carries_flows(&self) -> bool {
        self.carries_flows
    }

    #[inline]
    pub(crate) fn port(&self, id: PortId) -> Option<&PortEntry> {
        self.ports.get(usize::from(id.0))?.as_ref()
    }

    pub(crate) fn ports(&self) -> impl Iterator<Item = &PortEntry> {
        self.ports.iter().flatten()
    }

    /// Ports that are up and carry VLAN `vid`.
    #[inline]
    pub(crate) fn members(&self, vid: u16) -> &[PortId] {
        let list = self.list_of_vlan.get(usize::from(vid)).copied().unwrap_or(0);
        self.lists.get(usize::from(list)).map_or(&[], |list| list)
    }

    fn make_lists(&mut self) {
        let mut named: Vec<u16> = self.ports().flat_map(|port| named_vlans(&port.mode)).collect();
        named.sort_unstable();
        named.dedup();
        let transparent = self.list(|port| matches!(port.mode, VlanMode::All));
        self.lists.push(transparent);
        for vid in named {
            self.list_of_vlan[usize::from(vid)] = self.lists.len() as u16;
            let members = self.list(|port| port.vlans.carries(vid));
            self.lists.push(members);
        }
    }

    fn list(&self, belongs: impl Fn(&PortEntry) -> bool) -> Box<[PortId]> {
        self.ports().filter(|port| port.output.is_some() && belongs(port)).map(|port| port.id).collect()
    }
}

fn named_vlans(mode: &VlanMode) -> Vec<u16> {
    match mode {
        VlanMode::All => Vec::new(),
        VlanMode::Access(vid) | VlanMode::AccessTagged(vid) => vec![vid.get()],
        VlanMode::Trunk { vids, native } => vids.iter().chain(native).map(|vid| vid.get()).collect(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use forebay_control::IfIndex;

    use super::*;

    pub(crate) fn entry(id: u16, mode: &str) -> PortEntry {
        let mode: VlanMode = mode.parse().expect("a VLAN mode");
        PortEntry {
            output: Some(Output::Netdev(IfIndex(100 + u32::from(id)))),
            takes_joints: true,
            takes_frames: true,
            last_flow_id_before: Arc::default(),
            ..PortEntry::new(PortId(id), mode, Arc::new(PortCells::new(1)))
        }
    }

    fn members(topology: &Topology, vid: u16) -> Vec<u16> {
        topology.members(vid).iter().map(|id| id.0).collect()
    }

    #[test]
    fn a_vlan_floods_to_the_ports_that_carry_it() {
        let topology = Topology::new([
            entry(0, "all"),
            entry(1, "access:10"),
            entry(2, "trunk:10,20,native:1"),
            entry(5, "trunk:20"),
        ]);
        assert_eq!(members(&topology, 0), [0]);
        assert_eq!(members(&topology, 1), [0, 2]);
        assert_eq!(members(&topology, 10), [0, 1, 2]);
        assert_eq!(members(&topology, 20), [0, 2, 5]);
        assert_eq!(members(&topology, 4094), [0]);
    }

    #[test]
    fn a_port_whose_netdev_is_gone_gets_no_flood() {
        let gone = PortEntry { output: None, ..entry(1, "all") };
        let topology = Topology::new([entry(0, "all"), gone]);
        assert_eq!(members(&topology, 0), [0]);
        assert!(topology.port(PortId(1)).is_some(), "but it is still known");
    }

    #[test]
    fn a_port_that_is_blocked_gets_no_flood_and_its_flows_are_void() {
        let generations = Generations::detached(2).expect("memory");
        let before = Topology::new([entry(0, "all"), entry(1, "all")]);
        let blocked = PortEntry { is_blocked: true, output: None, ..entry(1, "all") };
        let mut topology = Topology::new([entry(0, "all"), blocked]);
        assert_eq!(members(&topology, 0), [0]);
        assert_eq!(topology.succeed(&before, &generations), [(PortId(1), 1)]);
    }

    #[test]
    fn flow_ids_that_a_port_had_before_it_changed_are_not_known() {
        let generations = Generations::detached(2).expect("memory");
        let before = Topology::new([entry(0, "all"), entry(1, "all")]);
        let changed = PortEntry { last_flow_id_before: PortEntry::no_flow_ids(), ..entry(0, "access:20") };
        let same = PortEntry { last_flow_id_before: PortEntry::no_flow_ids(), ..entry(1, "all") };
        let mut topology = Topology::new([changed, same]);
        topology.succeed(&before, &generations);
        let knows = |id, flow_id| topology.port(PortId(id)).map(|port| topology.knows_flow_id(port, flow_id));
        assert_eq!((knows(0, 5), knows(1, 5)), (Some(false), Some(true)));
        topology.port(PortId(0)).expect("it is there").knows_flow_ids_after(5);
        assert_eq!((knows(0, 5), knows(0, 6)), (Some(false), Some(true)));
    }

    #[test]
    fn packets_leave_by_members_on_the_node_of_their_worker_where_there_are_some() {
        let netdevs = [(IfIndex(1), Some(0)), (IfIndex(2), Some(1)), (IfIndex(3), Some(1))];
        let group =
            |workers: &[Option<u32>]| PortEntry { ways: Ways::new(&netdevs, workers), ..entry(0, "all") };
        let used = |group: &PortEntry, home| {
            let input = PortEntry { home, ..entry(1, "all") };
            let ways = (0..64).filter_map(|src| Some(group.way_out(src << 8, 7, Some(&input))?.ifindex()?.0));
            ways.collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>()
        };
        let near = group(&[Some(0), Some(1), Some(2), None]);
        assert_eq!((used(&near, Some(0)), used(&near, Some(1))), (vec![1], vec![2, 3]));
        for all in [Some(2), Some(3), None] {
            assert_eq!(used(&near, all), [1, 2, 3], "{all:?}");
        }
        assert_eq!(used(&group(&[None; 2]), Some(1)), [1, 2, 3]);
    }

    #[test]
    fn an_empty_switch_floods_to_nobody() {
        assert!(Topology::default().members(7).is_empty());
    }
}
