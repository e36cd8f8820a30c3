//! Settings of the kernel that are changed while a port needs them, and put back: interrupts and XPS of groups, interrupt
//! moderation of netdevs.
//!
//! A process that is killed puts nothing back. So each setting is noted in a file beside the socket before it is changed,
//! and the next daemon puts back what the file has. A value that a policy moves all the time is then put back whatever it is,
//! because it was not noted.
//!
//! The rule it keeps: only what is still as it was set is put back, and only at the same device. What somebody else has set
//! meanwhile stays, and is logged. A netdev in another network namespace cannot be reached, so its values wait in the file
//! until it is here again.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fs, io};

use serde::{Deserialize, Serialize};

use forebay_control::IfIndex;

use super::tunable::Tunable;
use crate::private_file;

/// Longest file that is read: some thousand settings.
const MAX_BYTES: u64 = 4 << 20;

/// Most settings that wait for their netdevs to come back.
const MAX_AWAY: usize = 1024;

/// What was changed, by the names of settings.
type Book = BTreeMap<String, Noted>;

/// The file, and what is in it.
#[derive(Debug, Default)]
pub(super) struct HostSettings {
    /// `None`: nothing is noted.
    file: Option<PathBuf>,
    noted: Mutex<Book>,
    /// Values wait for netdevs to come back.
    has_away: AtomicBool,
}

/// A setting that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Noted {
    /// What it was.
    before: String,
    /// What it was changed to; none: a policy moves it.
    set: Option<String>,
    /// Whose it is, to know it again.
    owner: String,
    /// Its device is in another network namespace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_away: bool,
}

/// A setting of the kernel with another value until this is dropped.
#[derive(Debug)]
pub(super) struct HostSetting {
    tunable: Tunable,
    before: String,
    /// What it was set to last, as the kernel says it.
    written: String,
    is_away: bool,
    settings: Arc<HostSettings>,
}

impl HostSettings {
    /// Puts back what an earlier process has noted in this file, and notes there from now on.
    pub(super) fn open(file: PathBuf) -> Arc<Self> {
        match read(&file) {
            Ok(noted) => noted.iter().for_each(|(name, noted)| {
                Tunable::parse(name).iter().for_each(|tunable| put_back(tunable, noted));
            }),
            Err(error) => {
                let file = file.display();
                tracing::warn!(%error, %file, "interrupts and XPS that an earlier daemon has set stay");
            }
        }
        let settings = Self { file: Some(file), ..Self::default() };
        settings.write(&settings.noted());
        Arc::new(settings)
    }

    fn noted(&self) -> MutexGuard<'_, Book> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a setting is to be, and what it was if nobody has noted that yet.
    fn note(&self, tunable: &Tunable, set: Option<&str>) {
        let Some((before, owner)) = tunable.read().zip(tunable.owner()) else { return };
        let mut noted = self.noted();
        if noted.get(&tunable.name()).is_some_and(|noted| noted.is_away) {
            // Another netdev has its number now.
            noted.remove(&tunable.name());
        }
        let entry = noted.entry(tunable.name());
        let is_new = matches!(entry, Entry::Vacant(_));
        let entry = entry.or_insert(Noted { before, set: None, owner, is_away: false });
        if is_new || entry.set.as_deref() != set {
            entry.set = set.map(str::to_owned);
            self.write(&noted);
        }
    }

    fn forget(&self, tunable: &Tunable) {
        let mut noted = self.noted();
        if noted.remove(&tunable.name()).is_some() {
            self.write(&noted);
        }
    }

    /// Whether values wait for a netdev to come back.
    pub(super) fn waits_for_netdevs(&self) -> bool {
        self.has_away.load(Ordering::Relaxed)
    }

