//! Packets for virtio_net at changing rates, from a device that obeys its limits.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use forebay_testbed::vduse::VduseNet;
use forebay_testbed::{LabError, Result};
use forebay_vhost::{NetHeader, Put};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Ethernet type for experiments (IEEE 802, 88b5): nobody in the kernel takes such a frame.
const TYPE: [u8; 2] = [0x88, 0xb5];
const LONGEST: usize = 1514;

/// How packets come for a while.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    until: Instant,
    /// Between two bursts.
    gap: Duration,
    /// Packets in a burst.
    burst: u32,
    bytes: usize,
    /// Hundredths by which gaps differ at random.
    noise: u64,
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wake {
    Stop,
    /// The device has a message or a kick.
    Device,
    /// It is time for packets, or for an interrupt.
    Due,
}

/// The device and what it does.
pub struct Load<'a> {
    device: VduseNet,
    stop: &'a OwnedFd,
    random: Random,
    stretch: Stretch,
    next_burst: Instant,
    /// When the first packet was shown that no interrupt was due for, and the number of these.
    waiting: Option<(Instant, u32)>,
}

impl<'a> Load<'a> {
    pub fn new(device: VduseNet, stop: &'a OwnedFd) -> Self {
        let now = Instant::now();
        let stretch = Stretch { until: now, gap: Duration::ZERO, burst: 1, bytes: 60, noise: 0 };
        Self { device, stop, random: Random(88_172_645_463_325_252), stretch, next_burst: now, waiting: None }
    }

    /// Serves the device until `stop` is readable, and returns it.
    pub fn run(mut self) -> Result<VduseNet> {
        loop {
            match self.wait()? {
                Wake::Stop => return Ok(self.device),
                Wake::Device => self.device.handle()?,
                Wake::Due => {}
            }
            self.deliver(Instant::now())?;
            self.call_if_due(Instant::now())?;
        }
    }

    /// Waits until there is something to do.
    fn wait(&self) -> Result<Wake> {
        let due = self.call_due().map_or(self.next_burst, |due| due.min(self.next_burst));
        let left = due.saturating_duration_since(Instant::now());
        let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let descriptors = std::iter::once(self.stop.as_fd()).chain(self.device.descriptors());
        let mut descriptors: Vec<_> =
            descriptors.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
        let ready = poll(&mut descriptors, Some(&limit));
        Ok(match ready.map_err(|error| LabError::system("waiting for kicks", error))? {
            0 => Wake::Due,
            _ if descriptors[0].revents().is_empty() => Wake::Device,
            _ => Wake::Stop,
        })
    }

    fn deliver(&mut self, now: Instant) -> Result<()> {
        if now < self.next_burst {
            return Ok(());
        }
        if now >= self.stretch.until {
            self.stretch = self.random.stretch(now);
        }
        let Stretch { gap, burst, bytes, noise, .. } = self.stretch;
        let hundredths = 100 + self.random.below(noise + 1);
        self.next_burst = now + gap * hundredths as u32 / 100;
        let Some(queue) = self.device.receive_queue() else { return Ok(()) };
        let mut frame = [0; LONGEST];
        frame[..6].copy_from_slice(&super::MAC);
        frame[12..14].copy_from_slice(&TYPE);
        let failed =
            |error: forebay_vhost::RingError| LabError::output("the receive ring", error.to_string());
        let mut shown = 0;
        while shown < burst
            && queue.put(NetHeader::default(), [&frame[..bytes]], bytes as u32).map_err(failed)? == Put::Done
        {
            shown += 1;
        }
        if queue.show() {
            let (since, before) = self.waiting.unwrap_or((now, 0));
            self.waiting = Some((since, before + shown));
        }
        Ok(())
    }

    /// `None`: nothing waits. Limits as in virtio 1.3, 5.1.6.5.9: if one is zero, each packet is due at once.
    fn call_due(&self) -> Option<Instant> {
        let (since, packets) = self.waiting?;
        let limits = self.device.asked().last().copied().unwrap_or_default();
        let is_due = limits.max_usecs == 0 || packets >= limits.max_packets;
        let hold = if is_due { Duration::ZERO } else { Duration::from_micros(limits.max_usecs.into()) };
        Some(since + hold)
    }

    fn call_if_due(&mut self, now: Instant) -> Result<()> {
        if self.call_due().is_none_or(|due| due > now) {
            return Ok(());
        }
        self.waiting = None;
        match self.device.receive_queue().is_some_and(|queue| queue.wants_call()) {
            true => self.device.call(),
            false => Ok(()),
        }
    }
}

/// The same in each run; what becomes of it depends on the machine.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    fn stretch(&mut self, now: Instant) -> Stretch {
        // Short ones change the load from window to window; in long ones the search comes to rest.
        let millis = [20, 100, 500, 2000][self.below(4) as usize];
        Stretch {
            until: now + Duration::from_millis(millis),
            gap: Duration::from_micros([0, 20, 100, 300][self.below(4) as usize]),
            burst: [1, 1, 2, 4, 16][self.below(5) as usize],
            bytes: [60, 200, 1000, LONGEST][self.below(4) as usize],
            noise: [0, 0, 20, 200][self.below(4) as usize],
        }
    }
}
