//! A front end that writes messages byte by byte, right or wrong.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::super::*;
use crate::RegionPlace;
use crate::driver::{Driver, DriverOptions};
use crate::message::{HEADER_BYTES, Header, VERSION};

pub(super) const QUEUE_SIZE: u16 = 8;
/// Addresses of a second region.
const MORE: RegionPlace = RegionPlace { guest: 1 << 32, user: 1 << 47, len: 8192, offset: 0 };

/// An owner that keeps what it is given.
#[derive(Default)]
pub(super) struct Held {
    pub(super) queues: [Option<Virtqueue>; 4],
    pub(super) events: Vec<Event>,
    pub(super) started: usize,
    pub(super) stopped: usize,
}

impl Held {
    /// Takes the packet that waits in a transmit queue.
    pub(super) fn take_packet(&mut self, index: usize) -> Vec<u8> {
        let queue = self.queues[index].as_mut().expect("the queue was started");
        let offer = queue.offered().expect("the ring is fine").expect("a packet waits");
        let mut packet = vec![0; offer.len as usize];
        queue.take([&mut packet[..]]);
        packet
    }
}

impl Owner for Held {
    fn queue_started(&mut self, queue: Virtqueue) {
        let index = queue.index();
        assert!(self.queues[index].replace(queue).is_none(), "queue {index} was started twice");
        self.started += 1;
    }

    fn queue_stopped(&mut self, index: usize) -> Option<Virtqueue> {
        self.stopped += 1;
        self.queues[index].take()
    }

    fn event(&mut self, event: Event) {
        if !matches!(event, Event::Features(_)) {
            self.events.push(event);
        }
    }
}

pub(super) struct Front {
    pub(super) stream: UnixStream,
    file: OwnedFd,
    pub(super) memory: Arc<GuestMemory>,
    place: RegionPlace,
    pub(super) needs_replies: bool,
    kicks: Vec<OwnedFd>,
    calls: Vec<OwnedFd>,
}

impl Front {
    pub(super) fn connect() -> (Self, Backend, Held) {
        let (ours, stream) = UnixStream::pair().expect("a pair of sockets");
        ours.set_nonblocking(true).expect("a socket");
        let config =
            NetConfig { mac: [2, 0, 0, 0, 0, 1], is_up: true, is_to_announce: false, pairs: 2, mtu: 1500 };
        let backend = Backend::new(stream, DeviceOptions { features: Features::ALL, config });
        let place = Driver::region(&DriverOptions::new(Features::default(), QUEUE_SIZE, 4096));
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&file, place.len).expect("memory");
        let mut memory = GuestMemory::default();
        memory.add(place, &file).expect("the front end's own mapping");
        let bells = || (0..5).map(|_| eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd")).collect();
        let front = Self {
            stream: ours,
            file,
            memory: Arc::new(memory),
            place,
            needs_replies: false,
            kicks: bells(),
            calls: bells(),
        };
        (front, backend, Held::default())
    }

