//! What tests and fuzz targets share: a switch without packets.

mod rules;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use forebay_control::capture::{Capture, CaptureSelect, Captured};
use forebay_control::channels::ChannelShow;
use forebay_control::coalesce::{
    CoalesceBy, CoalesceConfig, CoalesceDirection, CoalesceNetdev, CoalesceNetdevSetting, CoalescePolicy,
    CoalescePort, CoalesceQueue, CoalesceSet, CoalesceSetting, CoalesceShow, CoalesceSide, CoalesceValues,
};
use forebay_control::config::Settings;
use forebay_control::eswitch::{EswitchSet, EswitchSetReply, EswitchShow, Offload};
use forebay_control::fdb::{FdbAdd, FdbDel, FdbEntry, FdbFlush, FdbFlushReply, FdbKind};
use forebay_control::flow::{FlowEntry, FlowFlushReply, FlowList, FlowTable};
use forebay_control::hints::{HintsPort, HintsSet, HintsShow};
use forebay_control::netdev_queue::{NetdevNapi, NetdevQueue, QueueType};
use forebay_control::occupancy::{ClearmaxReply, Occupancy, PoolOccupancy, PortOccupancy};
use forebay_control::page_pool::{PagePool, PagePoolIds};
use forebay_control::pool::{PoolPort, PoolPortSet, PoolSet, PoolShow};
use forebay_control::port::{
    AttachKind, PortAdd, PortAddRefused, PortAddReply, PortDelRefused, PortDelReply, PortSet, PortShow,
    PortSpec, PortState,
};
use forebay_control::rss::{RssChannel, RssSet, RssShow};
use forebay_control::rule::{RuleAdd, RuleShow};
use forebay_control::rxq::{RxqCollector, RxqCollectorSet, RxqPort, RxqSet, RxqShow, check_depth};
use forebay_control::stats::{
    Balance, LatencyShow, PortStats, StatsCheck, StatsShow, WorkerStats, WorkersShow,
};
use forebay_control::{ApiError, ErrorCode, IfIndex, MacAddr, PortCounters, PortId, SwitchControl, Vid};

/// A switch that keeps ports and entries like the real one and has no packets. Netdevs whose name begins with
/// `missing` are not there.
#[derive(Debug, Default)]
pub(crate) struct MemorySwitch {
    state: Mutex<State>,
    /// Held by a test while the switch has no counters to show.
    counters: Mutex<()>,
    looks: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    ports: BTreeMap<PortId, PortShow>,
    entries: BTreeMap<(Vid, MacAddr), FdbEntry>,
    flows: Vec<FlowEntry>,
    rules: BTreeMap<u64, RuleAdd>,
    last_rule: u64,
    offload: Offload,
    settings: Option<Settings>,
    coalesce_defaults: Option<CoalesceConfig>,
    /// What was stated for ports, and for those that stated nothing when they were added or changed.
    stated: BTreeMap<String, Vec<CoalesceSet>>,
    occupancy: Option<PoolOccupancy>,
}

impl MemorySwitch {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics while it holds the lock")
    }
}

/// A receive queue that has served ten packets in four turns by one interrupt.
pub(crate) fn coalesce_queue() -> CoalesceQueue {
    CoalesceQueue {
        queue: 0,
        direction: CoalesceDirection::Rx,
        setting: CoalesceSetting::default(),
        usecs_now: 64,
        frames_now: 256,
        spares_short: true,
        usecs_asked: Some(128),
        frames_asked: Some(512),
        moves: 2,
        packets: 10,
        bytes: 15_000,
        turns: 4,
        interrupts: 1,
        suppressed: 1,
        timed: 2,
        late: 1,
        saved: 2,
    }
}

/// A netdev whose driver chooses for what it sends, and a policy for what it receives.
pub(crate) fn coalesce_netdev() -> CoalesceNetdev {
    let of_policy = |policy| CoalesceNetdevSetting { policy, ..CoalesceNetdevSetting::default() };
    let napi = NetdevNapi {
        id: 258,
        ifindex: IfIndex(7),
        irq: Some(40),
        pid: None,
        defer_hard_irqs: Some(0),
        gro_flush_timeout: Some(0),
        irq_suspend_timeout: None,
    };
    CoalesceNetdev {
        netdev: "eth1".to_owned(),
        ifindex: IfIndex(7),
        by: CoalesceBy::Ethtool,
        rx: CoalesceSide {
            setting: of_policy(CoalescePolicy::Dim),
            now: CoalesceValues { usecs: Some(64), frames: Some(256), adaptive: Some(false) },
            moves: 2,
            packets: 10,
            bytes: 15_000,
            interrupts: Some(1),
            problem: "can't do it".to_owned(),
        },
        tx: CoalesceSide {
            setting: of_policy(CoalescePolicy::Driver),
            now: CoalesceValues { usecs: Some(8), frames: None, adaptive: Some(true) },
            ..CoalesceSide::default()
        },
        napis: vec![napi],
    }
}

