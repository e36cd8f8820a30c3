//! Two guests in this process, on one thread: one sends and asks; the other receives and answers, and pays a stated cost for
//! each interrupt.
//!
//! ```text
//!  sender ── stream, requests ──► the switch ──► receiver: is called, works for the cost, takes what is there
//!    ▲                                              │
//!    └──── acknowledgements, responses ─────────────┘
//! ```
//!
//! The receiver works as a kernel's driver does: it wants a call, gets one, wants none while there are packets, and asks for
//! the next call when there are none. One acknowledgement goes back each time it has taken all there was. The thread never
//! sleeps, so that no scheduler is part of what is measured: the receiver's processor time is the time in which it works.

mod wire;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use forebay_vhost::Features;
use forebay_vhost::driver::{FrontEnd, FrontEndOptions};

use self::wire::Kind;
use crate::measure::latency::{Latency, Times};
use crate::{LabError, Result};

/// Rings as deep as those of the published measurements.
const RING: FrontEndOptions = FrontEndOptions {
    features: Features(Features::MRG_RXBUF.0 | Features::EVENT_IDX.0),
    size: 1024,
    buffer_bytes: 2048,
    keeps_notes: false,
};
/// Packets that the receiver takes before the sender has its turn.
const BUDGET: usize = 16;
/// After this time without a reply what is under way is lost.
const LOST: Duration = Duration::from_millis(50);
/// A stream's number has 24 bits.
const NUMBERS: u32 = (1 << 24) - 1;

/// A stream of packets of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// At random times, so many a second on average, whatever becomes of them.
    Random {
        /// Packets a second.
        rate: u32,
        /// Bytes of each packet.
        bytes: usize,
    },
    /// So many under way, as a sender with a window has.
    Window {
        /// Packets under way.
        packets: u32,
        /// Bytes of each packet.
        bytes: usize,
    },
}

/// What the receiver did, and what the sender noticed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    /// Bytes received, of the stream and of requests.
    pub bytes: u64,
    /// Times that the receiver was called.
    pub interrupts: u64,
    /// Time for which the receiver worked.
    pub worked: Duration,
    /// Times that nothing was acknowledged for [`LOST`], and a sender with a window began anew.
    stalls: u32,
    /// How long requests took, if any was answered.
    pub latency: Option<Latency>,
}

/// The two guests.
#[derive(Debug)]
pub struct GuestLoad {
    sender: FrontEnd,
    receiver: FrontEnd,
    /// Addresses of the sender and the receiver.
    macs: [[u8; 6]; 2],
    interrupt: Duration,
    /// The receiver was called and has not taken all packets yet.
    is_taking: bool,
    /// Which stream this is, modulo 2²⁴. What is left of an earlier one does not count.
    number: u32,
    /// Packets that were sent, received and acknowledged, modulo 2³²; of this stream and earlier ones.
    sent: u32,
    received: u32,
    acked: u32,
    random: u64,
}

impl GuestLoad {
    /// Connects both to the switch's sockets, each with one pair of split rings. An interrupt costs the receiver so much.
    ///
    /// # Errors
    /// The kernel refuses memory, or there is no switch.
    pub fn connect(sockets: [&Path; 2], macs: [[u8; 6]; 2], interrupt: Duration) -> Result<GuestLoad> {
        let [mut sender, mut receiver] = [connect(sockets[0])?, connect(sockets[1])?];
        // The sender polls.
        let _ = sender.want_calls(false);
        let is_taking = receiver.want_calls(true);
        let random = 0x9e37_79b9_7f4a_7c15;
        Ok(GuestLoad {
            sender,
            receiver,
            macs,
            interrupt,
            is_taking,
            number: 0,
            sent: 0,
            received: 0,
            acked: 0,
            random,
        })
    }

