//! rust-vmm's front end against this back end: a peer whose messages and eventfds are not ours.

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use forebay_vhost::driver::{Driver, DriverOptions};
use forebay_vhost::{
    Backend, DeviceOptions, Event, Features, GuestMemory, NetConfig, NetHeader, Owner, Progress, RegionPlace,
    Virtqueue,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

/// Sends what it takes out of transmit queues, and forwards queues on demand.
struct Echo {
    queue: Option<Virtqueue>,
    packets: Sender<Vec<u8>>,
}

impl Owner for Echo {
    fn queue_started(&mut self, queue: Virtqueue) {
        self.queue = Some(queue);
    }

    fn queue_stopped(&mut self, _index: usize) -> Option<Virtqueue> {
        self.queue.take()
    }

    fn event(&mut self, _event: Event) {}
}

impl Echo {
    /// Takes all packets. Returns without them when the guest did not kick.
    fn serve(&mut self) {
        let Some(queue) = &mut self.queue else { return };
        queue.hear_kicks().expect("an eventfd");
        while let Some(offer) = queue.offered().expect("the driver keeps the rules") {
            let mut packet = vec![0; offer.len as usize];
            queue.take([&mut packet[..]]);
            self.packets.send(packet).expect("the test waits for it");
        }
        if queue.publish() {
            queue.call().expect("an eventfd");
        }
        let _ = queue.allow_kicks();
    }
}

/// Serves a front end until it goes.
fn serve(stream: UnixStream, packets: Sender<Vec<u8>>) {
    let config =
        NetConfig { mac: [2, 0, 0, 0, 0, 1], is_up: true, is_to_announce: false, pairs: 4, mtu: 1400 };
    let mut backend = Backend::new(stream, DeviceOptions { features: Features::ALL, config });
    let mut echo = Echo { queue: None, packets };
    loop {
        let kick = echo.queue.as_ref().and_then(Virtqueue::kick);
        let mut descriptors: Vec<PollFd<'_>> =
            backend.descriptors().chain(kick).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        poll(&mut descriptors, Some(&Timespec { tv_sec: 10, tv_nsec: 0 })).expect("poll");
        echo.serve();
        if backend.handle(&mut echo).expect("a proper front end") == Progress::Closed {
            return;
        }
    }
}

struct Guest {
    frontend: Frontend,
    file: OwnedFd,
    place: RegionPlace,
    driver: Driver,
    kick: EventFd,
    call: EventFd,
}

impl Guest {
    fn new(stream: UnixStream, features: Features) -> Self {
        let options = DriverOptions::new(features, 64, 4096);
        let place = Driver::region(&options);
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&file, place.len).expect("memory");
        let mut memory = GuestMemory::default();
        memory.add(place, &file).expect("the guest's own mapping");
        let driver = Driver::in_memory(options, Arc::new(memory)).expect("the region is long enough");
        let bell = || EventFd::new(0).expect("an eventfd");
        let frontend = Frontend::from_stream(stream, 4);
        Self { frontend, file, place, driver, kick: bell(), call: bell() }
    }

    fn region(&self) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: self.place.guest,
            memory_size: self.place.len,
            userspace_addr: self.place.user,
            mmap_offset: self.place.offset,
            mmap_handle: self.file.as_raw_fd(),
        }
    }

    fn negotiate(&mut self, features: Features) {
        self.frontend.set_owner().expect("set_owner");
        let offered = self.frontend.get_features().expect("get_features");
        assert!(Features(offered).has(features));
        let protocol = self.frontend.get_protocol_features().expect("get_protocol_features");
        assert!(protocol.contains(VhostUserProtocolFeatures::REPLY_ACK | VhostUserProtocolFeatures::CONFIG));
        let wanted = VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
            | VhostUserProtocolFeatures::RESET_DEVICE;
        self.frontend.set_protocol_features(wanted).expect("set_protocol_features");
        self.frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        self.frontend.set_features(features.0).expect("set_features");
    }

    fn start(&mut self) {
        let place = self.driver.place(1);
        self.frontend.set_vring_num(1, place.size).expect("set_vring_num");
        let config = VringConfigData {
            queue_max_size: place.size,
            queue_size: place.size,
            flags: 0,
            desc_table_addr: place.descriptors,
            used_ring_addr: place.device,
            avail_ring_addr: place.driver,
            log_addr: None,
        };
        self.frontend.set_vring_addr(1, &config).expect("set_vring_addr");
        self.frontend.set_vring_base(1, place.base as u16).expect("set_vring_base");
        self.frontend.set_vring_call(1, &self.call).expect("set_vring_call");
        self.frontend.set_vring_kick(1, &self.kick).expect("set_vring_kick");
        self.frontend.set_vring_enable(1, true).expect("set_vring_enable");
        assert_eq!(self.call.read().expect("a queue that starts calls its guest"), 1);
    }

    fn send(&mut self, packet: &[u8], packets: &Receiver<Vec<u8>>) {
        self.driver.send(NetHeader::default(), &[packet]).expect("the ring has room");
        self.driver.publish();
        self.kick.write(1).expect("an eventfd");
        let deadline = std::time::Duration::from_secs(10);
        assert_eq!(packets.recv_timeout(deadline).expect("the packet arrives"), packet);
        // The back end has made the eventfd not block, at both ends.
        wait_for(&self.call);
        assert!(self.call.read().expect("a call comes") > 0);
        assert!(self.driver.used().is_some());
    }
}

