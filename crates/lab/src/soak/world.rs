//! The lab of the soak: hosts of every kind, and the daemon that lives at the moment.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay_control::port::PortState;
use forebay_testbed::dut::{self, Client, Dut, Forebay, ForebayOptions};
use forebay_testbed::{Host, Lab, PortKind, Result, wait};

use super::ledger::Ledger;

/// Hosts that are never disturbed themselves; streams between them must go on. Every kind is among them.
pub(super) const STEADY: usize = 8;
const UP_LIMIT: Duration = Duration::from_secs(20);

/// The hosts. A lock is held to look at a host, or to change its netdevs; never while a program runs in it.
#[derive(Debug)]
pub(super) struct Hosts(Vec<Mutex<Host>>);

impl Hosts {
    pub(super) fn get(&self, index: usize) -> MutexGuard<'_, Host> {
        self.0[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Everything that stands while the soak runs.
#[derive(Debug)]
pub(super) struct World {
    // In this order: what lives in the lab before the lab.
    pub(super) switch: Forebay,
    pub(super) hosts: Arc<Hosts>,
    pub(super) lab: Lab,
    pub(super) ledger: Arc<Ledger>,
}

impl World {
    /// Hosts, and a first daemon with all of them as its ports.
    pub(super) fn build(ports: u16, ledger: &Arc<Ledger>) -> Result<World> {
        let mut lab = Lab::new("soak")?;
        let host = |number: u16| make_host(&mut lab, number).map(Mutex::new);
        let hosts = (1..=ports).map(host).collect::<Result<Vec<_>>>()?;
        let switch = Forebay::start(&lab, ForebayOptions::default())?;
        let hosts = Arc::new(Hosts(hosts));
        let mut world = World { switch, hosts, lab, ledger: Arc::clone(ledger) };
        world.add_all()?;
        world.wait_all_up()?;
        Ok(world)
    }

    pub(super) fn client(&self) -> &Client {
        self.switch.client()
    }

    pub(super) fn is_running(&mut self) -> bool {
        self.switch.daemon().is_running()
    }

    /// The name of a host and its port.
    pub(super) fn name(&self, index: usize) -> String {
        self.hosts.get(index).name().to_owned()
    }

    /// Makes these hosts' netdevs ports.
    pub(super) fn add(&mut self, indexes: &[usize]) -> Result<()> {
        let ports: Vec<_> = indexes.iter().map(|index| dut::port_of(&self.hosts.get(*index))).collect();
        self.switch.add_ports(&ports)
    }

    /// Makes all hosts' netdevs ports of a daemon that has none.
    pub(super) fn add_all(&mut self) -> Result<()> {
        self.add(&(0..self.hosts.len()).collect::<Vec<_>>())
    }

    /// Deletes these hosts' ports in one request.
    pub(super) fn delete(&self, indexes: &[usize]) -> Result<()> {
        let names: Vec<String> = indexes.iter().map(|index| self.name(*index)).collect();
        let words: Vec<&str> = ["port", "del"].into_iter().chain(names.iter().map(String::as_str)).collect();
        self.client().ok(&words).map(drop)
    }

    /// Waits until every host has its port, and all are up.
    pub(super) fn wait_all_up(&self) -> Result<()> {
        let what = format!("all {} ports to be up", self.hosts.len());
        wait::until(&what, UP_LIMIT, || self.ports_up().is_ok_and(|up| up == self.hosts.len()))
    }

    /// How many ports are up.
    pub(super) fn ports_up(&self) -> Result<usize> {
        let ports = self.client().ports()?;
        Ok(ports.iter().filter(|port| port.state == PortState::Up).count())
    }
}

fn make_host(lab: &mut Lab, number: u16) -> Result<Host> {
    let host = lab.host(&format!("h{number}"), kind_of(number))?;
    // A link that goes down must not cost the host its addresses.
    host.netns().set("ipv6/conf/all/keep_addr_on_down", "1")?;
    Ok(host)
}

/// Of ten hosts six are containers with tcx, three stand for NICs, one is a virtual machine.
fn kind_of(number: u16) -> PortKind {
    match number % 10 {
        1 | 2 | 5 | 6 | 9 | 0 => PortKind::VethTcx,
        3 | 7 | 8 => PortKind::VethXdp,
        _ => PortKind::Tap,
    }
}
