//! Interrupt moderation of ports on netdevs: requests are checked against what the netdevs take, kept, and told to the
//! moderator.

use std::sync::Arc;

use forebay_control::coalesce::{CoalesceNetdev, CoalescePolicy, CoalescePort, CoalesceSet};
use forebay_control::{ApiError, IfIndex, PortId};

use super::Change;
use super::host_settings::HostSettings;
use super::netdev_side::NetdevSide;
use super::netdev_taker::Taker;
use super::port::Port;
use super::port_coalesce::{DIRECTIONS, NetdevSettings};

/// A port, or what is to be asked of the kernel to show it.
pub(crate) struct CoalesceLook {
    shown: CoalescePort,
    netdevs: Vec<(Netdev, NetdevSettings)>,
}

/// A netdev of a port, and what it is set to.
struct Netdev {
    name: String,
    ifindex: IfIndex,
    sides: [Option<Arc<NetdevSide>>; 2],
}

impl CoalesceLook {
    /// Nothing is to be asked.
    pub(super) fn of_guest(shown: CoalescePort) -> Self {
        Self { shown, netdevs: Vec::new() }
    }

    pub(super) fn of_netdevs(port: &Port) -> Self {
        let shown = CoalescePort { name: port.spec.port_name().to_owned(), ..CoalescePort::default() };
        Self { shown, netdevs: netdevs_of(port).map(|netdev| (netdev, port.coalescing.clone())).collect() }
    }

    /// Asks the kernel, so the lock must be free.
    pub(crate) fn look(self) -> CoalescePort {
        let Self { mut shown, netdevs } = self;
        shown.netdevs = netdevs.into_iter().map(|(netdev, settings)| netdev.show(settings)).collect();
        shown
    }
}

fn netdevs_of(port: &Port) -> impl Iterator<Item = Netdev> {
    port.attachments().map(|attachment| Netdev {
        name: attachment.netdev.name.clone(),
        ifindex: attachment.ifindex,
        sides: attachment.sides.0.clone(),
    })
}

impl Netdev {
    fn show(self, NetdevSettings([rx, tx]): NetdevSettings) -> CoalesceNetdev {
        let taker = Taker::of(self.ifindex);
        let unset = |direction| NetdevSide::new(&Arc::default(), self.ifindex, &self.name, direction);
        let show = |at: usize, setting| match &self.sides[at] {
            Some(side) => side.show(setting, &taker),
            None => unset(DIRECTIONS[at]).show(setting, &taker),
        };
        let (rx, tx) = (show(0, rx), show(1, tx));
        CoalesceNetdev { netdev: self.name, ifindex: self.ifindex, by: taker.by, rx, tx, napis: taker.napis }
    }

    fn problems(&self) -> Vec<String> {
        self.sides.iter().flatten().map(|side| side.problem()).collect()
    }

    /// Has it obey `next` where that is another setting, or nothing is set; says for each direction whether it does.
    fn apply(
        &mut self,
        settings: &Arc<HostSettings>,
        before: &NetdevSettings,
        next: &NetdevSettings,
    ) -> [Result<(), ApiError>; 2] {
        [0, 1].map(|at| {
            let (before, next) = (&before.0[at], &next.0[at]);
            let is_off = next.policy == CoalescePolicy::Off;
            if self.sides[at].is_none() && is_off {
                return Ok(());
            }
            let new = || Arc::new(NetdevSide::new(settings, self.ifindex, &self.name, DIRECTIONS[at]));
            let side = self.sides[at].get_or_insert_with(new);
            // A netdev that did not take it before may take it now.
            if before != next || !(is_off || side.is_set()) { side.apply(next) } else { Ok(()) }
        })
    }
}

/// Directions that a change is about: those that are named, or that any of the netdevs takes limits for.
fn meant(change: &CoalesceSet, netdevs: &[Netdev]) -> [bool; 2] {
    let named = DIRECTIONS.map(|direction| change.is_about(direction));
    if change.direction.is_some() || change.policy == Some(CoalescePolicy::Off) || netdevs.is_empty() {
        return named;
    }
    let takers: Vec<Taker> = netdevs.iter().map(|netdev| Taker::of(netdev.ifindex)).collect();
    let taken = DIRECTIONS.map(|direction| takers.iter().any(|taker| !taker.values(direction).is_empty()));
    // Nobody takes any: that is told of the first.
    if taken == [false; 2] { [true, false] } else { taken }
}

