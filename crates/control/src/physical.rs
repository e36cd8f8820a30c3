//! Which netdevs are PCI functions of one physical port, as far as the kernel tells.
//!
//! Drivers may tell of a netdev the id of its physical port (`phys_port_id`), or the id of the eswitch that it belongs to
//! (`phys_switch_id`) and its name there (`phys_port_name`). Two netdevs are on one physical port if they have the same port
//! id, or the same eswitch and there the same name of a physical port. VFs are left out: they share the port with their PF,
//! and to have both in one group is not what is meant.

use crate::error::{ApiError, ErrorCode};
use crate::group::{MAX_MEMBERS, PciAddress};

/// What a group may be called instead of its members: those are to be found.
const AUTO: &str = "auto";

/// Whose physical port a group is to be of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auto<'a> {
    /// The only physical port that has several functions.
    Any,
    /// That of this netdev.
    Of(&'a str),
}

impl<'a> Auto<'a> {
    /// Reads `auto` and `auto:NETDEV`. `None`: the group names its members.
    pub fn of(group: &'a [String]) -> Option<Self> {
        let [only] = group else { return None };
        match only.strip_prefix(AUTO)? {
            "" => Some(Self::Any),
            rest => rest.strip_prefix(':').map(Self::Of),
        }
    }
}

/// A netdev, and what its driver tells of the physical port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortFunction {
    /// Its name.
    pub netdev: String,
    /// The PCI function below it.
    pub function: Option<PciAddress>,
    /// The function is a VF.
    pub is_virtual: bool,
    /// `phys_port_id`.
    pub port_id: Option<Vec<u8>>,
    /// `phys_switch_id`.
    pub switch_id: Option<Vec<u8>>,
    /// `phys_port_name`.
    pub port_name: Option<String>,
}

impl PortFunction {
    fn is_on_the_port_of(&self, other: &PortFunction) -> bool {
        if let (Some(own), Some(others)) = (&self.port_id, &other.port_id) {
            return own == others;
        }
        let of_eswitch = |netdev: &PortFunction| {
            let name = netdev.port_name.clone().filter(|name| is_physical(name))?;
            Some((netdev.switch_id.clone()?, name))
        };
        of_eswitch(self).is_some_and(|own| of_eswitch(other) == Some(own))
    }

    fn is_told_of(&self) -> bool {
        self.is_on_the_port_of(self)
    }

    /// What a group calls it: by its function, which stays over renames, if no other netdev has that.
    fn called(&self, all: &[PortFunction]) -> String {
        let is_alone = all.iter().filter(|other| other.function == self.function).count() == 1;
        let function = self.function.filter(|_| is_alone);
        function.map_or_else(|| self.netdev.clone(), |function| function.to_string())
    }
}

/// Whether this is the name of a physical port, or of a part that one is split into: `p0`, `p0s1`
/// (`__devlink_port_phys_port_name_get`, net/devlink/port.c, Linux 6.12). Representors of functions are `pf0`, `pf0vf1`.
fn is_physical(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some(rest) = name.strip_prefix('p') else { return false };
    match rest.split_once('s') {
        Some((port, part)) => is_number(port) && is_number(part),
        None => is_number(rest),
    }
}

/// The members of the group that is meant, in the order of their functions.
///
/// # Errors
/// None is found, or it could be several, which are then named.
pub fn find_members(auto: Auto<'_>, netdevs: &[PortFunction]) -> Result<Vec<String>, ApiError> {
    let mut ports = physical_ports(netdevs);
    let members = match auto {
        Auto::Of(name) => {
            let netdev = netdevs.iter().find(|netdev| netdev.netdev == name);
            let netdev = netdev.ok_or_else(|| no_such_netdev(name))?;
            let own = ports.into_iter().find(|port| port.contains(&netdev));
            own.filter(|port| port.len() > 1).ok_or_else(|| alone(netdev))?
        }
        Auto::Any => {
            ports.retain(|port| port.len() > 1);
            match ports.len() {
                0 => return Err(none()),
                1 => ports.remove(0),
                _ => return Err(several(&ports)),
            }
        }
    };
    if members.len() > MAX_MEMBERS {
        let message = format!("{} netdevs are on one physical port", members.len());
        let error = refusal(message, "auto").with_limit(format!("2 to {MAX_MEMBERS} members"));
        return Err(error.with_remedy("name the members: --group A,B"));
    }
    Ok(members.into_iter().map(|member| member.called(netdevs)).collect())
}

