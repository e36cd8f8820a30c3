//! Huge pages, which DPDK wants, taken from the machine for as long as a program needs them.

use std::sync::Mutex;

use crate::{LabError, Result};

const NUMBER: &str = "/proc/sys/vm/nr_hugepages";
/// How many there were before the first were taken, while any are.
static BEFORE: Mutex<Option<u64>> = Mutex::new(None);

/// Huge pages of 2 MB; given back when dropped.
#[derive(Debug)]
pub struct HugePages(());

impl HugePages {
    /// Takes `pages` more than there are.
    ///
    /// # Errors
    /// The kernel does not find as many in a row, or they are taken already.
    pub fn take(pages: u64) -> Result<HugePages> {
        let mut before = BEFORE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if before.is_some() {
            return Err(failed("they are taken already"));
        }
        let number = number()?;
        *before = Some(number);
        drop(before);
        let taken = HugePages(());
        set(number + pages)?;
        let got = self::number()?;
        if got < number + pages {
            return Err(failed(&format!("{} of {pages} could be had", got.saturating_sub(number))));
        }
        Ok(taken)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        give_back();
    }
}

/// Gives back what was taken, also in the middle of a measurement.
pub(crate) fn give_back() {
    let before = BEFORE.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    if let Some(before) = before {
        let _ = set(before);
    }
}

fn number() -> Result<u64> {
    let text = std::fs::read_to_string(NUMBER).map_err(|error| LabError::system(NUMBER, error))?;
    text.trim().parse().map_err(|_| failed("their number is none"))
}

fn set(number: u64) -> Result<()> {
    std::fs::write(NUMBER, number.to_string()).map_err(|error| LabError::system(NUMBER, error))
}

fn failed(why: &str) -> LabError {
    LabError::system(
        format!("taking huge pages: {why}"),
        std::io::Error::from(std::io::ErrorKind::OutOfMemory),
    )
}
