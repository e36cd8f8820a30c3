//! Many frames by one system call over a packet socket (sendmmsg(2), recvmmsg(2)).

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd};

use super::packet_socket::{CONTROL_BYTES, PacketSocket, Tag, tag_of};

/// Frames of one system call.
pub const BATCH: usize = 64;
/// Room for each received frame; what is longer is cut.
const FRAME_BYTES: usize = 2048;

/// Sends these frames, at most [`BATCH`]; how many the kernel took.
///
/// # Errors
/// When the kernel did not even take the first.
pub fn send(socket: &PacketSocket, frames: &[Vec<u8>]) -> io::Result<usize> {
    let count = frames.len().min(BATCH);
    let mut parts: Vec<libc::iovec> = frames[..count]
        .iter()
        .map(|frame| libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() })
        .collect();
    let mut messages: Vec<libc::mmsghdr> = parts.iter_mut().map(message_of).collect();
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: `messages` has `count` headers, whose one part each lies in `parts` and says the bounds of a frame; all
    // of them outlive the call, which does not write to what is sent.
    let sent = unsafe { libc::sendmmsg(descriptor, messages.as_mut_ptr(), count as libc::c_uint, 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent.cast_unsigned() as usize) }
}

fn message_of(part: &mut libc::iovec) -> libc::mmsghdr {
    // SAFETY: all-zero bytes are a valid mmsghdr: null pointers with length 0.
    let mut message: libc::mmsghdr = unsafe { zeroed() };
    message.msg_hdr.msg_iov = part;
    message.msg_hdr.msg_iovlen = 1;
    message
}

/// Buffers for what is received by one system call.
#[derive(Debug)]
pub struct Batch {
    frames: Vec<u8>,
    controls: Vec<u64>,
    arrived: Vec<(usize, Option<Tag>)>,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch::new()
    }
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        let (frames, controls) = (vec![0; BATCH * FRAME_BYTES], vec![0; BATCH * CONTROL_BYTES / 8]);
        Batch { frames, controls, arrived: Vec::new() }
    }

    /// Takes what is there without waiting; how many frames that were, 0 when none.
    ///
    /// # Errors
    /// When the netdev is down or gone.
    pub fn receive(&mut self, socket: &PacketSocket) -> io::Result<usize> {
        self.arrived.clear();
        let mut parts: Vec<libc::iovec> = self
            .frames
            .chunks_exact_mut(FRAME_BYTES)
            .map(|room| libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: FRAME_BYTES })
            .collect();
        let mut messages: Vec<libc::mmsghdr> = parts.iter_mut().map(message_of).collect();
        for (message, control) in messages.iter_mut().zip(self.controls.chunks_exact_mut(CONTROL_BYTES / 8)) {
            message.msg_hdr.msg_control = control.as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = CONTROL_BYTES;
        }
        let (descriptor, count) = (socket.as_fd().as_raw_fd(), BATCH as libc::c_uint);
        // SAFETY: `messages` has BATCH headers; their parts and controls say the bounds of rooms of their own in
        // `frames` and `controls`, which outlive the call. No time limit is passed.
        let received = unsafe {
            libc::recvmmsg(descriptor, messages.as_mut_ptr(), count, libc::MSG_DONTWAIT, std::ptr::null_mut())
        };
        if received < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(0) } else { Err(error) };
        }
        let received = received.cast_unsigned() as usize;
        self.arrived.extend(
            messages[..received]
                .iter()
                .map(|message| ((message.msg_len as usize).min(FRAME_BYTES), tag_of(&message.msg_hdr))),
        );
        Ok(received)
    }

    /// What the last call received: the frames, and the tags that the kernel took out of them.
    pub fn frames(&self) -> impl Iterator<Item = (&[u8], Option<Tag>)> {
        let rooms = self.frames.chunks_exact(FRAME_BYTES);
        rooms.zip(&self.arrived).map(|(room, (length, tag))| (&room[..*length], *tag))
    }
}
