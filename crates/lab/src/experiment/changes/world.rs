//! Three hosts, the daemon between them, and how each change is made.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use forebay_control::fdb::FdbEntry;
use forebay_control::flow::{FlowList, FlowsRefused};
use forebay_control::id::Vid;
use forebay_control::port::{Attach, PortAdd, PortAddReply, PortSet, PortSpec};
use forebay_control::rule::{RuleAction, RuleAdd, RuleShow};
use forebay_control::vlan::VlanMode;
use forebay_testbed::dut::{Api, Forebay, ForebayOptions};
use forebay_testbed::host::PortKind;
use forebay_testbed::lab::Lab;
use forebay_testbed::netns::Netns;
use forebay_testbed::sys::packet_socket::PacketSocket;
use forebay_testbed::{LabError, Result, wait};
use serde_json::json;

use super::course::{Step, What};
use super::places::{A, B, C, S, VLAN};
use super::stream::Shared;
use crate::experiment::listen;
use crate::experiment::numbered::{PORT, mac_of};

const HOSTS: usize = 3;
/// A VLAN that no host is in at first.
const OTHER_VLAN: u16 = 20;
/// How long the kernel may take to carry the stream again before it counts as not carried.
const CARRIED_LIMIT: Duration = Duration::from_secs(2);
/// How long a station may take to be heard.
const HEARD_LIMIT: Duration = Duration::from_secs(10);
/// A frame that has no answer after so long is sent again.
const AGAIN: Duration = Duration::from_millis(20);
/// No rule.
const NONE: u64 = u64::MAX;

/// The lab while changes are made.
pub(super) struct World {
    api: Api,
    pub(super) sockets: Vec<PacketSocket>,
    kind: PortKind,
    /// The rule there is.
    rule: AtomicU64,
    // In this order: the switch before what it is attached to.
    _forebay: Forebay,
    _hosts: Netns,
    _lab: Lab,
}

impl World {
    pub(super) fn start(kind: PortKind) -> Result<World> {
        let lab = Lab::new("changes")?;
        let hosts = lab.bulk_veths(HOSTS)?;
        listen::take_frames(&hosts, HOSTS)?;
        let sockets = listen::sockets(&hosts, HOSTS)?;
        let forebay = Forebay::start(&lab, ForebayOptions::default().offloaded())?;
        let api = forebay.client().api();
        let rule = AtomicU64::new(NONE);
        let world = World { api, sockets, kind, rule, _forebay: forebay, _hosts: hosts, _lab: lab };
        (1..=HOSTS).try_for_each(|port| world.add_port(port))?;
        world.isolate(A, true)?;
        Ok(world)
    }

    fn add_port(&self, number: usize) -> Result<()> {
        let attach = if self.kind == PortKind::VethXdp { Attach::Xdp } else { Attach::Tcx };
        let vlan = VlanMode::Access(vid(VLAN));
        let request = PortAdd {
            ports: vec![PortSpec { attach, vlan, ..PortSpec::new(format!("p{number}")) }],
            wait: false,
        };
        let reply: PortAddReply = self.api.send("POST", "/v1/ports", &request)?;
        match reply.refused.first() {
            Some(refused) => Err(LabError::output("a port", refused.error.to_string())),
            None => Ok(()),
        }
    }

    fn set_port(&self, host: usize, change: &PortSet) -> Result<()> {
        self.api.change("PATCH", &format!("/v1/ports/p{}", host + 1), change)
    }

    fn isolate(&self, host: usize, isolated: bool) -> Result<()> {
        self.set_port(host, &PortSet { isolated: Some(isolated), ..PortSet::default() })
    }

    fn set_vlan(&self, vlan: VlanMode) -> Result<()> {
        self.set_port(B, &PortSet { vlan: Some(vlan), ..PortSet::default() })
    }

    fn add_rule(&self, rule: &RuleAdd) -> Result<()> {
        let shown: RuleShow = self.api.send("POST", "/v1/rules", rule)?;
        self.rule.store(shown.id, Relaxed);
        Ok(())
    }

    /// Lets S be heard at B, before anything is counted.
    pub(super) fn set_out(&self, stream: &Shared) -> Result<()> {
        self.speak(stream, B, false)
    }

