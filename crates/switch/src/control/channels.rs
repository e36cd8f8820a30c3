//! Channels of ports, set anew when a group's members change, and shown.

use std::sync::Arc;

use forebay_control::channels::ChannelShow;
use forebay_control::{ApiError, PortId};
use forebay_kernel::machine::Place;
use forebay_kernel::queues;
use forebay_policy::Home;

use super::port::{Attachment, Port};
use super::received::{self, Received};
use super::tuning::{Member, Netdev, Seen, channels_of, tune, tune_nothing};
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
        // All else stays for those who look meanwhile: rules would go to sleep if there were no channels.
        let (roster, set) = (port.group.tuning.roster.clone(), std::mem::take(&mut port.group.tuning.set));
        let look = port.group.received.begin();
        let (shared, settings) = (Arc::clone(&self.shared), Arc::clone(&self.settings));
        let (tuning, seen) = self.without_lock(|| {
            let seen: Vec<Seen> = netdevs.into_iter().map(Netdev::look).collect();
            (tune(roster, set, &seen, &shared.worker_nodes, &settings), seen)
        });
        for (channel, problem) in &tuning.problems {
            tracing::warn!(
                port = self.ports[&id].spec.port_name(),
                channel,
                problem,
                "a channel stays as it is"
            );
        }
        let port = self.port_mut(id);
        port.group.tuning = tuning;
        port.group.received.end(look, seen.iter().map(Seen::counted));
        if let Err(error) = self.lay_rss(id) {
            tracing::warn!(port = self.ports[&id].spec.port_name(), %error, "its packets all go to one worker");
        }
        self.resolve_rules();
    }
}

/// What is to be looked at of a port, without the lock.
pub(crate) struct Look {
    id: PortId,
    received: received::Look,
    netdevs: Vec<Netdev>,
}

/// A port's netdevs, as they were looked at.
pub(crate) struct Looked {
    id: PortId,
    received: received::Look,
    seen: Vec<Seen>,
}

impl Look {
    pub(crate) fn look(self) -> Looked {
        let Self { id, received, netdevs } = self;
        Looked { id, received, seen: netdevs.into_iter().map(Netdev::look).collect() }
    }
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
            id: port.id,
            received: port.group.received.begin(),
            netdevs: port.attachments().map(netdev_of).collect(),
        };
        Ok(self.ports.values().filter(is_meant).map(look).collect())
    }

    /// The channels of ports that were looked at, and are there still.
    pub(crate) fn channels(&mut self, looked: Vec<Looked>) -> Vec<ChannelShow> {
        let mut shown = Vec::new();
        for Looked { id, received, seen } in looked {
            let Some(port) = self.ports.get_mut(&id) else { continue };
            if port.spec.is_group() {
                // What is shown is kept, so that the number never goes back.
                port.group.received.end(received, seen.iter().map(Seen::counted));
            }
            shown.extend(ChannelsOf::new(port, &seen).show_all());
        }
        shown
    }
}

/// A port's channels, as its netdevs are seen.
struct ChannelsOf<'a> {
    port: &'a str,
    workers: Vec<u32>,
    roster: Vec<Member>,
    problems: &'a [(usize, String)],
    received: &'a Received,
    seen: &'a [Seen],
}

impl<'a> ChannelsOf<'a> {
    fn new(port: &'a Port, seen: &'a [Seen]) -> Self {
        let roster = &port.group.tuning.roster;
        Self {
            port: port.spec.port_name(),
            workers: port.rings.serving().iter().map(|ring| ring.worker as u32).collect(),
            // A port with one netdev has as many channels as queues, and nobody has set any.
            roster: if roster.is_empty() { tune_nothing(seen).roster } else { roster.clone() },
            problems: &port.group.tuning.problems,
            received: &port.group.received,
            seen,
        }
    }

    fn show_all(&self) -> Vec<ChannelShow> {
        let Some(channels) = channels_of(&self.roster) else { return Vec::new() };
        (0..channels.count()).map(|channel| self.show(channel, channels.home(channel))).collect()
    }

