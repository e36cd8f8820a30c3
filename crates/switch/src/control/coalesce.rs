//! Requests to moderate guests' calls, from users and from guests: they are checked, kept, and told to the worker or the
//! moderator. Requests about netdevs are handed on.

use std::sync::Arc;

use forebay_control::coalesce::{
    CoalesceDirection, CoalescePlace, CoalescePort, CoalesceSet, CoalesceSetting,
};
use forebay_control::{ApiError, PortId};
use forebay_policy::moderation::Limits;
use forebay_vhost::{Coalescing, Virtqueue};

use super::netdev_coalesce::{self, CoalesceLook};
use super::port::Port;
use super::port_calls::{self, QueueCalls, place_of};
use super::{Change, Control};
use crate::guests::GuestKey;
use crate::worker::{Choice, Command, ModeratedQueue};

impl Change<'_> {
    /// Changes how calls of a port's queues are moderated, or interrupts of its netdevs. Returns what shows the port then.
    pub(crate) fn coalesce_set(
        &mut self,
        name: &str,
        change: &CoalesceSet,
    ) -> Result<CoalesceLook, ApiError> {
        let id = self.id_of(name)?;
        if self.ports[&id].guest.is_none() {
            self.coalesce_netdevs(id, change)?;
            return Ok(coalesce_look(&self.ports[&id]));
        }
        let changed = changed(&self.ports[&id], change)?;
        for (index, setting) in changed {
            let Some(guest) = self.ports.beside(id).and_then(|port| port.guest.as_mut()) else { continue };
            guest.calls[index].setting = setting;
            self.moderate_queue(id, index);
        }
        Ok(coalesce_look(&self.ports[&id]))
    }

    /// The guest asks for limits of a queue, or for none any more.
    pub(crate) fn guest_asks_for_limits(&mut self, key: GuestKey, queue: u16, limits: Option<Coalescing>) {
        let Some(guest) = self.guest_mut(key) else { return };
        let Some(calls) = guest.calls.get(usize::from(queue)) else { return };
        let asked = limits.map(|asked| Limits { usecs: asked.max_usecs, packets: asked.max_packets });
        let (is_to_be_told, number) = (calls.cells.ask(asked), calls.number);
        if let (true, Some(number)) = (is_to_be_told, number) {
            let worker = self.ports[&key.id].worker;
            self.workers[worker].send(Command::LimitsChanged(number));
        }
    }
}

impl Control {
    /// What shows the queues of one port and its netdevs; or of all ports of virtual machines or on devices, and of others
    /// that are moderated.
    pub(crate) fn coalesce_to_look_at(&self, name: Option<&str>) -> Result<Vec<CoalesceLook>, ApiError> {
        let only = name.map(|name| self.id_of(name)).transpose()?;
        let is_meant = |port: &&Port| match only {
            Some(id) => port.id == id,
            None => port.guest.is_some() || netdev_coalesce::is_shown(port),
        };
        Ok(self.ports.values().filter(is_meant).map(coalesce_look).collect())
    }

    /// A queue starts: it gets a number, and its policy begins.
    pub(super) fn moderated_queue(&mut self, key: GuestKey, queue: Virtqueue) -> Option<ModeratedQueue> {
        let (index, entries) = (queue.index(), queue.size());
        self.guest_mut(key)?.calls.get_mut(index)?.entries = entries;
        let number = self.call_number(key, index)?;
        self.moderate_queue(key.id, index);
        let cells = Arc::clone(&self.guest_mut(key)?.calls[index].cells);
        Some(ModeratedQueue::new(queue, number, cells))
    }

    /// What its worker calls a queue.
    pub(super) fn call_number(&mut self, key: GuestKey, index: usize) -> Option<usize> {
        let known = self.guest_mut(key)?.calls.get(index)?.number;
        let worker = self.ports[&key.id].worker;
        let number = known.unwrap_or_else(|| self.workers[worker].call_number());
        self.guest_mut(key)?.calls[index].number = Some(number);
        Some(number)
    }

    /// Tells the worker, or the moderator, how a queue's limits are chosen from now on.
    pub(super) fn moderate_queue(&mut self, id: PortId, index: usize) {
        let port = &self.ports[&id];
        let Some(guest) = &port.guest else { return };
        let (guest_calls, calls) = (&guest.calls, &guest.calls[index]);
        let Some(number) = calls.number else { return };
        let (policy, guest) = (calls.policy(index), calls.setting.guest);
        port_calls::set_looks(guest_calls, index);
        let name = (port.worker, number);
        let policy = match calls.setting.place {
            CoalescePlace::Offload => {
                self.moderator.leave(name);
                Some(policy)
            }
            CoalescePlace::Onload => {
                // The worker is about to look anyway.
                let _ = calls.cells.want(policy.settings());
                self.moderator.moderate(name, Arc::clone(&calls.cells), policy);
                None
            }
        };
        self.workers[port.worker].send(Command::Moderate(number, Box::new(Choice { policy, guest })));
    }

    /// The port's queues come no more.
    pub(super) fn forget_calls(&mut self, worker: usize, calls: Vec<QueueCalls>) {
        for number in calls.into_iter().filter_map(|calls| calls.number) {
            self.moderator.leave((worker, number));
            self.workers[worker].free_call_number(number);
        }
    }

    /// What makes a new port's queues or netdevs obey the same.
    pub(super) fn coalesce_asked(port: &Port) -> Vec<CoalesceSet> {
        let calls = port.guest.iter().flat_map(|guest| guest.calls.iter().enumerate());
        let changed = calls.filter(|(_, calls)| calls.setting != CoalesceSetting::default());
        let of_guest = changed.map(|(index, calls)| {
            let (queue, direction) = place_of(index);
            CoalesceSet::of(queue, direction, &calls.setting)
        });
        of_guest.chain(port.coalescing.asked()).collect()
    }
}

/// The settings that a change makes, by the queues' indexes.
fn changed(port: &Port, change: &CoalesceSet) -> Result<Vec<(usize, CoalesceSetting)>, ApiError> {
    let Some(guest) = &port.guest else { return Ok(Vec::new()) };
    change.check_queue(guest.pairs())?;
    let is_meant = |(queue, direction): (u16, CoalesceDirection)| {
        change.queue.is_none_or(|only| only == queue) && change.direction.is_none_or(|only| only == direction)
    };
    let meant = guest.calls.iter().enumerate().filter(|(index, _)| is_meant(place_of(*index)));
    meant.map(|(index, calls)| Ok((index, calls.setting.changed(change)?))).collect()
}

/// What shows a port.
fn coalesce_look(port: &Port) -> CoalesceLook {
    let Some(guest) = &port.guest else { return CoalesceLook::of_netdevs(port) };
    let queues = guest.calls.iter().enumerate().map(|(index, calls)| calls.show(index));
    CoalesceLook::of_guest(CoalescePort {
        name: port.spec.port_name().to_owned(),
        queues: queues.collect(),
        netdevs: Vec::new(),
    })
}
