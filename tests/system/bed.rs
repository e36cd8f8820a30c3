//! The test bed of one scenario: a lab with its subject running, and the oracle of counters.

use std::cell::Cell;
use std::fmt::Display;
use std::thread::LocalKey;

use forebay_control::port::PortSpec;
use forebay_control::vlan::VlanMode;
use forebay_testbed::dut::counters::{Moved, Reading};
use forebay_testbed::dut::{self, Bridge, Client, Dut, Forebay, ForebayOptions};
pub use forebay_testbed::standstill::while_stopped;
use forebay_testbed::{Host, Lab, PortKind, Result};

use crate::harness::{Subject, ensure_program};

thread_local! {
    static HINTED: Cell<bool> = const { Cell::new(false) };
    static OFFLOADED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a scenario with hints on all of its ports.
pub fn with_hints<T>(scenario: impl FnOnce() -> T) -> T {
    while_set(&HINTED, scenario)
}

/// Runs a scenario with the fast path.
pub fn with_offload<T>(scenario: impl FnOnce() -> T) -> T {
    while_set(&OFFLOADED, scenario)
}

/// The next scenario of this thread begins without, also when this one panics.
fn while_set<T>(flag: &'static LocalKey<Cell<bool>>, scenario: impl FnOnce() -> T) -> T {
    struct Reset(&'static LocalKey<Cell<bool>>);
    impl Drop for Reset {
        fn drop(&mut self) {
            self.0.set(false);
        }
    }
    flag.set(true);
    let _reset = Reset(flag);
    scenario()
}

/// Has a veth take frames of XDP programs: it does while its peer collects packets (veth_set_xdp_features).
pub fn take_frames(host: &Host) -> Result<()> {
    if host.kind() == PortKind::VethXdp {
        host.netns().ethtool("eth0", &["gro", "on"])?;
    }
    Ok(())
}

/// A lab with its subject.
pub struct Bed {
    // In this order: the subject and hosts before the lab they are in.
    switch: Switch,
    /// The lab.
    pub lab: Lab,
}

enum Switch {
    Bridge(Bridge),
    Forebay(Box<Forebay>),
}

impl Bed {
    /// A lab with the subject running, without ports.
    pub fn new(subject: Subject) -> std::result::Result<Bed, Box<dyn std::error::Error>> {
        Bed::with_options(subject, ForebayOptions::default())
    }

    /// Forebay with this configuration file.
    pub fn with_config(
        subject: Subject,
        config: &str,
    ) -> std::result::Result<Bed, Box<dyn std::error::Error>> {
        Bed::with_options(subject, ForebayOptions::with_config(config))
    }

    /// Forebay with these options in a lab that is there.
    pub fn of(lab: Lab, options: ForebayOptions) -> Result<Bed> {
        let forebay = Box::new(Forebay::start(&lab, options)?);
        Ok(Bed { switch: Switch::Forebay(forebay), lab })
    }

    fn with_options(
        subject: Subject,
        options: ForebayOptions,
    ) -> std::result::Result<Bed, Box<dyn std::error::Error>> {
        let lab = Lab::new("system")?;
        let options = ForebayOptions { offload: OFFLOADED.get(), ..options }.allowing_programs();
        let switch = match subject {
            Subject::Bridge => Switch::Bridge(Bridge::start(&lab)?),
            Subject::Forebay(_) => {
                ensure_program()?;
                Switch::Forebay(Box::new(Forebay::start(&lab, options)?))
            }
        };
        Ok(Bed { switch, lab })
    }

    /// A lab with the subject and this many hosts on transparent ports.
    pub fn with_hosts(
        subject: Subject,
        count: usize,
    ) -> std::result::Result<(Bed, Vec<Host>), Box<dyn std::error::Error>> {
        let mut bed = Bed::new(subject)?;
        let hosts = bed.lab.hosts(count, subject.kind())?;
        bed.attach(&hosts)?;
        Ok((bed, hosts))
    }

    /// Makes the hosts ports, transparent.
    pub fn attach<'a>(&mut self, hosts: impl IntoIterator<Item = &'a Host>) -> Result<()> {
        self.add(hosts, |_| {})
    }

    fn add<'a>(
        &mut self,
        hosts: impl IntoIterator<Item = &'a Host>,
        change: impl Fn(&mut PortSpec),
    ) -> Result<()> {
        let hosts: Vec<&Host> = hosts.into_iter().collect();
        let mut ports = dut::ports_of(hosts.iter().copied());
        ports.iter_mut().for_each(change);
        if OFFLOADED.get() {
            hosts.into_iter().try_for_each(take_frames)?;
        }
        let ports = &ports[..];
        self.dut().add_ports(ports)?;
        for port in ports.iter().filter(|_| HINTED.get()) {
            let said = self.client().ok(&["hints", "set", port.port_name(), "on"])?;
            assert!(said.stdout.contains(": on, by built-in"), "{said:?}");
        }
        Ok(())
    }

    /// Makes a host a port with these VLANs.
    pub fn attach_vlan(&mut self, host: &Host, vlan: &str) -> Result<()> {
        let vlan: VlanMode = vlan.parse().expect("a test's VLAN mode is well-formed");
        self.add([host], |port| port.vlan = vlan.clone())
    }

    /// Makes hosts isolated ports.
    pub fn attach_isolated<'a>(&mut self, hosts: impl IntoIterator<Item = &'a Host>) -> Result<()> {
        self.add(hosts, |port| port.isolated = true)
    }

    /// The subject.
    pub fn dut(&mut self) -> &mut dyn Dut {
        match &mut self.switch {
            Switch::Bridge(bridge) => bridge,
            Switch::Forebay(forebay) => forebay.as_mut(),
        }
    }

    /// Forebay, in a scenario that is about it.
    pub fn forebay(&mut self) -> &mut Forebay {
        match &mut self.switch {
            Switch::Forebay(forebay) => forebay,
            Switch::Bridge(_) => panic!("this scenario is about Forebay"),
        }
    }

    /// Forebay's command line.
    pub fn client(&mut self) -> Client {
        self.forebay().client().clone()
    }

    /// Runs traffic and says which counters moved, once nothing is under way any more.
    pub fn watch<T>(&mut self, traffic: impl FnOnce(&Lab) -> Result<T>) -> Result<(T, Oracle)> {
        let client = match &self.switch {
            Switch::Bridge(_) => return Ok((traffic(&self.lab)?, Oracle(None))),
            Switch::Forebay(forebay) => forebay.client().clone(),
        };
        self.lab.settle();
        let before = Reading::settled(&client)?;
        let result = traffic(&self.lab)?;
        self.lab.settle();
        let after = Reading::settled(&client)?;
        Ok((result, Oracle(Some(after.since(&before)))))
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if let (true, Switch::Forebay(forebay)) = (std::thread::panicking(), &self.switch) {
            eprintln!("the daemon's log:\n{}", forebay.log());
        }
    }
}

