//! What a front end has set for each queue, and which queues run.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::Owner;
use crate::error::VhostError;
use crate::features::Features;
use crate::inflight::Inflight;
use crate::memory::GuestMemory;
use crate::ring::MAX_RING;
use crate::ring::packed::FRESH;
use crate::virtqueue::{Bells, RingPlace, Virtqueue};

/// How a guest says that it has new buffers.
#[derive(Clone, Debug, Default)]
pub(super) enum Kick {
    /// The front end has not said: the queue has not started.
    #[default]
    Unset,
    /// Not at all: the queue is polled.
    Polled,
    Bell(Arc<OwnedFd>),
}

/// Settings of one queue.
#[derive(Debug, Default)]
struct Queue {
    size: u32,
    addresses: Option<[u64; 3]>,
    base: u32,
    /// The base is the queue's own, and not what the front end said.
    has_run: bool,
    /// Where the queue was when it stopped last, also if the device was reset since.
    stopped_at: u32,
    kick: Kick,
    call: Option<Arc<OwnedFd>>,
    is_enabled: bool,
    /// The owner, or this back end for the control queue, serves it.
    runs: bool,
    /// The owner dropped it because it was malformed. It stays stopped until the front end sets it up again.
    is_broken: bool,
}

/// All queues of a device. The control queue is served here, the others by the owner.
#[derive(Debug)]
pub(super) struct Queues {
    all: Vec<Queue>,
    pub(super) control: Option<Virtqueue>,
}

impl Queues {
    pub(super) fn new(queues: usize) -> Self {
        Self { all: (0..queues).map(|_| Queue::default()).collect(), control: None }
    }

    /// Forgets all settings but descriptors for calls, which front ends pass early and only once; no queue runs. QEMU 7.2
    /// resets the device before it asks where the queues were, and a guest that migrates goes on there.
    pub(super) fn reset(&mut self) {
        let kept =
            |queue: Queue| Queue { call: queue.call, stopped_at: queue.stopped_at, ..Queue::default() };
        self.all = std::mem::take(&mut self.all).into_iter().map(kept).collect();
    }

