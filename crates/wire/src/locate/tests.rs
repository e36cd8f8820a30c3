use super::*;
use crate::testing::{Built, Recipe, insert_tags, packets, simple};
use proptest::prelude::*;

fn found(bytes: &[u8]) -> Result<(Transport, usize, usize), NoSegment> {
    segment(&[bytes]).map(|s| (s.transport, s.start, s.len))
}

/// IPv6 with one extension header of the given bytes (the first is overwritten) before UDP.
fn with_extension(kind: u8, mut header: Vec<u8>) -> Vec<u8> {
    let mut bytes = simple(Transport::Udp, true).bytes;
    header[0] = bytes[20];
    bytes[20] = kind;
    bytes[19] += header.len() as u8;
    bytes.splice(54..54, header);
    bytes
}

/// IPv4 with these options, padded to four bytes, before TCP.
fn with_options(options: &[u8]) -> Vec<u8> {
    let mut bytes = simple(Transport::Tcp, false).bytes;
    let mut options = options.to_vec();
    options.resize(options.len().next_multiple_of(4), 0);
    bytes[14] += (options.len() / 4) as u8;
    bytes[17] += options.len() as u8;
    bytes.splice(34..34, options);
    bytes
}

proptest! {
    #[test]
    fn a_segment_is_found_where_it_was_put(packet in packets()) {
        let Built { ref bytes, start, len, ref recipe } = packet;
        prop_assert_eq!(found(bytes), Ok((recipe.transport, start, len)));
        if recipe.transport != Transport::Sctp {
            prop_assert_eq!(segment(&[bytes]).unwrap().pseudo.folded(), packet.pseudo());
        }
    }

    #[test]
    fn a_packet_cut_short_anywhere_has_no_segment(packet in packets()) {
        for len in 0..packet.start + packet.len {
            prop_assert!(found(&packet.bytes[..len]).is_err(), "{} bytes", len);
        }
    }

    #[test]
    fn a_segment_lies_within_the_frame_whatever_one_byte_says(packet in packets(), at in 0usize..120, value: u8) {
        let mut bytes = packet.bytes;
        if let Some(byte) = bytes.get_mut(at) {
            *byte = value;
        }
        if let Ok((transport, start, len)) = found(&bytes) {
            prop_assert!(len >= transport.min_header_len() && start + len <= bytes.len());
        }
    }
}

#[test]
fn one_tag_too_many_is_not_looked_behind() {
    let mut bytes = simple(Transport::Tcp, false).bytes;
    insert_tags(&mut bytes, &[(false, 1); MAX_TAGS]);
    assert!(found(&bytes).is_ok());
    insert_tags(&mut bytes, &[(true, 1)]);
    assert_eq!(found(&bytes), Err(NotCovered));
}

#[test]
fn one_extension_header_too_many_is_not_looked_behind() {
    let mut bytes = simple(Transport::Udp, true).bytes;
    for count in 1..=MAX_EXTENSIONS {
        let mut header = vec![0; 8];
        header[0] = std::mem::replace(&mut bytes[20], extension::HOP_BY_HOP);
        bytes[19] += 8;
        bytes.splice(54..54, header);
        let expected = if count < MAX_EXTENSIONS { Ok(()) } else { Err(NotCovered) };
        assert_eq!(found(&bytes).map(|_| ()), expected, "{count} extension headers");
    }
}

#[test]
fn fragments_are_not_covered_but_atomic_ones_are() {
    for bits in [0x2000u16, 0x0001, 0x1fff, 0x3fff] {
        let mut bytes = simple(Transport::Udp, false).bytes;
        bytes[20..22].copy_from_slice(&bits.to_be_bytes());
        assert_eq!(found(&bytes), Err(NotCovered), "fragment field {bits:#x}");
    }
    let v6 = |rest: [u8; 2]| found(&with_extension(44, [&[0, 0], &rest[..], &[1, 2, 3, 4]].concat()));
    assert_eq!(v6([0, 1]), Err(NotCovered), "first of several");
    assert_eq!(v6([0x05, 0xa8]), Err(NotCovered), "last of several");
    assert!(v6([0, 0]).is_ok(), "atomic");
}

