//! What a process holds and what the machine has left, read from /proc and bpftool.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use forebay_testbed::{LabError, Netns, Result, command};
use serde_json::Value;

/// What the daemon holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Holdings {
    pub(super) descriptors: usize,
    pub(super) threads: u64,
    pub(super) resident_kib: u64,
    /// Network namespaces that its threads are in.
    pub(super) namespaces: usize,
    pub(super) bpf: Bpf,
}

/// BPF objects by their ids.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Bpf {
    pub(super) programs: BTreeSet<u64>,
    pub(super) maps: BTreeSet<u64>,
    pub(super) links: BTreeSet<u64>,
}

impl Bpf {
    /// How many objects of each kind.
    pub(super) fn counts(&self) -> [usize; 3] {
        [self.programs.len(), self.maps.len(), self.links.len()]
    }

    /// Those that are in `other` too.
    pub(super) fn common(&self, other: &Bpf) -> Bpf {
        let both = |mine: &BTreeSet<u64>, theirs| mine.intersection(theirs).copied().collect();
        Bpf {
            programs: both(&self.programs, &other.programs),
            maps: both(&self.maps, &other.maps),
            links: both(&self.links, &other.links),
        }
    }
}

/// What a process holds at this moment.
pub(super) fn holdings(pid: u32) -> Holdings {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let status = read(&process.join("status"));
    Holdings {
        descriptors: entries(&process.join("fd")).len(),
        threads: field(&status, "Threads:"),
        resident_kib: field(&status, "VmRSS:"),
        namespaces: namespaces(&process),
        bpf: bpf_held(&process),
    }
}

fn namespaces(process: &Path) -> usize {
    let of = |task: PathBuf| fs::read_link(task.join("ns/net")).ok();
    entries(&process.join("task")).into_iter().filter_map(of).collect::<BTreeSet<_>>().len()
}

/// What each thread of a process is at: its name, state, processor time in ticks, and where in the kernel it is.
pub(super) fn threads(pid: u32) -> Vec<String> {
    let describe = |task: PathBuf| {
        let (name, stat) = (read(&task.join("comm")), read(&task.join("stat")));
        // The name is in parentheses and may hold spaces; behind it the state is the third field, times are 14 and 15.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        let at = |field: usize| fields.get(field - 3).copied().unwrap_or("?");
        let stack = read(&task.join("stack")).lines().map(str::trim).collect::<Vec<_>>().join(" ");
        format!("{} {} user {} kernel {}: {stack}", name.trim(), at(3), at(14), at(15))
    };
    entries(&PathBuf::from(format!("/proc/{pid}/task"))).into_iter().map(describe).collect()
}

/// Every descriptor of a BPF object names the object's id.
fn bpf_held(process: &Path) -> Bpf {
    let mut held = Bpf::default();
    for descriptor in entries(&process.join("fdinfo")) {
        let text = read(&descriptor);
        // A link names its program as well, so the kinds are told apart by the first that is found.
        let kinds =
            [("link_id:", &mut held.links), ("map_id:", &mut held.maps), ("prog_id:", &mut held.programs)];
        let found = kinds.into_iter().find(|(label, _)| text.contains(label));
        if let Some((label, ids)) = found {
            ids.insert(field(&text, label));
        }
    }
    held
}

/// All BPF objects of the machine.
///
/// # Errors
/// When bpftool is missing or says something that is not understood.
pub(super) fn bpf_alive() -> Result<Bpf> {
    Ok(Bpf { programs: bpf_ids("prog")?, maps: bpf_ids("map")?, links: bpf_ids("link")? })
}

fn bpf_ids(kind: &str) -> Result<BTreeSet<u64>> {
    let mut tool = Command::new("bpftool");
    tool.args(["-j", kind, "show"]);
    let finished = command::run_ok(tool)?;
    let listed: Vec<Value> = serde_json::from_str(&finished.stdout)
        .map_err(|error| LabError::output(format!("bpftool's list ({error})"), finished.stdout.clone()))?;
    Ok(listed.iter().filter_map(|object| object["id"].as_u64()).collect())
}

/// The names of a namespace's netdevs.
///
/// # Errors
/// When `ip` says something that is not understood.
pub(super) fn netdevs(netns: &Netns) -> Result<BTreeSet<String>> {
    let finished = netns.ip(&["-j", "link", "show"])?;
    let listed: Vec<Value> = serde_json::from_str(&finished.stdout)
        .map_err(|error| LabError::output(format!("ip's list ({error})"), finished.stdout.clone()))?;
    Ok(listed.iter().filter_map(|link| link["ifname"].as_str().map(str::to_owned)).collect())
}

/// Named namespaces of this process's labs.
pub(super) fn own_namespaces() -> usize {
    let prefix = format!("{}{}-", forebay_testbed::clean::PREFIX, std::process::id());
    let is_own = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&prefix))
    };
    entries(Path::new("/run/netns")).iter().filter(|path| is_own(path)).count()
}

/// The machine's memory, all programs' together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    pub(super) available_kib: u64,
    /// What the kernel took for itself and can't give back by dropping caches: SUnreclaim, VmallocUsed, Percpu.
    pub(super) kernel_kib: [u64; 3],
}

/// The machine's memory at this moment.
pub(super) fn memory() -> Memory {
    let text = read(Path::new("/proc/meminfo"));
    let kernel_kib = ["SUnreclaim:", "VmallocUsed:", "Percpu:"].map(|label| field(&text, label));
    Memory { available_kib: field(&text, "MemAvailable:"), kernel_kib }
}

fn field(text: &str, label: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(label));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// What is gone meanwhile reads as empty.
fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_holds_what_every_process_does() {
        let held = holdings(std::process::id());
        assert!(held.descriptors >= 3 && held.threads >= 1 && held.resident_kib > 0, "{held:?}");
        assert_eq!(held.namespaces, 1);
        assert_eq!(holdings(u32::MAX), Holdings::default());
        let threads = threads(std::process::id());
        assert!(threads.iter().any(|thread| thread.contains(" R user ")), "{threads:?}");
    }

    #[test]
    fn fields_are_read_by_their_labels() {
        let text = "pos:\t0\nlink_type:\ttcx\nlink_id:\t17\nprog_id:\t5\n";
        assert_eq!((field(text, "link_id:"), field(text, "prog_id:"), field(text, "map_id:")), (17, 5, 0));
    }
}
