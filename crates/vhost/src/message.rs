//! Messages of the vhost-user protocol as bytes (QEMU's docs/interop/vhost-user.rst, version 9.1): numbers of requests,
//! flags of headers, and the parts of a body.

use crate::error::VhostError;

/// Bytes of a header: request, flags, length of the body.
pub(crate) const HEADER_BYTES: usize = 12;
/// Bytes that a body may have. The longest are a table of 32 regions and a configuration space.
pub(crate) const MAX_BODY_BYTES: u32 = 4096;

/// Version 1, in the two lowest bits of the flags.
pub(crate) const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
/// The message is a reply.
pub(crate) const REPLY: u32 = 4;
/// The sender wants to know how it went.
pub(crate) const NEED_REPLY: u32 = 8;

/// Requests of a front end.
pub(crate) mod request {
    pub(crate) const GET_FEATURES: u32 = 1;
    pub(crate) const SET_FEATURES: u32 = 2;
    pub(crate) const SET_OWNER: u32 = 3;
    pub(crate) const RESET_OWNER: u32 = 4;
    pub(crate) const SET_MEM_TABLE: u32 = 5;
    pub(crate) const SET_LOG_BASE: u32 = 6;
    pub(crate) const SET_LOG_FD: u32 = 7;
    pub(crate) const SET_VRING_NUM: u32 = 8;
    pub(crate) const SET_VRING_ADDR: u32 = 9;
    pub(crate) const SET_VRING_BASE: u32 = 10;
    pub(crate) const GET_VRING_BASE: u32 = 11;
    pub(crate) const SET_VRING_KICK: u32 = 12;
    pub(crate) const SET_VRING_CALL: u32 = 13;
    pub(crate) const SET_VRING_ERR: u32 = 14;
    pub(crate) const GET_PROTOCOL_FEATURES: u32 = 15;
    pub(crate) const SET_PROTOCOL_FEATURES: u32 = 16;
    pub(crate) const GET_QUEUE_NUM: u32 = 17;
    pub(crate) const SET_VRING_ENABLE: u32 = 18;
    pub(crate) const SEND_RARP: u32 = 19;
    pub(crate) const NET_SET_MTU: u32 = 20;
    pub(crate) const SET_BACKEND_REQ_FD: u32 = 21;
    pub(crate) const GET_CONFIG: u32 = 24;
    pub(crate) const SET_CONFIG: u32 = 25;
    pub(crate) const GET_INFLIGHT_FD: u32 = 31;
    pub(crate) const SET_INFLIGHT_FD: u32 = 32;
    pub(crate) const RESET_DEVICE: u32 = 34;
    pub(crate) const GET_MAX_MEM_SLOTS: u32 = 36;
    pub(crate) const ADD_MEM_REG: u32 = 37;
    pub(crate) const REM_MEM_REG: u32 = 38;
    pub(crate) const SET_STATUS: u32 = 39;
    pub(crate) const GET_STATUS: u32 = 40;
}

/// Request to a front end: the configuration space has changed.
pub(crate) const CONFIG_CHANGED: u32 = 2;

/// Protocol features that are served here.
pub(crate) mod protocol {
    pub(crate) const MQ: u64 = 1 << 0;
    pub(crate) const LOG_SHMFD: u64 = 1 << 1;
    pub(crate) const RARP: u64 = 1 << 2;
    pub(crate) const REPLY_ACK: u64 = 1 << 3;
    pub(crate) const MTU: u64 = 1 << 4;
    pub(crate) const BACKEND_REQ: u64 = 1 << 5;
    pub(crate) const CONFIG: u64 = 1 << 9;
    pub(crate) const INFLIGHT: u64 = 1 << 12;
    pub(crate) const RESET_DEVICE: u64 = 1 << 13;
    pub(crate) const MEM_SLOTS: u64 = 1 << 15;
    pub(crate) const STATUS: u64 = 1 << 16;
    pub(crate) const ALL: u64 = MQ
        | LOG_SHMFD
        | RARP
        | REPLY_ACK
        | MTU
        | BACKEND_REQ
        | CONFIG
        | INFLIGHT
        | RESET_DEVICE
        | MEM_SLOTS
        | STATUS;
}

/// A header that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) request: u32,
    pub(crate) flags: u32,
    pub(crate) len: u32,
}

impl Header {
    /// # Errors
    /// It is no request of version 1, or its body is too long.
    pub(crate) fn parse(bytes: [u8; HEADER_BYTES]) -> Result<Self, VhostError> {
        let mut body = Body::new(0, &bytes);
        let (request, flags, len) = (body.u32()?, body.u32()?, body.u32()?);
        let known = VERSION_MASK | NEED_REPLY;
        if flags & !known != 0 || flags & VERSION_MASK != VERSION || len > MAX_BODY_BYTES {
            return Err(VhostError::BadHeader { request, flags, len, limit: MAX_BODY_BYTES });
        }
        Ok(Self { request, flags, len })
    }

    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        for (part, number) in bytes.chunks_exact_mut(4).zip([self.request, self.flags, self.len]) {
            part.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }
}

/// The numbers of a body, read one behind the other in the machine's byte order.
#[derive(Debug)]
pub(crate) struct Body<'a> {
    request: u32,
    all: usize,
    rest: &'a [u8],
}

impl<'a> Body<'a> {
    pub(crate) fn new(request: u32, bytes: &'a [u8]) -> Self {
        Self { request, all: bytes.len(), rest: bytes }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], VhostError> {
        let (first, rest) = self.rest.split_first_chunk().ok_or(self.bad_length())?;
        self.rest = rest;
        Ok(*first)
    }

    fn bad_length(&self) -> VhostError {
        VhostError::BadLength { request: self.request, len: self.all }
    }

    pub(crate) fn u32(&mut self) -> Result<u32, VhostError> {
        self.take().map(u32::from_ne_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, VhostError> {
        self.take().map(u16::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, VhostError> {
        self.take().map(u64::from_ne_bytes)
    }

    /// The only number of the body.
    pub(crate) fn only_u64(mut self) -> Result<u64, VhostError> {
        let value = self.u64()?;
        self.end()?;
        Ok(value)
    }

    /// What is left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// # Errors
    /// The body is longer than its request has it.
    pub(crate) fn end(self) -> Result<(), VhostError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.bad_length()) }
    }
}
