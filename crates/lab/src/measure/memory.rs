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

/// Bytes of page tables, the kernel's and all processes'.
///
/// # Errors
/// When /proc/meminfo does not say.
pub fn page_tables() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    field(&text, "PageTables").ok_or_else(|| LabError::output("/proc/meminfo", text))
}

/// Bytes of a process's memory that are present and not the kernel's: rings of sockets and BPF maps count in `VmRSS`
/// when they are mapped, and in the kernel's own figures too. 0 when it is gone.
pub fn own(pid: u32) -> u64 {
    own_of(&std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default())
}

/// Mappings are lines like `7f12-7f34 rw-s 00000000 00:09 1234  socket:[1234]`, their figures lines like `Rss:  4 kB`.
fn own_of(smaps: &str) -> u64 {
    let mut is_kernels = false;
    let mut own = 0;
    for line in smaps.lines() {
        match line.strip_prefix("Rss:") {
            Some(rest) if !is_kernels => {
                let kilobytes = rest.split_whitespace().next().and_then(|number| number.parse::<u64>().ok());
                own += kilobytes.unwrap_or(0) * 1024;
            }
            Some(_) => {}
            None if line.split_whitespace().next().is_some_and(|first| !first.ends_with(':')) => {
                is_kernels = line.contains(" socket:[") || line.contains("anon_inode:bpf-map");
            }
            None => {}
        }
    }
    own
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

    #[test]
    fn what_the_kernel_shares_with_a_process_is_not_its_own() {
        let text = "55a0-55b0 r-xp 00000000 fe:00 77   /usr/bin/forebay\nSize:  64 kB\nRss:   12 kB\n\
                    7f00-7f10 rw-s 00000000 00:09 1234   socket:[1234]\nRss:   20 kB\n\
                    7f20-7f30 rw-s 00000000 00:10 12     anon_inode:bpf-map\nRss:   4 kB\n\
                    7f40-7f50 rw-p 00000000 00:00 0 \nRss:   8 kB\nVmFlags: rd wr\n";
        assert_eq!(own_of(text), 20 << 10);
    }
}
