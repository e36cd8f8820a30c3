//! A relay between a guest's front end and its switch. Messages of vhost-user pass through it with their descriptors; packets
//! do not, because they lie in memory that both ends map.
//!
//! It gives Linux in user mode what other front ends do by themselves. That kernel takes its NIC away for good when the
//! switch is gone. Behind a relay it does not notice: the relay waits for the next switch and says again what the guest has
//! said. And where a switch offers features that it does not serve, the relay withholds them.
//!
//! ```text
//!   guest ──► relay ──► switch        the relay listens at `guest`
//!     └─── memory ───────┘
//! ```

mod message;

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::{LabError, Result};
use message::{Message, request};

/// Between two attempts to connect, in milliseconds.
const PAUSE_MS: u16 = 10;
/// What the switch notes of packed rings for the next one: entries of a ring, and rings, that of control included.
const NOTED_RING: u16 = 256;
const NOTED_RINGS: u16 = 3;

/// How to find the switch, and what to change.
#[derive(Debug, Clone, Default)]
pub struct RelayOptions {
    /// The switch connects to its socket. Otherwise it listens there.
    pub switch_connects: bool,
    /// Bits of features that the guest is not told of.
    pub withheld: u64,
    /// Keeps notes of one switch for the next (INFLIGHT), which packed rings need.
    pub keeps_notes: bool,
}

