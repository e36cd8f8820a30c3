//! What the control thread can ask of the switch.

use crate::capture::{Capture, CaptureSelect};
use crate::channels::ChannelShow;
use crate::coalesce::{CoalesceConfig, CoalescePort, CoalesceSet, CoalesceShow};
use crate::config::Settings;
use crate::error::ApiError;
use crate::eswitch::{EswitchSet, EswitchSetReply, EswitchShow};
use crate::fdb::{FdbAdd, FdbDel, FdbEntry, FdbFlush, FdbFlushReply};
use crate::flow::{FlowFlushReply, FlowList, FlowTable};
use crate::hints::{HintsSet, HintsShow};
use crate::netdev_queue::{NetdevNapi, NetdevQueue};
use crate::occupancy::{ClearmaxReply, PoolOccupancy};
use crate::page_pool::PagePool;
use crate::pool::{PoolPort, PoolPortSet, PoolSet, PoolShow};
use crate::port::{PortAdd, PortAddReply, PortDelReply, PortSet, PortShow};
use crate::rss::{RssSet, RssShow};
use crate::rule::{RuleAdd, RuleShow};
use crate::rxq::{RxqCollector, RxqCollectorSet, RxqPort, RxqSet, RxqShow};
use crate::stats::{LatencyShow, StatsShow, WorkersShow};

/// A thread of the switch and its turns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadTurns {
    /// The thread's name.
    pub thread: String,
    /// Turns that it has made.
    pub turns: u64,
}

/// The running switch, as the API and the configuration see it.
///
/// Every method may block (netlink, BPF system calls) and may be called from several threads at once; none is called
/// on the packet path. Requests were validated by type, not against the machine: that is the implementor's part.
pub trait SwitchControl: Send + Sync {
    /// Adds ports, each answered for itself.
    fn port_add(&self, request: PortAdd) -> PortAddReply;

    /// Deletes ports by name, each answered for itself.
    ///
    /// # Errors
    /// When no port was looked at: the switch is stopping.
    fn port_del(&self, names: &[String]) -> Result<PortDelReply, ApiError>;

    /// Changes a port under traffic and shows it as it is then.
    ///
    /// # Errors
    /// No such port, or a value it can't have.
    fn port_set(&self, name: &str, change: PortSet) -> Result<PortShow, ApiError>;

    /// All ports, by ascending id.
    fn port_list(&self) -> Vec<PortShow>;

    /// The port of this name.
    ///
    /// # Errors
    /// No such port.
    fn port_show(&self, name: &str) -> Result<PortShow, ApiError>;

    /// The channels of a port, or of all ports that are groups or devices.
    ///
    /// # Errors
    /// No such port.
    fn channel_list(&self, port: Option<&str>) -> Result<Vec<ChannelShow>, ApiError>;

    /// The queues of the netdevs of a port, or of all ports.
    ///
    /// # Errors
    /// No such port, or the kernel refuses to tell.
    fn queue_list(&self, port: Option<&str>) -> Result<Vec<NetdevQueue>, ApiError>;

    /// The NAPI instances of the netdevs of a port, or of all ports.
    ///
    /// # Errors
    /// As [`SwitchControl::queue_list`].
    fn napi_list(&self, port: Option<&str>) -> Result<Vec<NetdevNapi>, ApiError>;

    /// All forwarding entries.
    fn fdb_list(&self) -> Vec<FdbEntry>;

    /// Adds a static entry.
    ///
    /// # Errors
    /// No such port, a VLAN it does not carry, or a full table.
    fn fdb_add(&self, request: FdbAdd) -> Result<FdbEntry, ApiError>;

    /// Deletes one entry and returns it.
    ///
    /// # Errors
    /// No such entry.
    fn fdb_del(&self, request: FdbDel) -> Result<FdbEntry, ApiError>;

    /// Forgets learned entries.
    ///
    /// # Errors
    /// No such port.
    fn fdb_flush(&self, request: FdbFlush) -> Result<FdbFlushReply, ApiError>;

    /// All rules, in the order in which they count.
    fn rule_list(&self) -> Vec<RuleShow>;

    /// Adds a rule, which counts from then on. It sleeps as long as a port that it names is not there.
    ///
    /// # Errors
    /// A rule that no packet can fall under, one that asks the same at the same priority as another, or too many.
    fn flow_add(&self, request: RuleAdd) -> Result<RuleShow, ApiError>;

    /// Deletes a rule and returns it as it was.
    ///
    /// # Errors
    /// No such rule.
    fn flow_del(&self, id: u64) -> Result<RuleShow, ApiError>;

    /// All flows and rules.
    fn flow_list(&self) -> FlowList;

    /// The table of flows without the flows, of which there may be a million.
    fn flow_table(&self) -> FlowTable;

    /// Forgets all flows, so that what they say is decided anew.
    ///
    /// # Errors
    /// When the switch is stopping.
    fn flow_flush(&self) -> Result<FlowFlushReply, ApiError>;

    /// All counters.
    fn stats(&self) -> StatsShow;

    /// What workers did since the switch started, or since this was cleared.
    fn workers(&self) -> WorkersShow;

