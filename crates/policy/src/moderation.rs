//! Moderation: how long a guest's queue holds back calls, so that one call serves many packets.
//!
//! A call is the guest's interrupt. The switch is the device: it shows packets to the guest at once, and calls the guest
//! now or a moment later. [`Moderators`] says when: it counts packets and time for all queues of one worker,
//! as virtio 1.3 words it. A [`Policy`] says by which [`Limits`]. Guests need no change, and no part in it.
//!
//! The rule it keeps: a packet that was shown is called for within the limits in force, whatever the guest, the limits
//! and the clock do. Only a guest that wants no call gets none.
//!
//! ```text
//!  packets shown ──► Moderators ──► call now, or wait ──► one timer of the worker (Deadlines)
//!                     │      ▲
//!              Counts │      │ Settings: usecs, packets, short messages at once
//!                     ▼      │
//!                     Policy: off, static, dim, adaptive
//! ```

mod adaptive;
mod counts;
mod deadlines;
mod device;
mod dim;
mod limits;
mod looks;
mod moderators;
mod policy;
mod queue;
mod shown;
pub mod simulation;

pub use adaptive::Adaptive;
pub use counts::Counts;
pub use deadlines::Deadlines;
pub use device::{Device, NapiLimits, Seen};
pub use dim::{Dim, Profile, ProfileError, Sample};
pub use limits::{Direction, Limits, Settings};
pub use looks::Looks;
pub use moderators::Moderators;
pub use policy::Policy;
pub use shown::{SHORT_BYTES, Shown};
