//! Programs of a few instructions, loaded to see whether the kernel takes them. Unsafe code.
#![allow(unsafe_code, reason = "system calls without a safe wrapper")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use forebay_control::IfIndex;
use libbpf_rs::btf::{Btf, types::Func};
use libbpf_sys as sys;

/// The flags, attach types and verdicts of include/uapi/linux/bpf.h, 6.18.
const BPF_F_XDP_DEV_BOUND_ONLY: u32 = 1 << 6;
const BPF_F_MMAPABLE: u32 = 1 << 10;
const BPF_XDP: sys::bpf_attach_type = 37;
const BPF_TCX_INGRESS: sys::bpf_attach_type = 46;
const BPF_TCX_EGRESS: sys::bpf_attach_type = 47;
const BPF_PSEUDO_KFUNC_CALL: u8 = 2;
const TCX_NEXT: i32 = -1;
const TC_OK: i32 = 0;
const XDP_PASS: i32 = 2;

/// Most tcx programs that are listed of one netdev; the kernel allows 64 (kernel/bpf/mprog.c, 6.18).
const TCX_PROGRAMS_MAX: usize = 64;

/// Attaches a program that lets everything pass to the tcx ingress of a netdev, and detaches it.
pub(super) fn attach_tcx(ifindex: IfIndex) -> io::Result<()> {
    let mut options = sys::bpf_prog_load_opts { expected_attach_type: BPF_TCX_INGRESS, ..load_options() };
    let program = load(sys::BPF_PROG_TYPE_SCHED_CLS, &verdict(TCX_NEXT), &mut options)?;
    attach(&program, ifindex, BPF_TCX_INGRESS).map(drop)
}

/// Attaches a program until the returned descriptor is closed.
fn attach(program: &OwnedFd, ifindex: IfIndex, place: sys::bpf_attach_type) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is open for the call; no options are passed.
    own(unsafe { sys::bpf_link_create(program.as_raw_fd(), ifindex.0 as i32, place, std::ptr::null()) })
}

/// Loads an XDP program that is bound to a netdev.
pub(super) fn load_bound(ifindex: IfIndex) -> io::Result<()> {
    load_bound_program(&verdict(XDP_PASS), ifindex)
}

/// Loads an XDP program, bound to a netdev, that asks this kernel function for a fact about the packet.
/// ENOENT: the kernel has no such function.
pub(super) fn load_metadata_call(function: &str, ifindex: IfIndex) -> io::Result<()> {
    let types = Btf::from_vmlinux().map_err(|error| io::Error::other(error.to_string()))?;
    let function =
        types.type_by_name::<Func<'_>>(function).ok_or(io::Error::from_raw_os_error(libc::ENOENT))?;
    let id = u32::from(function.type_id());
    load_bound_program(&metadata_call(id as i32), ifindex)
}

/// Makes a map of one element that user space could map into its memory.
pub(super) fn make_mappable_array() -> io::Result<()> {
    let options = sys::bpf_map_create_opts {
        sz: size_of::<sys::bpf_map_create_opts>() as u64,
        map_flags: BPF_F_MMAPABLE,
        ..Default::default()
    };
    // SAFETY: the name is a C string and the options outlive the call.
    let map = unsafe {
        sys::bpf_map_create(sys::BPF_MAP_TYPE_ARRAY, c"fb_probe".as_ptr(), 4, 8, 1, &raw const options)
    };
    own(map).map(drop)
}

/// Has the kernel run a tc program once, on a packet made for it.
pub(super) fn run_on_request() -> io::Result<()> {
    let program = load(sys::BPF_PROG_TYPE_SCHED_CLS, &verdict(TC_OK), &mut load_options())?;
    let packet = [0_u8; 64];
    let mut run = sys::bpf_test_run_opts {
        sz: size_of::<sys::bpf_test_run_opts>() as u64,
        data_in: packet.as_ptr().cast(),
        data_size_in: packet.len() as u32,
        repeat: 1,
        ..Default::default()
    };
    // SAFETY: the packet and the options live until the call returns.
    match unsafe { sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut run) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(-errno)),
    }
}

/// Ids of the programs on a netdev's tcx ingress, in the order in which they run.
pub(super) fn tcx_programs(ifindex: IfIndex) -> io::Result<Vec<u32>> {
    programs_at(ifindex, BPF_TCX_INGRESS)
}

/// Whether there are programs on a netdev's tcx egress.
pub(crate) fn has_tcx_egress(ifindex: IfIndex) -> io::Result<bool> {
    programs_at(ifindex, BPF_TCX_EGRESS).map(|ids| !ids.is_empty())
}