    /// How long packets with hints had been under way.
    fn latency(&self) -> LatencyShow;

    /// Counts what workers do anew, and shows what they did until now.
    fn workers_clear(&self) -> WorkersShow;

    /// The pool.
    fn pool(&self) -> PoolShow;

    /// Changes how the pool is shared and shows it as it is then.
    ///
    /// # Errors
    /// When the switch is stopping.
    fn pool_set(&self, change: PoolSet) -> Result<PoolShow, ApiError>;

    /// Changes a port's part in the pool and shows it as it is then.
    ///
    /// # Errors
    /// No such port, or a value it can't have.
    fn pool_port_set(&self, name: &str, change: PoolPortSet) -> Result<PoolPort, ApiError>;

    /// All receive queues.
    fn rxq(&self) -> RxqShow;

    /// Changes a port's receive queues under traffic and shows them as they are then.
    ///
    /// # Errors
    /// No such port, or a value it can't have; nothing is changed then.
    fn rxq_set(&self, name: &str, change: RxqSet) -> Result<RxqPort, ApiError>;

    /// Changes how full the collectors' fill rings are kept.
    ///
    /// # Errors
    /// A value they can't have.
    fn rxq_set_collector(&self, change: RxqCollectorSet) -> Result<Vec<RxqCollector>, ApiError>;

    /// How calls of virtual machines' queues are moderated: of one port, or of all.
    ///
    /// # Errors
    /// There is no such port of a virtual machine.
    fn coalesce(&self, port: Option<&str>) -> Result<CoalesceShow, ApiError>;

    /// Changes that, for packets that wait too, and shows the port's queues as they are then.
    ///
    /// # Errors
    /// No such port of a virtual machine, or a value that it can't have; nothing is changed then.
    fn coalesce_set(&self, name: &str, change: &CoalesceSet) -> Result<CoalescePort, ApiError>;

    /// From now on new ports are moderated like this unless they state it themselves. It was checked.
    ///
    /// # Errors
    /// The switch is stopping.
    fn coalesce_defaults(&self, defaults: CoalesceConfig) -> Result<(), ApiError>;

    /// How the packets of groups are spread over workers: of one, or of all.
    ///
    /// # Errors
    /// There is no such group.
    fn rss(&self, port: Option<&str>) -> Result<Vec<RssShow>, ApiError>;

    /// Changes how a group's packets are spread over workers.
    ///
    /// # Errors
    /// [`ApiError`] naming what cannot be; nothing has changed then.
    fn rss_set(&self, name: &str, change: &RssSet) -> Result<RssShow, ApiError>;

    /// Hints of all ports, or of one.
    ///
    /// # Errors
    /// No such port.
    fn hints(&self, port: Option<&str>) -> Result<HintsShow, ApiError>;

    /// Changes who writes a port's hints, under traffic, and shows them as they are then.
    ///
    /// # Errors
    /// No such port, or a program that breaks the contract or is refused by the verifier; then the old one stays.
    fn hints_set(&self, name: &str, change: HintsSet) -> Result<HintsShow, ApiError>;

    /// Begins to capture a port's packets.
    ///
    /// # Errors
    /// No such port, a limit out of range, or somebody captures it already.
    fn capture(&self, name: &str, select: CaptureSelect) -> Result<Box<dyn Capture>, ApiError>;

    /// Takes a snapshot of what every port holds and held at most; it replaces the one before.
    fn occupancy_snapshot(&self) -> PoolOccupancy;

    /// The last snapshot, or one port's part of it.
    ///
    /// # Errors
    /// There is none, or the port is not in it.
    fn occupancy_show(&self, port: Option<&str>) -> Result<PoolOccupancy, ApiError>;

    /// Begins the watermark of all ports, or of one, anew.
    ///
    /// # Errors
    /// No such port.
    fn occupancy_clearmax(&self, port: Option<&str>) -> Result<ClearmaxReply, ApiError>;

    /// Every ring that holds frames.
    fn page_pools(&self) -> Vec<PagePool>;

    /// The switch as a whole.
    fn eswitch(&self) -> EswitchShow;

    /// Changes the switch as a whole, under traffic.
    ///
    /// # Errors
    /// What the kernel refused.
    fn eswitch_set(&self, change: EswitchSet) -> Result<EswitchSetReply, ApiError>;

    /// Takes over settings that can change while packets flow.
    ///
    /// # Errors
    /// A value it can't have; then nothing has changed.
    fn apply_settings(&self, settings: Settings) -> Result<(), ApiError>;

    /// Saves what another process needs to go on. Nothing is detached from now on: the process is to end.
    fn leave(&self);

    /// Turns that each worker, the flow keeper and the housekeeper have made, in the same order each time. None once the
    /// switch is stopping. Every thread makes at least one turn between two calls some seconds apart: those that sleep
    /// are woken. Does not block.
    fn turns(&self) -> Vec<ThreadTurns> {
        Vec::new()
    }

    /// Stops workers, detaches all ports and frees what the kernel holds for the switch. A second call does nothing.
    fn shutdown(&self);
}