/// Netdevs by physical port, those of one port in the order of their functions.
fn physical_ports(netdevs: &[PortFunction]) -> Vec<Vec<&PortFunction>> {
    let mut sorted: Vec<&PortFunction> =
        netdevs.iter().filter(|netdev| netdev.is_told_of() && !netdev.is_virtual).collect();
    sorted.sort_by_key(|netdev| (netdev.function.is_none(), netdev.function, &netdev.netdev));
    let mut ports: Vec<Vec<&PortFunction>> = Vec::new();
    for netdev in sorted {
        match ports.iter_mut().find(|port| port.iter().all(|other| other.is_on_the_port_of(netdev))) {
            Some(port) => port.push(netdev),
            None => ports.push(vec![netdev]),
        }
    }
    ports
}

fn refusal(message: String, value: &str) -> ApiError {
    ApiError::new(ErrorCode::NetdevRefused, message).with_field("group").with_value(value)
}

fn no_such_netdev(name: &str) -> ApiError {
    let message = format!("there is no netdev `{name}` in the switch's network namespace");
    let error = ApiError::new(ErrorCode::NoSuchNetdev, message).with_field("group").with_value(name);
    error.with_remedy("`ip link` lists the netdevs")
}

fn alone(netdev: &PortFunction) -> ApiError {
    let name = &netdev.netdev;
    let error = |message| refusal(message, name).with_remedy("name the members: --group A,B");
    if netdev.is_virtual {
        return error(format!("`{name}` is a VF, and `auto` makes groups of physical functions"));
    }
    if netdev.is_told_of() {
        return error(format!("no other netdev is on the physical port of `{name}`"));
    }
    error(format!("the driver of `{name}` does not tell which physical port it is on"))
        .with_limit("netdevs with phys_port_id, or phys_switch_id and phys_port_name (`ip -d link`)")
}

fn none() -> ApiError {
    refusal("no two netdevs are on one physical port, as far as their drivers tell".to_owned(), AUTO)
        .with_limit("netdevs with phys_port_id, or phys_switch_id and phys_port_name (`ip -d link`)")
        .with_remedy("name the members: --group A,B")
}

