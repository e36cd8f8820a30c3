//! Who sends: a few threads for all stations, each station always by the same thread.
//!
//! A station's frames are thus sent in order, and when a station has fallen silent and its thread has gone round once
//! more, none of them is still on its way to the switch's netdev.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use forebay_testbed::sys::batch::{self, BATCH};
use forebay_testbed::sys::packet_socket::PacketSocket;
use forebay_testbed::{Result, wait};

use super::super::numbered::{EVERYBODY, Stamp};
use super::oracle::History;

/// Threads that send.
pub(super) const THREADS: usize = 2;
/// How long once round all stations takes.
const LAP: Duration = Duration::from_millis(10);
/// Of the packets for stations of other VLANs, which are flooded or dropped, one in so many is sent.
const FOREIGN: u32 = 64;
const SILENT: u16 = u16::MAX;
const ROUND_LIMIT: Duration = Duration::from_secs(10);

/// What senders, listener and changer share.
pub(super) struct Senders<'h> {
    history: &'h History,
    rate: u32,
    /// Where each station speaks from.
    places: Vec<AtomicU16>,
    /// Each port's VLAN, as its host knows.
    vlans: Vec<AtomicU16>,
    /// The last frame of each station that somebody received.
    heard: Vec<AtomicU64>,
    /// The last frame for everybody, from each port, that somebody received.
    heard_by_all: Vec<AtomicU64>,
    next: AtomicU64,
    sent: AtomicU64,
    laps: [AtomicU64; THREADS],
    over: AtomicBool,
}

