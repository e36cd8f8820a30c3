//! What the running switch is asked, handed to those who know.

use std::collections::HashSet;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use forebay_control::capture::{Capture, CaptureSelect};
use forebay_control::channels::ChannelShow;
use forebay_control::coalesce::{CoalesceConfig, CoalescePort, CoalesceSet, CoalesceShow};
use forebay_control::config::Settings;
use forebay_control::eswitch::{EswitchSet, EswitchSetReply, EswitchShow};
use forebay_control::fdb::{FdbAdd, FdbDel, FdbEntry, FdbFlush, FdbFlushReply};
use forebay_control::flow::{FlowFlushReply, FlowList, FlowTable};
use forebay_control::hints::{HintsSet, HintsShow};
use forebay_control::netdev_queue::{NetdevNapi, NetdevQueue};
use forebay_control::occupancy::{ClearmaxReply, PoolOccupancy};
use forebay_control::page_pool::PagePool;
use forebay_control::pool::{PoolPort, PoolPortSet, PoolSet, PoolShow};
use forebay_control::port::{PortAdd, PortAddReply, PortDelRefused, PortDelReply, PortSet, PortShow};
use forebay_control::rss::{RssSet, RssShow};
use forebay_control::rule::{RuleAdd, RuleShow};
use forebay_control::rxq::{RxqCollector, RxqCollectorSet, RxqPort, RxqSet, RxqShow};
use forebay_control::stats::{LatencyShow, StatsShow, WorkersShow};
use forebay_control::{ApiError, SwitchControl, ThreadTurns};

use super::Switch;
use crate::control::channels::Look;
use crate::control::netdev_coalesce::CoalesceLook;
use crate::control::queues::{napis_of, queues_of};
use crate::control::{self, Drivers};
use crate::settled;
use crate::worker::Waker;

/// Ports that one change adds or deletes. Each takes up to 14 ms where grace periods cannot be shortened, and other changes
/// come between the pieces of a long request.
const PORTS_A_CHANGE: usize = 32;

impl SwitchControl for Switch {
    fn port_add(&self, request: PortAdd) -> PortAddReply {
        let _short = control::short_grace_periods(request.ports.len());
        let mut reply = PortAddReply::default();
        let mut left = request.ports.into_iter().peekable();
        while left.peek().is_some() {
            let ports = left.by_ref().take(PORTS_A_CHANGE).collect();
            let piece = PortAdd { ports, wait: request.wait };
            let PortAddReply { added, refused } = self.change_and_save(|change| change.port_add(piece));
            reply.added.extend(added);
            reply.refused.extend(refused);
        }
        control::log_missing(&reply.added);
        reply
    }

    fn port_del(&self, names: &[String]) -> Result<PortDelReply, ApiError> {
        let _short = control::short_grace_periods(names.len());
        let mut reply = PortDelReply::default();
        let mut seen = HashSet::new();
        let names: Vec<String> = names.iter().filter(|name| seen.insert(*name)).cloned().collect();
        for (number, piece) in names.chunks(PORTS_A_CHANGE).enumerate() {
            match self.change_and_save(|change| change.port_del(piece)) {
                Ok(PortDelReply { deleted, refused }) => {
                    reply.deleted.extend(deleted);
                    reply.refused.extend(refused);
                }
                Err(error) if number == 0 => return Err(error),
                Err(error) => {
                    let refuse = |name: &String| PortDelRefused { name: name.clone(), error: error.clone() };
                    reply.refused.extend(piece.iter().map(refuse));
                }
            }
        }
        Ok(reply)
    }

    fn port_set(&self, name: &str, mut change: PortSet) -> Result<PortShow, ApiError> {
        match change.coalesce.take() {
            // The kernel may have to be asked.
            Some(stated) => self.change_and_save(|control| control.port_set_moderated(name, change, stated)),
            None => self.and_save(|control| control.port_set(name, change)),
        }
    }

    fn port_list(&self) -> Vec<PortShow> {
        self.settled().port_list()
    }

    fn port_show(&self, name: &str) -> Result<PortShow, ApiError> {
        self.settled().port_show(name)
    }

    fn fdb_list(&self) -> Vec<FdbEntry> {
        let names = self.control().port_names();
        control::list_stations(&self.shared, &names)
    }

    fn fdb_add(&self, request: FdbAdd) -> Result<FdbEntry, ApiError> {
        self.control().fdb_add(&request)
    }

    fn fdb_del(&self, request: FdbDel) -> Result<FdbEntry, ApiError> {
        self.control().fdb_del(&request)
    }

    fn fdb_flush(&self, request: FdbFlush) -> Result<FdbFlushReply, ApiError> {
        self.control().fdb_flush(&request)
    }

    fn rule_list(&self) -> Vec<RuleShow> {
        self.settle_flows();
        self.control().rule_list()
    }

    fn flow_add(&self, request: RuleAdd) -> Result<RuleShow, ApiError> {
        self.and_save(|control| control.flow_add(&request))
    }

    fn flow_del(&self, id: u64) -> Result<RuleShow, ApiError> {
        self.and_save(|control| control.flow_del(id))
    }

    fn flow_list(&self) -> FlowList {
        let lister = self.control().flow_lister();
        let flows = lister.list();
        let control = self.control();
        FlowList { table: control.flow_table(), flows, rules: control.rule_list() }
    }

    fn flow_table(&self) -> FlowTable {
        self.control().flow_table()
    }

    fn flow_flush(&self) -> Result<FlowFlushReply, ApiError> {
        self.control().refuse_if_stopping()?;
        let book = self.book.lock().unwrap_or_else(PoisonError::into_inner).flush();
        Ok(FlowFlushReply { flushed: book })
    }

