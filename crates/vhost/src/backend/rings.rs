//! Requests about one queue.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::queues::Kick;
use super::{Answer, Backend, Owner};
use crate::doorbell;
use crate::error::VhostError;
use crate::features::Features;
use crate::message::{Body, request};

/// A message's vring index and flag: no descriptor comes with it.
pub(super) const NO_DESCRIPTOR: u64 = 0x100;
const INDEX_MASK: u64 = 0xff;

impl Backend {
    /// Starts every queue that is ready and does not run.
    pub(super) fn resume(&mut self, owner: &mut impl Owner) -> Result<(), VhostError> {
        let control = self.control_index();
        self.queues.resume(&self.memory, self.features, (control, self.inflight.as_ref()), owner)
    }

    /// The control queue lies behind all others, or behind the first pair.
    fn control_index(&self) -> Option<usize> {
        let pairs = if self.features.has(Features::MQ) { self.options.config.pairs } else { 1 };
        self.features.has(Features::CTRL_VQ).then_some(2 * usize::from(pairs))
    }

    pub(super) fn get_base(
        &mut self,
        mut body: Body<'_>,
        owner: &mut impl Owner,
    ) -> Result<Answer, VhostError> {
        let (index, _) = (body.u32()?, body.u32()?);
        body.end()?;
        let base = self.queues.take_base(index, owner)?;
        self.forget_notes(index as usize);
        Ok(Answer::Reply([index.to_ne_bytes(), base.to_ne_bytes()].concat()))
    }

    pub(super) fn set_addresses(
        &mut self,
        mut body: Body<'_>,
        owner: &mut impl Owner,
    ) -> Result<(), VhostError> {
        let (index, _flags) = (body.u32()?, body.u32()?);
        let (descriptors, used, available, _log) = (body.u64()?, body.u64()?, body.u64()?, body.u64()?);
        body.end()?;
        self.queues.set_addresses(index, [descriptors, available, used], owner)?;
        self.resume(owner)
    }

    pub(super) fn enable(&mut self, mut body: Body<'_>, owner: &mut impl Owner) -> Result<(), VhostError> {
        let (index, enabled) = (body.u32()?, body.u32()?);
        body.end()?;
        self.queues.enable(index, enabled != 0, owner)?;
        if enabled == 0 {
            self.control.disable(index as usize, |event| owner.event(event));
        }
        self.resume(owner)
    }

    pub(super) fn set_bell(
        &mut self,
        number: u32,
        body: Body<'_>,
        files: Vec<OwnedFd>,
        owner: &mut impl Owner,
    ) -> Result<(), VhostError> {
        let value = body.only_u64()?;
        let wanted = usize::from(value & NO_DESCRIPTOR == 0);
        if files.len() != wanted {
            return Err(VhostError::BadDescriptors { request: number, count: files.len(), wanted });
        }
        let file = files.into_iter().next().map(doorbell::check).transpose()?.map(Arc::new);
        let index = (value & INDEX_MASK) as u32;
        match number {
            request::SET_VRING_KICK => {
                self.queues.set_kick(index, file.map_or(Kick::Polled, Kick::Bell), owner)?
            }
            request::SET_VRING_CALL => self.queues.set_call(index, file, owner)?,
            // Errors of a ring break its port, which the front end sees.
            _ => self.queues.check(index)?,
        }
        self.resume(owner)
    }
}
