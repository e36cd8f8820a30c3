//! The back end of the vhost-user protocol, for one port and one connected front end.
//!
//! A [`Backend`] has no thread and never blocks: its owner waits for its descriptors and calls
//! [`Backend::handle`]. Queues are handed to the owner when they start and asked back when they stop. Whatever changes
//! below a running queue (memory, features, a descriptor) stops it first and starts it again: rings and buffers are
//! looked up anew, and nobody uses what is gone.

mod inflight;
mod memory;
mod queues;
mod rings;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use queues::Queues;

use crate::config::NetConfig;
use crate::connection::{Connection, Message, Received};
use crate::control_queue::{Control, Event, MAX_COMMAND_BYTES};
use crate::doorbell;
use crate::error::VhostError;
use crate::features::Features;
use crate::inflight::Inflight;
use crate::memory::{DirtyLog, GuestMemory, MAX_REGIONS};
use crate::message::{Body, NEED_REPLY, protocol, request};
use crate::virtqueue::Virtqueue;

/// Messages that one call of [`Backend::handle`] follows.
const MESSAGES_AT_ONCE: usize = 64;
/// Commands of the control queue that one call of [`Backend::handle`] carries out.
const COMMANDS_AT_ONCE: usize = 64;

/// The least MTU that there is (IPv4).
const MIN_MTU: u16 = 68;

/// Pairs of queues that a device may have.
pub const MAX_PAIRS: u16 = 64;

/// What the device offers.
#[derive(Clone, Copy, Debug)]
pub struct DeviceOptions {
    /// Features offered; see [`Features::ALL`] and [`Features::masked`].
    pub features: Features,
    /// What the guest reads. Its MTU is at least 68 if [`Features::MTU`] is offered. `pairs` is also the number of pairs of queues here, at most [`MAX_PAIRS`].
    pub config: NetConfig,
}

/// Who serves the queues of a port.
pub trait Owner {
    /// Serves a queue from now on. It is a transmit queue of the guest if its index is odd, a receive queue otherwise.
    ///
    /// Buffers may wait in it that the guest has kicked for long ago, and whoever had it last may have suppressed kicks.
    /// So serve it once before waiting for [`Virtqueue::kick`], and call [`Virtqueue::allow_kicks`].
    fn queue_started(&mut self, queue: Virtqueue);

    /// Gives a queue back, which nobody serves any more when this returns. `None`: it broke and was dropped.
    fn queue_stopped(&mut self, index: usize) -> Option<Virtqueue>;

    /// Takes note of what the front end or its guest asked for.
    fn event(&mut self, event: Event);
}

/// How it goes on with a front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Wait until a descriptor is readable.
    Waiting,
    /// There may be more to do at once.
    More,
    /// The front end is gone, and all queues are stopped.
    Closed,
}

/// What a request is answered with.
enum Answer {
    /// Done; the front end learns of it if it wants to.
    Done,
    /// Not done, which breaks nothing.
    Refused,
    Reply(Vec<u8>),
    ReplyWith(Vec<u8>, OwnedFd),
}

/// One front end's connection and what it has set.
#[derive(Debug)]
pub struct Backend {
    connection: Connection,
    options: DeviceOptions,
    features: Features,
    protocol: u64,
    status: u8,
    memory: Arc<GuestMemory>,
    queues: Queues,
    control: Control,
    /// For requests to the front end.
    channel: Option<OwnedFd>,
    /// Where is noted which pages we write, once that was agreed on.
    log: Option<Arc<DirtyLog>>,
    /// Where is noted what the next back end is to know, if the front end keeps it.
    inflight: Option<Inflight>,
}

impl Backend {
    /// A back end for a stream that was accepted or connected.
    ///
    /// # Panics
    /// When the pairs are zero or more than [`MAX_PAIRS`]: a bug of the caller.
    pub fn new(stream: UnixStream, options: DeviceOptions) -> Self {
        let pairs = options.config.pairs;
        assert!((1..=MAX_PAIRS).contains(&pairs), "{pairs} pairs of queues");
        Self {
            connection: Connection::new(stream),
            options,
            features: Features::default(),
            protocol: 0,
            status: 0,
            memory: Arc::default(),
            queues: Queues::new(2 * usize::from(pairs) + 1),
            control: Control::new(pairs),
            channel: None,
            log: None,
            inflight: None,
        }
    }