impl Change<'_> {
    /// Changes how interrupts of a port's netdevs are moderated.
    ///
    /// # Errors
    /// A setting that cannot be, or that a netdev does not take. Nothing has changed.
    pub(super) fn coalesce_netdevs(&mut self, id: PortId, change: &CoalesceSet) -> Result<(), ApiError> {
        let (before, settings) = (self.ports[&id].coalescing.clone(), Arc::clone(&self.settings));
        let mut netdevs: Vec<Netdev> = netdevs_of(&self.ports[&id]).collect();
        let (netdevs, next) = self.without_lock(|| {
            let is_meant = meant(change, &netdevs);
            let next = before.changed(change, is_meant)?;
            // A direction that is not meant may have been refused before.
            let mut applied = netdevs.iter_mut().flat_map(|netdev| {
                let applied = netdev.apply(&settings, &before, &next).into_iter().zip(is_meant);
                applied.filter_map(|(applied, is_meant)| applied.err().filter(|_| is_meant))
            });
            let applied = applied.next().map_or(Ok(()), Err);
            if let Err(error) = applied {
                for netdev in &mut netdevs {
                    // They took it before.
                    let _ = netdev.apply(&settings, &next, &before);
                }
                return Err(error);
            }
            Ok((netdevs, next))
        })?;
        self.port_mut(id).coalescing = next;
        self.keep_sides(id, netdevs);
        Ok(())
    }

    /// Has netdevs that the port was attached to obey what is set for it, and those that have changed obey it again.
    pub(super) fn coalesce_again(&mut self, id: PortId) {
        let Some(port) = self.ports.get(&id).filter(|port| !port.coalescing.is_off()) else { return };
        for side in netdevs_of(port).flat_map(|netdev| netdev.sides).flatten().collect::<Vec<_>>() {
            self.without_lock(|| side.renew());
        }
        let before = self.ports[&id].coalescing.clone();
        self.obey_coalescing(id, &before);
    }

    /// Has netdevs obey what is set for their port, which was `before` until now. One that does not take it is logged.
    pub(super) fn obey_coalescing(&mut self, id: PortId, before: &NetdevSettings) {
        let Some(port) = self.ports.get(&id) else { return };
        let (set, settings) = (port.coalescing.clone(), Arc::clone(&self.settings));
        let is_default = self.is_moderated_by_default(port);
        let mut netdevs: Vec<Netdev> = netdevs_of(port).collect();
        let netdevs = self.without_lock(|| {
            for netdev in &mut netdevs {
                let problems = netdev.problems();
                let refused = set.refused(netdev.apply(&settings, before, &set));
                let Some(error) = refused.filter(|_| netdev.problems() != problems) else { continue };
                let netdev = netdev.name.as_str();
                match is_default {
                    // It is meant for those that take it, and most veths do not.
                    true => tracing::debug!(netdev, %error, "its interrupts are not moderated"),
                    false => tracing::warn!(netdev, %error, "its interrupts are not moderated"),
                }
            }
            netdevs
        });
        self.keep_sides(id, netdevs);
    }

    /// Holds what netdevs are set to, for as long as the port is attached to them.
    fn keep_sides(&mut self, id: PortId, netdevs: Vec<Netdev>) {
        for Netdev { ifindex, sides, .. } in netdevs {
            let moderator = self.moderator.clone();
            let Some(attachment) = self.port_mut(id).attachment_of(ifindex) else { continue };
            sides.iter().flatten().for_each(|side| moderator.moderate_netdev(Arc::clone(side)));
            attachment.sides.0 = sides;
        }
    }
}

/// Whether a port is shown without being named: a device is below it, or something is set.
pub(super) fn is_shown(port: &Port) -> bool {
    port.attachments().any(|at| at.netdev.has_parent_device()) || !port.coalescing.is_off()
}