/// What tests do behind the API.
#[cfg(test)]
impl MemorySwitch {
    /// Whoever asks for counters waits until this is dropped.
    pub(crate) fn hold_counters(&self) -> MutexGuard<'_, ()> {
        self.counters.lock().expect("no test panics while it holds the lock")
    }

    /// How many times somebody asked for counters.
    pub(crate) fn looks(&self) -> usize {
        self.looks.load(Ordering::SeqCst)
    }

    pub(crate) fn settings(&self) -> Option<Settings> {
        self.state().settings
    }

    pub(crate) fn default_coalescing(&self) -> Option<CoalesceConfig> {
        self.state().coalesce_defaults.clone()
    }

    /// What moderates a port since it was added or changed.
    pub(crate) fn stated(&self, name: &str) -> Vec<CoalesceSet> {
        self.state().stated[name].clone()
    }

    /// Lets a decision have been made.
    pub(crate) fn decide(&self, flow: FlowEntry) {
        self.state().flows.push(flow);
    }

    /// Lets a port have counted something.
    pub(crate) fn count(&self, name: &str, counters: PortCounters) {
        let mut state = self.state();
        let port = state.ports.values_mut().find(|port| port.name == name).expect("the test added the port");
        port.counters = counters;
    }
}

impl State {
    fn add(&mut self, spec: PortSpec, wait: bool) -> Result<PortShow, ApiError> {
        let is_missing = spec.netdev.starts_with("missing");
        if is_missing && !wait {
            return Err(ApiError::new(ErrorCode::NoSuchNetdev, format!("no netdev `{}`", spec.netdev)));
        }
        if self.ports.values().any(|port| port.netdev == spec.netdev) {
            return Err(ApiError::new(
                ErrorCode::AlreadyPort,
                format!("`{}` is a port already", spec.netdev),
            ));
        }
        let id = (0..).map(PortId).find(|id| !self.ports.contains_key(id)).expect("fewer ports than ids");
        let mut port = show(id, &spec);
        self.state(&port.name, spec.coalesce);
        if is_missing {
            (port.state, port.ifindex) = (PortState::NetdevMissing, None);
        }
        self.ports.insert(id, port.clone());
        Ok(port)
    }

    fn id_of(&self, name: &str) -> Result<PortId, ApiError> {
        let port = self.ports.values().find(|port| port.name == name);
        port.map(|port| port.id)
            .ok_or_else(|| ApiError::new(ErrorCode::NoSuchPort, format!("no port `{name}`")))
    }

    fn netdevs_of(&self, name: Option<&str>) -> Result<Vec<IfIndex>, ApiError> {
        let only = name.map(|name| self.id_of(name)).transpose()?;
        let ports = self.ports.values().filter(|port| only.is_none_or(|id| id == port.id));
        Ok(ports.filter_map(|port| port.ifindex).collect())
    }

    fn state(&mut self, name: &str, coalesce: Vec<CoalesceSet>) {
        let defaults = || self.coalesce_defaults.clone().unwrap_or_default().netdevs;
        let stated = if coalesce.is_empty() { defaults() } else { coalesce };
        self.stated.insert(name.to_owned(), stated);
    }

    fn delete(&mut self, name: &str) -> Result<(), ApiError> {
        self.ports.remove(&self.id_of(name)?);
        self.entries.retain(|_, entry| entry.port != name);
        Ok(())
    }
}

fn show(id: PortId, spec: &PortSpec) -> PortShow {
    PortShow {
        id,
        name: spec.port_name().to_owned(),
        netdev: spec.netdev.clone(),
        members: Vec::new(),
        ifindex: Some(IfIndex(u32::from(id.0) + 10)),
        vhost_user: None,
        attach: AttachKind::Tcx,
        requested: spec.attach,
        state: PortState::Up,
        state_reason: String::new(),
        vlan: spec.vlan.clone(),
        isolated: spec.isolated,
        mtu: 1500,
        promiscuous: false,
        unicast_filter: None,
        worker: vec![0],
        rx_ring_depth: 512,
        counters: PortCounters::default(),
    }
}

/// A capture of one packet.
struct OnePacket(Option<Captured>);

impl Capture for OnePacket {
    fn next(&mut self) -> Option<Captured> {
        self.0.take()
    }

