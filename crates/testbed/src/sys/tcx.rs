//! Links of tcx programs.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys as sys;

/// `BPF_TCX_INGRESS`, include/uapi/linux/bpf.h.
const TCX_INGRESS: sys::bpf_attach_type = 46;

/// Attaches a program to the tcx ingress of a netdev in the calling thread's namespace, until the link is closed.
pub(crate) fn attach(program: BorrowedFd<'_>, ifindex: i32) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is open for the call; no options are passed.
    let link = unsafe { sys::bpf_link_create(program.as_raw_fd(), ifindex, TCX_INGRESS, std::ptr::null()) };
    if link < 0 {
        return Err(io::Error::from_raw_os_error(-link));
    }
    // SAFETY: libbpf just gave us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// Number of programs at the tcx ingress of a netdev in the calling thread's namespace.
pub(crate) fn count(ifindex: i32) -> io::Result<u32> {
    let mut count = 0;
    let nowhere = std::ptr::null_mut();
    // SAFETY: the count is written to a number that outlives the call; with room for none, no ids are written.
    let failed =
        unsafe { sys::bpf_prog_query(ifindex, TCX_INGRESS, 0, std::ptr::null_mut(), nowhere, &mut count) };
    if failed < 0 { Err(io::Error::from_raw_os_error(-failed)) } else { Ok(count) }
}
