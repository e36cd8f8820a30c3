//! Contenders: a switch, how its ports are attached, and which way packets take through it.

use forebay_control::port::Attach;
use forebay_testbed::Result;
use forebay_testbed::dut::{Bare, Bridge, Dut, Forebay, ForebayOptions, Ovs};
use forebay_testbed::host::PortKind;
use forebay_testbed::lab::Lab;

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
    /// The kernel's bridge.
    Bridge,
    /// Open vSwitch with AF_XDP ports.
    Ovs,
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
            Contender::Bridge => "bridge",
            Contender::Ovs => "ovs-afxdp",
            Contender::BareTcx => "tcx redirect (bare)",
            Contender::BareXdp => "xdp redirect (bare)",
        }
    }

    /// How hosts are connected.
    pub const fn ports(self) -> PortKind {
        match self {
            Contender::Xdp | Contender::XdpSlow => PortKind::VethXdp,
            Contender::XdpHints | Contender::XdpFlowIds => PortKind::VethXdp,
            Contender::Ovs | Contender::BareXdp => PortKind::VethXdp,
            Contender::Tcx | Contender::TcxRule | Contender::TcxSlow => PortKind::VethTcx,
            Contender::Bridge | Contender::BareTcx => PortKind::VethTcx,
        }
    }

    /// Whether it is what the others are compared with.
    pub(super) const fn is_peer(self) -> bool {
        matches!(self, Contender::Bridge | Contender::Ovs | Contender::BareTcx | Contender::BareXdp)
    }

    /// Whether a rule is in force.
    pub(super) const fn has_rule(self) -> bool {
        matches!(self, Contender::TcxRule)
    }

    /// Whether it can be measured: it is installed, or the daemon has what it needs.
    pub(super) fn is_here(self) -> bool {
        match self {
            Contender::Ovs => Ovs::is_installed(),
            Contender::TcxRule | Contender::XdpHints | Contender::XdpFlowIds => Forebay::has_rules(),
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
            Contender::Tcx | Contender::TcxRule | Contender::Xdp => {
                Box::new(Forebay::start(lab, options().offloaded())?)
            }
            Contender::TcxSlow | Contender::XdpSlow | Contender::XdpFlowIds => {
                Box::new(Forebay::start(lab, options())?)
            }
            Contender::XdpHints => Box::new(Forebay::start(lab, options().allowing_programs())?),
            Contender::Bridge => Box::new(Bridge::start(lab)?),
            Contender::Ovs => Box::new(Ovs::start(lab, WORKER_CPU)?),
            Contender::BareTcx => Box::new(Bare::start(lab, Attach::Tcx)),
            Contender::BareXdp => Box::new(Bare::start(lab, Attach::Xdp)),
        })
    }
}
