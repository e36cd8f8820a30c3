//! Loop probes on their way to guests, whose queues only their worker fills.
//!
//! A loop through a guest fills the guest's queue. So a probe that finds no room waits here, and is tried again before each
//! turn: the guest takes packets while the worker does something else.

use forebay_control::PortId;
use forebay_kernel::PROBE_BYTES;
use forebay_policy::{Nanos, Sender};

use super::Worker;
use super::outlet::Outlet;
use super::parcel::Undeliverable;

/// Probes that may wait; those beyond are lost, and others follow.
const WAITING: usize = 64;

/// Sender of probes, which is no port.
const THE_SWITCH: Sender = Sender { port: u16::MAX, is_flooded: false };

/// A probe, and the guest's port that it is to leave by.
pub(crate) type ProbeToGuest = (PortId, [u8; PROBE_BYTES]);

/// Probes that found no room yet, one of each port at most.
pub(super) struct ProbesDue(Vec<ProbeToGuest>);

impl ProbesDue {
    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(WAITING))
    }

    /// The newest probe of a port tells most.
    fn put(&mut self, probe: ProbeToGuest) {
        self.0.retain(|(port, _)| *port != probe.0);
        if self.0.len() < WAITING {
            self.0.push(probe);
        }
    }
}

impl Worker {
    /// Sends probes to guests of this worker, now or before a later turn.
    pub(super) fn probe_guests(&mut self, probes: &[ProbeToGuest], now: Nanos) {
        for probe in probes {
            if !self.probe_guest(probe, now) {
                self.probes_due.put(*probe);
            }
        }
    }

    /// Tries probes again that found no room.
    #[inline]
    pub(super) fn probe_those_due(&mut self, now: Nanos) {
        if !self.probes_due.0.is_empty() {
            let mut due = std::mem::take(&mut self.probes_due.0);
            due.retain(|probe| !self.probe_guest(probe, now));
            self.probes_due.0 = due;
        }
    }

    /// `false`: there is no room.
    fn probe_guest(&mut self, (port, probe): &ProbeToGuest, now: Nanos) -> bool {
        let Some(Outlet::Guest(guest)) = self.outlets[usize::from(port.0)].as_deref_mut() else {
            return true;
        };
        let sent = guest.send_bytes(probe, THE_SWITCH);
        guest.show(&mut self.moderation, now);
        !matches!(sent, Err(Undeliverable::Full | Undeliverable::OverShare))
    }
}
