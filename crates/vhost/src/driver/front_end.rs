//! A small guest with one pair of queues and perhaps a control queue, and the front end that connects it to a back end in another process.
//!
//! It survives its back end: connected again, its queues go on where they were. So tests can kill either end.

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use forebay_wire::net_header::{MAX_HEADER_BYTES, NetHeader};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use super::{Driver, DriverOptions, GUEST_START, Part, USER_OFFSET};
use crate::error::VhostError;
use crate::features::Features;
use crate::memory::{GuestMemory, RegionPlace};
use crate::message::{HEADER_BYTES, Header, NEED_REPLY, VERSION, protocol, request};

const RECEIVE: usize = 0;
const TRANSMIT: usize = 1;
/// Only where it was agreed on.
const CONTROL: usize = 2;
/// Room for an answer of the control queue: whether it was done, and limits that were asked for.
const ANSWER_BYTES: u32 = 16;
/// How long a reply may take.
const REPLY_LIMIT: Duration = Duration::from_secs(10);
/// Protocol features that this front end agrees to.
const PROTOCOL: u64 = protocol::REPLY_ACK | protocol::RARP | protocol::MTU | protocol::CONFIG;

/// What a front end's guest has.
#[derive(Clone, Copy, Debug)]
pub struct FrontEndOptions {
    /// Features that the guest takes, if they are offered. VERSION_1 is always one.
    pub features: Features,
    /// Entries of each ring.
    pub size: u16,
    /// Bytes of memory for each buffer, and so the longest packet with its header.
    pub buffer_bytes: u32,
    /// Whether the front end keeps notes of the back end for the next one (INFLIGHT). Packed rings need them to go on after
    /// a back end was killed.
    pub keeps_notes: bool,
}

