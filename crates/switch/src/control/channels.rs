//! Channels of ports, set anew when a group's members change, and shown.

use forebay_control::channels::ChannelShow;
use forebay_control::{ApiError, PortId};
use forebay_kernel::netlink::link::Device;
use forebay_kernel::queues;

use super::port::{Attachment, Port};
use super::tuning::{Member, Netdev, Tuning, tune, tune_nothing};
use super::{Change, Control};

/// The netdev of an attachment.
fn netdev_of(attachment: &Attachment) -> Netdev {
    Netdev {
        place: attachment.place,
        link: attachment.netdev.clone(),
        // Of a port with one netdev nobody has looked.
        function: attachment
            .function
            .or_else(|| attachment.netdev.parent.as_ref().and_then(Device::function)),
    }
}

impl Change<'_> {
    /// Sets interrupts and XPS of a group's members, which have changed.
    pub(super) fn tune(&mut self, id: PortId) {
        let port = self.port_mut(id);
        let netdevs: Vec<Netdev> = port.attachments().map(netdev_of).collect();
        let before = std::mem::take(&mut port.tuning);
        let tuning = self.without_lock(|| tune(before, &netdevs));
        for (channel, problem) in &tuning.problems {
            tracing::warn!(
                port = self.ports[&id].spec.port_name(),
                channel,
                problem,
                "a channel stays as it is"
            );
        }
        self.port_mut(id).tuning = tuning;
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
        let tuning = match roster.is_empty() {
            // A port with one netdev has as many channels as queues, and nobody has set any.
            true => tune_nothing(&netdevs),
            false => Tuning { roster, ..Tuning::default() },
        };
        let Some(channels) = tuning.channels() else { return Vec::new() };
        let queues: Vec<_> = netdevs.iter().map(|netdev| (netdev, netdev.queues())).collect();
        let show = |channel: usize| {
            let home = channels.home(channel);
            let member = &tuning.roster[home.member];
            let found = queues.iter().find(|(netdev, _)| netdev.place == member.place);
            let queue = found.and_then(|(_, queues)| queues.get(home.queue));
            let netdev = found.map(|(netdev, _)| *netdev);
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
