//! Channels of ports, set anew when a group's members change, and shown.

use std::sync::Arc;

use forebay_control::channels::ChannelShow;
use forebay_control::{ApiError, PortId};
use forebay_kernel::queues;

use super::port::{Attachment, Port};
use super::tuning::{Member, Netdev, Seen, Tuning, tune, tune_nothing};
use super::{Change, Control};

/// The netdev of an attachment.
fn netdev_of(attachment: &Attachment) -> Netdev {
    Netdev { position: attachment.position, link: attachment.netdev.clone(), function: attachment.function }
}

impl Change<'_> {
    /// Sets interrupts and XPS of a group's members, which have changed.
    pub(super) fn tune(&mut self, id: PortId) {
        let port = self.port_mut(id);
        let netdevs: Vec<Netdev> = port.attachments().map(netdev_of).collect();
        let before = std::mem::take(&mut port.tuning);
        let shared = Arc::clone(&self.shared);
        let tuning = self.without_lock(|| {
            let netdevs: Vec<Seen> = netdevs.into_iter().map(Netdev::look).collect();
            tune(before, &netdevs, &shared.worker_nodes)
        });
        for (channel, problem) in &tuning.problems {
            tracing::warn!(
                port = self.ports[&id].spec.port_name(),
                channel,
                problem,
                "a channel stays as it is"
            );
        }
        self.port_mut(id).tuning = tuning;
        if let Err(error) = self.lay_rss(id) {
            tracing::warn!(port = self.ports[&id].spec.port_name(), %error, "its packets all go to one worker");
        }
        self.resolve_rules();
    }
}

/// What is to be looked at of a port, without the lock.
pub(crate) struct Look {
    port: String,
    workers: Vec<u32>,
    netdevs: Vec<Netdev>,
    roster: Vec<Member>,
    problems: Vec<(usize, String)>,
}

impl Control {
    /// What to look at: of one port, or of all that are groups or devices.
    pub(crate) fn channels_to_look_at(&self, name: Option<&str>) -> Result<Vec<Look>, ApiError> {
        let only = name.map(|name| self.id_of(name)).transpose()?;
        let is_meant = |port: &&Port| match only {
            Some(id) => port.id == id,
            None => port.spec.is_group() || port.attachments().any(|at| at.netdev.has_parent_device()),
        };
        let look = |port: &Port| Look {
            port: port.spec.port_name().to_owned(),
            workers: port.rings.iter().map(|ring| ring.worker as u32).collect(),
            netdevs: port.attachments().map(netdev_of).collect(),
            roster: port.tuning.roster.clone(),
            problems: port.tuning.problems.clone(),
        };
        Ok(self.ports.values().filter(is_meant).map(look).collect())
    }
}

impl Look {
    /// The port's channels as they are now.
    pub(crate) fn channels(self) -> Vec<ChannelShow> {
        let Self { port, workers, netdevs, roster, problems } = self;
        let netdevs: Vec<Seen> = netdevs.into_iter().map(Netdev::look).collect();
        // A port with one netdev has as many channels as queues, and nobody has set any.
        let tuning =
            if roster.is_empty() { tune_nothing(&netdevs) } else { Tuning { roster, ..Tuning::default() } };
        let Some(channels) = tuning.channels() else { return Vec::new() };
        let show = |channel: usize| {
            let home = channels.home(channel);
            let member = &tuning.roster[home.member];
            let netdev = netdevs.iter().find(|netdev| netdev.member.position == member.position);
            let queue = netdev.and_then(|netdev| netdev.queues.get(home.queue));
            let senders = netdev.and_then(|netdev| queues::senders_of(&netdev.link, home.queue as u32));
            let of_channel = problems.iter().filter(|(of, _)| *of == channel);
            ChannelShow {
                port: port.clone(),
                channel: channel as u32,
                member: home.member as u32,
                netdev: netdev.map(|netdev| netdev.link.name.clone()),
                ifindex: netdev.map(|netdev| netdev.link.ifindex),
                pci: member.function,
                node: member.node,
                queue: home.queue as u32,
                napi: queue.and_then(|queue| queue.napi),
                irq: queue.and_then(|queue| queue.irq),
                processors: queue.and_then(|queue| queues::read(&queues::affinity_of(queue.irq?))),
                xps_cpus: senders.and_then(|path| queues::read(&path)),
                workers: workers.clone(),
                problems: of_channel.map(|(_, problem)| problem.clone()).collect(),
            }
        };
        (0..channels.count()).map(show).collect()
    }
}
