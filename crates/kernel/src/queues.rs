//! A netdev's receive queues: their NAPI instances and interrupts, and which processors serve them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use forebay_control::IfIndex;
use forebay_control::group::PciAddress;

use crate::netlink::{Link, netdev_genl};

/// A receive queue that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its number.
    pub number: u32,
    /// The NAPI instance that polls it, if the driver tells.
    pub napi: Option<u32>,
    /// Its interrupt, as the driver tells or calls it.
    pub irq: Option<u32>,
    /// The PCI function that has the interrupt, or else the netdev's.
    pub function: Option<PciAddress>,
}

/// The receive queues of a netdev, in order. `function` is the PCI function below it. What nobody tells is left out, and
/// there is always one queue.
pub fn rx_queues(ifindex: IfIndex, function: Option<PciAddress>) -> Vec<Queue> {
    let told = netdev_genl::queue_napis(ifindex).unwrap_or_default();
    let irqs: HashMap<u32, u32> = netdev_genl::napi_irqs(ifindex).unwrap_or_default().into_iter().collect();
    let called = function.map(interrupts_by_queue).unwrap_or_default();
    let functions = if irqs.is_empty() { HashMap::new() } else { functions_of_interrupts(Path::new("/sys")) };
    let queue = |(number, napi): (u32, Option<u32>)| {
        let told = napi.and_then(|napi| irqs.get(&napi)).copied();
        let irq = told.or_else(|| called.get(&number).copied());
        let function = told.and_then(|irq| functions.get(&irq).copied()).or(function);
        Queue { number, napi, irq, function }
    };
    let mut queues: Vec<Queue> = told.into_iter().map(queue).collect();
    if queues.is_empty() {
        queues.push(queue((0, None)));
    }
    queues.sort_by_key(|queue| queue.number);
    queues
}

/// The PCI function that has each interrupt. Below one netdev there may be several functions: a driver may make one netdev
/// of all functions of a physical port (Documentation/networking/multi-pf-netdev.rst, Linux 6.12). `sys` is the root of
/// sysfs.
pub fn functions_of_interrupts(sys: &Path) -> HashMap<u32, PciAddress> {
    let names = |path: PathBuf| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok())
    };
    let devices = sys.join("bus/pci/devices");
    let functions = names(devices.clone()).filter_map(|name| name.parse::<PciAddress>().ok());
    let of_function = |function: PciAddress| {
        let irqs = names(devices.join(function.to_string()).join("msi_irqs"));
        irqs.filter_map(move |irq| Some((irq.parse().ok()?, function)))
    };
    functions.flat_map(of_function).collect()
}

/// Packets that each receive queue has had, as far as the driver counts them; nothing where it does not.
pub fn received_by(ifindex: IfIndex) -> Vec<(u32, u64)> {
    netdev_genl::received_by_queue(ifindex).unwrap_or_default()
}

/// Interrupts of a function's receive queues, by what its driver calls them.
fn interrupts_by_queue(function: PciAddress) -> HashMap<u32, u32> {
    let vectors = PathBuf::from(format!("/sys/bus/pci/devices/{function}/msi_irqs"));
    let irqs = fs::read_dir(vectors).into_iter().flatten().flatten();
    let irqs = irqs.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let named = irqs.filter_map(|irq| {
        let actions = fs::read_to_string(format!("/sys/kernel/irq/{irq}/actions")).ok()?;
        Some((queue_of(actions.trim())?, irq))
    });
    named.collect()
}

/// The receive queue in an interrupt's name, as drivers call them: `virtio1-input.0`, `eth0-rx-2`, `i40e-eth0-TxRx-3`,
/// `mlx5_comp7@pci:0000:3b:00.0`.
fn queue_of(action: &str) -> Option<u32> {
    let name = action.split('@').next()?.to_ascii_lowercase();
    let is_rx = ["input", "rx", "comp"].iter().any(|word| name.contains(word));
    let digits = name.len() - name.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
    name[name.len() - digits..].parse().ok().filter(|_| is_rx)
}

/// Where the kernel has which processors take an interrupt, as a list.
pub fn affinity_of(irq: u32) -> PathBuf {
    PathBuf::from(format!("/proc/irq/{irq}/smp_affinity_list"))
}

/// Where the kernel has which processors send by a queue, as a mask. `None`: sysfs is not of the network namespace that the
/// netdev is in, where another netdev may have its name.
pub fn senders_of(netdev: &Link, queue: u32) -> Option<PathBuf> {
    netdev.directory().map(|directory| directory.join(format!("queues/tx-{queue}/xps_cpus")))
}

