//! Messages of vhost-user with their descriptors (QEMU's docs/interop/vhost-user.rst), as far as a relay looks at them.

use std::io::{self, IoSlice, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

const HEADER_BYTES: usize = 12;
/// Longer bodies are not of this protocol.
const MAX_BODY_BYTES: usize = 4096;
/// Descriptors of one message: those of a table of memory.
const MAX_FILES: usize = 8;
const VERSION: u32 = 1;
const REPLY: u32 = 4;
const NEED_REPLY: u32 = 8;
/// Of a queue's number beside its descriptor.
const QUEUE_MASK: u64 = 0xff;
/// The protocol's feature for notes.
pub(super) const INFLIGHT: u64 = 1 << 12;

/// Numbers of requests.
pub(super) mod request {
    pub(in super::super) const GET_FEATURES: u32 = 1;
    pub(in super::super) const SET_FEATURES: u32 = 2;
    pub(in super::super) const SET_OWNER: u32 = 3;
    pub(in super::super) const SET_MEM_TABLE: u32 = 5;
    pub(in super::super) const SET_VRING_NUM: u32 = 8;
    pub(in super::super) const SET_VRING_ADDR: u32 = 9;
    pub(in super::super) const SET_VRING_BASE: u32 = 10;
    pub(in super::super) const GET_VRING_BASE: u32 = 11;
    pub(in super::super) const SET_VRING_KICK: u32 = 12;
    pub(in super::super) const SET_VRING_CALL: u32 = 13;
    pub(in super::super) const SET_VRING_ERR: u32 = 14;
    pub(in super::super) const GET_PROTOCOL_FEATURES: u32 = 15;
    pub(in super::super) const SET_PROTOCOL_FEATURES: u32 = 16;
    pub(in super::super) const GET_QUEUE_NUM: u32 = 17;
    pub(in super::super) const SET_VRING_ENABLE: u32 = 18;
    pub(in super::super) const SET_BACKEND_REQ_FD: u32 = 21;
    pub(in super::super) const GET_CONFIG: u32 = 24;
    pub(in super::super) const GET_INFLIGHT_FD: u32 = 31;
    pub(in super::super) const SET_INFLIGHT_FD: u32 = 32;
}

/// One message.
#[derive(Debug, Clone)]
pub(super) struct Message {
    request: u32,
    flags: u32,
    body: Vec<u8>,
    files: Arc<Vec<OwnedFd>>,
}

impl Message {
    /// Reads one; `None` when the other end has gone.
    pub(super) fn receive(mut stream: &UnixStream) -> io::Result<Option<Message>> {
        let mut header = [0; HEADER_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut header)];
        let got = recvmsg(stream, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?.bytes;
        if got == 0 {
            return Ok(None);
        }
        let files = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        let files = Arc::new(files.flatten().collect());
        stream.read_exact(&mut header[got..])?;
        let number = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| header[4 * at + byte]));
        let [request, flags, len] = [0, 1, 2].map(number);
        if len as usize > MAX_BODY_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut body = vec![0; len as usize];
        stream.read_exact(&mut body)?;
        Ok(Some(Message { request, flags, body, files }))
    }

    /// Writes it.
    pub(super) fn send(&self, stream: &UnixStream) -> io::Result<()> {
        let header = [self.request, self.flags, self.body.len() as u32];
        let bytes: Vec<u8> = header.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let bytes = [bytes, self.body.clone()].concat();
        let files: Vec<BorrowedFd<'_>> = self.files.iter().map(|file| file.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&files));
        }
        // Nobody is to get SIGPIPE. A message is shorter than what a socket takes at once.
        let sent = sendmsg(stream, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
        if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    pub(super) fn request(&self) -> u32 {
        self.request
    }

    pub(super) fn again(&self) -> Message {
        self.clone()
    }

    /// The same, and the switch is not to say how it went.
    pub(super) fn without_reply(&self) -> Message {
        Message { flags: self.flags & !NEED_REPLY, ..self.clone() }
    }

    pub(super) fn wants_reply(&self) -> bool {
        use request::{
            GET_CONFIG, GET_FEATURES, GET_INFLIGHT_FD, GET_PROTOCOL_FEATURES, GET_QUEUE_NUM, GET_VRING_BASE,
        };
        let gets =
            [GET_FEATURES, GET_PROTOCOL_FEATURES, GET_QUEUE_NUM, GET_VRING_BASE, GET_CONFIG, GET_INFLIGHT_FD];
        self.flags & NEED_REPLY != 0 || gets.contains(&self.request)
    }

    /// Whether the next switch must know it.
    pub(super) fn sets(&self) -> bool {
        use request::{
            SET_BACKEND_REQ_FD, SET_FEATURES, SET_INFLIGHT_FD, SET_MEM_TABLE, SET_OWNER,
            SET_PROTOCOL_FEATURES,
        };
        let sets = [
            SET_OWNER,
            SET_FEATURES,
            SET_PROTOCOL_FEATURES,
            SET_MEM_TABLE,
            SET_BACKEND_REQ_FD,
            SET_INFLIGHT_FD,
        ];
        sets.contains(&self.request) || self.is_of_queue()
    }

    fn is_of_queue(&self) -> bool {
        use request::{
            SET_VRING_ADDR, SET_VRING_BASE, SET_VRING_CALL, SET_VRING_ENABLE, SET_VRING_ERR, SET_VRING_KICK,
            SET_VRING_NUM,
        };
        let sets = [
            SET_VRING_NUM,
            SET_VRING_ADDR,
            SET_VRING_BASE,
            SET_VRING_KICK,
            SET_VRING_CALL,
            SET_VRING_ERR,
            SET_VRING_ENABLE,
        ];
        sets.contains(&self.request)
    }

    /// Whether it replaces another.
    pub(super) fn is_of_kind(&self, other: &Message) -> bool {
        self.request == other.request
            && (!self.is_of_queue() || self.number() & QUEUE_MASK == other.number() & QUEUE_MASK)
    }

    /// The first number of its body; 0 when it has none.
    fn number(&self) -> u64 {
        self.body.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }

    pub(super) fn add_bits(&mut self, bits: u64) {
        self.set_number(self.number() | bits);
    }

    pub(super) fn remove_bits(&mut self, bits: u64) {
        self.set_number(self.number() & !bits);
    }

    fn set_number(&mut self, number: u64) {
        if let Some(first) = self.body.first_chunk_mut() {
            *first = number.to_ne_bytes();
        }
    }

    /// Asks the switch for a file for notes about so many rings.
    pub(super) fn ask_for_notes(rings: u16, entries: u16) -> Message {
        let body = [0, 0, u64::from(rings) | u64::from(entries) << 16];
        let body = body.iter().flat_map(|number: &u64| number.to_ne_bytes()).collect();
        Message { request: request::GET_INFLIGHT_FD, flags: VERSION, body, files: Arc::default() }
    }

    /// What gives the switch the file that it has made.
    pub(super) fn into_notes(self) -> Message {
        Message { request: request::SET_INFLIGHT_FD, flags: self.flags & !REPLY, ..self }
    }
}
