//! The thread that writes what is saved, so that no request waits for a file while it has the lock of the control side.
//!
//! The control side hands over differences, which costs it no system call. The thread appends them to the file, all that
//! there are at once, and writes the file anew when the differences have outgrown the state that they add up to: then its
//! length is bounded by twice the state's and 64 KiB. A request that wants to be sure waits for its own difference, without the lock.
//!
//! The rule it keeps: what is in the file is a state that was, whenever the process is killed.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_control::saved::file::first_line;
use forebay_control::saved::{Change, SavedState};

use crate::SwitchError;
use crate::flows::{FlowBook, SettledFlow};
use crate::private_file;
use crate::supervise;

/// Differences beyond the state's own length, from which on the file is written anew.
const SLACK_BYTES: usize = 64 << 10;
/// How long a request waits for its difference; a disk that takes longer holds back nobody.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the control side hands over.
pub(in crate::control) struct Difference {
    pub(in crate::control) change: Change,
    /// How far flows had been settled, if what was counted is part of the difference.
    pub(in crate::control) settled: Vec<SettledFlow>,
}

#[derive(Default)]
struct Queue {
    differences: Vec<Difference>,
    /// Differences that were handed over, and of which it was tried to write them.
    handed_over: u64,
    tried: u64,
    /// Something is not in the file, and is to be tried again with the next difference.
    failed: bool,
    ended: bool,
}

/// Shared by the control side, the thread and requests that wait.
#[derive(Default)]
struct Desk {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Desk {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stops its thread when dropped, once all is written.
pub(in crate::control) struct Saver {
    path: PathBuf,
    desk: Arc<Desk>,
    /// What was handed over last.
    state: SavedState,
    thread: Option<JoinHandle<()>>,
}

/// A difference that a request made.
#[must_use = "without waiting nothing says that it is written"]
pub(crate) struct Ticket(Option<(Arc<Desk>, u64)>);

impl Ticket {
    /// There is nothing to wait for.
    pub(in crate::control) const NOTHING: Self = Self(None);

    /// Waits until it is written, or it was tried in vain; not for ever. The control side's lock must be free.
    pub(crate) fn wait(self) {
        let Some((desk, number)) = self.0 else { return };
        let waits = |queue: &mut Queue| queue.tried < number && !queue.ended;
        let waited = desk.changed.wait_timeout_while(desk.queue(), PATIENCE, waits);
        if waited.is_ok_and(|(_, waited)| waited.timed_out()) {
            tracing::warn!("what another daemon needs is not saved yet: the file takes long");
        }
    }
}

impl Saver {
    /// Starts the thread. What is in the file until the first difference stays there.
    pub(in crate::control) fn start(path: PathBuf, book: Arc<Mutex<FlowBook>>) -> Result<Self, SwitchError> {
        let desk = Arc::new(Desk::default());
        let mut writer = Writer::new(path.clone());
        let thread = supervise::spawn("saver".to_owned(), {
            let desk = Arc::clone(&desk);
            move || run(&desk, &mut writer, &book)
        })?;
        Ok(Self { path, desk, state: SavedState::default(), thread: Some(thread) })
    }

    /// What was saved last.
    pub(in crate::control) fn state(&self) -> &SavedState {
        &self.state
    }

    /// Hands over what differs.
    pub(in crate::control) fn save(&mut self, next: SavedState, settled: Vec<SettledFlow>) -> Ticket {
        let change = self.state.change_to(&next);
        self.state = next;
        let mut queue = self.desk.queue();
        // A difference that is not written yet is one to wait for, also where nothing was added to it.
        if !change.is_empty() || queue.failed {
            queue.differences.push(Difference { change, settled });
            queue.handed_over += 1;
            self.desk.changed.notify_all();
        }
        Ticket(Some((Arc::clone(&self.desk), queue.handed_over)))
    }