    /// A netdev may have come from another network namespace: puts back what was set at it before it went there. Asks the
    /// kernel, so the control side's lock must be free.
    pub(super) fn netdev_is_here(&self, ifindex: IfIndex) {
        let away: Vec<_> =
            self.noted().iter().filter(|(_, noted)| noted.is_away).map(|(name, _)| name.clone()).collect();
        for name in away {
            let Some(here) = Tunable::parse(&name).and_then(|tunable| tunable.at(ifindex)) else { continue };
            let owner = here.owner();
            let mut book = self.noted();
            if book.get(&name).is_none_or(|noted| !noted.is_away || owner.as_ref() != Some(&noted.owner)) {
                continue;
            }
            let Some(noted) = book.remove(&name) else { continue };
            self.write(&book);
            self.has_away.store(book.values().any(|noted| noted.is_away), Ordering::Relaxed);
            drop(book);
            put_back(&here, &noted);
        }
    }

    /// The device of a setting is in another network namespace, where it has `written`.
    fn wait_for(&self, tunable: &Tunable, written: &str) {
        let mut book = self.noted();
        let away = book.values().filter(|noted| noted.is_away).count();
        match book.get_mut(&tunable.name()) {
            Some(noted) if away < MAX_AWAY => {
                (noted.set, noted.is_away) = (Some(written.to_owned()), true);
                self.has_away.store(true, Ordering::Relaxed);
            }
            _ => drop(book.remove(&tunable.name())),
        }
        self.write(&book);
    }

    fn write(&self, noted: &Book) {
        let Some(file) = &self.file else { return };
        let write = || match noted.is_empty() {
            true => match fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
            false => private_file::replace(file, &serde_json::to_vec(noted)?).map(drop),
        };
        if let Err(error) = write() {
            let file = file.display();
            tracing::warn!(%error, %file, "a killed daemon would leave interrupts and XPS as they are set");
        }
    }
}

impl HostSetting {
    /// Notes what was there, and sets `value`. `moves`: a policy changes it from now on.
    ///
    /// # Errors
    /// There is no such setting, it may not be set, or the kernel refuses the value: an interrupt whose processors the
    /// kernel manages itself.
    pub(super) fn set(
        settings: &Arc<HostSettings>,
        tunable: Tunable,
        value: &str,
        moves: bool,
    ) -> io::Result<Self> {
        if let Some(ifindex) = tunable.netdev().filter(|_| settings.waits_for_netdevs()) {
            settings.netdev_is_here(ifindex);
        }
        let before = tunable.read().ok_or(io::ErrorKind::NotFound)?;
        settings.note(&tunable, (!moves).then_some(value));
        if before != value {
            tunable.write(value).inspect_err(|_| settings.forget(&tunable))?;
        }
        let (written, settings) = (value.to_owned(), Arc::clone(settings));
        let mut setting = Self { tunable, before, written, is_away: false, settings };
        setting.note_as_read(moves);
        Ok(setting)
    }

    /// Sets another value, and still knows what was there at first.
    ///
    /// # Errors
    /// As [`HostSetting::set`].
    pub(super) fn change(&mut self, value: &str) -> io::Result<()> {
        self.settings.note(&self.tunable, Some(value));
        self.tunable.write(value)?;
        value.clone_into(&mut self.written);
        self.note_as_read(false);
        Ok(())
    }

    /// Notes that a policy changes it from now on, by [`HostSetting::move_to`].
    pub(super) fn begin_to_move(&self) {
        self.settings.note(&self.tunable, None);
    }

    /// Sets another value, of which nothing is noted in the file.
    ///
    /// # Errors
    /// As [`HostSetting::set`].
    pub(super) fn move_to(&mut self, value: &str) -> io::Result<()> {
        self.tunable.write(value)?;
        value.clone_into(&mut self.written);
        self.note_as_read(true);
        Ok(())
    }

    /// Its device has gone to another network namespace, where it keeps the value. It is put back when the device is here
    /// again.
    pub(super) fn leave_away(&mut self) {
        if self.tunable.netdev().is_some() {
            self.settings.wait_for(&self.tunable, &self.written);
            self.is_away = true;
        }
    }

    pub(super) fn tunable(&self) -> &Tunable {
        &self.tunable
    }

    /// The kernel or a driver may have a number or list in another way than it was given.
    fn note_as_read(&mut self, moves: bool) {
        let Some(value) = self.tunable.read() else { return };
        if !moves {
            self.settings.note(&self.tunable, Some(&value));
        }
        self.written = value;
    }
}

