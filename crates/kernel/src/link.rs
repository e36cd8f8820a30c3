//! Attaching programs: links that detach when they are dropped, and raw loading for one netdev. Unsafe code.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_sys as sys;

use crate::DatapathError;
use crate::object::BOUND_WITH_FRAGS;

/// `BPF_TCX_INGRESS`, include/uapi/linux/bpf.h.
const TCX_INGRESS: sys::bpf_attach_type = 46;
/// `BPF_XDP`, include/uapi/linux/bpf.h.
const XDP: sys::bpf_attach_type = 37;

/// A program attached to a netdev. Dropping it detaches the program, and only that one.
#[derive(Debug)]
pub struct NetdevLink {
    link: OwnedFd,
}

impl NetdevLink {
    /// Puts `program` in the place of the one that is attached; each packet meets one of them. For XDP programs.
    ///
    /// # Errors
    /// What the kernel said; the old one stays.
    pub fn replace(&self, program: BorrowedFd<'_>) -> Result<(), DatapathError> {
        // SAFETY: both descriptors are open for the call; no options are passed.
        let failed =
            unsafe { sys::bpf_link_update(self.link.as_raw_fd(), program.as_raw_fd(), std::ptr::null()) };
        if failed < 0 {
            let source = std::io::Error::from_raw_os_error(-failed);
            return Err(DatapathError::System { what: "replace an XDP program", source });
        }
        Ok(())
    }
}

/// Attaches `program` to the tcx ingress of `ifindex`, behind whatever is there.
pub(crate) fn attach_tcx(program: BorrowedFd<'_>, ifindex: u32) -> Result<NetdevLink, DatapathError> {
    create(program, ifindex, TCX_INGRESS, "attach a tcx program")
}

/// Attaches `program` as the XDP program of `ifindex`, in native mode where the driver has one. `EBUSY`: there is one.
pub(crate) fn attach_xdp(program: BorrowedFd<'_>, ifindex: u32) -> Result<NetdevLink, DatapathError> {
    create(program, ifindex, XDP, "attach an XDP program")
}

fn create(
    program: BorrowedFd<'_>,
    ifindex: u32,
    kind: sys::bpf_attach_type,
    what: &'static str,
) -> Result<NetdevLink, DatapathError> {
    // SAFETY: the descriptor is open for the call; no options are passed.
    let link = unsafe { sys::bpf_link_create(program.as_raw_fd(), ifindex as i32, kind, std::ptr::null()) };
    if link < 0 {
        return Err(DatapathError::netdev(what, ifindex, link));
    }
    // SAFETY: libbpf just gave us this descriptor; nobody else owns it.
    Ok(NetdevLink { link: unsafe { OwnedFd::from_raw_fd(link) } })
}

/// Instructions of an XDP program whose maps and kfuncs are resolved already.
#[derive(Clone)]
pub(crate) struct Relocated(Vec<sys::bpf_insn>);

impl Relocated {
    /// Copies them out of a program that was loaded; the object whose maps they name must stay open.
    pub(crate) fn new(instructions: &[sys::bpf_insn]) -> Self {
        Self(instructions.to_vec())
    }

    /// Loads the program again, bound to `ifindex` in the calling thread's namespace. Measured 50 µs where opening the
    /// object again takes 4 ms.
    pub(crate) fn load_bound(&self, name: &CStr, ifindex: u32) -> Result<OwnedFd, DatapathError> {
        // SAFETY: all-zero bytes are a valid value of this C struct, and what libbpf asks for.
        let mut options: sys::bpf_prog_load_opts = unsafe { std::mem::zeroed() };
        options.sz = size_of::<sys::bpf_prog_load_opts>() as u64;
        options.expected_attach_type = XDP;
        options.prog_flags = BOUND_WITH_FRAGS;
        options.prog_ifindex = ifindex;
        let licence = c"Dual BSD/GPL";
        // SAFETY: name, licence, instructions and options outlive the call, and the count is the slice's own.
        let program = unsafe {
            sys::bpf_prog_load(
                sys::BPF_PROG_TYPE_XDP,
                name.as_ptr(),
                licence.as_ptr(),
                self.0.as_ptr(),
                self.0.len() as u64,
                &mut options,
            )
        };
        if program < 0 {
            return Err(DatapathError::netdev("load an XDP program bound to the netdev", ifindex, program));
        }
        // SAFETY: libbpf just gave us this descriptor; nobody else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(program) })
    }
}

/// Name of the loaded program `id`, where we may ask: the kernel tells whoever has CAP_SYS_ADMIN.
pub fn program_name(id: u32) -> Option<String> {
    // SAFETY: no pointers are passed.
    let fd = unsafe { sys::bpf_prog_get_fd_by_id(id) };
    if fd < 0 {
        return None;
    }
    // SAFETY: libbpf just gave us this descriptor; nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: all-zero bytes are a valid value of this C struct; null lists with zero counts ask for none.
    let mut info: sys::bpf_prog_info = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<sys::bpf_prog_info>() as u32;
    // SAFETY: pointer and length describe `info`, which the kernel fills.
    let failed = unsafe { sys::bpf_prog_get_info_by_fd(fd.as_raw_fd(), &mut info, &mut bytes) };
    let name: Vec<u8> = info.name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
    (failed == 0).then(|| String::from_utf8_lossy(&name).into_owned())
}