    /// How the guest says that there are commands, while the control queue runs.
    pub(super) fn control_kick(&self) -> Option<&Arc<OwnedFd>> {
        match &self.all[self.control.as_ref()?.index()].kick {
            Kick::Bell(kick) => Some(kick),
            Kick::Unset | Kick::Polled => None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// # Errors
    /// There is no such queue.
    pub(super) fn check(&self, index: u32) -> Result<(), VhostError> {
        let queues = self.all.len();
        if (index as usize) < queues { Ok(()) } else { Err(VhostError::NoSuchQueue { index, queues }) }
    }

    fn get(&mut self, index: u32) -> Result<&mut Queue, VhostError> {
        self.check(index)?;
        Ok(&mut self.all[index as usize])
    }

    /// Asks one queue back, if it runs, and remembers where it was.
    fn stop(&mut self, index: u32, owner: &mut impl Owner) -> Result<&mut Queue, VhostError> {
        self.check(index)?;
        let at = index as usize;
        if std::mem::take(&mut self.all[at].runs) {
            let is_control = self.control.as_ref().is_some_and(|control| control.index() == at);
            let stopped = if is_control { self.control.take() } else { owner.queue_stopped(at) };
            match stopped {
                Some(mut queue) => {
                    // Nothing that was used may stay hidden; a call too many harms nobody.
                    if queue.publish() {
                        let _ = queue.call();
                    }
                    let base = queue.base();
                    (self.all[at].base, self.all[at].has_run, self.all[at].stopped_at) = (base, true, base);
                }
                None => self.all[at].is_broken = true,
            }
        }
        Ok(&mut self.all[at])
    }

    /// Asks all queues back that run.
    pub(super) fn pause(&mut self, owner: &mut impl Owner) {
        for index in 0..self.all.len() as u32 {
            self.stop(index, owner).expect("the index is that of a queue");
        }
    }

    /// Starts every queue that is set up and does not run.
    pub(super) fn resume(
        &mut self,
        memory: &Arc<GuestMemory>,
        features: Features,
        (control, inflight): (Option<usize>, Option<&Inflight>),
        owner: &mut impl Owner,
    ) -> Result<(), VhostError> {
        let needs_enabling = features.has(Features::PROTOCOL_FEATURES);
        for (index, queue) in self.all.iter_mut().enumerate() {
            let is_due = !queue.runs && !queue.is_broken && (queue.is_enabled || !needs_enabling);
            let Some(place) = queue.place(index, features).filter(|_| is_due) else { continue };
            let mut started = Virtqueue::new(Arc::clone(memory), features, place, queue.bells())?;
            if let Some(inflight) = inflight {
                started = started.noting_in(inflight)?;
            }
            // Whoever had the ring last may have died between showing used buffers and calling for them.
            let _ = started.call();
            queue.runs = true;
            match control == Some(index) {
                true => self.control = Some(started),
                false => owner.queue_started(started),
            }
        }
        Ok(())
    }

    pub(super) fn set_size(&mut self, index: u32, size: u32) -> Result<(), VhostError> {
        let queue = self.get(index)?;
        if size == 0 || size > MAX_RING {
            return Err(VhostError::BadRingSize { size, limit: MAX_RING });
        }
        queue.size = size;
        Ok(())
    }

    pub(super) fn set_base(&mut self, index: u32, base: u32) -> Result<(), VhostError> {
        let queue = self.get(index)?;
        (queue.base, queue.has_run, queue.stopped_at, queue.is_broken) = (base, false, base, false);
        Ok(())
    }

    pub(super) fn set_addresses(
        &mut self,
        index: u32,
        addresses: [u64; 3],
        owner: &mut impl Owner,
    ) -> Result<(), VhostError> {
        self.stop(index, owner)?.addresses = Some(addresses);
        Ok(())
    }

    pub(super) fn set_kick(
        &mut self,
        index: u32,
        kick: Kick,
        owner: &mut impl Owner,
    ) -> Result<(), VhostError> {
        self.stop(index, owner)?.kick = kick;
        Ok(())
    }

    pub(super) fn set_call(
        &mut self,
        index: u32,
        call: Option<Arc<OwnedFd>>,
        owner: &mut impl Owner,
    ) -> Result<(), VhostError> {
        self.stop(index, owner)?.call = call;
        Ok(())
    }

    pub(super) fn enable(
        &mut self,
        index: u32,
        enabled: bool,
        owner: &mut impl Owner,
    ) -> Result<(), VhostError> {
        self.check(index)?;
        if !enabled {
            self.stop(index, owner)?;
        }
        self.all[index as usize].is_enabled = enabled;
        Ok(())
    }

    /// Stops a queue until the front end kicks it on again. Returns where it was.
    pub(super) fn take_base(&mut self, index: u32, owner: &mut impl Owner) -> Result<u32, VhostError> {
        let queue = self.stop(index, owner)?;
        queue.kick = Kick::Unset;
        Ok(queue.stopped_at)
    }
}

impl Queue {
    /// `None`: it is not set up.
    fn place(&self, index: usize, features: Features) -> Option<RingPlace> {
        let [descriptors, driver, device] = self.addresses?;
        if matches!(self.kick, Kick::Unset) || self.size == 0 {
            return None;
        }
        let base = if features.has(Features::RING_PACKED) { self.packed_base() } else { self.base };
        Some(RingPlace { index, size: self.size as u16, descriptors, driver, device, base })
    }

    /// Front ends that start packed rings differ from the protocol: Linux in user mode says 0, DPDK leaves the position
    /// of used descriptors out. Buffers are used in order here, so it is that of available ones.
    fn packed_base(&self) -> u32 {
        match self.base {
            base if self.has_run => base,
            0 => FRESH,
            base if base >> 16 == 0 => base | base << 16,
            base => base,
        }
    }

    fn bells(&self) -> Bells {
        let kick = match &self.kick {
            Kick::Bell(kick) => Some(Arc::clone(kick)),
            Kick::Unset | Kick::Polled => None,
        };
        Bells { kick, call: self.call.clone() }
    }
}
