//! SIGINT, SIGTERM and SIGHUP: the lab is torn down, whatever it was doing.
//!
//! The signal ends every program in the lab's namespaces, so that whatever waits for one goes on at once; the main
//! thread then leaves by its ordinary way out and drops what it made. Should it not get there in time, the signal's
//! own thread ends the process, after removing the namespaces once more.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay_testbed::{LabError, Result, clean};

/// What a program returns that ended by SIGINT, as shells have it.
pub(crate) const EXIT_STATUS: u8 = 130;
/// How long the main thread may take to clear up.
const GRACE: Duration = Duration::from_secs(15);

/// Whether a signal asked to stop. One that is not installed serves between threads, by [`Interrupt::raise`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Interrupt {
    /// Takes the signals from here on.
    ///
    /// # Errors
    /// When they are taken already.
    pub(crate) fn install() -> Result<Interrupt> {
        let interrupt = Interrupt::default();
        let shared = interrupt.clone();
        ctrlc::set_handler(move || shared.stop_everything())
            .map_err(|error| LabError::system("taking signals", std::io::Error::other(error)))?;
        Ok(interrupt)
    }

    /// Asks to stop, as a signal does.
    pub(crate) fn raise(&self) {
        *self.lock() = true;
        self.0.changed.notify_all();
    }

    fn stop_everything(&self) {
        self.raise();
        clean::own_labs();
        std::thread::sleep(GRACE);
        clean::own_labs();
        std::process::exit(EXIT_STATUS.into());
    }

    /// Whether a signal came.
    pub(crate) fn is_set(&self) -> bool {
        *self.lock()
    }

    /// Waits for a signal; false when none came within `limit`.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let waited = self.0.changed.wait_timeout_while(self.lock(), limit, |is_set| !*is_set);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        // A flag can't be left half written.
        self.0.is_set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