    /// Ends the thread and removes the file.
    pub(in crate::control) fn forget(self) {
        let path = self.path.clone();
        drop(self);
        let _ = std::fs::remove_file(path);
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        self.desk.queue().ended = true;
        self.desk.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(desk: &Desk, writer: &mut Writer, book: &Mutex<FlowBook>) {
    loop {
        let idle = |queue: &mut Queue| queue.differences.is_empty() && !queue.ended;
        let waited = desk.changed.wait_while(desk.queue(), idle);
        let mut queue = waited.unwrap_or_else(PoisonError::into_inner);
        let differences = std::mem::take(&mut queue.differences);
        let (number, ended) = (queue.handed_over, queue.ended);
        drop(queue);
        let mut failed = false;
        if !differences.is_empty() {
            let (changes, settled): (Vec<_>, Vec<_>) =
                differences.into_iter().map(|one| (one.change, one.settled)).unzip();
            failed = !writer.write(changes);
            if !failed {
                let book = book.lock().unwrap_or_else(PoisonError::into_inner);
                settled.iter().for_each(|flows| book.note_settled(flows));
            }
        }
        let mut queue = desk.queue();
        (queue.tried, queue.failed) = (number, failed);
        drop(queue);
        desk.changed.notify_all();
        if ended {
            return;
        }
    }
}

/// The file, and what it adds up to.
struct Writer {
    path: PathBuf,
    state: SavedState,
    /// `None`: it is to be written anew.
    file: Option<File>,
    /// Bytes of it, and how many there may be.
    bytes: usize,
    limit: usize,
    failed: bool,
}

impl Writer {
    fn new(path: PathBuf) -> Self {
        Self { path, state: SavedState::default(), file: None, bytes: 0, limit: 0, failed: false }
    }

    /// Says whether all is in the file.
    fn write(&mut self, changes: Vec<Change>) -> bool {
        let written = self.try_to_write(changes);
        if let Err(error) = &written {
            // Half a line may be there, behind which nothing counts.
            self.file = None;
            if !self.failed {
                let path = self.path.display();
                tracing::warn!(%error, %path, "what another daemon needs cannot be saved");
            }
        } else if self.failed {
            tracing::info!(path = %self.path.display(), "what another daemon needs is saved again");
        }
        self.failed = written.is_err();
        written.is_ok()
    }

    fn try_to_write(&mut self, changes: Vec<Change>) -> io::Result<()> {
        let mut lines = Vec::new();
        for change in changes {
            lines.extend(change.to_line()?);
            self.state.apply(change);
        }
        match &mut self.file {
            Some(file) if self.bytes + lines.len() <= self.limit => {
                file.write_all(&lines)?;
                self.bytes += lines.len();
            }
            _ => self.write_anew()?,
        }
        Ok(())
    }

    fn write_anew(&mut self) -> io::Result<()> {
        let all = whole_file(&self.state)?;
        self.file = Some(private_file::replace(&self.path, &all)?);
        (self.bytes, self.limit) = (all.len(), 2 * all.len() + SLACK_BYTES);
        Ok(())
    }
}

fn whole_file(state: &SavedState) -> io::Result<Vec<u8>> {
    let mut bytes = first_line().into_bytes();
    bytes.extend(SavedState::default().change_to(state).to_line()?);
    Ok(bytes)
}

/// What is in the file, if it can be taken up; otherwise why not is logged.
pub(super) fn read(path: &Path) -> Option<SavedState> {
    use forebay_control::saved::file::{self, Told};
    let shown = path.display();
    match private_file::read(path, file::MAX_BYTES) {
        Ok(bytes) => {
            let mut told = Told::default();
            let state = file::read(&bytes?, &mut told);
            told.sentences()
                .for_each(|sentence| tracing::warn!(path = %shown, "in the saved state: {sentence}"));
            state
        }
        Err(error) => {
            tracing::warn!(%error, path = %shown, "the saved state is not taken over");
            None
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_control::port::PortSpec;
    use forebay_control::saved::{Asked, SavedPort};
    use forebay_control::{PortCounters, PortId};

    use super::*;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("fb-saver-{}-{name}", std::process::id()))
    }

    fn port(id: u16) -> (PortId, SavedPort) {
        (PortId(id), SavedPort { spec: PortSpec::new(format!("p{id}")), seen: None, asked: Asked::default() })
    }

    fn state(ports: u16, packets: u64) -> SavedState {
        let counters = PortCounters { rx_packets: packets, ..PortCounters::default() };
        SavedState {
            next_port: ports.into(),
            ports: (0..ports).map(port).collect(),
            counters: (0..ports).map(|id| (PortId(id), counters)).collect(),
            ..SavedState::default()
        }
    }

    #[test]
    fn one_port_more_writes_as_much_with_a_thousand_ports_as_with_one() {
        let path = path("difference");
        let mut grown = Vec::new();
        for ports in [1, 1000] {
            let mut writer = Writer::new(path.clone());
            assert!(writer.write(vec![SavedState::default().change_to(&state(ports, 0))]));
            let before = std::fs::metadata(&path).unwrap().len();
            let mut next = state(ports, 0);
            next.ports.extend([port(5000)]);
            assert!(writer.write(vec![state(ports, 0).change_to(&next)]));
            grown.push(std::fs::metadata(&path).unwrap().len() - before);
            assert_eq!(read(&path), Some(next));
        }
        assert_eq!(grown[0], grown[1]);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_of_many_differences_has_a_bound_and_says_the_last_state() {
        let path = path("bound");
        let mut writer = Writer::new(path.clone());
        let mut last = SavedState::default();
        let mut longest = 0;
        for packets in 1..300 {
            let next = state(20, packets);
            assert!(writer.write(vec![last.change_to(&next)]));
            longest = longest.max(std::fs::metadata(&path).unwrap().len());
            last = next;
        }
        assert_eq!(read(&path), Some(last.clone()));
        let bound = 2 * whole_file(&last).unwrap().len() + SLACK_BYTES;
        assert!(longest <= bound as u64, "{longest} of {bound}");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn after_a_failure_the_file_is_written_anew() {
        let path = path("failure");
        let mut writer = Writer::new(path.join("in-a-directory"));
        assert!(!writer.write(vec![SavedState::default().change_to(&state(1, 0))]));
        std::fs::create_dir(&path).unwrap();
        assert!(writer.write(vec![state(1, 0).change_to(&state(2, 7))]));
        assert_eq!(read(&path.join("in-a-directory")), Some(state(2, 7)));
        std::fs::remove_dir_all(&path).unwrap();
    }
}
