use super::*;
use crate::fuzz_check::cut_mut;
use crate::testing::{Recipe, insert_tags, packets, simple, slow_crc32c};
use proptest::prelude::*;

fn complete(bytes: &mut [u8]) -> Completion {
    complete_checksum(&mut [bytes])
}

proptest! {
    #[test]
    fn an_unfinished_packet_becomes_what_its_sender_would_have_sent(
        packet in packets(),
        cuts in proptest::collection::vec(0usize..2000, 0..5),
    ) {
        let mut bytes = packet.unfinished();
        prop_assume!(bytes != packet.bytes);
        prop_assert_eq!(verify_l4(&[&bytes]), Verdict::Unfinished);
        let done = complete_checksum(&mut cut_mut(&mut bytes, &cuts));
        prop_assert_eq!(done, Completion::Completed(packet.recipe.transport));
        prop_assert_eq!(&bytes, &packet.bytes);
        prop_assert_eq!(verify_l4(&[&bytes]), Verdict::Good);
        prop_assert_eq!(complete(&mut bytes), Completion::NotNeeded);
        prop_assert_eq!(&bytes, &packet.bytes);
    }

    #[test]
    fn a_finished_checksum_is_never_damaged(packet in packets()) {
        let mut bytes = packet.bytes.clone();
        prop_assert_eq!(verify_l4(&[&bytes]), Verdict::Good);
        prop_assert_eq!(complete(&mut bytes), Completion::NotNeeded);
        prop_assert_eq!(bytes, packet.bytes);
    }

    #[test]
    fn a_wrong_checksum_that_is_not_unfinished_stays_wrong(packet in packets(), wrong in 1u16..) {
        let mut bytes = packet.bytes.clone();
        let at = packet.field().start;
        bytes[at..at + 2].copy_from_slice(&wrong.to_be_bytes());
        prop_assume!(verify_l4(&[&bytes]) == Verdict::Bad);
        let before = bytes.clone();
        prop_assert_eq!(complete(&mut bytes), Completion::NotNeeded);
        prop_assert_eq!(bytes, before);
    }

    #[test]
    fn one_flipped_bit_in_a_segment_is_noticed(packet in packets(), at: prop::sample::Index, bit in 0u8..8) {
        let mut bytes = packet.bytes.clone();
        let at = packet.start + at.index(packet.len);
        // UDP's own length moves the end of the segment: that is another packet, not a damaged one.
        let is_udp_len = packet.recipe.transport == Transport::Udp && (4..6).contains(&(at - packet.start));
        prop_assume!(!is_udp_len);
        bytes[at] ^= 1 << bit;
        prop_assert_ne!(verify_l4(&[&bytes]), Verdict::Good);
    }
}

/// Payload whose correct checksum equals the pseudo-header's sum: the finished packet looks unfinished.
fn finished_but_looks_unfinished(transport: Transport, v6: bool) -> Vec<u8> {
    let addresses = std::array::from_fn(|i| i as u8);
    let recipe = |payload: [u8; 2]| Recipe {
        transport,
        v6,
        tags: vec![],
        extensions: vec![],
        addresses,
        payload: payload.to_vec(),
        padding: 0,
    };
    (0..=u16::MAX)
        .map(|word| recipe(word.to_be_bytes()).build())
        .find(|built| built.bytes == built.unfinished())
        .expect("one of 65,536 payload words makes the two equal")
        .bytes
}

#[test]
fn a_finished_checksum_that_looks_unfinished_is_not_damaged_either() {
    for (transport, v6) in
        [(Transport::Tcp, false), (Transport::Tcp, true), (Transport::Udp, false), (Transport::Udp, true)]
    {
        let finished = finished_but_looks_unfinished(transport, v6);
        let mut bytes = finished.clone();
        assert_eq!(complete(&mut bytes), Completion::NotNeeded);
        assert_eq!(bytes, finished);
        assert_eq!(verify_l4(&[&bytes]), Verdict::Good);
    }
}

#[test]
fn a_udp_checksum_of_zero_is_written_as_ones() {
    let base = simple(Transport::Udp, false);
    let at = base.start + 8;
    let mut seen = false;
    for word in 0..=u16::MAX {
        let mut bytes = base.unfinished();
        bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
        // One word in 65,536 makes the unfinished field the right one; then there is nothing to do.
        complete(&mut bytes);
        assert_eq!(verify_l4(&[&bytes]), Verdict::Good, "payload word {word:#x}");
        let field = &bytes[base.field()];
        assert_ne!(field, [0, 0], "payload word {word:#x}");
        seen |= field == [0xff, 0xff];
    }
    assert!(seen, "no payload word led to the checksum in question");
}

#[test]
fn udp_without_a_checksum_stays_without() {
    for v6 in [false, true] {
        let packet = simple(Transport::Udp, v6);
        let mut bytes = packet.bytes.clone();
        bytes[packet.field()].fill(0);
        assert_eq!(verify_l4(&[&bytes]), Verdict::Absent);
        assert_eq!(complete(&mut bytes), Completion::NotNeeded);
        assert_eq!(bytes[packet.field()], [0, 0]);
    }
}

#[test]
fn a_fragment_is_untouched_even_where_its_bytes_look_like_a_header() {
    let packet = simple(Transport::Udp, false);
    let mut bytes = packet.unfinished();
    bytes[20] = 0x20;
    let before = bytes.clone();
    assert_eq!(complete(&mut bytes), Completion::NotCovered);
    assert_eq!(bytes, before);
}

#[test]
fn padding_behind_the_ip_packet_does_not_count() {
    let mut packet = simple(Transport::Tcp, false);
    packet.bytes.extend([0xa5; 31]);
    let mut bytes = packet.unfinished();
    assert_eq!(complete(&mut bytes), Completion::Completed(Transport::Tcp));
    assert_eq!(bytes, packet.bytes);
}

#[test]
fn a_jumbo_segment_in_three_fragments_is_completed() {
    let payload: Vec<u8> = (0..8942u32).map(|i| (i * 31) as u8).collect();
    let mut recipe = simple(Transport::Tcp, true).recipe;
    recipe.payload = payload;
    let packet = recipe.build();
    let mut bytes = packet.unfinished();
    assert_eq!(
        complete_checksum(&mut cut_mut(&mut bytes, &[3840, 7680])),
        Completion::Completed(Transport::Tcp)
    );
    assert_eq!(bytes, packet.bytes);
}

#[test]
fn what_is_not_ip_is_not_covered_and_what_is_cut_off_is_malformed() {
    let mut arp = simple(Transport::Tcp, false).bytes;
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(complete(&mut arp), Completion::NotCovered);
    assert_eq!(complete(&mut []), Completion::Malformed);
    assert_eq!(complete_checksum(&mut []), Completion::Malformed);
    let mut tagged = simple(Transport::Tcp, false).bytes;
    insert_tags(&mut tagged, &[(false, 3), (true, 4)]);
    for len in 0..tagged.len() {
        assert_eq!(complete(&mut tagged[..len]), Completion::Malformed, "{len} bytes");
    }
}

#[test]
fn crc32c_gives_the_check_value_of_the_catalogue() {
    assert_eq!(slow_crc32c(b"123456789"), 0xe306_9283);
    assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
}

#[test]
fn only_the_two_zeros_are_the_same_though_they_differ() {
    assert!(is_same(5, 5) && is_same(0, 0xffff) && is_same(0xffff, 0));
    assert!(!is_same(5, 0xffff) && !is_same(0xffff, 5) && !is_same(5, 0) && !is_same(0, 5));
}