#[test]
fn a_pseudo_header_that_the_ip_header_does_not_tell_is_not_guessed() {
    assert!(found(&with_extension(43, vec![0, 0, 0, 0, 0, 0, 0, 0])).is_ok());
    assert_eq!(found(&with_extension(43, vec![0, 0, 0, 1, 0, 0, 0, 0])), Err(NotCovered), "segments left");
    let mut home_address = vec![0, 2, 1, 2, 0, 0, 0xc9, 16];
    home_address.resize(24, 1);
    assert_eq!(found(&with_extension(60, home_address)), Err(NotCovered), "home address");
    assert_eq!(found(&with_options(&[1, 1, 131, 7, 4, 9, 9, 9, 9])), Err(NotCovered), "loose source route");
    assert_eq!(found(&with_options(&[137, 7, 4, 9, 9, 9, 9])), Err(NotCovered), "strict source route");
}

#[test]
fn harmless_options_are_stepped_over() {
    assert!(found(&with_options(&[148, 4, 0, 0])).is_ok(), "router alert");
    assert!(found(&with_options(&[148, 2, 1, 1])).is_ok(), "an option of two bytes");
    assert!(found(&with_options(&[1, 1, 1, 0, 131, 7, 4, 0])).is_ok(), "what follows the end is no option");
    assert!(found(&with_options(&[1; 40])).is_ok(), "as much padding as fits");
    assert!(
        found(&with_extension(60, vec![0, 0, 1, 4, 0xc9, 0xc9, 0xc9, 0xc9])).is_ok(),
        "PadN hides nothing"
    );
}

#[test]
fn broken_option_lists_leave_the_packet_alone() {
    assert_eq!(found(&with_options(&[148, 0, 0, 0])), Err(NotCovered), "length 0 would never end");
    assert_eq!(found(&with_options(&[148, 1, 0, 0])), Err(NotCovered), "shorter than itself");
    assert_eq!(found(&with_options(&[148, 9, 0, 0])), Err(NotCovered), "longer than the list");
    assert_eq!(found(&with_extension(60, vec![0, 0, 9, 9, 0, 0, 0, 0])), Err(NotCovered));
}

#[test]
fn a_segment_may_be_its_header_alone() {
    for (transport, bytes) in [(Transport::Tcp, 20), (Transport::Udp, 8), (Transport::Sctp, 12)] {
        let recipe = Recipe { payload: Vec::new(), ..simple(transport, false).recipe };
        assert_eq!(found(&recipe.build().bytes), Ok((transport, 34, bytes)));
    }
}

#[test]
fn lengths_that_contradict_each_other_are_malformed() {
    let with = |v6: bool, at: usize, value: u8| {
        let mut bytes = simple(Transport::Udp, v6).bytes;
        bytes[at] = value;
        found(&bytes)
    };
    assert_eq!(with(false, 14, 0x65), Err(Malformed), "IPv4 behind its EtherType, version 6");
    assert_eq!(with(false, 14, 0x44), Err(Malformed), "header of 16 bytes");
    assert_eq!(with(false, 14, 0x4f), Err(Malformed), "header longer than the packet");
    assert_eq!(with(false, 17, 19), Err(Malformed), "total length within the header");
    assert_eq!(with(false, 16, 1), Err(Malformed), "total length beyond the frame");
    assert_eq!(with(false, 39, 7), Err(Malformed), "UDP shorter than its header");
    assert_eq!(with(false, 38, 1), Err(Malformed), "UDP longer than IP carries");
    assert_eq!(with(true, 14, 0x45), Err(Malformed), "IPv6 behind its EtherType, version 4");
    assert_eq!(with(true, 18, 1), Err(Malformed), "payload length beyond the frame");
    assert_eq!(with(true, 19, 7), Err(Malformed), "payload too short for UDP");
}
