//! The switch's threads: a panic in one of them ends the process, and each counts its turns.
//!
//! A switch without a worker, its keeper or its housekeeper looks alive and is not: packets of some ports go nowhere, flows
//! stay for ever, nobody follows netdevs. A process that ends is started again, and with `--handover` the kernel goes on
//! following flows meanwhile. A thread that was told to end returns, which is no panic. A request that panics in the middle
//! of a change ends the process too ([`changes`](crate::changes)); one that panics elsewhere is answered with an error.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;

use forebay_kernel::ShortGracePeriods;

use crate::SwitchError;
use crate::counters::Counter;

/// Turns that threads of the control side have made. A worker's are its iterations.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    pub(crate) flow_keeper: Counter,
    pub(crate) housekeeper: Counter,
    pub(crate) guests: Counter,
    pub(crate) moderator: Counter,
}

/// Starts a thread; a panic in it ends the process.
pub(crate) fn spawn(
    name: String,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, SwitchError> {
    let supervised = name.clone();
    std::thread::Builder::new()
        .name(name)
        .spawn(move || guard(work, |message| end(&supervised, message)))
        .map_err(SwitchError::system("start a thread"))
}

/// Does `work`, and tells `end` what it panicked with.
fn guard(work: impl FnOnce(), end: impl FnOnce(&str)) {
    // Nothing is looked at afterwards.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
        end(message_of(&*panic));
    }
}

fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Nothing is dropped: what is pinned stays for the next daemon, and the kernel takes back the rest.
pub(crate) fn end(thread: &str, message: &str) {
    tracing::error!(thread, message, "a thread of the switch panicked; the process ends");
    ShortGracePeriods::put_back();
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended_by(work: impl FnOnce()) -> Option<String> {
        let mut message = None;
        guard(work, |text| message = Some(text.to_owned()));
        message
    }

    #[test]
    fn a_panic_is_told_with_its_message() {
        assert_eq!(ended_by(|| panic!("as it is")), Some("as it is".to_owned()));
        assert_eq!(ended_by(|| panic!("with {}", 7)), Some("with 7".to_owned()));
        assert_eq!(ended_by(|| std::panic::panic_any(7)), Some("no message".to_owned()));
    }

    #[test]
    fn a_thread_that_ends_as_it_was_told_to_is_no_failure() {
        assert_eq!(ended_by(|| {}), None);
    }
}
