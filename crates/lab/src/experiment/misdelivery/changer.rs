//! Who changes everything, one change at a time, and knows when each is complete.
//!
//! A request is complete when it is answered. That a station is heard again, or elsewhere, is complete when the table
//! shows it there and a frame that it sent after that was received: its worker is done by then with whatever it does
//! when a station moves.

use std::time::{Duration, Instant};

use forebay_testbed::{Result, wait};

use super::oracle::{History, State};
use super::senders::Senders;
use super::world::{VLANS, World};

const HEARD_LIMIT: Duration = Duration::from_secs(10);
/// Of all ports, at most one in so many is isolated.
const MOST_ISOLATED: usize = 4;

/// How often each was done.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) moves: u64,
    pub(super) isolations: u64,
    pub(super) vlans: u64,
    pub(super) ports: u64,
}

/// The changer.
pub(super) struct Changer<'a> {
    world: &'a World,
    history: &'a History,
    senders: &'a Senders<'a>,
    random: fastrand::Rng,
    made: Made,
}

impl<'a> Changer<'a> {
    pub(super) fn new(
        world: &'a World,
        history: &'a History,
        senders: &'a Senders<'a>,
        seed: u64,
    ) -> Changer<'a> {
        let random = fastrand::Rng::with_seed(seed);
        Changer { world, history, senders, random, made: Made::default() }
    }

    /// Waits until all stations are known, then changes for so long.
    pub(super) fn go_on_for(&mut self, duration: Duration) -> Result<Made> {
        self.hear_all(|_| true)?;
        let start = Instant::now();
        while start.elapsed() < duration {
            match self.random.u32(..100) {
                0..50 => self.move_station()?,
                50..65 => self.isolate()?,
                65..85 => self.change_vlan()?,
                _ => self.replace_port()?,
            }
        }
        Ok(self.made)
    }

    /// A station without a port of its own begins to speak from another port of its VLAN.
    fn move_station(&mut self) -> Result<()> {
        let state = self.history.now();
        let (ports, stations) = (state.ports.len() as u16, state.stations.len() as u16);
        let station = self.random.u16(ports..stations);
        let from = state.stations[usize::from(station)].port;
        let vlan = state.ports[usize::from(from)].vlan;
        let near: Vec<u16> =
            (0..ports).filter(|port| *port != from && state.ports[usize::from(*port)].vlan == vlan).collect();
        let Some(to) = self.random.choice(near) else { return Ok(()) };
        self.senders.silence(station)?;
        // Port n is station n's own. What waits in the old port's ring would bring the station back.
        self.senders.drain(&self.world.sockets, from, from)?;
        self.history.begin(|state| state.stations[usize::from(station)].port = to);
        self.senders.place(station, to);
        self.wait_until_known(station, to)?;
        self.history.complete();
        self.made.moves += 1;
        Ok(())
    }

    fn isolate(&mut self) -> Result<()> {
        let state = self.history.now();
        let port = self.random.u16(..state.ports.len() as u16);
        let is_isolated = state.ports[usize::from(port)].isolated;
        let isolated = state.ports.iter().filter(|port| port.isolated).count();
        if !is_isolated && isolated >= state.ports.len() / MOST_ISOLATED {
            return Ok(());
        }
        self.history.begin(|state| state.ports[usize::from(port)].isolated = !is_isolated);
        self.world.isolate(port, !is_isolated)?;
        self.history.complete();
        self.made.isolations += 1;
        Ok(())
    }

    /// A port, and all stations there, come into another VLAN.
    fn change_vlan(&mut self) -> Result<()> {
        let port = self.any_port();
        let old = self.history.now().ports[usize::from(port)].vlan;
        let others: Vec<u16> = VLANS.into_iter().filter(|vlan| *vlan != old).collect();
        let Some(vlan) = self.random.choice(others) else { return Ok(()) };
        self.history.begin(|state| {
            state.ports[usize::from(port)].vlan = vlan;
            forget(state, port);
        });
        self.world.set_vlan(port, vlan)?;
        self.history.complete();
        self.senders.set_vlan(port, vlan);
        self.hear_all(|at| at == port)?;
        self.made.vlans += 1;
        Ok(())
    }

    fn replace_port(&mut self) -> Result<()> {
        let port = self.any_port();
        self.history.begin(|state| {
            state.ports[usize::from(port)].exists = false;
            forget(state, port);
        });
        self.world.delete_port(port)?;
        self.history.complete();
        self.history.begin(|state| state.ports[usize::from(port)].exists = true);
        self.world.add_port(port, self.history.now().ports[usize::from(port)])?;
        self.history.complete();
        self.hear_all(|at| at == port)?;
        self.made.ports += 1;
        Ok(())
    }

    fn any_port(&mut self) -> u16 {
        self.random.u16(..self.world.sockets.len() as u16)
    }

    /// All stations on such ports are known from when this returns.
    fn hear_all(&self, is_there: impl Fn(u16) -> bool) -> Result<()> {
        let state = self.history.now();
        let there = (0u16..).zip(&state.stations).filter(|(_, station)| is_there(station.port));
        let there: Vec<(u16, u16)> = there.map(|(number, station)| (number, station.port)).collect();
        self.history.begin(|state| {
            there.iter().for_each(|(number, _)| state.stations[usize::from(*number)].is_known = true);
        });
        there.iter().try_for_each(|(number, port)| self.wait_until_known(*number, *port))?;
        self.history.complete();
        Ok(())
    }

    fn wait_until_known(&self, station: u16, port: u16) -> Result<()> {
        let what = format!("the table to show station {station} behind port {port}");
        wait::until(&what, HEARD_LIMIT, || self.world.knows(station, port))?;
        self.senders.wait_until_heard(station)
    }
}

/// The switch knows none of the stations behind this port any more.
fn forget(state: &mut State, port: u16) {
    state.stations.iter_mut().filter(|station| station.port == port).for_each(|station| {
        station.is_known = false;
    });
}

#[cfg(test)]
mod tests {
    use super::super::oracle::{Port, Station};
    use super::*;

    #[test]
    fn a_port_that_goes_takes_its_stations_along_and_no_others() {
        let ports = vec![Port { exists: true, vlan: 10, isolated: false }; 2];
        let stations = [0, 1, 0].map(|port| Station { port, is_known: true });
        let mut state = State { ports, stations: stations.into() };
        forget(&mut state, 0);
        let known: Vec<bool> = state.stations.iter().map(|station| station.is_known).collect();
        assert_eq!(known, [false, true, false]);
    }
}
