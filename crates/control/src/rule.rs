//! Rules: what is done with packets that have what the rule asks for.
//!
//! A rule goes before what the switch would do by itself. Of the rules that a packet falls under, the one with the
//! highest priority counts and, of equal ones, the one with the lowest id. A field that is left out asks nothing.
//!
//! The rule it keeps: a rule that no packet can fall under is refused where it is made, with what to do about it
//! ([`RuleAdd::validate`]). Whether the ports it names exist only the switch knows; a rule that names a port which is not
//! there sleeps until it is.

mod action;
mod check;
mod ethertype;
mod ip_proto;
#[cfg(test)]
mod tests;
mod text;

use std::fmt;

use forebay_flow::{Match, PortRange, Prefix};
use forebay_wire::mac;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::{MacAddr, Vid};
use crate::words::words;

pub use action::{MAX_OUTPUTS, RuleAction, RuleActionError};
pub use ethertype::{Ethertype, EthertypeError};
pub use ip_proto::{IpProto, IpProtoError};

/// Rules there may be at most.
pub const MAX_RULES: usize = 4096;

/// Adds a rule; also one `[[flows.rules]]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleAdd {
    /// Of two rules that a packet falls under, the one with the higher number counts.
    pub priority: u16,
    /// The port it comes in at, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_port: Option<String>,
    /// Its source; not a group address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src_mac: Option<MacAddr>,
    /// Its destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst_mac: Option<MacAddr>,
    /// The VLAN that it is in, whatever its tag says; 1 to 4094.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Vid>,
    /// The EtherType behind all tags. 0x8100 and 0x88a8 ask for a further tag of this kind, besides the outer 802.1Q tag.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text")]
    #[schema(value_type = Option<String>, example = "0x0800")]
    pub ethertype: Option<Ethertype>,
    /// The protocol of IPv4 or IPv6: icmp, tcp, udp, icmpv6, sctp, or a number.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text")]
    #[schema(value_type = Option<String>, example = "tcp")]
    pub ip_proto: Option<IpProto>,
    /// The network of its source address.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text")]
    #[schema(value_type = Option<String>, example = "10.0.0.0/8")]
    pub src: Option<Prefix>,
    /// The network of its destination address.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text")]
    #[schema(value_type = Option<String>, example = "fd00::/8")]
    pub dst: Option<Prefix>,
    /// Its source port, or a range of them; with `ip_proto` tcp, udp or sctp.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text")]
    #[schema(value_type = Option<String>, example = "1024-65535")]
    pub sport: Option<PortRange>,
    /// Its destination port, or a range of them; with `ip_proto` tcp, udp or sctp.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text")]
    #[schema(value_type = Option<String>, example = "80")]
    pub dport: Option<PortRange>,
    /// What is done with such packets.
    pub action: RuleAction,
}

impl RuleAdd {
    /// A rule that asks nothing.
    pub fn new(priority: u16, action: RuleAction) -> RuleAdd {
        RuleAdd {
            priority,
            in_port: None,
            src_mac: None,
            dst_mac: None,
            vlan: None,
            ethertype: None,
            ip_proto: None,
            src: None,
            dst: None,
            sport: None,
            dport: None,
            action,
        }
    }

    /// What it asks, as a classifier takes it. `in_port` is the id of the port that it names, if it names one.
    pub fn matching(&self, in_port: Option<u32>) -> Match {
        Match {
            in_port,
            src_mac: self.src_mac.map(|address| mac::from_bytes(address.0)),
            dst_mac: self.dst_mac.map(|address| mac::from_bytes(address.0)),
            vlan: self.vlan.map(Vid::get),
            ethertype: self.ethertype.map(Ethertype::get),
            ip_proto: self.ip_proto.map(IpProto::get),
            src: self.src,
            dst: self.dst,
            src_ports: self.sport,
            dst_ports: self.dport,
        }
    }

    /// Whether both ask for the same at the same priority, so that one of them could never count.
    pub fn asks_the_same(&self, other: &RuleAdd) -> bool {
        self.identity() == other.identity()
    }

    pub(crate) fn identity(&self) -> Identity<'_> {
        (self.priority, self.in_port.as_deref(), self.matching(None))
    }

    /// The ports it names: the input port, then those of the action.
    pub fn ports(&self) -> impl Iterator<Item = &str> {
        self.in_port.as_deref().into_iter().chain(self.action.ports().iter().map(String::as_str))
    }
}

/// What no two rules have in common: priority, input port, and everything else they ask.
pub(crate) type Identity<'a> = (u16, Option<&'a str>, Match);

/// The fields it asks for, as in `in_port=a ip_proto=tcp dport=80-90`; `any` if it asks nothing.
impl fmt::Display for RuleAdd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn shown(value: Option<&impl ToString>) -> Option<String> {
            value.map(ToString::to_string)
        }
        let fields = [
            ("in_port", shown(self.in_port.as_ref())),
            ("src_mac", shown(self.src_mac.as_ref())),
            ("dst_mac", shown(self.dst_mac.as_ref())),
            ("vlan", shown(self.vlan.as_ref())),
            ("ethertype", shown(self.ethertype.as_ref())),
            ("ip_proto", shown(self.ip_proto.as_ref())),
            ("src", shown(self.src.as_ref())),
            ("dst", shown(self.dst.as_ref())),
            ("sport", shown(self.sport.as_ref())),
            ("dport", shown(self.dport.as_ref())),
        ];
        let asked = fields.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
        let asked = asked.collect::<Vec<_>>().join(" ");
        f.pad(if asked.is_empty() { "any" } else { &asked })
    }
}

/// Whether a rule does anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RuleState {
    /// Packets fall under it.
    Active,
    /// None does: a port that it names is not there. It wakes when the port comes.
    Asleep,
}

words!(RuleState: Active => "active", Asleep => "asleep");

/// A rule of the switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleShow {
    /// Its number, by which it is deleted; never given out again.
    pub id: u64,
    /// What it asks and does, as it was added.
    pub rule: RuleAdd,
    /// Whether it does anything.
    pub state: RuleState,
    /// Why it is asleep.
    pub reason: Option<String>,
    /// Packets that fell under it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Seconds since it was added.
    pub age_seconds: u64,
}