/// Whose a file of [`affinity_of`] or [`senders_of`] is: who takes the interrupt, or the netdev's number. Both may be another's
/// later. `None`: it is no such file, or not there.
pub fn owner_of(path: &Path) -> Option<String> {
    let parts: Vec<&str> = path.to_str()?.split('/').collect();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match parts.as_slice() {
        ["", "proc", "irq", irq, "smp_affinity_list"] if is_number(irq) => {
            read(Path::new(&format!("/sys/kernel/irq/{irq}/actions")))
        }
        ["", "sys", "class", "net", netdev, "queues", queue, "xps_cpus"]
            if queue.strip_prefix("tx-").is_some_and(is_number) && !matches!(*netdev, "." | "..") =>
        {
            read(Path::new(&format!("/sys/class/net/{netdev}/ifindex")))
        }
        _ => None,
    }
}

/// How often an interrupt came, on all processors. `None`: there is no such interrupt.
pub fn interrupts(irq: u32) -> Option<u64> {
    let counts = read(Path::new(&format!("/sys/kernel/irq/{irq}/per_cpu_count")))?;
    counts.split(',').map(|count| count.parse::<u64>().ok()).sum()
}

/// The netdev's speed in Mbit/s, if its driver knows, and sysfs is of its namespace.
pub fn speed_of(netdev: &Link) -> Option<u32> {
    // -1, or an error, where the driver does not know.
    read(&netdev.directory()?.join("speed"))?.parse().ok()
}

/// What such a file says; nothing where there is none.
pub fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_read_from_what_drivers_call_its_interrupt() {
        for (action, queue) in [
            ("virtio1-input.0", Some(0)),
            ("eth0-rx-2", Some(2)),
            ("eth0-rxtx-3", Some(3)),
            ("i40e-eth0-TxRx-13", Some(13)),
            ("mlx5_comp7@pci:0000:3b:00.0", Some(7)),
            ("virtio1-output.0", None),
            ("eth0-tx-1", None),
            ("virtio1-config", None),
            ("mlx5_async0@pci:0000:3b:00.0", None),
            ("eth0-rx", None),
            ("", None),
        ] {
            assert_eq!(queue_of(action), queue, "{action}");
        }
    }

    #[test]
    fn an_interrupt_belongs_to_the_function_that_lists_it() {
        let root = tempfile::tempdir().expect("a temporary directory can be made");
        let devices = root.path().join("bus/pci/devices");
        for name in [
            "0000:3b:00.0/msi_irqs/40",
            "0000:af:00.0/msi_irqs/41",
            "0000:af:00.0/msi_irqs/x",
            "bad/msi_irqs/42",
        ] {
            fs::create_dir_all(devices.join(name)).expect("it can be made");
        }
        let found = functions_of_interrupts(root.path());
        let function = |text: &str| text.parse().expect("an address");
        assert_eq!(found, HashMap::from([(40, function("0000:3b:00.0")), (41, function("0000:af:00.0"))]));
        assert_eq!(functions_of_interrupts(Path::new("/nothing")), HashMap::new());
    }

    #[test]
    fn a_netdev_of_another_namespace_that_has_the_same_name_is_not_touched() {
        let here = Link { name: "lo".to_owned(), ifindex: IfIndex(1), mac: Some([0; 6]), ..Link::default() };
        assert!(senders_of(&here, 0).is_some());
        assert_eq!(senders_of(&Link { ifindex: IfIndex(2), ..here.clone() }, 0), None);
        assert_eq!(senders_of(&Link { mac: Some([2; 6]), ..here.clone() }, 0), None);
        assert_eq!(speed_of(&Link { name: "nothing".to_owned(), ..here }), None);
    }

    #[test]
    fn only_settings_of_interrupts_and_queues_have_an_owner() {
        let owner = |path: &str| owner_of(Path::new(path));
        assert_eq!(owner("/sys/class/net/lo/queues/tx-0/xps_cpus").as_deref(), Some("1"));
        for path in [
            "/sys/class/net/lo/queues/tx-/xps_cpus",
            "/sys/class/net/lo/queues/rx-0/xps_cpus",
            "/sys/class/net/../queues/tx-0/xps_cpus",
            "/sys/class/net/nothing/queues/tx-0/xps_cpus",
            "/proc/irq/../smp_affinity_list",
            "/proc/irq/0/smp_affinity",
            "/etc/passwd",
        ] {
            assert_eq!(owner(path), None, "{path}");
        }
    }
}
