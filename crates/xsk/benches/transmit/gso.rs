//! Candidate (d): one send for many segments of a TCP flow, described to the kernel by a virtio-net header.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::Sender;
use crate::measure::Tally;

/// Payload of a full segment with TCP timestamps.
pub(crate) const SEGMENT: usize = 1448;
/// Ethernet, IPv4, TCP with timestamps.
const HEADERS: usize = 14 + 20 + 32;
/// Segments lie in frames of the pool, one each.
const STRIDE: usize = 2048;
/// struct virtio_net_hdr, include/uapi/linux/virtio_net.h.
const VNET_HEADER: usize = 10;
/// `PACKET_VNET_HDR` and `PACKET_QDISC_BYPASS`, include/uapi/linux/if_packet.h.
const VNET_HDR: libc::c_int = 15;
const QDISC_BYPASS: libc::c_int = 20;

/// Its batch is the number of segments in one send; 1 sends without GSO.
pub(crate) struct GsoSender {
    socket: OwnedFd,
    address: libc::sockaddr_ll,
    header: Vec<u8>,
    payload: Vec<u8>,
}

impl GsoSender {
    /// Sends to `ifindex`, around its queueing discipline if `bypass`.
    pub(crate) fn new(ifindex: u32, bypass: bool) -> GsoSender {
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        assert!(fd >= 0, "root may open a packet socket");
        // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        set(&socket, libc::SOL_PACKET, VNET_HDR, 1);
        set(&socket, libc::SOL_PACKET, QDISC_BYPASS, libc::c_int::from(bypass));
        set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 8 << 20);
        // SAFETY: all-zero bytes are a valid value of this C struct of integers.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = ifindex as i32;
        GsoSender { socket, address, header: Vec::new(), payload: Vec::new() }
    }

    /// One call; whether the kernel took it.
    fn send_once(&mut self) -> bool {
        let mut pieces = Vec::with_capacity(1 + self.payload.len() / STRIDE);
        pieces.push(piece(&self.header));
        pieces.extend(self.payload.chunks(STRIDE).map(|frame| piece(&frame[..SEGMENT])));
        // SAFETY: all-zero bytes are a valid value of this C struct of integers and pointers.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = std::ptr::from_mut(&mut self.address).cast();
        message.msg_namelen = size_of::<libc::sockaddr_ll>() as u32;
        message.msg_iov = pieces.as_mut_ptr();
        message.msg_iovlen = pieces.len();
        // SAFETY: name, pieces and what they point at live until the call returns; the kernel only reads them.
        unsafe { libc::sendmsg(self.socket.as_raw_fd(), &message, libc::MSG_DONTWAIT) >= 0 }
    }
}

impl Sender for GsoSender {
    fn prepare(&mut self, segments: u32) {
        self.header = header(segments as usize);
        self.payload = vec![0x5a; segments as usize * STRIDE];
    }

    fn send(&mut self, packets: u64, segments: u32) -> Tally {
        let segments = u64::from(segments);
        let calls = packets / segments;
        let refused = (0..calls).filter(|_| !self.send_once()).count() as u64 * segments;
        Tally { offered: calls * segments, refused, syscalls: calls, late_frames: 0 }
    }
}

fn piece(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

fn set(socket: &OwnedFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) {
    // SAFETY: pointer and length describe `value`, which the kernel only reads.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(&value).cast(),
            size_of::<libc::c_int>() as u32,
        )
    };
    assert_eq!(failed, 0, "set option {name} to {value}: {}", std::io::Error::last_os_error());
}

/// The virtio-net header and the packet's own, checksums as a sender with offload leaves them.
fn header(segments: usize) -> Vec<u8> {
    let tcp_bytes = (32 + segments * SEGMENT) as u16;
    let mut ip = [0u8; 20];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&(20 + tcp_bytes).to_be_bytes());
    ip[8..10].copy_from_slice(&[64, 6]);
    ip[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let ip_sum = !folded_sum(&ip);
    ip[10..12].copy_from_slice(&ip_sum.to_be_bytes());
    let mut pseudo = [10, 0, 0, 1, 10, 0, 0, 2, 0, 6, 0, 0];
    pseudo[10..12].copy_from_slice(&tcp_bytes.to_be_bytes());

    let mut tcp = [0u8; 32];
    tcp[..4].copy_from_slice(&[0x9c, 0x40, 0x14, 0x51]);
    tcp[12..16].copy_from_slice(&[0x80, 0x10, 0x10, 0x00]);
    tcp[16..18].copy_from_slice(&folded_sum(&pseudo).to_be_bytes());
    tcp[20..24].copy_from_slice(&[1, 1, 8, 10]);

    let mut header = vnet_header(segments).to_vec();
    header.extend(crate::frame(14));
    header.extend(ip);
    header.extend(tcp);
    assert_eq!(header.len(), VNET_HEADER + HEADERS);
    header
}

fn vnet_header(segments: usize) -> [u8; VNET_HEADER] {
    const NEEDS_CSUM: u8 = 1;
    const GSO_TCPV4: u8 = 1;
    let is_gso = segments > 1;
    let mut header = [0; VNET_HEADER];
    header[0] = NEEDS_CSUM;
    header[1] = if is_gso { GSO_TCPV4 } else { 0 };
    header[2..4].copy_from_slice(&(HEADERS as u16).to_ne_bytes());
    header[4..6].copy_from_slice(&(if is_gso { SEGMENT as u16 } else { 0 }).to_ne_bytes());
    // Where the TCP header begins, and its checksum field in it.
    header[6..8].copy_from_slice(&34u16.to_ne_bytes());
    header[8..10].copy_from_slice(&16u16.to_ne_bytes());
    header
}

fn folded_sum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
