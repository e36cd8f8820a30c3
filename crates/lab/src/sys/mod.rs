//! System calls that no crate offers safely: tap devices and packet sockets. All of this crate's unsafe code.

#[expect(unsafe_code, reason = "ioctl and recvmsg have no safe wrapper for these uses")]
pub(crate) mod packet_socket;
#[expect(unsafe_code, reason = "ioctl has no safe wrapper for these uses")]
pub(crate) mod tap;
