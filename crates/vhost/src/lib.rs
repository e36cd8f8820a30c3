//! The device side of vhost-user guests: guest memory, virtqueues, the virtio-net device, the protocol.
//!
//! The rule this crate keeps: a guest and its front end may write anything at any time, and only their own port breaks.
//! Guest memory is copied from and to, and a copy is validated after it is made. Payloads that nobody needs to read may stay where
//! they are until they were sent on ([`Virtqueue::lend`]). A malformed
//! ring is a [`RingError`], a malformed message a [`VhostError`]; both name the value and its limit.
//!
//! ```text
//!    guest's transmit queue ──► Virtqueue::offered ──► take (copy into frames) or discard ─┐
//!                                                                                         ├─► publish ──► call
//!    guest's receive queue  ◄── Virtqueue::put (all of a packet or nothing) ──────────────┘
//! ```
//!
//! # A worker's turn
//! ```no_run
//! # use forebay_vhost::{Features, NetHeader, Put, RingError, Virtqueue};
//! # fn turn(
//! #     transmit: &mut Virtqueue, receive: &mut Virtqueue, frame: &mut [u8], agreed: Features,
//! # ) -> Result<(), RingError> {
//! if transmit.is_broken() {
//!     return Err(RingError::MemoryFault);
//! }
//! transmit.suppress_kicks();
//! while let Some(offer) = transmit.offered()? {
//!     if offer.len as usize > frame.len() || agreed.check(&transmit.header(), offer.len).is_err() {
//!         transmit.discard(); // over its threshold, or a lie: no copy is made
//!         continue;
//!     }
//!     let len = transmit.take([&mut *frame]) as usize;
//!     let packet = &frame[..len];
//!     if receive.put(NetHeader::default(), [packet], len as u32)? != Put::Done {
//!         // dropped at the output, and counted
//!     }
//! }
//! for queue in [transmit, receive] {
//!     if queue.publish() {
//!         let _ = queue.call();
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//! Before it sleeps, a worker calls [`Virtqueue::allow_kicks`] and waits for [`Virtqueue::kick`].
//!
//! # A port's control side
//! A [`Backend`] drives one connected stream. Its owner polls [`Backend::descriptors`], calls [`Backend::handle`] when
//! one is readable, and implements [`Owner`]: queues are handed over when they start and asked back when they stop.
//! The back end has no thread and never waits for the front end; [`VhostError`] means that this port is to be closed.
//!
//! # Who breaks
//! | what | says | do |
//! |---|---|---|
//! | a packet's header lies | [`HeaderError`] of [`Features::check`] | drop the packet |
//! | a ring or the guest's memory is malformed | [`RingError`], [`Virtqueue::is_broken`] | drop the queue; `None` of [`Owner::queue_stopped`] |
//! | a message is malformed | [`VhostError`] of [`Backend::handle`] | drop the [`Backend`], which closes the socket |
//! | the front end has gone | [`Progress::Closed`] | wait for the next one |
//!
//! # What is not here
//! Kicks and calls by messages, postcopy, an IOMMU, hashes and RSS, guests of the other byte order without VERSION_1.
//!
//! Unsafe code lives in `memory`: `mapping`, `area` and `fault`; each block says why it is sound.
#![deny(unsafe_code)]

mod agreed;
mod backend;
mod config;
mod connection;
mod control_queue;
mod doorbell;
pub mod driver;
mod error;
mod features;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz_check;
mod inflight;
mod memory;
mod message;
mod ring;
mod virtqueue;

pub use backend::{Backend, DeviceOptions, MAX_PAIRS, Owner, Progress};
pub use config::{CONFIG_BYTES, NetConfig};
pub use control_queue::{Coalescing, Control, Event, MAX_COMMAND_BYTES, RxMode};
pub use error::{HeaderError, RingError, VhostError};
pub use features::Features;
pub use forebay_wire::net_header::NetHeader;
pub use memory::{GuestMemory, Lent, LentBytes, LentPieces, MAX_REGIONS, RegionPlace};
pub use ring::{MAX_CHAIN, MAX_PACKET_BYTES, MAX_RING};
pub use virtqueue::{Bells, Offer, Put, RingPlace, Virtqueue};
