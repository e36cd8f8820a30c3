//! A reference cutter plays the kernel's part: what is joined must cut into the packets it was joined from.

use proptest::prelude::*;

use super::*;
use crate::unfinished::{Verdict, verify_l4};

#[derive(Clone, Debug)]
struct Stream {
    is_v6: bool,
    tag: Option<u16>,
    options: usize,
    id: u16,
    sequence: u32,
    push: bool,
    segment: usize,
    payload: Vec<u8>,
}

fn streams() -> impl Strategy<Value = Stream> {
    (
        any::<bool>(),
        proptest::option::of(1..4095u16),
        0..=10usize,
        any::<u16>(),
        any::<u32>(),
        any::<bool>(),
        1..1500usize,
        prop::collection::vec(any::<u8>(), 1..9000),
    )
        .prop_map(|(is_v6, tag, options, id, sequence, push, segment, payload)| Stream {
            is_v6,
            tag,
            options,
            id,
            sequence,
            push,
            segment,
            payload,
        })
}

impl Stream {
    /// Headers of a joint packet with nothing filled in that depends on lengths.
    fn header(&self) -> Vec<u8> {
        let mut header = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        if let Some(vid) = self.tag {
            header.extend([0x81, 0, (vid >> 8) as u8, vid as u8]);
        }
        if self.is_v6 {
            header.extend([0x86, 0xdd, 0x60, 1, 2, 3, 0, 0, PROTOCOL_TCP, 64]);
            header.extend([0xfd; 32]);
        } else {
            header.extend([8, 0, 0x45, 0, 0, 0]);
            header.extend(self.id.to_be_bytes());
            header.extend([0x40, 0, 64, PROTOCOL_TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        }
        header.extend([0x12, 0x34, 0, 80]);
        header.extend(self.sequence.to_be_bytes());
        header.extend([0, 0, 0, 9, ((5 + self.options) << 4) as u8, FLAG_ACK, 1, 2, 0, 0, 0, 0]);
        header.extend((0..self.options * 4).map(|byte| byte as u8));
        header
    }

    /// Where the IP and the TCP header begin.
    fn offsets(&self) -> (usize, usize) {
        let ip = if self.tag.is_some() { 18 } else { 14 };
        (ip, ip + if self.is_v6 { 40 } else { 20 })
    }

    fn cut(&self) -> Vec<Vec<u8>> {
        let mut header = self.header();
        let flags = header.len() - self.options * 4 - 20 + 13;
        header[flags] |= if self.push { FLAG_PUSH } else { 0 };
        cut(&header, self.tag.is_some(), &self.payload, self.segment)
    }
}

/// What `tcp_gso_segment` and its callers do: count sequence numbers and ids up, push on the last, finish checksums.
fn cut(header: &[u8], tagged: bool, payload: &[u8], segment: usize) -> Vec<Vec<u8>> {
    let ip = if tagged { 18 } else { 14 };
    let is_v6 = header[ip] >> 4 == 6;
    let tcp = ip + if is_v6 { 40 } else { 20 };
    let chunks: Vec<&[u8]> = payload.chunks(segment).collect();
    let mut packets = Vec::new();
    for (index, chunk) in chunks.iter().enumerate() {
        let mut packet = header.to_vec();
        let tcp_bytes = packet.len() - tcp + chunk.len();
        packet.extend(*chunk);
        if is_v6 {
            put16(&mut packet, ip + 4, tcp_bytes as u16);
        } else {
            let id = be16(&packet, ip + 4).wrapping_add(index as u16);
            put16(&mut packet, ip + 4, id);
            put16(&mut packet, ip + 2, (20 + tcp_bytes) as u16);
            finish_ipv4(&mut packet, ip, tcp);
        }
        let sequence = be32(&packet, tcp + 4).wrapping_add((index * segment) as u32);
        packet[tcp + 4..tcp + 8].copy_from_slice(&sequence.to_be_bytes());
        if index + 1 < chunks.len() {
            packet[tcp + 13] &= !FLAG_PUSH;
        }
        finish(&mut packet, ip, tcp, is_v6);
        packets.push(packet);
    }
    packets
}

fn finish_ipv4(packet: &mut [u8], ip: usize, tcp: usize) {
    put16(packet, ip + 10, 0);
    let checksum = crate::checksum::over(&packet[ip..tcp]);
    put16(packet, ip + 10, checksum);
}

fn finish(packet: &mut [u8], ip: usize, tcp: usize, is_v6: bool) {
    put16(packet, tcp + 16, 0);
    let mut sum = Sum::new();
    sum.add_bytes(if is_v6 { &packet[ip + 8..ip + 40] } else { &packet[ip + 12..ip + 20] });
    sum.add_word(u16::from(PROTOCOL_TCP));
    sum.add_word((packet.len() - tcp) as u16);
    sum.add_bytes(&packet[tcp..]);
    put16(packet, tcp + 16, sum.checksum());
}

/// Joins as many packets as one run takes.
fn join(packets: &[Vec<u8>]) -> Option<(Run, usize)> {
    let mut run = Run::start(&packets[0], packets[0].len() as u32)?;
    let mut used = 1;
    while used < packets.len() && run.take(&packets[0], &packets[used], packets[used].len() as u32) {
        used += 1;
    }
    Some((run, used))
}

/// Cuts what `run` says of `packets`.
fn cut_again(run: &Run, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut header = [0; MAX_HEADER_BYTES];
    let bytes = run.write_header(&packets[0], packets.last().unwrap(), &mut header);
    let payload: Vec<u8> = packets.iter().flat_map(|packet| &packet[run.header_bytes()..]).copied().collect();
    cut(&header[..bytes], header[12] == 0x81, &payload, run.segment_bytes() as usize)
}

proptest! {
    #[test]
    fn a_stream_is_joined_whole_and_cuts_into_itself(stream in streams()) {
        let packets = stream.cut();
        prop_assert_eq!(verify_l4(&[&packets[0]]), Verdict::Good, "the cutter is right");
        let (run, used) = join(&packets).expect("a TCP segment");
        prop_assert_eq!(used, packets.len());
        prop_assert_eq!(run.segments() as usize, used);
        prop_assert_eq!((run.is_v6(), run.tcp_at()), (stream.is_v6, stream.offsets().1));
        prop_assert_eq!(run.wire_bytes() as usize, packets.iter().map(Vec::len).sum::<usize>());
        prop_assert_eq!(cut_again(&run, &packets), packets);
    }

    /// Whatever a sender writes into one packet's header, it is left out, or cutting restores it.
    #[test]
    fn a_changed_packet_is_left_out_or_restored(stream in streams(), which in any::<prop::sample::Index>(),
                                                at in any::<prop::sample::Index>(), bits in 1..=255u8,
                                                finishes_ipv4 in any::<bool>()) {
        let mut packets = stream.cut();
        let changed = which.index(packets.len());
        let packet = &mut packets[changed];
        packet[at.index(stream.header().len())] ^= bits;
        let (ip, tcp) = stream.offsets();
        if finishes_ipv4 && !stream.is_v6 {
            finish_ipv4(packet, ip, tcp);
        }
        finish(packet, ip, tcp, stream.is_v6);
        // The TCP checksum is the caller's to verify, before it joins.
        if verify_l4(&[&*packet]) != Verdict::Good {
            return Ok(());
        }
        if let Some((run, used)) = join(&packets) {
            prop_assert_eq!(cut_again(&run, &packets[..used]), &packets[..used]);
        }
    }

    #[test]
    fn any_bytes_get_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200), len in any::<u32>()) {
        if let Some(mut run) = Run::start(&bytes, len) {
            let _ = run.take(&bytes, &bytes, len);
        }
    }
}

