//! System scenarios: the built program between real hosts, every scenario over every port kind.
//!
//! A scenario is a function of its subject: Forebay with veth-tcx, veth-xdp, tap or vhost-user ports, or, where only
//! the traffic's own result counts, the kernel's bridge, which shows that the scenario asks for nothing unusual. The oracle is the traffic's own result and *which counters moved and that no other did*.
//!
//! Run one with `cargo test -p forebay-tests --test system -- NAME`, one subject with its name (`veth-tcx`,
//! `veth-xdp`, `tap`, `vhost-user`, `bridge`). `FOREBAY_BIN` names the program to test; it is built with cargo otherwise.
#![allow(unreachable_pub, reason = "a test binary has no outside")]

mod bed;
mod connectivity;
mod faults;
mod fdb;
mod flows;
mod front_ends;
mod groups;
mod handover;
mod harness;
mod hints;
mod hostile;
mod loops;
mod machine_offloads;
mod machine_services;
mod machines;
mod meanwhile;
mod mixed;
mod modes;
mod mtu;
mod netdev;
mod netdev_moderation;
mod nodes;
mod observe;
mod oversized;
mod pool;
mod rules;
mod scale;
mod services;
mod steering;
mod transmit;
mod unit;
mod vlan;
mod waiting;
mod watchdog;
mod wire;

use harness::Suite;

fn main() {
    front_ends::flood_if_asked();
    let mut suite = Suite::default();
    connectivity::register(&mut suite);
    mixed::register(&mut suite);
    modes::register(&mut suite);
    mtu::register(&mut suite);
    vlan::register(&mut suite);
    fdb::register(&mut suite);
    services::register(&mut suite);
    hints::register(&mut suite);
    flows::register(&mut suite);
    steering::register(&mut suite);
    groups::register(&mut suite);
    machine_offloads::register(&mut suite);
    machine_services::register(&mut suite);
    machines::register(&mut suite);
    front_ends::register(&mut suite);
    nodes::register(&mut suite);
    handover::register(&mut suite);
    unit::register(&mut suite);
    transmit::register(&mut suite);
    hostile::register(&mut suite);
    loops::register(&mut suite);
    rules::register(&mut suite);
    pool::register(&mut suite);
    observe::register(&mut suite);
    oversized::register(&mut suite);
    netdev::register(&mut suite);
    netdev_moderation::register(&mut suite);
    waiting::register(&mut suite);
    scale::register(&mut suite);
    meanwhile::register(&mut suite);
    watchdog::register(&mut suite);
    faults::register(&mut suite);
    suite.run();
}
