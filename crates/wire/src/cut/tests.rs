//! Parts are checked by what knows nothing of cutting: the finder of segments, and the checker of checksums.

use proptest::prelude::*;

use super::*;
use crate::net_header::NEEDS_CSUM;
use crate::testing::{Built, packets, simple};
use crate::unfinished::{Verdict, verify_l4};

/// The header of a packet that its sender wants cut into parts of `part` bytes.
fn header_of(built: &Built, part: u16) -> NetHeader {
    let transport = built.recipe.transport;
    let gso_type = match (transport, built.recipe.v6) {
        (Transport::Tcp, false) => gso::TCPV4,
        (Transport::Tcp, true) => gso::TCPV6,
        (Transport::Udp | Transport::Sctp, _) => gso::UDP_L4,
    };
    NetHeader {
        flags: NEEDS_CSUM,
        gso_type,
        hdr_len: 0,
        gso_size: part,
        csum_start: built.start as u16,
        csum_offset: transport.checksum_offset() as u16,
    }
}

fn headers_of(built: &Built) -> usize {
    match built.recipe.transport {
        Transport::Tcp => built.start + usize::from(built.bytes[built.start + 12] >> 4) * 4,
        Transport::Udp | Transport::Sctp => built.start + 8,
    }
}

/// All parts, whole.
fn parts(cut: &Cut, packet: &[u8]) -> Vec<Vec<u8>> {
    let part = |index| {
        let payload = &packet[cut.payload(index)];
        let mut out = [0; MAX_HEADER_BYTES];
        let (front, back) = payload.split_at(payload.len() / 3);
        let bytes = cut.write_header(index, packet, [front, back], &mut out);
        [&out[..bytes], payload].concat()
    };
    (0..cut.parts()).map(part).collect()
}

proptest! {
    #[test]
    fn parts_are_right_packets_that_make_up_the_long_one(built in packets(), part in 20u16..1500) {
        prop_assume!(built.recipe.transport != Transport::Sctp && !built.recipe.payload.is_empty());
        let (header, headers) = (header_of(&built, part), headers_of(&built));
        let cut = Cut::new(&header, &[&built.bytes[..]]).unwrap();
        prop_assert_eq!(cut.header_bytes(), headers);
        let (mut payload, parts) = (Vec::new(), parts(&cut, &built.bytes));
        for (index, bytes) in parts.iter().enumerate() {
            prop_assert_eq!(verify_l4(&[&bytes[..]]), Verdict::Good);
            let found = locate::segment(&[&bytes[..]]).unwrap();
            prop_assert_eq!((found.start, found.start + found.len), (built.start, bytes.len()), "no padding");
            prop_assert!(bytes.len() - headers == usize::from(part) || index + 1 == parts.len());
            payload.extend_from_slice(&bytes[headers..]);
            if !built.recipe.v6 {
                let (from, to) = (cut.ip, cut.l4);
                prop_assert_eq!(checksum::over(&bytes[from..to]), 0);
                let id = |bytes: &[u8]| u16::from_be_bytes([bytes[from + 4], bytes[from + 5]]);
                prop_assert_eq!(id(bytes), id(&built.bytes).wrapping_add(index as u16));
            }
            if built.recipe.transport == Transport::Tcp {
                let at = built.start + 4;
                let sequence = |bytes: &[u8]| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
                let before = index as u32 * u32::from(part);
                prop_assert_eq!(sequence(bytes), sequence(&built.bytes).wrapping_add(before));
            }
        }
        prop_assert_eq!(payload, built.recipe.payload);
    }

    #[test]
    fn any_header_and_packet_get_an_answer(
        bytes in prop_oneof![prop::collection::vec(any::<u8>(), 0..200), packets().prop_map(|built| built.bytes)],
        numbers in any::<[u16; 4]>(),
        kinds in any::<[u8; 2]>(),
        at in any::<prop::sample::Index>(),
    ) {
        let [hdr_len, gso_size, csum_start, csum_offset] = numbers;
        let (start, flags) = (at.index(bytes.len() + 1) as u16, kinds[0]);
        for csum_start in [csum_start, start] {
            let header = NetHeader { flags, gso_type: kinds[1], hdr_len, gso_size, csum_start, csum_offset };
            let mut copy = bytes.clone();
            let (front, back) = copy.split_at_mut(bytes.len() / 2);
            if let Ok(cut) = Cut::new(&header, &[&*front, &*back]) {
                prop_assert!(cut.parts() >= 1 && cut.parts() <= MAX_PARTS);
            }
            finish_checksum(&header, &mut [front, back]);
        }
    }

    #[test]
    fn the_beginning_of_a_packet_tells_what_all_of_it_does(
        built in packets(), part in 1..2000u16, shown in 0..1600usize, spoilt in 0..120usize, value: u8,
    ) {
        let mut bytes = built.bytes.clone();
        let header = header_of(&built, part);
        let headers = headers_of(&built);
        if let Some(byte) = bytes.get_mut(spoilt) { *byte = value }
        let whole = Cut::new(&header, &[&bytes[..]]);
        let shown = shown.clamp(headers.max(spoilt + 1).min(bytes.len()), bytes.len());
        let front = Front { bytes: &bytes[..shown], len: bytes.len() };
        match Cut::of_front(&header, front) {
            Ok(cut) => prop_assert_eq!(Ok(cut), whole),
            // A header that was spoilt may say that more of them follow than are shown.
            Err(error) => prop_assert!(whole == Err(error) || whole.is_ok_and(|whole| whole.header_bytes() > shown)),
        }
    }

    #[test]
    fn a_checksum_that_a_header_names_is_finished_as_one_that_was_found(built in packets(), at in 0..1600usize) {
        prop_assume!(built.recipe.transport != Transport::Sctp);
        let checksum_at = built.start + built.recipe.transport.checksum_offset();
        let mut bytes = built.bytes[..built.start + built.len].to_vec();
        let pseudo = locate::segment(&[&bytes[..]]).unwrap().pseudo.folded();
        put16(&mut bytes, checksum_at, pseudo);
        let at = at.min(bytes.len());
        let (front, back) = bytes.split_at_mut(at);
        finish_checksum(&header_of(&built, 1), &mut [front, back]);
        prop_assert_eq!(verify_l4(&[&bytes[..]]), Verdict::Good);
    }
}

