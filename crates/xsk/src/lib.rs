//! AF_XDP without a library in between: UMEM, the four rings, sockets that share a queue; and the packet
//! socket that transmits.
//!
//! The rule this crate keeps: what crosses to the kernel is a [`Frame`](forebay_pool::Frame) by value, and what
//! comes back is one. Cursors are free-running 32-bit numbers that wrap; every difference is taken modulo 2^32.
//!
//! ```text
//!            post ┌──────────┐                ┌─────────┐ receive
//!   Frame ───────►│ fill ring│──► kernel ────►│ RX ring │────────► Burst      one fill ring a queue,
//!                 └──────────┘                └─────────┘                     one RX ring a port
//!            send ┌──────────┐                ┌───────────┐ reclaim
//!   Frame ───────►│ TX ring  │──► kernel ────►│ completion│────────► Frame
//!                 └──────────┘                └───────────┘
//! ```
//!
//! Unsafe code lives in `heap`, `ring`, `mapping`, `sys`, `rings` and `transmit`; each block says why it is sound.
#![deny(unsafe_code)]

mod error;
mod heap;
mod mapping;
mod queue_id;
mod ring;
mod rings;
mod socket;
mod sys;
mod transmit;

pub use error::XskError;
pub use heap::{HeapQueue, HeapSocket, Undelivered};
pub use queue_id::Closed;
pub use rings::{CompletionRing, FillRing, Reads, RxRing, TxRing};
pub use socket::{PortSocket, Queue, QueueOptions, QueueRings, Statistics};
pub use transmit::{
    Departures, Destination, FrameSender, Joint, MAX_LENT_PIECES, Outcome, TagEdit, Transmitter, TxBatch,
    TxError,
};
