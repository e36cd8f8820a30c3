//! What this process may do: capabilities, and the limits that some of them lift.

use caps::{CapSet, Capability};
use forebay_control::doctor::{Check, Severity};

use super::Options;
use super::finding::{setting, unreadable};

/// Without these the switch can't start; what each is for.
const REQUIRED: [(Capability, &str); 4] = [
    (Capability::CAP_NET_ADMIN, "attach programs, make and change netdevs"),
    (Capability::CAP_NET_RAW, "open AF_XDP and packet sockets"),
    (Capability::CAP_BPF, "load programs and make maps"),
    (Capability::CAP_SYS_ADMIN, "make the collector's network namespace, at start only"),
];

pub(super) fn checks(options: &Options) -> Vec<Check> {
    vec![capabilities(), barriers(), locked_memory(options), open_files(options)]
}

/// Without CAP_PERFMON the verifier guards programs against speculation as if anybody had written them.
fn barriers() -> Check {
    const NAME: &str = "programs without barriers";
    let is_held = caps::has_cap(None, CapSet::Effective, Capability::CAP_PERFMON).unwrap_or(false);
    let problem = (!is_held).then(|| {
        let why = "without CAP_PERFMON the kernel adds speculation barriers, which make the programs slower";
        (why.to_owned(), "Start as root, or add CAP_PERFMON to the unit's AmbientCapabilities=.".to_owned())
    });
    setting(NAME, Severity::Degraded, "CAP_PERFMON".to_owned(), problem)
}

fn capabilities() -> Check {
    const NAME: &str = "capabilities";
    let held = match caps::read(None, CapSet::Effective) {
        Ok(held) => held,
        Err(error) => return unreadable(NAME, Severity::Required, error.to_string()),
    };
    let describe = |(capability, purpose): &(Capability, &str)| format!("{capability} ({purpose})");
    let (has, lacks): (Vec<_>, Vec<_>) =
        REQUIRED.iter().partition(|(capability, _)| held.contains(capability));
    let names =
        |list: &[&(Capability, &str)]| list.iter().map(|(c, _)| c.to_string()).collect::<Vec<_>>().join(", ");
    let detail = if has.is_empty() { "none of those needed".to_owned() } else { names(&has) };
    let missing: Vec<_> = lacks.iter().map(|missing| describe(missing)).collect();
    let problem = (!lacks.is_empty()).then(|| {
        let remedy = format!(
            "Start as root, or with AmbientCapabilities={} in the unit.",
            names(&lacks).replace(',', "")
        );
        (format!("missing: {}", missing.join(", ")), remedy)
    });
    setting(NAME, Severity::Required, detail, problem)
}

/// Packet memory is pinned, and charged against the limit unless CAP_IPC_LOCK says that it isn't.
fn locked_memory(options: &Options) -> Check {
    const NAME: &str = "locked memory";
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_IPC_LOCK).unwrap_or(false) {
        return setting(NAME, Severity::Required, "CAP_IPC_LOCK: no limit applies".to_owned(), None);
    }
    let Some((limit, _)) = limit("Max locked memory") else {
        return unreadable(NAME, Severity::Required, "/proc/self/limits can't be read".to_owned());
    };
    let needed = options.pool_bytes;
    let problem = (limit < needed).then(|| {
        let remedy =
            format!("Give CAP_IPC_LOCK, or LimitMEMLOCK={needed} (`ulimit -l {}`).", needed.div_ceil(1024));
        (format!("{} is less than the {needed} bytes of the pool", show(limit)), remedy)
    });
    setting(
        NAME,
        Severity::Required,
        format!("RLIMIT_MEMLOCK {} bytes, no CAP_IPC_LOCK", show(limit)),
        problem,
    )
}

fn open_files(options: &Options) -> Check {
    const NAME: &str = "open files";
    let Some((soft, hard)) = limit("Max open files") else {
        return unreadable(NAME, Severity::Degraded, "/proc/self/limits can't be read".to_owned());
    };
    let needed = options.descriptors();
    let problem = (soft < needed).then(|| {
        let why = format!(
            "{soft} is less than {needed} for {} ports and {} workers",
            options.ports, options.workers
        );
        (why, format!("Set LimitNOFILE={needed} in the unit (`ulimit -n {needed}`)."))
    });
    let detail = format!("RLIMIT_NOFILE {} (may be raised to {})", show(soft), show(hard));
    setting(NAME, Severity::Degraded, detail, problem)
}

/// A limit's soft and hard value as /proc/self/limits tells them; no limit is `u64::MAX`.
fn limit(name: &str) -> Option<(u64, u64)> {
    parse_limit(&std::fs::read_to_string("/proc/self/limits").ok()?, name)
}

fn parse_limit(limits: &str, name: &str) -> Option<(u64, u64)> {
    let values = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let mut values = values.split_whitespace().map(|value| match value {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    });
    Some((values.next()??, values.next()??))
}

fn show(limit: u64) -> String {
    if limit == u64::MAX { "unlimited".to_owned() } else { limit.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_the_kernel_writes_them() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max locked memory         8388608              unlimited            bytes     \n\
                      Max open files            1024                 524288               files     \n";
        assert_eq!(parse_limit(limits, "Max locked memory"), Some((8_388_608, u64::MAX)));
        assert_eq!(parse_limit(limits, "Max open files"), Some((1024, 524_288)));
        assert_eq!(parse_limit(limits, "Max address space"), None);
        assert_eq!(parse_limit("Max open files x 1", "Max open files"), None);
    }
}
