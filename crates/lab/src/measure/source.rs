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
        let ifindex = netns.ifindex(ifname)?;
        // The device map takes netdevs of the calling thread's namespace.
        let object = netns.enter(|| prepare(ifindex, flows))??;
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            cpu::pin_to(processor)?;
            send_until_stopped(object, &frame, &seen)
        });
        Ok(Source { stop, thread: Some(thread) })
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

fn prepare(ifindex: u32, flows: u32) -> Result<Object> {
    let object = bpf::load()?;
    bpf::set(&object, "out", ifindex)?;
    bpf::set(&object, "flow_mask", flows - 1)?;
    Ok(object)
}

fn send_until_stopped(mut object: Object, frame: &[u8], stop: &AtomicBool) -> Result<u64> {
    let frame = [&SPARE[..], frame].concat();
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        let input = ProgramInput {
            data_in: Some(&frame),
            flags: LIVE_FRAMES,
            repeat: FRAMES_PER_CALL,
            ..ProgramInput::default()
        };
        let done = bpf::program(&mut object, "source").test_run(input);
        done.map_err(|error| LabError::bpf("sending live frames", error))?;
        sent += u64::from(FRAMES_PER_CALL);
    }
    Ok(sent)
}