/// Drops that a stream which fills every queue may cause.
pub const CONGESTION: [&str; 6] =
    ["over_threshold", "rx_ring_full", "collector_full", "no_frame", "tx_full", "tx_over_share"];

/// Packets that the kernel carried by itself; others count them too.
const OFFLOADED_PACKETS: &str = "offloaded_packets";

/// What moved; for a subject without our counters every question is answered "as expected".
#[must_use]
pub struct Oracle(Option<Moved>);

impl Oracle {
    /// Exactly these packet counters moved, this far. Whether the kernel carried packets is looked at only where some
    /// are expected to be carried, or none.
    pub fn exactly(&self, expected: &[(&str, &'static str, u64)]) {
        let Some(moved) = &self.0 else { return };
        let is_asked = expected.iter().any(|(_, name, _)| *name == OFFLOADED_PACKETS);
        let mut expected: Vec<_> = expected.iter().filter(|(_, _, by)| *by != 0).copied().collect();
        expected.sort_unstable();
        let mut packets = moved.packets();
        packets.retain(|(_, name, _)| is_asked || *name != OFFLOADED_PACKETS);
        packets.sort_unstable();
        assert_eq!(packets, expected, "which counters moved:\n{moved}");
    }

    /// No counter of a drop moved, but these.
    pub fn no_drops_but(&self, allowed: &[&str]) {
        let Some(moved) = &self.0 else { return };
        let other: Vec<_> =
            moved.drops().into_iter().filter(|(_, name, _)| !allowed.contains(name)).collect();
        assert!(other.is_empty(), "drops that should not be: {other:?}; all that moved:\n{moved}");
    }

    /// No counter of a drop moved.
    pub fn no_drops(&self) {
        self.no_drops_but(&[]);
    }

    /// How far a counter moved, where there are counters.
    pub fn moved(&self, port: &str, counter: &str) -> Option<u64> {
        self.0.as_ref().map(|moved| moved.get(port, counter))
    }

    /// How far a counter moved on all ports together, where there are counters.
    pub fn total(&self, counter: &str) -> Option<u64> {
        self.0.as_ref().map(|moved| moved.total(counter))
    }
}

impl Display for Oracle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.as_ref().map_or(Ok(()), |moved| moved.fmt(f))
    }
}
