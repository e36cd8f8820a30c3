//! What outlives the daemon: maps and links pinned in a directory of a BPF file system, and notes, which are folders there.
//!
//! The directory belongs to one switch. Maps in it are adopted if their format and sizes are what this daemon would make;
//! otherwise all that is there is removed, and with it the programs that an earlier daemon left attached.
#![allow(unsafe_code, reason = "libbpf calls")]

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, io};

use forebay_control::IfIndex;
use libbpf_sys as sys;
use rustix::fs::{Access, access};

use crate::DatapathError;
use crate::netlink::{NetlinkError, link, offload};

/// `BPF_FS_MAGIC`, include/uapi/linux/magic.h.
const BPF_FS_MAGIC: i64 = 0xcafe_4a11;

/// The name of the running daemon's table of stations. It is not among the maps that the programs have.
pub(crate) const STATIONS: &str = "stations";

/// Where on a netdev a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkKind {
    /// At the tcx ingress.
    Tcx,
    /// At the XDP hook.
    Xdp,
}

impl LinkKind {
    /// The name of a port's pinned link.
    pub(crate) fn pin_name(self, port_id: u16) -> String {
        match self {
            Self::Tcx => format!("tcx_{port_id}"),
            Self::Xdp => format!("xdp_{port_id}"),
        }
    }

    /// The kind and the port of the link that has this name.
    pub(crate) fn of_pin(name: &str) -> Option<(Self, u16)> {
        let (kind, id) = name.split_once('_')?;
        let kind = match kind {
            "tcx" => Self::Tcx,
            "xdp" => Self::Xdp,
            _ => return None,
        };
        Some((kind, id.parse().ok()?))
    }
}

/// The directory. Clones are of the same one.
#[derive(Clone, Debug)]
pub struct Pins {
    directory: PathBuf,
    /// Nothing is to outlive the process any more. Held while something is pinned.
    is_closed: Arc<Mutex<bool>>,
}

impl Pins {
    /// Makes the directory, if it is not there.
    ///
    /// # Errors
    /// It is not on a BPF file system, belongs to somebody else, or cannot be made.
    pub fn open(directory: &Path) -> Result<Self, DatapathError> {
        let failed = |source| DatapathError::System { what: "make the directory for pins", source };
        let unmade = |error: io::Error| {
            let text = format!(
                "{}: {error}; is a BPF file system mounted there? mount -t bpf bpffs /sys/fs/bpf",
                directory.display()
            );
            failed(io::Error::new(error.kind(), text))
        };
        fs::create_dir_all(directory).map_err(unmade)?;
        let found = rustix::fs::statfs(directory).map_err(|error| failed(error.into()))?;
        #[allow(clippy::unnecessary_cast, reason = "the field's type differs by architecture")]
        let shown = directory.display();
        let refused = |error: String| DatapathError::System {
            what: "use the directory for pins",
            source: io::Error::other(error),
        };
        if found.f_type as i64 != BPF_FS_MAGIC {
            let parent = directory.parent().unwrap_or(directory).display();
            return Err(refused(format!("{shown} is not on a BPF file system: mount -t bpf bpffs {parent}")));
        }
        if access(directory, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).is_err() {
            let owner = fs::metadata(directory).map_err(failed)?.uid();
            let way_out = "run as that user, or remove it (rm -r) to start anew";
            return Err(refused(format!("{shown} belongs to the user with id {owner}: {way_out}")));
        }
        Ok(Self { directory: directory.to_owned(), is_closed: Arc::default() })
    }

    /// Removes everything, and pins nothing from now on. The process still holds what it made, so that the kernel takes it
    /// down however the process ends, and nothing waits for that here: a stop that is cut short leaves nothing either.
    pub fn close(&self) {
        let mut is_closed = self.is_closed.lock().unwrap_or_else(PoisonError::into_inner);
        *is_closed = true;
        self.remove();
    }

