//! Sending a batch by one run of the BPF program `departure`. Unsafe code.
//!
//! A packet socket costs the kernel a good deal a packet, and the receiver's softirq runs after each. The program sends
//! up to 128 packets of shared memory in one section with softirqs off; from [`WORTH`] packets on that is cheaper, and
//! for a full batch it costs half (docs/transmit.md).
#![allow(unsafe_code, reason = "writes departures into memory that a program reads")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use super::message::{ADDRESSES, Arrays, BATCH};
use crate::{TxError, XskError};

/// Packets from which on a run is cheaper than the packet socket.
pub(super) const WORTH: u32 = 4;

/// An Ethernet header; the program sends nothing shorter.
const LEN_MIN: usize = ADDRESSES + 2;
const LEN_MAX: usize = 2032;

/// VLAN tags, IEEE 802.1Q clause 9.6; the MTU does not count the outer one.
const TAGS: [[u8; 2]; 2] = [[0x81, 0x00], SERVICE_TAG];
/// The packet socket counts this one against the MTU.
pub(super) const SERVICE_TAG: [u8; 2] = [0x88, 0xa8];
const TAG_BYTES: u8 = 4;

/// `BPF_PROG_TEST_RUN`, include/uapi/linux/bpf.h.
const PROG_TEST_RUN: libc::c_int = 10;

/// `struct departure`, bpf/forebay.h.
#[repr(C)]
struct Departure {
    ifindex: u32,
    length: u16,
    again: u8,
    tag_bytes: u8,
    result: i32,
    mark: u32,
    packet: [u8; LEN_MAX],
}

/// The part of `union bpf_attr` for a test run, include/uapi/linux/bpf.h.
#[derive(Default)]
#[repr(C)]
struct TestRun {
    program: u32,
    result: u32,
    packet_bytes: u32,
    packet_out_bytes: u32,
    packet: u64,
    packet_out: u64,
    repeat: u32,
    duration: u32,
    context_bytes: u32,
    context_out_bytes: u32,
    context: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch: u32,
    reserved: u32,
}

/// `struct __sk_buff` up to the five words of `cb`, include/uapi/linux/bpf.h.
#[repr(C)]
struct Context {
    other: [u32; 12],
    cb: [u32; 5],
}

/// The packet that the program fills; the kernel reads the protocol of what departs from its header.
type Carrier = [u8; 64];

/// One worker's share of the memory that the program sends from.
pub struct Departures {
    program: OwnedFd,
    slots: NonNull<Departure>,
    first: u32,
    carrier: Carrier,
}

// SAFETY: the mapping is not tied to a thread, and only this value writes to it.
unsafe impl Send for Departures {}

