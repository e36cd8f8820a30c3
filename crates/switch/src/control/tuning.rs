//! What the switch sets for a group's channels: interrupts and XPS of its members. What was there is put back when a member
//! leaves, or the port goes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_control::IfIndex;
use forebay_control::channels::mask;
use forebay_control::group::PciAddress;
use forebay_kernel::machine::{self, Machine, Place};
use forebay_kernel::netlink::Link;
use forebay_kernel::queues::{self, Queue};
use forebay_policy::{Channels, workers_of_channels};

use super::host_settings::{HostSetting, HostSettings};
use super::tunable::Tunable;
use crate::channels::lay_out;

const SYS: &str = "/sys";

/// A member that is there or was.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// Where the group names it.
    pub(super) position: usize,
    pub(super) function: Option<PciAddress>,
    pub(super) node: Option<u32>,
    pub(super) queues: usize,
}

/// What the switch has set for a group's channels.
#[derive(Default)]
pub(super) struct Tuning {
    /// Members in the group's order, also those that are missing now.
    pub(super) roster: Vec<Member>,
    /// Held for their drop, which puts back what was there.
    pub(super) set: Vec<HostSetting>,
    /// The worker that takes each channel's packets, on the node of its member if there is one.
    pub(super) workers: Vec<usize>,
    /// The nodes of all workers.
    pub(super) worker_nodes: Vec<Option<u32>>,
    /// What could not be set: channel and why.
    pub(super) problems: Vec<(usize, String)>,
}

/// A member's netdev, as the port holds it.
pub(super) struct Netdev {
    pub(super) position: usize,
    pub(super) link: Link,
    /// Nobody has looked for that of a port with one netdev.
    pub(super) function: Option<PciAddress>,
}

/// A member's netdev, and what the kernel says of it.
pub(super) struct Seen {
    pub(super) link: Link,
    pub(super) member: Member,
    pub(super) queues: Vec<Queue>,
    /// The functions that have the queues, in their order, where there are several.
    pub(super) places: Vec<Place>,
    /// Packets that each queue has had, if the driver counts them.
    pub(super) received: Vec<(u32, u64)>,
}

impl Netdev {
    /// Asks the kernel, so the lock must be free.
    pub(super) fn look(self) -> Seen {
        let Self { position, link, function } = self;
        let function = function.or_else(|| link.function());
        let node = function.and_then(node_of);
        let queues = queues::rx_queues(link.ifindex, function);
        let received = queues::received_by(link.ifindex);
        let places = places_of(&queues);
        let member = Member { position, function, node, queues: queues.len() };
        Seen { link, member, queues, places, received }
    }
}

impl Seen {
    /// What its driver has counted at the queues.
    pub(super) fn counted(&self) -> (usize, IfIndex, &[(u32, u64)]) {
        (self.member.position, self.link.ifindex, &self.received)
    }

    /// Where the function is that has a queue, and its rank, if several functions have queues.
    pub(super) fn function_of(&self, queue: &Queue) -> Option<(usize, &Place)> {
        let several = self.places.iter().enumerate().filter(|_| self.places.len() > 1);
        several.into_iter().find(|(_, place)| place.function == queue.function)
    }
}

fn node_of(function: PciAddress) -> Option<u32> {
    machine::place_of_function(Path::new(SYS), function).ok().flatten()?.node
}

/// The functions that have these queues, the leader first.
fn places_of(queues: &[Queue]) -> Vec<Place> {
    let functions: BTreeSet<PciAddress> = queues.iter().filter_map(|queue| queue.function).collect();
    let place = |function| Place { function: Some(function), node: node_of(function) };
    functions.into_iter().map(place).collect()
}

