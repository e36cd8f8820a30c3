//! Many hosts in one namespace: each is a veth with a MAC and an IPv4 address of its own.
//!
//! A namespace for each of thousands of hosts takes the kernel minutes to make and to clear away, and adds nothing to
//! what the switch sees. What must not happen is that hosts answer for each other, or reach each other without the
//! switch: sockets are bound to their host's veth, so that an answer counts only on the veth it belongs to; addresses
//! are told by the veth that has them; and whom they talk to is in another namespace. Neighbours are entered by hand,
//! because the kernel's table of them has room for a thousand on the whole machine.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_testbed::host::Host;
use forebay_testbed::lab::Lab;
use forebay_testbed::netns::Netns;
use forebay_testbed::programs::udp;
use forebay_testbed::{LabError, Result};
use nix::sys::socket::{setsockopt, sockopt};

/// Number of the first host; lower ones are a lab's ordinary hosts'.
const FIRST_NUMBER: u32 = 4096;
const SERVICE_PORT: u16 = 5004;
/// Hosts that speak at once.
const AT_ONCE: u32 = 64;
const TRIES: u32 = 3;
/// Time for the answers to all who spoke at once.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// How long the common host waits before it looks whether it is over.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The hosts, behind `p1`, `p2`, … in the switch's namespace.
#[derive(Debug)]
pub(super) struct Crowd {
    netns: Netns,
    count: u32,
}

/// Who was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reached {
    /// Hosts that had their answer, at some try.
    pub(super) hosts: u32,
    /// Those that had it at the first.
    pub(super) at_once: u32,
    pub(super) duration: Duration,
}

/// One host's socket.
struct Speaker {
    number: u32,
    socket: UdpSocket,
}

/// 10.66.x.y, beside the lab's ordinary hosts.
fn address(host: u32) -> Ipv4Addr {
    let [.., high, low] = (FIRST_NUMBER + host).to_be_bytes();
    Ipv4Addr::new(10, 66, high, low)
}

/// 02:fc, and the host's number.
fn mac(host: u32) -> String {
    let number = host.to_be_bytes().map(|byte| format!("{byte:02x}")).join(":");
    format!("02:fc:{number}")
}

impl Crowd {
    /// Makes the hosts, who know the common host as it knows them.
    pub(super) fn gather(lab: &Lab, count: u32, common: &Host) -> Result<Crowd> {
        let netns = lab.bulk_veths(count as usize)?;
        // An address is told only by the netdev that has it, and used only there.
        for (setting, value) in [("arp_ignore", "1"), ("arp_announce", "2")] {
            netns.set(&format!("ipv4/conf/all/{setting}"), value)?;
        }
        let (far, far_mac) = (common.v4(), common.mac_text());
        let mut lines = Vec::new();
        for n in 1..=count {
            lines.push(format!("link set q{n} address {}", mac(n)));
            lines.push(format!("addr add {}/32 dev q{n}", address(n)));
            lines.push(format!("neigh add {far} lladdr {far_mac} dev q{n} nud permanent"));
        }
        netns.ip_batch(&lines)?;
        let line = |n| format!("neigh add {} lladdr {} dev eth0 nud permanent", address(n), mac(n));
        common.netns().ip_batch(&(1..=count).map(line).collect::<Vec<_>>())?;
        Ok(Crowd { netns, count })
    }

    /// Lets every host ask the common host and wait for its answer.
    pub(super) fn reach(&self, common: &Host) -> Result<Reached> {
        let server = udp::socket(common, common.v4().into(), SERVICE_PORT)?;
        server.set_read_timeout(Some(LOOK_INTERVAL)).map_err(system("setting a timeout"))?;
        let target = SocketAddr::new(common.v4().into(), SERVICE_PORT);
        let (start, over) = (Instant::now(), AtomicBool::new(false));
        let counted = std::thread::scope(|scope| {
            scope.spawn(|| answer(&server, &over));
            let counted = self.ask_in_turns(target);
            over.store(true, Ordering::Relaxed);
            counted
        });
        let (hosts, at_once) = counted?;
        Ok(Reached { hosts, at_once, duration: start.elapsed() })
    }

    /// How many were answered, and how many of them at once.
    fn ask_in_turns(&self, target: SocketAddr) -> Result<(u32, u32)> {
        let (mut hosts, mut at_once) = (0, 0);
        for first in (1..=self.count).step_by(AT_ONCE as usize) {
            let turn = first..=self.count.min(first + AT_ONCE - 1);
            let speakers =
                self.netns.enter(|| turn.map(|n| speaker(n, target)).collect::<Result<Vec<_>>>())??;
            let answers = ask(speakers)?;
            hosts += answers.iter().sum::<u32>();
            at_once += answers[0];
        }
        Ok((hosts, at_once))
    }
}

fn system(what: &'static str) -> impl Fn(std::io::Error) -> LabError {
    move |error| LabError::system(what, error)
}

/// Sends back what comes, until it is over.
fn answer(server: &UdpSocket, over: &AtomicBool) {
    let mut datagram = [0; 64];
    while !over.load(Ordering::Relaxed) {
        if let Ok((length, from)) = server.recv_from(&mut datagram) {
            // What is lost here is asked for again.
            let _ = server.send_to(&datagram[..length], from);
        }
    }
}

/// A socket that sends and receives on one host's veth alone.
fn speaker(number: u32, target: SocketAddr) -> Result<Speaker> {
    let socket = UdpSocket::bind((address(number), 0)).map_err(system("binding a UDP socket"))?;
    setsockopt(&socket, sockopt::BindToDevice, &format!("q{number}").into())
        .map_err(|errno| LabError::system(format!("binding a socket to q{number}"), errno))?;
    socket.connect(target).map_err(system("connecting a UDP socket"))?;
    Ok(Speaker { number, socket })
}

/// Who was answered at each try.
fn ask(mut speakers: Vec<Speaker>) -> Result<[u32; TRIES as usize]> {
    let mut answers = [0; TRIES as usize];
    for answered in &mut answers {
        for speaker in &speakers {
            speaker.socket.send(&speaker.number.to_be_bytes()).map_err(system("sending a datagram"))?;
        }
        let (before, deadline) = (speakers.len(), Instant::now() + ANSWER_LIMIT);
        let mut left = Vec::new();
        for speaker in speakers {
            if !has_answer(&speaker, deadline)? {
                left.push(speaker);
            }
        }
        *answered = (before - left.len()) as u32;
        speakers = left;
    }
    Ok(answers)
}

/// Whether its own number comes back in time.
fn has_answer(speaker: &Speaker, deadline: Instant) -> Result<bool> {
    let mut datagram = [0; 64];
    // A timeout of zero would be none.
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    speaker.socket.set_read_timeout(Some(left)).map_err(system("setting a timeout"))?;
    match speaker.socket.recv(&mut datagram) {
        Ok(length) => Ok(datagram[..length] == speaker.number.to_be_bytes()),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(false),
        Err(error) => Err(LabError::system("waiting for an answer", error)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_hosts_have_the_same_addresses() {
        assert_eq!(address(1), Ipv4Addr::new(10, 66, 16, 1));
        assert_eq!(mac(258), "02:fc:00:00:01:02");
        let all: HashSet<_> = (1..=60000).map(address).collect();
        assert_eq!(all.len(), 60000);
    }
}
