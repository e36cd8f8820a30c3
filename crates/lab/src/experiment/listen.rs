//! One thread that hears what arrives at many hosts, all of them veths of one namespace.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_testbed::netns::Netns;
use forebay_testbed::sys::batch::Batch;
use forebay_testbed::sys::packet_socket::{PacketSocket, Tag};
use forebay_testbed::{LabError, Result};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// How often it looks whether it is over.
const LOOK_MS: u16 = 20;
/// Sockets told of by one call.
const EVENTS: usize = 64;

/// A socket on each of `q1` to `q<count>`, whose number less one is its place.
pub(super) fn sockets(hosts: &Netns, count: usize) -> Result<Vec<PacketSocket>> {
    let names: Vec<String> = (1..=count).map(|n| format!("q{n}")).collect();
    let open = |name: &String| {
        let ifindex = nix::net::if_::if_nametoindex(name.as_str())?;
        PacketSocket::open(ifindex)
    };
    let opened: std::io::Result<Vec<_>> = hosts.enter(|| names.iter().map(open).collect())?;
    opened.map_err(|error| LabError::system("packet sockets on the hosts' veths", error))
}

/// Has `q1` to `q<count>` take frames that XDP programs send them.
pub(super) fn take_frames(hosts: &Netns, count: usize) -> Result<()> {
    (1..=count).try_for_each(|n| hosts.ethtool(&format!("q{n}"), &["gro", "on"]).map(drop))
}

/// Tells `hear` of each frame, with the place of the socket it came from, until it is over and nothing comes any more.
pub(super) fn listen(
    sockets: &[PacketSocket],
    over: &AtomicBool,
    mut hear: impl FnMut(usize, &[u8], Option<Tag>),
) -> Result<()> {
    let failed = |errno| LabError::system("waiting for frames at many hosts", errno);
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
    for (place, socket) in sockets.iter().enumerate() {
        epoll.add(socket.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, place as u64)).map_err(failed)?;
    }
    let (mut events, mut batch) = ([EpollEvent::empty(); EVENTS], Batch::new());
    loop {
        let was_over = over.load(Ordering::SeqCst);
        let ready = match epoll.wait(&mut events, EpollTimeout::from(LOOK_MS)) {
            Ok(ready) => ready,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(errno) => return Err(failed(errno)),
        };
        for event in &events[..ready] {
            let place = event.data() as usize;
            // A netdev that goes away says so once.
            if batch.receive(&sockets[place]).unwrap_or(0) > 0 {
                batch.frames().for_each(|(frame, tag)| hear(place, frame, tag));
            }
        }
        if was_over && ready == 0 {
            return Ok(());
        }
    }
}
