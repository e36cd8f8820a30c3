//! The source: frames made in the kernel by BPF_PROG_TEST_RUN, sent out of a netdev by XDP redirect.
//!
//! Several million frames a second from one processor, more than any switch here takes: what arrives behind the
//! switch is its capacity.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use libbpf_rs::{Object, ProgramInput};

use super::cpu;
use crate::netns::Netns;
use crate::{LabError, Result, bpf};

/// Frames a call. Each call makes and frees a page pool, about 25 ms, so that there must be many.
const FRAMES_PER_CALL: u32 = 2_000_000;
/// What the program takes off at the front (SPARE_BYTES in bpf/traffic.bpf.c).
const SPARE: [u8; 4] = [0; 4];
/// BPF_F_TEST_XDP_LIVE_FRAMES (linux/bpf.h).
const LIVE_FRAMES: u32 = 1 << 1;

/// Number of the first sender and the first receiver of [`Source::start_grid`] (bpf/traffic.bpf.c).
pub const FIRST_SENDER: u16 = 0x1000;
/// See [`FIRST_SENDER`].
pub const FIRST_RECEIVER: u16 = 0x8000;

/// What makes the frames differ: a program, and what its map says.
#[derive(Debug, Clone, Copy)]
struct How {
    program: &'static str,
    map: &'static str,
    value: u32,
}

/// A running source; it stops when dropped, after at most [`FRAMES_PER_CALL`] more frames.
#[derive(Debug)]
pub struct Source {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<u64>>>,
}

impl Source {
    /// Sends copies of `frame`, UDP over IPv4 without a UDP checksum, with `flows` source ports in turn, from a thread
    /// on this processor. The netdev's peer must have GRO on or an XDP program, or it drops them.
    ///
    /// # Errors
    /// When the kernel refuses the program or its map.
    ///
    /// # Panics
    /// When `flows` is not a power of two.
    pub fn start(
        netns: &Netns,
        ifname: &str,
        frame: Vec<u8>,
        flows: u32,
        processor: usize,
    ) -> Result<Source> {
        assert!(flows.is_power_of_two(), "{flows} flows: must be a power of two");
        let how = How { program: "source", map: "flow_mask", value: flows - 1 };
        Source::start_as(netns, ifname, frame, how, processor)
    }

    /// As [`Source::start`], with so many senders in turn and so many receivers, whose numbers are the last two bytes of
    /// their addresses and begin with [`FIRST_SENDER`] and [`FIRST_RECEIVER`].
    ///
    /// # Errors
    /// When the kernel refuses the program or its map.
    pub fn start_grid(
        netns: &Netns,
        ifname: &str,
        frame: Vec<u8>,
        (senders, receivers): (u16, u16),
        processor: usize,
    ) -> Result<Source> {
        let value = u32::from(senders) << 16 | u32::from(receivers);
        let how = How { program: "source_macs", map: "grid", value };
        Source::start_as(netns, ifname, frame, how, processor)
    }

    fn start_as(netns: &Netns, ifname: &str, frame: Vec<u8>, how: How, processor: usize) -> Result<Source> {
        let ifindex = netns.ifindex(ifname)?;
        // The device map takes netdevs of the calling thread's namespace.
        let object = netns.enter(|| prepare(ifindex, how))??;
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            cpu::pin_to(processor)?;
            send_until_stopped(object, how.program, &frame, &seen)
        });
        Ok(Source { stop, thread: Some(thread) })
    }

    /// Sends copies of `frame`, with eight bytes below each that say it came from port `port_id`, as
    /// Forebay's own programs say it. Returns how many.
    ///
    /// # Errors
    /// When the kernel refuses the program or its map.
    pub fn send_forged(netns: &Netns, ifname: &str, frame: &[u8], port_id: u32) -> Result<u64> {
        const FRAMES: u32 = 10_000;
        let ifindex = netns.ifindex(ifname)?;
        let how = How { program: "source_below", map: "below", value: port_id };
        let mut object = netns.enter(|| prepare(ifindex, how))??;
        send(&mut object, how.program, &[&SPARE[..], frame].concat(), FRAMES)?;
        Ok(FRAMES.into())
    }

    /// Stops it and says how many frames it made.
    ///
    /// # Errors
    /// The kernel's, from sending.
    pub fn finish(mut self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("only this and drop take it, and both end it");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn prepare(ifindex: u32, how: How) -> Result<Object> {
    let object = bpf::load()?;
    bpf::set(&object, "out", ifindex)?;
    bpf::set(&object, how.map, how.value)?;
    Ok(object)
}

fn send_until_stopped(mut object: Object, program: &str, frame: &[u8], stop: &AtomicBool) -> Result<u64> {
    let frame = [&SPARE[..], frame].concat();
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        send(&mut object, program, &frame, FRAMES_PER_CALL)?;
        sent += u64::from(FRAMES_PER_CALL);
    }
    Ok(sent)
}

fn send(object: &mut Object, program: &str, frame: &[u8], repeat: u32) -> Result<()> {
    let input = ProgramInput { data_in: Some(frame), flags: LIVE_FRAMES, repeat, ..ProgramInput::default() };
    let done = bpf::program(object, program).test_run(input);
    done.map(drop).map_err(|error| LabError::bpf("sending live frames", error))
}