    fn is_over(&self) -> bool {
        self.0.is_none()
    }
}

impl SwitchControl for MemorySwitch {
    fn port_add(&self, request: PortAdd) -> PortAddReply {
        let mut reply = PortAddReply::default();
        for spec in request.ports {
            let netdev = spec.netdev.clone();
            match self.state().add(spec, request.wait) {
                Ok(port) => reply.added.push(port),
                Err(error) => reply.refused.push(PortAddRefused { netdev, error }),
            }
        }
        reply
    }

    fn port_del(&self, names: &[String]) -> Result<PortDelReply, ApiError> {
        let mut reply = PortDelReply::default();
        for name in names {
            match self.state().delete(name) {
                Ok(()) => reply.deleted.push(name.clone()),
                Err(error) => reply.refused.push(PortDelRefused { name: name.clone(), error }),
            }
        }
        Ok(reply)
    }

    fn port_set(&self, name: &str, change: PortSet) -> Result<PortShow, ApiError> {
        let mut state = self.state();
        let id = state.id_of(name)?;
        if let Some(stated) = change.coalesce {
            state.state(name, stated);
        }
        let port = state.ports.get_mut(&id).expect("id_of found it");
        port.vlan = change.vlan.unwrap_or_else(|| port.vlan.clone());
        port.isolated = change.isolated.unwrap_or(port.isolated);
        Ok(port.clone())
    }

    fn port_list(&self) -> Vec<PortShow> {
        self.state().ports.values().cloned().collect()
    }

    fn port_show(&self, name: &str) -> Result<PortShow, ApiError> {
        let state = self.state();
        Ok(state.ports[&state.id_of(name)?].clone())
    }

    fn fdb_list(&self) -> Vec<FdbEntry> {
        self.state().entries.values().cloned().collect()
    }

    fn fdb_add(&self, request: FdbAdd) -> Result<FdbEntry, ApiError> {
        let mut state = self.state();
        state.id_of(&request.port)?;
        let FdbAdd { vlan, mac, port } = request;
        let entry = FdbEntry { vlan, mac, port, kind: FdbKind::Static, age_seconds: 0 };
        state.entries.insert((vlan, mac), entry.clone());
        Ok(entry)
    }

    fn fdb_del(&self, request: FdbDel) -> Result<FdbEntry, ApiError> {
        let gone = self.state().entries.remove(&(request.vlan, request.mac));
        gone.ok_or_else(|| ApiError::new(ErrorCode::NoSuchEntry, format!("no entry for {}", request.mac)))
    }

    fn fdb_flush(&self, request: FdbFlush) -> Result<FdbFlushReply, ApiError> {
        let mut state = self.state();
        let before = state.entries.len();
        state.entries.retain(|_, entry| {
            entry.kind == FdbKind::Static
                || request.port.as_ref().is_some_and(|port| *port != entry.port)
                || request.vlan.is_some_and(|vlan| vlan != entry.vlan)
        });
        Ok(FdbFlushReply { flushed: (before - state.entries.len()) as u64 })
    }

    fn rule_list(&self) -> Vec<RuleShow> {
        self.state().list_rules()
    }

    fn flow_add(&self, request: RuleAdd) -> Result<RuleShow, ApiError> {
        self.state().add_rule(request)
    }

    fn flow_del(&self, id: u64) -> Result<RuleShow, ApiError> {
        self.state().delete_rule(id)
    }

    fn flow_list(&self) -> FlowList {
        let (table, rules) = (self.flow_table(), self.rule_list());
        FlowList { table, flows: self.state().flows.clone(), rules }
    }

    fn flow_table(&self) -> FlowTable {
        let state = self.state();
        FlowTable { offload: state.offload, entries: state.flows.len() as u64, ..FlowTable::default() }
    }

    fn flow_flush(&self) -> Result<FlowFlushReply, ApiError> {
        Ok(FlowFlushReply { flushed: self.state().flows.drain(..).count() as u64 })
    }

    fn stats(&self) -> StatsShow {
        self.looks.fetch_add(1, Ordering::SeqCst);
        drop(self.counters.lock());
        let stats =
            |port: &PortShow| PortStats { id: port.id, name: port.name.clone(), counters: port.counters };
        let ports: Vec<PortStats> = self.state().ports.values().map(stats).collect();
        let total: PortCounters = ports.iter().map(|port| port.counters).sum();
        let out = total.forwarded_packets + total.flooded_packets + total.drops.input();
        let check =
            StatsCheck::new(vec![Balance::new("rx = forwarded + flooded + dropped", total.rx_packets, out)]);
        StatsShow {
            total,
            ports,
            workers: vec![WorkerStats { packets: total.rx_packets, ..Default::default() }],
            check,
        }
    }