impl Departures {
    /// Maps the share of worker `worker` in `memory`, the program's map, and lets the program run once, idle.
    ///
    /// # Errors
    /// What the kernel said: `EPERM` without CAP_BPF or under a filter of system calls.
    pub fn open(program: OwnedFd, memory: BorrowedFd<'_>, worker: u32) -> Result<Self, XskError> {
        let first = worker * BATCH as u32;
        // SAFETY: a shared mapping of the map's values at an address of the kernel's choice touches no existing memory.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BATCH * size_of::<Departure>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                memory.as_raw_fd(),
                i64::from(first) * size_of::<Departure>() as i64,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(XskError::last("map the departures"));
        }
        let slots = NonNull::new(address.cast()).expect("mmap never returns the null page unasked");
        let mut departures = Self { program, slots, first, carrier: [0; 64] };
        match departures.run(0, [0, 0]) {
            Ok(()) => Ok(departures),
            Err(source) => Err(XskError::System { what: "run the departure program".into(), source }),
        }
    }

    /// Whether the program can send a packet of so many bytes.
    pub(super) fn takes(len_bytes: u32) -> bool {
        (LEN_MIN..=LEN_MAX).contains(&(len_bytes as usize))
    }

    /// Sends the messages of `arrays` that `group` has a bit for, all of one `ethertype` and of a length that the
    /// program takes. When the run itself fails, nothing was sent.
    pub(super) fn send(&mut self, arrays: &Arrays, group: u128, ethertype: [u8; 2]) -> io::Result<()> {
        for index in bits(group) {
            self.write(arrays, index);
        }
        self.run(group, ethertype)
    }

    /// What became of a message that was sent.
    pub(super) fn result(&self, index: usize) -> Result<(), TxError> {
        // SAFETY: the slot is one of the mapped ones; the kernel has written to it before the run returned.
        match unsafe { (&raw const (*self.slot(index)).result).read_volatile() } {
            0 => Ok(()),
            // NET_XMIT_DROP; or NET_XMIT_CN: a queue dropped one of the flow, and that of a netdev that is down every one.
            1.. => Err(TxError::Full),
            errno => Err(TxError::from_errno(Some(-errno))),
        }
    }

    fn write(&mut self, arrays: &Arrays, index: usize) {
        let packet = arrays.packets[index];
        let tag_bytes = if TAGS.contains(&packet.ethertype) { TAG_BYTES } else { 0 };
        let slot = self.slot(index);
        // SAFETY: the slot is one of the mapped ones, which only we write to until the program runs.
        unsafe {
            (&raw mut (*slot).ifindex).write(arrays.ifindex(index));
            (&raw mut (*slot).again).write(packet.again.into());
            (&raw mut (*slot).mark).write(arrays.mark(index));
            (&raw mut (*slot).length).write(packet.len_bytes as u16);
            (&raw mut (*slot).tag_bytes).write(tag_bytes);
            // What the program does not come to was not sent.
            (&raw mut (*slot).result).write(-libc::EINVAL);
        }
        if packet.again {
            return;
        }
        // SAFETY: as above. The pieces point into frames that the batch borrows, and together they are as long as the
        // packet, of which the caller knows that a slot takes it.
        unsafe {
            let mut to = (&raw mut (*slot).packet).cast::<u8>();
            for piece in arrays.pieces(index) {
                to.copy_from_nonoverlapping(piece.iov_base.cast(), piece.iov_len);
                to = to.add(piece.iov_len);
            }
        }
    }

    fn run(&mut self, group: u128, ethertype: [u8; 2]) -> io::Result<()> {
        self.carrier[ADDRESSES..LEN_MIN].copy_from_slice(&ethertype);
        let context = Context {
            other: [0; 12],
            cb: [group as u32, (group >> 32) as u32, (group >> 64) as u32, (group >> 96) as u32, self.first],
        };
        let mut run = TestRun {
            program: self.program.as_raw_fd() as u32,
            packet: self.carrier.as_ptr() as u64,
            packet_bytes: size_of::<Carrier>() as u32,
            context: std::ptr::from_ref(&context) as u64,
            context_bytes: size_of::<Context>() as u32,
            repeat: 1,
            ..TestRun::default()
        };
        // SAFETY: the attributes and what they point at live during the call; the kernel writes to `run` only.
        let failed =
            unsafe { libc::syscall(libc::SYS_bpf, PROG_TEST_RUN, &raw mut run, size_of::<TestRun>()) };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn slot(&self, index: usize) -> *mut Departure {
        assert!(index < BATCH, "a batch has {BATCH} departures");
        // SAFETY: the mapping has BATCH slots.
        unsafe { self.slots.add(index).as_ptr() }
    }
}

impl Drop for Departures {
    fn drop(&mut self) {
        // SAFETY: mapped by `open` with this length, unmapped once.
        unsafe { libc::munmap(self.slots.as_ptr().cast(), BATCH * size_of::<Departure>()) };
    }
}

/// The numbers of the bits that are set.
pub(super) fn bits(mut set: u128) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let next = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(next)
    })
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn a_departure_is_laid_out_as_in_c() {
        // crates/kernel/src/layout.rs holds the same numbers against the BTF of the compiled program.
        let offsets = [
            offset_of!(Departure, ifindex),
            offset_of!(Departure, length),
            offset_of!(Departure, again),
            offset_of!(Departure, tag_bytes),
            offset_of!(Departure, result),
            offset_of!(Departure, mark),
            offset_of!(Departure, packet),
        ];
        assert_eq!((size_of::<Departure>(), offsets), (2048, [0, 4, 6, 7, 8, 12, 16]));
    }

    #[test]
    fn bits_come_in_order_and_once() {
        assert_eq!(bits(0).count(), 0);
        assert_eq!(bits(1 << 127 | 1 << 64 | 0b1010).collect::<Vec<_>>(), [1, 3, 64, 127]);
        assert_eq!(bits(u128::MAX).count(), 128);
    }
}
