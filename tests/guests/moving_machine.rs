//! A virtual machine in QEMU that is moved to another vhost-user port and back, in the middle of a stream, and whose switch
//! is then replaced.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use forebay_control::port::PortState;
use forebay_testbed::dut::{self, Dut as _, Forebay, ForebayOptions};
use forebay_testbed::moving::{MovingMachine, PAIRS, Rings};
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::{Host, Lab, LabError, PortKind, Result, wait};

use crate::{LIMIT, Outcome};

const PORTS: [&str; 2] = ["vm1", "vm2"];
/// Of all pairs.
const QUEUES: [u32; 2 * PAIRS as usize] = [0, 1, 2, 3];
const V4: Ipv4Addr = Ipv4Addr::new(10, 66, 200, 1);
const ECHO_PORT: u16 = 7;
/// From the machine and back before it moves first, and after each time.
const STEP_BYTES: u64 = 4 << 20;
/// The stream ends by itself then.
const MOST_BYTES: u64 = 1 << 34;
const BLOCK_BYTES: usize = 64 << 10;
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(60);
const PINGS: u32 = 10;

/// The stream goes on after each move, and every byte comes back as it was sent.
pub fn go_on(rings: Rings) -> Outcome {
    let mut lab = Lab::new("moving")?;
    let host = lab.host("h1", PortKind::VethTcx)?;
    let sockets = PORTS.map(|port| lab.path(&format!("{port}.sock")));
    let mut forebay = start(&lab, &host, &sockets)?;
    let script = format!("$b ip addr add {V4}/16 dev eth0; $b nc -ll -p {ECHO_PORT} -e $b cat &");
    let mut machine = MovingMachine::boot(&lab, &sockets[0], rings, &script)?;
    let answers = || Ping::new(V4).from(&host).is_ok_and(|report| report.is_complete());
    wait::until("the machine to answer", LIMIT, answers)?;
    wait::until("its driver to use all queues", SILENCE, || {
        forebay
            .client()
            .port(PORTS[0])
            .is_ok_and(|port| port.vhost_user.unwrap_or_default().running == QUEUES)
    })?;
    let stream = Echo::default();
    std::thread::scope(|scope| {
        let streaming = scope.spawn(|| stream.run(&host));
        let moved = [1, 0].into_iter().try_for_each(|to| {
            stream.wait_for_more()?;
            machine.move_to(&sockets[to])?;
            stream.wait_for_more()?;
            let [here, left] = [PORTS[to], PORTS[1 - to]];
            forebay.client().wait_port_state(here, PortState::Up)?;
            // The last emulator has ended.
            forebay.client().wait_port_state(left, PortState::Waiting)
        });
        stream.is_over.store(true, Ordering::Relaxed);
        let streamed = streaming.join().expect("a stream does not panic");
        moved.and(streamed)
    })?;
    assert!(forebay.client().stats_check()?.balanced);
    forebay.stop()?;
    let forebay = start(&lab, &host, &sockets)?;
    wait::until("the machine to answer again", SILENCE, answers)?;
    let report = Ping::new(V4).count(PINGS).from(&host)?;
    assert!(report.is_complete(), "{report:?}");
    assert!(forebay.client().stats_check()?.balanced);
    Ok(())
}

/// A switch with all ports.
fn start(lab: &Lab, host: &Host, sockets: &[PathBuf]) -> Result<Forebay> {
    let mut forebay = Forebay::start(lab, ForebayOptions::default())?;
    forebay.add_ports(&dut::ports_of([host]))?;
    for (port, socket) in PORTS.iter().zip(sockets) {
        let (path, pairs) = (socket.to_string_lossy(), PAIRS.to_string());
        forebay.client().ok(&["port", "add", port, "--vhost-user", &path, "--queues", &pairs])?;
    }
    Ok(forebay)
}

/// A stream that the machine sends back.
#[derive(Default)]
struct Echo {
    came_back: AtomicU64,
    is_over: AtomicBool,
}

impl Echo {
    /// Sends until it is over, and compares what comes back.
    fn run(&self, host: &Host) -> Result<()> {
        let lost = |error| LabError::system("a stream to the machine and back", error);
        let connect = || TcpStream::connect_timeout(&(V4, ECHO_PORT).into(), CONNECT_LIMIT);
        let stream =
            wait::until_some("the machine's echo", CONNECT_LIMIT, || host.netns().enter(connect).ok()?.ok())?;
        for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
            set(&stream, Some(SILENCE)).map_err(lost)?;
        }
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| self.send(&stream));
            let received = self.receive(&stream);
            let sent = sending.join().expect("sending does not panic");
            sent.and_then(|sent| Ok((sent, received?))).map_err(lost)
        })
        .map(|(sent, received)| assert_eq!(sent, received, "bytes came back"))
    }

    fn send(&self, mut stream: &TcpStream) -> std::io::Result<u64> {
        let mut block = vec![0; BLOCK_BYTES];
        let mut sent = 0;
        while sent < MOST_BYTES && !self.is_over.load(Ordering::Relaxed) {
            fill(&mut block, sent);
            stream.write_all(&block)?;
            sent += block.len() as u64;
        }
        stream.shutdown(std::net::Shutdown::Write)?;
        Ok(sent)
    }

    fn receive(&self, mut stream: &TcpStream) -> std::io::Result<u64> {
        let (mut block, mut sent) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
        let mut received = 0;
        loop {
            let count = stream.read(&mut block)?;
            if count == 0 {
                return Ok(received);
            }
            fill(&mut sent[..count], received);
            assert!(block[..count] == sent[..count], "bytes from {received} on came back changed");
            received += count as u64;
            self.came_back.store(received, Ordering::Relaxed);
        }
    }

    fn wait_for_more(&self) -> Result<()> {
        let target = self.came_back.load(Ordering::Relaxed) + STEP_BYTES;
        wait::until("the stream to go on", SILENCE, || self.came_back.load(Ordering::Relaxed) >= target)
    }
}

/// Bytes of the stream from this position on: no page is like another.
fn fill(bytes: &mut [u8], position: u64) {
    for (at, byte) in (position..).zip(bytes) {
        *byte = (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    }
}
