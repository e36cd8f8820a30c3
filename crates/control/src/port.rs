//! Ports: what is asked for, what may be changed, and what is shown.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::coalesce::CoalesceSet;
use crate::coalesce::stated::{self, StatedError};
use crate::counters::PortCounters;
use crate::error::ApiError;
use crate::group::{MAX_MEMBERS, MemberShow, Membership, PciAddress};
use crate::id::{IfIndex, PortId};
use crate::physical::Auto;
use crate::vhost_user::{VhostUser, VhostUserShow};
use crate::vlan::VlanMode;
use crate::words::words;

/// The longest port name, in bytes.
pub const PORT_NAME_MAX_BYTES: usize = 64;
/// The longest netdev name, in bytes: the kernel's IFNAMSIZ less the terminating zero.
pub const NETDEV_NAME_MAX_BYTES: usize = 15;

/// How a port's kernel program is to be attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Attach {
    /// tcx for purely virtual netdevs, XDP for devices that report native XDP.
    #[default]
    Auto,
    /// At tcx ingress: sees whole GSO packets and leaves all offloads on.
    Tcx,
    /// As native XDP.
    Xdp,
}

/// Whether a port's netdev is to receive everything, also what is addressed to others. Veths and taps do anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Promiscuity {
    /// Everything. A VF, which may not be allowed to, is also told the known stations behind other ports.
    #[default]
    Auto,
    /// Everything.
    On,
    /// What is for groups, and for known stations behind other ports.
    Off,
}

/// Where a port's kernel program is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AttachKind {
    /// At tcx ingress.
    Tcx,
    /// As native XDP.
    Xdp,
    /// By the queues of a virtual machine.
    VhostUser,
}

/// Whether a port can carry packets now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PortState {
    /// Attached and carrying packets.
    Up,
    /// The netdev is administratively down or has no carrier.
    NetdevDown,
    /// No netdev of this name is there; the port comes up when there is one.
    NetdevMissing,
    /// Members of its group are missing, or no virtual machine is connected.
    Waiting,
    /// A virtual machine is connected, and its driver has not started a queue in each direction.
    Negotiating,
    /// The virtual machine, or the program that runs it, broke the rules. It may connect again.
    Broken,
    /// The netdev is in another network namespace; the port comes back with it.
    NetdevMoved,
    /// The netdev now has another name; the port keeps following it.
    NetdevRenamed,
    /// Nothing is received or sent: packets that leave by another port come in here.
    Blocked,
    /// Attached, and every packet that comes in for the slow path is lost.
    NotCarrying,
    /// The netdev is there and cannot be a port now: the kernel refuses, or it carries another's XDP program. Tried again
    /// when the netdev changes, and by itself at intervals.
    AttachFailed,
}

words!(Attach: Auto => "auto", Tcx => "tcx", Xdp => "xdp");
words!(Promiscuity: Auto => "auto", On => "on", Off => "off");
words!(AttachKind: Tcx => "tcx", Xdp => "xdp", VhostUser => "vhost-user");
words!(PortState: Up => "up", NetdevDown => "netdev-down", NetdevMissing => "netdev-missing", Waiting => "waiting",
    Negotiating => "negotiating", Broken => "broken",
    NetdevMoved => "netdev-moved", NetdevRenamed => "netdev-renamed", Blocked => "blocked", NotCarrying => "not-carrying",
    AttachFailed => "attach-failed");

impl PortState {
    /// Whether packets may come in and go out.
    pub fn carries(self) -> bool {
        matches!(self, PortState::Up | PortState::NetdevRenamed | PortState::NotCarrying)
    }
}

/// A word that names no attachment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("attach `{value}` is not one of auto, tcx, xdp")]
pub struct AttachError {
    /// What was given.
    pub value: String,
}

impl FromStr for Attach {
    type Err = AttachError;

    fn from_str(text: &str) -> Result<Attach, AttachError> {
        [Attach::Auto, Attach::Tcx, Attach::Xdp]
            .into_iter()
            .find(|attach| attach.name() == text)
            .ok_or_else(|| AttachError { value: text.to_owned() })
    }
}

/// A word that does not say what a netdev is to receive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("promiscuous `{value}` is not one of auto, on, off")]
pub struct PromiscuityError {
    /// What was given.
    pub value: String,
}

