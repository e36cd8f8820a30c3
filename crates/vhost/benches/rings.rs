//! Time that the device's side takes for a packet: our rings, and rust-vmm's `virtio-queue`, in turn.
//!
//! ```sh
//! cargo bench -p forebay-vhost --bench rings
//! ```
//! Both serve the same memory, which our driver fills. The driver's time does not count. Axes: kind of ring, direction,
//! bytes of a packet. Each line is the median of so many rounds, and the ratio to the split ring of `virtio-queue`.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use forebay_vhost::driver::{Driver, DriverOptions, USER_OFFSET};
use forebay_vhost::{Features, GuestMemory, NetHeader, Put, Virtqueue};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use virtio_queue::{Queue, QueueT};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};

/// Entries of the ring: buffers that stay in a near cache, and buffers of 16 MiB, which do not.
const SIZES: [u16; 2] = [256, 8192];
/// Packets of a batch.
const BATCH: usize = 128;
const ROUNDS: usize = 2000;
const HEADER: usize = 12;

/// A driver whose memory both can map.
struct Bed {
    driver: Driver,
    file: OwnedFd,
    options: DriverOptions,
}

impl Bed {
    fn new(features: Features, size: u16) -> Self {
        let options = DriverOptions::new(features, size, 2048);
        let place = Driver::region(&options);
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&file, place.len).expect("memory");
        let mut memory = GuestMemory::default();
        memory.add(place, &file).expect("a region");
        let driver = Driver::in_memory(options, Arc::new(memory)).expect("a possible ring");
        Self { driver, file, options }
    }

    fn fill(&mut self, packet: &[u8], to_guest: bool) {
        for _ in 0..BATCH {
            let added = match to_guest {
                true => self.driver.offer(&[2048]),
                false => self.driver.send(NetHeader::default(), &[packet]),
            };
            added.expect("the ring is empty");
        }
        self.driver.publish();
    }

    fn collect(&mut self) {
        assert_eq!((0..BATCH).filter(|_| self.driver.used().is_some()).count(), BATCH);
    }

    /// Nanoseconds for a packet, the median of all rounds.
    fn measure(&mut self, len: usize, to_guest: bool, mut serve: impl FnMut(&mut [u8])) -> f64 {
        let mut packet = vec![7; len];
        let mut times: Vec<u128> = (0..ROUNDS)
            .map(|_| {
                self.fill(&packet, to_guest);
                let start = Instant::now();
                serve(&mut packet);
                let time = start.elapsed().as_nanos();
                self.collect();
                time
            })
            .collect();
        times.sort_unstable();
        times[ROUNDS / 2] as f64 / BATCH as f64
    }

    fn ours(&mut self, len: usize, to_guest: bool) -> f64 {
        let mut queue = self.driver.device(1).expect("the driver's ring");
        self.measure(len, to_guest, |packet| {
            if to_guest {
                put(&mut queue, packet)
            } else {
                take(&mut queue, packet)
            }
            let _ = queue.publish();
        })
    }

    fn theirs(&mut self, len: usize, to_guest: bool) -> f64 {
        let place = Driver::region(&self.options);
        let file = std::fs::File::from(self.file.try_clone().expect("a descriptor"));
        let range = (GuestAddress(place.guest), place.len as usize, Some(FileOffset::new(file, 0)));
        let memory = GuestMemoryMmap::<()>::from_ranges_with_files([range]).expect("a mapping");
        let mut queue = Queue::new(self.options.size).expect("a possible size");
        let ring = self.driver.place(1);
        let address = |user: u64| GuestAddress(user - USER_OFFSET);
        queue.try_set_desc_table_address(address(ring.descriptors)).expect("aligned");
        queue.try_set_avail_ring_address(address(ring.driver)).expect("aligned");
        queue.try_set_used_ring_address(address(ring.device)).expect("aligned");
        queue.set_event_idx(self.options.features.has(Features::EVENT_IDX));
        queue.set_ready(true);
        self.measure(len, to_guest, |packet| {
            if to_guest {
                put_theirs(&mut queue, &memory, packet)
            } else {
                take_theirs(&mut queue, &memory, packet)
            }
            queue.needs_notification(&memory).expect("the ring is in memory");
        })
    }
}

fn take(queue: &mut Virtqueue, packet: &mut [u8]) {
    while let Some(offer) = queue.offered().expect("the driver keeps the rules") {
        assert_eq!(queue.take([&mut *packet]), offer.len);
    }
}

fn put(queue: &mut Virtqueue, packet: &[u8]) {
    for _ in 0..BATCH {
        let result = queue.put(NetHeader::default(), [packet], packet.len() as u32);
        assert_eq!(result, Ok(Put::Done));
    }
}

fn take_theirs(queue: &mut Queue, memory: &GuestMemoryMmap<()>, packet: &mut [u8]) {
    while let Some(chain) = queue.pop_descriptor_chain(memory) {
        let head = chain.head_index();
        let mut header = [0; HEADER];
        for descriptor in chain.readable() {
            memory.read_slice(&mut header, descriptor.addr()).expect("the header is in memory");
            let payload = GuestAddress(descriptor.addr().0 + HEADER as u64);
            memory.read_slice(packet, payload).expect("the packet is in memory");
        }
        assert_eq!(header[0], 0);
        queue.add_used(memory, head, 0).expect("the ring is in memory");
    }
}

fn put_theirs(queue: &mut Queue, memory: &GuestMemoryMmap<()>, packet: &[u8]) {
    for _ in 0..BATCH {
        let chain = queue.pop_descriptor_chain(memory).expect("a buffer is there");
        let head = chain.head_index();
        for descriptor in chain.writable() {
            let mut header = [0; HEADER];
            header[10] = 1;
            memory.write_slice(&header, descriptor.addr()).expect("the header is in memory");
            let payload = GuestAddress(descriptor.addr().0 + HEADER as u64);
            memory.write_slice(packet, payload).expect("the packet is in memory");
        }
        queue.add_used(memory, head, (HEADER + packet.len()) as u32).expect("the ring is in memory");
    }
}

fn main() {
    let split = Features::VERSION_1.with(Features::EVENT_IDX).with(Features::MRG_RXBUF);
    let packed = split.with(Features::RING_PACKED);
    println!(
        "{:>8} {:>6} {:>10} | {:>14} {:>20} {:>20}",
        "entries", "bytes", "direction", "virtio-queue", "split", "packed"
    );
    for size in SIZES {
        for len in [64, 1514] {
            for to_guest in [false, true] {
                let direction = if to_guest { "to guest" } else { "from guest" };
                let theirs = Bed::new(split, size).theirs(len, to_guest);
                let [split, packed] =
                    [split, packed].map(|features| Bed::new(features, size).ours(len, to_guest));
                println!(
                    "{size:>8} {len:>6} {direction:>10} | {theirs:>11.1} ns {split:>8.1} ns {:>6.2} x {packed:>8.1} ns {:>6.2} x",
                    split / theirs,
                    packed / theirs
                );
            }
        }
    }
}
