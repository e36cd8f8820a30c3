//! One request to the kernel and its answers, whole or not at all.
//!
//! The messages come from generated code; this file owns the exchange around them: sequence numbers, acknowledgements,
//! dumps of many datagrams, errors with the kernel's own words. Lengths are checked here, because the generated
//! parsers expect to be given exactly one message.

use std::io;

use netlink_bindings::nlctrl;
use netlink_bindings::traits::{NetlinkRequest, Protocol};
use netlink_sys::{Socket, SocketAddr};

use super::error::NetlinkError;

/// The largest datagram: the kernel fills dumps up to 32 KiB, and one link with all its names can't pass 64 KiB.
const DATAGRAM_MAX_BYTES: usize = 128 * 1024;
/// Length of `struct nlmsghdr`, which is also where a message's payload starts (include/uapi/linux/netlink.h, 6.18).
const HEADER_BYTES: usize = 16;
/// How often a dump that was disturbed by a change is asked for again before its last answer is taken.
const DUMP_TRIES: usize = 5;
/// Attribute of an acknowledgement that holds the kernel's explanation (NLMSGERR_ATTR_MSG).
const EXTACK_MESSAGE: u16 = 1;

/// Why an exchange failed, before anybody has said which netdev it was about.
#[derive(Debug)]
pub(super) enum ExchangeError {
    Refused { source: io::Error, hint: String },
    Io { step: &'static str, source: io::Error },
    NoFamily(String),
    Malformed(String),
}

impl ExchangeError {
    /// Adds what was asked, and of which netdev.
    pub(super) fn of(self, what: &'static str, netdev: impl ToString) -> NetlinkError {
        match self {
            ExchangeError::Refused { source, .. } if source.raw_os_error() == Some(libc::ENODEV) => {
                NetlinkError::NoSuchNetdev { netdev: netdev.to_string() }
            }
            ExchangeError::Refused { source, hint } => {
                NetlinkError::Refused { what, netdev: netdev.to_string(), hint, source }
            }
            ExchangeError::Io { step, source } => NetlinkError::Socket { what: step, source },
            ExchangeError::NoFamily(family) => NetlinkError::NoFamily { family },
            ExchangeError::Malformed(detail) => NetlinkError::Malformed { what, detail },
        }
    }
}

/// A message of the kernel's, its payload still undecoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    pub(super) payload: &'a [u8],
}

/// The messages of one datagram. Ends at the first whose length does not fit, with an error.
pub(super) struct Messages<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, ExchangeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let message = split_message(self.0);
        self.0 = match &message {
            Some((_, rest)) => rest,
            None => &[],
        };
        Some(
            message
                .map(|(message, _)| message)
                .ok_or_else(|| malformed("a message longer than its datagram")),
        )
    }
}

fn split_message(bytes: &[u8]) -> Option<(Message<'_>, &[u8])> {
    let length = read_u32(bytes, 0)? as usize;
    let payload = bytes.get(HEADER_BYTES..length)?;
    let message = Message {
        kind: read_u16(bytes, 4)?,
        flags: read_u16(bytes, 6)?,
        sequence: read_u32(bytes, 8)?,
        payload,
    };
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    Some((message, rest))
}

/// Sends one request and hands every answer to `each`, until the kernel says that it is done.
pub(super) fn exchange<R: NetlinkRequest>(
    request: &R,
    each: impl for<'a> FnMut(R::ReplyType<'a>),
) -> Result<(), ExchangeError> {
    exchange_once(request, each).map(|_was_disturbed| ())
}

/// Sends one request of which only the verdict matters.
pub(super) fn command<R: NetlinkRequest>(request: &R) -> Result<(), ExchangeError> {
    exchange(request, |_reply| {})
}

