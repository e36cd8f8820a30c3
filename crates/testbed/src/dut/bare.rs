//! The bare redirect: two netdevs, each of whose packets leave by the other, without a parse and without a lookup.
//!
//! Not a switch. It does the least that a switch in the same place must do, and so says how fast one could be.

use std::os::fd::{AsFd, OwnedFd};

use forebay_control::port::{Attach, PortSpec};
use libbpf_rs::{Link, Object};

use super::Dut;
use super::bridge::not_offered;
use crate::lab::Lab;
use crate::sys::tcx;
use crate::{LabError, Result, bpf, netns};

const NAME: &str = "bare redirect";

/// Two netdevs joined by BPF programs; they are detached when dropped.
#[derive(Debug)]
pub struct Bare {
    /// The switch's namespace.
    netns: String,
    attach: Attach,
    ends: Vec<End>,
}

/// What sends the packets of one netdev out of the other.
#[derive(Debug)]
struct End {
    // In this order: detached before its program is closed. Both are present for their drop.
    _attached: Attached,
    _object: Object,
}

#[derive(Debug)]
#[expect(dead_code, reason = "held for their drop, which detaches")]
enum Attached {
    Tcx(OwnedFd),
    Xdp(Link),
}

impl Bare {
    /// A bare redirect without netdevs yet, which its programs will be attached to as this says, XDP or else tcx.
    pub fn start(lab: &Lab, attach: Attach) -> Bare {
        Bare { netns: lab.switch().name().to_owned(), attach, ends: Vec::new() }
    }
}

impl Dut for Bare {
    fn name(&self) -> &'static str {
        NAME
    }

    fn add_ports(&mut self, ports: &[PortSpec]) -> Result<()> {
        let [one, other] = ports else { return Err(not_offered(NAME, "join other than two netdevs")) };
        let (one, other, attach) = (&one.netdev, &other.netdev, self.attach);
        let join = || Ok::<_, LabError>(vec![redirect(one, other, attach)?, redirect(other, one, attach)?]);
        self.ends = netns::enter(&self.netns, join)??;
        Ok(())
    }

    fn delete_port(&mut self, _netdev: &str) -> Result<()> {
        self.ends.clear();
        Ok(())
    }

    fn pids(&self) -> Vec<u32> {
        Vec::new()
    }

    /// A veth takes what XDP redirects to it only with GRO or XDP at its other end.
    fn settings_of_hosts(&self) -> &'static [&'static str] {
        if self.attach == Attach::Xdp { &["gro", "on"] } else { &[] }
    }
}

/// In the namespace of both.
fn redirect(from: &str, to: &str, attach: Attach) -> Result<End> {
    let (from, to) = (netns::ifindex(from)?.cast_signed(), netns::ifindex(to)?);
    let mut object = bpf::load_with_bare_ifindex(to)?;
    bpf::set(&object, "out", to)?;
    let attached = if attach == Attach::Xdp {
        let link = bpf::program(&mut object, "bare_xdp").attach_xdp(from);
        Attached::Xdp(link.map_err(|error| LabError::bpf("attaching a bare XDP redirect", error))?)
    } else {
        let link = tcx::attach(bpf::program(&mut object, "bare_tcx").as_fd(), from);
        Attached::Tcx(link.map_err(|error| LabError::system("attaching a bare tcx redirect", error))?)
    };
    Ok(End { _attached: attached, _object: object })
}