    /// Makes a change; complete when this returns.
    pub(super) fn change(&self, what: What, stream: &Shared) -> Result<()> {
        let nothing = json!({});
        match what {
            What::MoveToC => self.speak(stream, C, false),
            What::MoveToB | What::Heard => self.speak(stream, B, false),
            What::HeardTagged => self.speak(stream, B, true),
            What::AddDrop => self.add_rule(&by_address()),
            What::AddOutput => self.add_rule(&by_port()?),
            What::DeleteRule => {
                self.api.change("DELETE", &format!("/v1/rules/{}", self.rule.load(Relaxed)), &nothing)
            }
            What::Isolate => self.isolate(B, true),
            What::Release => self.isolate(B, false),
            What::Trunk => self.set_vlan(VlanMode::Trunk { vids: vec![vid(VLAN)], native: None }),
            What::OtherVlan => self.set_vlan(VlanMode::Access(vid(OTHER_VLAN))),
            What::Access => self.set_vlan(VlanMode::Access(vid(VLAN))),
            What::DeletePort => self.api.change("DELETE", "/v1/ports/p2", &nothing),
            What::AddPort => self.add_port(B + 1),
            What::Flush => self.api.change("POST", "/v1/flows/flush", &nothing),
        }
    }

    /// S speaks from this host until the table shows it there; then once more, and that frame has arrived. Its worker
    /// has done by then whatever it does when a station moves.
    fn speak(&self, stream: &Shared, host: usize, tagged: bool) -> Result<()> {
        self.exchange(stream, host, tagged)?;
        let path = format!("/v1/fdb?port=p{}", host + 1);
        let is_there = || {
            let entries = self.api.get::<Vec<FdbEntry>>(&path).unwrap_or_default();
            entries.iter().any(|entry| entry.mac.0 == mac_of(S))
        };
        let what = "the table to show a station that speaks";
        wait::until(what, HEARD_LIMIT, || is_there() || self.exchange(stream, host, tagged).is_err())?;
        self.exchange(stream, host, tagged)
    }

    /// A frame from S to A that arrives.
    fn exchange(&self, stream: &Shared, host: usize, tagged: bool) -> Result<()> {
        let deadline = Instant::now() + HEARD_LIMIT;
        while Instant::now() < deadline {
            let number = stream.speak(&self.sockets[host], tagged);
            let again = Instant::now() + AGAIN;
            while Instant::now() < again {
                if stream.was_answered(number) {
                    return Ok(());
                }
                std::thread::yield_now();
            }
        }
        Err(LabError::Waited { what: "a frame from the station".to_owned(), limit: HEARD_LIMIT })
    }

    /// Flows that were not installed so far.
    pub(super) fn refused(&self) -> Result<FlowsRefused> {
        self.api.get::<FlowList>("/v1/flows").map(|list| list.table.refused)
    }

    /// How long it takes until the kernel has carried something as this change says; `None` where it does not.
    pub(super) fn wait_until_carried(&self, step: Step) -> Result<Option<Duration>> {
        let Some(repeated) = step.repeated else { return Ok(None) };
        let start = Instant::now();
        while start.elapsed() < CARRIED_LIMIT {
            let list: FlowList = self.api.get("/v1/flows")?;
            let is_carried = list.flows.iter().any(|flow| {
                let is_stream = flow.runs.is_kernel() && flow.dst_mac.0 == mac_of(S);
                is_stream && flow.packets > 0 && repeated.is(&flow.action, flow.tag)
            });
            if is_carried {
                return Ok(Some(start.elapsed()));
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok(None)
    }
}

/// VLANs here are far below the limit.
fn vid(number: u16) -> Vid {
    Vid::new(number).unwrap_or(Vid::UNTAGGED)
}

fn by_address() -> RuleAdd {
    let dst_mac = Some(forebay_control::id::MacAddr(mac_of(S)));
    RuleAdd { dst_mac, ..RuleAdd::new(10, RuleAction::Drop) }
}

fn by_port() -> Result<RuleAdd> {
    let rule = json!({ "priority": 20, "ip_proto": "udp", "dport": PORT.to_string(), "action": "output:p3" });
    serde_json::from_value(rule).map_err(|error| LabError::output("a rule", error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_can_be_made() {
        assert!(by_address().validate().is_ok() && by_port().unwrap().validate().is_ok());
        assert_eq!(vid(VLAN).get(), VLAN);
    }
}