/// As [`exchange`] for a dump: collects what `convert` makes of each answer, and starts over when something
/// changed meanwhile. After [`DUMP_TRIES`] the last answer stands, which lacks no netdev that existed all along.
pub(super) fn dump<R: NetlinkRequest, T>(
    request: &R,
    mut convert: impl for<'a> FnMut(R::ReplyType<'a>) -> Option<T>,
) -> Result<Vec<T>, ExchangeError> {
    let mut found = Vec::new();
    for _ in 0..DUMP_TRIES {
        found.clear();
        let was_disturbed = exchange_once(request, |reply| found.extend(convert(reply)))?;
        if !was_disturbed {
            break;
        }
    }
    Ok(found)
}

fn exchange_once<R: NetlinkRequest>(
    request: &R,
    mut each: impl for<'a> FnMut(R::ReplyType<'a>),
) -> Result<bool, ExchangeError> {
    let (protocol, kind) = match request.protocol() {
        Protocol::Raw { protonum, request_type } => (protonum as isize, request_type),
        Protocol::Generic(family) => (libc::NETLINK_GENERIC as isize, resolve_family(family)?),
    };
    let mut socket = connect(protocol)?;
    send(&socket, kind, request.flags(), request.payload())?;
    receive_all(&mut socket, |payload| each(R::decode_reply(payload)))
}

/// The number that the kernel gave this generic netlink family when it was registered.
fn resolve_family(family: &[u8]) -> Result<u16, ExchangeError> {
    let mut request = nlctrl::Request::new().op_getfamily_do();
    request.encode().push_family_name_bytes(family);
    let mut id = None;
    let outcome = exchange_once(&request, |reply| id = reply.get_family_id().ok());
    let name = || String::from_utf8_lossy(family).into_owned();
    match outcome {
        Err(ExchangeError::Refused { source, .. }) if source.raw_os_error() == Some(libc::ENOENT) => {
            Err(ExchangeError::NoFamily(name()))
        }
        Err(error) => Err(error),
        Ok(_) => id.ok_or_else(|| ExchangeError::NoFamily(name())),
    }
}

fn connect(protocol: isize) -> Result<Socket, ExchangeError> {
    let mut socket = Socket::new(protocol).map_err(io_at("open a netlink socket"))?;
    socket.bind_auto().map_err(io_at("bind a netlink socket"))?;
    socket.connect(&SocketAddr::new(0, 0)).map_err(io_at("connect to the kernel"))?;
    socket.set_ext_ack(true).map_err(io_at("ask for extended acknowledgements"))?;
    // Without it every error carries the whole request back, and the explanation lies behind it.
    socket.set_cap_ack(true).map_err(io_at("ask for short acknowledgements"))?;
    Ok(socket)
}

/// A socket lives for one request, so its sequence number is always this.
const SEQUENCE: u32 = 1;