/// Why a front end could not be connected.
#[derive(Debug, thiserror::Error)]
pub enum FrontEndError {
    /// The connection failed; the back end may be gone.
    #[error("talking with the back end: {0}")]
    Socket(#[from] io::Error),
    /// The kernel refused memory or a descriptor.
    #[error("making the guest: {0}")]
    Kernel(#[from] rustix::io::Errno),
    /// The options ask for an impossible ring.
    #[error("making the guest: {0}")]
    Rings(#[from] VhostError),
    /// The back end refused a request.
    #[error("the back end refused request {request}")]
    Refused {
        /// Number of the request.
        request: u32,
    },
}

#[derive(Debug)]
struct Queue {
    driver: Driver,
    kick: OwnedFd,
    call: OwnedFd,
}

/// A guest with one pair of queues, connected or not. If its features have CTRL_VQ, it has a control queue, too.
#[derive(Debug)]
pub struct FrontEnd {
    options: FrontEndOptions,
    file: OwnedFd,
    place: RegionPlace,
    queues: Vec<Queue>,
    stream: Option<UnixStream>,
    agreed: Features,
    /// What the back end notes for the next one, as it was described.
    notes: Option<(Vec<u8>, OwnedFd)>,
}

impl FrontEnd {
    /// A guest that is not connected.
    ///
    /// # Errors
    /// The kernel refuses its memory, or the options ask for an impossible ring.
    pub fn new(options: FrontEndOptions) -> Result<Self, FrontEndError> {
        let options = FrontEndOptions { features: options.features.with(Features::VERSION_1), ..options };
        let span = Driver::region(&Self::driver_options(&options, 0)).len;
        let count = if options.features.has(Features::CTRL_VQ) { CONTROL + 1 } else { CONTROL };
        let len = span * count as u64;
        let place = RegionPlace { guest: GUEST_START, user: GUEST_START + USER_OFFSET, len, offset: 0 };
        let file = memfd_create("guest", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, len)?;
        let mut memory = GuestMemory::default();
        memory.add(place, &file)?;
        let memory = Arc::new(memory);
        let bell = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let queue = |index| -> Result<Queue, FrontEndError> {
            let driver = Driver::in_memory(Self::driver_options(&options, index), Arc::clone(&memory))?;
            Ok(Queue { driver, kick: bell()?, call: bell()? })
        };
        let queues = (0..count).map(queue).collect::<Result<Vec<_>, _>>()?;
        let agreed = options.features;
        let mut made = Self { options, file, place, queues, stream: None, agreed, notes: None };
        made.refill();
        Ok(made)
    }

    fn driver_options(options: &FrontEndOptions, index: usize) -> DriverOptions {
        let first = DriverOptions::new(options.features, options.size, options.buffer_bytes);
        let span = Driver::region(&first).len;
        DriverOptions { start: GUEST_START + span * index as u64, ..first }
    }

    /// Connects the guest by `stream`, also after it was connected before: then its queues go on where they were.
    ///
    /// # Errors
    /// The back end is gone, or refuses what every back end of a network device takes.
    pub fn connect(&mut self, stream: UnixStream) -> Result<(), FrontEndError> {
        stream.set_read_timeout(Some(REPLY_LIMIT))?;
        self.stream = Some(stream);
        self.send(request::SET_OWNER, &[], &[])?;
        let offered = Features(self.ask(request::GET_FEATURES)?);
        self.ask(request::GET_PROTOCOL_FEATURES)?;
        let notes = if self.options.keeps_notes { protocol::INFLIGHT } else { 0 };
        self.set(request::SET_PROTOCOL_FEATURES, &[PROTOCOL | notes], &[])?;
        let wanted = self.options.features;
        if !offered.has(wanted) {
            return Err(FrontEndError::Refused { request: request::SET_FEATURES });
        }
        self.agreed = wanted.with(Features::PROTOCOL_FEATURES);
        self.set(request::SET_FEATURES, &[self.agreed.0], &[])?;
        let RegionPlace { guest, user, len, offset } = self.place;
        let file = self.file.try_clone()?;
        self.set(request::SET_MEM_TABLE, &[1, guest, len, user, offset], &[file.as_fd()])?;
        self.exchange_notes()?;
        (0..self.queues.len()).try_for_each(|index| self.start_queue(index))
    }

    /// Has the first back end make a file for notes, and gives it to each.
    fn exchange_notes(&mut self) -> Result<(), FrontEndError> {
        if !self.options.keeps_notes {
            return Ok(());
        }
        if self.notes.is_none() {
            let sizes = self.queues.len() as u64 | u64::from(self.options.size) << 16;
            let body: Vec<u8> = [0, 0, sizes].iter().flat_map(|number: &u64| number.to_ne_bytes()).collect();
            self.send(request::GET_INFLIGHT_FD, &body, &[])?;
            self.notes = Some(self.reply_with_file()?);
        }
        let Some((body, file)) = &self.notes else { return Ok(()) };
        let (body, file) = (body.clone(), file.try_clone()?);
        let header = Header { request: request::SET_INFLIGHT_FD, flags: VERSION | NEED_REPLY, len: 0 };
        self.write(header, &body, &[file.as_fd()])?;
        match number(&self.reply()?) {
            0 => Ok(()),
            _ => Err(FrontEndError::Refused { request: request::SET_INFLIGHT_FD }),
        }
    }

    fn reply_with_file(&mut self) -> Result<(Vec<u8>, OwnedFd), FrontEndError> {
        let stream = self.stream.as_ref().ok_or(io::ErrorKind::NotConnected).map_err(io::Error::from)?;
        let mut bytes = [0; HEADER_BYTES + 64];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let got = recvmsg(stream, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        let file = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        let file = file.ok_or(FrontEndError::Refused { request: request::GET_INFLIGHT_FD })?;
        Ok((bytes[HEADER_BYTES..got.bytes.max(HEADER_BYTES)].to_vec(), file))
    }

    fn start_queue(&mut self, index: usize) -> Result<(), FrontEndError> {
        let number = index as u64;
        let place = self.queues[index].driver.place(index);
        let (kick, call) = (self.queues[index].kick.try_clone()?, self.queues[index].call.try_clone()?);
        self.set(request::SET_VRING_NUM, &[number | u64::from(place.size) << 32], &[])?;
        self.set(request::SET_VRING_BASE, &[number | u64::from(place.base) << 32], &[])?;
        let addresses = [number, place.descriptors, place.device, place.driver, 0];
        self.set(request::SET_VRING_ADDR, &addresses, &[])?;
        self.set(request::SET_VRING_CALL, &[number], &[call.as_fd()])?;
        self.set(request::SET_VRING_KICK, &[number], &[kick.as_fd()])?;
        self.set(request::SET_VRING_ENABLE, &[number | 1 << 32], &[])
    }

    /// Closes the connection. The guest and its queues stay.
    pub fn disconnect(&mut self) {
        self.stream = None;
    }

    /// File with all of the guest's memory.
    pub fn memory_file(&self) -> &OwnedFd {
        &self.file
    }

    /// Sends a packet. Returns `false` if the ring has no room.
    pub fn transmit(&mut self, packet: &[u8]) -> bool {
        self.transmit_undone(NetHeader::default(), packet)
    }

    /// Sends a packet with this header. Returns `false` if the ring has no room.
    pub fn transmit_undone(&mut self, header: NetHeader, packet: &[u8]) -> bool {
        let queue = &mut self.queues[TRANSMIT];
        while queue.driver.used().is_some() {}
        let sent = queue.driver.send(header, &[packet]).is_some();
        if queue.driver.publish() {
            let _ = rustix::io::write(&queue.kick, &1u64.to_ne_bytes());
        }
        sent
    }

    /// Takes the next packet that has come, and gives its buffer back to the device.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        self.receive_undone().map(|(_, packet)| packet)
    }

    /// Takes the next packet that has come, with its header, and gives its buffer back to the device.
    pub fn receive_undone(&mut self) -> Option<(NetHeader, Vec<u8>)> {
        let header_bytes = self.options.features.header_bytes() as usize;
        let used = self.queues[RECEIVE].driver.used()?;
        self.refill();
        let (header, packet) = used.written.split_at_checked(header_bytes)?;
        let mut bytes = [0; MAX_HEADER_BYTES];
        bytes[..header_bytes].copy_from_slice(header);
        Some((NetHeader::from_bytes(&bytes), packet.to_vec()))
    }

    /// Makes all free buffers of the receive queue available.
    fn refill(&mut self) {
        let queue = &mut self.queues[RECEIVE];
        while queue.driver.add(&[Part::Room(self.options.buffer_bytes)], false).is_some() {}
        if queue.driver.publish() {
            let _ = rustix::io::write(&queue.kick, &1u64.to_ne_bytes());
        }
    }

    /// Has the device carry out a command of the control queue: class, command, data. Returns its answer, and waits for that;
    /// `None`: there is none, or no such queue.
    pub fn command(&mut self, command: &[u8]) -> Option<Vec<u8>> {
        let queue = self.queues.get_mut(CONTROL)?;
        queue.driver.add(&[Part::Bytes(command), Part::Room(ANSWER_BYTES)], false)?;
        queue.driver.want_calls(true);
        if queue.driver.publish() {
            rustix::io::write(&queue.kick, &1u64.to_ne_bytes()).ok()?;
        }
        loop {
            if let Some(used) = queue.driver.used() {
                return Some(used.written);
            }
            let mut call = [PollFd::new(&queue.call, PollFlags::IN)];
            let limit = Timespec { tv_sec: REPLY_LIMIT.as_secs() as i64, tv_nsec: 0 };
            if poll(&mut call, Some(&limit)).ok()? == 0 {
                return None;
            }
            rustix::io::read(&queue.call, &mut [0; 8]).ok()?;
        }
    }

    /// Number of calls since it was asked last.
    pub fn take_calls(&self) -> u64 {
        let mut count = [0; 8];
        // Without a call there is nothing to read.
        match rustix::io::read(self.call(), &mut count) {
            Ok(8) => u64::from_ne_bytes(count),
            _ => 0,
        }
    }

    /// Asks the device for a call with the next packet, or for none. Whether a packet has come meanwhile.
    pub fn want_calls(&mut self, wanted: bool) -> bool {
        self.queues[RECEIVE].driver.want_calls(wanted)
    }

    /// Number of packets that were sent and that the device has not taken.
    pub fn transmit_backlog(&mut self) -> usize {
        while self.queues[TRANSMIT].driver.used().is_some() {}
        self.queues[TRANSMIT].driver.held()
    }

    /// Becomes readable when the device calls for received packets.
    pub fn call(&self) -> BorrowedFd<'_> {
        self.queues[RECEIVE].call.as_fd()
    }

    /// Becomes readable when the device calls for sent packets that it has taken.
    pub fn transmit_call(&self) -> BorrowedFd<'_> {
        self.queues[TRANSMIT].call.as_fd()
    }

    /// Asks for calls of both queues, and forgets those that have come. Returns `true` if there is something to take in any
    /// case: a received packet, or room where sent packets were.
    pub fn want_all_calls(&mut self) -> bool {
        let mut has_used = false;
        for queue in &mut self.queues {
            // There was none, or it is heard now.
            let _ = rustix::io::read(&queue.call, &mut [0; 8]);
            has_used |= queue.driver.want_calls(true);
        }
        has_used
    }

    /// Connection to the back end: readable when that has gone.
    pub fn connection(&self) -> Option<&UnixStream> {
        self.stream.as_ref()
    }

    /// Asks the back end to announce a station, as after a migration.
    ///
    /// # Errors
    /// The back end is gone, or refuses.
    pub fn announce(&mut self, mac: [u8; 6]) -> Result<(), FrontEndError> {
        let [a, b, c, d, e, f] = mac;
        self.set(request::SEND_RARP, &[u64::from_ne_bytes([a, b, c, d, e, f, 0, 0])], &[])
    }

    /// Tells the back end the guest's MTU.
    ///
    /// # Errors
    /// The back end is gone, or refuses.
    pub fn set_mtu(&mut self, mtu: u16) -> Result<(), FrontEndError> {
        self.set(request::NET_SET_MTU, &[mtu.into()], &[])
    }

    /// Reads a part of the device's configuration.
    ///
    /// # Errors
    /// The back end is gone.
    pub fn config(&mut self, offset: u32, len: u32) -> Result<Vec<u8>, FrontEndError> {
        let mut body = [offset, len, 0].map(u32::to_ne_bytes).concat();
        body.resize(12 + len as usize, 0);
        self.write(Header { request: request::GET_CONFIG, flags: VERSION, len: 0 }, &body, &[])?;
        Ok(self.reply()?.split_off(12))
    }

    /// Sends a request and waits until the back end has followed it.
    fn set(&mut self, request: u32, body: &[u64], files: &[BorrowedFd<'_>]) -> Result<(), FrontEndError> {
        let bytes: Vec<u8> = body.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let is_known = request != request::SET_PROTOCOL_FEATURES;
        let flags = VERSION | if is_known { NEED_REPLY } else { 0 };
        self.write(Header { request, flags, len: 0 }, &bytes, files)?;
        match is_known && number(&self.reply()?) != 0 {
            true => Err(FrontEndError::Refused { request }),
            false => Ok(()),
        }
    }

    fn ask(&mut self, request: u32) -> Result<u64, FrontEndError> {
        self.send(request, &[], &[])?;
        Ok(number(&self.reply()?))
    }

    fn send(&mut self, request: u32, body: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), FrontEndError> {
        self.write(Header { request, flags: VERSION, len: 0 }, body, files)
    }

    fn write(&mut self, header: Header, body: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), FrontEndError> {
        let stream = self.stream.as_ref().ok_or(io::ErrorKind::NotConnected).map_err(io::Error::from)?;
        let header = Header { len: body.len() as u32, ..header }.to_bytes();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(files));
        }
        let parts = [IoSlice::new(&header), IoSlice::new(body)];
        sendmsg(stream, &parts, &mut ancillary, SendFlags::NOSIGNAL).map_err(io::Error::from)?;
        Ok(())
    }

    fn reply(&mut self) -> Result<Vec<u8>, FrontEndError> {
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected).map_err(io::Error::from)?;
        let mut header = [0; HEADER_BYTES];
        stream.read_exact(&mut header)?;
        let len = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
        let mut body = vec![0; len as usize];
        stream.read_exact(&mut body)?;
        Ok(body)
    }
}

/// The number that a reply begins with; of a shorter one, a refusal.
fn number(reply: &[u8]) -> u64 {
    reply.first_chunk().map_or(u64::MAX, |bytes| u64::from_ne_bytes(*bytes))
}
