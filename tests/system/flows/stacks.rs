//! A rule sees what the receiver will see: no tag, no extension header and no fragment hides a datagram from it.
//!
//! The receiver is a Linux host with a UDP socket on port 7. Without a rule its socket says which shapes of a datagram
//! it takes. With a rule that drops UDP to port 7, none of them may get there, in user space or in the kernel.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::Duration;

use forebay_testbed::frame::{self, Frame, TPID_C, TPID_S};
use forebay_testbed::packet_io::FrameSocket;
use forebay_testbed::programs::udp;
use forebay_testbed::{Host, Result, wait};

use super::INSTALL_LIMIT;
use crate::bed::{Bed, Oracle, with_offload};
use crate::harness::{Outcome, Subject, Suite};

const ECHO: u16 = 7;
const ALLOWED: u16 = 9;
const FROM_PORT: u16 = 40_000;
const ARRIVAL_LIMIT: Duration = Duration::from_secs(3);

pub fn register(suite: &mut Suite) {
    suite.on_forebay("no_shape_of_a_datagram_gets_around_a_rule_in_user_space", in_user_space);
    suite.on_netdevs("no_shape_of_a_datagram_gets_around_a_rule_in_the_kernel", in_the_kernel);
    suite.on_forebay("a_rule_names_packets_by_the_kinds_of_their_tags", by_kind);
}

/// How a datagram looks on the wire, and what becomes of it under the rule.
struct Shape {
    what: &'static str,
    frames: Frames,
    /// The reason for which the first frame is dropped.
    reason: &'static str,
    /// Whether the program of a tcx port tells its class.
    is_classed: bool,
}

/// What is sent for a datagram to this port with this in it.
type Frames = Box<dyn Fn(&Ends, u16, u32) -> Vec<Vec<u8>>>;

/// Addresses of sender and receiver.
struct Ends {
    macs: [[u8; 6]; 2],
    v4: [[u8; 4]; 2],
    v6: [[u8; 16]; 2],
}

impl Ends {
    fn of(hosts: &[Host]) -> Ends {
        let of = |host: usize| &hosts[host];
        Ends {
            macs: [of(0).mac(), of(1).mac()],
            v4: [of(0).v4().octets(), of(1).v4().octets()],
            v6: [of(0).v6().octets(), of(1).v6().octets()],
        }
    }

    /// An IPv4 packet with a datagram.
    fn v4(&self, port: u16, mark: u32) -> Vec<u8> {
        let [from, to] = self.v4;
        frame::ipv4_udp((from, FROM_PORT), (to, port), &payload(mark))
    }

    /// An IPv6 packet with a datagram behind these extension headers.
    fn v6(&self, port: u16, mark: u32, extensions: &[u8]) -> Vec<u8> {
        let [from, to] = self.v6;
        let mut packet = frame::ipv6_udp((from, FROM_PORT), (to, port), &payload(mark));
        let next: Vec<u8> = extensions.iter().skip(1).copied().chain([17]).collect();
        // Each is filled with a padding option of four bytes.
        let headers: Vec<u8> = next.iter().flat_map(|next| [*next, 0, 1, 4, 0, 0, 0, 0]).collect();
        if let Some(first) = extensions.first() {
            packet[6] = *first;
            packet.splice(40..40, headers);
            let length = u16::try_from(packet.len() - 40).expect("a test's packets are short");
            packet[4..6].copy_from_slice(&length.to_be_bytes());
        }
        packet
    }

    fn frame(&self, tags: &[(u16, u16)], ethertype: u16, packet: &[u8]) -> Vec<u8> {
        let frame = Frame::carrying(self.macs[0], self.macs[1], ethertype, packet);
        tags.iter().fold(frame, |frame, (protocol, tci)| frame.tag(*protocol, *tci)).build()
    }
}

/// Long enough to be cut into fragments.
fn payload(mark: u32) -> Vec<u8> {
    let mut payload = mark.to_be_bytes().to_vec();
    payload.resize(32, 0);
    payload
}