impl Drop for HostSetting {
    fn drop(&mut self) {
        if self.is_away {
            return;
        }
        let _ = write_back(&self.tunable, &self.before, Some(&self.written));
        self.settings.forget(&self.tunable);
    }
}

fn read(file: &Path) -> io::Result<Book> {
    let bytes = private_file::read(file, MAX_BYTES)?;
    Ok(bytes.map(|bytes| serde_json::from_slice(&bytes)).transpose()?.unwrap_or_default())
}

/// Puts back what was noted, if it is the same device's.
fn put_back(tunable: &Tunable, noted: &Noted) {
    if tunable.owner().as_ref() == Some(&noted.owner)
        && let Some(value) = write_back(tunable, &noted.before, noted.set.as_deref())
    {
        tracing::info!(setting = tunable.name(), value, "put back");
    }
}

/// Writes what was there before, where that is still as `set`; without `set` whatever it is. A device that is gone has
/// nothing. Returns what was written.
fn write_back(tunable: &Tunable, before: &str, set: Option<&str>) -> Option<String> {
    let now = tunable.read().filter(|now| now != before)?;
    let setting = tunable.name();
    if let Some(set) = set.filter(|set| *set != now) {
        tracing::info!(setting, value = now, set, "somebody else has set it, so that stays");
    }
    let back = match set {
        Some(set) => tunable.to_put_back(before, set, &now)?,
        None => before.to_owned(),
    };
    match tunable.write(&back) {
        Ok(()) => Some(back),
        Err(error) => {
            tracing::warn!(setting, value = back, %error, "not put back");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What other files say is no business of ours.
    #[test]
    fn only_what_is_a_setting_of_ours_is_put_back() {
        let root = tempfile::tempdir().expect("a temporary directory can be made");
        let (file, other) = (root.path().join("tuned"), root.path().join("other"));
        fs::write(&other, "2").expect("it can be written");
        let noted =
            Noted { before: "1".to_owned(), set: Some("2".to_owned()), owner: String::new(), is_away: false };
        let book = BTreeMap::from([(other.display().to_string(), noted)]);
        let bytes = serde_json::to_vec(&book).expect("it is JSON");
        drop(private_file::replace(&file, &bytes).expect("it can be written"));
        let settings = HostSettings::open(file.clone());
        assert_eq!(fs::read_to_string(&other).expect("it is there"), "2");
        assert!(!file.exists(), "it is read once");
        let setting = HostSetting::set(&settings, Tunable::File(other.clone()), "3", false);
        let setting = setting.expect("it can be set");
        assert!(!file.exists(), "nobody could tell whose it is");
        drop(setting);
        assert_eq!(fs::read_to_string(&other).expect("it is there"), "2");
    }

    #[test]
    fn what_somebody_else_has_set_meanwhile_stays() {
        let root = tempfile::tempdir().expect("a temporary directory can be made");
        let file = root.path().join("setting");
        let settings = Arc::new(HostSettings::default());
        let (write, read) = (|value| fs::write(&file, value), || fs::read_to_string(&file));
        let set = || {
            write("1").expect("it can be written");
            HostSetting::set(&settings, Tunable::File(file.clone()), "2", false).expect("it can be set")
        };
        drop(set());
        assert_eq!(read().expect("it is there"), "1");
        let setting = set();
        write("3").expect("it can be written");
        drop(setting);
        assert_eq!(read().expect("it is there"), "3");
        // It is the last value that counts.
        let mut setting = set();
        setting.change("4").expect("it can be set");
        setting.move_to("5").expect("it can be set");
        drop(setting);
        assert_eq!(read().expect("it is there"), "1");
    }

    #[test]
    fn a_file_without_sense_is_no_reason_not_to_start() {
        let root = tempfile::tempdir().expect("a temporary directory can be made");
        let file = root.path().join("tuned");
        drop(private_file::replace(&file, b"{").expect("it can be written"));
        assert!(HostSettings::open(file.clone()).noted().is_empty());
        assert!(!file.exists());
    }
}