/// A relay for one guest. It ends with the guest's connection, or when dropped.
#[derive(Debug)]
pub struct Relay {
    bell: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Listens for the guest at `guest`; the switch's socket is `switch`.
    ///
    /// # Errors
    /// One of the sockets cannot be made.
    pub fn start(guest: &Path, switch: &Path, options: &RelayOptions) -> Result<Relay> {
        let listen = |path: &Path| {
            let listener = UnixListener::bind(path)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let failed = |error: io::Error| LabError::system("making a relay's socket", error);
        let front = listen(guest).map_err(failed)?;
        let switch = match options.switch_connects {
            true => Switch::Comes(listen(switch).map_err(failed)?),
            false => Switch::Listens(switch.to_owned()),
        };
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let bell = Arc::new(bell.map_err(|errno| LabError::system("making an eventfd", errno))?);
        let (seen, options) = (Arc::clone(&bell), options.clone());
        let thread = std::thread::spawn(move || {
            let both = Ends { bell: seen, switch, options, said: Vec::new(), asked: None };
            both.carry(&front);
        });
        Ok(Relay { bell, thread: Some(thread) })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.bell.write(1);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[derive(Debug)]
enum Switch {
    Listens(PathBuf),
    Comes(UnixListener),
}

/// What the thread has.
#[derive(Debug)]
struct Ends {
    bell: Arc<EventFd>,
    switch: Switch,
    options: RelayOptions,
    /// What the guest said last of each kind and queue, in the order of the first time.
    said: Vec<Message>,
    /// What waits for a reply.
    asked: Option<Message>,
}

impl Ends {
    /// Carries messages until the guest goes, or the relay is to end.
    fn carry(mut self, front: &UnixListener) {
        let Some(guest) = self.until_some(|| front.accept().ok().map(|(stream, _)| stream)) else { return };
        while let Some(switch) = self.until_some(|| self.connected()) {
            match self.carry_between(&guest, &switch) {
                Ok(Gone::Switch) => {}
                Ok(Gone::Guest) | Err(_) => return,
            }
        }
    }

    fn connected(&self) -> Option<UnixStream> {
        match &self.switch {
            Switch::Listens(path) => UnixStream::connect(path).ok(),
            Switch::Comes(listener) => listener.accept().ok().map(|(stream, _)| stream),
        }
    }

    /// Tries again and again; `None` when the relay is to end.
    fn until_some<T>(&self, attempt: impl Fn() -> Option<T>) -> Option<T> {
        loop {
            if let Some(found) = attempt() {
                return Some(found);
            }
            let mut bell = [PollFd::new(self.bell.as_fd(), PollFlags::POLLIN)];
            if poll(&mut bell, PollTimeout::from(PAUSE_MS)) != Ok(0) {
                return None;
            }
        }
    }

    /// Says again what the guest has said, then carries messages until one end goes.
    ///
    /// # Errors
    /// That of the guest's connection.
    fn carry_between(&mut self, guest: &UnixStream, switch: &UnixStream) -> io::Result<Gone> {
        let again = self.said.iter().map(Message::without_reply).chain(self.asked.iter().map(Message::again));
        if again.map(|message| message.send(switch)).any(|sent| sent.is_err()) {
            return Ok(Gone::Switch);
        }
        loop {
            let mut ends = [guest.as_fd(), switch.as_fd(), self.bell.as_fd()]
                .map(|end| PollFd::new(end, PollFlags::POLLIN));
            poll(&mut ends, PollTimeout::NONE)?;
            let [from_guest, from_switch, over] = ends.map(|end| end.any().unwrap_or(true));
            if over {
                return Ok(Gone::Guest);
            }
            if from_switch {
                let Ok(Some(reply)) = Message::receive(switch) else { return Ok(Gone::Switch) };
                self.answer(reply).send(guest)?;
                if self.keep_notes(switch).is_err() {
                    return Ok(Gone::Switch);
                }
            } else if from_guest {
                let Some(message) = Message::receive(guest)? else { return Ok(Gone::Guest) };
                if self.ask(message, switch).is_err() {
                    return Ok(Gone::Switch);
                }
            }
        }
    }

    /// Passes on what the guest says, and remembers it.
    fn ask(&mut self, message: Message, switch: &UnixStream) -> io::Result<()> {
        let mut message = message;
        if self.options.keeps_notes && message.request() == request::SET_PROTOCOL_FEATURES {
            message.add_bits(message::INFLIGHT);
        }
        let sent = message.send(switch);
        match message.wants_reply() {
            true => self.asked = Some(message),
            false => self.remember(message),
        }
        sent
    }

    /// What the guest is told of the switch's reply.
    fn answer(&mut self, mut reply: Message) -> Message {
        if reply.request() == request::GET_FEATURES {
            reply.remove_bits(self.options.withheld);
        }
        if let Some(asked) = self.asked.take() {
            self.remember(asked);
        }
        reply
    }

    fn remember(&mut self, message: Message) {
        if !message.sets() {
            return;
        }
        match self.said.iter_mut().find(|said| said.is_of_kind(&message)) {
            Some(said) => *said = message,
            None => self.said.push(message),
        }
    }

    /// Has the first switch make a file for notes once it knows the guest's memory, and gives it the file.
    fn keep_notes(&mut self, switch: &UnixStream) -> io::Result<()> {
        let knows = |request| self.said.iter().any(|said| said.request() == request);
        if !self.options.keeps_notes || !knows(request::SET_MEM_TABLE) || knows(request::SET_INFLIGHT_FD) {
            return Ok(());
        }
        Message::ask_for_notes(NOTED_RINGS, NOTED_RING).send(switch)?;
        let made = Message::receive(switch)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let notes = made.into_notes();
        notes.send(switch)?;
        self.remember(notes);
        Ok(())
    }
}

/// Who closed the connection.
#[derive(Debug, PartialEq, Eq)]
enum Gone {
    Guest,
    Switch,
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::wait;
    use std::time::Duration;

    const LIMIT: Duration = Duration::from_secs(10);

    fn message(request: u32, flags: u32, body: &[u64]) -> Vec<u8> {
        let header = [request, flags, 8 * body.len() as u32];
        let body = body.iter().flat_map(|number| number.to_ne_bytes());
        header.iter().flat_map(|number| number.to_ne_bytes()).chain(body).collect()
    }

    fn read(stream: &mut UnixStream, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_the_guest_said_last_is_said_to_the_next_switch_and_features_are_withheld() {
        let directory = tempfile::tempdir().unwrap();
        let (front, back) = (directory.path().join("front"), directory.path().join("back"));
        let listener = UnixListener::bind(&back).unwrap();
        let options = RelayOptions { withheld: 0b100, ..RelayOptions::default() };
        let _relay = Relay::start(&front, &back, &options).unwrap();
        let mut guest = wait::until_some("the relay", LIMIT, || UnixStream::connect(&front).ok()).unwrap();
        let mut switch = listener.accept().unwrap().0;
        for stream in [&guest, &switch] {
            stream.set_read_timeout(Some(LIMIT)).unwrap();
        }

        let ask = message(request::GET_FEATURES, 1, &[]);
        guest.write_all(&ask).unwrap();
        assert_eq!(read(&mut switch, ask.len()), ask);
        switch.write_all(&message(request::GET_FEATURES, 5, &[0b110])).unwrap();
        let told = message(request::GET_FEATURES, 5, &[0b010]);
        assert_eq!(read(&mut guest, told.len()), told);

        // Twice of the same kind, then one that wants a reply and gets none.
        let (first, last) =
            (message(request::SET_FEATURES, 1, &[1]), message(request::SET_FEATURES, 1, &[2]));
        let wanted = message(8, 9, &[3]);
        for said in [&first, &last, &wanted] {
            guest.write_all(said).unwrap();
            assert_eq!(&read(&mut switch, said.len()), said);
        }
        drop(switch);
        let mut switch = listener.accept().unwrap().0;
        switch.set_read_timeout(Some(LIMIT)).unwrap();
        assert_eq!(read(&mut switch, last.len()), last);
        assert_eq!(read(&mut switch, wanted.len()), wanted);
    }
}
