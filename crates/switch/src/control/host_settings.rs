//! HostSettings of the kernel that are changed while a port needs them, and put back: interrupts and XPS of groups.
//!
//! A process that is killed puts nothing back. So each setting is noted in a file beside the socket before it is changed,
//! and the next daemon puts back what the file has. It puts back only what is still as the last daemon had set it, and is
//! still the same device's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fs, io};

use forebay_kernel::queues::{self, Tuned};
use serde::{Deserialize, Serialize};

use crate::private_file;

/// Longest file that is read: some thousand settings.
const MAX_BYTES: u64 = 4 << 20;

/// The file, and what is in it.
#[derive(Debug, Default)]
pub(super) struct HostSettings {
    /// `None`: nothing is noted.
    file: Option<PathBuf>,
    noted: Mutex<BTreeMap<PathBuf, Noted>>,
}

/// A setting that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Noted {
    /// What it was.
    before: String,
    /// What it was changed to.
    set: String,
    /// Whose it is, to know it again.
    owner: String,
}

/// A setting of the kernel with another value until this is dropped.
#[derive(Debug)]
pub(super) struct HostSetting {
    /// `None` while it is dropped.
    tuned: Option<Tuned>,
    path: PathBuf,
    settings: Arc<HostSettings>,
}

impl HostSettings {
    /// Puts back what an earlier process has noted in this file, and notes there from now on.
    pub(super) fn open(file: PathBuf) -> Arc<Self> {
        match read(&file) {
            Ok(noted) => noted.iter().for_each(|(path, noted)| put_back(path, noted)),
            Err(error) => {
                tracing::warn!(%error, file = %file.display(), "interrupts and XPS that an earlier daemon has set stay");
            }
        }
        let settings = Self { file: Some(file), ..Self::default() };
        settings.write(&settings.noted());
        Arc::new(settings)
    }

    fn noted(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Noted>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a setting is to be, and what it was if nobody has noted that yet.
    fn note(&self, path: &Path, set: &str) {
        let Some((before, owner)) = queues::read(path).zip(queues::owner_of(path)) else { return };
        let mut noted = self.noted();
        let entry = noted.entry(path.to_owned()).or_insert(Noted { before, set: String::new(), owner });
        if entry.set != set {
            set.clone_into(&mut entry.set);
            self.write(&noted);
        }
    }

    fn forget(&self, path: &Path) {
        let mut noted = self.noted();
        if noted.remove(path).is_some() {
            self.write(&noted);
        }
    }

    fn write(&self, noted: &BTreeMap<PathBuf, Noted>) {
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
    /// Notes what was there, and writes `value`.
    ///
    /// # Errors
    /// As [`Tuned::set`].
    pub(super) fn set(settings: &Arc<HostSettings>, path: PathBuf, value: &str) -> io::Result<Self> {
        settings.note(&path, value);
        let tuned = Tuned::set(path.clone(), value).inspect_err(|_| settings.forget(&path))?;
        let setting = Self { tuned: Some(tuned), path, settings: Arc::clone(settings) };
        setting.note_as_read();
        Ok(setting)
    }

    /// Writes another value, and still knows what was there at first.
    ///
    /// # Errors
    /// As [`Tuned::set`].
    pub(super) fn change(&self, value: &str) -> io::Result<()> {
        let Some(tuned) = &self.tuned else { return Ok(()) };
        self.settings.note(&self.path, value);
        tuned.change(value)?;
        self.note_as_read();
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The kernel may write a number or list in another way than it was given.
    fn note_as_read(&self) {
        if let Some(value) = queues::read(&self.path) {
            self.settings.note(&self.path, &value);
        }
    }
}

impl Drop for HostSetting {
    fn drop(&mut self) {
        drop(self.tuned.take());
        self.settings.forget(&self.path);
    }
}

fn read(file: &Path) -> io::Result<BTreeMap<PathBuf, Noted>> {
    let bytes = private_file::read(file, MAX_BYTES)?;
    Ok(bytes.map(|bytes| serde_json::from_slice(&bytes)).transpose()?.unwrap_or_default())
}

fn put_back(path: &Path, noted: &Noted) {
    let is_ours = queues::owner_of(path).as_ref() == Some(&noted.owner);
    if !is_ours || queues::read(path).as_ref() != Some(&noted.set) {
        return;
    }
    match fs::write(path, &noted.before) {
        Ok(()) => tracing::info!(path = %path.display(), value = noted.before, "put back"),
        Err(error) => tracing::warn!(%error, path = %path.display(), "not put back"),
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
        let noted = Noted { before: "1".to_owned(), set: "2".to_owned(), owner: String::new() };
        let bytes = serde_json::to_vec(&BTreeMap::from([(other.clone(), noted)])).expect("it is JSON");
        drop(private_file::replace(&file, &bytes).expect("it can be written"));
        let settings = HostSettings::open(file.clone());
        assert_eq!(fs::read_to_string(&other).expect("it is there"), "2");
        assert!(!file.exists(), "it is read once");
        let setting = HostSetting::set(&settings, other.clone(), "3").expect("it can be set");
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
