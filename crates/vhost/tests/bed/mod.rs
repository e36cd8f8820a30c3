//! The example `bridge` in a thread of the test, and other programs beside it.

#[allow(dead_code, reason = "its main function belongs to the example")]
#[path = "../../examples/bridge.rs"]
mod bridge;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_vhost::Features;

/// A bridge that runs until it is dropped.
pub(crate) struct Bridge {
    folder: tempfile::TempDir,
    log: Arc<Mutex<Vec<u8>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Bridge {
    /// Starts a bridge between two sockets that listen when this returns.
    pub(crate) fn start(features: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let features = Features::ALL.masked(features).expect("words of features");
        let (log, is_over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let mut bridge = Self { folder, log, is_over, thread: None };
        let sockets = [bridge.socket(0), bridge.socket(1)];
        let (log, is_over): (bridge::Log, _) = (bridge.log.clone(), bridge.is_over.clone());
        let thread = std::thread::spawn(move || {
            let sockets = sockets.each_ref().map(PathBuf::as_path);
            bridge::run(sockets, features, &log, || is_over.load(Ordering::Relaxed)).expect("two sockets");
        });
        bridge.thread = Some(thread);
        bridge.wait("listening", |bridge| bridge.socket(1).exists());
        bridge
    }

    /// A folder of the test's own.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn socket(&self, number: u8) -> PathBuf {
        self.folder.path().join(format!("socket{number}"))
    }

    /// What the bridge has said so far.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&self.log.lock().expect("nobody panics with the lock")).into_owned()
    }

    /// Waits for something, or fails with what the bridge said.
    pub(crate) fn wait(&self, what: &str, is_done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(40);
        while !is_done(self) {
            assert!(Instant::now() < deadline, "{what} did not happen:\n{}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || !matches!(ended, Some(Err(_))), "the bridge panicked");
    }
}

/// Whether a program can be run. If not, the test is skipped, which is said.
pub(crate) fn is_installed(program: &str, package: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_err() {
        println!("SKIP: {program} (Debian's {package})");
    }
    found.is_ok()
}
