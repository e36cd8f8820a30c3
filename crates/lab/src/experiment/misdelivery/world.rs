//! The hosts, the daemon, and its API.

use forebay_control::counters::PortCounters;
use forebay_control::fdb::FdbEntry;
use forebay_control::id::Vid;
use forebay_control::port::{Attach, PortAdd, PortAddReply, PortSet, PortSpec};
use forebay_control::stats::StatsShow;
use forebay_control::vlan::VlanMode;
use forebay_testbed::dut::counters::Reading;
use forebay_testbed::dut::{Api, Forebay, ForebayOptions};
use forebay_testbed::lab::Lab;
use forebay_testbed::netns::Netns;
use forebay_testbed::sys::packet_socket::PacketSocket;
use forebay_testbed::{LabError, Result};
use serde_json::json;

use super::super::{Report, listen, numbered};
use super::oracle::{Port, State, Station};

/// The VLANs that ports are in.
pub(super) const VLANS: [u16; 3] = [10, 20, 30];
/// One port in so many is isolated at first.
const ISOLATED: u16 = 8;
/// One station in so many has no port of its own and moves.
const MOVERS: u16 = 4;
/// Longer than any run: nothing is forgotten for its age.
const CONFIG: &str = "[fdb]\nageing_seconds = 100000\n[flood]\ncopies_per_second = 0\n";

/// The lab.
pub(super) struct World {
    api: Api,
    pub(super) sockets: Vec<PacketSocket>,
    // In this order: the switch before what it is attached to.
    forebay: Forebay,
    _hosts: Netns,
    _lab: Lab,
}

impl World {
    /// All ports, as [`World::first_state`] has them.
    pub(super) fn start(ports: u16) -> Result<World> {
        let lab = Lab::new("misdelivery")?;
        let count = usize::from(ports);
        let hosts = lab.bulk_veths(count)?;
        listen::take_frames(&hosts, count)?;
        let sockets = listen::sockets(&hosts, count)?;
        let forebay = Forebay::start(&lab, ForebayOptions::with_config(CONFIG).offloaded())?;
        let api = forebay.client().api();
        let world = World { api, sockets, forebay, _hosts: hosts, _lab: lab };
        let state = world.first_state();
        world
            .add(state.ports.iter().enumerate().map(|(number, port)| spec(number as u16, *port)).collect())?;
        Ok(world)
    }

    /// Station n at port n, and behind them those that move; nobody has been heard.
    pub(super) fn first_state(&self) -> State {
        let ports = self.sockets.len() as u16;
        let port = |number: u16| Port {
            exists: true,
            vlan: VLANS[usize::from(number) % VLANS.len()],
            isolated: number % ISOLATED == ISOLATED - 1,
        };
        let station = |number: u16| Station { port: number % ports, is_known: false };
        State {
            ports: (0..ports).map(port).collect(),
            stations: (0..ports + ports / MOVERS).map(station).collect(),
        }
    }

    fn add(&self, ports: Vec<PortSpec>) -> Result<()> {
        let reply: PortAddReply = self.api.send("POST", "/v1/ports", &PortAdd { ports, wait: false })?;
        match reply.refused.first() {
            Some(refused) => Err(LabError::output("a port", refused.error.to_string())),
            None => Ok(()),
        }
    }

    pub(super) fn add_port(&self, number: u16, port: Port) -> Result<()> {
        self.add(vec![spec(number, port)])
    }

    pub(super) fn delete_port(&self, number: u16) -> Result<()> {
        self.api.change("DELETE", &format!("/v1/ports/{}", name(number)), &json!({}))
    }

    pub(super) fn set_vlan(&self, number: u16, vlan: u16) -> Result<()> {
        self.set(number, &PortSet { vlan: Some(access(vlan)), ..PortSet::default() })
    }

    pub(super) fn isolate(&self, number: u16, isolated: bool) -> Result<()> {
        self.set(number, &PortSet { isolated: Some(isolated), ..PortSet::default() })
    }

    fn set(&self, number: u16, change: &PortSet) -> Result<()> {
        self.api.change("PATCH", &format!("/v1/ports/{}", name(number)), change)
    }

    /// Whether the table shows this station behind this port.
    pub(super) fn knows(&self, station: u16, port: u16) -> bool {
        let path = format!("/v1/fdb?port={}", name(port));
        let entries = self.api.get::<Vec<FdbEntry>>(&path).unwrap_or_default();
        entries.iter().any(|entry| entry.mac.0 == numbered::mac_of(station))
    }

    /// The counters of all ports, deleted ones included, when nothing is under way any more.
    pub(super) fn carried(&self, report: &mut Report) -> Result<PortCounters> {
        if let Err(error) = Reading::settled(self.forebay.client()) {
            report.broken(format!("the counters do not balance: {error}"));
        }
        Ok(self.api.get::<StatsShow>("/v1/stats")?.total)
    }
}

fn name(number: u16) -> String {
    format!("p{}", number + 1)
}

fn access(vlan: u16) -> VlanMode {
    VlanMode::Access(Vid::new(vlan).unwrap_or(Vid::UNTAGGED))
}

/// Every second port is XDP.
fn spec(number: u16, port: Port) -> PortSpec {
    let attach = if number % 2 == 1 { Attach::Xdp } else { Attach::Tcx };
    PortSpec { attach, vlan: access(port.vlan), isolated: port.isolated, ..PortSpec::new(name(number)) }
}
