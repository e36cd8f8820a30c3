//! What was sent, what arrived, and what should not have.

use forebay_control::counters::PortCounters;

use super::super::{Report, Table};
use super::changer::Made;
use super::oracle::{Oracle, Violation};

/// Puts everything into the report.
pub(super) fn fill(report: &mut Report, made: &Made, oracle: &Oracle, sent: u64, carried: &PortCounters) {
    report.table(traffic(oracle, sent, carried));
    report.table(changes(made));
    report.table(violations(oracle));
    let count: u64 = Violation::ALL.iter().map(|violation| oracle.count(*violation)).sum();
    if count > 0 {
        report.broken(format!("{count} packets arrived where they must not"));
        oracle.examples.iter().for_each(|example| report.note(example.clone()));
    }
    if oracle.direct == 0 || carried.offloaded_packets == 0 {
        report.broken("nothing was carried by the kernel, or nothing arrived: nothing is proved");
    }
}

fn traffic(oracle: &Oracle, sent: u64, carried: &PortCounters) -> Table {
    let mut table = Table::new("Packets", ["what", "packets"]);
    let share = 100.0 * carried.offloaded_packets as f64 / (carried.rx_packets as f64).max(1.0);
    table.row(["sent by hosts".into(), sent.into()]);
    table.row(["received by the switch".into(), carried.rx_packets.into()]);
    table.row(["of these decided by the kernel".into(), carried.offloaded_packets.into()]);
    table.row(["the same in %".into(), share.into()]);
    table.row(["received by hosts".into(), oracle.received().into()]);
    table.row(["of these by the host of their station's port".into(), oracle.direct.into()]);
    table.row(["of these flooded, for an unknown station or for everybody".into(), oracle.flooded.into()]);
    table
}

fn changes(made: &Made) -> Table {
    let mut table = Table::new("Changes", ["what", "made"]);
    table.row(["stations moved to another port".into(), made.moves.into()]);
    table.row(["ports isolated, or no longer".into(), made.isolations.into()]);
    table.row(["ports put into another VLAN".into(), made.vlans.into()]);
    table.row(["ports deleted and added again".into(), made.ports.into()]);
    table
}

fn violations(oracle: &Oracle) -> Table {
    let mut table =
        Table::new("Packets received", ["where they must not be", "asked", "measured", "verdict"]);
    for violation in Violation::ALL {
        let count = oracle.count(violation);
        let verdict = if count == 0 { "holds" } else { "DOES NOT HOLD" };
        table.row([violation.name().into(), 0u32.into(), count.into(), verdict.into()]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::super::numbered::Stamp;
    use super::super::oracle::{History, Port, State, Station};
    use super::*;

    fn text(at: u16) -> String {
        let ports = vec![Port { exists: true, vlan: 10, isolated: false }; 3];
        let stations = [0, 1, 2].map(|port| Station { port, is_known: true });
        let history = History::new(State { ports, stations: stations.into() });
        let mut oracle = Oracle::default();
        for at in [1, at] {
            let stamp = Stamp { number: 1, changes_done: 0, vlan: 10, port: 0, from: 0, to: 1 };
            oracle.hear(&history, at, &stamp.frame(), None);
        }
        let mut report = Report::begin("misdelivery", "t", "a");
        let carried = PortCounters { rx_packets: 2, offloaded_packets: 1, ..PortCounters::default() };
        fill(&mut report, &Made::default(), &oracle, 2, &carried);
        report.text()
    }

    #[test]
    fn one_packet_astray_breaks_the_report() {
        assert!(!text(1).contains("BROKEN"), "{}", text(1));
        let broken = text(2);
        assert!(broken.contains("BROKEN: 1 packets") && broken.contains("received at port 2"), "{broken}");
    }
}
