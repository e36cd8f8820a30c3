//! Ports of different kinds with each other.

use forebay_testbed::PortKind;

use crate::bed::Bed;
use crate::connectivity::{check_stream, ping_all};
use crate::harness::{Outcome, Subject, Suite};

pub fn register(suite: &mut Suite) {
    suite.heavy_once("a_container_talks_to_a_virtual_machine::veth-tcx-tap", || {
        talk(PortKind::VethTcx, PortKind::Tap)
    });
    suite.heavy_once("tcx_and_xdp_ports_talk::veth-tcx-veth-xdp", || {
        talk(PortKind::VethTcx, PortKind::VethXdp)
    });
    suite.heavy_once("xdp_and_tap_ports_talk::veth-xdp-tap", || talk(PortKind::VethXdp, PortKind::Tap));
}

fn talk(one: PortKind, other: PortKind) -> Outcome {
    let subject = Subject::Forebay(one);
    let mut bed = Bed::new(subject)?;
    let hosts = vec![bed.lab.host("one", one)?, bed.lab.host("other", other)?];
    bed.attach(&hosts)?;
    for v6 in [false, true] {
        let ((), counted) = bed.watch(|_| ping_all(&hosts, v6))?;
        counted.no_drops();
        for reverse in [false, true] {
            check_stream(&mut bed, subject, &hosts[0], &hosts[1], v6, reverse)?;
        }
    }
    Ok(())
}
