//! Candidate (e): a BPF program that user space runs, and that sends packets which lie in a map both have mapped.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::Sender;
use crate::measure::Tally;
use crate::world::World;

/// As in transmit.bpf.c.
const SLOTS: usize = 64;
const SLOT_BYTES: usize = 2048;
const HEADER_BYTES: usize = 16;
/// Which word of `struct __sk_buff` is `cb[0]`.
const CONTROL_WORD: usize = 12;

pub(crate) struct ProgramSender {
    program: OwnedFd,
    slots: *mut u8,
    ports: Vec<u32>,
    frame: Vec<u8>,
}

impl ProgramSender {
    pub(crate) fn new(world: &World, ports: &[u32], frame_bytes: u16) -> ProgramSender {
        let map = world.map("slots");
        // SAFETY: a new mapping of the whole map, which nothing else in the process refers to.
        let slots = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                SLOTS * SLOT_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        assert_ne!(slots, libc::MAP_FAILED, "the map can be mapped");
        let (program, frame) = (world.program("send_slots"), crate::frame(frame_bytes));
        ProgramSender { program, slots: slots.cast(), ports: ports.to_vec(), frame }
    }

    fn write(&mut self, slot: usize, ifindex: u32) {
        // SAFETY: the slot is one of the mapped ones and the frame is shorter than a slot's packet.
        unsafe {
            let at = self.slots.add(slot * SLOT_BYTES);
            at.cast::<u32>().write(ifindex);
            at.add(4).cast::<u32>().write(self.frame.len() as u32);
            at.add(HEADER_BYTES).copy_from_nonoverlapping(self.frame.as_ptr(), self.frame.len());
        }
    }

    fn run(&self, count: usize) {
        // The first words of `struct __sk_buff`, include/uapi/linux/bpf.h.
        let mut context = [0u32; 17];
        context[CONTROL_WORD] = count as u32;
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as u64,
            data_in: self.frame.as_ptr().cast(),
            data_size_in: self.frame.len() as u32,
            ctx_in: std::ptr::from_ref(&context).cast(),
            ctx_size_in: size_of_val(&context) as u32,
            repeat: 1,
            ..Default::default()
        };
        // SAFETY: the options and what they point at live during the call.
        let failed = unsafe { libbpf_sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &mut options) };
        assert_eq!(failed, 0, "the kernel runs the program");
    }
}

impl Sender for ProgramSender {
    fn send(&mut self, packets: u64, batch: u32) -> Tally {
        let mut tally = Tally { offered: packets, ..Tally::default() };
        let mut sent = 0;
        while sent < packets {
            let count = (packets - sent).min(u64::from(batch)) as usize;
            for slot in 0..count {
                self.write(slot, self.ports[(sent as usize + slot) % self.ports.len()]);
            }
            self.run(count);
            tally.syscalls += 1;
            sent += count as u64;
        }
        tally
    }
}

impl Drop for ProgramSender {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no reference into it is left.
        unsafe { libc::munmap(self.slots.cast(), SLOTS * SLOT_BYTES) };
    }
}
