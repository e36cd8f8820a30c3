//! Settings of the kernel that are changed while a port needs them, and put back: interrupts and XPS of groups, interrupt
//! moderation of netdevs.
//!
//! A process that is killed puts nothing back. So each setting is noted in a file beside the socket before it is changed,
//! and the next daemon puts back what the file has. It puts back only what is still as the last daemon had set it, and is
//! still the same device's. A value that a policy moves all the time is put back whatever it is.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::tunable::Tunable;
use crate::private_file;

/// Longest file that is read: some thousand settings.
const MAX_BYTES: u64 = 4 << 20;

/// What was changed, by the names of settings.
type Book = BTreeMap<String, Noted>;

/// The file, and what is in it.
#[derive(Debug, Default)]
pub(super) struct HostSettings {
    /// `None`: nothing is noted.
    file: Option<PathBuf>,
    noted: Mutex<Book>,
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
}

/// A setting of the kernel with another value until this is dropped.
#[derive(Debug)]
pub(super) struct HostSetting {
    tunable: Tunable,
    before: String,
    settings: Arc<HostSettings>,
}

impl HostSettings {
    /// Puts back what an earlier process has noted in this file, and notes there from now on.
    pub(super) fn open(file: PathBuf) -> Arc<Self> {
        match read(&file) {
            Ok(noted) => noted.iter().for_each(|(name, noted)| put_back(name, noted)),
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
        let entry = noted.entry(tunable.name());
        let is_new = matches!(entry, Entry::Vacant(_));
        let entry = entry.or_insert(Noted { before, set: None, owner });
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
        let before = tunable.read().ok_or(io::ErrorKind::NotFound)?;
        settings.note(&tunable, (!moves).then_some(value));
        if before != value {
            tunable.write(value).inspect_err(|_| settings.forget(&tunable))?;
        }
        let setting = Self { tunable, before, settings: Arc::clone(settings) };
        setting.note_as_read(moves);
        Ok(setting)
    }

    /// Sets another value, and still knows what was there at first.
    ///
    /// # Errors
    /// As [`HostSetting::set`].
    pub(super) fn change(&self, value: &str) -> io::Result<()> {
        self.settings.note(&self.tunable, Some(value));
        self.tunable.write(value)?;
        self.note_as_read(false);
        Ok(())
    }

    /// Notes that a policy changes it from now on, by [`HostSetting::move_to`].
    pub(super) fn begin_to_move(&self) {
        self.settings.note(&self.tunable, None);
    }

    /// Sets another value, of which nothing is noted.
    ///
    /// # Errors
    /// As [`HostSetting::set`].
    pub(super) fn move_to(&self, value: &str) -> io::Result<()> {
        self.tunable.write(value)
    }

    pub(super) fn tunable(&self) -> &Tunable {
        &self.tunable
    }

    /// The kernel or a driver may have a number or list in another way than it was given.
    fn note_as_read(&self, moves: bool) {
        if let Some(value) = self.tunable.read().filter(|_| !moves) {
            self.settings.note(&self.tunable, Some(&value));
        }
    }
}

impl Drop for HostSetting {
    fn drop(&mut self) {
        // It fails for a device that is gone.
        let _ = self.tunable.write(&self.before);
        self.settings.forget(&self.tunable);
    }
}

fn read(file: &Path) -> io::Result<Book> {
    let bytes = private_file::read(file, MAX_BYTES)?;
    Ok(bytes.map(|bytes| serde_json::from_slice(&bytes)).transpose()?.unwrap_or_default())
}

fn put_back(name: &str, noted: &Noted) {
    let Some(tunable) = Tunable::parse(name) else { return };
    let is_as_set = || noted.set.is_none() || tunable.read() == noted.set;
    if tunable.owner().as_ref() != Some(&noted.owner) || !is_as_set() {
        return;
    }
    match tunable.write(&noted.before) {
        Ok(()) => tracing::info!(name, value = noted.before, "put back"),
        Err(error) => tracing::warn!(%error, name, "not put back"),
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
        let noted = Noted { before: "1".to_owned(), set: Some("2".to_owned()), owner: String::new() };
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
    fn a_file_without_sense_is_no_reason_not_to_start() {
        let root = tempfile::tempdir().expect("a temporary directory can be made");
        let file = root.path().join("tuned");
        drop(private_file::replace(&file, b"{").expect("it can be written"));
        assert!(HostSettings::open(file.clone()).noted().is_empty());
        assert!(!file.exists());
    }
}