impl FromStr for Promiscuity {
    type Err = PromiscuityError;

    fn from_str(text: &str) -> Result<Promiscuity, PromiscuityError> {
        [Promiscuity::Auto, Promiscuity::On, Promiscuity::Off]
            .into_iter()
            .find(|word| word.name() == text)
            .ok_or_else(|| PromiscuityError { value: text.to_owned() })
    }
}

/// A port to be added; also one `[[port]]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PortSpec {
    /// The netdev's name in the switch's network namespace. Left out if there is a group or a virtual machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub netdev: String,
    /// The members of a port that has several: names of netdevs, or addresses of PCI functions. Or one word: `auto:NETDEV`
    /// for the functions of that netdev's physical port, `auto` for those of the only one that has several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group: Vec<String>,
    /// When a port with several members carries packets.
    #[serde(default)]
    pub members: Membership,
    /// The socket of the virtual machine that is behind the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vhost_user: Option<VhostUser>,
    /// The port's name; the netdev's if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How to attach.
    #[serde(default)]
    pub attach: Attach,
    /// Which VLANs the port carries.
    #[serde(default)]
    pub vlan: VlanMode,
    /// Isolated ports reach only ports that are not isolated.
    #[serde(default)]
    pub isolated: bool,
    /// Whether its netdev is to receive everything.
    #[serde(default)]
    pub promiscuous: Promiscuity,
    /// How interrupts are moderated, in the words of `coalesce set`; a later member changes what an earlier one set. Empty:
    /// as the configuration file has it for all ports. A netdev that does not take it keeps what it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "stated::one_or_many")]
    pub coalesce: Vec<CoalesceSet>,
}

impl PortSpec {
    /// A transparent port on this netdev, with its name, attached automatically.
    pub fn new(netdev: impl Into<String>) -> PortSpec {
        let netdev = netdev.into();
        PortSpec {
            netdev,
            group: Vec::new(),
            members: Membership::Strict,
            vhost_user: None,
            name: None,
            attach: Attach::Auto,
            vlan: VlanMode::All,
            isolated: false,
            promiscuous: Promiscuity::Auto,
            coalesce: Vec::new(),
        }
    }

    /// The port's name: the given one or the netdev's.
    pub fn port_name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.netdev)
    }

    /// Whether it has several members.
    pub fn is_group(&self) -> bool {
        !self.group.is_empty()
    }

    /// Whether members are named by their PCI functions.
    pub fn names_functions(&self) -> bool {
        self.group.iter().any(|member| member.parse::<PciAddress>().is_ok())
    }

    /// Whether a virtual machine is behind it.
    pub fn is_guest(&self) -> bool {
        self.vhost_user.is_some()
    }

    /// What a refusal names: the netdev, or the port if that has several or none.
    pub fn asked_for(&self) -> &str {
        if self.is_group() || self.is_guest() { self.port_name() } else { &self.netdev }
    }

    /// Checks all names; whether netdevs exist only the switch knows.
    ///
    /// # Errors
    /// Names the field, the value and the limit.
    pub fn validate(&self) -> Result<(), ApiError> {
        if let Some(socket) = &self.vhost_user {
            check_guest(self)?;
            socket.validate()?;
        } else if self.is_group() {
            check_group(self)?;
        } else if self.netdev.is_empty() {
            let error = ApiError::invalid("netdev", "", "a netdev's name, or a group of members");
            return Err(error.with_remedy("name the port's netdev"));
        } else {
            check_netdev_name(&self.netdev)?;
        }
        check_port_name(self.port_name())?;
        self.check_coalesce(&self.coalesce).map_err(|wrong| {
            let message = format!("coalesce: {}", wrong.error.message);
            ApiError { message, ..wrong.error }.with_field("coalesce")
        })
    }

    /// Checks moderation that is stated for this port.
    ///
    /// # Errors
    /// The first member that the port cannot have.
    pub fn check_coalesce(&self, stated: &[CoalesceSet]) -> Result<(), StatedError> {
        stated::check(stated, self.vhost_user.as_ref().map(|socket| socket.queues))
    }
}

