//! The daemon's ends and new starts: by `kill -9` under traffic, by its own death, and by SIGTERM at the end.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_testbed::dut::{Forebay, ForebayOptions};
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::{Result, wait};

use super::census::{self, Bpf};
use super::churn::Churn;
use super::ledger::Ledger;
use super::world::{STEADY, World};

/// The kernel lets sockets and links of a killed process go in its own time.
const GONE_LIMIT: Duration = Duration::from_secs(5);
/// Until traffic passes again after all ports are up, amid everybody else's.
const WORKS_LIMIT: Duration = Duration::from_secs(15);

/// Kills the daemon without notice, looks at what is left, starts another with all ports and pings through it.
///
/// # Errors
/// When there is no new daemon.
pub(super) fn kill_and_start_again(world: &mut World) -> Result<()> {
    println!("\n[{:6.1} s] kill -9 of the daemon, under traffic", world.ledger.seconds());
    let held = census::holdings(world.switch.daemon().pid()).bpf;
    let killed = world.switch.kill();
    world.ledger.expect("kill -9", killed);
    check_gone(world, &held);
    start(world)?;
    check_works(world);
    Ok(())
}

/// Starts a new daemon if the last one died by itself, which is a finding.
///
/// # Errors
/// When there is no new daemon.
pub(super) fn ensure_running(world: &mut World, churn: &mut Churn) -> Result<()> {
    let Ok(status) = world.switch.daemon().wait(Duration::ZERO) else { return Ok(()) };
    world.ledger.note(format_args!("the daemon died by itself: {status}"));
    start(world)?;
    churn.forget_absent();
    Ok(())
}

fn start(world: &mut World) -> Result<()> {
    world.switch = Forebay::start(&world.lab, ForebayOptions::default())?;
    let added = world.add_all();
    world.ledger.expect("adding all ports after a restart", added);
    world.ledger.expect("after a restart", world.wait_all_up());
    println!("[{:6.1} s] started again, all ports added", world.ledger.seconds());
    Ok(())
}

/// What the kernel held for the daemon went with it.
fn check_gone(world: &World, held: &Bpf) {
    let is_gone = || {
        let alive = census::bpf_alive().map(|alive| held.common(&alive));
        alive.is_ok_and(|left| left == Bpf::default())
            && foreign_netdevs(world).is_ok_and(|left| left.is_empty())
    };
    if wait::until("the kernel side to go", GONE_LIMIT, is_gone).is_err() {
        let left = census::bpf_alive().map(|alive| held.common(&alive));
        let netdevs = foreign_netdevs(world);
        world.ledger.note(format_args!("left by a daemon that is gone: {left:?}, netdevs {netdevs:?}"));
    }
}

/// Netdevs in the switch's namespace that are no host's.
fn foreign_netdevs(world: &World) -> Result<BTreeSet<String>> {
    let mut netdevs = census::netdevs(world.lab.switch())?;
    let known: BTreeSet<String> = (0..world.hosts.len()).map(|index| world.name(index)).collect();
    netdevs.retain(|netdev| netdev != "lo" && !known.contains(netdev));
    Ok(netdevs)
}

/// Steady hosts reach each other, though others disturb.
fn check_works(world: &World) {
    for index in 0..STEADY {
        let to = world.hosts.get((index + 1) % STEADY).v4();
        let from = world.hosts.get(index);
        let answered = || Ping::new(to).from(&from).is_ok_and(|report| report.received > 0);
        let what = format!("an answer from {to} to {} after a restart", from.name());
        world.ledger.expect("traffic", wait::until(&what, WORKS_LIMIT, answered));
    }
}

/// Ends the last daemon as a service manager does.
pub(super) fn end(world: &mut World) {
    let held = census::holdings(world.switch.daemon().pid()).bpf;
    let stopped = world.switch.stop();
    if let Some(status) = world.ledger.expect("SIGTERM", stopped)
        && !status.success()
    {
        world.ledger.note(format_args!("after SIGTERM the daemon ended with {status}"));
    }
    check_gone(world, &held);
}

/// After everything was dropped, no namespace of this process is left.
pub(super) fn check_nothing_left(ledger: &Ledger) {
    let left = census::own_namespaces();
    if left > 0 {
        ledger.note(format_args!("{left} namespaces are left after the end"));
    }
}
