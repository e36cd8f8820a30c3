use super::*;
use crate::testing::{insert_tags, packets, simple};
use crate::{l4::Transport, mac};
use etherparse::Ethernet2HeaderSlice;
use proptest::prelude::*;

/// What etherparse makes of the header, and our own rules for sources on top.
fn oracle(bytes: &[u8]) -> Result<FrameInfo, BadFrame> {
    let header = Ethernet2HeaderSlice::from_slice(bytes).map_err(|_| BadFrame::Runt)?;
    let (dst, src) = (mac::from_bytes(header.destination()), mac::from_bytes(header.source()));
    match header.source() {
        [0, 0, 0, 0, 0, 0] => return Err(BadFrame::ZeroSource),
        [first, ..] if first % 2 == 1 => return Err(BadFrame::MulticastSource),
        _ => {}
    }
    let plain = FrameInfo { dst, src, tag: None, ethertype: header.ether_type().0, len: bytes.len() };
    if header.ether_type().0 != 0x8100 {
        return Ok(plain);
    }
    let tag =
        etherparse::SingleVlanHeaderSlice::from_slice(&bytes[14..]).map_err(|_| BadFrame::TruncatedTag)?;
    let (pcp, dei, vid) =
        (tag.priority_code_point().value(), tag.drop_eligible_indicator(), tag.vlan_identifier().value());
    Ok(FrameInfo { tag: Some(Tag { pcp, dei, vid }), ethertype: tag.ether_type().0, ..plain })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn random_frames_parse_as_etherparse_parses_them(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        prop_assert_eq!(frame(&bytes), oracle(&bytes));
    }

    #[test]
    fn random_frames_that_claim_a_tag_parse_as_etherparse_parses_them(
        mut bytes in proptest::collection::vec(any::<u8>(), 14..24),
    ) {
        bytes[6] &= 0xfe;
        bytes[12..14].copy_from_slice(&[0x81, 0x00]);
        prop_assert_eq!(frame(&bytes), oracle(&bytes));
    }
}

proptest! {
    #[test]
    fn a_packet_cut_short_anywhere_parses_or_is_named_bad(packet in packets()) {
        for len in 0..packet.bytes.len().min(200) {
            prop_assert_eq!(frame(&packet.bytes[..len]), oracle(&packet.bytes[..len]));
        }
    }
}

#[test]
fn each_kind_of_bad_frame_has_its_own_name() {
    let good = simple(Transport::Udp, false).bytes;
    let with = |range: std::ops::Range<usize>, bytes: &[u8]| {
        let mut frame = good.clone();
        frame[range].copy_from_slice(bytes);
        frame
    };
    assert_eq!(frame(&good[..13]), Err(BadFrame::Runt));
    assert!(frame(&good[..14]).is_ok());
    assert_eq!(frame(&with(6..12, &[0; 6])), Err(BadFrame::ZeroSource));
    assert_eq!(frame(&with(6..12, &[0xff; 6])), Err(BadFrame::MulticastSource));
    assert_eq!(frame(&with(6..7, &[1])), Err(BadFrame::MulticastSource));
    let tagged = with(12..14, &[0x81, 0x00]);
    assert_eq!(frame(&tagged[..17]), Err(BadFrame::TruncatedTag));
    assert!(frame(&tagged[..18]).is_ok());
}

#[test]
fn a_service_tag_is_payload_and_selects_no_vlan() {
    let mut bytes = simple(Transport::Udp, false).bytes;
    insert_tags(&mut bytes, &[(true, 10), (false, 20)]);
    let info = frame(&bytes).unwrap();
    assert_eq!((info.tag, info.ethertype), (None, 0x88a8));
}

#[test]
fn of_a_frame_full_of_tags_only_the_outer_one_counts() {
    let mut bytes = simple(Transport::Udp, false).bytes;
    let stack: Vec<_> = (1..=2300).map(|vid| (false, 0xf000 | vid)).collect();
    insert_tags(&mut bytes, &stack);
    assert!(bytes.len() > 9000);
    let info = frame(&bytes).unwrap();
    assert_eq!(info.tag, Some(Tag { pcp: 7, dei: true, vid: 1 }));
    assert_eq!((info.ethertype, info.len), (0x8100, bytes.len()));
}
