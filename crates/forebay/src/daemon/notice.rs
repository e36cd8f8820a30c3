//! The daemon's state, as the service manager hears of it.

use sd_notify::NotifyState;

/// Tells the service manager, if there is one.
pub(super) fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "can't send the daemon's state to the service manager");
    }
}
