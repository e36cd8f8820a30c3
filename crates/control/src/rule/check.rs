//! What makes a rule one that no packet can fall under, and what to do about it.

use forebay_flow::{MatchError, Prefix};

use super::{IpProto, RuleAction, RuleAdd};
use crate::error::ApiError;
use crate::id::Vid;
use crate::port::check_port_name;

impl RuleAdd {
    /// Checks that packets can have what it asks for; whether the ports exist only the switch knows.
    ///
    /// # Errors
    /// Names the field, the value, the limit and the remedy.
    pub fn validate(&self) -> Result<(), ApiError> {
        if let Some(name) = &self.in_port {
            check_port_name(name).map_err(|error| {
                let error = ApiError { message: "in_port is not valid".to_owned(), ..error };
                error.with_field("in_port").with_remedy("see `forebay port list`")
            })?;
        }
        if let Some(address) = self.src_mac.filter(|address| address.is_group()) {
            let error = ApiError::invalid("src_mac", address, "an individual address: first byte even");
            return Err(error.with_remedy("no packet comes from a group address; did you mean dst_mac?"));
        }
        if matches!(self.action, RuleAction::Channel(_)) && self.in_port.is_none() {
            let limit = "with in_port, because each port numbers its own channels";
            return Err(ApiError::invalid("action", &self.action, limit)
                .with_remedy("add --in-port with the name of a port that has several members"));
        }
        self.matching(None).check().map_err(|error| refusal(&error))
    }
}

fn refusal(error: &MatchError) -> ApiError {
    match *error {
        MatchError::Mac { field, value } => {
            ApiError::invalid(field, format!("{value:#x}"), "48 bits").with_remedy("correct the address")
        }
        MatchError::Vlan { value } => ApiError::invalid("vlan", value, format!("0 to {}", Vid::MAX))
            .with_remedy("leave vlan out to ask for no VLAN"),
        MatchError::Families { src, dst } => {
            let limit = format!("a network of {}, as src {src} is", version(&src));
            ApiError::invalid("dst", dst, limit).with_remedy("make a rule for each version of IP")
        }
        MatchError::Address { field, prefix, ethertype } => {
            let own = prefix.family().ethertype();
            let limit = format!("no network of {} with ethertype {ethertype:#06x}", version(&prefix));
            let remedy = format!("leave ethertype out, or make it {own:#06x}");
            ApiError::invalid(field, prefix, limit).with_remedy(remedy)
        }
        MatchError::Proto { proto, ethertype } => {
            let limit = format!("none with ethertype {ethertype:#06x}, which is not IP");
            let remedy = "leave ethertype out, or make it 0x0800 (IPv4) or 0x86dd (IPv6)";
            ApiError::invalid("ip_proto", IpProto::new(proto), limit).with_remedy(remedy)
        }
        MatchError::Ports { field, ports, proto } => {
            let field = if field == "src_ports" { "sport" } else { "dport" };
            let beside = proto
                .map_or_else(|| "none is given".to_owned(), |proto| format!("it is {}", IpProto::new(proto)));
            let limit = format!("only with ip_proto tcp, udp or sctp; {beside}");
            ApiError::invalid(field, ports, limit)
                .with_remedy(format!("change ip_proto, or leave {field} out"))
        }
    }
}

fn version(prefix: &Prefix) -> &'static str {
    if prefix.is_ipv4() { "IPv4" } else { "IPv6" }
}
