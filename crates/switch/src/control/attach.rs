//! Which program a netdev gets, and whether it can be a port at all.

use std::sync::Arc;

use forebay_control::eswitch::SpoolMode;
use forebay_control::group::PciAddress;
use forebay_control::port::{Attach, AttachKind, PortSpec, Promiscuity};
use forebay_control::{ApiError, ErrorCode, PortId};
use forebay_kernel::netlink::link::{Device, HardwareType};
use forebay_kernel::netlink::{Link, netdev_genl, offload};
use forebay_kernel::{Datapath, DatapathError, Merging, program_name};

use super::flows::{ONE_BUFFER_MTU, peer_of, takes_frames};
use super::hints::{self, Hints};
use super::kernel_error::refused;
use super::links::{Links, XdpLink};
use super::port::{Port, Reception};
use super::{Change, Control};

/// What was found out about a netdev that is to become a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fitting {
    pub(super) kind: AttachKind,
    /// Packets may come in with unfinished checksums, which the program cannot see.
    pub(super) completes_checksums: bool,
}

impl Fitting {
    /// As `port` is now.
    pub(super) fn of(port: &Port) -> Self {
        Self { kind: port.kind, completes_checksums: port.completes_checksums }
    }
}

/// Decides for `netdev`, or says why it cannot be a port.
pub(super) fn fit(spec: &PortSpec, netdev: &Link, mode: SpoolMode) -> Result<Fitting, ApiError> {
    refuse_unfit(netdev)?;
    fit_again(spec, netdev, mode)
}

/// Like [`fit`], for a netdev that is a port already.
pub(super) fn fit_again(spec: &PortSpec, netdev: &Link, mode: SpoolMode) -> Result<Fitting, ApiError> {
    refuse_without_ethernet(netdev)?;
    let virtual_only = !netdev.has_parent_device();
    let kind = match spec.attach {
        Attach::Tcx => AttachKind::Tcx,
        // Which member a frame leaves by is not known to the kernel's table of outputs for XDP.
        Attach::Auto if spec.is_group() => AttachKind::Tcx,
        Attach::Xdp => AttachKind::Xdp,
        // Sockets on the netdev itself take packets from XDP only.
        Attach::Auto if mode == SpoolMode::None && refuse_without_xdp(netdev).is_ok() => AttachKind::Xdp,
        Attach::Auto if virtual_only || refuse_without_xdp(netdev).is_err() => AttachKind::Tcx,
        Attach::Auto => AttachKind::Xdp,
    };
    if kind == AttachKind::Tcx {
        return Ok(Fitting { kind, completes_checksums: false });
    }
    refuse_without_xdp(netdev)?;
    Ok(Fitting { kind, completes_checksums: virtual_only })
}

/// Until the netdev is there and can be looked at.
pub(super) fn fit_nothing(spec: &PortSpec) -> Fitting {
    let is_xdp = spec.attach == Attach::Xdp;
    let kind = match is_xdp {
        _ if spec.is_guest() => AttachKind::VhostUser,
        true => AttachKind::Xdp,
        false => AttachKind::Tcx,
    };
    Fitting { kind, completes_checksums: is_xdp }
}

/// A port's programs that are to be attached. The kernel waits for a grace period meanwhile, so this is done without the
/// control lock, and has all that it takes.
pub(super) struct Attaching {
    datapath: Arc<Datapath>,
    id: PortId,
    kind: AttachKind,
    hints: Hints,
    /// It is one of several netdevs of the port.
    is_member: bool,
    promiscuous: Promiscuity,
    netdev: Link,
    redirects_to_peers: bool,
}

/// What came of it.
pub(super) struct Attached {
    pub(super) id: PortId,
    pub(super) netdev: Link,
    /// The PCI function below, of a group's member.
    pub(super) function: Option<PciAddress>,
    pub(super) links: Result<Links, ApiError>,
    /// What the netdev receives besides.
    pub(super) reception: Reception,
    /// The netdev takes frames of XDP programs.
    pub(super) takes_frames: bool,
    /// The station at its other end.
    pub(super) peer: Option<u64>,
}

