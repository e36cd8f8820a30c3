//! The pump: two taps, one in the switch's namespace and one in the host's, and threads that carry packets across.
//!
//! It stands where a virtual machine monitor stands between a tap and a guest's virtio-net device. Packets keep
//! their virtio-net header, so that TSO packets cross whole and checksums stay unfinished, as they do with a guest.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::netns::Netns;
use crate::sys::tap;
use crate::{LabError, Result};

/// The longest GSO packet, with its Ethernet and virtio-net header.
const PACKET_BYTES: usize = 65536 + 64;

/// Two taps and what carries packets between them; dropping it makes both taps vanish.
#[derive(Debug)]
pub struct TapPump {
    stop: Arc<EventFd>,
    threads: Vec<JoinHandle<()>>,
}

impl TapPump {
    /// Makes both taps and starts to carry.
    ///
    /// # Errors
    /// When a tap can't be made.
    pub fn start(here: &Netns, here_name: &str, there: &Netns, there_name: &str) -> Result<TapPump> {
        let (one, other) = (open(here, here_name)?, open(there, there_name)?);
        let stop = EventFd::from_flags(EfdFlags::EFD_CLOEXEC)
            .map_err(|errno| LabError::system("making an eventfd", errno))?;
        let stop = Arc::new(stop);
        let threads =
            vec![carry(one.try_clone(), other.try_clone(), &stop)?, carry(Ok(other), Ok(one), &stop)?];
        Ok(TapPump { stop, threads })
    }
}

impl Drop for TapPump {
    fn drop(&mut self) {
        // An eventfd takes a 1 unless it is nearly full, and then the threads are awake already.
        let _ = self.stop.write(1);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn open(netns: &Netns, name: &str) -> Result<File> {
    netns
        .enter(|| tap::open(name))?
        .map_err(|error| LabError::system(format!("making the tap {name}"), error))
}

fn carry(from: io::Result<File>, to: io::Result<File>, stop: &Arc<EventFd>) -> Result<JoinHandle<()>> {
    let copied =
        |file: io::Result<File>| file.map_err(|error| LabError::system("copying a tap handle", error));
    let (from, to, stop) = (copied(from)?, copied(to)?, Arc::clone(stop));
    Ok(std::thread::spawn(move || carry_until_stopped(&from, &to, &stop)))
}

fn carry_until_stopped(mut from: &File, mut to: &File, stop: &EventFd) {
    let mut packet = vec![0; PACKET_BYTES];
    while wait_readable(from, stop) {
        match from.read(&mut packet) {
            // A tap that is down refuses packets, as a cable that is pulled loses them.
            Ok(length) if length >= tap::VNET_HEADER_BYTES => drop(to.write(&packet[..length])),
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::EBADFD) => return,
            Err(_) => {}
        }
    }
}

/// False when it is time to stop.
fn wait_readable(from: &File, stop: &EventFd) -> bool {
    let mut sources =
        [PollFd::new(from.as_fd(), PollFlags::POLLIN), PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
    match poll(&mut sources, PollTimeout::NONE) {
        Ok(_) => sources[1].revents().is_some_and(|events| events.is_empty()),
        Err(errno) => errno == nix::errno::Errno::EINTR,
    }
}
