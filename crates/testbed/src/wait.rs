//! Waiting for a condition with a deadline: the only way anything here waits.
//!
//! Limits are for a real processor. On a processor that QEMU emulates they are multiplied.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::{LabError, Result};

/// Pause between two looks at the condition.
const PAUSE: Duration = Duration::from_millis(5);
/// How many times as long an emulated processor may take.
const EMULATED: u32 = 5;

/// What limits are multiplied by on this machine.
static PATIENCE: LazyLock<u32> =
    LazyLock::new(|| std::fs::read_to_string("/proc/cpuinfo").map_or(1, |processors| patience(&processors)));

/// Looks until `condition` yields a value.
///
/// # Errors
/// [`LabError::Waited`] when the time is over.
pub fn until_some<T>(what: &str, limit: Duration, mut condition: impl FnMut() -> Option<T>) -> Result<T> {
    let limit = limit * *PATIENCE;
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = condition() {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            return Err(LabError::Waited { what: what.to_owned(), limit });
        }
        std::thread::sleep(PAUSE);
    }
}

/// Looks until `condition` is true.
///
/// # Errors
/// [`LabError::Waited`] when the time is over.
pub fn until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) -> Result<()> {
    until_some(what, limit, || condition().then_some(()))
}

/// What limits are multiplied by where `processors` is the text of `/proc/cpuinfo`.
fn patience(processors: &str) -> u32 {
    if processors.contains("QEMU TCG") { EMULATED } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_comes_true_ends_the_wait_and_one_that_does_not_is_named() {
        let mut looks = 0;
        let third = until_some("the third look", Duration::from_secs(5), || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(third.unwrap(), 3);
        let error = until("pigs to fly", Duration::ZERO, || false).unwrap_err();
        assert!(error.to_string().contains("pigs to fly"), "{error}");
    }

    #[test]
    fn an_emulated_processor_is_waited_for_longer() {
        assert_eq!(patience("processor\t: 0\nmodel name\t: QEMU TCG CPU version 2.5+\n"), EMULATED);
        assert_eq!(patience("processor\t: 0\nmodel name\t: AMD EPYC-Milan Processor\n"), 1);
    }
}