impl Attaching {
    /// As the port is to be attached to `netdev`.
    pub(super) fn new(control: &Control, port: &Port, netdev: Link) -> Self {
        Self {
            datapath: Arc::clone(&control.datapath),
            id: port.id,
            kind: port.kind,
            hints: port.hints.hints().clone(),
            is_member: port.spec.is_group(),
            promiscuous: port.spec.promiscuous,
            netdev,
            redirects_to_peers: control.flows.redirects_to_peers(),
        }
    }

    /// Attaches the programs, and looks where the netdev leads.
    fn carry_out(self) -> Attached {
        let links = self.links();
        let reception = if links.is_ok() { self.receive_for_others() } else { Reception::default() };
        // Which member's depends on the packet.
        let is_one = links.is_ok() && !self.is_member;
        let takes_frames = is_one && takes_frames(&self.netdev);
        let peer = peer_of(&self.netdev).filter(|_| self.redirects_to_peers && is_one);
        let function = self.is_member.then(|| self.netdev.function()).flatten();
        Attached { id: self.id, netdev: self.netdev, function, links, reception, takes_frames, peer }
    }

    fn links(&self) -> Result<Links, ApiError> {
        let ifindex = self.netdev.ifindex;
        let attached = if self.is_member {
            self.datapath.attach_tcx_while_running(ifindex)
        } else {
            self.datapath.attach_tcx(ifindex, self.id.0)
        };
        let tcx = attached.map_err(|error| self.refused(&error))?;
        Ok(Links::new(tcx, self.xdp()?))
    }

    /// Attaches the program at the XDP hook, if there is to be one.
    pub(super) fn xdp(&self) -> Result<Option<XdpLink>, ApiError> {
        let Self { datapath, id, kind, hints, netdev, .. } = self;
        hints::tell_collector(datapath, *id, *kind, hints)?;
        if *kind == AttachKind::Tcx {
            return Ok(None);
        }
        let program = hints::xdp_program(datapath, netdev.ifindex, hints)?;
        let attached = datapath.attach_xdp(netdev.ifindex, id.0, &program);
        let link = attached.map_err(|error| self.refused(&error))?;
        Ok(Some(XdpLink::new(link, self.merge_packets())))
    }

    /// NICs merge unless an administrator has switched that off.
    fn merge_packets(&self) -> Option<Merging> {
        if self.netdev.has_parent_device() {
            return None;
        }
        let made = self.datapath.merge_packets(self.netdev.ifindex);
        made.inspect_err(|error| {
            let netdev = self.netdev.name.as_str();
            tracing::warn!(netdev, %error, "packets for containers are not merged");
        })
        .ok()
    }

    fn refused(&self, error: &DatapathError) -> ApiError {
        refused(error).with_value(&self.netdev.name)
    }

    /// The port works without, for what is addressed to its netdev.
    fn receive_for_others(&self) -> Reception {
        if !filters_addresses(&self.netdev) {
            return Reception::default();
        }
        let (datapath, ifindex) = (&self.datapath, self.netdev.ifindex);
        let warn = |error: &DatapathError| {
            let netdev = self.netdev.name.as_str();
            tracing::warn!(netdev, %error, "stations behind other ports may not be reached through it");
        };
        let wants_everything = self.promiscuous != Promiscuity::Off;
        let everything =
            wants_everything.then(|| datapath.receive_everything(ifindex).inspect_err(warn).ok()).flatten();
        let may_be_ignored = self.promiscuous == Promiscuity::Auto
            && self.netdev.parent.as_ref().is_some_and(Device::is_virtual_function);
        let needs_stations = everything.is_none() || may_be_ignored;
        let stations =
            needs_stations.then(|| datapath.filter_unicast(ifindex).inspect_err(warn).ok()).flatten();
        Reception { everything, stations: stations.map(Arc::new) }
    }
}

impl Change<'_> {
    /// Attaches all of them while the lock is free.
    pub(super) fn attach_all(&mut self, attaching: Vec<Attaching>) -> Vec<Attached> {
        self.without_lock(|| attaching.into_iter().map(Attaching::carry_out).collect())
    }
}

