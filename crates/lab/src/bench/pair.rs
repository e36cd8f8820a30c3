//! Two hosts, one switch between them.

use forebay_testbed::Result;
use forebay_testbed::dut::{self, Dut};
use forebay_testbed::host::Host;
use forebay_testbed::lab::Lab;

use super::Contender;

/// Two hosts and a contender, which has carried packets both ways.
pub(super) struct Pair {
    // In this order: the switch before what it is attached to.
    pub(super) dut: Box<dyn Dut>,
    hosts: Vec<Host>,
    pub(super) lab: Lab,
}

impl Pair {
    pub(super) fn new(contender: Contender) -> Result<Pair> {
        let mut lab = Lab::new("bench")?;
        let [first, second] = contender.ports();
        let hosts = vec![lab.host("h1", first)?, lab.host("h2", second)?];
        let mut dut = contender.start(&lab)?;
        dut.add_ports(&dut::ports_of(&hosts))?;
        dut::set_up_hosts(dut.as_ref(), &hosts)?;
        if contender.has_rule() {
            dut.add_rule(hosts[1].v4())?;
        }
        dut::wait_until_it_carries(&hosts[0], &hosts[1])?;
        Ok(Pair { dut, hosts, lab })
    }

    /// Who sends and asks, and who receives and answers.
    pub(super) fn ends(&self) -> (&Host, &Host) {
        (&self.hosts[0], &self.hosts[1])
    }
}
