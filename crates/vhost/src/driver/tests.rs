//! The front end against the back end, which is killed and comes again.

use std::os::unix::net::UnixStream;

use super::*;
use crate::RingError;
use crate::{Backend, DeviceOptions, Event, NetConfig, Owner, Progress};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

/// A back end that sends back what it gets.
struct Mirror {
    backend: Option<Backend>,
    queues: [Option<Virtqueue>; 2],
    events: Vec<Event>,
}

impl Owner for Mirror {
    fn queue_started(&mut self, queue: Virtqueue) {
        let index = queue.index();
        self.queues[index] = Some(queue);
    }

    fn queue_stopped(&mut self, index: usize) -> Option<Virtqueue> {
        self.queues[index].take()
    }

    fn event(&mut self, event: Event) {
        self.events.push(event);
    }
}

impl Mirror {
    fn new(stream: UnixStream) -> Self {
        let config = NetConfig { mac: MAC, is_up: true, is_to_announce: false, pairs: 1, mtu: 1500 };
        stream.set_nonblocking(true).expect("a socket");
        let backend = Backend::new(stream, DeviceOptions { features: Features::ALL, config });
        Self { backend: Some(backend), queues: [None, None], events: Vec::new() }
    }

    /// Follows messages until the front end has gone or both queues run.
    fn follow(&mut self) {
        let mut backend = self.backend.take().expect("it is put back");
        while self.queues.iter().any(Option::is_none) {
            match backend.handle(self).expect("a proper front end") {
                Progress::Closed => break,
                Progress::Waiting | Progress::More => std::thread::yield_now(),
            }
        }
        self.backend = Some(backend);
    }

    /// Sends all packets back. Without `publish` it dies before the guest sees any of it.
    fn serve(&mut self, publish: bool) -> usize {
        let [Some(receive), Some(transmit)] = &mut self.queues else { panic!("both queues run") };
        let mut packets = 0;
        while let Some(offer) = transmit.offered().expect("the driver keeps the rules") {
            let mut packet = vec![0; offer.len as usize];
            transmit.take([&mut packet[..]]);
            receive.put(NetHeader::default(), [&packet[..]], offer.len).expect("the driver keeps the rules");
            packets += 1;
        }
        if publish {
            let _ = (receive.publish(), transmit.publish());
        }
        packets
    }
}

fn options(features: Features) -> FrontEndOptions {
    FrontEndOptions {
        features: features.with(Features::MRG_RXBUF),
        size: 16,
        buffer_bytes: 2048,
        keeps_notes: false,
    }
}

/// Connects the guest to a new back end.
fn connect(guest: &mut FrontEnd) -> Mirror {
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    let mut mirror = Mirror::new(theirs);
    std::thread::scope(|scope| {
        let connected = scope.spawn(|| guest.connect(ours));
        while !connected.is_finished() {
            mirror.follow();
            let mut backend = mirror.backend.take().expect("it is put back");
            backend.handle(&mut mirror).expect("a proper front end");
            mirror.backend = Some(backend);
        }
        connected.join().expect("no panic").expect("the back end takes it");
    });
    mirror
}

#[test]
fn a_ring_goes_on_behind_what_the_guest_was_shown_whatever_its_front_end_says() {
    let packed = Features::RING_PACKED.with(Features::EVENT_IDX);
    let kinds = [(Features::default(), false), (Features::EVENT_IDX, true), (packed, true)];
    for (features, keeps_notes) in kinds {
        let mut guest = FrontEnd::new(FrontEndOptions { keeps_notes, ..options(features) }).expect("memory");
        for round in 0..20u8 {
            let mut mirror = connect(&mut guest);
            for packet in 0..3 {
                assert!(guest.transmit(&[round, packet]), "round {round}: the ring has room");
            }
            assert_eq!(mirror.serve(true), 3);
            for packet in 0..3 {
                assert_eq!(guest.receive(), Some(vec![round, packet]), "round {round}");
            }
            // It dies in the middle of a turn: the next one gets the same packet, which is used once.
            assert!(guest.transmit(&[round, 9]));
            assert_eq!(mirror.serve(false), 1);
            drop(mirror);
            assert_eq!(guest.receive(), None);
            let mut mirror = connect(&mut guest);
            assert_eq!(mirror.serve(true), 1);
            assert_eq!(guest.receive(), Some(vec![round, 9]));
            assert_eq!(guest.transmit_backlog(), 0);
        }
    }
}

#[test]
fn requests_beside_the_queues_are_followed() {
    let mut guest = FrontEnd::new(options(Features::default())).expect("memory");
    let mut mirror = connect(&mut guest);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            guest.announce(MAC).expect("it was agreed on");
            guest.set_mtu(9000).expect("it was agreed on");
            guest.config(0, 6).expect("it was agreed on")
        });
        let mut backend = mirror.backend.take().expect("it is put back");
        while !asked.is_finished() {
            backend.handle(&mut mirror).expect("a proper front end");
        }
        assert_eq!(asked.join().expect("no panic"), MAC);
    });
    assert!(mirror.events.contains(&Event::Announce(MAC)) && mirror.events.contains(&Event::Mtu(9000)));
}

#[test]
fn a_ring_whose_memory_was_cut_off_says_so_and_not_what_the_zeros_look_like() {
    let mut guest = FrontEnd::new(options(Features::default())).expect("memory");
    let mut mirror = connect(&mut guest);
    assert!(guest.transmit(b"seen"));
    assert_eq!(mirror.serve(true), 1);
    rustix::fs::ftruncate(guest.memory_file(), 0).expect("the front end may do so");
    let [Some(receive), Some(transmit)] = &mut mirror.queues else { panic!("both queues run") };
    assert_eq!(transmit.offered(), Err(RingError::MemoryFault));
    // Buffers that were read ahead of their turn are written in vain.
    let mut puts = (0..=receive.size()).map(|_| receive.put(NetHeader::default(), [&b"lost"[..]], 4));
    assert_eq!(puts.find(|put| put.is_err()), Some(Err(RingError::MemoryFault)));
    assert!(receive.is_broken());
}