    /// Sends for so long: a stream if there is one, and requests one at a time if so wanted.
    pub fn run(&mut self, stream: Option<Stream>, asks: bool, duration: Duration) -> Seen {
        let [from, to] = self.macs;
        let request = wire::request(from, to);
        self.number = (self.number + 1) & NUMBERS;
        self.begin_anew();
        let packet = stream.map(|stream| wire::stream(from, to, stream.bytes(), self.number));
        let (mut seen, mut times, mut asked) = (Seen::default(), Times::default(), None::<Instant>);
        let start = Instant::now();
        let (mut due, mut heard) = (start, start);
        loop {
            let now = Instant::now();
            if now >= start + duration {
                seen.latency = times.latency();
                return seen;
            }
            match (stream, &packet) {
                (Some(Stream::Random { rate, .. }), Some(packet)) => {
                    while due <= now {
                        self.sender.transmit(packet);
                        due += self.gap(rate);
                    }
                }
                (Some(Stream::Window { packets, .. }), Some(packet)) => {
                    if now >= heard + LOST {
                        self.begin_anew();
                        seen.stalls += 1;
                        heard = now;
                    }
                    self.fill(packets, packet);
                }
                _ => {}
            }
            if asks && asked.is_none_or(|asked| now >= asked + LOST) && self.sender.transmit(&request) {
                asked = Some(Instant::now());
            }
            self.receive(&mut seen);
            while let Some(packet) = self.sender.receive() {
                match wire::kind_of(&packet) {
                    Kind::Ack(number) => (self.acked, heard) = (number, Instant::now()),
                    Kind::Request => times.extend(asked.take().map(|asked| asked.elapsed())),
                    Kind::Stream(_) | Kind::Other => {}
                }
            }
        }
    }

    /// Nothing is under way.
    fn begin_anew(&mut self) {
        (self.sent, self.acked) = (self.received, self.received);
    }

    fn fill(&mut self, window: u32, packet: &[u8]) {
        while self.sent.wrapping_sub(self.acked) < window && self.sender.transmit(packet) {
            self.sent = self.sent.wrapping_add(1);
        }
    }

    /// The receiver's turn: it is called, or goes on.
    fn receive(&mut self, seen: &mut Seen) {
        if !self.is_taking && self.receiver.take_calls() == 0 {
            return;
        }
        let began = Instant::now();
        if !std::mem::replace(&mut self.is_taking, true) {
            seen.interrupts += 1;
            let _ = self.receiver.want_calls(false);
            while began.elapsed() < self.interrupt {
                std::hint::spin_loop();
            }
        }
        let before = self.received;
        let is_empty = !(0..BUDGET).all(|_| self.take(seen));
        if self.received != before {
            let [peer, mac] = self.macs;
            self.receiver.transmit(&wire::ack(mac, peer, self.received));
        }
        if is_empty {
            self.is_taking = self.receiver.want_calls(true);
        }
        seen.worked += began.elapsed();
    }

    /// Takes a packet. Whether there was one.
    fn take(&mut self, seen: &mut Seen) -> bool {
        let Some(packet) = self.receiver.receive() else { return false };
        match wire::kind_of(&packet) {
            Kind::Stream(number) if number == self.number => self.received = self.received.wrapping_add(1),
            Kind::Request => {
                seen.bytes += packet.len() as u64;
                // A response that finds no room is lost.
                self.receiver.transmit(&wire::response(packet));
                return true;
            }
            Kind::Stream(_) | Kind::Ack(_) | Kind::Other => return true,
        }
        seen.bytes += packet.len() as u64;
        true
    }

    /// Time to the next packet, exponentially distributed; the same numbers each time.
    fn gap(&mut self, rate: u32) -> Duration {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let unit = ((self.random >> 11) + 1) as f64 / (1u64 << 53) as f64;
        Duration::from_secs_f64(-unit.ln() / f64::from(rate))
    }
}

impl Seen {
    /// For how long a sender with a window stood still because what was under way was lost.
    pub fn stood_still(&self) -> Duration {
        LOST * self.stalls
    }
}

impl Stream {
    fn bytes(self) -> usize {
        match self {
            Stream::Random { bytes, .. } | Stream::Window { bytes, .. } => bytes,
        }
    }
}

fn connect(socket: &Path) -> Result<FrontEnd> {
    let failed = |error| LabError::system("making a guest", io::Error::other(error));
    let mut guest = FrontEnd::new(RING).map_err(failed)?;
    let stream =
        UnixStream::connect(socket).map_err(|error| LabError::system("connecting a guest", error))?;
    guest.connect(stream).map_err(failed)?;
    Ok(guest)
}
