//! What takes long holds up neither readers nor others' changes: what they see in the middle of it is judged, not the time.

use std::time::Duration;

use forebay_control::pool::PoolShow;
use forebay_control::port::{Attach, PortSpec};
use forebay_testbed::dut::Client;
use forebay_testbed::systemd::Systemd;
use forebay_testbed::{Lab, wait};

use crate::harness::{Outcome, Suite, ensure_program};

/// Ports whose programs take seconds to detach where grace periods cannot be shortened, as in the unit.
const HUNDREDS: usize = 300;
const LIMIT: Duration = Duration::from_secs(60);
const FRAMES: [u64; 2] = [4096, 16384];

pub fn register(suite: &mut Suite) {
    suite.heavy_once("a_port_is_added_and_shown_while_hundreds_are_added_and_deleted", ports_come_and_go);
    suite.heavy_once("the_pool_is_shown_while_its_size_changes", pool_is_resized);
}

fn names(count: usize) -> Vec<String> {
    (1..=count).map(|number| format!("p{number}")).collect()
}

/// A client of a service with these lines of configuration, beside one port more than `HUNDREDS`.
fn with_service(config: &str, scenario: impl FnOnce(&Client) -> Outcome) -> Outcome {
    ensure_program()?;
    let lab = Lab::new("meanwhile")?;
    let _peers = lab.bulk_veths(HUNDREDS + 1)?;
    let systemd = Systemd::boot(&lab, config)?;
    systemd.systemctl(&["start", "forebay"])?;
    let client = systemd.client()?;
    scenario(&client)?;
    let check = client.stats_check()?;
    assert!(check.balanced, "{check:?}");
    Ok(systemd.systemctl(&["stop", "forebay"]).map(drop)?)
}

/// Runs `request`, and has `p301` added or deleted when some of its ports are done and not all.
fn in_the_middle(client: &Client, request: &[&str], other: &[&str]) -> Outcome {
    let hundreds = names(HUNDREDS);
    let all: Vec<&str> = request.iter().copied().chain(hundreds.iter().map(String::as_str)).collect();
    let count = || client.ports().map_or(0, |ports| ports.iter().filter(|port| port.name != "p301").count());
    let is_half_done = |count: usize| 0 < count && count < HUNDREDS;
    std::thread::scope(|scope| {
        let long = scope.spawn(|| client.ok(&all).map(drop));
        wait::until("a list with some of the ports", LIMIT, || is_half_done(count()))?;
        client.ok(other)?;
        let there = count();
        assert!(is_half_done(there), "{other:?} waited for {request:?}: {there} ports are there");
        long.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(())
    })
}

fn ports_come_and_go() -> Outcome {
    with_service("", |client| {
        in_the_middle(client, &["port", "add"], &["port", "add", "p301"])?;
        assert_eq!(client.ports()?.len(), HUNDREDS + 1);
        in_the_middle(client, &["port", "del"], &["port", "del", "p301"])?;
        assert_eq!(client.ports()?.len(), 0);
        Ok(())
    })
}

fn pool_is_resized() -> Outcome {
    let config = format!("[pool]\nframes = {}\n", FRAMES[0]);
    with_service(&config, |client| {
        let hundreds = names(HUNDREDS);
        let hundreds: Vec<&str> = hundreds.iter().map(String::as_str).collect();
        client.add(&PortSpec { attach: Attach::Tcx, ..PortSpec::new("any") }, &hundreds)?;
        let (api, frames) = (client.api(), FRAMES[1].to_string());
        let total = || api.get::<PoolShow>("/v1/pool").map_or(0, |pool| pool.frames_total);
        std::thread::scope(|scope| {
            let long = scope.spawn(|| client.ok(&["pool", "set", "--frames", &frames]).map(drop));
            wait::until("both pools to be shown", LIMIT, || total() == FRAMES[0] + FRAMES[1])?;
            long.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        assert_eq!(total(), FRAMES[1]);
        Ok(())
    })
}
