//! Long TCP packets that claim to be cut into parts of any size, as a container with CAP_NET_RAW can send them.
//!
//! A packet socket with `PACKET_VNET_HDR` takes a virtio-net header before each packet. The kernel believes its
//! `gso_size`: one system call makes a packet that becomes tens of thousands of packets on the wire. Out of a tap the
//! same header reaches the switch's tap, as a virtual machine's does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::host::Host;
use crate::sys::packet_socket::PacketSocket;
use crate::{LabError, Result};

/// Bytes of Ethernet, IPv4 and TCP headers.
const HEADER_BYTES: usize = 14 + 20 + 20;
/// Payload of one packet: as much as IPv4 takes, about.
const PAYLOAD_BYTES: usize = 64_000;
/// VIRTIO_NET_HDR_F_NEEDS_CSUM and VIRTIO_NET_HDR_GSO_TCPV4 (linux/virtio_net.h).
const NEEDS_CHECKSUM: u8 = 1;
const GSO_TCPV4: u8 = 1;

/// A thread that sends such packets one after the other; it stops when dropped.
#[derive(Debug)]
pub struct GsoFlood {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<u64>>>,
}

impl GsoFlood {
    /// Sends packets with parts of `gso_size` bytes from one host to another.
    ///
    /// # Errors
    /// When the kernel refuses the socket.
    pub fn start(from: &Host, to: &Host, gso_size: u16) -> Result<GsoFlood> {
        let ifindex = from.netns().ifindex("eth0")?;
        let socket = from.netns().enter(|| PacketSocket::open_with_virtio_headers(ifindex))?;
        let socket = socket.map_err(|error| LabError::system("a packet socket on eth0", error))?;
        let packet = packet(from, to, gso_size);
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || send_until_stopped(&socket, &packet, &seen));
        Ok(GsoFlood { stop, thread: Some(thread) })
    }

    /// Stops it and says how many packets the kernel took.
    ///
    /// # Errors
    /// When the kernel refused a packet.
    pub fn finish(mut self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("only this and drop take it, and both end it");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for GsoFlood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn send_until_stopped(socket: &PacketSocket, packet: &[u8], stop: &AtomicBool) -> Result<u64> {
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        match socket.send(packet) {
            Ok(()) => sent += 1,
            // A tap whose reader is behind.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EAGAIN)) => {
                std::thread::yield_now();
            }
            Err(error) => return Err(LabError::system("sending a GSO packet", error)),
        }
    }
    Ok(sent)
}

/// A virtio-net header, and behind it the packet.
fn packet(from: &Host, to: &Host, gso_size: u16) -> Vec<u8> {
    let checksum_at = (14 + 20, 16);
    let words = [HEADER_BYTES as u16, gso_size, checksum_at.0, checksum_at.1];
    let mut packet = vec![NEEDS_CHECKSUM, GSO_TCPV4];
    packet.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    packet.extend([to.mac(), from.mac()].concat());
    packet.extend(0x0800u16.to_be_bytes());
    let builder =
        etherparse::PacketBuilder::ipv4(from.v4().octets(), to.v4().octets(), 64).tcp(1, 9, 0, 1024);
    builder
        .write(&mut packet, &[0; PAYLOAD_BYTES])
        .expect("a Vec takes any number of bytes, and IPv4 as many");
    packet
}
