//! Devices in user space for the kernel's own virtio drivers: the ioctls of VDUSE (include/uapi/linux/vduse.h, Linux 6.12).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

const NAME_BYTES: usize = 256;
/// Only read-only and write-only regions have other numbers.
const READ_WRITE: u8 = 3;
/// Id of a network device (virtio 1.3, 5).
const NETWORK: u32 = 1;
/// What rings are aligned to (`VRING_USED_ALIGN_SIZE`, or more).
const ALIGN: u32 = 4096;

/// Number of an ioctl, by what its argument is (`_IOW`, `_IOR`, `_IOWR`).
const fn number<T>(direction: u64, which: u64) -> libc::c_ulong {
    direction << 30 | (size_of::<T>() as u64) << 16 | 0x81 << 8 | which
}

const WRITES: u64 = 1;
const READS: u64 = 2;

const SET_API_VERSION: libc::c_ulong = number::<u64>(WRITES, 0x01);
const CREATE: libc::c_ulong = number::<Description>(WRITES, 0x02);
const DESTROY: libc::c_ulong = number::<[u8; NAME_BYTES]>(WRITES, 0x03);
const GET_REGION: libc::c_ulong = number::<Region>(READS | WRITES, 0x10);
const GET_FEATURES: libc::c_ulong = number::<u64>(READS, 0x11);
const SET_UP_QUEUE: libc::c_ulong = number::<QueueSize>(WRITES, 0x14);
const GET_QUEUE: libc::c_ulong = number::<QueueInfo>(READS | WRITES, 0x15);
const SET_KICK: libc::c_ulong = number::<QueueKick>(WRITES, 0x16);
const INTERRUPT: libc::c_ulong = number::<u32>(WRITES, 0x17);

/// `vduse_dev_config`, without the configuration space behind it.
#[repr(C)]
struct Description {
    name: [u8; NAME_BYTES],
    vendor: u32,
    device: u32,
    features: u64,
    queues: u32,
    align: u32,
    reserved: [u32; 13],
    config_bytes: u32,
}

/// `vduse_iotlb_entry`
#[repr(C)]
struct Region {
    offset: u64,
    start: u64,
    last: u64,
    access: u8,
}

/// `vduse_vq_config`
#[repr(C)]
struct QueueSize {
    index: u32,
    size: u16,
    reserved: [u16; 13],
}

/// `vduse_vq_info`
#[repr(C)]
#[derive(Default)]
struct QueueInfo {
    index: u32,
    size: u32,
    addresses: [u64; 3],
    state: [u16; 4],
    is_ready: u8,
}

/// `vduse_vq_eventfd`
#[repr(C)]
struct QueueKick {
    index: u32,
    file: RawFd,
}

/// Where a queue lies in the device's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueuePlace {
    pub(crate) size: u32,
    /// Of descriptors, the driver's part and the device's part.
    pub(crate) addresses: [u64; 3],
    pub(crate) is_ready: bool,
}

/// A stretch of the device's addresses and where it begins in its file.
#[derive(Debug)]
pub(crate) struct Lent {
    pub(crate) file: OwnedFd,
    pub(crate) offset: u64,
    pub(crate) start: u64,
    pub(crate) last: u64,
}

/// Makes a network device that has no driver yet. `control` is /dev/vduse/control.
pub(crate) fn create(
    control: &File,
    name: &str,
    features: u64,
    queues: u32,
    config: &[u8],
) -> io::Result<()> {
    let mut version = 0u64;
    // SAFETY: the ioctl reads one number.
    unsafe { ioctl(control, SET_API_VERSION, &mut version) }?;
    let description = Description {
        name: name_bytes(name)?,
        vendor: 0,
        device: NETWORK,
        features,
        queues,
        align: ALIGN,
        reserved: [0; 13],
        config_bytes: config.len() as u32,
    };
    let head: *const Description = &raw const description;
    // SAFETY: the bytes are those of `description`, which has no padding: 256 + 4 + 4 + 8 + 4 + 4 + 52 + 4 = 336.
    let head = unsafe { std::slice::from_raw_parts(head.cast::<u8>(), size_of::<Description>()) };
    let mut bytes = [head, config].concat();
    // SAFETY: the ioctl reads a description and as many bytes behind it as the description says.
    unsafe { ioctl(control, CREATE, bytes.as_mut_ptr()) }.map(drop)
}