#[test]
fn flags_stay_where_they_belong() {
    let mut built = simple(Transport::Tcp, false);
    let flags = built.start + FLAGS_AT;
    built.bytes[flags] = FLAG_FIN | FLAG_PUSH | FLAG_CWR | 0x10;
    let of = |gso_type| {
        let header = NetHeader { gso_type, ..header_of(&built, 7) };
        let cut = Cut::new(&header, &[&built.bytes[..]]).unwrap();
        parts(&cut, &built.bytes).iter().map(|part| part[flags]).collect::<Vec<_>>()
    };
    assert_eq!(of(gso::TCPV4), [FLAG_CWR | 0x10, FLAG_CWR | 0x10, FLAG_FIN | FLAG_PUSH | FLAG_CWR | 0x10]);
    assert_eq!(of(gso::TCPV4 | gso::ECN), [FLAG_CWR | 0x10, 0x10, FLAG_FIN | FLAG_PUSH | 0x10]);
}

#[test]
fn a_header_that_is_not_the_packets_is_refused() {
    let built = simple(Transport::Tcp, false);
    let right = header_of(&built, 7);
    let refused = |header: NetHeader, bytes: &[u8]| Cut::new(&header, &[bytes]).unwrap_err();
    let lies = [
        NetHeader { gso_type: gso::TCPV6, ..right },
        NetHeader { gso_type: gso::UDP_L4, ..right },
        NetHeader { gso_type: gso::UDP, ..right },
        NetHeader { gso_size: 0, ..right },
        NetHeader { flags: 0, ..right },
        NetHeader { csum_start: right.csum_start + 2, ..right },
        NetHeader { csum_offset: 6, ..right },
    ];
    for lie in lies {
        assert_eq!(refused(lie, &built.bytes), Uncuttable::Mismatch, "{lie:?}");
    }
    let headers = headers_of(&built);
    assert_eq!(refused(right, &built.bytes[..headers - 1]), Uncuttable::Mismatch);
    let mut short = built.clone();
    short.bytes[built.start + 12] = 0x40;
    assert_eq!(refused(right, &short.bytes), Uncuttable::Mismatch, "a TCP header of 16 bytes");
}

#[test]
fn a_packet_stands_for_no_more_than_a_turn_of_packets() {
    let mut recipe = simple(Transport::Udp, true).recipe;
    recipe.payload = vec![7; MAX_PARTS as usize];
    let most = recipe.clone().build();
    assert_eq!(Cut::new(&header_of(&most, 1), &[&most.bytes[..]]).unwrap().parts(), MAX_PARTS);
    recipe.payload.push(7);
    let more = recipe.build();
    assert_eq!(Cut::new(&header_of(&more, 1), &[&more.bytes[..]]), Err(Uncuttable::TooMany));
}

#[test]
fn headers_must_lie_in_the_first_fragment() {
    let built = simple(Transport::Udp, false);
    let (front, back) = built.bytes.split_at(headers_of(&built) - 1);
    assert_eq!(Cut::new(&header_of(&built, 7), &[front, back]), Err(Uncuttable::Mismatch));
    let front = Front { bytes: front, len: built.bytes.len() };
    assert_eq!(Cut::of_front(&header_of(&built, 7), front), Err(Uncuttable::Mismatch));
}
