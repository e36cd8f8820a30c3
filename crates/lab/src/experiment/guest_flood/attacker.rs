//! The guest that floods: a DPDK program, or a thread of this process.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use forebay_testbed::frame::{BROADCAST, Frame};
use forebay_testbed::measure::cpu;
use forebay_testbed::programs::guest_flood::{GuestFlood, GuestFloodOptions, Sent};
use forebay_testbed::{Lab, LabError, Result};
use forebay_vhost::Features;
use forebay_vhost::driver::{FrontEnd, FrontEndOptions};

use super::SENDER_CPU;
use crate::experiment::guests::connect;

/// Bytes of a frame, without checksum.
const FRAME_BYTES: u32 = 60;
const SOURCE: [u8; 6] = [2, 0xfd, 0, 0, 0, 1];
/// A station that nobody is.
const NOBODY: [u8; 6] = [2, 0xfd, 0, 0, 0, 99];
const RING: FrontEndOptions = FrontEndOptions {
    features: Features(Features::MRG_RXBUF.0 | Features::EVENT_IDX.0),
    size: 256,
    buffer_bytes: 2048,
    keeps_notes: false,
};

/// How a guest floods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// By DPDK, to an address that the switch has not learned
    Unknown,
    /// By DPDK, to a third container
    Known,
    /// By DPDK, to the machine that is pinged
    Machine,
    /// By DPDK, to all
    Broadcast,
    /// By a thread of this process, to a third container
    InProcess,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Unknown => "to an unknown station",
            Kind::Known => "to a third container",
            Kind::Machine => "to the machine",
            Kind::Broadcast => "broadcasts",
            Kind::InProcess => "by a thread, to a third container",
        })
    }
}

impl Kind {
    pub(super) fn is_dpdk(self) -> bool {
        self != Kind::InProcess
    }
}

/// Stations that a flood may be for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Targets {
    /// The third container.
    pub(super) container: [u8; 6],
    /// The machine that is pinged.
    pub(super) machine: [u8; 6],
}

/// A flood under way.
pub(super) enum Attacker {
    Dpdk(GuestFlood),
    Thread { thread: JoinHandle<Result<Sent>>, over: Arc<AtomicBool> },
}

impl Attacker {
    /// Floods by the port with this socket.
    pub(super) fn start(kind: Kind, lab: &Lab, socket: &Path, targets: Targets) -> Result<Attacker> {
        let destination = match kind {
            Kind::Unknown => NOBODY,
            Kind::Broadcast => BROADCAST,
            Kind::Known | Kind::InProcess => targets.container,
            Kind::Machine => targets.machine,
        };
        if kind.is_dpdk() {
            let options = GuestFloodOptions {
                socket,
                processor: Some(SENDER_CPU),
                source: SOURCE,
                destination,
                packet_bytes: FRAME_BYTES,
            };
            return GuestFlood::start(lab, &options).map(Attacker::Dpdk);
        }
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let frame = Frame::marked(SOURCE, destination, 1).build();
        let failed = |error| LabError::system("making a machine", std::io::Error::other(error));
        let mut guest = FrontEnd::new(RING).map_err(failed)?;
        connect(&mut guest, socket)?;
        let thread = std::thread::spawn(move || {
            cpu::pin_to(SENDER_CPU)?;
            let (started, mut packets) = (Instant::now(), 0);
            while !seen.load(Ordering::Relaxed) {
                packets += u64::from(guest.transmit(&frame));
            }
            Ok(Sent { packets, duration: started.elapsed() })
        });
        Ok(Attacker::Thread { thread, over })
    }

    pub(super) fn finish(self) -> Result<Sent> {
        match self {
            Attacker::Dpdk(flood) => flood.finish(),
            Attacker::Thread { thread, over } => {
                over.store(true, Ordering::Relaxed);
                thread.join().expect("the flood does not panic")
            }
        }
    }
}
