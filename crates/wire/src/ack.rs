//! Tells TCP acknowledgements from segments that carry something.

use crate::l4::Transport;
use crate::locate;

/// Bytes of the longest frame that is looked at: five tags, and IPv6 and TCP with as many options as fit.
const MAX_BYTES: usize = 160;

/// FIN, SYN and RST.
const OPENS_OR_CLOSES: u8 = 0x07;
const ACK: u8 = 0x10;

/// Whether a frame, whole and in one piece, is a TCP segment that acknowledges, carries no data, and neither opens nor
/// closes a connection. Bounded, never allocates, may be called on the packet path.
#[inline]
pub fn is_pure_ack(frame: &[u8]) -> bool {
    frame.len() <= MAX_BYTES && has_only_ack(frame)
}

fn has_only_ack(frame: &[u8]) -> bool {
    let Ok(segment) = locate::segment(&[frame]) else { return false };
    let Some(header) = frame.get(segment.start..segment.start + segment.len) else { return false };
    let [.., offset, flags] = header.first_chunk::<14>().copied().unwrap_or_default();
    segment.transport == Transport::Tcp
        && usize::from(offset >> 4) * 4 == segment.len
        && flags & (OPENS_OR_CLOSES | ACK) == ACK
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    use super::*;

    type Build = fn(&mut Vec<u8>, &[u8], u8);

    fn v4(frame: &mut Vec<u8>, data: &[u8], flags: u8) {
        let builder =
            PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(1, 2, 3, 9);
        builder.write(frame, data).unwrap();
        let at = frame.len() - data.len() - 7;
        frame[at] = flags;
    }

    fn v6_behind_a_tag(frame: &mut Vec<u8>, data: &[u8], flags: u8) {
        let vlan = etherparse::VlanId::try_new(7).unwrap();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).single_vlan(vlan).ipv6([1; 16], [2; 16], 64);
        builder.tcp(1, 2, 3, 9).write(frame, data).unwrap();
        let at = frame.len() - data.len() - 7;
        frame[at] = flags;
    }

    #[test]
    fn only_a_segment_that_does_nothing_else_is_one() {
        for build in [v4 as Build, v6_behind_a_tag] {
            let is_ack = |data: &[u8], flags: u8, padding: usize| {
                let mut frame = Vec::new();
                build(&mut frame, data, flags);
                frame.resize(frame.len() + padding, 0);
                is_pure_ack(&frame)
            };
            assert!(is_ack(&[], ACK, 0) && is_ack(&[], ACK, 6), "padding is no data");
            assert!(is_ack(&[], ACK | 0x08, 0), "PSH without data pushes nothing");
            assert!(!is_ack(b"x", ACK, 0) && !is_ack(&[], 0, 0));
            for flag in [0x01, 0x02, 0x04] {
                assert!(!is_ack(&[], ACK | flag, 0), "{flag:#x}");
            }
        }
    }

    #[test]
    fn a_datagram_is_none() {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
        builder.udp(1, 2).write(&mut frame, &[0x50; 12]).unwrap();
        assert!(!is_pure_ack(&frame));
    }

    proptest! {
        #[test]
        fn any_bytes_have_an_answer(frame in proptest::collection::vec(any::<u8>(), 0..200)) {
            is_pure_ack(&frame);
        }
    }
}