/// An IPv4 packet cut after so many bytes of what it carries. A receiver puts fragments with the same `id` together.
fn fragments(packet: &[u8], first_bytes: usize, id: u32) -> [Vec<u8>; 2] {
    let (header, carried) = packet.split_at(20);
    let (first, second) = carried.split_at(first_bytes);
    let fragment = |bytes: &[u8], word: u16| {
        let mut header = header.to_vec();
        let length = u16::try_from(20 + bytes.len()).expect("a test's packets are short");
        header[2..4].copy_from_slice(&length.to_be_bytes());
        header[4..6].copy_from_slice(&id.to_be_bytes()[2..]);
        header[6..8].copy_from_slice(&word.to_be_bytes());
        header[10..12].fill(0);
        let sum = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum::<u32>();
        let sum = (sum & 0xffff) + (sum >> 16);
        header[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
        [&header, bytes].concat()
    };
    let offset = u16::try_from(first_bytes / 8).expect("a test's packets are short");
    [fragment(first, 0x2000), fragment(second, offset)]
}

const Q0: (u16, u16) = (TPID_C, 0);
const AD0: (u16, u16) = (TPID_S, 0);

/// Those that a Linux receiver hands to its socket.
fn shapes() -> Vec<Shape> {
    let v4 = |what, tags: &'static [(u16, u16)], reason, is_classed| Shape {
        what,
        frames: Box::new(move |ends, port, mark| vec![ends.frame(tags, 0x0800, &ends.v4(port, mark))]),
        reason,
        is_classed,
    };
    let v6 = |what, tags: &'static [(u16, u16)], extensions: &'static [u8], reason| Shape {
        what,
        frames: Box::new(move |ends, port, mark| {
            vec![ends.frame(tags, 0x86dd, &ends.v6(port, mark, extensions))]
        }),
        reason,
        is_classed: extensions.is_empty(),
    };
    let cut = |what, tags: &'static [(u16, u16)]| Shape {
        what,
        frames: Box::new(move |ends, port, mark| {
            let fragments = fragments(&ends.v4(port, mark), 8, mark);
            fragments.map(|packet| ends.frame(tags, 0x0800, &packet)).to_vec()
        }),
        reason: "by_rule",
        is_classed: true,
    };
    vec![
        v4("plain", &[], "by_rule", true),
        v4("one 802.1Q tag", &[Q0], "by_rule", true),
        v4("two 802.1Q tags", &[Q0, Q0], "by_rule", true),
        v4("an 802.1ad tag", &[AD0], "by_rule", true),
        v4("802.1ad and 802.1Q", &[AD0, Q0], "by_rule", true),
        v4("three tags", &[Q0, AD0, Q0], "by_rule", true),
        v4("four 802.1ad tags", &[AD0; 4], "by_rule", true),
        v4("six 802.1ad tags", &[AD0; 6], "undecidable", false),
        v4("seven 802.1Q tags", &[Q0; 7], "undecidable", false),
        v6("IPv6", &[], &[], "by_rule"),
        v6("IPv6 behind two tags", &[AD0, Q0], &[], "by_rule"),
        v6("destination options", &[], &[60], "by_rule"),
        v6("destination options behind two tags", &[AD0, Q0], &[60], "by_rule"),
        v6("eight extension headers", &[], &[60; 8], "by_rule"),
        v6("nine extension headers", &[], &[60; 9], "undecidable"),
        cut("two fragments", &[]),
        cut("two fragments behind two tags", &[Q0, AD0]),
    ]
}

struct Scene {
    bed: Bed,
    hosts: Vec<Host>,
    ends: Ends,
    sender: FrameSocket,
    /// On the port of the rule, and on another.
    sockets: [UdpSocket; 2],
    next_mark: u32,
}

impl Scene {
    fn new(subject: Subject) -> std::result::Result<Scene, Box<dyn std::error::Error>> {
        let (mut bed, hosts) = Bed::with_hosts(subject, 2)?;
        hosts[0].silence()?;
        bed.client().ok(&["fdb", "add", &hosts[1].mac_text(), "--port", "h2"])?;
        let any = std::net::Ipv6Addr::UNSPECIFIED.into();
        let sockets = [udp::socket(&hosts[1], any, ECHO)?, udp::socket(&hosts[1], any, ALLOWED)?];
        let sender = FrameSocket::open(&hosts[0])?;
        let ends = Ends::of(&hosts);
        Ok(Scene { bed, hosts, ends, sender, sockets, next_mark: 1 })
    }

    /// Sends a datagram of this shape to a port. Returns what it was marked with and which counters moved.
    fn send(&mut self, shape: &Shape, port: u16) -> Result<(u32, Oracle)> {
        let mark = self.next_mark;
        self.next_mark += 1;
        let frames = (shape.frames)(&self.ends, port, mark);
        let client = self.bed.client();
        let received = || client.port("h1").map(|port| port.counters.rx_packets);
        let ((), counted) = self.bed.watch(|_| {
            let wanted = received()? + frames.len() as u64;
            frames.iter().try_for_each(|frame| self.sender.send(frame))?;
            // On their way through a tap they are in no counter.
            wait::until("the frames to be received", ARRIVAL_LIMIT, || {
                received().is_ok_and(|got| got >= wanted)
            })
        })?;
        Ok((mark, counted))
    }

    /// That the socket gets a datagram of this shape; says whether the kernel carried it.
    fn arrives(&mut self, shape: &Shape, port: u16) -> Result<bool> {
        let (mark, counted) = self.send(shape, port)?;
        let socket = &self.sockets[usize::from(port != ECHO)];
        let got = received(socket, ARRIVAL_LIMIT);
        assert_eq!(got, Some(mark), "{} to port {port}\n{counted}", shape.what);
        Ok(counted.moved("h1", "offloaded_packets") > Some(0))
    }