fn several(ports: &[Vec<&PortFunction>]) -> ApiError {
    let names = |port: &Vec<&PortFunction>| {
        port.iter().map(|netdev| netdev.netdev.as_str()).collect::<Vec<_>>().join(",")
    };
    let candidates: Vec<String> = ports.iter().map(names).collect();
    let message = format!("{} physical ports have several netdevs: {}", ports.len(), candidates.join("; "));
    let first = candidates[0].split(',').next().unwrap_or_default();
    refusal(message, AUTO).with_limit("one").with_remedy(format!("name one of them: --group auto:{first}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn netdev(name: &str, function: &str) -> PortFunction {
        PortFunction { netdev: name.to_owned(), function: function.parse().ok(), ..PortFunction::default() }
    }

    fn with_id(name: &str, function: &str, id: u8) -> PortFunction {
        PortFunction { port_id: Some(vec![id; 6]), ..netdev(name, function) }
    }

    fn in_eswitch(name: &str, function: &str, switch: u8, port: &str) -> PortFunction {
        let (switch_id, port_name) = (Some(vec![switch; 8]), Some(port.to_owned()));
        PortFunction { switch_id, port_name, ..netdev(name, function) }
    }

    fn refused(auto: Auto<'_>, netdevs: &[PortFunction], part: &str) {
        let error = find_members(auto, netdevs).expect_err(part).to_string();
        assert!(error.contains(part), "{error}");
    }

    #[test]
    fn functions_of_one_physical_port_are_found_by_what_their_drivers_tell() {
        let by_id = [
            with_id("b", "0000:af:00.0", 1),
            netdev("veth0", ""),
            with_id("a", "0000:3b:00.0", 1),
            with_id("other", "0000:3b:00.1", 2),
        ];
        for auto in [Auto::Any, Auto::Of("a"), Auto::Of("b")] {
            assert_eq!(find_members(auto, &by_id).expect("it is clear"), ["0000:3b:00.0", "0000:af:00.0"]);
        }
        let by_eswitch = [
            in_eswitch("a", "0000:3b:00.0", 1, "p0"),
            in_eswitch("b", "0000:af:00.0", 1, "p0"),
            in_eswitch("c", "0000:3b:00.1", 1, "p1"),
            in_eswitch("d", "0000:af:00.1", 2, "p0"),
            in_eswitch("r0", "", 1, "pf0vf0"),
            in_eswitch("r1", "", 1, "pf0vf0"),
        ];
        assert_eq!(
            find_members(Auto::Any, &by_eswitch).expect("it is clear"),
            ["0000:3b:00.0", "0000:af:00.0"]
        );
        refused(Auto::Of("c"), &by_eswitch, "no other netdev is on the physical port of `c`");
        refused(Auto::Of("r0"), &by_eswitch, "does not tell which physical port");
    }

    #[test]
    fn several_netdevs_of_one_function_are_called_by_their_names() {
        let netdevs = [with_id("a", "0000:3b:00.0", 1), with_id("b", "0000:3b:00.0", 1)];
        assert_eq!(find_members(Auto::Any, &netdevs).expect("it is clear"), ["a", "b"]);
        let netdevs = [with_id("b", "", 1), with_id("a", "", 1)];
        assert_eq!(find_members(Auto::Any, &netdevs).expect("it is clear"), ["a", "b"]);
    }

    #[test]
    fn what_is_not_clear_is_refused_with_the_candidates() {
        let two = [
            with_id("a", "0000:3b:00.0", 1),
            with_id("b", "0000:af:00.0", 1),
            with_id("c", "0000:3b:00.1", 2),
            with_id("d", "0000:af:00.1", 2),
        ];
        refused(Auto::Any, &two, "2 physical ports have several netdevs: a,b; c,d");
        refused(Auto::Any, &two, "--group auto:a");
        assert_eq!(find_members(Auto::Of("d"), &two).expect("it is named"), ["0000:3b:00.1", "0000:af:00.1"]);
        refused(Auto::Any, &two[1..3], "no two netdevs");
        refused(Auto::Any, &[], "no two netdevs");
        refused(Auto::Of("x"), &two, "no netdev `x`");
        let many: Vec<_> = (0..17).map(|number| with_id(&format!("m{number}"), "", 1)).collect();
        refused(Auto::Any, &many, "17 netdevs are on one physical port");
    }

    #[test]
    fn vfs_are_left_out() {
        let vf = |name| PortFunction { is_virtual: true, ..with_id(name, "0000:3b:02.0", 1) };
        let netdevs = [with_id("pf", "0000:3b:00.0", 1), vf("vf0"), vf("vf1")];
        refused(Auto::Any, &netdevs, "no two netdevs");
        refused(Auto::Of("pf"), &netdevs, "no other netdev");
        refused(Auto::Of("vf0"), &netdevs, "is a VF");
    }

    #[test]
    fn a_netdev_whose_port_id_differs_is_elsewhere_whatever_its_eswitch() {
        let with_both = |name, function, id| PortFunction {
            port_id: Some(vec![id]),
            ..in_eswitch(name, function, 1, "p0")
        };
        let netdevs = [with_both("a", "0000:3b:00.0", 1), with_both("b", "0000:af:00.0", 2)];
        refused(Auto::Any, &netdevs, "no two netdevs");
    }

    #[test]
    fn only_a_single_word_means_that_members_are_to_be_found() {
        let group = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(Auto::of(&group(&["auto"])), Some(Auto::Any));
        assert_eq!(Auto::of(&group(&["auto:eth0"])), Some(Auto::Of("eth0")));
        for words in [&["auto", "eth0"][..], &["auto0"], &["eth0"], &[]] {
            assert_eq!(Auto::of(&group(words)), None, "{words:?}");
        }
    }

    #[test]
    fn names_of_physical_ports_are_told_from_those_of_functions() {
        for name in ["p0", "p12", "p0s1"] {
            assert!(is_physical(name), "{name}");
        }
        for name in ["", "p", "pf0", "pf0vf1", "c1pf0", "ps1", "p0s", "0", "swp1"] {
            assert!(!is_physical(name), "{name}");
        }
    }
}
