//! Contenders: a switch, how its ports are attached, and which way packets take through it.

use forebay_control::port::Attach;
use forebay_testbed::Result;
use forebay_testbed::dut::{Bare, Bridge, Dut, Forebay, ForebayOptions, Ovs, bridge};
use forebay_testbed::host::PortKind;
use forebay_testbed::lab::Lab;
use forebay_testbed::machine::Machine;
use forebay_testbed::programs::testpmd::Testpmd;

use super::WORKER_CPU;

/// Who is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Contender {
    /// Forebay with tcx ports, its decisions repeated in the kernel.
    Tcx,
    /// The same, with a rule in force that looks at addresses, protocol and ports.
    TcxRule,
    /// Forebay with XDP ports, its decisions repeated in the kernel.
    Xdp,
    /// Forebay with tcx ports, every packet through user space.
    TcxSlow,
    /// Forebay with XDP ports, every packet through user space.
    XdpSlow,
    /// The same, with each packet's hash as a hint.
    XdpHints,
    /// The same, with the hints of our own program: an id for each flow.
    XdpFlowIds,
    /// Forebay with a NIC's port, which has XDP, and a container's, which has not; its decisions repeated in the kernel.
    Uplink,
    /// The kernel's bridge.
    Bridge,
    /// The same, with netfilter called for each packet.
    BridgeNetfilter,
    /// The first, with an XDP program on the first port that passes everything on.
    BridgeXdp,
    /// Open vSwitch with AF_XDP ports.
    Ovs,
    /// Forebay with ports of virtual machines.
    Guests,
    /// Open vSwitch with DPDK and ports of virtual machines.
    OvsDpdk,
    /// The same, with long packets passed whole to netdevs' packet sockets (userspace-tso-enable).
    OvsDpdkWhole,
    /// A tcx program that redirects to the other port, whatever the packet.
    BareTcx,
    /// An XDP program that redirects to the other port, whatever the packet.
    BareXdp,
}

impl Contender {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Contender::Tcx => "forebay (tcx)",
            Contender::TcxRule => "forebay (tcx, rule)",
            Contender::Xdp => "forebay (xdp)",
            Contender::TcxSlow => "forebay (tcx, slow path)",
            Contender::XdpSlow => "forebay (xdp, slow path)",
            Contender::XdpHints => "forebay (xdp, hash)",
            Contender::XdpFlowIds => "forebay (xdp, flow ids)",
            Contender::Uplink => "forebay (uplink)",
            Contender::Bridge => "bridge",
            Contender::BridgeNetfilter => "bridge (netfilter)",
            Contender::BridgeXdp => "bridge (xdp pass)",
            Contender::Ovs => "ovs-afxdp",
            Contender::Guests => "forebay (vhost-user)",
            Contender::OvsDpdk => "ovs-dpdk",
            Contender::OvsDpdkWhole => "ovs-dpdk (tso)",
            Contender::BareTcx => "tcx redirect (bare)",
            Contender::BareXdp => "xdp redirect (bare)",
        }
    }

    /// How the hosts of a pair are connected.
    pub const fn ports(self) -> [PortKind; 2] {
        match self {
            Contender::Xdp | Contender::XdpSlow => [PortKind::VethXdp; 2],
            Contender::XdpHints | Contender::XdpFlowIds => [PortKind::VethXdp; 2],
            Contender::Ovs | Contender::BareXdp => [PortKind::VethXdp; 2],
            Contender::Uplink => [PortKind::VethXdp, PortKind::VethTcx],
            Contender::Tcx | Contender::TcxRule | Contender::TcxSlow => [PortKind::VethTcx; 2],
            Contender::Bridge | Contender::BridgeNetfilter | Contender::BridgeXdp => [PortKind::VethTcx; 2],
            Contender::Guests | Contender::OvsDpdk | Contender::OvsDpdkWhole => [PortKind::VethTcx; 2],
            Contender::BareTcx => [PortKind::VethTcx; 2],
        }
    }

    /// How all hosts are connected, where there are more than two.
    pub(super) const fn port(self) -> PortKind {
        self.ports()[1]
    }

    /// Whether it is what the others are compared with.
    pub(super) const fn is_peer(self) -> bool {
        use Contender::{BareTcx, BareXdp, Bridge, BridgeNetfilter, BridgeXdp, Ovs, OvsDpdk, OvsDpdkWhole};
        let is_switch = matches!(self, Bridge | BridgeNetfilter | BridgeXdp | Ovs | OvsDpdk | OvsDpdkWhole);
        is_switch || matches!(self, BareTcx | BareXdp)
    }

    /// Whether virtual machines are ports by vhost-user. Elsewhere they have taps.
    pub(super) const fn has_guests(self) -> bool {
        matches!(self, Contender::Guests | Contender::OvsDpdk | Contender::OvsDpdkWhole)
    }

    /// Whether a rule is in force.
    pub(super) const fn has_rule(self) -> bool {
        matches!(self, Contender::TcxRule)
    }

    /// Whether it can be measured: it is installed, or the daemon has what it needs.
    pub(super) fn is_here(self) -> bool {
        match self {
            Contender::Ovs => Ovs::is_installed(),
            Contender::OvsDpdk | Contender::OvsDpdkWhole => Ovs::is_installed() && Testpmd::is_installed(),
            Contender::Guests => Testpmd::is_installed() && Machine::is_installed(),
            Contender::TcxRule | Contender::XdpHints | Contender::XdpFlowIds => Forebay::has_rules(),
            Contender::BridgeNetfilter => bridge::has_netfilter(),
            _ => true,
        }
    }

    /// Starts it in the lab, without ports yet.
    ///
    /// # Errors
    /// When it does not start.
    pub(super) fn start(self, lab: &Lab) -> Result<Box<dyn Dut>> {
        let options = || ForebayOptions::default().pinned_to(WORKER_CPU);
        Ok(match self {
            Contender::Tcx | Contender::TcxRule | Contender::Xdp | Contender::Uplink => {
                Box::new(Forebay::start(lab, options().offloaded())?)
            }
            Contender::Guests => {
                // The DPDK program joins its two guests, which is a loop; no peer looks for any.
                let unguarded = ForebayOptions::with_config("[loop]\ndetect = false\n");
                Box::new(Forebay::start(lab, unguarded.pinned_to(WORKER_CPU).offloaded())?)
            }
            Contender::OvsDpdk => Box::new(Ovs::start_with_dpdk(lab, WORKER_CPU)?),
            Contender::OvsDpdkWhole => Box::new(Ovs::start_with_dpdk_and_whole_packets(lab, WORKER_CPU)?),
            Contender::TcxSlow | Contender::XdpSlow | Contender::XdpFlowIds => {
                Box::new(Forebay::start(lab, options())?)
            }
            Contender::XdpHints => Box::new(Forebay::start(lab, options().allowing_programs())?),
            Contender::Bridge => Box::new(Bridge::start(lab)?),
            Contender::BridgeNetfilter => Box::new(Bridge::start_with_netfilter(lab)?),
            Contender::BridgeXdp => Box::new(Bridge::start(lab)?.passing_by_xdp("h1")?),
            Contender::Ovs => Box::new(Ovs::start(lab, WORKER_CPU)?),
            Contender::BareTcx => Box::new(Bare::start(lab, Attach::Tcx)),
            Contender::BareXdp => Box::new(Bare::start(lab, Attach::Xdp)),
        })
    }
}
