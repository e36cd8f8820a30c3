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

    /// Has it obey `next` where that is another setting, or nothing is set. Then it obeys `next` in both directions.
    ///
    /// # Errors
    /// It does not take it.
    fn apply(
        &mut self,
        settings: &Arc<HostSettings>,
        before: &NetdevSettings,
        next: &NetdevSettings,
    ) -> Result<(), ApiError> {
        for (at, direction) in DIRECTIONS.into_iter().enumerate() {
            let (before, next) = (&before.0[at], &next.0[at]);
            let is_off = next.policy == CoalescePolicy::Off;
            if self.sides[at].is_none() && is_off {
                continue;
            }
            let new = || Arc::new(NetdevSide::new(settings, self.ifindex, &self.name, direction));
            let side = self.sides[at].get_or_insert_with(new);
            // A netdev that did not take it before may take it now.
            if before != next || !(is_off || side.is_set()) {
                side.apply(next)?;
            }
        }
        Ok(())
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
            let next = before.changed(change, meant(change, &netdevs))?;
            let applied = netdevs.iter_mut().try_for_each(|netdev| netdev.apply(&settings, &before, &next));
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
        let (set, settings) = (port.coalescing.clone(), Arc::clone(&self.settings));
        let mut netdevs: Vec<Netdev> = netdevs_of(port).collect();
        let netdevs = self.without_lock(|| {
            for netdev in &mut netdevs {
                netdev.sides.iter().flatten().for_each(|side| side.renew());
                let before = netdev.problems();
                if let Err(error) = netdev.apply(&settings, &set, &set)
                    && netdev.problems() != before
                {
                    tracing::warn!(netdev = netdev.name, %error, "its interrupts are not moderated");
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
