//! The machine's NUMA nodes and processors, and where PCI functions are, as sysfs tells them.
//!
//! The root of sysfs is an argument, so that the same code reads a machine that does not exist.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use forebay_control::group::PciAddress;
use forebay_control::processors::parse_list;

/// What sysfs says is no number or list, or cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It says something else.
    #[error("{} says `{text}`, which is not {expected}", path.display())]
    Senseless {
        /// The file.
        path: PathBuf,
        /// What it says.
        text: String,
        /// What it should.
        expected: &'static str,
    },
    /// There is no such netdev or function.
    #[error("there is no netdev and no PCI function `{name}` below {}", root.display())]
    NoSuchMember {
        /// What was asked for.
        name: String,
        /// The root of sysfs.
        root: PathBuf,
    },
}

/// Nodes and processors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// At least one. On a machine without NUMA it has no number, and all processors.
    pub nodes: Vec<MachineNode>,
    /// Processors that there may be: one more than the largest number.
    pub possible: usize,
}

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineNode {
    /// Its number.
    pub id: Option<u32>,
    /// Its processors that are online.
    pub processors: Vec<usize>,
    /// How far the nodes are, in the order of their numbers. A table that lies may have fewer, or more.
    pub distances: Vec<u32>,
}

/// Where a netdev's function is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The function; none of a netdev without one.
    pub function: Option<PciAddress>,
    /// Its node, as far as the firmware says.
    pub node: Option<u32>,
}

impl Machine {
    /// Reads what is below `sys`, which is usually `/sys`.
    ///
    /// # Errors
    /// Names the file, and what it says.
    pub fn read(sys: &Path) -> Result<Self, MachineError> {
        let devices = sys.join("devices/system");
        let online = list(&devices.join("cpu/online"))?;
        let largest = list(&devices.join("cpu/possible")).unwrap_or_default().last().copied();
        let possible = largest.max(online.last().copied()).map_or(0, |largest| largest + 1);
        let mut nodes = Vec::new();
        for (id, path) in node_directories(&devices.join("node")) {
            let here = list(&path.join("cpulist"))?;
            // A processor that two nodes claim is the first's.
            let is_free = |processor: &usize| {
                let taken = |node: &MachineNode| node.processors.contains(processor);
                online.contains(processor) && !nodes.iter().any(taken)
            };
            let processors = here.into_iter().filter(is_free).collect();
            nodes.push(MachineNode { id: Some(id), processors, distances: numbers(&path.join("distance"))? });
        }
        let is_claimed = |processor: &usize| nodes.iter().any(|node| node.processors.contains(processor));
        let rest: Vec<usize> = online.iter().copied().filter(|processor| !is_claimed(processor)).collect();
        if nodes.is_empty() || !rest.is_empty() {
            nodes.push(MachineNode { id: None, processors: rest, distances: Vec::new() });
        }
        Ok(Self { nodes, possible })
    }

    /// The number of a processor's node.
    pub fn node_of(&self, processor: usize) -> Option<u32> {
        self.nodes.iter().find(|node| node.processors.contains(&processor)).and_then(|node| node.id)
    }

    /// Which of [`Machine::nodes`] has this number. `None`, too, for a number that none has.
    pub fn index_of(&self, node: Option<u32>) -> Option<usize> {
        self.nodes.iter().position(|candidate| node.is_some() && candidate.id == node)
    }
}

/// Finds a netdev by its name, or a PCI function by its address.
///
/// # Errors
/// There is neither; or its file says something senseless.
pub fn place_of(sys: &Path, name: &str) -> Result<Place, MachineError> {
    if let Ok(function) = name.parse() {
        let found = place_of_function(sys, function)?;
        return found.ok_or_else(|| no_such_member(sys, name));
    }
    let netdev = sys.join("class/net").join(name);
    if !netdev.exists() {
        return Err(no_such_member(sys, name));
    }
    match function_of(&netdev.join("device")) {
        Some(function) => Ok(place_of_function(sys, function)?.unwrap_or_default()),
        None => Ok(Place::default()),
    }
}

/// The PCI function that a device's directory is of, or that the device hangs on, as a virtio device does.
pub(crate) fn function_of(device: &Path) -> Option<PciAddress> {
    let path = device.canonicalize().ok()?;
    let mut names = path.components().rev().filter_map(|part| part.as_os_str().to_str());
    names.find_map(|name| name.parse().ok())
}

/// Where a function is, if it is there.
///
/// # Errors
/// Its file says something senseless.
pub fn place_of_function(sys: &Path, function: PciAddress) -> Result<Option<Place>, MachineError> {
    let device = sys.join("bus/pci/devices").join(function.to_string());
    if !device.exists() {
        return Ok(None);
    }
    let path = device.join("numa_node");
    let node = match read(&path) {
        Err(MachineError::Unreadable { source, .. }) if source.kind() == ErrorKind::NotFound => None,
        text => {
            let text = text?;
            let expected = "a node's number, or -1";
            let senseless = || MachineError::Senseless { path, text: text.clone(), expected };
            let number = text.parse::<i64>().map_err(|_| senseless())?;
            // -1: the firmware does not say.
            u32::try_from(number).ok()
        }
    };
    Ok(Some(Place { function: Some(function), node }))
}

fn no_such_member(sys: &Path, name: &str) -> MachineError {
    MachineError::NoSuchMember { name: name.to_owned(), root: sys.to_owned() }
}

/// `node0`, `node1` and so on, by their numbers.
fn node_directories(path: &Path) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let numbered = entries.filter_map(|entry| {
        let id = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
        Some((id, entry.path()))
    });
    let mut found: Vec<_> = numbered.collect();
    found.sort_unstable();
    found
}

