//! Back ends that die after any of their stores: the next one goes on, and each buffer is used exactly once.

use rustix::fd::OwnedFd;

use super::*;
use crate::driver::{Driver, DriverOptions, Part};
use crate::inflight::{self, Inflight, Shape};
use crate::memory::crash;

const SIZE: u16 = 8;
/// Where a packed ring begins.
const FRESH: u32 = 0x8000_8000;

/// What outlives a back end.
struct World {
    driver: Driver,
    file: OwnedFd,
    shape: Shape,
    features: Features,
}

impl World {
    fn new(features: Features, base: u32) -> World {
        let features = features.with(Features::VERSION_1).with(Features::MRG_RXBUF);
        let options = DriverOptions { base, ..DriverOptions::new(features, SIZE, 512) };
        let asked = Shape { len: 0, offset: 0, queues: 2, size: SIZE };
        let is_packed = features.has(Features::RING_PACKED);
        let (shape, file) = inflight::make(asked, is_packed, 3).expect("two queues of eight entries");
        World { driver: Driver::new(options).expect("a ring of eight"), file, shape, features }
    }

    /// The next back end's end of queue 1.
    fn device(&self) -> Virtqueue {
        let inflight = Inflight::open(self.shape, &self.file, 3).expect("our own file");
        self.driver.device(1).expect("the driver's ring").noting_in(&inflight).expect("notes of our own")
    }
}

/// Takes up to `most` packets, and shows the guest that they are used.
fn serve(queue: &mut Virtqueue, most: usize) {
    for _ in 0..most {
        match queue.offered() {
            Ok(Some(_)) => queue.discard(),
            _ => break,
        }
    }
    let _ = queue.publish();
}

/// Cheap random numbers (Marsaglia's xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// The guest makes buffers available, takes used ones, and counts both. The driver panics about a buffer that is used twice.
fn drive(world: &mut World, random: &mut Random, [sent, seen]: [&mut u64; 2]) {
    while world.driver.used().is_some() {
        *seen += 1;
    }
    for _ in 0..random.below(6) {
        let parts = [Part::Bytes(&[7; 60]), Part::Bytes(&[8; 20])];
        let count = 1 + random.below(2) as usize;
        let indirect = world.features.has(Features::INDIRECT_DESC) && random.below(3) == 0;
        *sent += u64::from(world.driver.add(&parts[..count], indirect).is_some());
    }
    world.driver.publish();
}

fn crash_at_random(features: Features, base: u32) {
    let (mut all_deaths, mut all_sent) = (0, 0);
    for seed in 1..400u64 {
        let (mut world, mut random) = (World::new(features, base), Random(seed));
        let (mut sent, mut seen) = (0, 0);
        for _ in 0..30 {
            drive(&mut world, &mut random, [&mut sent, &mut seen]);
            // Stores of its start, of taking, of showing: it may die in any.
            let stores = random.below(120) as usize;
            let most = random.below(8) as usize;
            let lived = crash::after(stores, || {
                let mut queue = world.device();
                serve(&mut queue, most);
                serve(&mut queue, most);
            });
            all_deaths += u64::from(!lived);
            if random.below(2) == 0 {
                drive(&mut world, &mut random, [&mut sent, &mut seen]);
            }
        }
        serve(&mut world.device(), usize::from(SIZE));
        serve(&mut world.device(), usize::from(SIZE));
        drive(&mut world, &mut Random(2), [&mut 0, &mut seen]);
        assert_eq!(seen, sent, "seed {seed}: a buffer was lost");
        all_sent += sent;
    }
    assert!(
        all_deaths > 2000 && all_sent > 10_000,
        "{all_deaths} deaths and {all_sent} buffers test nothing"
    );
}

#[test]
fn no_buffer_of_a_split_ring_is_lost_or_used_twice_whenever_the_back_end_dies() {
    crash_at_random(Features::default(), 0);
    crash_at_random(Features::EVENT_IDX.with(Features::INDIRECT_DESC), 65_530);
}

#[test]
fn no_buffer_of_a_packed_ring_is_lost_or_used_twice_whenever_the_back_end_dies() {
    crash_at_random(Features::RING_PACKED, 0x8000_8000);
    let features = Features::RING_PACKED.with(Features::EVENT_IDX).with(Features::INDIRECT_DESC);
    crash_at_random(features, 0x0005_0005);
}

