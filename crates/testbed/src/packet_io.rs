//! Raw frames from and to a host.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::host::Host;
use crate::netns::Netns;
use crate::sys::packet_socket::PacketSocket;
use crate::{LabError, Result};

/// `struct virtio_net_hdr`.
const VIRTIO_HEADER_BYTES: usize = 10;
/// The longest frame that can arrive: a GSO packet that was not cut.
const FRAME_BYTES: usize = 65536 + 32;
/// How long a full transmit queue is tried again.
const SEND_LIMIT: Duration = Duration::from_secs(5);

/// A socket for whole Ethernet frames on one netdev. VLAN tags are where they are on the wire.
#[derive(Debug)]
pub struct FrameSocket {
    socket: PacketSocket,
    buffer: Vec<u8>,
    /// Bytes in front of each frame.
    header_bytes: usize,
}

impl FrameSocket {
    /// A socket on the host's `eth0`; frames that arrive are kept from now on.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn open(host: &Host) -> Result<FrameSocket> {
        FrameSocket::open_on(host.netns(), "eth0")
    }

    /// A socket on the host's `eth0` whose frames begin with a virtio-net header of ten bytes, both ways.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn open_with_virtio_headers(host: &Host) -> Result<FrameSocket> {
        let ifindex = host.netns().ifindex("eth0")?;
        let socket = host.netns().enter(|| PacketSocket::open_with_virtio_headers(ifindex))?;
        let socket = socket.map_err(|error| LabError::system("a packet socket on eth0", error))?;
        Ok(FrameSocket { socket, buffer: vec![0; FRAME_BYTES], header_bytes: VIRTIO_HEADER_BYTES })
    }

    /// A socket on any netdev.
    ///
    /// # Errors
    /// When there is no such netdev.
    pub fn open_on(netns: &Netns, ifname: &str) -> Result<FrameSocket> {
        let ifindex = netns.ifindex(ifname)?;
        let socket = netns.enter(|| PacketSocket::open(ifindex))?;
        let socket =
            socket.map_err(|error| LabError::system(format!("a packet socket on {ifname}"), error))?;
        Ok(FrameSocket { socket, buffer: vec![0; FRAME_BYTES], header_bytes: 0 })
    }

    /// Sends one frame; waits while the transmit queue is full.
    ///
    /// # Errors
    /// When the kernel refuses it: shorter than 14 bytes, longer than the MTU allows, netdev down.
    pub fn send(&self, frame: &[u8]) -> Result<()> {
        let deadline = Instant::now() + SEND_LIMIT;
        loop {
            match self.socket.send(frame) {
                Ok(()) => return Ok(()),
                Err(error) if is_full(&error) && Instant::now() < deadline => std::thread::yield_now(),
                Err(error) => {
                    return Err(LabError::system(format!("sending {} bytes", frame.len()), error));
                }
            }
        }
    }

    /// The next frame, or `None` when none comes within `limit`.
    ///
    /// # Errors
    /// When the netdev goes away.
    pub fn receive(&mut self, limit: Duration) -> Result<Option<Vec<u8>>> {
        let deadline = Instant::now() + limit;
        loop {
            match self.socket.receive(&mut self.buffer) {
                Ok((length, tag)) => {
                    return Ok(Some(with_tag(&self.buffer[..length], self.header_bytes, tag)));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(LabError::system("receiving a frame", error)),
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            self.wait_readable(deadline);
        }
    }

    fn wait_readable(&self, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now()).as_millis() + 1;
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        // An interrupted wait is followed by another look.
        let _ = poll(&mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)], timeout);
    }

    /// Receives until `wanted` frames that `matches` have come or `limit` is over; other frames are skipped.
    ///
    /// # Errors
    /// As [`FrameSocket::receive`].
    pub fn collect(
        &mut self,
        wanted: usize,
        limit: Duration,
        matches: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<Vec<u8>>> {
        let deadline = Instant::now() + limit;
        let mut frames = Vec::new();
        while frames.len() < wanted {
            match self.receive(deadline.saturating_duration_since(Instant::now()))? {
                Some(frame) if matches(&frame) => frames.push(frame),
                Some(_) => {}
                None => break,
            }
        }
        Ok(frames)
    }
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EAGAIN))
}

/// Puts the tag back to where it was on the wire, behind a header of the socket's.
fn with_tag(frame: &[u8], header_bytes: usize, tag: Option<(u16, u16)>) -> Vec<u8> {
    match (tag, frame.split_at_checked(header_bytes + 12)) {
        (Some((protocol, control)), Some((front, rest))) => {
            [front, &protocol.to_be_bytes(), &control.to_be_bytes(), rest].concat()
        }
        _ => frame.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_returns_to_its_place_behind_the_addresses() {
        let frame: Vec<u8> = (0..14).collect();
        let tagged = with_tag(&frame, 0, Some((0x8100, 0x000a)));
        assert_eq!(tagged, [&frame[..12], &[0x81, 0, 0, 10], &frame[12..]].concat());
        assert_eq!(with_tag(&frame, 0, None), frame);
    }
}
