//! The fast path: what was decided once is repeated by the kernel programs, to the byte as user space does it, until
//! something changes that the decision relied upon.

mod again;
mod carried;
mod changes;
mod checksums;
mod ends;
mod equivalence;
mod limits;
mod marks;
mod peers;
mod stacks;
mod tags;
mod uplink;

use std::time::Duration;

use forebay_control::MacAddr;
use forebay_control::flow::{FlowEntry, FlowList};
use forebay_control::id::Vid;
use forebay_testbed::dut::Client;
use forebay_testbed::frame::{BROADCAST, Frame, TPID_C, tags_of};
use forebay_testbed::{Host, Result, wait};

use crate::bed::{Bed, with_offload};
use crate::harness::{Subject, Suite};
use crate::wire::Wire;

/// Within which a decision is repeated by the kernel; a worker offers it once in 100 ms.
const INSTALL_LIMIT: Duration = Duration::from_secs(5);

pub fn register(suite: &mut Suite) {
    carried::register(suite);
    tags::register(suite);
    changes::register(suite);
    limits::register(suite);
    ends::register(suite);
    checksums::register(suite);
    equivalence::register(suite);
    again::register(suite);
    peers::register(suite);
    marks::register(suite);
    stacks::register(suite);
    uplink::register(suite);
}

/// Silent hosts on ports of a switch with its fast path, and frames by hand between them.
struct Scene {
    bed: Bed,
    hosts: Vec<Host>,
    wire: Wire,
}

/// Station `n`; as long as it does not move it is behind host `n`.
fn station(n: usize) -> [u8; 6] {
    let [high, low] = u16::try_from(n).expect("a test has few stations").to_be_bytes();
    [2, 0xf1, 0, 0, high, low]
}

fn port_name(host: usize) -> String {
    format!("h{}", host + 1)
}

fn tell(from: usize, to: usize) -> impl Fn(u32) -> Frame + Copy {
    move |mark| Frame::marked(station(from), station(to), mark)
}

fn shout(from: usize) -> impl Fn(u32) -> Frame + Copy {
    move |mark| Frame::marked(station(from), BROADCAST, mark)
}

fn flow_list(client: &Client) -> Result<FlowList> {
    client.json(&["flow", "list"])
}

/// The flow that frames like this one follow.
fn flow_of(list: &FlowList, from: usize, frame: &[u8]) -> Option<FlowEntry> {
    let is_of = |flow: &&FlowEntry| {
        let tag = tags_of(frame).first().filter(|(protocol, _)| *protocol == TPID_C).map(|(_, vid)| *vid);
        flow.runs.is_kernel()
            && flow.in_port == port_name(from)
            && [flow.dst_mac, flow.src_mac] == [0, 6].map(|at| mac_at(frame, at))
            && flow.vlan.map(Vid::get) == tag
            && flow.stacked == (tags_of(frame).len() > usize::from(tag.is_some()))
    };
    list.flows.iter().find(is_of).cloned()
}

fn mac_at(frame: &[u8], at: usize) -> MacAddr {
    MacAddr(frame[at..at + 6].try_into().expect("a frame begins with addresses"))
}

impl Scene {
    /// Hosts on transparent ports.
    fn new(subject: Subject, count: usize) -> std::result::Result<Scene, Box<dyn std::error::Error>> {
        Scene::with(subject, "", count, |bed, hosts| bed.attach(hosts))
    }

    /// Hosts that are attached as said, with this configuration.
    fn with(
        subject: Subject,
        config: &str,
        count: usize,
        attach: impl FnOnce(&mut Bed, &[Host]) -> Result<()>,
    ) -> std::result::Result<Scene, Box<dyn std::error::Error>> {
        with_offload(|| {
            let mut bed = Bed::with_config(subject, config)?;
            let hosts = bed.lab.hosts(count, subject.kind())?;
            attach(&mut bed, &hosts)?;
            let wire = Wire::new(&hosts)?;
            Ok(Scene { bed, hosts, wire })
        })
    }

    fn client(&mut self) -> Client {
        self.bed.client()
    }

    fn set(&mut self, port: usize, change: &[&str]) -> Result<()> {
        let name = port_name(port);
        self.client().ok(&[&["port", "set", &name], change].concat()).map(drop)
    }

    /// Each host's station speaks to all.
    fn introduce(&mut self) -> Result<()> {
        for host in 0..self.hosts.len() {
            self.introduce_one(host)?;
        }
        Ok(())
    }

    fn introduce_one(&mut self, host: usize) -> Result<()> {
        let others: Vec<usize> = (0..self.hosts.len()).filter(|other| *other != host).collect();
        self.wire.pass(&mut self.bed, host, shout(host), &others).map(drop)
    }

    /// Sends such frames until the kernel carries one, and returns the flow; each must arrive at the hosts `to`.
    fn until_carried(
        &mut self,
        from: usize,
        shape: impl Fn(u32) -> Frame,
        to: &[usize],
    ) -> Result<FlowEntry> {
        let client = self.client();
        let frame = shape(0).build();
        let mut before = u64::MAX;
        // One that is void is listed for a while.
        wait::until_some("the kernel to carry a frame", INSTALL_LIMIT, || {
            let passed = self.wire.pass(&mut self.bed, from, &shape, to);
            passed.expect("a frame passes before there is a flow as afterwards");
            let flow = flow_of(&flow_list(&client).ok()?, from, &frame)?;
            (flow.packets > std::mem::replace(&mut before, flow.packets)).then_some(flow)
        })
    }
}
