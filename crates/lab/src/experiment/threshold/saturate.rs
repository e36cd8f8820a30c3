//! Silent hosts on a small pool, filled while the switch stands still.

use std::time::Duration;

use forebay_testbed::dut::counters::{Moved, Reading};
use forebay_testbed::dut::{self, Dut, Forebay};
use forebay_testbed::frame::{BROADCAST, Frame, mark_of};
use forebay_testbed::host::{Host, PortKind};
use forebay_testbed::lab::Lab;
use forebay_testbed::packet_io::FrameSocket;
use forebay_testbed::standstill::while_stopped;
use forebay_testbed::{LabError, Result, wait};

use super::super::{Report, Setup};

/// Packets a port's RX ring holds: the most there is, so that the threshold decides and not the ring.
pub(super) const DEPTH: u32 = 4096;
/// Frames of the pool: about as many for ports as that depth, and for fill rings.
pub(super) const FRAMES: u32 = 9344;
/// Frames that each saturating host sends: more than a ring holds.
const OFFERED: u64 = DEPTH as u64 + 200;
const ARRIVAL_LIMIT: Duration = Duration::from_secs(3);
/// How long everything may take to drain.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
/// The station that all send to, behind the last port.
const RECEIVER: [u8; 6] = [2, 0, 0, 0, 7, 0xff];

/// Senders, a quiet host and a receiver, on a switch that knows the receiver.
pub(super) struct Arena {
    // In this order: the switch and hosts before the lab they are in.
    forebay: Forebay,
    sockets: Vec<FrameSocket>,
    hosts: Vec<Host>,
    lab: Lab,
    shared: u64,
}

/// What saturated ports held.
pub(super) struct Round {
    /// Each sender's frames.
    pub(super) held: Vec<u64>,
    /// Frames that ports still held after everything had drained.
    pub(super) left: u64,
}

/// What became of a quiet port's burst.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Burst {
    pub(super) refused: u64,
    /// Frames that the quiet port may hold whatever its threshold says.
    pub(super) reserve: u32,
    /// What each of the saturating ports held.
    pub(super) crowd_mean: f64,
    pub(super) left: u64,
}

impl Arena {
    /// Hosts for so many senders; `None` when the daemon does not offer the setup.
    pub(super) fn build(setup: &Setup, senders: usize, report: &mut Report) -> Result<Option<Arena>> {
        let mut lab = Lab::new("threshold")?;
        let hosts = lab.hosts(senders + 2, PortKind::VethTcx)?;
        let Some(mut forebay) = setup.start(&lab, report)? else { return Ok(None) };
        forebay.add_ports(&dut::ports_of(&hosts))?;
        hosts.iter().try_for_each(Host::silence)?;
        let sockets = hosts.iter().map(FrameSocket::open).collect::<Result<_>>()?;
        let shared = forebay.client().pool()?.frames_shared;
        let mut arena = Arena { forebay, sockets, hosts, lab, shared };
        arena.introduce()?;
        Ok(Some(arena))
    }

    /// Frames that all ports share.
    pub(super) fn shared(&self) -> u64 {
        self.shared
    }

    /// The switch, its hosts, and a socket at each.
    pub(super) fn parts(&mut self) -> (&mut Forebay, &[Host], &[FrameSocket]) {
        (&mut self.forebay, &self.hosts, &self.sockets)
    }

    /// Lets the switch know where the receiver is.
    fn introduce(&mut self) -> Result<()> {
        const MARK: u32 = 1;
        let hello = Frame::marked(RECEIVER, BROADCAST, MARK).build();
        let last = self.sockets.len() - 1;
        self.sockets[last].send(&hello)?;
        let heard = self.sockets[0].collect(1, ARRIVAL_LIMIT, |frame| mark_of(frame) == Some(MARK))?;
        if heard.is_empty() {
            return Err(LabError::output(
                format!("the receiver in {}", self.lab.switch().name()),
                "nobody heard it",
            ));
        }
        Ok(())
    }

    /// Fills the pool from so many hosts with this threshold, and no reserve.
    pub(super) fn saturate(&mut self, th: u8, senders: usize) -> Result<Round> {
        self.set_threshold(th, senders)?;
        let (moved, left) = self.fill(senders, 0)?;
        Ok(Round { held: self.held(&moved, senders), left })
    }

    /// Fills the pool from all senders; then the quiet host sends a burst, with the same threshold and the reserve that
    /// the daemon gives every port.
    pub(super) fn burst(&mut self, th: u8, packets: u64) -> Result<Burst> {
        let senders = self.hosts.len() - 2;
        self.set_threshold(th, senders)?;
        let quiet = self.hosts[senders].name().to_owned();
        self.forebay.client().ok(&["pool", "set", &quiet, "--th", &th.to_string()])?;
        let (moved, left) = self.fill(senders, packets)?;
        let held = self.held(&moved, senders);
        let crowd_mean = held.iter().sum::<u64>() as f64 / held.len() as f64;
        let refused = packets.saturating_sub(moved.get(&quiet, "forwarded_packets"));
        let ports = self.forebay.client().pool()?.ports;
        let reserve = ports.iter().find(|port| port.name == quiet).map_or(0, |port| port.reserve);
        Ok(Burst { refused, reserve, crowd_mean, left })
    }

    fn set_threshold(&self, th: u8, senders: usize) -> Result<()> {
        let th = th.to_string();
        let set = |host: &Host| {
            self.forebay.client().ok(&["pool", "set", host.name(), "--th", &th, "--reserve", "0"]).map(drop)
        };
        self.hosts[..senders].iter().try_for_each(set)
    }

    /// What was let in is what was forwarded later: nothing is forwarded while the switch stands still.
    fn held(&self, moved: &Moved, senders: usize) -> Vec<u64> {
        self.hosts[..senders].iter().map(|host| moved.get(host.name(), "forwarded_packets")).collect()
    }

    /// Sends from the crowd and then from the quiet host; what moved, and what ports hold when all has drained.
    fn fill(&mut self, senders: usize, quiet_packets: u64) -> Result<(Moved, u64)> {
        let client = self.forebay.client().clone();
        let before = Reading::settled(&client)?;
        let pid = self.forebay.daemon().pid();
        let sockets = &self.sockets;
        while_stopped(pid, || {
            let frames: Vec<Vec<u8>> = (0..senders).map(frame_from).collect();
            for _ in 0..OFFERED {
                (0..senders).try_for_each(|sender| sockets[sender].send(&frames[sender]))?;
            }
            let quiet = self.hosts.len() - 2;
            (0..quiet_packets).try_for_each(|_| sockets[quiet].send(&frame_from(quiet)))
        })?;
        let moved = Reading::settled(&client)?.since(&before);
        let used = || client.pool().map_or(u64::MAX, |pool| pool.ports.iter().map(|port| port.used).sum());
        let _ = wait::until("the ports to hold nothing", DRAIN_LIMIT, || used() == 0);
        Ok((moved, used()))
    }
}

fn frame_from(sender: usize) -> Vec<u8> {
    Frame::marked([2, 0, 0, 0, 7, sender as u8], RECEIVER, 2).build()
}
