//! Where a packet may arrive.
//!
//! A state says which ports there are, in which VLAN, which are isolated, and where each station is and whether the
//! switch must know it. A change begins with the state it leads to and is complete when the switch has told so; in
//! between, both states hold. A packet knows the last state that was complete when it was sent, and is received under
//! the last that had begun by then: it may arrive where one of these states, as a whole, sends it.
//!
//! What this cannot see: a packet that arrives nowhere, and one that arrives twice.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{PoisonError, RwLock};

use forebay_testbed::sys::packet_socket::Tag;

use super::super::numbered::{EVERYBODY, Stamp};

/// One port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Port {
    pub(super) exists: bool,
    pub(super) vlan: u16,
    pub(super) isolated: bool,
}

/// One station.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Station {
    pub(super) port: u16,
    /// Packets for it, in its port's VLAN, are not flooded.
    pub(super) is_known: bool,
}

/// What the switch was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    pub(super) ports: Vec<Port>,
    pub(super) stations: Vec<Station>,
}

/// How a packet that may arrive does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    Direct,
    Flooded,
}

/// Why a packet may not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Violation {
    OtherVlan,
    IsolatedPeer,
    WrongPort,
    FloodedThoughKnown,
    BackToSender,
    NoPort,
    Tagged,
    NotSent,
}

impl Violation {
    pub(super) const ALL: [Violation; 8] = [
        Violation::OtherVlan,
        Violation::IsolatedPeer,
        Violation::WrongPort,
        Violation::FloodedThoughKnown,
        Violation::BackToSender,
        Violation::NoPort,
        Violation::Tagged,
        Violation::NotSent,
    ];

    /// As tables have it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Violation::OtherVlan => "at a port of another VLAN",
            Violation::IsolatedPeer => "from isolated port to isolated port",
            Violation::WrongPort => "at a port where its station was before",
            Violation::FloodedThoughKnown => "at a port where its station is not, though it is known",
            Violation::BackToSender => "at the port it came from",
            Violation::NoPort => "from or at a netdev that is no port",
            Violation::Tagged => "with a tag, at an access port",
            Violation::NotSent => "that nobody sent",
        }
    }
}

impl State {
    /// Whether a packet may arrive at this port.
    fn admits(&self, stamp: &Stamp, at: u16) -> Result<Arrival, Violation> {
        let port = |number: u16| self.ports.get(usize::from(number)).ok_or(Violation::NotSent);
        let (from, to) = (port(stamp.port)?, port(at)?);
        if stamp.port == at {
            return Err(Violation::BackToSender);
        }
        if from.vlan != to.vlan {
            return Err(Violation::OtherVlan);
        }
        if from.isolated && to.isolated {
            return Err(Violation::IsolatedPeer);
        }
        if !from.exists || !to.exists {
            return Err(Violation::NoPort);
        }
        if stamp.to == EVERYBODY {
            return Ok(Arrival::Flooded);
        }
        let station = self.stations.get(usize::from(stamp.to)).ok_or(Violation::NotSent)?;
        match *station {
            Station { port, .. } if port == at => Ok(Arrival::Direct),
            // Known in its own VLAN; in another nobody has heard it.
            Station { port, is_known: true } if self.ports[usize::from(port)].vlan == from.vlan => {
                Err(Violation::FloodedThoughKnown)
            }
            Station { .. } => Ok(Arrival::Flooded),
        }
    }
}

/// All states, from the first.
#[derive(Debug)]
pub(super) struct History {
    states: RwLock<Vec<State>>,
    complete: AtomicU32,
}

impl History {
    pub(super) fn new(first: State) -> History {
        History { states: RwLock::new(vec![first]), complete: AtomicU32::new(0) }
    }

    /// A change begins, to the last state with this difference.
    pub(super) fn begin(&self, difference: impl FnOnce(&mut State)) {
        let mut states = self.states.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = states[states.len() - 1].clone();
        difference(&mut next);
        states.push(next);
    }

    /// The change that began last is complete.
    pub(super) fn complete(&self) {
        let states = self.states.read().unwrap_or_else(PoisonError::into_inner);
        self.complete.store(states.len() as u32 - 1, SeqCst);
    }

    /// The last change that is complete, to be read before a packet is sent.
    pub(super) fn changes_done(&self) -> u32 {
        self.complete.load(SeqCst)
    }

    /// The state that changes have led to.
    pub(super) fn now(&self) -> State {
        let states = self.states.read().unwrap_or_else(PoisonError::into_inner);
        states[states.len() - 1].clone()
    }

    /// Whether a packet that is received now may be.
    fn admits(&self, stamp: &Stamp, at: u16) -> Result<Arrival, Violation> {
        let states = self.states.read().unwrap_or_else(PoisonError::into_inner);
        let possible = states.get(stamp.changes_done as usize..).unwrap_or_default();
        let mut verdict = Err(Violation::NotSent);
        // The newest last, whose word counts when all say no.
        for state in possible {
            verdict = state.admits(stamp, at);
            if verdict.is_ok() {
                return verdict;
            }
        }
        let was_there =
            |state: &State| state.stations.get(usize::from(stamp.to)).is_some_and(|s| s.port == at);
        match verdict {
            Err(Violation::FloodedThoughKnown) if states.iter().any(was_there) => Err(Violation::WrongPort),
            other => other,
        }
    }
}

const EXAMPLES: usize = 8;

/// What was received, and what of it may not have been.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    pub(super) direct: u64,
    pub(super) flooded: u64,
    violations: [u64; Violation::ALL.len()],
    /// The first few violations, in words.
    pub(super) examples: Vec<String>,
}

impl Oracle {
    /// Judges a frame that a host received; what it says.
    pub(super) fn hear(
        &mut self,
        history: &History,
        at: u16,
        frame: &[u8],
        tag: Option<Tag>,
    ) -> Option<Stamp> {
        let stamp = Stamp::read(frame);
        let verdict = match (stamp, tag) {
            (None, _) => Err(Violation::NotSent),
            (Some(_), Some(_)) => Err(Violation::Tagged),
            (Some(stamp), None) => history.admits(&stamp, at),
        };
        match verdict {
            Ok(Arrival::Direct) => self.direct += 1,
            Ok(Arrival::Flooded) => self.flooded += 1,
            Err(violation) => self.violate(violation, at, stamp),
        }
        stamp
    }

    fn violate(&mut self, violation: Violation, at: u16, stamp: Option<Stamp>) {
        self.violations[violation as usize] += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(format!("A packet {}: received at port {at}: {stamp:?}.", violation.name()));
        }
    }

    pub(super) fn count(&self, violation: Violation) -> u64 {
        self.violations[violation as usize]
    }

    pub(super) fn received(&self) -> u64 {
        self.direct + self.flooded + self.violations.iter().sum::<u64>()
    }
}

#[cfg(test)]
mod tests;
