//! A packet socket (packet(7)) bound to one netdev, with the VLAN tag that the kernel keeps beside the packet.

use std::fs::File;
use std::io::{self, Write};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};

/// A tag the kernel took out of a packet: protocol identifier and tag control information.
pub type Tag = (u16, u16);

/// Room for one PACKET_AUXDATA control message, with slack for its header and alignment.
pub(super) const CONTROL_BYTES: usize = 128;
/// Asked of the kernel for received packets, so that a burst of a test is not lost.
const RECEIVE_BUFFER_BYTES: libc::c_int = 16 << 20;

/// The socket. It sees packets that arrive on its netdev, not those that leave.
#[derive(Debug)]
pub struct PacketSocket {
    file: File,
}

impl PacketSocket {
    /// Opens the socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// Without CAP_NET_RAW, or when there is no such netdev.
    pub fn open(ifindex: u32) -> io::Result<PacketSocket> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: socket() takes no pointers. Protocol 0: nothing is received until bind() names one.
        let descriptor = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let socket = PacketSocket { file: unsafe { File::from_raw_fd(descriptor) } };
        socket.set_option(libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
        socket.set_option(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        socket.set_option(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)?;
        socket.bind(ifindex)?;
        Ok(socket)
    }

    /// As [`PacketSocket::open`], but each packet that is sent begins with a virtio-net header of ten bytes.
    ///
    /// # Errors
    /// As [`PacketSocket::open`].
    pub fn open_with_virtio_headers(ifindex: u32) -> io::Result<PacketSocket> {
        let socket = PacketSocket::open(ifindex)?;
        socket.set_option(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        Ok(socket)
    }

    fn set_option(&self, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
        let length = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the pointer and length describe one int that outlives the call.
        let outcome = unsafe {
            libc::setsockopt(self.file.as_raw_fd(), level, option, (&raw const value).cast(), length)
        };
        if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn bind(&self, ifindex: u32) -> io::Result<()> {
        // SAFETY: all-zero bytes are a valid sockaddr_ll, which holds integers only.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = ifindex.cast_signed();
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the pointer and length describe one sockaddr_ll that outlives the call.
        let outcome = unsafe { libc::bind(self.file.as_raw_fd(), (&raw const address).cast(), length) };
        if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sends one frame; the kernel refuses fewer than 14 bytes and more than the MTU allows.
    ///
    /// # Errors
    /// When the kernel refuses the frame, or has no room for it now.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        (&self.file).write(frame).map(drop)
    }

    /// Receives one frame into `buffer` without waiting: its length, and its tag if the kernel took one out.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when there is none.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, Option<Tag>)> {
        let mut control = [0u64; CONTROL_BYTES / 8];
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: all-zero bytes are a valid msghdr: null pointers with length 0.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_BYTES;
        // SAFETY: buffer, part and control outlive the call, and the lengths are theirs.
        let length = unsafe { libc::recvmsg(self.file.as_raw_fd(), &raw mut message, 0) };
        if length < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((length.cast_unsigned(), tag_of(&message)))
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

pub(super) fn tag_of(message: &libc::msghdr) -> Option<Tag> {
    // SAFETY: the kernel filled msg_control and msg_controllen of a message whose buffers are still alive.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return null or a whole header inside the control buffer.
        let (level, kind) = unsafe { ((*header).cmsg_level, (*header).cmsg_type) };
        if level == libc::SOL_PACKET && kind == libc::PACKET_AUXDATA {
            // SAFETY: the kernel puts one whole tpacket_auxdata there (net/packet/af_packet.c, packet_recvmsg).
            let data = unsafe { libc::CMSG_DATA(header).cast::<libc::tpacket_auxdata>().read_unaligned() };
            let is_tagged = data.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
            return is_tagged.then_some((data.tp_vlan_tpid, data.tp_vlan_tci));
        }
        // SAFETY: as for CMSG_FIRSTHDR.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}