fn wait_for(bell: &EventFd) {
    let bell = bell.try_clone().expect("a descriptor");
    // SAFETY: the clone owns its descriptor, which nobody else closes.
    let bell = unsafe { OwnedFd::from_raw_fd(bell.into_raw_fd()) };
    let mut descriptors = [PollFd::new(&bell, PollFlags::IN)];
    let count = poll(&mut descriptors, Some(&Timespec { tv_sec: 10, tv_nsec: 0 })).expect("poll");
    assert_eq!(count, 1, "a call comes");
}

#[test]
fn a_front_end_of_rust_vmm_sets_everything_up_and_its_packets_arrive() {
    for packed in [false, true] {
        let features = Features::VERSION_1.with(Features::PROTOCOL_FEATURES);
        let features = if packed { features.with(Features::RING_PACKED) } else { features };
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let (sender, packets) = channel();
        let server = std::thread::spawn(move || serve(theirs, sender));
        let mut guest = Guest::new(ours, features);
        guest.negotiate(features);
        assert_eq!(guest.frontend.get_queue_num().expect("get_queue_num"), 4);
        assert_eq!(guest.frontend.get_max_mem_slots().expect("get_max_mem_slots"), 32);
        let (_, mtu) =
            guest.frontend.get_config(10, 2, VhostUserConfigFlags::empty(), &[0; 2]).expect("get_config");
        assert_eq!(mtu, 1400u16.to_le_bytes());
        guest.frontend.set_mem_table(&[guest.region()]).expect("set_mem_table");
        guest.start();
        guest.send(b"one", &packets);
        // The same region, taken away and given back while the queue is stopped.
        let base = guest.frontend.get_vring_base(1).expect("get_vring_base");
        assert_eq!(base, if packed { 0x8001_8001 } else { 1 });
        guest.frontend.remove_mem_region(&guest.region()).expect("remove_mem_region");
        guest.frontend.add_mem_region(&guest.region()).expect("add_mem_region");
        guest.frontend.set_vring_base(1, base as u16).expect("set_vring_base");
        guest.frontend.set_vring_kick(1, &guest.kick).expect("set_vring_kick");
        assert_eq!(guest.call.read().expect("a queue that starts calls its guest"), 1);
        guest.send(b"two", &packets);
        guest.frontend.reset_device().expect("reset_device");
        drop(guest);
        server.join().expect("the server does not panic");
    }
}