/// Sets what the channels of these netdevs should have, and puts back the rest of what was set `earlier`. Members of the
/// roster that are missing keep their channels' numbers. `worker_nodes` are the workers'.
pub(super) fn tune(
    mut roster: Vec<Member>,
    mut earlier: Vec<HostSetting>,
    netdevs: &[Seen],
    worker_nodes: &[Option<u32>],
    settings: &Arc<HostSettings>,
) -> Tuning {
    for netdev in netdevs {
        roster.retain(|member| member.position != netdev.member.position);
        roster.push(netdev.member.clone());
    }
    roster.sort_by_key(|member| (member.function.is_none(), member.function, member.position));
    let mut tuning = Tuning { roster, ..Tuning::default() };
    let Some(channels) = tuning.channels().filter(|_| !netdevs.is_empty()) else { return tuning };
    let nodes: Vec<Option<u32>> =
        (0..channels.count()).map(|channel| tuning.roster[channels.home(channel).member].node).collect();
    tuning.workers = workers_of_channels(&nodes, worker_nodes);
    tuning.worker_nodes = worker_nodes.to_vec();
    let machine = match Machine::read(Path::new(SYS)) {
        Ok(machine) => machine,
        Err(error) => {
            tuning.problems.push((0, error.to_string()));
            return tuning;
        }
    };
    let named: Vec<(&str, Place)> = tuning
        .roster
        .iter()
        .map(|member| ("", Place { function: member.function, node: member.node }))
        .collect();
    let mut planned = lay_out(&machine, &named, channels);
    let netdev_of = |member: &Member| netdevs.iter().find(|netdev| netdev.member.position == member.position);
    let is_there = |member: usize| netdev_of(&tuning.roster[member]).is_some();
    // A channel without its member has its processors send by another one.
    for channel in 0..channels.count() {
        let carrier = channels.carrier(channel, is_there).filter(|carrier| *carrier != channel);
        if let Some(carrier) = carrier {
            let senders = std::mem::take(&mut planned[channel].senders);
            planned[carrier].senders.extend(senders);
        }
    }
    let (mut set, mut problems) = (Vec::new(), Vec::new());
    let mut try_to =
        |channel: usize, path: PathBuf, value: String| match set_again(settings, &mut earlier, &path, &value)
        {
            Ok(tuned) => set.push(tuned),
            Err(error) => problems.push((channel, format!("{} = {value}: {error}", path.display()))),
        };
    for (channel, plan) in planned.iter().enumerate() {
        let home = channels.home(channel);
        let Some(netdev) = netdev_of(&tuning.roster[home.member]) else { continue };
        let irq = netdev.queues.get(home.queue).and_then(|queue| queue.irq);
        if let (Some(irq), Some(processor)) = (irq, plan.processor) {
            try_to(channel, queues::affinity_of(irq), processor.to_string());
        }
        let path = queues::senders_of(&netdev.link, home.queue as u32);
        // With one queue there is nothing to choose.
        if let Some(path) = path.filter(|path| path.exists() && channels.of(home.member) > 1) {
            try_to(channel, path, mask(&plan.senders, machine.possible));
        }
    }
    (tuning.set, tuning.problems) = (set, problems);
    tuning
}

impl Tuning {
    /// Its channels, if any member was ever there.
    pub(super) fn channels(&self) -> Option<Channels> {
        channels_of(&self.roster)
    }
}

/// The channels of these members. One with fewer queues than others limits all.
pub(super) fn channels_of(roster: &[Member]) -> Option<Channels> {
    let queues = roster.iter().map(|member| member.queues).min()?;
    Some(Channels::new(roster.len(), roster.len() * queues.max(1)))
}

/// Sets the value, remembering what was there before an earlier one.
fn set_again(
    settings: &Arc<HostSettings>,
    earlier: &mut Vec<HostSetting>,
    path: &Path,
    value: &str,
) -> std::io::Result<HostSetting> {
    let is_this = |setting: &HostSetting| setting.tunable().path() == Some(path);
    let Some(at) = earlier.iter().position(is_this) else {
        return HostSetting::set(settings, Tunable::File(path.to_owned()), value, false);
    };
    let mut setting = earlier.swap_remove(at);
    setting.change(value).map(|()| setting)
}

/// The members as they are, with nothing set.
pub(super) fn tune_nothing(netdevs: &[Seen]) -> Tuning {
    Tuning { roster: netdevs.iter().map(|netdev| netdev.member.clone()).collect(), ..Tuning::default() }
}
