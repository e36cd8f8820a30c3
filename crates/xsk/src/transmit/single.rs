//! Sending one frame of the caller's own. Unsafe code.
#![allow(unsafe_code, reason = "gives the kernel a pointer to one frame")]

use std::os::fd::{AsRawFd as _, OwnedFd};

use super::TxError;
use crate::XskError;

/// A packet socket that sends frames out of any netdev, and receives nothing.
#[derive(Debug)]
pub struct FrameSender(OwnedFd);

impl FrameSender {
    /// Opens the socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`XskError::System`], usually for want of CAP_NET_RAW.
    pub fn open() -> Result<Self, XskError> {
        super::open().map(Self)
    }

    /// Sends `frame`, which begins with its Ethernet header, out of netdev `ifindex`. Never waits.
    ///
    /// # Errors
    /// Why the kernel did not take it.
    pub fn send(&self, ifindex: u32, frame: &[u8]) -> Result<(), TxError> {
        // SAFETY: all-zero bytes are valid for this C struct of integers.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = ifindex as i32;
        // SAFETY: pointers and lengths describe `frame` and `to`, which the kernel only reads.
        let sent = unsafe {
            libc::sendto(
                self.0.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                libc::MSG_DONTWAIT,
                std::ptr::from_ref(&to).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if sent >= 0 {
            return Ok(());
        }
        Err(TxError::from_errno(std::io::Error::last_os_error().raw_os_error()))
    }
}
