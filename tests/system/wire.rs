//! Frames by hand: who gets one that a host sends, and in what form.

use std::time::Duration;

use forebay_testbed::dut::counters::Reading;
use forebay_testbed::frame::{self, Frame};
use forebay_testbed::packet_io::FrameSocket;
use forebay_testbed::{Host, Result};

use crate::bed::{Bed, Oracle};

/// Where loop probes go: each host gets one a second.
const LOOP_PROBES: [u8; 6] = [0xcf, 0, 0, 0, 0, 0];
/// How long a frame may take.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(3);
/// How long a tap's pump may take for a frame that has left the switch.
const QUIET: Duration = Duration::from_millis(20);

/// A frame socket on each of some silent hosts.
pub struct Wire {
    sockets: Vec<FrameSocket>,
    next_mark: u32,
}

impl Wire {
    /// Silences the hosts and opens their sockets.
    pub fn new(hosts: &[Host]) -> Result<Wire> {
        hosts.iter().try_for_each(Host::silence)?;
        let sockets = hosts.iter().map(FrameSocket::open).collect::<Result<_>>()?;
        Ok(Wire { sockets, next_mark: 1 })
    }

    /// A mark that no frame had before.
    pub fn mark(&mut self) -> u32 {
        self.next_mark += 1;
        self.next_mark
    }

    /// How many marks were given out.
    pub fn marks_used(&self) -> u64 {
        u64::from(self.next_mark) - 1
    }

    /// The socket of one host.
    pub fn socket(&mut self, host: usize) -> &mut FrameSocket {
        &mut self.sockets[host]
    }

    /// Sends a frame with a fresh mark from one host, and asserts that exactly the hosts `to` get it, once each.
    /// Returns what they got, in their order, and which counters moved.
    pub fn deliver(
        &mut self,
        bed: &mut Bed,
        from: usize,
        shape: impl FnOnce(u32) -> Frame,
        to: &[usize],
    ) -> Result<(Vec<Vec<u8>>, Oracle)> {
        let mark = self.mark();
        let bytes = shape(mark).build();
        let (arrived, counted) = bed.watch(|_| {
            self.sockets[from].send(&bytes)?;
            to.iter().map(|host| self.expect_one(*host, mark)).collect::<Result<Vec<_>>>()
        })?;
        self.nobody_else(mark)?;
        Ok((arrived, counted))
    }

    /// As [`Wire::deliver`], but the frame is sent at once: nobody looks at the counters before.
    pub fn pass(
        &mut self,
        bed: &mut Bed,
        from: usize,
        shape: impl FnOnce(u32) -> Frame,
        to: &[usize],
    ) -> Result<Vec<Vec<u8>>> {
        let mark = self.mark();
        self.sockets[from].send(&shape(mark).build())?;
        let arrived = to.iter().map(|host| self.expect_one(*host, mark)).collect::<Result<_>>()?;
        bed.lab.settle();
        Reading::settled(&bed.client())?;
        self.nobody_else(mark)?;
        Ok(arrived)
    }

    /// What a host got so far of others, also what is still between its netdevs; the switch's own loop probes are left out.
    pub fn drain(&mut self, host: usize) -> Result<Vec<Vec<u8>>> {
        let mut frames = Vec::new();
        while let Some(frame) = self.sockets[host].receive(QUIET)? {
            frames.push(frame);
        }
        frames.retain(|frame| frame[..6] != LOOP_PROBES);
        Ok(frames)
    }

    fn nobody_else(&mut self, mark: u32) -> Result<()> {
        for (host, socket) in self.sockets.iter_mut().enumerate() {
            let more = socket.collect(1, Duration::ZERO, |frame| frame::mark_of(frame) == Some(mark))?;
            assert!(more.is_empty(), "host {host} should not have got this (again): {more:02x?}");
        }
        Ok(())
    }

    /// The frame with this mark, which the host must get.
    pub fn expect_one(&mut self, host: usize, mark: u32) -> Result<Vec<u8>> {
        let matches = |frame: &[u8]| frame::mark_of(frame) == Some(mark);
        let mut frames = self.sockets[host].collect(1, ARRIVAL_LIMIT, matches)?;
        assert_eq!(frames.len(), 1, "host {host} did not get the frame with mark {mark}");
        Ok(frames.remove(0))
    }
}
