//! What the thread that talks with virtual machines waits for: one epoll for all of them, so that a turn costs as much as
//! there is to do.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use forebay_control::PortId;
use rustix::event::{Timespec, epoll};

use super::GuestKey;
use crate::SwitchError;

/// Ready descriptors that one wait reports; the others are reported by the next.
const EVENTS: usize = 64;
/// Marks the event of the thread's bell.
const BELL: u64 = u64::MAX;
/// Bits of a port's id in an event.
const ID_BITS: u32 = u16::BITS;

/// Who is waited for.
pub(crate) struct Watch(OwnedFd);

/// What one wait has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) bell: bool,
    /// Each at most once.
    pub(crate) guests: Vec<GuestKey>,
}

impl Watch {
    /// Only `bell` is waited for.
    ///
    /// # Errors
    /// The kernel gives no more descriptors.
    pub(crate) fn new(bell: &impl AsFd) -> Result<Self, SwitchError> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(SwitchError::system("create an epoll"))?;
        epoll::add(&epoll, bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)
            .map_err(SwitchError::system("watch an eventfd"))?;
        Ok(Self(epoll))
    }

    /// Waits for one more descriptor of a guest. Says whether that is possible: the kernel may have no memory for it.
    pub(crate) fn add(&self, key: GuestKey, descriptor: impl AsFd) -> bool {
        let data = epoll::EventData::new_u64(key.serial << ID_BITS | u64::from(key.id.0));
        epoll::add(&self.0, descriptor, data, epoll::EventFlags::IN).is_ok()
    }

    /// Waits for it no longer. Needed before a descriptor is closed that another process has, too.
    pub(crate) fn remove(&self, descriptor: impl AsFd) {
        // One that could not be added is not there.
        let _ = epoll::delete(&self.0, descriptor);
    }

    /// Has `old` be the one that is waited for, in the place of `new`: the kick of a control queue, if it has one.
    pub(crate) fn replace(
        &self,
        key: GuestKey,
        old: &mut Option<Arc<OwnedFd>>,
        new: Option<&Arc<OwnedFd>>,
    ) -> bool {
        if old.as_ref().map(Arc::as_ptr) == new.map(Arc::as_ptr) {
            return true;
        }
        if let Some(old) = std::mem::replace(old, new.cloned()) {
            self.remove(&old);
        }
        new.is_none_or(|new| self.add(key, new))
    }

    /// Waits until something is ready, or for so long.
    pub(crate) fn wait(&self, pause: Option<&Timespec>) -> Ready {
        let mut room = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS];
        // An interrupted wait reports nothing, and the caller comes back.
        let Ok((events, _)) = epoll::wait(&self.0, &mut room, pause) else { return Ready::default() };
        let mut ready = Ready::default();
        for event in events.iter() {
            match event.data.u64() {
                BELL => ready.bell = true,
                data => {
                    ready.guests.push(GuestKey { id: PortId(data as u16), serial: data >> ID_BITS });
                }
            }
        }
        ready.guests.sort_unstable();
        ready.guests.dedup();
        ready
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

    fn bell() -> OwnedFd {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd can be had")
    }

    fn ring(bell: &OwnedFd) {
        rustix::io::write(bell, &1u64.to_ne_bytes()).expect("an eventfd takes a number");
    }

    fn key(id: u16, serial: u64) -> GuestKey {
        GuestKey { id: PortId(id), serial }
    }

    #[test]
    fn guests_are_told_apart_from_each_other_and_from_the_bell() {
        let (own, bells) = (bell(), [bell(), bell(), bell()]);
        let watch = Watch::new(&own).expect("an epoll can be had");
        let keys = [key(u16::MAX, 1), key(3, 1 << 40), key(3, 7)];
        assert!(keys.iter().zip(&bells).all(|(key, bell)| watch.add(*key, bell)));
        assert_eq!(watch.wait(Some(&NOW)), Ready::default());
        [&bells[0], &bells[1], &own].into_iter().for_each(ring);
        let mut guests = vec![keys[0], keys[1]];
        guests.sort_unstable();
        assert_eq!(watch.wait(Some(&NOW)), Ready { bell: true, guests });
    }

    #[test]
    fn a_kick_that_was_replaced_is_heard_no_more_although_the_guest_has_it_still() {
        let (own, of_guest) = (bell(), bell());
        let watch = Watch::new(&own).expect("an epoll can be had");
        let ours = Arc::new(of_guest.try_clone().expect("a descriptor can be had"));
        let mut watched = None;
        assert!(watch.replace(key(1, 1), &mut watched, Some(&ours)));
        ring(&of_guest);
        assert_eq!(watch.wait(Some(&NOW)).guests, [key(1, 1)]);
        drop(ours);
        let other = Arc::new(bell());
        assert!(watch.replace(key(1, 1), &mut watched, Some(&other)));
        assert_eq!(watch.wait(Some(&NOW)), Ready::default());
        ring(&other);
        assert!(watch.replace(key(1, 1), &mut watched, Some(&other)));
        assert_eq!(watch.wait(Some(&NOW)).guests, [key(1, 1)]);
        assert!(watch.replace(key(1, 1), &mut watched, None));
        assert_eq!(watch.wait(Some(&NOW)), Ready::default());
    }
}
