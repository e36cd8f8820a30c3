//! Attaching programs: links that detach when they are dropped, and raw loading for one netdev. Unsafe code.
#![allow(unsafe_code, reason = "libbpf calls")]

use std::ffi::CStr;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use forebay_control::IfIndex;
use libbpf_rs::{AsRawLibbpf as _, Object, Program};
use libbpf_sys as sys;

use crate::{DatapathError, Pins};

/// `BPF_TCX_INGRESS`, include/uapi/linux/bpf.h.
pub(crate) const TCX_INGRESS: sys::bpf_attach_type = 46;
/// `BPF_XDP`, include/uapi/linux/bpf.h.
const XDP: sys::bpf_attach_type = 37;

/// `BPF_F_XDP_HAS_FRAGS` and `BPF_F_XDP_DEV_BOUND_ONLY`, include/uapi/linux/bpf.h. libbpf's setter overwrites what the
/// section name had set, so both are given.
pub(crate) const BOUND_WITH_FRAGS: u32 = (1 << 5) | (1 << 6);

/// A program attached to a netdev. Dropping it detaches the program, and only that one.
#[derive(Debug)]
pub struct NetdevLink {
    link: OwnedFd,
    /// Where it is pinned, so that it outlives the process.
    pin: Option<(Pins, String)>,
}

impl Drop for NetdevLink {
    fn drop(&mut self) {
        if let Some((pins, name)) = &self.pin {
            pins.forget(name);
        }
    }
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

    /// What the kernel tells about it.
    pub(crate) fn info(&self) -> Option<sys::bpf_link_info> {
        // SAFETY: all-zero bytes are a valid value of this C struct.
        let mut info: sys::bpf_link_info = unsafe { std::mem::zeroed() };
        let mut bytes = size_of::<sys::bpf_link_info>() as u32;
        // SAFETY: pointer and length describe `info`, which the kernel fills.
        let failed = unsafe { sys::bpf_link_get_info_by_fd(self.link.as_raw_fd(), &mut info, &mut bytes) };
        (failed >= 0).then_some(info)
    }

    /// The name of its pin.
    pub(crate) fn pinned_as(&self) -> Option<&str> {
        self.pin.as_ref().map(|(_, name)| name.as_str())
    }

    /// Moves its pin to another name, in the place of what had that name.
    pub(crate) fn rename_pin(&mut self, pins: &Pins, name: &str) -> std::io::Result<()> {
        let Some((_, before)) = &mut self.pin else { return Ok(()) };
        pins.rename(before, name)?;
        name.clone_into(before);
        Ok(())
    }
}

/// Pins a link under `name`.
pub(crate) fn pinned(mut link: NetdevLink, pins: &Pins, name: String) -> Result<NetdevLink, DatapathError> {
    pins.put(&name, link.link.as_raw_fd())?;
    link.pin = Some((pins.clone(), name));
    Ok(link)
}

/// The link that is pinned under `name`.
pub(crate) fn open(pins: &Pins, name: &str) -> Option<NetdevLink> {
    let mut link = NetdevLink { link: pins.get(name)?, pin: None };
    link.info()?;
    link.pin = Some((pins.clone(), name.to_owned()));
    Some(link)
}

/// Attaches `program` to the tcx ingress of `ifindex`, behind whatever is there.
pub(crate) fn attach_tcx(program: BorrowedFd<'_>, ifindex: IfIndex) -> Result<NetdevLink, DatapathError> {
    create(program, ifindex, TCX_INGRESS, "attach a tcx program")
}

/// Attaches `program` as the XDP program of `ifindex`, in native mode where the driver has one. `EBUSY`: there is one.
pub(crate) fn attach_xdp(program: BorrowedFd<'_>, ifindex: IfIndex) -> Result<NetdevLink, DatapathError> {
    create(program, ifindex, XDP, "attach an XDP program")
}

fn create(
    program: BorrowedFd<'_>,
    ifindex: IfIndex,
    kind: sys::bpf_attach_type,
    what: &'static str,
) -> Result<NetdevLink, DatapathError> {
    // SAFETY: the descriptor is open for the call; no options are passed.
    let link = unsafe { sys::bpf_link_create(program.as_raw_fd(), ifindex.0 as i32, kind, std::ptr::null()) };
    if link < 0 {
        return Err(DatapathError::netdev(what, ifindex, link));
    }
    // SAFETY: libbpf just gave us this descriptor; nobody else owns it.
    Ok(NetdevLink { link: unsafe { OwnedFd::from_raw_fd(link) }, pin: None })
}

/// Instructions of an XDP program whose maps and kfuncs are resolved already, and the types of its functions.
#[derive(Clone)]
pub(crate) struct Relocated {
    instructions: Vec<sys::bpf_insn>,
    /// Without them the verifier would take the program's global functions for static ones, and look at these in every
    /// state of their callers, which are too many without CAP_PERFMON.
    functions: Vec<sys::bpf_func_info>,
    /// Of the object's types, or negative.
    btf: i32,
}

