//! System calls that no crate offers safely: tap devices, packet sockets, tcx links and VDUSE. All of this crate's unsafe code.

#[expect(unsafe_code, reason = "nix knows neither packet sockets' addresses nor their control messages")]
pub mod batch;
#[expect(unsafe_code, reason = "ioctl and recvmsg have no safe wrapper for these uses")]
pub mod packet_socket;
#[expect(unsafe_code, reason = "ioctl has no safe wrapper for these uses")]
pub(crate) mod tap;
#[expect(unsafe_code, reason = "libbpf-rs can't attach tcx programs")]
pub(crate) mod tcx;
#[expect(unsafe_code, reason = "ioctl has no safe wrapper for these uses")]
pub(crate) mod vduse;
