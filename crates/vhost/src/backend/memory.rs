//! Requests that change the guest's memory, or where is noted what we write of it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{Answer, Backend, Owner};
use crate::error::VhostError;
use crate::features::Features;
use crate::memory::{DirtyLog, GuestMemory, RegionPlace};
use crate::message::{Body, request};

impl Backend {
    pub(super) fn set_memory(
        &mut self,
        mut body: Body<'_>,
        files: &[OwnedFd],
        owner: &mut impl Owner,
    ) -> Result<(), VhostError> {
        let (count, _padding) = (body.u32()? as usize, body.u32()?);
        if count != files.len() {
            let request = request::SET_MEM_TABLE;
            return Err(VhostError::BadDescriptors { request, count: files.len(), wanted: count });
        }
        let mut memory = GuestMemory::default();
        for file in files {
            memory.add(place(&mut body)?, file)?;
        }
        // Linux in user mode always sends room for two regions, so more may follow than count.
        self.change_memory(memory, owner)
    }

    /// QEMU 7.2 adds and removes each region once for each pair of queues.
    pub(super) fn add_region(
        &mut self,
        mut body: Body<'_>,
        files: &[OwnedFd],
        owner: &mut impl Owner,
    ) -> Result<(), VhostError> {
        let _padding = body.u64()?;
        let place = place(&mut body)?;
        body.end()?;
        if self.memory.has(place) {
            return Ok(());
        }
        let mut memory = GuestMemory::clone(&self.memory);
        for file in files {
            memory.add(place, file)?;
        }
        self.change_memory(memory, owner)
    }

    pub(super) fn remove_region(
        &mut self,
        mut body: Body<'_>,
        owner: &mut impl Owner,
    ) -> Result<(), VhostError> {
        let _padding = body.u64()?;
        let place = place(&mut body)?;
        body.end()?;
        let mut memory = GuestMemory::clone(&self.memory);
        if memory.remove(place) { self.change_memory(memory, owner) } else { Ok(()) }
    }

    pub(super) fn change_memory(
        &mut self,
        memory: GuestMemory,
        owner: &mut impl Owner,
    ) -> Result<(), VhostError> {
        self.queues.pause(owner);
        self.memory = Arc::new(memory.with_log(self.log_in_use()));
        self.resume(owner)
    }

    fn log_in_use(&self) -> Option<Arc<DirtyLog>> {
        self.log.clone().filter(|_| self.features.has(Features::LOG_ALL))
    }

    /// The reply tells the front end that from now on nothing is written without a note.
    pub(super) fn set_log(
        &mut self,
        mut body: Body<'_>,
        files: &[OwnedFd],
        owner: &mut impl Owner,
    ) -> Result<Answer, VhostError> {
        let (len, offset) = (body.u64()?, body.u64()?);
        body.end()?;
        for file in files {
            self.log = Some(Arc::new(DirtyLog::new(len, offset, file)?));
        }
        self.change_memory(GuestMemory::clone(&self.memory), owner)?;
        Ok(Answer::Reply(0u64.to_ne_bytes().to_vec()))
    }
}

/// The description of one region.
fn place(body: &mut Body<'_>) -> Result<RegionPlace, VhostError> {
    let (guest, len, user, offset) = (body.u64()?, body.u64()?, body.u64()?, body.u64()?);
    Ok(RegionPlace { guest, user, len, offset })
}
