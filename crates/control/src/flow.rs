//! Flows: decisions about packets that were made once and are repeated.
//!
//! A flow is keyed by the port a packet came in at, its 802.1Q tag, its addresses, and whatever else a rule looked at.
//! What it says is final: the packet leaves at one port, with its tag kept, taken off or set, or it is dropped. Most are
//! repeated by the kernel programs, some by user space only, and those tell why.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::eswitch::Offload;
use crate::id::{MacAddr, Vid};
use crate::rule::RuleShow;
use crate::words::words;

/// Who repeats a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FlowRuns {
    /// The program at the netdev's XDP hook; such packets never reach a worker.
    Xdp,
    /// That at its tcx ingress. On a port that has XDP this gets such packets from there.
    Tcx,
    /// A worker, packet by packet.
    User,
}

words!(FlowRuns: Xdp => "xdp", Tcx => "tcx", User => "user");

impl FlowRuns {
    /// Whether the kernel does, without a worker.
    pub fn is_kernel(self) -> bool {
        self != FlowRuns::User
    }
}

/// What becomes of a packet's 802.1Q tag: `keep`, `remove` or `set:VID`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TagAction {
    /// It stays as it is, or there is none.
    #[default]
    Keep,
    /// It is taken off.
    Remove,
    /// The packet leaves with this one, whether it came with one or not.
    Set(Vid),
}

impl fmt::Display for TagAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TagAction::Keep => f.write_str("keep"),
            TagAction::Remove => f.write_str("remove"),
            TagAction::Set(vid) => write!(f, "set:{vid}"),
        }
    }
}

impl From<TagAction> for String {
    fn from(action: TagAction) -> String {
        action.to_string()
    }
}

/// Text that does not say what becomes of a tag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("tag `{value}` is not known; write keep, remove or set:VLAN with a VLAN from 0 to {}", Vid::MAX)]
pub struct TagActionError {
    /// What was given.
    pub value: String,
}

impl FromStr for TagAction {
    type Err = TagActionError;

    fn from_str(text: &str) -> Result<TagAction, TagActionError> {
        let action = match text.split_once(':') {
            None if text == "keep" => Some(TagAction::Keep),
            None if text == "remove" => Some(TagAction::Remove),
            Some(("set", vid)) => vid.parse().ok().map(TagAction::Set),
            _ => None,
        };
        action.ok_or_else(|| TagActionError { value: text.to_owned() })
    }
}

impl TryFrom<String> for TagAction {
    type Error = TagActionError;

    fn try_from(text: String) -> Result<TagAction, TagActionError> {
        text.parse()
    }
}

impl PartialSchema for TagAction {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some("^(keep|remove|set:[0-9]+)$"))
            .description(Some("What becomes of a packet's 802.1Q tag: keep, remove or set:VLAN."))
            .examples(["keep", "remove", "set:10"])
            .into()
    }
}

impl ToSchema for TagAction {}

/// One flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FlowEntry {
    /// The port its packets come in at, by name.
    pub in_port: String,
    /// The VLAN of the outer 802.1Q tag that its packets carry; none: they have no such tag.
    pub vlan: Option<Vid>,
    /// Whether its packets carry further tags: behind that one, or an outer 802.1ad tag.
    pub stacked: bool,
    /// Their source.
    pub src_mac: MacAddr,
    /// Their destination.
    pub dst_mac: MacAddr,
    /// What else was looked at, as in `ip_proto=6 src=10.0.0.0/8 dport=80-90`; none: nothing behind the addresses.
    pub deeper: Option<String>,
    /// `output:NAME` or `drop`.
    pub action: String,
    /// What becomes of the tag.
    pub tag: TagAction,
    /// Who repeats it.
    pub runs: FlowRuns,
    /// Why it does not run in the kernel, or why its packets are dropped.
    pub reason: Option<String>,
    /// The rule that decided it, by id.
    pub rule: Option<u64>,
    /// Packets it was repeated for.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Seconds since it was decided.
    pub age_seconds: u64,
    /// Seconds since its last packet.
    pub idle_seconds: u64,
}

/// The table of flows in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct FlowTable {
    /// Whether the kernel programs repeat decisions.
    pub offload: Offload,
    /// Flows there are.
    pub entries: u64,
    /// Flows there may be.
    pub max_entries: u64,
    /// Kernel memory that the table takes, used or not.
    pub bytes: u64,
    /// Flows that were installed since the switch started.
    pub installed_flows: u64,
    /// Those that were not.
    pub refused: FlowsRefused,
    /// Flows that were taken out because what they say was true no more: a port, an address or a rule changed.
    pub invalidated_flows: u64,
    /// Flows that were taken out because no packet came.
    pub idle_flows: u64,
}

/// Flows that were not installed, by the limit that was reached; their packets go through user space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct FlowsRefused {
    /// The port has its share of the table.
    pub over_share: u64,
    /// The port installs flows faster than it may.
    pub over_rate: u64,
    /// The table is full.
    pub table_full: u64,
    /// Both places that the flow could have are taken.
    pub no_slot: u64,
}

impl FlowsRefused {
    /// Each limit with its count.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let FlowsRefused { over_share, over_rate, table_full, no_slot } = *self;
        let named = [
            ("over_share", over_share),
            ("over_rate", over_rate),
            ("table_full", table_full),
            ("no_slot", no_slot),
        ];
        named.into_iter()
    }
}

/// All flows, and the rules that decide about them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct FlowList {
    /// The table as a whole.
    pub table: FlowTable,
    /// Each flow.
    pub flows: Vec<FlowEntry>,
    /// Each rule.
    pub rules: Vec<RuleShow>,
}

/// The answer to a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FlowFlushReply {
    /// How many flows were forgotten; what they said is decided anew.
    pub flushed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_of_a_tag_is_read_as_it_is_written() {
        for text in ["keep", "remove", "set:0", "set:10", "set:4094"] {
            assert_eq!(text.parse::<TagAction>().unwrap().to_string(), text);
        }
        for text in ["", "set", "set:", "set:4095", "keep:1", "remove:1", "Keep"] {
            assert_eq!(text.parse::<TagAction>(), Err(TagActionError { value: text.to_owned() }));
        }
    }

    #[test]
    fn words_and_tags_are_text_in_json() {
        let written = serde_json::to_string(&(FlowRuns::User, TagAction::Remove, Offload::Off)).unwrap();
        assert_eq!(written, r#"["user","remove","off"]"#);
        assert_eq!(FlowRuns::Xdp.to_string(), "xdp");
    }

    #[test]
    fn every_limit_is_named_as_in_json() {
        let refused = FlowsRefused { over_share: 1, over_rate: 2, table_full: 3, no_slot: 4 };
        let written = serde_json::to_value(refused).unwrap();
        assert_eq!(refused.iter().count(), written.as_object().unwrap().len());
        assert!(refused.iter().all(|(name, count)| written[name] == count), "{written}");
    }
}
