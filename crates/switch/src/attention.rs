//! How others call the housekeeper: a worker, because a port of the calm lane has more than its turn takes or a station
//! has moved; the control side, because ports have changed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use crate::SwitchError;

/// One call at a time.
pub(crate) struct Attention {
    bell: OwnedFd,
    called: AtomicBool,
}

impl Attention {
    pub(crate) fn new() -> Result<Self, SwitchError> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(SwitchError::system("create an eventfd"))?;
        Ok(Self { bell, called: AtomicBool::new(false) })
    }

    /// Calls, unless somebody has since the housekeeper last asked for calls; packet path.
    #[inline]
    pub(crate) fn call(&self) {
        if !self.called.load(Ordering::Relaxed) && !self.called.swap(true, Ordering::Relaxed) {
            let _ = rustix::io::write(self.bell.as_fd(), &1u64.to_ne_bytes());
        }
    }

    /// Silences the bell.
    pub(crate) fn hear(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.bell, &mut count);
    }

    /// Asks for calls again.
    pub(crate) fn listen(&self) {
        self.called.store(false, Ordering::Relaxed);
    }
}

impl AsFd for Attention {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    #[test]
    fn nobody_calls_twice_before_he_is_asked_to() {
        let attention = Attention::new().expect("an eventfd can be had");
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let rings = || poll(&mut [PollFd::new(&attention, PollFlags::IN)], Some(&now)).expect("a poll") == 1;
        assert!(!rings());
        for _ in 0..2 {
            attention.call();
            attention.call();
            assert!(rings());
            attention.hear();
            attention.call();
            assert!(!rings());
            attention.listen();
        }
    }
}
