//! Requests about memory in which is noted how far each queue got.

use std::os::fd::OwnedFd;

use super::{Answer, Backend, Owner};
use crate::error::VhostError;
use crate::features::Features;
use crate::inflight::{self, Inflight, Shape};
use crate::message::Body;

impl Backend {
    fn is_packed(&self) -> bool {
        self.features.has(Features::RING_PACKED)
    }

    /// Makes a file, which the front end keeps and gives to this back end and the next.
    pub(super) fn make_inflight(&mut self, body: Body<'_>) -> Result<Answer, VhostError> {
        let (asked, padding) = shape(body)?;
        let (made, file) = inflight::make(asked, self.is_packed(), self.queues.len())?;
        let numbers = [made.len.to_ne_bytes(), made.offset.to_ne_bytes()].concat();
        let sizes = [made.queues.to_ne_bytes(), made.size.to_ne_bytes()].concat();
        Ok(Answer::ReplyWith([numbers, sizes, vec![0; padding]].concat(), file))
    }

    pub(super) fn set_inflight(
        &mut self,
        body: Body<'_>,
        files: &[OwnedFd],
        owner: &mut impl Owner,
    ) -> Result<(), VhostError> {
        let (shape, _) = shape(body)?;
        self.queues.pause(owner);
        for file in files {
            self.inflight = Some(Inflight::open(shape, file, self.queues.len())?);
        }
        self.resume(owner)
    }

    /// The front end knows where a queue stopped, or begins it anew.
    pub(super) fn forget_notes(&self, index: usize) {
        if let Some(inflight) = &self.inflight {
            inflight.forget(index, self.is_packed());
        }
    }
}

/// The description of a file, and bytes of padding behind it, which some front ends send.
fn shape(mut body: Body<'_>) -> Result<(Shape, usize), VhostError> {
    let (len, offset) = (body.u64()?, body.u64()?);
    let (queues, size) = (body.u16()?, body.u16()?);
    let padding = body.rest().len();
    match padding {
        0 => body.end()?,
        _ => _ = body.u32()?,
    }
    Ok((Shape { len, offset, queues, size }, padding))
}