    /// Descriptors to wait for: the socket, and the control queue's kicks.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.socket()).chain(self.control_kick().map(|kick| kick.as_fd()))
    }

    /// The first of them; always the same one.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }

    /// The second, which may be another one after [`Backend::handle`]. The guest has the same eventfd, so an epoll goes on
    /// reporting it after it was closed here: take it out there first, and hold it until then.
    pub fn control_kick(&self) -> Option<&Arc<OwnedFd>> {
        self.queues.control_kick()
    }

    /// Features that both ends agreed on.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Regions of the guest's memory.
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// Changes what the guest reads, and tells the front end. The number of pairs stays.
    pub fn set_config(&mut self, config: NetConfig) {
        let pairs = self.options.config.pairs;
        self.options.config = NetConfig { pairs, ..config };
        if let Some(channel) = &self.channel {
            doorbell::tell_config_changed(channel);
        }
    }

    /// Follows what has come. Never blocks on the front end, only on the owner.
    ///
    /// # Errors
    /// A message or the control queue is malformed. All queues are stopped; drop the back end, which closes the socket.
    pub fn handle(&mut self, owner: &mut impl Owner) -> Result<Progress, VhostError> {
        let result = self.follow_all(owner);
        if !matches!(result, Ok(Progress::Waiting | Progress::More)) {
            self.stop(owner);
        }
        result
    }

    /// Stops all queues.
    pub fn stop(&mut self, owner: &mut impl Owner) {
        self.queues.pause(owner);
        self.queues.reset();
    }

    fn follow_all(&mut self, owner: &mut impl Owner) -> Result<Progress, VhostError> {
        for _ in 0..MESSAGES_AT_ONCE {
            match self.connection.receive()? {
                Received::Message(message) => self.follow(message, owner)?,
                Received::Closed => return Ok(Progress::Closed),
                Received::Nothing => {
                    let has_more = self.serve_control(owner)?;
                    return Ok(if has_more { Progress::More } else { Progress::Waiting });
                }
            }
        }
        Ok(Progress::More)
    }

    fn follow(&mut self, message: Message, owner: &mut impl Owner) -> Result<(), VhostError> {
        let header = message.header;
        let result = self.answer(message, owner);
        let reply = match &result {
            Ok(Answer::Reply(reply)) => return self.connection.reply(header.request, reply),
            Ok(Answer::ReplyWith(reply, file)) => {
                return self.connection.reply_with(header.request, reply, file);
            }
            Ok(Answer::Done) => 0u64,
            Ok(Answer::Refused) | Err(_) => 1,
        };
        if header.flags & NEED_REPLY != 0 && self.protocol & protocol::REPLY_ACK != 0 {
            let sent = self.connection.reply(header.request, &reply.to_ne_bytes());
            // What was wrong with the message says more than that its sender is gone.
            return result.and(sent);
        }
        result.map(drop)
    }

    fn answer(&mut self, message: Message, owner: &mut impl Owner) -> Result<Answer, VhostError> {
        let Message { header, body, files } = message;
        let number = header.request;
        self.check_protocol(number)?;
        check_files(number, files.len())?;
        let mut body = Body::new(number, &body);
        match number {
            request::GET_FEATURES => return reply(body, self.options.features.0),
            request::GET_PROTOCOL_FEATURES => return reply(body, protocol::ALL),
            request::GET_QUEUE_NUM => return reply(body, self.options.config.pairs.into()),
            request::GET_MAX_MEM_SLOTS => return reply(body, MAX_REGIONS as u64),
            request::GET_STATUS => return reply(body, self.status.into()),
            request::GET_VRING_BASE => return self.get_base(body, owner),
            request::GET_CONFIG => return self.get_config(body),
            request::GET_INFLIGHT_FD => return self.make_inflight(body),
            request::SET_CONFIG => return Ok(Answer::Refused),
            request::SET_OWNER => body.end()?,
            request::RESET_OWNER | request::RESET_DEVICE => {
                body.end()?;
                self.reset(owner);
            }
            request::SET_FEATURES => self.set_features(body.only_u64()?, owner)?,
            request::SET_PROTOCOL_FEATURES => self.set_protocol(body.only_u64()?)?,
            request::SET_STATUS => self.set_status(body.only_u64()? as u8, owner),
            request::SET_MEM_TABLE => self.set_memory(body, &files, owner)?,
            request::SET_INFLIGHT_FD => self.set_inflight(body, &files, owner)?,
            request::ADD_MEM_REG => self.add_region(body, &files, owner)?,
            request::REM_MEM_REG => self.remove_region(body, owner)?,
            request::SET_LOG_BASE => return self.set_log(body, &files, owner),
            // It would be written when the log changes; front ends look at the log by themselves.
            request::SET_LOG_FD => body.end()?,
            request::SET_VRING_NUM => {
                let (index, size) = (body.u32()?, body.u32()?);
                body.end()?;
                self.queues.set_size(index, size)?;
            }
            request::SET_VRING_BASE => {
                let (index, base) = (body.u32()?, body.u32()?);
                body.end()?;
                self.queues.set_base(index, base)?;
            }
            request::SET_VRING_ADDR => self.set_addresses(body, owner)?,
            request::SET_VRING_ENABLE => self.enable(body, owner)?,
            request::SET_VRING_KICK | request::SET_VRING_CALL | request::SET_VRING_ERR => {
                self.set_bell(number, body, files, owner)?;
            }
            request::NET_SET_MTU => return Ok(self.set_mtu(body.only_u64()?, owner)),
            request::SEND_RARP => {
                let [mac @ .., _, _] = body.only_u64()?.to_ne_bytes();
                self.ask_to_announce();
                owner.event(Event::Announce(mac));
            }
            request::SET_BACKEND_REQ_FD => {
                self.channel = files.into_iter().next().map(doorbell::check).transpose()?;
            }
            request => return Err(VhostError::UnknownRequest { request }),
        }
        Ok(Answer::Done)
    }

    /// Some requests exist only after their protocol feature was agreed on.
    fn check_protocol(&self, number: u32) -> Result<(), VhostError> {
        let needed = match number {
            request::GET_QUEUE_NUM => protocol::MQ,
            request::SET_LOG_BASE => protocol::LOG_SHMFD,
            request::SEND_RARP => protocol::RARP,
            request::NET_SET_MTU => protocol::MTU,
            request::SET_BACKEND_REQ_FD => protocol::BACKEND_REQ,
            request::GET_CONFIG | request::SET_CONFIG => protocol::CONFIG,
            request::RESET_DEVICE => protocol::RESET_DEVICE,
            request::GET_INFLIGHT_FD | request::SET_INFLIGHT_FD => protocol::INFLIGHT,
            request::GET_MAX_MEM_SLOTS | request::ADD_MEM_REG | request::REM_MEM_REG => protocol::MEM_SLOTS,
            request::GET_STATUS | request::SET_STATUS => protocol::STATUS,
            _ => 0,
        };
        match self.protocol & needed == needed {
            true => Ok(()),
            false => Err(VhostError::UnknownRequest { request: number }),
        }
    }

    fn set_features(&mut self, features: u64, owner: &mut impl Owner) -> Result<(), VhostError> {
        let offered = self.options.features;
        if !offered.has(Features(features)) {
            return Err(VhostError::FeaturesNotOffered { features, offered: offered.0 });
        }
        self.queues.pause(owner);
        self.features = Features(features);
        self.control.set_features(self.features);
        owner.event(Event::Features(self.features));
        self.change_memory(GuestMemory::clone(&self.memory), owner)
    }

    fn set_protocol(&mut self, features: u64) -> Result<(), VhostError> {
        if features & !protocol::ALL != 0 {
            return Err(VhostError::FeaturesNotOffered { features, offered: protocol::ALL });
        }
        self.protocol = features;
        Ok(())
    }

    fn set_status(&mut self, status: u8, owner: &mut impl Owner) {
        self.status = status;
        if status == 0 {
            self.reset(owner);
        }
    }

    fn set_mtu(&mut self, mtu: u64, owner: &mut impl Owner) -> Answer {
        let Some(mtu) = u16::try_from(mtu).ok().filter(|mtu| *mtu >= MIN_MTU) else { return Answer::Refused };
        self.options.config.mtu = mtu;
        owner.event(Event::Mtu(mtu));
        Answer::Done
    }

    /// A guest knows all of its addresses, and whoever announces it only one.
    fn ask_to_announce(&mut self) {
        if self.features.has(Features::GUEST_ANNOUNCE) && self.queues.control.is_some() {
            self.set_config(NetConfig { is_to_announce: true, ..self.options.config });
        }
    }

    fn reset(&mut self, owner: &mut impl Owner) {
        self.stop(owner);
        (0..self.queues.len()).for_each(|index| self.forget_notes(index));
        self.control.reset(|event| owner.event(event));
        self.control.set_features(self.features);
        self.status = 0;
    }

    fn get_config(&self, mut body: Body<'_>) -> Result<Answer, VhostError> {
        let (offset, len, flags) = (body.u32()?, body.u32()?, body.u32()?);
        if body.rest().len() != len as usize {
            let request = request::GET_CONFIG;
            return Err(VhostError::BadLength { request, len: body.rest().len() });
        }
        // A reply without bytes says that there are none.
        let bytes = self.options.config.read(offset, len).unwrap_or_default();
        let head = [offset, bytes.len() as u32, flags].map(u32::to_ne_bytes).concat();
        Ok(Answer::Reply([head, bytes].concat()))
    }

    /// Carries out commands of the control queue. Returns whether there may be more.
    fn serve_control(&mut self, owner: &mut impl Owner) -> Result<bool, VhostError> {
        let Some(queue) = &mut self.queues.control else { return Ok(false) };
        queue.hear_kicks()?;
        let mut command = [0; MAX_COMMAND_BYTES];
        let mut done = 0;
        while done < COMMANDS_AT_ONCE {
            let Some(len) = queue.command(&mut command)? else { break };
            let command = &command[..len];
            let answer = if self.control.is_announced(command) {
                self.options.config.is_to_announce = false;
                vec![0]
            } else {
                self.control.run(command, |event| owner.event(event))
            };
            queue.answer(&answer);
            done += 1;
        }
        if queue.publish() {
            queue.call().map_err(VhostError::Socket)?;
        }
        Ok(queue.allow_kicks())
    }
}

/// A reply of one number, to a request without a body.
fn reply(body: Body<'_>, value: u64) -> Result<Answer, VhostError> {
    body.end()?;
    Ok(Answer::Reply(value.to_ne_bytes().to_vec()))
}

/// How many descriptors a request takes; some are counted where the body says how many there are.
fn check_files(request: u32, count: usize) -> Result<(), VhostError> {
    let (least, most) = match request {
        request::SET_MEM_TABLE => (1, MAX_REGIONS),
        request::SET_VRING_KICK | request::SET_VRING_CALL | request::SET_VRING_ERR => (0, 1),
        request::SET_BACKEND_REQ_FD
        | request::ADD_MEM_REG
        | request::SET_LOG_BASE
        | request::SET_LOG_FD
        | request::SET_INFLIGHT_FD => (1, 1),
        // Some front ends pass the region's file here, too; it is closed.
        request::REM_MEM_REG => (0, 1),
        _ => (0, 0),
    };
    match (least..=most).contains(&count) {
        true => Ok(()),
        false => Err(VhostError::BadDescriptors { request, count, wanted: most }),
    }
}

#[cfg(test)]
mod tests;
