//! A flood: the saturating source at one host, a sink at another, a switch between them.

use std::time::{Duration, Instant};

use super::sink::Sink;
use super::source::Source;
use crate::frame::{BROADCAST, Frame};
use crate::host::{Host, PortKind};
use crate::lab::Lab;
use crate::packet_io::FrameSocket;
use crate::{Result, wait};

/// UDP source ports in turn.
const FLOWS: u32 = 64;
const START_LIMIT: Duration = Duration::from_secs(10);
/// Time for the last frames to arrive.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(3);

/// A flood under way; it stops when dropped.
#[derive(Debug)]
pub struct Flood {
    source: Source,
    sink: Sink,
    started: Instant,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Flooded {
    /// Frames the source made.
    pub sent: u64,
    /// Frames that arrived at the sink.
    pub arrived: u64,
    /// How long it went on.
    pub duration: Duration,
}

impl Flooded {
    /// Frames made, in millions a second.
    pub fn offered_load_mpps(&self) -> f64 {
        self.sent as f64 / self.duration.as_secs_f64() / 1e6
    }

    /// Frames that arrived, in millions a second.
    pub fn carried_mpps(&self) -> f64 {
        self.arrived as f64 / self.duration.as_secs_f64() / 1e6
    }

    /// Frames that did not arrive.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.arrived)
    }
}

impl Flood {
    /// Floods one host from another, from a thread on this processor; the first frame has arrived when this returns.
    ///
    /// # Errors
    /// When source or sink can't be made, or nothing arrives.
    pub fn start(lab: &Lab, attacker: &Host, target: &Host, processor: usize) -> Result<Flood> {
        if attacker.kind() == PortKind::VethTcx {
            // Without XDP on it, a veth takes redirected frames only with GRO.
            lab.switch().ethtool(attacker.name(), &["gro", "on"])?;
        }
        let sink = Sink::attach(target.netns(), "eth0")?;
        teach(target)?;
        let started = Instant::now();
        let source =
            Source::start(attacker.netns(), "eth0", small_frame(attacker, target), FLOWS, processor)?;
        let arrives = || sink.counted().is_ok_and(|counted| counted.packets > 0);
        wait::until("the first packet of the flood", START_LIMIT, arrives)?;
        Ok(Flood { source, sink, started })
    }

    /// Stops it and counts, when nothing arrives any more.
    ///
    /// # Errors
    /// The kernel's, from sending.
    pub fn finish(self) -> Result<Flooded> {
        let sent = self.source.finish()?;
        let duration = self.started.elapsed();
        let mut last = None;
        let _ = wait::until("the last packets of the flood", ARRIVAL_LIMIT, || {
            let now = self.sink.counted().ok();
            std::mem::replace(&mut last, now) == now
        });
        Ok(Flooded { sent, arrived: self.sink.counted()?.packets, duration })
    }
}

/// A 60-byte UDP frame from one host to another.
pub fn small_frame(from: &Host, to: &Host) -> Vec<u8> {
    let end = |host: &Host, port| (host.mac(), host.v4().octets(), port);
    let mut frame = Frame::udp4(end(from, 1024), end(to, 9), &[0; 18]).build();
    // No UDP checksum: the source changes the port.
    frame[40..42].copy_from_slice(&[0, 0]);
    frame
}

/// Lets the switch know where a host is, although a sink takes its packets.
///
/// # Errors
/// When the frame can't be sent.
pub fn teach(host: &Host) -> Result<()> {
    FrameSocket::open(host)?.send(&Frame::marked(host.mac(), BROADCAST, 1).build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_whole_time_and_what_did_not_arrive_is_lost() {
        let flooded = Flooded { sent: 4_000_000, arrived: 1_000_000, duration: Duration::from_secs(2) };
        assert_eq!((flooded.offered_load_mpps(), flooded.carried_mpps()), (2.0, 0.5));
        assert_eq!(flooded.lost(), 3_000_000);
    }
}