    fn show(&self, channel: usize, home: Home) -> ChannelShow {
        let member = &self.roster[home.member];
        let netdev = self.seen.iter().find(|netdev| netdev.member.position == member.position);
        let queue = netdev.and_then(|netdev| netdev.queues.get(home.queue));
        let number = queue.map_or(home.queue as u32, |queue| queue.number);
        let senders = netdev.and_then(|netdev| queues::senders_of(&netdev.link, number));
        let (rank, function) =
            netdev.zip(queue).and_then(|(netdev, queue)| netdev.function_of(queue)).unzip();
        let counted = || netdev?.received.iter().find(|(of, _)| *of == number).map(|(_, packets)| *packets);
        let of_channel = self.problems.iter().filter(|(of, _)| *of == channel);
        ChannelShow {
            port: self.port.to_owned(),
            channel: channel as u32,
            member: rank.unwrap_or(home.member) as u32,
            netdev: netdev.map(|netdev| netdev.link.name.clone()),
            ifindex: netdev.map(|netdev| netdev.link.ifindex),
            pci: function.map_or(member.function, |place: &Place| place.function),
            node: function.map_or(member.node, |place| place.node),
            queue: number,
            received_packets: self.received.of(member.position, number).or_else(counted),
            napi: queue.and_then(|queue| queue.napi),
            irq: queue.and_then(|queue| queue.irq),
            processors: queue.and_then(|queue| queues::read(&queues::affinity_of(queue.irq?))),
            xps_cpus: senders.and_then(|path| queues::read(&path)),
            workers: self.workers.clone(),
            problems: of_channel.map(|(_, problem)| problem.clone()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_control::IfIndex;
    use forebay_control::group::PciAddress;
    use forebay_kernel::netlink::Link;
    use forebay_kernel::queues::Queue;

    use super::*;

    fn function(text: &str) -> PciAddress {
        text.parse().expect("an address")
    }

    fn channels(roster: &[Member], received: &Received, seen: &Seen) -> Vec<ChannelShow> {
        let (roster, seen) = (roster.to_vec(), std::slice::from_ref(seen));
        ChannelsOf { port: "nic", workers: vec![0], roster, problems: &[], received, seen }.show_all()
    }

    /// A netdev whose queues belong to these functions in turn, each on a node of its own.
    fn merged(functions: &[&str], queues: u32) -> Seen {
        let mut places: Vec<Place> = (0..)
            .zip(functions)
            .map(|(node, text)| Place { function: Some(function(text)), node: Some(node) })
            .collect();
        places.sort_by_key(|place| place.function);
        let queue = |number: u32| Queue {
            number,
            napi: Some(500 + number),
            irq: None,
            function: Some(function(functions[number as usize % functions.len()])),
        };
        Seen {
            link: Link { name: "eth0".to_owned(), ifindex: IfIndex(7), ..Link::default() },
            member: Member {
                position: 0,
                function: Some(function(functions[0])),
                node: Some(0),
                queues: queues as usize,
            },
            queues: (0..queues).map(queue).collect(),
            received: (0..queues).map(|number| (number, 100 + u64::from(number))).collect(),
            places,
        }
    }

    #[test]
    fn a_queue_of_a_netdev_that_has_several_functions_is_shown_with_its_own() {
        // The netdev is the second function's, which does not lead.
        let seen = merged(&["0000:af:00.0", "0000:3b:00.0"], 4);
        let shown = channels(std::slice::from_ref(&seen.member), &Received::default(), &seen);
        let found: Vec<_> = shown
            .iter()
            .map(|channel| (channel.member, channel.pci.map(|pci| pci.bus), channel.node, channel.queue))
            .collect();
        let [first, second] = [(1, Some(0xaf), Some(0)), (0, Some(0x3b), Some(1))];
        let with = |(member, bus, node), queue| (member, bus, node, queue);
        assert_eq!(found, [with(first, 0), with(second, 1), with(first, 2), with(second, 3)]);
        assert_eq!(shown[3].received_packets, Some(103), "what the driver says");
    }

    #[test]
    fn a_group_counts_what_its_members_received_since_they_are_members() {
        let seen = merged(&["0000:3b:00.0"], 2);
        let mut received = Received::default();
        for counted in [[(0, 60), (1, 101)], [(0, 100), (1, 101)]] {
            received.end(received.begin(), [(0, IfIndex(7), &counted[..])]);
        }
        let shown = channels(std::slice::from_ref(&seen.member), &received, &seen);
        let packets: Vec<_> = shown.iter().map(|channel| channel.received_packets).collect();
        assert_eq!(packets, [Some(40), Some(0)]);
        assert_eq!(shown[1].member, 0);
    }
}
