//! Packets that their sender left undone, for receivers that take none: the checksum is finished, or the packet is cut
//! into those that it stands for. Netdevs take them as they are; the kernel does what a device cannot.

use arrayvec::ArrayVec;
use forebay_pool::MAX_SEGMENTS_PER_PACKET;
use forebay_wire::cut::{self, Cut};
use forebay_wire::net_header::NetHeader;

use super::parcel::{Pieces, Undeliverable};

/// A packet in pieces: those of its frames or of a run, and some that are made here.
type Parts<'a> = ArrayVec<&'a [u8], MAX_PARTS>;
const MAX_PARTS: usize = 72;
const _: () = assert!(MAX_PARTS >= MAX_SEGMENTS_PER_PACKET + 5);

/// Packets that came out of one that was finished: those that were put, those that were not, and why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finished {
    pub(super) put: u32,
    pub(super) lost: Option<(u32, Undeliverable)>,
}

impl Finished {
    fn one(result: Result<(), Undeliverable>) -> Self {
        match result {
            Ok(()) => Self { put: 1, lost: None },
            Err(error) => Self { put: 0, lost: Some((1, error)) },
        }
    }
}

/// Gives `put` the packets that a receiver gets. One that is not put ends it: those behind it are lost, too.
pub(super) fn finish(
    pieces: &Pieces<'_>,
    undone: &NetHeader,
    put: impl FnMut(&[&[u8]]) -> Result<(), Undeliverable>,
) -> Finished {
    let whole: Parts<'_> = pieces.in_order().collect();
    if undone.is_long() { cut(&whole, undone, put) } else { Finished::one(complete(&whole, undone, put)) }
}

fn complete(
    whole: &[&[u8]],
    undone: &NetHeader,
    mut put: impl FnMut(&[&[u8]]) -> Result<(), Undeliverable>,
) -> Result<(), Undeliverable> {
    // Where it lies was checked when the packet came in.
    let Some((at, checksum)) = cut::finished(undone, whole) else { return put(whole) };
    let mut parts = Parts::new();
    parts.extend(between(whole, 0, at));
    parts.push(&checksum);
    parts.extend(between(whole, at + checksum.len(), usize::MAX));
    put(&parts)
}

fn cut(
    whole: &[&[u8]],
    undone: &NetHeader,
    mut put: impl FnMut(&[&[u8]]) -> Result<(), Undeliverable>,
) -> Finished {
    // Headers are read in one piece, and a new tag lies in one of its own.
    let mut head = [0; cut::MAX_HEADER_BYTES];
    let mut head_bytes = 0;
    for piece in between(whole, 0, head.len()) {
        head[head_bytes..][..piece.len()].copy_from_slice(piece);
        head_bytes += piece.len();
    }
    let head = &head[..head_bytes];
    let mut fragments = Parts::new();
    fragments.push(head);
    fragments.extend(between(whole, head_bytes, usize::MAX));
    // It was looked at when it came in, and tags change nothing.
    let Ok(cut) = Cut::new(undone, &fragments) else { return Finished::one(Err(Undeliverable::TooLong)) };
    for part in 0..cut.parts() {
        let payload = cut.payload(part);
        let mut header = [0; cut::MAX_HEADER_BYTES];
        let payload = between(&fragments, payload.start, payload.end);
        let header_bytes = cut.write_header(part, head, payload.clone(), &mut header);
        let mut parts = Parts::new();
        parts.push(&header[..header_bytes]);
        parts.extend(payload);
        if let Err(error) = put(&parts) {
            return Finished { put: part, lost: Some((cut.parts() - part, error)) };
        }
    }
    Finished { put: cut.parts(), lost: None }
}

/// The bytes from `from` up to `to`, as far as there are any.
fn between<'a>(
    pieces: &'a [&'a [u8]],
    from: usize,
    to: usize,
) -> impl Iterator<Item = &'a [u8]> + Clone + 'a {
    let mut at = 0;
    pieces.iter().filter_map(move |piece| {
        let start = at;
        at += piece.len();
        let (first, last) = (from.max(start), to.min(at));
        (first < last).then(|| &piece[first - start..last - start])
    })
}

