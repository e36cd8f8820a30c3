//! Hosts in a VLAN: all that a host sends and receives carries one tag, as through a VLAN netdev.
//!
//! Two tc programs do it, because not every kernel is built with 802.1Q netdevs. The tag goes beside the packet, not
//! into it, which is how a VLAN netdev on a veth sends and what switches get wrong.

use std::os::fd::AsFd;

use libbpf_rs::{Object, TC_EGRESS, TC_INGRESS, TcHookBuilder};

use crate::host::Host;
use crate::{LabError, Result, bpf};

/// A host's tag, until the host goes away.
#[derive(Debug)]
pub struct Tagged {
    // Present for its drop; the kernel keeps attached programs by itself.
    _object: Object,
}

impl Tagged {
    /// Puts the host into a VLAN, with this tag protocol identifier (0x8100 or 0x88a8).
    ///
    /// # Errors
    /// When the kernel refuses a program.
    pub fn start(host: &Host, protocol: u16, vid: u16) -> Result<Tagged> {
        let ifindex = host.netns().ifindex("eth0")?.cast_signed();
        let object = host.netns().enter(|| attach(ifindex, protocol, vid))??;
        Ok(Tagged { _object: object })
    }
}

fn attach(ifindex: i32, protocol: u16, vid: u16) -> Result<Object> {
    let mut object = bpf::load()?;
    bpf::set(&object, "tag", u32::from(protocol) << 16 | u32::from(vid))?;
    for (name, point) in [("tag_push", TC_EGRESS), ("tag_pop", TC_INGRESS)] {
        hook(&mut object, name, ifindex, point).map_err(|error| LabError::bpf(name, error))?;
    }
    Ok(object)
}

fn hook(
    object: &mut Object,
    name: &str,
    ifindex: i32,
    point: libbpf_rs::TcAttachPoint,
) -> libbpf_rs::Result<()> {
    let program = bpf::program(object, name);
    let mut hook =
        TcHookBuilder::new(program.as_fd()).ifindex(ifindex).replace(true).handle(1).priority(1).hook(point);
    // The other program's hook, or an earlier tag's, is there already: libbpf prints that, and goes on.
    let print = libbpf_rs::set_print(None);
    let created = hook.create();
    libbpf_rs::set_print(print);
    created?;
    hook.attach().map(drop)
}