/// Three segments of 100 bytes.
fn plain(is_v6: bool, tag: Option<u16>, options: usize) -> Stream {
    Stream {
        is_v6,
        tag,
        options,
        id: 7,
        sequence: u32::MAX - 150,
        push: true,
        segment: 100,
        payload: vec![7; 300],
    }
}

/// Streams of both families, with and without a tag.
fn plain_streams() -> [Stream; 4] {
    [(false, None), (false, Some(5)), (true, None), (true, Some(5))].map(|(is_v6, tag)| plain(is_v6, tag, 3))
}

#[test]
fn the_joint_header_waits_for_its_checksum() {
    for stream in plain_streams() {
        let packets = stream.cut();
        let (run, _) = join(&packets).expect("a TCP segment");
        let mut joint = vec![0; MAX_HEADER_BYTES];
        let bytes = run.write_header(&packets[0], packets.last().unwrap(), &mut joint);
        joint.truncate(bytes);
        joint.extend(&stream.payload);
        assert_eq!(verify_l4(&[&joint]), Verdict::Unfinished, "{stream:?}");
        let (ip, tcp) = stream.offsets();
        let (field, behind) = if stream.is_v6 { (ip + 4, tcp) } else { (ip + 2, ip) };
        assert_eq!(
            usize::from(be16(&joint, field)),
            joint.len() - behind,
            "the length is the joint packet's"
        );
    }
}

