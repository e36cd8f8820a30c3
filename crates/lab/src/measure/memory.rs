//! Memory, the kernel's included: what AF_XDP takes is not visible in a process's own figures.

use crate::{LabError, Result};

/// Bytes of memory that could be given to programs now (`MemAvailable`).
///
/// # Errors
/// When /proc/meminfo does not say.
pub fn available() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    field(&text, "MemAvailable").ok_or_else(|| LabError::output("/proc/meminfo", text))
}

/// Bytes the kernel holds for itself in slabs, in vmalloc areas and per processor: where sockets, rings and the tables
/// of packet memory are. Nearly untouched by what other programs do, unlike [`available`].
///
/// # Errors
/// When /proc/meminfo does not say.
pub fn kernel() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let parts = ["Slab", "VmallocUsed", "Percpu"].map(|name| field(&text, name));
    let sum = parts.into_iter().sum::<Option<u64>>();
    sum.ok_or_else(|| LabError::output("/proc/meminfo", text))
}

/// Bytes of a process's own memory that are present (`VmRSS`); 0 when it is gone.
pub fn resident(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    field(&text, "VmRSS").unwrap_or(0)
}

/// Open file descriptors of a process; 0 when it is gone.
pub fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map(Iterator::count).unwrap_or(0)
}

/// A field in kilobytes, as bytes.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(':')))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "MemTotal:  10 kB\nMemAvailableX: 1 kB\nMemAvailable:    3 kB\n";
        assert_eq!(field(text, "MemAvailable"), Some(3072));
        assert_eq!(field(text, "MemAvail"), None);
    }
}