impl<'h> Senders<'h> {
    /// As the last state has stations and ports.
    pub(super) fn new(history: &'h History, rate: u32) -> Senders<'h> {
        let state = history.now();
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        Senders {
            history,
            rate,
            places: state.stations.iter().map(|station| station.port.into()).collect(),
            vlans: state.ports.iter().map(|port| port.vlan.into()).collect(),
            heard: zeros(state.stations.len()),
            heard_by_all: zeros(state.ports.len()),
            next: AtomicU64::new(1),
            sent: AtomicU64::new(0),
            laps: Default::default(),
            over: AtomicBool::new(false),
        }
    }

    /// Sends until it is over, for this thread's stations.
    pub(super) fn send(&self, sockets: &[PacketSocket], thread: usize) {
        let mut random = fastrand::Rng::with_seed(thread as u64);
        let a_lap = f64::from(self.rate) * LAP.as_secs_f64() / self.places.len() as f64;
        let mut targets: Vec<u16> = (0..self.places.len() as u16).collect();
        let (start, mut laps, mut owed) = (Instant::now(), 0, 0.0);
        while !self.over.load(SeqCst) {
            owed += a_lap;
            let count = (owed as usize).min(BATCH);
            owed -= owed.floor();
            for station in (thread..self.places.len()).step_by(THREADS) {
                self.speak(sockets, &mut random, &mut targets[station], station as u16, count);
            }
            laps += 1;
            self.laps[thread].store(laps.into(), SeqCst);
            std::thread::sleep((start + LAP * laps).saturating_duration_since(Instant::now()));
        }
    }

    /// A station's next frames, each to another station.
    fn speak(
        &self,
        sockets: &[PacketSocket],
        random: &mut fastrand::Rng,
        target: &mut u16,
        station: u16,
        count: usize,
    ) {
        let port = self.places[usize::from(station)].load(SeqCst);
        if port == SILENT {
            return;
        }
        let frames: Vec<Vec<u8>> = (0..count)
            .map(|_| {
                *target = self.next_target(random, *target, station, port);
                self.stamp(station, port, *target).frame()
            })
            .collect();
        // What finds no room in a queue is lost, as on a wire.
        let sent = batch::send(&sockets[usize::from(port)], &frames).unwrap_or(0);
        self.sent.fetch_add(sent as u64, SeqCst);
    }

    fn next_target(&self, random: &mut fastrand::Rng, last: u16, station: u16, port: u16) -> u16 {
        let count = self.places.len() as u16;
        let mut target = last;
        for _ in 0..count {
            target = (target + 1) % count;
            let place = self.places[usize::from(target)].load(SeqCst);
            let is_near = place != SILENT && self.vlan_of(place) == self.vlan_of(port);
            if target != station && (is_near || random.u32(..FOREIGN) == 0) {
                break;
            }
        }
        target
    }

    fn vlan_of(&self, port: u16) -> u16 {
        self.vlans[usize::from(port)].load(SeqCst)
    }

    /// How many changes are done is read before the frame is sent; see [`History::changes_done`].
    fn stamp(&self, from: u16, port: u16, to: u16) -> Stamp {
        let (number, changes_done) = (self.next.fetch_add(1, SeqCst), self.history.changes_done());
        Stamp { number, changes_done, vlan: self.vlan_of(port), port, from, to }
    }

    /// Somebody received this frame.
    pub(super) fn heard(&self, stamp: Stamp) {
        if let Some(heard) = self.heard.get(usize::from(stamp.from)) {
            heard.fetch_max(stamp.number, SeqCst);
        }
        if let Some(heard) = self.heard_by_all.get(usize::from(stamp.port)).filter(|_| stamp.to == EVERYBODY)
        {
            heard.fetch_max(stamp.number, SeqCst);
        }
    }

    /// A station says nothing any more; none of its frames is left in a sender.
    ///
    /// # Errors
    /// When senders stand still.
    pub(super) fn silence(&self, station: u16) -> Result<()> {
        self.places[usize::from(station)].store(SILENT, SeqCst);
        let laps = &self.laps[usize::from(station) % THREADS];
        let seen = laps.load(SeqCst);
        // The lap that is under way may have read the place before; the next has not.
        wait::until("a sender to go round", ROUND_LIMIT, || laps.load(SeqCst) > seen + 1)
    }

    /// A station speaks from this port.
    pub(super) fn place(&self, station: u16, port: u16) {
        self.places[usize::from(station)].store(port, SeqCst);
    }

    /// The host of a port has another VLAN in mind.
    pub(super) fn set_vlan(&self, port: u16, vlan: u16) {
        self.vlans[usize::from(port)].store(vlan, SeqCst);
    }

    /// Waits until a frame that this station sends from now on was received by somebody.
    ///
    /// # Errors
    /// When none is within ten seconds.
    pub(super) fn wait_until_heard(&self, station: u16) -> Result<()> {
        let (from, heard) = (self.next.load(SeqCst), &self.heard[usize::from(station)]);
        let what = format!("a frame of station {station}");
        wait::until(&what, ROUND_LIMIT, || heard.load(SeqCst) >= from)
    }

    /// Waits until a frame for everybody, which user space floods, came through from this port: those that were before it
    /// in the port's ring did, too.
    ///
    /// # Errors
    /// When none does within ten seconds.
    pub(super) fn drain(&self, sockets: &[PacketSocket], station: u16, port: u16) -> Result<()> {
        let (first, heard) = (self.next.load(SeqCst), &self.heard_by_all[usize::from(port)]);
        let what = format!("a frame for everybody from port {port}");
        let mut looks = 0;
        wait::until(&what, ROUND_LIMIT, || {
            // One that is lost is sent again.
            if looks % 10 == 0 {
                let frame = self.stamp(station, port, EVERYBODY).frame();
                let sent = batch::send(&sockets[usize::from(port)], &[frame]).unwrap_or(0);
                self.sent.fetch_add(sent as u64, SeqCst);
            }
            looks += 1;
            heard.load(SeqCst) >= first
        })
    }

    /// Nobody sends any more.
    pub(super) fn end(&self) {
        self.over.store(true, SeqCst);
    }

    /// Packets so far.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::super::oracle::{Port, State, Station};
    use super::*;

    fn history(vlans: [u16; 3]) -> History {
        let ports = vlans.map(|vlan| Port { exists: true, vlan, isolated: false });
        let stations = [0, 1, 2].map(|port| Station { port, is_known: true });
        History::new(State { ports: ports.into(), stations: stations.into() })
    }

    #[test]
    fn a_station_speaks_to_the_others_of_its_vlan_and_never_to_itself() {
        let history = history([10, 20, 10]);
        let senders = Senders::new(&history, 1000);
        let mut random = fastrand::Rng::with_seed(1);
        let (mut target, mut foreign) = (0, 0);
        for _ in 0..1000 {
            target = senders.next_target(&mut random, target, 0, 0);
            assert_ne!(target, 0);
            foreign += u32::from(target == 1);
        }
        assert!((1..100).contains(&foreign), "{foreign}");
    }

    #[test]
    fn only_what_is_for_everybody_drains_a_port() {
        let history = history([10, 10, 10]);
        let senders = Senders::new(&history, 1000);
        senders.heard(Stamp { number: 7, changes_done: 0, vlan: 10, port: 1, from: 2, to: 0 });
        assert_eq!((senders.heard[2].load(SeqCst), senders.heard_by_all[1].load(SeqCst)), (7, 0));
        senders.heard(Stamp { number: 8, changes_done: 0, vlan: 10, port: 1, from: 2, to: EVERYBODY });
        assert_eq!(senders.heard_by_all[1].load(SeqCst), 8);
    }
}