    fn workers(&self) -> WorkersShow {
        WorkersShow { elapsed_ns: 2_000_000_000, workers: self.stats().workers }
    }

    fn latency(&self) -> LatencyShow {
        LatencyShow::default()
    }

    fn workers_clear(&self) -> WorkersShow {
        self.workers()
    }

    fn pool(&self) -> PoolShow {
        PoolShow { frame_size: 2048, frames_total: 16384, frames_free: 16384, ..PoolShow::default() }
    }

    fn pool_set(&self, change: PoolSet) -> Result<PoolShow, ApiError> {
        Ok(PoolShow { policy: change.policy.unwrap_or_default(), ..self.pool() })
    }

    fn rxq(&self) -> RxqShow {
        let named = |port: &PortShow| RxqPort { name: port.name.clone(), ..RxqPort::default() };
        RxqShow { ports: self.port_list().iter().map(named).collect(), ..RxqShow::default() }
    }

    fn rxq_set(&self, name: &str, change: RxqSet) -> Result<RxqPort, ApiError> {
        self.port_show(name)?;
        let depth = change.depth.unwrap_or(1024);
        check_depth(depth)?;
        Ok(RxqPort { name: name.to_owned(), depth, ..RxqPort::default() })
    }

    fn rxq_set_collector(&self, change: RxqCollectorSet) -> Result<Vec<RxqCollector>, ApiError> {
        Ok(vec![RxqCollector { refill: change.refill.unwrap_or_default(), ..RxqCollector::default() }])
    }

    fn capture(&self, name: &str, select: CaptureSelect) -> Result<Box<dyn Capture>, ApiError> {
        select.validate()?;
        self.port_show(name)?;
        Ok(Box::new(OnePacket(Some(Captured { len_bytes: 60, bytes: vec![1; 60], ..Captured::default() }))))
    }

    fn coalesce(&self, port: Option<&str>) -> Result<CoalesceShow, ApiError> {
        port.map(|name| self.port_show(name)).transpose()?;
        let ports = self.port_list();
        let shown = ports.iter().filter(|shown| port.is_none_or(|name| name == shown.name));
        let ports = shown.map(|shown| CoalescePort {
            name: shown.name.clone(),
            queues: vec![coalesce_queue()],
            netdevs: vec![coalesce_netdev()],
        });
        Ok(CoalesceShow { ports: ports.collect() })
    }

    fn coalesce_set(&self, name: &str, change: &CoalesceSet) -> Result<CoalescePort, ApiError> {
        let mut port = self.coalesce(Some(name))?.ports.pop().unwrap_or_default();
        for queue in &mut port.queues {
            queue.setting = queue.setting.changed(change)?;
        }
        Ok(port)
    }

    fn coalesce_defaults(&self, defaults: CoalesceConfig) -> Result<(), ApiError> {
        self.state().coalesce_defaults = Some(defaults);
        Ok(())
    }

    fn rss(&self, port: Option<&str>) -> Result<Vec<RssShow>, ApiError> {
        port.map(|name| self.port_show(name)).transpose()?;
        let ports = self.port_list();
        let shown =
            ports.iter().filter(|shown| port.map_or(!shown.members.is_empty(), |name| name == shown.name));
        let channels = vec![RssChannel { slots: 128, ..RssChannel::default() }];
        Ok(shown
            .map(|shown| RssShow {
                name: shown.name.clone(),
                channels: channels.clone(),
                ..RssShow::default()
            })
            .collect())
    }

    fn rss_set(&self, name: &str, change: &RssSet) -> Result<RssShow, ApiError> {
        change.check(1)?;
        let shown = self.rss(Some(name))?.pop().unwrap_or_default();
        Ok(RssShow { steering: change.steering.unwrap_or_default(), ..shown })
    }

    fn hints(&self, port: Option<&str>) -> Result<HintsShow, ApiError> {
        port.map(|name| self.port_show(name)).transpose()?;
        let named = |port: &PortShow| HintsPort { name: port.name.clone(), ..HintsPort::default() };
        let ports = self
            .port_list()
            .iter()
            .filter(|shown| port.is_none_or(|name| name == shown.name))
            .map(named)
            .collect();
        Ok(HintsShow { ports, ..HintsShow::default() })
    }

    fn hints_set(&self, name: &str, _: HintsSet) -> Result<HintsShow, ApiError> {
        self.hints(Some(name))
    }