impl Relocated {
    /// Copies them out of a program that was loaded; its object must stay open, for its maps and its types.
    pub(crate) fn new(object: &Object, program: &Program<'_>) -> Self {
        let raw = program.as_libbpf_object().as_ptr();
        // SAFETY: the program is borrowed from its object, which is loaded and open.
        let (functions, count) =
            unsafe { (sys::bpf_program__func_info(raw), sys::bpf_program__func_info_cnt(raw)) };
        let functions = if functions.is_null() {
            Vec::new()
        } else {
            // SAFETY: libbpf keeps so many records there while the object is open, and nobody writes them meanwhile.
            unsafe { std::slice::from_raw_parts(functions, count as usize) }.to_vec()
        };
        // SAFETY: as above.
        let btf = unsafe { sys::bpf_object__btf_fd(object.as_libbpf_object().as_ptr()) };
        Self { instructions: program.insns().to_vec(), functions, btf }
    }

    /// Loads the program again, bound to `ifindex` in the calling thread's namespace. Measured 50 µs where opening the
    /// object again takes 4 ms.
    pub(crate) fn load_bound(&self, name: &CStr, ifindex: IfIndex) -> Result<OwnedFd, DatapathError> {
        // SAFETY: all-zero bytes are a valid value of this C struct, and what libbpf asks for.
        let mut options: sys::bpf_prog_load_opts = unsafe { std::mem::zeroed() };
        options.sz = size_of::<sys::bpf_prog_load_opts>() as u64;
        options.expected_attach_type = XDP;
        options.prog_flags = BOUND_WITH_FRAGS;
        options.prog_ifindex = ifindex.0;
        if self.btf >= 0 {
            options.prog_btf_fd = self.btf as u32;
            options.func_info = self.functions.as_ptr().cast();
            options.func_info_cnt = self.functions.len() as u32;
            options.func_info_rec_size = size_of::<sys::bpf_func_info>() as u32;
        }
        let licence = c"Dual BSD/GPL";
        // SAFETY: name, licence, instructions, functions and options outlive the call, and the counts are the slices' own.
        let program = unsafe {
            sys::bpf_prog_load(
                sys::BPF_PROG_TYPE_XDP,
                name.as_ptr(),
                licence.as_ptr(),
                self.instructions.as_ptr(),
                self.instructions.len() as u64,
                &mut options,
            )
        };
        if program < 0 {
            return Err(DatapathError::netdev("load an XDP program bound to the netdev", ifindex, program));
        }
        // SAFETY: libbpf just gave us this descriptor; nobody else owns it.
        let program = unsafe { OwnedFd::from_raw_fd(program) };
        check_room(program.as_fd(), self.instructions.len())?;
        Ok(program)
    }
}

/// `sizeof(struct bpf_prog)` before its instructions, in Linux 6.6 to 6.18 at most.
const PROGRAM_HEAD: usize = 128;
const INSTRUCTION: usize = 8;
const PAGE: usize = 4096;

/// That a program bound to a netdev, of `instructions` as handed in, has not outgrown its pages in the verifier. The
/// kernel would not survive that the netdev goes first: see ROOM_TO_GROW in bpf/maps.h.
pub(crate) fn check_room(program: BorrowedFd<'_>, instructions: usize) -> Result<(), DatapathError> {
    let what = "ask for a program's size";
    let grown = match program_info(program) {
        Ok(info) => info.xlated_prog_len as usize,
        Err(source) => return Err(DatapathError::System { what, source }),
    };
    let pages = |bytes: usize, head: usize| (bytes + head).div_ceil(PAGE);
    // The head is not the same in all kernels: fewest pages before, most after.
    if pages(grown, PROGRAM_HEAD) > pages(instructions * INSTRUCTION, 0) {
        let source = std::io::Error::other(format!(
            "{} bytes became {grown}, which would crash the kernel when its netdev goes",
            instructions * INSTRUCTION
        ));
        return Err(DatapathError::System { what: "bind a program to a netdev", source });
    }
    Ok(())
}

fn program_info(program: BorrowedFd<'_>) -> std::io::Result<sys::bpf_prog_info> {
    // SAFETY: all-zero bytes are a valid value of this C struct; null lists with zero counts ask for none.
    let mut info: sys::bpf_prog_info = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<sys::bpf_prog_info>() as u32;
    // SAFETY: pointer and length describe `info`, which the kernel fills.
    let failed = unsafe { sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut bytes) };
    if failed < 0 { Err(std::io::Error::from_raw_os_error(-failed)) } else { Ok(info) }
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
    let info = program_info(fd.as_fd()).ok();
    let name = info?.name;
    let name: Vec<u8> = name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
    Some(String::from_utf8_lossy(&name).into_owned())
}
