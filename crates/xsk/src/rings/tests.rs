//! The test plays the kernel's part on rings over heap memory.

use std::num::NonZeroU32;

use forebay_pool::FrameSize;

use super::*;
use crate::heap::HeapRing;
use crate::queue_id::QueueId;

const FRAMES: u32 = 8;

fn arena() -> (Arc<Arena>, Vec<Frame>) {
    let (arena, frames) =
        Arena::new(NonZeroU32::new(FRAMES).expect("not zero"), FrameSize::B2048).expect("16 KiB of memory");
    (Arc::new(arena), frames)
}

fn rx(arena: &Arc<Arena>) -> (Producer<libc::xdp_desc>, RxRing) {
    let (kernel, ours) = HeapRing::new(8, u32::MAX - 3, descriptor(0, 0, 0)).ends();
    (kernel, RxRing::new(ours, Arc::clone(arena)))
}

fn descriptor(frame: u64, len: u32, options: u32) -> libc::xdp_desc {
    libc::xdp_desc { addr: frame * 2048 + 256, len, options }
}

/// A ring in which five packets of 60 bytes wait.
fn with_five_packets() -> RxRing {
    let (arena, _kernel_holds) = arena();
    let (mut kernel, rx) = rx(&arena);
    for frame in 0..5 {
        kernel.push(descriptor(frame, 60, 0));
    }
    kernel.publish();
    rx
}

#[test]
fn a_posted_frame_comes_back_as_a_packet() {
    let (arena, mut frames) = arena();
    let ring = HeapRing::<u64>::new(4, u32::MAX, 0);
    let (producer, mut kernel_fill) = ring.ends();
    let mut fill = FillRing::new(producer, Arc::clone(&arena), QueueId::next());
    let (mut kernel_rx, mut rx) = rx(&arena);

    fill.post(frames.remove(5)).expect("room for four");
    assert_eq!(kernel_fill.pop(), None, "not before it is published");
    fill.publish();
    assert_eq!(kernel_fill.pop(), Some(5 * 2048));
    kernel_rx.push(descriptor(5, 60, 0));
    kernel_rx.publish();

    let mut burst = Burst::new(64);
    assert_eq!(rx.receive(&mut burst, usize::MAX, u64::MAX), 1);
    let [segment] = burst.packet(0) else { panic!("one segment") };
    assert_eq!((segment.frame.index(), segment.offset, segment.len), (5, 256, 60));
}

#[test]
fn a_full_fill_ring_returns_the_frame() {
    let (arena, frames) = arena();
    let ring = HeapRing::<u64>::new(4, u32::MAX - 1, 0);
    let mut fill = FillRing::new(ring.ends().0, arena, QueueId::next());
    let refused: Vec<_> = frames.into_iter().filter_map(|frame| fill.post(frame).err()).collect();
    assert_eq!(refused.len(), 4);
    assert_eq!(fill.free_slots(), 0);
}

#[test]
fn a_jumbo_packet_is_one_packet_of_several_segments() {
    let (arena, _kernel_holds) = arena();
    let (mut kernel, mut rx) = rx(&arena);
    kernel.push(descriptor(0, 1792, 1));
    kernel.push(descriptor(1, 1792, 1));
    kernel.push(descriptor(2, 100, 0));
    kernel.push(descriptor(3, 60, 0));
    kernel.publish();
    let mut burst = Burst::new(64);
    assert_eq!(rx.receive(&mut burst, usize::MAX, u64::MAX), 2);
    assert_eq!((burst.packet(0).len(), burst.len_bytes(0)), (3, 3684));
    assert_eq!(burst.len_bytes(1), 60);
}

#[test]
fn a_budget_is_kept_and_the_rest_waits() {
    let mut rx = with_five_packets();
    let mut burst = Burst::new(3);
    assert_eq!(rx.receive(&mut burst, 2, u64::MAX), 2, "no more than was asked for");
    assert_eq!(rx.receive(&mut burst, usize::MAX, u64::MAX), 1, "the burst is full");
    assert_eq!(rx.occupancy(), 2);
}

#[test]
fn what_was_fetched_ahead_still_waits_and_is_not_fetched_twice() {
    let mut rx = with_five_packets();
    rx.set_reads(Reads { below: 64, bytes: 64 });
    let mut burst = Burst::new(64);
    for (wanted, fetched) in [(3, 3), (2, 3), (64, 5)] {
        rx.fetch_ahead(wanted);
        assert_eq!((rx.fetched, rx.occupancy()), (fetched, 5));
    }
    assert_eq!(rx.receive(&mut burst, 4, u64::MAX), 4);
    assert_eq!(rx.fetched, 1, "the last one");
    assert_eq!(rx.receive(&mut burst, 4, u64::MAX), 1);
    rx.fetch_ahead(64);
    assert_eq!(rx.fetched, 0, "there are no more");
}

#[test]
fn an_allowance_of_bytes_ends_with_a_whole_packet() {
    let (arena, _kernel_holds) = arena();
    let (mut kernel, mut rx) = rx(&arena);
    kernel.push(descriptor(0, 60, 0));
    kernel.push(descriptor(1, 1792, 1));
    kernel.push(descriptor(2, 100, 0));
    kernel.push(descriptor(3, 60, 0));
    kernel.publish();
    let mut burst = Burst::new(64);
    assert_eq!(rx.receive(&mut burst, usize::MAX, 0), 0);
    assert_eq!(
        rx.receive(&mut burst, usize::MAX, 61),
        2,
        "the second packet exceeds the allowance, and is whole"
    );
    assert_eq!((burst.len_bytes(1), rx.occupancy()), (1892, 1));
}

#[test]
fn a_descriptor_outside_the_arena_is_counted_and_costs_nothing_else() {
    let (arena, _kernel_holds) = arena();
    let (mut kernel, mut rx) = rx(&arena);
    kernel.push(descriptor(u64::from(FRAMES), 60, 0));
    kernel.push(descriptor(1, 4000, 0));
    kernel.publish();
    let mut burst = Burst::new(64);
    assert_eq!(rx.receive(&mut burst, usize::MAX, u64::MAX), 1);
    assert_eq!([rx.take_bad_descriptors(), rx.take_bad_descriptors()], [1, 0]);
    assert_eq!(burst.len_bytes(0), 1792, "a length never leaves its frame");
}
