//! Which VLANs a port carries, and the short text it is written as: `all`, `access:10`, `access:10,tagged`,
//! `trunk:10,20,native:1`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::id::Vid;

/// Which VLANs a port carries.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum VlanMode {
    /// Transparent: every tag is a VLAN of its own and stays on the packet, untagged packets are in VLAN 0.
    #[default]
    All,
    /// Untagged packets only, all in this VLAN (1 to 4094). A single priority tag (802.1Q, VLAN id 0) is allowed; packets
    /// with any other tag are dropped.
    Access(Vid),
    /// As [`VlanMode::Access`], and packets tagged with this VLAN are taken too. Further tags are payload.
    AccessTagged(Vid),
    /// Tagged packets of these VLANs; untagged packets are in the native VLAN if there is one, else not allowed.
    Trunk {
        /// The tagged VLANs, ascending, each once, without the native one.
        vids: Vec<Vid>,
        /// The VLAN of untagged packets; its packets leave untagged.
        native: Option<Vid>,
    },
}

/// Behind an access port's VLAN, where the port takes tagged packets.
const TAGGED: &str = ",tagged";

impl VlanMode {
    /// Whether a packet of this VLAN may enter or leave here.
    pub fn carries(&self, vid: Vid) -> bool {
        match self {
            VlanMode::All => true,
            VlanMode::Access(own) | VlanMode::AccessTagged(own) => *own == vid,
            VlanMode::Trunk { vids, native } => *native == Some(vid) || vids.binary_search(&vid).is_ok(),
        }
    }
}

impl fmt::Display for VlanMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VlanMode::All => f.write_str("all"),
            VlanMode::Access(vid) => write!(f, "access:{vid}"),
            VlanMode::AccessTagged(vid) => write!(f, "access:{vid}{TAGGED}"),
            VlanMode::Trunk { vids, native } => write_trunk(f, vids, *native),
        }
    }
}

fn write_trunk(f: &mut fmt::Formatter<'_>, vids: &[Vid], native: Option<Vid>) -> fmt::Result {
    f.write_str("trunk:")?;
    for (position, vid) in vids.iter().enumerate() {
        let comma = if position == 0 { "" } else { "," };
        write!(f, "{comma}{vid}")?;
    }
    match native {
        Some(vid) if vids.is_empty() => write!(f, "native:{vid}"),
        Some(vid) => write!(f, ",native:{vid}"),
        None => Ok(()),
    }
}

impl From<VlanMode> for String {
    fn from(mode: VlanMode) -> String {
        mode.to_string()
    }
}

/// Text that names no VLAN mode. The message says the value, what it may be, and the three forms.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("vlan `{value}`: {problem}; write all, access:VLAN[,tagged] or trunk:VLAN,VLAN[,native:VLAN]")]
pub struct VlanModeError {
    /// What was given.
    pub value: String,
    /// What is wrong with it.
    pub problem: String,
}

impl FromStr for VlanMode {
    type Err = VlanModeError;

    fn from_str(text: &str) -> Result<VlanMode, VlanModeError> {
        parse(text).map_err(|problem| VlanModeError { value: text.to_owned(), problem })
    }
}

impl TryFrom<String> for VlanMode {
    type Error = VlanModeError;

    fn try_from(text: String) -> Result<VlanMode, VlanModeError> {
        text.parse()
    }
}

fn parse(text: &str) -> Result<VlanMode, String> {
    match text.split_once(':') {
        None if text == "all" => Ok(VlanMode::All),
        Some(("access", vid)) => match vid.strip_suffix(TAGGED) {
            Some(vid) => tagged_vid(vid).map(VlanMode::AccessTagged),
            None => tagged_vid(vid).map(VlanMode::Access),
        },
        Some(("trunk", list)) => parse_trunk(list),
        _ => Err("not a known form".to_owned()),
    }
}

fn parse_trunk(list: &str) -> Result<VlanMode, String> {
    let (mut vids, mut native) = (Vec::new(), None);
    for item in list.split(',') {
        match item.strip_prefix("native:") {
            Some(vid) if native.is_none() => native = Some(tagged_vid(vid)?),
            Some(_) => return Err("native is given twice".to_owned()),
            None => vids.push(tagged_vid(item)?),
        }
    }
    sort_once(&mut vids)?;
    vids.retain(|vid| Some(*vid) != native);
    Ok(VlanMode::Trunk { vids, native })
}

fn sort_once(vids: &mut [Vid]) -> Result<(), String> {
    vids.sort_unstable();
    match vids.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("VLAN {} is given twice", pair[0])),
        None => Ok(()),
    }
}

/// VLAN 0 means "no tag", so that a port can't be put into it.
fn tagged_vid(text: &str) -> Result<Vid, String> {
    match text.parse::<Vid>() {
        Ok(vid) if vid != Vid::UNTAGGED => Ok(vid),
        _ => Err(format!("`{text}` is not a VLAN from 1 to {}", Vid::MAX)),
    }
}

impl PartialSchema for VlanMode {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some("^(all|access:[0-9]+(,tagged)?|trunk:[0-9a-z:,]+)$"))
            .description(Some(
                "Which VLANs a port carries: all, access:VLAN[,tagged] or trunk:VLAN,VLAN[,native:VLAN].",
            ))
            .examples(["all", "access:10", "access:10,tagged", "trunk:10,20,native:1"])
            .into()
    }
}

impl ToSchema for VlanMode {}

#[cfg(test)]
mod tests {
    use super::*;

    fn vid(number: u16) -> Vid {
        Vid::new(number).unwrap()
    }

    #[test]
    fn every_form_is_read_as_it_is_written() {
        for text in [
            "all",
            "access:10",
            "access:10,tagged",
            "trunk:10",
            "trunk:10,20",
            "trunk:10,20,native:1",
            "trunk:native:7",
        ] {
            assert_eq!(text.parse::<VlanMode>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_trunk_is_kept_in_order_and_its_native_vlan_once() {
        let mode: VlanMode = "trunk:20,native:10,10,5".parse().unwrap();
        assert_eq!(mode, VlanMode::Trunk { vids: vec![vid(5), vid(20)], native: Some(vid(10)) });
    }

    #[test]
    fn a_bad_form_is_refused_with_value_limit_and_the_forms() {
        for (text, problem) in [
            ("access:4095", "`4095` is not a VLAN from 1 to 4094"),
            ("access:0,tagged", "`0` is not a VLAN from 1 to 4094"),
            ("access:10,native:1", "`10,native:1` is not a VLAN from 1 to 4094"),
            ("access:0", "`0` is not a VLAN from 1 to 4094"),
            ("trunk:", "`` is not a VLAN from 1 to 4094"),
            ("trunk:1,,2", "`` is not a VLAN from 1 to 4094"),
            ("trunk:10,10", "VLAN 10 is given twice"),
            ("trunk:native:1,native:2", "native is given twice"),
            ("10", "not a known form"),
        ] {
            let error = text.parse::<VlanMode>().unwrap_err();
            assert_eq!(error, VlanModeError { value: text.to_owned(), problem: problem.to_owned() });
            assert!(error.to_string().contains("access:VLAN"));
        }
    }

    #[test]
    fn a_port_carries_its_own_vlans_only() {
        let trunk: VlanMode = "trunk:10,20,native:1".parse().unwrap();
        let carried: Vec<u16> = (0..=30).filter(|n| trunk.carries(vid(*n))).collect();
        assert_eq!(carried, [1, 10, 20]);
        assert!(VlanMode::All.carries(Vid::UNTAGGED));
        assert!(!VlanMode::Access(vid(2)).carries(Vid::UNTAGGED));
    }
}