fn refuse_unfit(netdev: &Link) -> Result<(), ApiError> {
    let refuse = |message: String, remedy: String| {
        let error = ApiError::new(ErrorCode::NetdevRefused, message);
        Err(error.with_field("netdev").with_value(&netdev.name).with_remedy(remedy))
    };
    if netdev.is_loopback {
        return refuse(
            format!("`{}` is the loopback; its packets never leave this machine", netdev.name),
            "add a veth, a tap or a NIC".to_owned(),
        );
    }
    if let Some(xdp) = netdev.xdp {
        let id = xdp.prog_id;
        // A daemon that has given up CAP_SYS_ADMIN is not told the name; its client may be.
        let name = program_name(id).map_or_else(String::new, |name| format!(" `{name}`"));
        let message = format!("`{}` carries another XDP program{name}, id {id}", netdev.name);
        return Err(ApiError::new(ErrorCode::ForeignProgram, message)
            .with_field("netdev")
            .with_value(id)
            .with_remedy(format!(
                "the program was left as it is; `bpftool prog show id {id}` shows whose it is, and \
                 `ip link set dev {} xdp off` detaches it",
                netdev.name
            )));
    }
    if netdev.master.is_some() {
        return refuse(
            format!("`{}` is enslaved to a bridge or bond, which takes its packets", netdev.name),
            format!("take it out: ip link set dev {} nomaster", netdev.name),
        );
    }
    Ok(())
}

/// Programs and workers would read the beginning of an IP packet as Ethernet addresses.
fn refuse_without_ethernet(netdev: &Link) -> Result<(), ApiError> {
    let Link { name, hardware, kind, .. } = netdev;
    if *hardware == HardwareType::ETHERNET {
        return Ok(());
    }
    let kind = kind.as_ref().map_or_else(String::new, |kind| format!("a {kind} netdev "));
    let message = format!("`{name}` is {kind}of type {hardware}, whose packets have no Ethernet header");
    Err(ApiError::new(ErrorCode::NetdevRefused, message)
        .with_field("netdev")
        .with_value(name)
        .with_limit("link/ether")
        .with_remedy("use a veth or a NIC, or make it a tap: ip tuntap add NETDEV mode tap"))
}

/// The driver may have no native XDP, or not tell XDP programs what the switch must know.
pub(super) fn refuse_without_xdp(netdev: &Link) -> Result<(), ApiError> {
    let refuse = |message: String| {
        let error = ApiError::new(ErrorCode::NotSupported, message);
        Err(error.with_field("attach").with_value("xdp").with_remedy("use --attach tcx (or auto)"))
    };
    // A tap's XDP program sees a guest's GSO packets in generic mode only, where they cannot be redirected whole.
    if netdev.kind.as_deref() == Some("tun") {
        return refuse(format!("`{}` is a tap: XDP there does not see whole packets", netdev.name));
    }
    // Not knowing is no reason to lose tags.
    let found = netdev_genl::xdp_features(netdev.ifindex).unwrap_or_default();
    if !found.basic || !found.redirect {
        return refuse(format!("the driver of `{}` has no native XDP with redirect", netdev.name));
    }
    if !found.rx_sg && netdev.mtu > ONE_BUFFER_MTU {
        let message = format!(
            "the driver of `{}` loses frames in several buffers while it has an XDP program, and its MTU is {}",
            netdev.name, netdev.mtu
        );
        let remedy =
            format!("use --attach tcx (or auto), or ip link set {} mtu {ONE_BUFFER_MTU}", netdev.name);
        let error = ApiError::new(ErrorCode::NotSupported, message);
        return Err(error
            .with_field("attach")
            .with_value("xdp")
            .with_limit(ONE_BUFFER_MTU)
            .with_remedy(remedy));
    }
    if !found.rx_metadata.vlan_tag && offload::features(&netdev.name).is_ok_and(|found| found.strips_tags()) {
        let message = format!(
            "`{}` takes VLAN tags off packets (rxvlan), and its driver does not tell XDP programs",
            netdev.name
        );
        let remedy =
            format!("use --attach tcx (or auto), or leave tags in: ethtool -K {} rxvlan off", netdev.name);
        let error = ApiError::new(ErrorCode::NotSupported, message);
        return Err(error.with_field("attach").with_value("xdp").with_remedy(remedy));
    }
    Ok(())
}

/// Whether the netdev may drop packets that are addressed to other stations. A veth and a tap drop none.
fn filters_addresses(netdev: &Link) -> bool {
    !matches!(netdev.kind.as_deref(), Some("veth" | "tun"))
}
