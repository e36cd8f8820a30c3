//! What the running kernel and its settings say about themselves in /proc and /sys.

use std::fs;

use forebay_control::doctor::{Check, Severity};

use super::Options;
use super::finding::{Feature, setting, unreadable};

/// The oldest kernel that has all that the switch can't do without, but for what is probed by itself.
const FLOOR: (u32, u32) = (6, 6);

/// Checks that say what kernel this is.
pub(super) fn kernel_checks() -> Vec<Check> {
    vec![kernel_version(), kernel_types()]
}

/// Checks of settings that the machine's owner can change.
pub(super) fn limit_checks(options: &Options) -> Vec<Check> {
    vec![memory_mappings(options), jit(), bpffs(), huge_pages()]
}

fn kernel_version() -> Check {
    const NAME: &str = "kernel version";
    let release = match read("/proc/sys/kernel/osrelease") {
        Ok(release) => release,
        Err(why) => return unreadable(NAME, Severity::Required, why),
    };
    let Some(version) = parse_version(&release) else {
        return unreadable(NAME, Severity::Required, format!("`{release}` does not begin with a version"));
    };
    let (major, minor) = FLOOR;
    let problem = (version < FLOOR).then(|| {
        (format!("{release} is older than {major}.{minor}"), format!("Run Linux {major}.{minor} or later."))
    });
    setting(NAME, Severity::Required, format!("Linux {release}"), problem)
}

fn parse_version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn kernel_types() -> Check {
    let feature = Feature {
        name: "kernel BTF",
        severity: Severity::Required,
        since: "5.4",
        needs: "/sys mounted",
        purpose: "resolves the kernel's functions and types that programs name",
    };
    const PATH: &str = "/sys/kernel/btf/vmlinux";
    match fs::File::open(PATH) {
        Ok(_) => feature.tried(Ok(())),
        Err(_) if !fs::exists("/sys/kernel").unwrap_or(false) => {
            feature.unknown("/sys is not mounted".to_owned())
        }
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            feature.unknown(format!("{PATH}: {error}"))
        }
        Err(error) => feature.missing(format!("{PATH}: {error} (CONFIG_DEBUG_INFO_BTF)")),
    }
}

fn memory_mappings(options: &Options) -> Check {
    const NAME: &str = "memory mappings";
    let most =
        read("/proc/sys/vm/max_map_count").and_then(|text| text.parse::<u64>().map_err(|e| e.to_string()));
    let most = match most {
        Ok(most) => most,
        Err(why) => return unreadable(NAME, Severity::Degraded, why),
    };
    let needed = options.mappings();
    let problem = (most < needed).then(|| {
        let why = format!(
            "{most} is less than {needed} for {} ports and {} workers",
            options.ports, options.workers
        );
        (why, format!("`sysctl -w vm.max_map_count={}`", needed.next_power_of_two()))
    });
    setting(NAME, Severity::Degraded, format!("vm.max_map_count {most}"), problem)
}

fn jit() -> Check {
    const NAME: &str = "BPF compiler";
    let mode = match read("/proc/sys/net/core/bpf_jit_enable") {
        Ok(mode) => mode,
        // The setting is shown in the first network namespace only, and to root only.
        Err(why) => return unreadable(NAME, Severity::Degraded, why),
    };
    let problem = (mode == "0")
        .then(|| ("programs are interpreted".to_owned(), "`sysctl -w net.core.bpf_jit_enable=1`".to_owned()));
    setting(NAME, Severity::Degraded, format!("net.core.bpf_jit_enable {mode}"), problem)
}

fn bpffs() -> Check {
    const NAME: &str = "BPF file system";
    let mounts = match read("/proc/self/mountinfo") {
        Ok(mounts) => mounts,
        Err(why) => return unreadable(NAME, Severity::Info, why),
    };
    let found = find_mount(&mounts, "bpf");
    let problem = found.is_none().then(|| {
        let why = "not mounted; the switch runs without, its programs end with it".to_owned();
        (why, "`mount -t bpf bpf /sys/fs/bpf`".to_owned())
    });
    setting(NAME, Severity::Info, found.map_or(String::new(), |path| format!("mounted on {path}")), problem)
}

/// Where a file system of this type is mounted. In /proc/PID/mountinfo the type follows a lone dash (proc(5)).
fn find_mount<'a>(mountinfo: &'a str, kind: &str) -> Option<&'a str> {
    mountinfo.lines().find_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        (file_system.split(' ').next()? == kind).then(|| mount.split(' ').nth(4))?
    })
}

fn huge_pages() -> Check {
    const NAME: &str = "huge pages";
    match read("/proc/meminfo") {
        Err(why) => unreadable(NAME, Severity::Info, why),
        Ok(meminfo) => {
            let field =
                |name: &str| meminfo.lines().find_map(|line| line.strip_prefix(name)).map_or("?", str::trim);
            let (free, size) = (field("HugePages_Free:"), field("Hugepagesize:"));
            setting(
                NAME,
                Severity::Info,
                format!("{free} free of {size}; the switch does not need them"),
                None,
            )
        }
    }
}

fn read(path: &str) -> Result<String, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_version_is_read_from_any_distributions_release() {
        for (release, version) in [
            ("6.6.0", Some((6, 6))),
            ("6.18.44-fc-v657", Some((6, 18))),
            ("6.1.0-18-amd64", Some((6, 1))),
            ("7.0-rc1+", Some((7, 0))),
            ("linux", None),
            ("6", None),
            ("", None),
        ] {
            assert_eq!(parse_version(release), version, "{release}");
        }
        assert!(parse_version("6.5.13") < Some(FLOOR) && parse_version("6.10.1") > Some(FLOOR));
    }

    #[test]
    fn a_mount_is_found_by_its_type_and_not_by_a_name_that_looks_like_it() {
        let mountinfo = "22 28 0:21 / /proc rw,nosuid shared:12 - proc bpf rw\n\
                         33 24 0:30 / /sys/fs/bpf rw,nosuid - bpf bpf rw,mode=700";
        assert_eq!(find_mount(mountinfo, "bpf"), Some("/sys/fs/bpf"));
        assert_eq!(find_mount(mountinfo, "bpffs"), None);
    }
}