    /// That nothing of this shape gets to the socket, and that the drop is counted; says whether the kernel dropped it.
    fn is_dropped(&mut self, shape: &Shape) -> Result<bool> {
        let (_, counted) = self.send(shape, ECHO)?;
        assert_eq!(counted.moved("h1", shape.reason), Some(1), "{}\n{counted}", shape.what);
        let got = received(&self.sockets[0], Duration::from_millis(1));
        assert_eq!(got, None, "{}\n{counted}", shape.what);
        Ok(counted.moved("h1", "offloaded_packets") > Some(0))
    }
}

/// What the next datagram was marked with.
fn received(socket: &UdpSocket, limit: Duration) -> Option<u32> {
    let mut bytes = [0; 64];
    socket.set_read_timeout(Some(limit)).expect("not zero");
    match socket.recv(&mut bytes) {
        Ok(_) => bytes.first_chunk().map(|mark| u32::from_be_bytes(*mark)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
        Err(error) => panic!("receiving a datagram: {error}"),
    }
}

fn in_user_space(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject)?;
    let client = scene.bed.client();
    for shape in shapes() {
        scene.arrives(&shape, ECHO)?;
    }
    client.ok(&drop_echo())?;
    for shape in shapes() {
        assert!(!scene.is_dropped(&shape)?, "{}: the fast path is off", shape.what);
        if shape.reason == "by_rule" {
            scene.arrives(&shape, ALLOWED)?;
        }
    }
    Ok(padded_fragment(&mut scene)?)
}

fn drop_echo() -> [&'static str; 10] {
    ["flow", "add", "--priority", "10", "--ip-proto", "udp", "--dport", "7", "--action", "drop"]
}

/// A first fragment without ports, behind which padding would pass for such.
fn padded_fragment(scene: &mut Scene) -> Result<()> {
    let frames = |ends: &Ends, port, mark| {
        let mut packet = fragments(&ends.v4(port, mark), 8, mark)[0].clone();
        packet[3] = 20;
        vec![ends.frame(&[], 0x0800, &packet)]
    };
    let what = "a first fragment that ends before its ports";
    let shape = Shape { what, frames: Box::new(frames), reason: "undecidable", is_classed: false };
    scene.is_dropped(&shape).map(drop)
}

fn in_the_kernel(subject: Subject) -> Outcome {
    let mut scene = with_offload(|| Scene::new(subject))?;
    let client = scene.bed.client();
    for shape in &shapes() {
        let carried = || scene.arrives(shape, ECHO).expect("it arrives before there is a rule");
        until(shape, true, carried)?;
    }
    client.ok(&drop_echo())?;
    for shape in &shapes() {
        let dropped = || scene.is_dropped(shape).expect("it can be sent");
        until(shape, shape.is_classed, dropped)?;
        if shape.reason == "by_rule" {
            scene.arrives(shape, ALLOWED)?;
        }
    }
    padded_fragment(&mut scene)?;
    // The same rule for another port makes other flows of the same packets.
    client.ok(&["flow", "del", "1"])?;
    for shape in &shapes() {
        scene.arrives(shape, ECHO)?;
    }
    assert_eq!(scene.hosts.len(), 2);
    Ok(())
}

/// Sends until the kernel has done it, where it does.
fn until(shape: &Shape, is_carried: bool, mut sent: impl FnMut() -> bool) -> Result<()> {
    if is_carried {
        wait::until(&format!("the kernel to know {}", shape.what), INSTALL_LIMIT, sent)
    } else {
        (0..3).for_each(|_| assert!(!sent(), "{}: nobody expects the kernel to know it", shape.what));
        Ok(())
    }
}

fn by_kind(subject: Subject) -> Outcome {
    let mut scene = with_offload(|| Scene::new(subject))?;
    let client = scene.bed.client();
    let rule = ["flow", "add", "--priority", "10", "--ethertype", "0x88a8", "--ip-proto", "udp"];
    client.ok(&[&rule[..], &["--action", "drop"]].concat())?;
    let has_service_tag =
        |shape: &Shape| ["802.1ad", "three", "two tags"].iter().any(|kind| shape.what.contains(kind));
    for shape in shapes().iter().filter(|shape| shape.reason == "by_rule") {
        for _ in 0..3 {
            if has_service_tag(shape) {
                let (_, counted) = scene.send(shape, ECHO)?;
                assert!(counted.moved("h1", "by_rule") > Some(0), "{}\n{counted}", shape.what);
                assert_eq!(received(&scene.sockets[0], Duration::from_millis(1)), None, "{}", shape.what);
            } else {
                scene.arrives(shape, ECHO)?;
            }
        }
    }
    Ok(())
}