fn send(socket: &Socket, kind: u16, flags: u16, payload: &[u8]) -> Result<(), ExchangeError> {
    let flags = flags | (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    let mut message = Vec::with_capacity(HEADER_BYTES + payload.len());
    message.extend(((HEADER_BYTES + payload.len()) as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend(SEQUENCE.to_ne_bytes());
    message.extend(0u32.to_ne_bytes());
    message.extend(payload);
    socket.send(&message, 0).map(|_sent| ()).map_err(io_at("send to the kernel"))
}

fn receive_all(socket: &mut Socket, mut each: impl FnMut(&[u8])) -> Result<bool, ExchangeError> {
    let mut buffer = Vec::with_capacity(DATAGRAM_MAX_BYTES);
    let mut was_disturbed = false;
    loop {
        receive(socket, &mut buffer)?;
        for message in Messages(&buffer) {
            let message = message?;
            if message.sequence != SEQUENCE {
                continue;
            }
            was_disturbed |= message.flags & libc::NLM_F_DUMP_INTR as u16 != 0;
            match i32::from(message.kind) {
                libc::NLMSG_NOOP => {}
                libc::NLMSG_OVERRUN => return Err(malformed("the kernel lost part of it")),
                libc::NLMSG_ERROR => {
                    return verdict(message.payload, 4 + HEADER_BYTES).map(|()| was_disturbed);
                }
                libc::NLMSG_DONE => return verdict(message.payload, 4).map(|()| was_disturbed),
                _ => each(message.payload),
            }
        }
    }
}

/// Receives one datagram into `buffer`, replacing what it holds. A datagram that does not fit is an error.
pub(super) fn receive(socket: &Socket, buffer: &mut Vec<u8>) -> Result<(), ExchangeError> {
    buffer.clear();
    buffer.reserve(DATAGRAM_MAX_BYTES);
    let length = loop {
        match socket.recv(buffer, libc::MSG_TRUNC) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => break outcome.map_err(io_at("receive from the kernel"))?,
        }
    };
    match length {
        0 => Err(malformed("the kernel closed the socket")),
        length if length > buffer.len() => {
            Err(malformed(&format!("a datagram of {length} bytes, at most {} can be taken", buffer.len())))
        }
        _ => Ok(()),
    }
}

/// What an acknowledgement says: 0 or an errno, and in attributes behind it perhaps why.
fn verdict(payload: &[u8], attributes_at: usize) -> Result<(), ExchangeError> {
    let code = read_u32(payload, 0).ok_or_else(|| malformed("an acknowledgement without a verdict"))? as i32;
    if code == 0 {
        return Ok(());
    }
    let hint = explanation(payload.get(attributes_at..).unwrap_or(&[]));
    Err(ExchangeError::Refused { source: io::Error::from_raw_os_error(code.wrapping_neg()), hint })
}

fn explanation(mut attributes: &[u8]) -> String {
    while let (Some(length), Some(kind)) = (read_u16(attributes, 0), read_u16(attributes, 2)) {
        let Some(value) = attributes.get(4..usize::from(length)) else { break };
        if kind == EXTACK_MESSAGE {
            return String::from_utf8_lossy(value).trim_end_matches('\0').to_owned();
        }
        attributes = attributes.get(usize::from(length).next_multiple_of(4)..).unwrap_or(&[]);
    }
    String::new()
}

fn io_at(step: &'static str) -> impl Fn(io::Error) -> ExchangeError {
    move |source| ExchangeError::Io { step, source }
}

fn malformed(detail: &str) -> ExchangeError {
    ExchangeError::Malformed(detail.to_owned())
}

fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, length: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn messages_of_any_length_are_split_or_refused_and_never_read_past_the_end() {
        let mut bytes = message(16, 21, b"hello\0\0\0");
        bytes.extend(message(17, 16, b""));
        let kinds: Vec<_> =
            Messages(&bytes).map(|m| m.map(|m| (m.kind, m.payload.to_vec())).unwrap()).collect();
        assert_eq!(kinds, [(16, b"hello".to_vec()), (17, vec![])]);
        for length in (0..16).chain([17, 1000, u32::MAX]) {
            let bytes = message(16, length, b"");
            let found: Vec<_> = Messages(&bytes).collect();
            assert!(matches!(found[..], [Err(ExchangeError::Malformed(_))]), "length {length}: {found:?}");
        }
        assert!(Messages(&[1, 2, 3]).next().unwrap().is_err());
    }

    #[test]
    fn an_errno_comes_with_the_kernels_explanation() {
        let mut payload = (-libc::EINVAL).to_ne_bytes().to_vec();
        payload.extend([0; HEADER_BYTES]);
        payload.extend([8, 0, 2, 0, 9, 9, 9, 9]);
        payload.extend([8, 0, 1, 0]);
        payload.extend(b"no!\0");
        let Err(ExchangeError::Refused { source, hint }) = verdict(&payload, 4 + HEADER_BYTES) else {
            panic!()
        };
        assert_eq!((source.raw_os_error(), hint.as_str()), (Some(libc::EINVAL), "no!"));
        assert!(verdict(&[0; 4], 4).is_ok() && verdict(&[0; 3], 4).is_err());
    }
}