fn check_guest(spec: &PortSpec) -> Result<(), ApiError> {
    if !spec.netdev.is_empty() || spec.is_group() {
        let value = if spec.is_group() { spec.group.join(",") } else { spec.netdev.clone() };
        let error = ApiError::invalid("netdev", value, "no netdev beside a virtual machine");
        return Err(error.with_remedy("add the netdev as another port"));
    }
    if spec.name.is_none() {
        let error = ApiError::invalid("name", "", "a name, where there is a virtual machine");
        return Err(error.with_remedy("give the port a name"));
    }
    if spec.attach != Attach::Auto {
        let error = ApiError::invalid("attach", spec.attach, "auto, where there is a virtual machine");
        return Err(error.with_remedy("leave it out"));
    }
    Ok(())
}

fn check_group(spec: &PortSpec) -> Result<(), ApiError> {
    let group = &spec.group;
    if !spec.netdev.is_empty() {
        let error = ApiError::invalid("netdev", &spec.netdev, "no netdev beside a group");
        return Err(error.with_remedy("name the netdev as a member of the group"));
    }
    if spec.name.is_none() {
        let error = ApiError::invalid("name", "", "a name, where there is a group");
        return Err(error.with_remedy("give the port a name"));
    }
    let auto = Auto::of(group);
    if let Some(Auto::Of(name)) = auto {
        check_netdev_name(name).map_err(|error| error.with_field("group"))?;
    }
    if auto.is_none() && !(2..=MAX_MEMBERS).contains(&group.len()) {
        let error = ApiError::invalid("group", group.join(","), format!("2 to {MAX_MEMBERS} members"));
        return Err(error.with_remedy("add a port with one netdev without a group"));
    }
    if spec.attach == Attach::Xdp {
        let error = ApiError::invalid("attach", spec.attach, "auto or tcx, where there is a group");
        return Err(error.with_remedy("leave it out"));
    }
    for (index, member) in group.iter().enumerate().filter(|_| auto.is_none()) {
        if member.parse::<PciAddress>().is_err() {
            let limit = "a netdev's name, or a PCI address as in 0000:3b:00.1";
            let error = || ApiError::invalid("group", member.escape_debug(), limit);
            check_netdev_name(member)
                .map_err(|_| error().with_remedy("`ip link` shows the names of netdevs"))?;
        }
        if group[..index].contains(member) {
            let error = ApiError::invalid("group", member, "each member once");
            return Err(error.with_remedy("leave the second out"));
        }
    }
    Ok(())
}

/// Whether this can be a netdev's name: the kernel's own rule (`dev_valid_name` in net/core/dev.c).
///
/// # Errors
/// Names the value and the limit.
pub fn check_netdev_name(name: &str) -> Result<(), ApiError> {
    let limit = "1 to 15 bytes, no slash, colon, white space or control character, not . or ..";
    let is_valid = (1..=NETDEV_NAME_MAX_BYTES).contains(&name.len())
        && !matches!(name, "." | "..")
        && !name.chars().any(|c| matches!(c, '/' | ':') || c.is_whitespace() || c.is_control());
    let error = || ApiError::invalid("netdev", name.escape_debug(), limit);
    is_valid.then_some(()).ok_or_else(|| error().with_remedy("`ip link` shows the names of netdevs"))
}

/// Whether this can be a port's name.
///
/// # Errors
/// Names the value and the limit.
pub fn check_port_name(name: &str) -> Result<(), ApiError> {
    let limit = "1 to 64 bytes, no slash, white space or control character, not . or ..";
    let is_valid = (1..=PORT_NAME_MAX_BYTES).contains(&name.len())
        && !matches!(name, "." | "..")
        && !name.chars().any(|c| c == '/' || c.is_whitespace() || c.is_control());
    let error = || ApiError::invalid("name", name.escape_debug(), limit);
    is_valid.then_some(()).ok_or_else(|| error().with_remedy("choose another name"))
}

/// Adds ports. Each is answered for itself: a refused one doesn't hold back the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PortAdd {
    /// The ports, at least one.
    pub ports: Vec<PortSpec>,
    /// Also adds ports whose netdev is not there or cannot be used now. Such a port says why, and comes up by itself
    /// when its netdev can be used.
    #[serde(default)]
    pub wait: bool,
}

