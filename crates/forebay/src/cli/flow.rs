//! `forebay flow`

use clap::{Args, Subcommand};
use forebay_control::rule::{Ethertype, IpProto, RuleAction, RuleAdd};
use forebay_control::{MacAddr, Vid};
use forebay_flow::{PortRange, Prefix};

use super::Json;

/// `forebay flow`
#[derive(Debug, Subcommand)]
pub enum FlowCommand {
    /// Show rules, all flows by port and then by packets, and how full their table is
    List(Json),
    /// Add a rule, and print the number by which it is deleted
    ///
    /// Packets that have everything it asks for are dealt with as it says, before all else. What is left out asks nothing.
    Add(FlowAddArgs),
    /// Delete rules
    Del {
        /// The rules' numbers
        #[arg(required = true, value_name = "ID")]
        ids: Vec<u64>,
    },
    /// Forget all flows; the next packet of each is decided about anew
    Flush,
}

/// Arguments of `flow add`.
#[derive(Debug, Args)]
pub struct FlowAddArgs {
    /// Of two rules that a packet falls under, the one with the higher number counts
    #[arg(long, value_name = "N")]
    pub priority: u16,
    /// The port it comes in at
    #[arg(long, value_name = "PORT")]
    pub in_port: Option<String>,
    /// Its source address
    #[arg(long, value_name = "MAC")]
    pub src_mac: Option<MacAddr>,
    /// Its destination address
    #[arg(long, value_name = "MAC")]
    pub dst_mac: Option<MacAddr>,
    /// The VLAN it is in, 1 to 4094
    #[arg(long, value_name = "VID")]
    pub vlan: Option<Vid>,
    /// The EtherType behind its tag, as in 0x0800
    #[arg(long, value_name = "TYPE")]
    pub ethertype: Option<Ethertype>,
    /// What its IP header carries: icmp, tcp, udp, icmpv6, sctp or a number
    #[arg(long, value_name = "PROTO")]
    pub ip_proto: Option<IpProto>,
    /// The network of its source address, as in 10.0.0.0/8 or fd00::/8
    #[arg(long, value_name = "NET")]
    pub src: Option<Prefix>,
    /// The network of its destination address
    #[arg(long, value_name = "NET")]
    pub dst: Option<Prefix>,
    /// Its source port or a range of them, as in 80-90
    #[arg(long, value_name = "PORTS")]
    pub sport: Option<PortRange>,
    /// Its destination port or a range of them
    #[arg(long, value_name = "PORTS")]
    pub dport: Option<PortRange>,
    /// drop, output:PORT[,PORT...], normal (as without rules), mirror:PORT (the same, and a copy there) or mark:NUMBER
    #[arg(long)]
    pub action: RuleAction,
    /// How to print.
    #[command(flatten)]
    pub json: Json,
}

impl FlowAddArgs {
    /// The rule that is asked for.
    pub(crate) fn rule(&self) -> RuleAdd {
        RuleAdd {
            priority: self.priority,
            in_port: self.in_port.clone(),
            src_mac: self.src_mac,
            dst_mac: self.dst_mac,
            vlan: self.vlan,
            ethertype: self.ethertype,
            ip_proto: self.ip_proto,
            src: self.src,
            dst: self.dst,
            sport: self.sport,
            dport: self.dport,
            action: self.action.clone(),
        }
    }
}
