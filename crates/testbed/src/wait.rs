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
    look(limit, || condition().ok_or(()))
        .map_err(|((), limit)| LabError::Waited { what: what.to_owned(), limit })
}

/// Looks until `condition` yields a value; until then it says what is there instead.
///
/// # Errors
/// [`LabError::Waited`] when the time is over, with what the last look said.
pub fn until_ok<T>(
    what: &str,
    limit: Duration,
    condition: impl FnMut() -> std::result::Result<T, String>,
) -> Result<T> {
    look(limit, condition)
        .map_err(|(seen, limit)| LabError::Waited { what: format!("{what}; seen last: {seen}"), limit })
}

/// What the last look said, and the time it had, when that is over.
fn look<T, E>(
    limit: Duration,
    mut condition: impl FnMut() -> std::result::Result<T, E>,
) -> std::result::Result<T, (E, Duration)> {
    let limit = limit * *PATIENCE;
    let deadline = Instant::now() + limit;
    loop {
        match condition() {
            Ok(value) => return Ok(value),
            Err(seen) if Instant::now() >= deadline => return Err((seen, limit)),
            Err(_) => std::thread::sleep(PAUSE),
        }
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
        let error = until_ok("pigs to fly", Duration::ZERO, || Err::<(), _>("one that walks".to_owned()));
        assert!(error.unwrap_err().to_string().contains("one that walks"));
    }

    #[test]
    fn an_emulated_processor_is_waited_for_longer() {
        assert_eq!(patience("processor\t: 0\nmodel name\t: QEMU TCG CPU version 2.5+\n"), EMULATED);
        assert_eq!(patience("processor\t: 0\nmodel name\t: AMD EPYC-Milan Processor\n"), 1);
    }
}
