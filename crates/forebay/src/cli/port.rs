//! `forebay port`

use clap::{Args, Subcommand};
use forebay_control::group::Membership;
use forebay_control::port::{Attach, Promiscuity};
use forebay_control::vlan::VlanMode;

use super::Json;
use super::words::parse_switch;

/// `forebay port`
#[derive(Debug, Subcommand)]
pub enum PortCommand {
    /// Make network devices (netdevs) ports of the switch
    Add(PortAddArgs),
    /// Delete ports; their netdevs stay
    #[command(alias = "delete")]
    Del {
        /// Names of the ports
        #[arg(required = true, value_name = "PORT")]
        names: Vec<String>,
    },
    /// Change the VLANs of a port, or isolate it, while it carries packets
    Set(PortSetArgs),
    /// Show all ports
    List(Json),
    /// Show one port with its counters
    Show {
        /// Name of the port
        #[arg(value_name = "PORT")]
        name: String,
        /// How to print.
        #[command(flatten)]
        json: Json,
    },
}

/// Arguments of `port add`.
#[derive(Debug, Args)]
pub struct PortAddArgs {
    /// Names of the netdevs, in the daemon's network namespace, as in veth1; with --group or --vhost-user, the port's name
    #[arg(required = true, value_name = "NETDEV")]
    pub netdevs: Vec<String>,
    /// Where the kernel hands packets to the switch: tcx (veth, tap), xdp (network cards) or auto
    ///
    /// auto: xdp for network cards whose driver supports XDP, tcx for all other devices.
    #[arg(long, default_value = "auto")]
    pub attach: Attach,
    /// VLANs that the port carries: all, access:VLAN[,tagged] or trunk:VLAN,VLAN[,native:VLAN]
    ///
    /// all: every VLAN, tags unchanged. access:10: VLAN 10, only packets without a tag or with a tag of VLAN 0;
    /// access:10,tagged: also packets with the tag of VLAN 10. trunk:10,20,native:1: VLANs 10 and 20 with tags, and VLAN 1
    /// without.
    #[arg(long, default_value = "all", value_name = "MODE")]
    pub vlan: VlanMode,
    /// Isolate the port, so that it reaches only ports that are not isolated
    #[arg(long)]
    pub isolated: bool,
    /// What a network card is to receive: on (everything), off (what is for known stations) or auto
    ///
    /// auto: everything; a virtual function (SR-IOV) that may not be allowed to is also told the known stations behind the
    /// other ports.
    #[arg(long, default_value = "auto")]
    pub promiscuous: Promiscuity,
    /// Make one port of several members: netdevs, or PCI functions by their addresses, as in 0000:3b:00.0,0000:af:00.0
    ///
    /// The member with the smallest PCI address leads. Packets between two stations leave by one of the members.
    /// auto:eth0: all functions of the physical port that eth0 is on, as far as their drivers tell; auto: those of the
    /// only physical port that has several.
    #[arg(long, value_delimiter = ',', value_name = "MEMBER,MEMBER|auto[:NETDEV]")]
    pub group: Vec<String>,
    /// Make a port of a virtual machine: path of the socket where its vhost-user front end connects, as in /run/vm1.sock
    ///
    /// The switch listens there, unless --client is given. QEMU: -chardev socket,id=c,path=/run/vm1.sock -netdev vhost-user,id=n,chardev=c
    #[arg(long, value_name = "PATH", conflicts_with = "group")]
    pub vhost_user: Option<String>,
    /// Connect to the socket, where the front end listens; and try again until that works, and whenever it has gone
    ///
    /// QEMU: server=on,wait=off after the socket's path. DPDK: server=1 after net_virtio_user0,path=/run/vm1.sock
    #[arg(long, requires = "vhost_user", conflicts_with_all = ["socket_owner", "socket_mode"])]
    pub client: bool,
    /// Owner of the socket where the switch listens, by name or number, as in libvirt-qemu, libvirt-qemu:kvm or :kvm
    /// [default: the daemon's own]
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "USER[:GROUP]",
        requires = "vhost_user"
    )]
    pub socket_owner: String,
    /// Permissions of the socket where the switch listens, in octal digits, as in 0600 [default: 0660]
    #[arg(long, default_value = "", hide_default_value = true, value_name = "MODE", requires = "vhost_user")]
    pub socket_mode: String,
    /// Pairs of queues that the virtual machine may use, 1 to 16
    #[arg(long, default_value_t = 1, value_name = "N", requires = "vhost_user")]
    pub queues: u16,
    /// MTU that the virtual machine is offered, 68 to 9216, as in 9000
    #[arg(long, default_value_t = 1500, value_name = "BYTES", requires = "vhost_user")]
    pub mtu: u16,
    /// Features that the virtual machine is not offered, as in -mrg,-event-idx; it then looks like an older device
    #[arg(
        long,
        default_value = "",
        value_name = "-NAME,-NAME",
        allow_hyphen_values = true,
        requires = "vhost_user"
    )]
    pub features: String,
    /// When a port with a group carries packets: strict (while all members are there) or any
    #[arg(long, default_value = "strict", value_name = "STRICT|ANY", requires = "group")]
    pub members: Membership,
    /// Name of the port, if there is one netdev [default: the netdev's name]
    #[arg(long)]
    pub name: Option<String>,
    /// Also add a port whose netdev is not there or cannot be used now; it comes up when its netdev can
    #[arg(long)]
    pub wait: bool,
}

/// Arguments of `port set`.
#[derive(Debug, Args)]
pub struct PortSetArgs {
    /// Name of the port
    #[arg(value_name = "PORT")]
    pub name: String,
    /// VLANs that the port carries: all, access:VLAN[,tagged] or trunk:VLAN,VLAN[,native:VLAN]
    ///
    /// all: every VLAN, tags unchanged. access:10: VLAN 10, only packets without a tag or with a tag of VLAN 0;
    /// access:10,tagged: also packets with the tag of VLAN 10. trunk:10,20,native:1: VLANs 10 and 20 with tags, and VLAN 1
    /// without.
    #[arg(long, value_name = "MODE", required_unless_present = "isolated")]
    pub vlan: Option<VlanMode>,
    /// Isolate the port, so that it reaches only ports that are not isolated: on or off
    #[arg(long, value_name = "ON|OFF", value_parser = parse_switch, required_unless_present = "vlan")]
    pub isolated: Option<bool>,
}