fn read(path: &Path) -> Result<String, MachineError> {
    let text = fs::read_to_string(path);
    let text = text.map_err(|source| MachineError::Unreadable { path: path.to_owned(), source })?;
    Ok(text.trim().to_owned())
}

/// Numbers of processors in ascending order, as in `0-3,8`; none where the file is empty, as for a node without processors.
fn list(path: &Path) -> Result<Vec<usize>, MachineError> {
    let text = read(path)?;
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let parsed = parse_list(&text).map_err(str::to_owned);
    let expected = "a list of processors, as in 0-3,8";
    let mut found = parsed.map_err(|_| MachineError::Senseless { path: path.to_owned(), text, expected })?;
    found.sort_unstable();
    found.dedup();
    Ok(found.into_iter().map(|processor| processor as usize).collect())
}

fn numbers(path: &Path) -> Result<Vec<u32>, MachineError> {
    let text = read(path)?;
    let found: Result<Vec<u32>, _> = text.split_whitespace().map(str::parse).collect();
    let expected = "a list of distances, as in 10 21";
    found.map_err(|_| MachineError::Senseless { path: path.to_owned(), text, expected })
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A sysfs with these files.
    fn sysfs(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().expect("a temporary directory can be made");
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("files lie in directories")).expect("it can be made");
            fs::write(path, text).expect("it can be written");
        }
        root
    }

    #[test]
    fn a_machine_with_two_nodes_has_their_processors_that_are_online() {
        let root = sysfs(&[
            ("devices/system/cpu/online", "0-2,4-5\n"),
            ("devices/system/cpu/possible", "0-7\n"),
            ("devices/system/node/node0/cpulist", "0-3\n"),
            ("devices/system/node/node0/distance", "10 21\n"),
            ("devices/system/node/node1/cpulist", "4-5\n"),
            ("devices/system/node/node1/distance", "21 10\n"),
            ("devices/system/node/online", "0-1\n"),
        ]);
        let machine = Machine::read(root.path()).expect("it makes sense");
        assert_eq!(machine.possible, 8);
        let nodes: Vec<_> = machine.nodes.iter().map(|node| (node.id, node.processors.clone())).collect();
        assert_eq!(nodes, [(Some(0), vec![0, 1, 2]), (Some(1), vec![4, 5])]);
        assert_eq!(
            [machine.index_of(Some(1)), machine.index_of(Some(7)), machine.index_of(None)],
            [Some(1), None, None]
        );
    }

    #[test]
    fn a_machine_without_nodes_has_one_without_a_number() {
        let root = sysfs(&[("devices/system/cpu/online", "0-1")]);
        let machine = Machine::read(root.path()).expect("it makes sense");
        assert_eq!((machine.possible, machine.nodes.len()), (2, 1));
        assert_eq!((machine.nodes[0].id, machine.nodes[0].processors.clone()), (None, vec![0, 1]));
    }

    #[test]
    fn a_sysfs_that_lies_is_believed_as_far_as_it_can_be() {
        // Two nodes claim a processor, none claims another, and a third is not online.
        let root = sysfs(&[
            ("devices/system/cpu/online", "0-2"),
            ("devices/system/node/node0/cpulist", "0-1,9"),
            ("devices/system/node/node0/distance", "10"),
            ("devices/system/node/node3/cpulist", "1"),
            ("devices/system/node/node3/distance", ""),
        ]);
        let machine = Machine::read(root.path()).expect("it makes sense");
        let nodes: Vec<_> = machine.nodes.iter().map(|node| (node.id, node.processors.clone())).collect();
        assert_eq!(nodes, [(Some(0), vec![0, 1]), (Some(3), vec![]), (None, vec![2])]);
        for (file, text) in [("cpu/online", "0-8192"), ("cpu/online", "3-1"), ("node/node0/distance", "ten")]
        {
            fs::write(root.path().join("devices/system").join(file), text).expect("it can be written");
            let error = Machine::read(root.path()).expect_err("it makes no sense").to_string();
            assert!(error.contains(file) && error.contains(&format!("`{text}`")), "{error}");
            fs::write(root.path().join("devices/system").join(file), "0").expect("it can be written");
        }
    }

    #[test]
    fn a_member_is_found_by_its_netdev_and_by_its_function() {
        const FUNCTION: &str = "0000:3b:00.1";
        let root = sysfs(&[
            ("bus/pci/devices/0000:3b:00.1/numa_node", "1\n"),
            ("bus/pci/devices/0000:3b:00.2/numa_node", "-1\n"),
            ("bus/pci/devices/0000:3b:00.3/numa_node", "far\n"),
            ("bus/pci/devices/0000:3b:00.1/virtio2/net/eth2/mtu", "1500"),
            ("class/net/eth2/mtu", "1500"),
            ("class/net/veth0/mtu", "1500"),
        ]);
        let device = root.path().join("bus/pci/devices").join(FUNCTION).join("virtio2");
        std::os::unix::fs::symlink(device, root.path().join("class/net/eth2/device"))
            .expect("it can be made");
        let place = Place { function: FUNCTION.parse().ok(), node: Some(1) };
        assert_eq!(place_of(root.path(), FUNCTION).expect("it is there"), place);
        assert_eq!(place_of(root.path(), "eth2").expect("it is there"), place);
        assert_eq!(place_of(root.path(), "veth0").expect("it is there"), Place::default());
        assert_eq!(place_of(root.path(), "0000:3b:00.2").expect("it is there").node, None);
        for (name, text) in
            [("0000:3b:00.3", "`far`"), ("0000:3b:00.4", "no PCI function"), ("eth9", "`eth9`")]
        {
            let error = place_of(root.path(), name).expect_err("it is not there").to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
