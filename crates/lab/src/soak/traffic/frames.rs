//! Traffic by the lab itself: datagrams of any size, broadcasts, and frames nobody should send.

use std::net::{SocketAddr, UdpSocket};

use forebay_testbed::frame::{BROADCAST, Frame};
use forebay_testbed::packet_io::FrameSocket;
use forebay_testbed::programs::udp;
use forebay_testbed::{LabError, Result};

use super::{Source, count};

const DATAGRAMS: u64 = 1000;
/// Longer than an MTU, so that some are fragmented.
const DATAGRAM_BYTES: usize = 4000;
/// UDP's discard port: nobody listens, and the answers are ICMP errors.
const DISCARD: u16 = 9;
/// A broadcast is a copy for every port, so these come in small bursts.
const BROADCASTS: u64 = 32;
const RUBBISH: u64 = 256;
const FRAME_BYTES: usize = 1514;
/// The first two bytes of the addresses that rubbish is sent from: no host's, so that none is learned at a wrong port.
const VANDALS: [u8; 2] = [0x02, 0xbb];

/// A burst of UDP datagrams, too fast for the receiver.
pub(super) fn datagrams(source: &mut Source) {
    let (from, to) = source.any_pair();
    let v6 = source.random.bool();
    let there = SocketAddr::new(source.hosts.get(to).address(v6), DISCARD);
    let bytes = vec![0x5a; source.random.usize(1..DATAGRAM_BYTES)];
    let opened = {
        let host = source.hosts.get(from);
        udp::socket(&host, host.address(v6), 0)
    };
    // While a neighbour that is away is looked for, the socket's buffer fills up: then the burst is over.
    if let Ok(socket) = opened.and_then(without_blocking) {
        let sent = (0..DATAGRAMS).take_while(|_| socket.send_to(&bytes, there).is_ok()).count();
        count(&source.tally.datagrams, sent as u64);
    }
    source.pause(50);
}

fn without_blocking(socket: UdpSocket) -> Result<UdpSocket> {
    let done = socket.set_nonblocking(true);
    done.map(|()| socket).map_err(|error| LabError::system("making a socket non-blocking", error))
}

/// A burst of broadcasts from one host.
pub(super) fn broadcasts(source: &mut Source) {
    let host = source.random.usize(..source.hosts.len());
    let mac = source.hosts.get(host).mac();
    let size = source.random.usize(46..1400);
    let frame = Frame::marked(mac, BROADCAST, 0).payload_bytes(size).build();
    let sent = send(source, host, BROADCASTS, |_| frame.clone());
    count(&source.tally.broadcasts, sent);
    source.pause(100);
}

/// A burst of random frames from one host: any length, any content, some with the beginning of a real packet.
pub(super) fn rubbish(source: &mut Source) {
    let host = source.random.usize(..source.hosts.len());
    let known = source.random.usize(..source.hosts.len());
    let known = source.hosts.get(known).mac();
    let sent = send(source, host, RUBBISH, |random| random_frame(random, known));
    count(&source.tally.rubbish, sent);
    source.pause(100);
}

/// Sends frames while the host's link lasts; how many went out.
fn send(
    source: &mut Source,
    host: usize,
    frames: u64,
    mut make: impl FnMut(&mut fastrand::Rng) -> Vec<u8>,
) -> u64 {
    let Ok(socket) = FrameSocket::open(&source.hosts.get(host)) else { return 0 };
    (0..frames).take_while(|_| socket.send(&make(&mut source.random)).is_ok()).count() as u64
}

fn random_frame(random: &mut fastrand::Rng, known: [u8; 6]) -> Vec<u8> {
    let mut frame = vec![0; random.usize(14..=FRAME_BYTES)];
    random.fill(&mut frame);
    match random.u8(..4) {
        0 => frame[..6].copy_from_slice(&known),
        1 => frame[..6].copy_from_slice(&BROADCAST),
        _ => {}
    }
    frame[6..8].copy_from_slice(&VANDALS);
    // EtherTypes that make the switch look further: IPv4, IPv6, both tags, a length.
    let ethertypes = [0x0800u16, 0x86dd, 0x8100, 0x88a8, 0x0040];
    if let Some(ethertype) = ethertypes.get(random.usize(..8)) {
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rubbish_never_claims_a_hosts_address_as_its_own() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..1000 {
            let frame = random_frame(&mut random, [2, 0xfb, 0, 0, 0, 1]);
            assert!((14..=FRAME_BYTES).contains(&frame.len()));
            assert_eq!(frame[6..8], VANDALS);
        }
    }
}
