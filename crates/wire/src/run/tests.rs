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

#[test]
fn the_joint_header_waits_for_its_checksum() {
    let stream = Stream {
        is_v6: false,
        tag: None,
        options: 3,
        id: 7,
        sequence: u32::MAX - 100,
        push: true,
        segment: 1448,
        payload: vec![7; 4000],
    };
    let packets = stream.cut();
    let (run, _) = join(&packets).expect("a TCP segment");
    let mut joint = vec![0; MAX_HEADER_BYTES];
    let bytes = run.write_header(&packets[0], packets.last().unwrap(), &mut joint);
    joint.truncate(bytes);
    joint.extend(&stream.payload);
    assert_eq!(verify_l4(&[&joint]), Verdict::Unfinished);
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
