//! A front end's socket: whole messages out of it, replies into it, without ever waiting.
//!
//! A message may come in parts; those are kept until the rest is there. So a front end that sends half a message and
//! nothing more costs nobody else a moment. One that does not read its replies is disconnected.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::error::VhostError;
use crate::memory::MAX_REGIONS;
use crate::message::{HEADER_BYTES, Header, REPLY, VERSION};

/// A request with what came beside it.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) header: Header,
    pub(crate) body: Vec<u8>,
    pub(crate) files: Vec<OwnedFd>,
}

/// What a look at the socket gives.
#[derive(Debug)]
pub(crate) enum Received {
    Message(Message),
    /// The rest of a message, or the next one, has not come.
    Nothing,
    Closed,
}

/// A connected stream, and the message of which a part has come.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    bytes: Vec<u8>,
    header: Option<Header>,
    files: Vec<OwnedFd>,
}

impl Connection {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream, bytes: Vec::new(), header: None, files: Vec::new() }
    }

    /// Takes the next message if all of it has come. Never blocks.
    pub(crate) fn receive(&mut self) -> Result<Received, VhostError> {
        loop {
            let wanted = HEADER_BYTES + self.header.map_or(0, |header| header.len as usize);
            if self.bytes.len() < wanted {
                match self.read(wanted)? {
                    Some(0) => return Ok(Received::Closed),
                    Some(_) => continue,
                    None => return Ok(Received::Nothing),
                }
            }
            if self.header.is_none() {
                let bytes = self.bytes[..].try_into().expect("a header's bytes were read, and no more");
                self.header = Some(Header::parse(bytes)?);
                continue;
            }
            if let Some(header) = self.header.take() {
                let body = self.bytes.split_off(HEADER_BYTES);
                self.bytes.clear();
                let files = std::mem::take(&mut self.files);
                return Ok(Received::Message(Message { header, body, files }));
            }
        }
    }

    /// Reads no further than `wanted` bytes of this message, so that no descriptor of the next one comes along.
    fn read(&mut self, wanted: usize) -> Result<Option<usize>, VhostError> {
        let have = self.bytes.len();
        self.bytes.resize(wanted, 0);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_REGIONS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut parts = [IoSliceMut::new(&mut self.bytes[have..])];
        let result = recvmsg(&self.stream, &mut parts, &mut ancillary, flags);
        self.bytes.truncate(have + result.as_ref().map_or(0, |received| received.bytes));
        let read = match result {
            Ok(received) => received.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(Errno::CONNRESET) => return Ok(Some(0)),
            Err(error) => return Err(VhostError::Socket(error.into())),
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                self.files.extend(files);
            }
        }
        // A header takes one recvmsg at least, and each brings at most so many.
        if self.files.len() > MAX_REGIONS {
            let request = self.header.map_or(0, |header| header.request);
            let count = self.files.len();
            return Err(VhostError::BadDescriptors { request, count, wanted: MAX_REGIONS });
        }
        Ok(Some(read))
    }

    /// Sends a reply. Never blocks.
    pub(crate) fn reply(&mut self, request: u32, body: &[u8]) -> Result<(), VhostError> {
        let header = Header { request, flags: VERSION | REPLY, len: body.len() as u32 };
        send(self.stream.as_fd(), header, body, &[])
    }

    /// As [`Connection::reply`], with a descriptor.
    pub(crate) fn reply_with(&mut self, request: u32, body: &[u8], file: &OwnedFd) -> Result<(), VhostError> {
        let header = Header { request, flags: VERSION | REPLY, len: body.len() as u32 };
        send(self.stream.as_fd(), header, body, &[file.as_fd()])
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn send(
    socket: BorrowedFd<'_>,
    header: Header,
    body: &[u8],
    files: &[BorrowedFd<'_>],
) -> Result<(), VhostError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(files));
    }
    let header = header.to_bytes();
    let parts = [IoSlice::new(&header), IoSlice::new(body)];
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match sendmsg(socket, &parts, &mut ancillary, flags) {
        Ok(sent) if sent == header.len() + body.len() => Ok(()),
        Ok(_) | Err(Errno::AGAIN) => Err(VhostError::RepliesUnread),
        Err(error) => Err(VhostError::Socket(error.into())),
    }
}
