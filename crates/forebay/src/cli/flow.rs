//! `forebay flow`

use clap::{Args, Subcommand};
use forebay_control::rule::{Ethertype, IpProto, RuleAction, RuleAdd};
use forebay_control::{MacAddr, Vid};
use forebay_flow::{PortRange, Prefix};

use super::Json;

/// `forebay flow`
#[derive(Debug, Subcommand)]
pub enum FlowCommand {
    /// Show all rules, all flows, and how full the table of flows is
    List(Json),
    /// Add a rule, and print its number
    ///
    /// The rule's action applies to packets that match all the options that are given. An option that is left out
    /// matches every packet. Rules come before the forwarding database.
    ///
    /// Example: forebay flow add --priority 10 --ip-proto tcp --dst 10.0.0.0/8 --dport 23 --action drop
    Add(FlowAddArgs),
    /// Delete rules by their numbers
    #[command(alias = "delete")]
    Del {
        /// Numbers of the rules, as `forebay flow list` shows them
        #[arg(required = true, value_name = "ID")]
        ids: Vec<u64>,
    },
    /// Delete all flows; the daemon decides again about the next packet of each
    Flush,
}

/// Arguments of `flow add`.
#[derive(Debug, Args)]
pub struct FlowAddArgs {
    /// Priority of the rule, 0 to 65535; of all rules that a packet matches, the highest priority applies
    #[arg(long, value_name = "N")]
    pub priority: u16,
    /// Name of the port at which the packet comes in
    #[arg(long, value_name = "PORT")]
    pub in_port: Option<String>,
    /// Source Ethernet address, as in 02:00:00:00:00:01
    #[arg(long, value_name = "MAC")]
    pub src_mac: Option<MacAddr>,
    /// Destination Ethernet address, as in 02:00:00:00:00:02
    #[arg(long, value_name = "MAC")]
    pub dst_mac: Option<MacAddr>,
    /// VLAN of the packet, 0 to 4094; 0 is an untagged packet on a port that carries all VLANs
    #[arg(long, value_name = "VID")]
    pub vlan: Option<Vid>,
    /// EtherType after all VLAN tags, as in 0x0800 for IPv4; 0x8100 and 0x88a8 ask for a further tag
    #[arg(long, value_name = "TYPE")]
    pub ethertype: Option<Ethertype>,
    /// IP protocol: icmp, tcp, udp, icmpv6, sctp or a number from 0 to 255
    #[arg(long, value_name = "PROTO")]
    pub ip_proto: Option<IpProto>,
    /// Source IP address or network, as in 10.0.0.0/8 or fd00::/8
    #[arg(long, value_name = "NET")]
    pub src: Option<Prefix>,
    /// Destination IP address or network, as in 192.0.2.1
    #[arg(long, value_name = "NET")]
    pub dst: Option<Prefix>,
    /// Source port of TCP, UDP or SCTP, or a range of ports, as in 1024-65535
    #[arg(long, value_name = "PORTS")]
    pub sport: Option<PortRange>,
    /// Destination port of TCP, UDP or SCTP, or a range of ports, as in 80 or 8000-8080
    #[arg(long, value_name = "PORTS")]
    pub dport: Option<PortRange>,
    /// What happens to the packet: drop, output:PORT[,PORT...], normal, mirror:PORT, mark:NUMBER or channel:NUMBER
    ///
    /// drop: nothing leaves. output:web,db: the packet leaves at these ports, up to 64. normal: the packet is forwarded
    /// as if there were no rules. mirror:tap0: as normal, and a copy leaves at that port. mark:7: as normal, and the
    /// packet carries that mark (skb mark) in the kernel. channel:3: as normal, and user space handles the packet on the
    /// worker of channel 3 of the port that --in-port names (see `forebay channels show`).
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
