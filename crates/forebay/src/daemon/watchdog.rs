//! The service manager's watchdog: it restarts a daemon that it does not hear of for `WatchdogSec=`.
//!
//! It is told that all is well only while the control thread, which tells it, every worker, the flow keeper, the
//! housekeeper and the thread that serves guests make turns.

use std::sync::Arc;
use std::time::Duration;

use forebay_control::SwitchControl;
use forebay_policy::Watchdog;
use sd_notify::NotifyState;

use super::notice::notify;

/// Looks in the time that the service manager waits.
const LOOKS: u32 = 4;
/// Shortest time between two looks: threads that wake by themselves do so once a second.
const SHORTEST: Duration = Duration::from_millis(1500);

/// Feeds the watchdog, if there is one, for as long as the runtime lives.
pub(super) async fn feed(switch: Arc<dyn SwitchControl>) {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    let mut watchdog = Watchdog::default();
    loop {
        tokio::time::sleep((limit / LOOKS).max(SHORTEST)).await;
        look(switch.as_ref(), &mut watchdog, limit);
    }
}

fn look(switch: &dyn SwitchControl, watchdog: &mut Watchdog, limit: Duration) {
    let threads = switch.turns();
    match watchdog.look(threads.iter().map(|thread| thread.turns)) {
        None => notify(&[NotifyState::Watchdog]),
        Some(index) => {
            let thread = &threads[index].thread;
            tracing::error!(
                thread,
                "makes no turns; if it goes on like that for {limit:?}, the service is restarted"
            );
        }
    }
}