/// A port that was not added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortAddRefused {
    /// The netdev asked for.
    pub netdev: String,
    /// Why not.
    pub error: ApiError,
}

/// The answer to [`PortAdd`]: every port asked for is in one of the lists.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PortAddReply {
    /// The ports that now exist.
    pub added: Vec<PortShow>,
    /// Those that don't, and why.
    pub refused: Vec<PortAddRefused>,
}

/// Deletes ports by name. Each is answered for itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PortDel {
    /// The ports' names, at least one.
    pub names: Vec<String>,
}

/// A port that was not deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortDelRefused {
    /// The name asked for.
    pub name: String,
    /// Why not.
    pub error: ApiError,
}

/// The answer to [`PortDel`]: every name asked for is in one of the lists.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PortDelReply {
    /// The names of the ports that are gone.
    pub deleted: Vec<String>,
    /// Those that aren't, and why.
    pub refused: Vec<PortDelRefused>,
}

/// What may be changed while a port carries traffic; what isn't given stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PortSet {
    /// Which VLANs the port carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanMode>,
    /// Isolated ports reach only ports that are not isolated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolated: Option<bool>,
    /// How interrupts are moderated from now on, whatever was set before; see the same of a new port.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "stated::some_one_or_many")]
    pub coalesce: Option<Vec<CoalesceSet>>,
}

impl PortSet {
    /// Whether nothing would change.
    pub fn is_empty(&self) -> bool {
        *self == PortSet::default()
    }
}

/// One port as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortShow {
    /// Its number.
    pub id: PortId,
    /// Its name.
    pub name: String,
    /// The netdev behind it, or those of its members, with commas.
    pub netdev: String,
    /// Its members that are there, the leader first. Empty if it is no group.
    pub members: Vec<MemberShow>,
    /// The virtual machine behind it, if it is a port for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vhost_user: Option<VhostUserShow>,
    /// The netdev's number, while there is one.
    pub ifindex: Option<IfIndex>,
    /// Where it is attached.
    pub attach: AttachKind,
    /// What was asked for.
    pub requested: Attach,
    /// Whether it can carry packets.
    pub state: PortState,
    /// The same for a person to read, with the cause; empty while up.
    pub state_reason: String,
    /// Which VLANs it carries.
    pub vlan: VlanMode,
    /// Whether it reaches only ports that are not isolated.
    pub isolated: bool,
    /// The netdev's MTU in bytes; 0 when unknown.
    pub mtu: u32,
    /// Whether the switch has its netdev receive what is addressed to others. A veth and a tap do anyway.
    pub promiscuous: bool,
    /// Stations behind other ports that the netdev was told, so that it receives what is addressed to them. Absent where it
    /// need not know any.
    pub unicast_filter: Option<u32>,
    /// The workers that serve it.
    pub worker: Vec<u32>,
    /// Packets its RX ring holds at most.
    pub rx_ring_depth: u32,
    /// Its counters.
    pub counters: PortCounters,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_transparent_and_takes_the_netdevs_name_unless_told() {
        let spec: PortSpec = serde_json::from_str("{\"netdev\":\"eth0\"}").unwrap();
        assert_eq!(spec, PortSpec::new("eth0"));
        assert_eq!(spec.port_name(), "eth0");
    }

    #[test]
    fn an_unknown_field_is_refused_by_name() {
        let error = serde_json::from_str::<PortSpec>("{\"netdev\":\"eth0\",\"color\":1}").unwrap_err();
        assert!(error.to_string().contains("`color`"), "{error}");
    }

    #[test]
    fn a_netdev_name_follows_the_kernels_rule() {
        for name in ["eth0", "veth-a@b", "0123456789abcde"] {
            assert_eq!(check_netdev_name(name), Ok(()));
        }
        for name in ["", ".", "..", "a/b", "a:b", "a b", "0123456789abcdef", "a\u{0}"] {
            assert!(check_netdev_name(name).is_err(), "{name:?} was taken");
        }
    }

    #[test]
    fn a_word_in_json_is_the_word_in_tables() {
        for state in [PortState::Up, PortState::NetdevMissing, PortState::AttachFailed] {
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{state}\""));
        }
    }
}