    fn eswitch_set(&self, change: EswitchSet) -> Result<EswitchSetReply, ApiError> {
        let spool_mode = change.spool_mode.unwrap_or_default();
        if let Some(offload) = change.offload {
            self.state().offload = offload;
        }
        Ok(EswitchSetReply {
            eswitch: EswitchShow { spool_mode, ..self.eswitch() },
            ..EswitchSetReply::default()
        })
    }

    fn pool_port_set(&self, name: &str, change: PoolPortSet) -> Result<PoolPort, ApiError> {
        self.port_show(name)?;
        let PoolPortSet { threshold, reserve } = change;
        Ok(PoolPort {
            name: name.to_owned(),
            threshold: threshold.unwrap_or_default(),
            reserve: reserve.unwrap_or_default(),
            ..PoolPort::default()
        })
    }

    /// Every port holds as many frames as its number says, and once held two more.
    fn occupancy_snapshot(&self) -> PoolOccupancy {
        let mut state = self.state();
        let of = |port: &PortShow| {
            let held = u64::from(port.id.0);
            PortOccupancy::new(Occupancy::of_frames(held, held + 2, 2048))
        };
        let occupancy = state.ports.values().map(|port| (port.name.clone(), of(port))).collect();
        state.occupancy.insert(PoolOccupancy { occupancy }).clone()
    }

    fn occupancy_show(&self, port: Option<&str>) -> Result<PoolOccupancy, ApiError> {
        let none = || ApiError::new(ErrorCode::NoSnapshot, "there is no snapshot yet");
        let mut shown = self.state().occupancy.clone().ok_or_else(none)?;
        shown.occupancy.retain(|name, _| port.is_none_or(|port| port == name));
        Ok(shown)
    }

    fn occupancy_clearmax(&self, port: Option<&str>) -> Result<ClearmaxReply, ApiError> {
        let state = self.state();
        let cleared = match port {
            Some(name) => vec![state.ports[&state.id_of(name)?].name.clone()],
            None => state.ports.values().map(|port| port.name.clone()).collect(),
        };
        Ok(ClearmaxReply { cleared })
    }

    fn channel_list(&self, port: Option<&str>) -> Result<Vec<ChannelShow>, ApiError> {
        port.map_or(Ok(Vec::new()), |port| self.state().id_of(port).map(|_| Vec::new()))
    }

    /// Each port's netdev has one queue each way, and one NAPI instance, with the number of the netdev.
    fn queue_list(&self, port: Option<&str>) -> Result<Vec<NetdevQueue>, ApiError> {
        let state = self.state();
        let queue = |ifindex, kind, napi_id| NetdevQueue { id: 0, ifindex, kind, napi_id };
        let of = |ifindex: IfIndex| {
            [queue(ifindex, QueueType::Rx, Some(ifindex.0)), queue(ifindex, QueueType::Tx, None)]
        };
        Ok(state.netdevs_of(port)?.into_iter().flat_map(of).collect())
    }

    fn napi_list(&self, port: Option<&str>) -> Result<Vec<NetdevNapi>, ApiError> {
        let of = |ifindex: IfIndex| NetdevNapi {
            id: ifindex.0,
            ifindex,
            irq: None,
            pid: None,
            defer_hard_irqs: Some(0),
            gro_flush_timeout: Some(0),
            irq_suspend_timeout: None,
        };
        Ok(self.state().netdevs_of(port)?.into_iter().map(of).collect())
    }

    fn page_pools(&self) -> Vec<PagePool> {
        let ids = PagePoolIds { max_ports: 4096, workers: 1 };
        let fill = PagePool {
            id: ids.fill_ring(0, 0),
            ifindex: None,
            napi_id: 0,
            inflight: 4096,
            inflight_mem: 8 << 20,
        };
        let state = self.state();
        let rings = state.ports.values().map(|port| PagePool {
            id: ids.rx_ring(port.id, 0),
            ifindex: port.ifindex,
            napi_id: 0,
            inflight: port.id.0.into(),
            inflight_mem: u64::from(port.id.0) * 2048,
        });
        rings.chain([fill]).collect()
    }

    fn eswitch(&self) -> EswitchShow {
        let ports = u32::try_from(self.state().ports.len()).expect("fewer ports than ids");
        let FlowTable { offload, entries, .. } = self.flow_table();
        EswitchShow {
            offload,
            flows: entries,
            ports,
            max_ports: 4096,
            workers: 1,
            version: "1.2.3".to_owned(),
            ..EswitchShow::default()
        }
    }

    fn apply_settings(&self, settings: Settings) -> Result<(), ApiError> {
        self.state().settings = Some(settings);
        Ok(())
    }

    fn leave(&self) {}

    fn shutdown(&self) {
        self.state().ports.clear();
    }
}