    pub(super) fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the back end is there");
    }

    pub(super) fn send_with(&mut self, request: u32, body: &[u8], files: &[BorrowedFd<'_>]) {
        let flags = VERSION | if self.needs_replies { NEED_REPLY } else { 0 };
        let header = Header { request, flags, len: body.len() as u32 }.to_bytes();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(files)));
        }
        let parts = [IoSlice::new(&header), IoSlice::new(body)];
        sendmsg(&self.stream, &parts, &mut ancillary, SendFlags::empty()).expect("the back end is there");
    }

    pub(super) fn send(&mut self, request: u32, body: &[u8]) {
        self.send_with(request, body, &[]);
    }

    pub(super) fn set_u64(&mut self, request: u32, value: u64) {
        self.send(request, &value.to_ne_bytes());
    }

    pub(super) fn send_u32s(&mut self, request: u32, values: &[u32]) {
        let body: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        self.send(request, &body);
    }

    pub(super) fn send_u64s(&mut self, request: u32, values: &[u64], files: &[BorrowedFd<'_>]) {
        let body: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        self.send_with(request, &body, files);
    }

    /// The body of the next reply.
    pub(super) fn reply(&mut self) -> Vec<u8> {
        let mut header = [0; HEADER_BYTES];
        self.stream.read_exact(&mut header).expect("a reply");
        let flags = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
        assert_eq!(flags, 5, "version 1, reply");
        let len = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
        let mut body = vec![0; len as usize];
        self.stream.read_exact(&mut body).expect("the body of a reply");
        body
    }

    pub(super) fn reply_u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.reply().try_into().expect("eight bytes"))
    }

    pub(super) fn reply_u32s(&mut self) -> Vec<u32> {
        self.reply().chunks(4).map(|part| u32::from_ne_bytes(part.try_into().expect("four bytes"))).collect()
    }

    pub(super) fn negotiate(&mut self, features: Features) {
        self.send(request::SET_OWNER, &[]);
        self.set_u64(request::SET_PROTOCOL_FEATURES, protocol::ALL);
        self.set_u64(request::SET_FEATURES, features.0);
    }

    pub(super) fn share_memory(&mut self) {
        let RegionPlace { guest, user, len, offset } = self.place;
        let file = self.file.try_clone().expect("a descriptor");
        self.send_u64s(request::SET_MEM_TABLE, &[1, guest, len, user, offset], &[file.as_fd()]);
    }

    /// A table of one region with room for a second.
    pub(super) fn share_memory_with_room(&mut self) {
        let RegionPlace { guest, user, len, offset } = self.place;
        let file = self.file.try_clone().expect("a descriptor");
        self.send_u64s(request::SET_MEM_TABLE, &[1, guest, len, user, offset, 0, 0, 0, 0], &[file.as_fd()]);
    }

    /// Adds a second region, or removes it.
    pub(super) fn add_region(&mut self, add: bool) {
        let file = self.file.try_clone().expect("a descriptor");
        let RegionPlace { guest, user, len, offset } = MORE;
        let request = if add { request::ADD_MEM_REG } else { request::REM_MEM_REG };
        self.send_u64s(request, &[0, guest, len, user, offset], &[file.as_fd()]);
    }

    /// Everything but the kick.
    pub(super) fn set_up_queue(&mut self, driver: &Driver, index: u32) {
        let place = driver.place(index as usize);
        self.send_u32s(request::SET_VRING_NUM, &[index, place.size.into()]);
        self.send_u32s(request::SET_VRING_BASE, &[index, place.base]);
        let first = u64::from(index);
        self.send_u64s(
            request::SET_VRING_ADDR,
            &[first, place.descriptors, place.device, place.driver, 0],
            &[],
        );
        let call = self.calls[index as usize].try_clone().expect("a descriptor");
        self.send_u64s(request::SET_VRING_CALL, &[first], &[call.as_fd()]);
    }

    pub(super) fn kick_on(&mut self, _driver: &Driver, index: u32) {
        let kick = self.kicks[index as usize].try_clone().expect("a descriptor");
        self.send_u64s(request::SET_VRING_KICK, &[index.into()], &[kick.as_fd()]);
    }

    pub(super) fn start_queue(&mut self, driver: &Driver, index: u32) {
        self.set_up_queue(driver, index);
        self.kick_on(driver, index);
        self.send_u32s(request::SET_VRING_ENABLE, &[index, 1]);
    }

    pub(super) fn get_config(&mut self, offset: u32, len: u32) {
        let mut body = [offset, len, 0].map(u32::to_ne_bytes).concat();
        body.resize(12 + len as usize, 0);
        self.send(request::GET_CONFIG, &body);
    }

    pub(super) fn kick(&self, index: usize) {
        rustix::io::write(&self.kicks[index], &1u64.to_ne_bytes()).expect("an eventfd");
    }

    /// Number of calls since the last question; there is one at least.
    pub(super) fn take_calls(&self, index: usize) -> u64 {
        let mut count = [0; 8];
        rustix::io::read(&self.calls[index], &mut count).expect("there was a call");
        u64::from_ne_bytes(count)
    }

    /// Shares a bitmap of one page.
    pub(super) fn share_log(&mut self) -> OwnedFd {
        let log = memfd_create("log", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&log, 4096).expect("memory");
        self.send_u64s(request::SET_LOG_BASE, &[4096, 0], &[log.as_fd()]);
        log
    }

    /// Passes a pipe for requests of the back end, and returns its other end.
    pub(super) fn pass_channel(&mut self) -> OwnedFd {
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        self.send_with(request::SET_BACKEND_REQ_FD, &[], &[write.as_fd()]);
        read
    }
}

pub(super) fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
    let mut descriptors = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    poll(&mut descriptors, Some(&Timespec::default())).expect("poll") == 1
}

/// Pages that a bitmap marks.
pub(super) fn marked(log: &OwnedFd) -> Vec<u64> {
    let mut bits = [0; 4096];
    rustix::io::pread(log, &mut bits, 0).expect("a memfd");
    (0..8 * 4096u64).filter(|page| bits[(page / 8) as usize] & 1 << (page % 8) != 0).collect()
}

/// What can be read at once.
pub(super) fn read_all(from: &OwnedFd) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let len = rustix::io::read(from, &mut bytes).expect("there is something");
    bytes.truncate(len);
    bytes
}
