//! Candidates (b) and (c): TX rings of AF_XDP sockets, on each port or on the far end of a relay.

use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_pool::{Arena, Frame, FrameSize, Segment};
use forebay_xsk::{Queue, QueueOptions, QueueRings};

use crate::Sender;
use crate::measure::Tally;
use crate::world::World;

/// The switch's pool, as the kernel's memory per bound port depends on it.
pub(crate) const CHUNKS: u32 = 16_384;
const TX_ENTRIES: u32 = 2048;
/// `XDP_MAX_TX_SKB_BUDGET`, include/uapi/linux/if_xdp.h, since Linux 6.17; without it the budget is 32.
const MAX_TX_SKB_BUDGET: libc::c_int = 9;
const DEFAULT_BUDGET: u32 = 32;
/// Where a received frame's packet begins, and so where it begins with a tag in front of its protocol.
const OFFSET: u16 = 256;
const TAG: u16 = 4;
const DEADLINE: Duration = Duration::from_secs(2);

/// Where the packet's destination is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Port n has socket n.
    Direct,
    /// One socket; a tag in the packet says which port.
    Tagged,
    /// One socket; a tag stands for 100 ports and the relay makes the copies.
    TaggedFlood,
}

/// As in transmit.bpf.c.
const FLOOD_TAG: u16 = 4095;
const FLOOD_PORTS: u64 = 100;

struct Output {
    queue: Queue,
    rings: QueueRings,
}

pub(crate) struct XdpSender {
    arena: Arc<Arena>,
    outputs: Vec<Output>,
    free: Vec<Frame>,
    route: Route,
    ports: u64,
    frame: Vec<u8>,
    /// Frames filled anew for each packet: a flood without the relay's help needs its copies made.
    copies_payload: bool,
}

impl XdpSender {
    /// A TX ring on each port.
    pub(crate) fn direct(world: &World, ports: usize, frame_bytes: u16) -> XdpSender {
        let (arena, free) = arena(frame_bytes);
        let mut outputs: Vec<Output> = Vec::new();
        for &ifindex in &world.ports[..ports] {
            let options = options(ifindex);
            let bound = match outputs.first() {
                None => Queue::bind_first(Arc::clone(&arena), options),
                Some(first) => Queue::bind_further(&first.queue, options),
            };
            let (queue, rings) = bound.expect("nobody else is bound to a port of ours");
            outputs.push(Output { queue, rings });
        }
        Self::with(arena, free, outputs, Route::Direct, ports, frame_bytes)
    }

    /// A TX ring on the relay's far end.
    pub(crate) fn relayed(
        world: &World,
        relay: usize,
        ports: usize,
        frame_bytes: u16,
        route: Route,
    ) -> XdpSender {
        let (arena, free) = arena(frame_bytes);
        let (shared, options) = (Arc::clone(&arena), options(world.relays[relay]));
        let bound = world.among_the_sinks(move || Queue::bind_first(shared, options));
        let (queue, rings) = bound.expect("candidates take turns on the relay");
        let outputs = vec![Output { queue, rings }];
        Self::with(arena, free, outputs, route, ports, frame_bytes)
    }

    fn with(
        arena: Arc<Arena>,
        free: Vec<Frame>,
        outputs: Vec<Output>,
        route: Route,
        ports: usize,
        frame_bytes: u16,
    ) -> XdpSender {
        let frame = crate::frame(frame_bytes);
        XdpSender { arena, outputs, free, route, ports: ports as u64, frame, copies_payload: false }
    }

    pub(crate) fn copying_payload(mut self) -> XdpSender {
        self.copies_payload = true;
        self
    }

    /// The ring that packet `number` goes into.
    fn output_of(&self, number: u64) -> usize {
        if self.route == Route::Direct { (number % self.ports) as usize } else { 0 }
    }

    fn queue_packet(&mut self, number: u64) {
        let mut frame = self.take_frame();
        if self.copies_payload {
            self.arena
                .bytes_mut(&mut frame, OFFSET + TAG, self.frame.len() as u16)
                .copy_from_slice(&self.frame);
        }
        let (offset, len) = self.address(&mut frame, number);
        let at = self.output_of(number);
        let tx = self.outputs[at].rings.tx.as_mut().expect("it was bound with a TX ring");
        let queued = tx.send(Segment { frame, offset, len });
        assert!(queued.is_ok(), "a ring of {TX_ENTRIES} takes a batch");
    }