    /// Whether nothing is to outlive the process.
    pub fn is_closed(&self) -> bool {
        *self.is_closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes all that is pinned, and so whatever nobody else holds.
    pub fn clear(&self) {
        self.forget_if(|_| true);
    }

    /// Removes the directory with all that is in it.
    pub fn remove(&self) {
        self.clear();
        let _ = fs::remove_dir(&self.directory);
    }

    /// Removes the directory with all that is in it, if it is there.
    ///
    /// # Errors
    /// It belongs to somebody else.
    pub fn remove_at(directory: &Path) -> Result<(), DatapathError> {
        if directory.exists() {
            Self::open(directory)?.remove();
        }
        Ok(())
    }

    /// The pinned links: name, kind and port of each.
    pub(crate) fn links(&self) -> Vec<(String, LinkKind, u16)> {
        self.names().filter_map(|name| LinkKind::of_pin(&name).map(|(kind, id)| (name, kind, id))).collect()
    }

    /// Tables go when the last program goes that knows them. No program knows the stations, which stay.
    pub(crate) fn forget_maps(&self) {
        let is_no_map = |name: &str| LinkKind::of_pin(name).is_some() || Setting::of_note(name).is_some();
        self.forget_if(|name| name != STATIONS && !is_no_map(name));
    }

    fn forget_if(&self, is_meant: impl Fn(&str) -> bool) {
        for name in self.names().filter(|name| is_meant(name)) {
            match Setting::of_note(&name) {
                Some((setting, ifindex)) => self.take_back(setting, ifindex),
                None => self.forget(&name),
            }
        }
    }

    fn names(&self) -> impl Iterator<Item = String> + use<> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok())
    }

    /// What of netdevs is ours, by the notes.
    pub(crate) fn settings(&self) -> Vec<(Setting, IfIndex)> {
        self.names().filter_map(|name| Setting::of_note(&name)).collect()
    }

    /// Makes a note, unless nothing is to outlive the process. Says whether it is there.
    pub(crate) fn note(&self, name: &str) -> io::Result<bool> {
        let is_closed = self.is_closed.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_closed {
            return Ok(false);
        }
        match fs::create_dir(self.path(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(true),
        }
    }

    /// Removes a note. Says whether it was there.
    pub(crate) fn forget_note(&self, name: &str) -> bool {
        fs::remove_dir(self.path(name)).is_ok()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// What is pinned under `name`, if anything.
    pub(crate) fn get(&self, name: &str) -> Option<OwnedFd> {
        let path = self.c_path(name);
        // SAFETY: the path is a C string that outlives the call.
        let fd = unsafe { sys::bpf_obj_get(path.as_ptr()) };
        // SAFETY: libbpf just gave us this descriptor; nobody else owns it.
        (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Pins `object` in the place of what had this name, unless nothing is to be pinned any more.
    pub(crate) fn put(&self, name: &str, object: RawFd) -> Result<(), DatapathError> {
        let is_closed = self.is_closed.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_closed {
            return Ok(());
        }
        self.forget(name);
        let path = self.c_path(name);
        // SAFETY: the path is a C string that outlives the call, the descriptor is open.
        let failed = unsafe { sys::bpf_obj_pin(object.as_raw_fd(), path.as_ptr()) };
        if failed < 0 {
            let source = io::Error::from_raw_os_error(-failed);
            return Err(DatapathError::System { what: "pin a map or link", source });
        }
        Ok(())
    }

    pub(crate) fn forget(&self, name: &str) {
        let _ = fs::remove_file(self.path(name));
    }

    /// Moves a pin, in the place of what had the other name.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn c_path(&self, name: &str) -> CString {
        CString::new(self.path(name).as_os_str().as_bytes()).expect("a path that was opened has no zero byte")
    }
}

impl Pins {
    /// Sets what is not set. The note comes first, because the process may be killed between the two.
    pub(crate) fn keep(&self, setting: Setting, ifindex: IfIndex) -> io::Result<()> {
        if setting.is_set(ifindex).map_err(io::Error::other)? || !self.note(&setting.note(ifindex))? {
            return Ok(());
        }
        setting.set(ifindex, true).map_err(io::Error::other)
    }

    /// Takes it back, if it is ours.
    pub(crate) fn take_back(&self, setting: Setting, ifindex: IfIndex) {
        if self.forget_note(&setting.note(ifindex)) {
            // It fails for a netdev that is gone.
            let _ = setting.set(ifindex, false);
        }
    }
}

/// What the switch sets on a netdev as long as that is a port. A note among the pins says that it is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    /// The netdev's own flag, as `ip link set promisc on` sets it.
    Promiscuous,
    /// As `ethtool -K gro on`.
    Gro,
}

impl Setting {
    const ALL: [Self; 2] = [Self::Promiscuous, Self::Gro];

    /// What its notes begin with.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Promiscuous => "promiscuous_",
            Self::Gro => "gro_",
        }
    }

    fn note(self, ifindex: IfIndex) -> String {
        format!("{}{ifindex}", self.prefix())
    }

    fn of_note(name: &str) -> Option<(Self, IfIndex)> {
        let of = |setting: Self| Some((setting, IfIndex(name.strip_prefix(setting.prefix())?.parse().ok()?)));
        Self::ALL.into_iter().find_map(of)
    }

    pub(crate) fn is_set(self, ifindex: IfIndex) -> Result<bool, NetlinkError> {
        match self {
            Self::Promiscuous => Ok(link::by_index(ifindex)?.is_promiscuous),
            Self::Gro => offload::merges(ifindex),
        }
    }

    pub(crate) fn set(self, ifindex: IfIndex, on: bool) -> Result<(), NetlinkError> {
        match self {
            Self::Promiscuous => link::set_promiscuous(ifindex, on),
            Self::Gro => offload::set_merges(ifindex, on),
        }
    }
}
