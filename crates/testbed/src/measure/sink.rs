//! The sink: an XDP program that counts UDP over IPv4 and drops it.

use libbpf_rs::{Link, MapCore, MapFlags, Object};

use crate::netns::Netns;
use crate::{LabError, Result, bpf};

/// A sink on one netdev; detached when dropped.
#[derive(Debug)]
pub struct Sink {
    // In this order: detached before its program is closed.
    _link: Link,
    object: Object,
}

/// What a sink has counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Sink {
    /// The program's name, as the kernel shows it.
    pub const PROGRAM_NAME: &'static str = "fb_lab_sink";

    /// Attaches a sink as native XDP.
    ///
    /// # Errors
    /// When the kernel refuses, as when another program is attached.
    pub fn attach(netns: &Netns, ifname: &str) -> Result<Sink> {
        Sink::attach_as(netns, ifname, Sink::PROGRAM_NAME)
    }

    /// As [`Sink::attach`], but the sink counts only frames with metadata below them.
    ///
    /// # Errors
    /// As [`Sink::attach`].
    pub fn attach_for_metadata(netns: &Netns, ifname: &str) -> Result<Sink> {
        Sink::attach_as(netns, ifname, "sink_below")
    }

    fn attach_as(netns: &Netns, ifname: &str, program: &str) -> Result<Sink> {
        let ifindex = netns.ifindex(ifname)?.cast_signed();
        // The link is made for a netdev of the calling thread's namespace.
        let (object, link) = netns.enter(|| attach_here(ifindex, program))??;
        Ok(Sink { _link: link, object })
    }

    /// What it counted so far, on all processors.
    ///
    /// # Errors
    /// When the map can't be read.
    pub fn counted(&self) -> Result<Counted> {
        let map = bpf::find_map(&self.object, "counted");
        let values = map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
        let values = values.map_err(|error| LabError::bpf("reading a sink", error))?.unwrap_or_default();
        let number = |value: &[u8], at: usize| {
            value.get(at..at + 8).map_or(0, |b| u64::from_ne_bytes(b.try_into().expect("eight bytes")))
        };
        Ok(Counted {
            packets: values.iter().map(|value| number(value, 0)).sum(),
            bytes: values.iter().map(|value| number(value, 8)).sum(),
        })
    }
}

fn attach_here(ifindex: i32, program: &str) -> Result<(Object, Link)> {
    let mut object = bpf::load()?;
    let link = bpf::program(&mut object, program).attach_xdp(ifindex);
    Ok((object, link.map_err(|error| LabError::bpf("attaching a sink", error))?))
}