    /// Writes the destination into the packet; says where the packet lies then.
    fn address(&self, frame: &mut Frame, number: u64) -> (u16, u16) {
        let len = self.frame.len() as u16;
        let port = match self.route {
            Route::Direct => return (OFFSET + TAG, len),
            Route::Tagged => (number % self.ports) as u16,
            Route::TaggedFlood => FLOOD_TAG,
        };
        let head = self.arena.bytes_mut(frame, OFFSET, 16);
        head[..12].copy_from_slice(&self.frame[..12]);
        head[12..14].copy_from_slice(&[0x81, 0x00]);
        head[14..16].copy_from_slice(&port.to_be_bytes());
        (OFFSET, len + TAG)
    }

    fn take_frame(&mut self) -> Frame {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(frame) = self.free.pop() {
                return frame;
            }
            self.reclaim();
            assert!(Instant::now() < deadline, "no frame came back for {DEADLINE:?}");
        }
    }

    /// Makes the kernel take everything from ring `at`.
    fn kick(&mut self, at: usize) -> u64 {
        let Output { queue, rings } = &mut self.outputs[at];
        let tx = rings.tx.as_mut().expect("it was bound with a TX ring");
        let deadline = Instant::now() + DEADLINE;
        let mut calls = 0;
        while calls == 0 || tx.occupancy() > 0 {
            tx.kick(queue.as_fd());
            calls += 1;
            assert!(Instant::now() < deadline, "the kernel took nothing for {DEADLINE:?}");
        }
        calls
    }

    /// Takes back what the kernel has completed.
    fn reclaim(&mut self) {
        for output in &mut self.outputs {
            while let Some(frame) = output.rings.completion.reclaim() {
                self.free.push(frame);
            }
        }
    }

    fn await_all(&mut self) {
        let deadline = Instant::now() + DEADLINE;
        while self.free.len() < CHUNKS as usize {
            self.reclaim();
            assert!(Instant::now() < deadline, "{} of {CHUNKS} frames came back", self.free.len());
        }
    }
}

impl Sender for XdpSender {
    fn prepare(&mut self, batch: u32) {
        self.outputs.iter().for_each(|output| set_budget(&output.queue, batch));
    }

    fn send(&mut self, packets: u64, batch: u32) -> Tally {
        let copies = if self.route == Route::TaggedFlood { FLOOD_PORTS } else { 1 };
        let frames = packets / copies;
        let mut tally = Tally { offered: packets, ..Tally::default() };
        let mut sent = 0;
        while sent < frames {
            let count = (frames - sent).min(u64::from(batch));
            (sent..sent + count).for_each(|number| self.queue_packet(number));
            // Ports take turns, so a batch touches as many rings as it has packets, or all.
            let touched = (self.outputs.len() as u64).min(count);
            for number in sent..sent + touched {
                let at = self.output_of(number);
                tally.syscalls += self.kick(at);
            }
            self.reclaim();
            tally.late_frames += u64::from(CHUNKS) - self.free.len() as u64;
            sent += count;
        }
        self.await_all();
        tally
    }
}

fn options(ifindex: u32) -> QueueOptions {
    QueueOptions { ifindex, queue: 0, fill_entries: 2, rx_entries: 2, tx_entries: Some(TX_ENTRIES) }
}

fn arena(frame_bytes: u16) -> (Arc<Arena>, Vec<Frame>) {
    let chunks = NonZeroU32::new(CHUNKS).expect("not zero");
    let (arena, mut frames) = Arena::new(chunks, FrameSize::B2048).expect("32 MiB of memory");
    for frame in &mut frames {
        arena.bytes_mut(frame, OFFSET + TAG, frame_bytes).copy_from_slice(&crate::frame(frame_bytes));
    }
    (Arc::new(arena), frames)
}

/// Lets one call send a whole batch. A kernel without the option keeps 32, and the count of calls will show it.
fn set_budget(queue: &Queue, batch: u32) {
    let budget = batch.max(DEFAULT_BUDGET);
    // SAFETY: pointer and length describe `budget`, which the kernel only reads.
    let failed = unsafe {
        libc::setsockopt(
            queue.as_fd().as_raw_fd(),
            libc::SOL_XDP,
            MAX_TX_SKB_BUDGET,
            std::ptr::from_ref(&budget).cast(),
            size_of::<u32>() as u32,
        )
    };
    if failed != 0 && budget > DEFAULT_BUDGET {
        println!("(the budget stays {DEFAULT_BUDGET}: {})", std::io::Error::last_os_error());
    }
}
