//! Memory, the kernel's included: what AF_XDP takes is not visible in a process's own figures.

use std::time::Duration;

use crate::{LabError, Result, wait};

/// How long memory may take to stand still.
const SETTLE_LIMIT: Duration = Duration::from_secs(10);
/// Between two readings.
const PAUSE: Duration = Duration::from_millis(100);
/// Two readings this near to each other are the same.
const STILL_BYTES: u64 = 1 << 20;
/// So many of them in a row are rest.
const STILL_READINGS: u32 = 5;

/// Memory in use at one moment, measured in two ways.
#[derive(Debug, Clone, Copy)]
pub struct InUse {
    /// What the kernel holds for itself and what these processes have of their own, in bytes.
    pub held: u64,
    /// What all programs could still get, in bytes.
    pub available: u64,
}

impl InUse {
    /// This moment, with these processes.
    ///
    /// # Errors
    /// When /proc/meminfo does not say.
    pub fn now(pids: &[u32]) -> Result<InUse> {
        let own: u64 = pids.iter().map(|pid| own(*pid)).sum();
        Ok(InUse { held: kernel()? + own, available: available()? })
    }

    /// When what was done before has come to rest, or after ten seconds.
    ///
    /// # Errors
    /// As [`InUse::now`].
    pub fn settled(pids: &[u32]) -> Result<InUse> {
        let (mut last, mut still) = (InUse::now(pids)?, 0);
        let _ = wait::until("memory to stand still", SETTLE_LIMIT, || {
            std::thread::sleep(PAUSE);
            let now = InUse::now(pids).unwrap_or(last);
            still = if now.held.abs_diff(last.held) < STILL_BYTES { still + 1 } else { 0 };
            last = now;
            still >= STILL_READINGS
        });
        Ok(last)
    }
}

/// Bytes of memory that could be given to programs now (`MemAvailable`).
///
/// # Errors
/// When /proc/meminfo does not say.
pub fn available() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    field(&text, "MemAvailable").ok_or_else(|| LabError::output("/proc/meminfo", text))
}

/// Bytes the kernel holds for itself in slabs, in vmalloc areas, per processor, in page tables and in its threads'
/// stacks: where sockets, rings and the tables of packet memory are. Nearly untouched by what other programs do, unlike
/// [`available`].
///
/// # Errors
/// When /proc/meminfo does not say.
pub fn kernel() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let parts = ["Slab", "VmallocUsed", "Percpu", "PageTables", "KernelStack"].map(|name| field(&text, name));
    let sum = parts.into_iter().sum::<Option<u64>>();
    sum.ok_or_else(|| LabError::output("/proc/meminfo", text))
}

/// Bytes of page tables, the kernel's and all processes'.
///
/// # Errors
/// When /proc/meminfo does not say.
pub fn page_tables() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    field(&text, "PageTables").ok_or_else(|| LabError::output("/proc/meminfo", text))
}

/// Bytes of a process's memory that are present, huge pages included, but for what it maps of the kernel's own: rings of
/// sockets and BPF maps are in [`kernel`] already. 0 when it is gone.
pub fn own(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
    own_of(&text)
}

/// proc_pid_smaps(5): a line with the mapping's file, then lines of fields, their names ending in a colon.
fn own_of(smaps: &str) -> u64 {
    let (mut counts, mut bytes) = (true, 0);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        match words.next().and_then(|word| word.strip_suffix(':')) {
            None => counts = !line.contains(" socket:[") && !line.contains(" anon_inode:"),
            Some("Rss" | "Private_Hugetlb" | "Shared_Hugetlb") if counts => {
                bytes += words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0) * 1024;
            }
            Some(_) => {}
        }
    }
    bytes
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

    #[test]
    fn rings_of_sockets_are_the_kernels_and_all_else_is_the_process_own() {
        let smaps = "7f00-7f10 rw-p 00000000 00:00 0 \nRss:  8 kB\nPss:  4 kB\nVmFlags: rd wr\n\
                     7f10-7f20 rw-s 00000000 00:08 77   socket:[77]\nRss:  20 kB\n\
                     7f20-7f30 rw-s 00000000 00:0e 12   anon_inode:bpf-map\nRss:  40 kB\n\
                     7f30-7f40 r-xp 00000000 08:01 99   /usr/bin/x\nRss:  16 kB\nPrivate_Hugetlb:  2048 kB\n";
        assert_eq!(own_of(smaps), (8 + 16 + 2048) << 10);
        assert!(own(std::process::id()) > 0);
    }
}