/// Removes a device that has no driver any more and that nobody has open.
pub(crate) fn destroy(control: &File, name: &str) -> io::Result<()> {
    let mut name = name_bytes(name)?;
    // SAFETY: the ioctl reads 256 bytes.
    unsafe { ioctl(control, DESTROY, &mut name) }.map(drop)
}

/// Says how many entries a queue may have.
pub(crate) fn set_up_queue(device: &File, index: u32, size: u16) -> io::Result<()> {
    let mut argument = QueueSize { index, size, reserved: [0; 13] };
    // SAFETY: the ioctl reads a `vduse_vq_config`.
    unsafe { ioctl(device, SET_UP_QUEUE, &mut argument) }.map(drop)
}

/// Returns where the driver has put a queue.
pub(crate) fn queue(device: &File, index: u32) -> io::Result<QueuePlace> {
    let mut info = QueueInfo { index, ..QueueInfo::default() };
    // SAFETY: the ioctl reads and writes a `vduse_vq_info`.
    unsafe { ioctl(device, GET_QUEUE, &mut info) }?;
    Ok(QueuePlace { size: info.size, addresses: info.addresses, is_ready: info.is_ready != 0 })
}

/// Has the driver's kicks of a queue written to an eventfd.
pub(crate) fn set_kick(device: &File, index: u32, kick: &OwnedFd) -> io::Result<()> {
    let mut argument = QueueKick { index, file: kick.as_raw_fd() };
    // SAFETY: the ioctl reads a `vduse_vq_eventfd`.
    unsafe { ioctl(device, SET_KICK, &mut argument) }.map(drop)
}

/// Returns the features that the driver took.
pub(crate) fn features(device: &File) -> io::Result<u64> {
    let mut features = 0u64;
    // SAFETY: the ioctl writes one number.
    unsafe { ioctl(device, GET_FEATURES, &mut features) }?;
    Ok(features)
}

/// Interrupts the driver for a queue.
pub(crate) fn interrupt(device: &File, index: u32) -> io::Result<()> {
    let mut index = index;
    // SAFETY: the ioctl reads one number.
    unsafe { ioctl(device, INTERRUPT, &mut index) }.map(drop)
}

/// Returns the first region that ends at `from` or behind it. `None`: there is none.
pub(crate) fn region(device: &File, from: u64) -> io::Result<Option<Lent>> {
    let mut region = Region { offset: 0, start: from, last: u64::MAX, access: READ_WRITE };
    // SAFETY: the ioctl reads and writes a `vduse_iotlb_entry`, and returns a descriptor.
    let file = match unsafe { ioctl(device, GET_REGION, &mut region) } {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(None),
        file => file?,
    };
    // SAFETY: the kernel has just made this descriptor for us.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    Ok(Some(Lent { file, offset: region.offset, start: region.start, last: region.last }))
}

fn name_bytes(name: &str) -> io::Result<[u8; NAME_BYTES]> {
    let mut bytes = [0; NAME_BYTES];
    match bytes[..NAME_BYTES - 1].get_mut(..name.len()) {
        Some(start) => start.copy_from_slice(name.as_bytes()),
        None => return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name is longer than 255 bytes")),
    }
    Ok(bytes)
}

/// # Safety
/// `argument` is what the ioctl with this number reads and writes.
unsafe fn ioctl<T>(file: &File, number: libc::c_ulong, argument: *mut T) -> io::Result<libc::c_int> {
    // SAFETY: the descriptor is open, and the caller vouches for the argument, which outlives the call.
    match unsafe { libc::ioctl(file.as_raw_fd(), number, argument) } {
        answer if answer < 0 => Err(io::Error::last_os_error()),
        answer => Ok(answer),
    }
}