fn programs_at(ifindex: IfIndex, place: sys::bpf_attach_type) -> io::Result<Vec<u32>> {
    let mut ids = [0_u32; TCX_PROGRAMS_MAX];
    let mut query = sys::bpf_prog_query_opts {
        sz: size_of::<sys::bpf_prog_query_opts>() as u64,
        prog_ids: ids.as_mut_ptr(),
        __bindgen_anon_1: sys::bpf_prog_query_opts__bindgen_ty_1 { count: TCX_PROGRAMS_MAX as u32 },
        ..Default::default()
    };
    // SAFETY: `prog_ids` has room for as many ids as `count` says, and lives until the call returns.
    let failed = unsafe { sys::bpf_prog_query_opts(ifindex.0 as i32, place, &raw mut query) };
    match -failed {
        0 => {}
        // Nothing was ever attached there.
        libc::ENOENT => return Ok(Vec::new()),
        errno => return Err(io::Error::from_raw_os_error(errno)),
    }
    // SAFETY: every bit pattern is a count.
    let count = unsafe { query.__bindgen_anon_1.count } as usize;
    Ok(ids[..count.min(TCX_PROGRAMS_MAX)].to_vec())
}

fn verdict(value: i32) -> [sys::bpf_insn; 2] {
    [instruction(0xb7, 0, 0, 0, value), instruction(0x95, 0, 0, 0, 0)]
}

/// Two words on the stack for the results, the call, and a verdict. The context stays where it came, in r1.
fn metadata_call(function: i32) -> Vec<sys::bpf_insn> {
    let mut body = vec![
        instruction(0x7a, 10, 0, -8, 0),
        instruction(0x7a, 10, 0, -16, 0),
        instruction(0xbf, 2, 10, 0, 0),
        instruction(0x07, 2, 0, 0, -8),
        instruction(0xbf, 3, 10, 0, 0),
        instruction(0x07, 3, 0, 0, -16),
        instruction(0x85, 0, BPF_PSEUDO_KFUNC_CALL, 0, function),
    ];
    body.extend(verdict(XDP_PASS));
    body
}

fn instruction(code: u8, to: u8, from: u8, off: i16, imm: i32) -> sys::bpf_insn {
    let mut instruction = sys::bpf_insn { code, off, imm, ..Default::default() };
    instruction.set_dst_reg(to);
    instruction.set_src_reg(from);
    instruction
}

fn load_bound_program(body: &[sys::bpf_insn], ifindex: IfIndex) -> io::Result<()> {
    let mut options = sys::bpf_prog_load_opts {
        expected_attach_type: BPF_XDP,
        prog_flags: BPF_F_XDP_DEV_BOUND_ONLY,
        prog_ifindex: ifindex.0,
        ..load_options()
    };
    load(sys::BPF_PROG_TYPE_XDP, body, &mut options).map(drop)
}

fn load_options() -> sys::bpf_prog_load_opts {
    sys::bpf_prog_load_opts { sz: size_of::<sys::bpf_prog_load_opts>() as u64, ..Default::default() }
}

fn load(
    kind: sys::bpf_prog_type,
    body: &[sys::bpf_insn],
    options: &mut sys::bpf_prog_load_opts,
) -> io::Result<OwnedFd> {
    // Kernel functions may only be called by programs under the GPL.
    let (name, licence) = (c"fb_probe", c"Dual BSD/GPL");
    // SAFETY: name, licence, instructions and options outlive the call, and the count is the slice's own.
    own(unsafe {
        sys::bpf_prog_load(kind, name.as_ptr(), licence.as_ptr(), body.as_ptr(), body.len() as u64, options)
    })
}

/// Takes what a libbpf call returned: a new descriptor, or an errno, negative.
fn own(result: i32) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    // SAFETY: libbpf just gave us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Programs as others might have attached them: one XDP, one tcx. Closing the descriptors detaches them.
    pub(in crate::probe) fn attach_foreign(ifindex: IfIndex) -> [OwnedFd; 2] {
        let places = [
            (sys::BPF_PROG_TYPE_XDP, BPF_XDP, XDP_PASS),
            (sys::BPF_PROG_TYPE_SCHED_CLS, BPF_TCX_INGRESS, TCX_NEXT),
        ];
        places.map(|(kind, place, value)| {
            let mut options = sys::bpf_prog_load_opts { expected_attach_type: place, ..load_options() };
            attach(&load(kind, &verdict(value), &mut options).unwrap(), ifindex, place).unwrap()
        })
    }
}