    fn stats(&self) -> StatsShow {
        let first = self.settled().stats();
        settled::compare(first, || self.control().stats(), std::thread::sleep)
    }

    fn workers(&self) -> WorkersShow {
        self.control().workers()
    }

    fn latency(&self) -> LatencyShow {
        self.control().latency()
    }

    fn workers_clear(&self) -> WorkersShow {
        self.control().workers_clear()
    }

    fn pool(&self) -> PoolShow {
        self.control().pool()
    }

    fn pool_set(&self, change: PoolSet) -> Result<PoolShow, ApiError> {
        let _short = self.short_grace_periods();
        self.control.begin().pool_set(change)
    }

    fn pool_port_set(&self, name: &str, change: PoolPortSet) -> Result<PoolPort, ApiError> {
        self.change_and_save(|control| control.pool_port_set(name, change))
    }

    fn rxq(&self) -> RxqShow {
        self.control().rxq_show()
    }

    fn rxq_set(&self, name: &str, change: RxqSet) -> Result<RxqPort, ApiError> {
        self.change_and_save(|control| control.rxq_set(name, change))
    }

    fn rxq_set_collector(&self, change: RxqCollectorSet) -> Result<Vec<RxqCollector>, ApiError> {
        self.control.begin().rxq_set_collector(change)
    }

    fn coalesce(&self, port: Option<&str>) -> Result<CoalesceShow, ApiError> {
        let looks = self.control().coalesce_to_look_at(port)?;
        // The kernel is asked without the lock.
        Ok(CoalesceShow { ports: looks.into_iter().map(CoalesceLook::look).collect() })
    }

    fn coalesce_set(&self, name: &str, change: &CoalesceSet) -> Result<CoalescePort, ApiError> {
        let look = self.change_and_save(|control| control.coalesce_set(name, change))?;
        Ok(look.look())
    }

    fn coalesce_defaults(&self, defaults: CoalesceConfig) -> Result<(), ApiError> {
        self.control.begin().set_coalesce_defaults(defaults)
    }

    fn rss(&self, port: Option<&str>) -> Result<Vec<RssShow>, ApiError> {
        self.control().rss_show(port)
    }

    fn rss_set(&self, name: &str, change: &RssSet) -> Result<RssShow, ApiError> {
        self.change_and_save(|control| control.rss_set(name, change))
    }

    fn hints(&self, port: Option<&str>) -> Result<HintsShow, ApiError> {
        let drivers = Drivers::of(&self.control().ifindexes());
        self.control().hints_show(port, &drivers)
    }

    fn hints_set(&self, name: &str, change: HintsSet) -> Result<HintsShow, ApiError> {
        self.change_and_save(|control| control.hints_set(name, change))
    }

    fn capture(&self, name: &str, select: CaptureSelect) -> Result<Box<dyn Capture>, ApiError> {
        self.control().capture(name, select)
    }

    fn occupancy_snapshot(&self) -> PoolOccupancy {
        self.control().occupancy_snapshot()
    }

    fn occupancy_show(&self, port: Option<&str>) -> Result<PoolOccupancy, ApiError> {
        self.control().occupancy_show(port)
    }

    fn occupancy_clearmax(&self, port: Option<&str>) -> Result<ClearmaxReply, ApiError> {
        self.control().occupancy_clearmax(port)
    }

    fn channel_list(&self, port: Option<&str>) -> Result<Vec<ChannelShow>, ApiError> {
        let looks = self.control().channels_to_look_at(port)?;
        // The kernel is asked without the lock.
        let looked = looks.into_iter().map(Look::look).collect();
        Ok(self.control().channels(looked))
    }

    fn queue_list(&self, port: Option<&str>) -> Result<Vec<NetdevQueue>, ApiError> {
        let netdevs = self.control().netdevs_of(port)?;
        queues_of(&netdevs)
    }

    fn napi_list(&self, port: Option<&str>) -> Result<Vec<NetdevNapi>, ApiError> {
        let netdevs = self.control().netdevs_of(port)?;
        napis_of(&netdevs)
    }

    fn page_pools(&self) -> Vec<PagePool> {
        self.control().page_pools()
    }

    fn eswitch(&self) -> EswitchShow {
        self.control().eswitch()
    }

    fn eswitch_set(&self, change: EswitchSet) -> Result<EswitchSetReply, ApiError> {
        let _short = self.short_grace_periods();
        self.control.begin().eswitch_set(change)
    }

    fn apply_settings(&self, settings: Settings) -> Result<(), ApiError> {
        self.control.begin().apply_settings(&settings)
    }

    fn leave(&self) {
        let mut change = self.control.begin();
        let ticket = change.leave();
        drop(change);
        ticket.wait();
    }

    fn turns(&self) -> Vec<ThreadTurns> {
        if self.is_stopping.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let cells = self.shared.workers.iter().enumerate();
        let workers = cells.map(|(index, cell)| (format!("worker-{index}"), cell.iterations.get()));
        let turns = &self.shared.turns;
        let others = [
            ("flow-keeper", turns.flow_keeper.get()),
            ("housekeeper", turns.housekeeper.get()),
            ("guests", turns.guests.get()),
            ("moderator", turns.moderator.get()),
        ];
        let others = others.map(|(thread, turns)| (thread.to_owned(), turns));
        let turns = workers.chain(others).map(|(thread, turns)| ThreadTurns { thread, turns }).collect();
        // After the counts were read: else a turn could count for this look instead of the next.
        self.wakers.iter().for_each(Waker::wake);
        self.guests.wake();
        self.moderator.wake();
        turns
    }

    fn shutdown(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        let housekeeper = self.housekeeper.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(housekeeper);
        self.guests.stop();
        self.moderator.stop();
        let _short = self.short_grace_periods();
        self.control.begin().stop();
    }
}