/// Queue 1 is given to back ends without notes, one after the other, and each shows what it used before it goes. Returns the
/// number of buffers. `says` is what the front end says of where the last one was.
fn hand_on(features: Features, seed: u64, says: impl Fn(u32) -> u32) -> u64 {
    let (mut world, mut random) = (World::new(features, FRESH), Random(seed));
    let (mut sent, mut base) = (0, FRESH);
    for _ in 0..60 {
        while world.driver.used().is_some() {}
        for _ in 0..random.below(7) {
            let parts = [Part::Bytes(&[7; 60]), Part::Bytes(&[8; 20])];
            let count = 1 + random.below(2) as usize;
            let is_indirect = features.has(Features::INDIRECT_DESC) && count > 1;
            sent += u64::from(world.driver.add(&parts[..count], is_indirect).is_some());
        }
        world.driver.publish();
        // A new ring says nothing, and one looks new after two laps. One entry behind where it was might be right: the entry
        // between them could be the end of a used buffer.
        let is_next = says(base) == base + 0x0001_0001 || (says(base), base & 0x7fff) == (FRESH, 7);
        let said = if base == FRESH || is_next { base } else { says(base) };
        let place = RingPlace { base: said, ..world.driver.place(1) };
        let memory = Arc::clone(world.driver.memory());
        let queue = Virtqueue::new(memory, world.features, place, Bells::default());
        let mut queue = queue.expect("a ring of eight");
        assert_eq!(queue.base(), base, "seed {seed}: where the last one was");
        serve(&mut queue, random.below(8) as usize);
        base = queue.base();
    }
    sent
}

#[test]
fn a_packed_ring_goes_on_where_it_was_whatever_its_front_end_says() {
    let features = Features::RING_PACKED.with(Features::INDIRECT_DESC);
    for says in [|_| FRESH, |_| 0x0003_0003, |base: u32| base ^ 0x8000_8000] {
        let sent: u64 = (1..100).map(|seed| hand_on(features, seed, says)).sum();
        assert!(sent > 10_000, "{sent} buffers test nothing");
    }
}

#[test]
fn a_packed_ring_goes_on_where_its_front_end_says_if_it_is_right() {
    let sent: u64 = (1..300).map(|seed| hand_on(Features::RING_PACKED, seed, |base| base)).sum();
    assert!(sent > 30_000, "{sent} buffers test nothing");
}

#[test]
fn a_front_end_may_begin_a_queue_anew_when_it_knows_where_it_was() {
    let mut world = World::new(Features::RING_PACKED, FRESH);
    world.driver.add(&[Part::Bytes(&[1; 60])], false);
    world.driver.publish();
    let mut queue = world.device();
    serve(&mut queue, 8);
    assert_eq!((queue.base(), world.device().base()), (0x8001_8001, 0x8001_8001), "the notes count");
    let inflight = Inflight::open(world.shape, &world.file, 3).expect("our own file");
    inflight.forget(1, true);
    world.driver = World::new(Features::RING_PACKED, FRESH).driver;
    assert_eq!(world.device().base(), FRESH, "what the front end says counts");
}

#[test]
fn notes_that_contradict_themselves_are_refused() {
    let world = World::new(Features::RING_PACKED, 0x8000_8000);
    drop(world.device());
    let inflight = Inflight::open(world.shape, &world.file, 3).expect("our own file");
    let area = inflight.region(1, true).expect("it is long enough").expect("it is the second of two");
    let again = || world.driver.device(1).expect("the driver's ring").noting_in(&inflight);
    // A position outside of the ring; then a buffer longer than the ring, in no list of free entries.
    for index in [8, 0x8001, 0x9999] {
        area.store_u64(16, index, std::sync::atomic::Ordering::Relaxed);
        assert!(again().is_err(), "{index:#x}");
    }
    area.store_u64(16, 0, std::sync::atomic::Ordering::Relaxed);
    area.store_u32(12, 0xffff_ffff, std::sync::atomic::Ordering::Relaxed);
    area.store_u16(32, 1, std::sync::atomic::Ordering::Relaxed);
    area.store_u16(32 + 6, SIZE + 1, std::sync::atomic::Ordering::Relaxed);
    assert!(again().is_err());
}

#[test]
fn a_split_ring_of_a_back_end_that_used_buffers_out_of_order_is_refused() {
    let mut world = World::new(Features::default(), 0);
    for _ in 0..3 {
        world.driver.add(&[Part::Bytes(&[1; 60])], false);
    }
    world.driver.publish();
    drop(world.device());
    let inflight = Inflight::open(world.shape, &world.file, 3).expect("our own file");
    let area = inflight.region(1, false).expect("it is long enough").expect("it is the second of two");
    let mark = |head: usize, is_in_flight: u16, counter: u64| {
        area.store_u16(16 + 16 * head, is_in_flight, std::sync::atomic::Ordering::Relaxed);
        area.store_u64(16 + 16 * head + 8, counter, std::sync::atomic::Ordering::Relaxed);
    };
    let again = || world.driver.device(1).expect("the driver's ring").noting_in(&inflight);
    mark(0, 1, 1);
    mark(1, 1, 2);
    assert!(again().is_ok(), "they are the next available ones");
    mark(2, 1, 1);
    assert!(again().is_err(), "the third is in flight, and the first is not");
}
