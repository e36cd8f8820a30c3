//! A sender at a fixed rate that no switch here is saturated by, and the processor time that sending takes.

use std::time::{Duration, Instant};

use super::cpu;
use crate::Result;
use crate::packet_io::FrameSocket;

/// Frames sent at once; then the sender sleeps until the next are due.
const BURST: u32 = 32;

/// What sending took.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// Frames.
    pub frames: u64,
    /// Run time of the sending thread, with the interrupts handled meanwhile: the switch's kernel part is in it.
    pub sender_time: Duration,
}

/// Sends copies of a frame at this rate for so long, from the calling thread.
///
/// # Errors
/// When the kernel refuses a frame.
pub fn send(socket: &FrameSocket, frame: &[u8], frames_per_second: u32, duration: Duration) -> Result<Sent> {
    let (start, before) = (Instant::now(), cpu::own_thread_time());
    let interval = Duration::from_secs(1) * BURST / frames_per_second;
    let mut bursts = 0;
    while start.elapsed() < duration {
        (0..BURST).try_for_each(|_| socket.send(frame))?;
        bursts += 1;
        let due = start + interval * bursts;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(Sent { frames: u64::from(bursts * BURST), sender_time: cpu::own_thread_time().saturating_sub(before) })
}