#[cfg(test)]
mod tests {
    use forebay_wire::net_header::{NEEDS_CSUM, gso};
    use forebay_wire::{Verdict, verify_l4};

    use super::*;

    const IP: usize = 18;
    const UDP: usize = IP + 20;
    const PAYLOAD: usize = UDP + 8;

    /// A datagram over IPv4 in VLAN 7 with an unfinished checksum.
    fn datagram(payload: usize) -> Vec<u8> {
        let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0, 7, 8, 0];
        packet.extend([0x45, 0, 0, 0, 0, 9, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend([0, 53, 0, 54, 0, 0, 0, 0]);
        packet.extend((0..payload).map(|at| at as u8));
        let length = |from: usize| ((packet.len() - from) as u16).to_be_bytes();
        let (of_ip, of_udp) = (length(IP), length(UDP));
        packet[IP + 2..IP + 4].copy_from_slice(&of_ip);
        packet[UDP + 4..UDP + 6].copy_from_slice(&of_udp);
        let pseudo = (0x0a00 + 0x0001 + 0x0a00 + 0x0002 + 17 + u32::from(u16::from_be_bytes(of_udp))) as u16;
        packet[UDP + 6..UDP + 8].copy_from_slice(&pseudo.to_be_bytes());
        packet
    }

    /// What comes out if the packet lies in pieces as one does that gets a tag.
    fn finished(packet: &[u8], undone: &NetHeader) -> Vec<Vec<u8>> {
        let (addresses, rest) = packet.split_at(12);
        let (tag, rest) = rest.split_at(4);
        let mut out = Vec::new();
        let pieces: Vec<&[u8]> = [addresses, tag].into_iter().chain(rest.chunks(1000)).collect();
        let finished = finish(&Pieces::listed(&pieces), undone, |parts| {
            out.push(parts.concat());
            Ok(())
        });
        assert_eq!(finished, Finished { put: out.len() as u32, lost: None });
        out
    }

    fn undone() -> NetHeader {
        NetHeader { flags: NEEDS_CSUM, csum_start: UDP as u16, csum_offset: 6, ..NetHeader::default() }
    }

    #[test]
    fn a_checksum_is_finished_and_nothing_else_changes() {
        let packet = datagram(3001);
        let out = finished(&packet, &undone());
        assert_eq!(out.len(), 1);
        assert_eq!(verify_l4(&[&out[0][..]]), Verdict::Good);
        let mut expected = packet;
        expected[UDP + 6..PAYLOAD].copy_from_slice(&out[0][UDP + 6..PAYLOAD]);
        assert_eq!(out[0], expected);
    }

    #[test]
    fn a_long_packet_is_cut_into_packets_with_its_tag() {
        let packet = datagram(3001);
        let out = finished(&packet, &NetHeader { gso_type: gso::UDP_L4, gso_size: 1400, ..undone() });
        assert_eq!(out.iter().map(Vec::len).collect::<Vec<_>>(), [1400, 1400, 201].map(|len| PAYLOAD + len));
        assert!(
            out.iter().all(|part| part[..IP] == packet[..IP] && verify_l4(&[&part[..]]) == Verdict::Good)
        );
        let payload: Vec<u8> = out.iter().flat_map(|part| part[PAYLOAD..].to_vec()).collect();
        assert_eq!(payload, packet[PAYLOAD..]);
    }

    #[test]
    fn a_part_that_is_not_put_ends_it_and_all_parts_are_told() {
        let (packet, mut put) = (datagram(3001), 0);
        let undone = NetHeader { gso_type: gso::UDP_L4, gso_size: 1000, ..undone() };
        let finished = finish(&Pieces::whole(&packet), &undone, |_| {
            put += 1;
            if put == 2 { Err(Undeliverable::Full) } else { Ok(()) }
        });
        assert_eq!((finished, put), (Finished { put: 1, lost: Some((3, Undeliverable::Full)) }, 2));
    }
}