/// What random changes seldom come to: each bit of the headers of the first two packets.
#[test]
fn a_packet_with_a_changed_bit_is_left_out_or_restored() {
    for stream in plain_streams() {
        let (ip, tcp) = stream.offsets();
        for bit in 0..2 * 8 * stream.header().len() {
            let mut packets = stream.cut();
            let packet = &mut packets[bit % 2];
            packet[bit / 16] ^= 1 << (bit / 2 % 8);
            if !stream.is_v6 {
                finish_ipv4(packet, ip, tcp);
            }
            finish(packet, ip, tcp, stream.is_v6);
            if let Some((run, used)) = join(&packets) {
                assert_eq!(cut_again(&run, &packets[..used]), &packets[..used], "bit {bit} of {stream:?}");
            }
        }
    }
}

#[test]
fn a_run_begins_with_a_whole_tcp_header_and_payload() {
    let starts = |stream: &Stream, change: &dyn Fn(&mut Vec<u8>, usize, usize)| {
        let mut packet = stream.cut().swap_remove(0);
        let (ip, tcp) = stream.offsets();
        change(&mut packet, ip, tcp);
        if !stream.is_v6 {
            finish_ipv4(&mut packet, ip, tcp);
        }
        Run::start(&packet, packet.len() as u32).is_some()
    };
    for stream in plain_streams() {
        assert!(starts(&stream, &|_, _, _| ()));
        assert!(!starts(&stream, &|packet, _, tcp| packet[tcp + 12] = 0x40), "a TCP header of 16 bytes");
        assert!(!starts(&stream, &|packet, _, tcp| packet[tcp + 13] |= 1), "FIN");
        assert!(!starts(&stream, &|packet, _, tcp| packet[tcp + 12] |= 1), "a reserved bit");
        assert!(!starts(&stream, &|packet, ip, _| packet[ip] = 0x55), "another version");
        assert!(!starts(&stream, &|packet, _, _| packet.push(0)), "padding");
        let proto = if stream.is_v6 { 6 } else { 9 };
        assert!(!starts(&stream, &|packet, ip, _| packet[ip + proto] = 17), "UDP");
        if !stream.is_v6 {
            assert!(!starts(&stream, &|packet, ip, _| packet[ip + 6] = 0), "it may be fragmented");
        }
        let packet = &stream.cut()[0];
        let (len, header) = (packet.len() as u32, stream.header().len());
        assert!(Run::start(&packet[..header], len).is_some());
        assert_eq!(Run::start(&packet[..header - 1], len), None, "options lie in the next fragment");
    }
    for is_v6 in [false, true] {
        let empty = cut(&plain(is_v6, None, 0).header(), false, &[1], 1).swap_remove(0);
        let len = empty.len() as u32 - 1;
        let mut empty = empty[..len as usize].to_vec();
        let (field, bytes) = if is_v6 { (14 + 4, 20) } else { (14 + 2, 40) };
        put16(&mut empty, field, bytes);
        if !is_v6 {
            finish_ipv4(&mut empty, 14, 34);
        }
        assert_eq!(Run::start(&empty, len), None, "an acknowledgement");
    }
}

#[test]
fn a_joint_packet_has_at_most_65535_bytes_behind_its_link_header() {
    for (is_v6, headers) in [(false, 40), (true, 60)] {
        let joined = |payload| {
            let stream =
                Stream { segment: 1000, payload: vec![1; payload], push: false, ..plain(is_v6, None, 0) };
            join(&stream.cut()).expect("a TCP segment").1
        };
        let most = 65_535 - headers;
        assert_eq!([most, most + 1].map(joined), [66, 65]);
    }
}

#[test]
fn a_longer_segment_is_left_out() {
    let stream = plain(false, None, 0);
    let longer =
        Stream { id: 10, sequence: stream.sequence.wrapping_add(300), segment: 101, ..stream.clone() };
    let mut packets = Stream { push: false, ..stream }.cut();
    packets.extend(longer.cut());
    assert_eq!(join(&packets).expect("a TCP segment").1, 3);
}

#[test]
fn the_longest_header_has_a_tag_and_all_options() {
    let packets = plain(true, Some(5), 10).cut();
    assert_eq!(join(&packets).expect("a TCP segment").0.header_bytes(), MAX_HEADER_BYTES);
}

#[test]
fn a_short_segment_and_a_pushed_one_end_a_run() {
    let long = Stream {
        is_v6: false,
        tag: None,
        options: 0,
        id: 0,
        sequence: 0,
        push: false,
        segment: 100,
        payload: vec![1; 250],
    };
    let mut packets = long.cut();
    let next = Stream { id: 3, sequence: 250, ..long.clone() };
    packets.extend(next.cut());
    assert_eq!(join(&packets).expect("a TCP segment").1, 3, "a short segment is the last");

    let pushed = Stream { push: true, payload: vec![1; 200], ..long };
    let mut packets = pushed.cut();
    packets.extend(Stream { id: 2, sequence: 200, ..pushed }.cut());
    assert_eq!(join(&packets).expect("a TCP segment").1, 2, "a pushed segment is the last");
}
