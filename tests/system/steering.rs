//! Which worker takes packets of a group: the one where they leave, by a table of hashes, or by a rule.

use std::time::Duration;

use forebay_control::flow::FlowList;
use forebay_control::port::PortState;
use forebay_control::rss::RssShow;
use forebay_control::rule::RuleState;
use forebay_control::stats::WorkersShow;
use forebay_testbed::dut::{Client, ForebayOptions};
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::programs::udp;
use forebay_testbed::{Host, LabError, PortKind, Result, wait};

use crate::groups::{GROUP, Scene, plug_in};
use crate::harness::{Outcome, Subject, Suite, ensure_program};

const DATAGRAMS: u32 = 200;
/// Of other packets that come at the same time there are fewer.
const FEW: u64 = DATAGRAMS as u64 / 2;
const UNDER_THE_RULE: u16 = 5007;
const NOT_UNDER_IT: u16 = 5008;
/// A rule wakes up a moment after its port, once the channels are laid out.
const RULE_LIMIT: Duration = Duration::from_secs(5);

pub fn register(suite: &mut Suite) {
    suite.on_forebay("packets_of_a_group_go_to_the_worker_where_they_leave", steered);
    suite.once("packets_under_a_rule_go_to_the_worker_of_its_channel_and_others_do_not", led);
    suite.once("a_rule_that_names_no_channel_of_its_port_is_refused", refused);
}

/// All packets come to worker 0 first. Hosts are worker 0's and worker 1's in turn; those with XDP are nobody's.
fn steered(subject: Subject) -> Outcome {
    const PINGS: u32 = 5;
    ensure_program()?;
    let two_workers = ForebayOptions::with_config("[switch]\nworkers = 2\n");
    let scene = Scene::with(subject.kind(), 2, "strict", |_| Ok(two_workers))?;
    let client = scene.switches[0].client();
    client.ok(&["eswitch", "set", "offload", "off"])?;
    let ping = |count| {
        scene.near.iter().take(2).try_for_each(|host| {
            let report = Ping::new(host.v4()).count(count).from(&scene.far[0])?;
            assert!(report.is_complete() && report.duplicates == 0, "{}: {report:?}", host.name());
            Ok::<_, LabError>(())
        })
    };
    let counted = || -> Result<(u64, u64)> {
        let shown: Vec<RssShow> = client.json(&["rss", "show", GROUP])?;
        Ok((shown[0].steered_packets, shown[0].away_packets))
    };
    client.ok(&["rss", "set", GROUP, "--steering", "hash", "--equal", "1"])?;
    let shown: Vec<RssShow> = client.json(&["rss", "show"])?;
    assert_eq!(shown[0].channels.iter().map(|channel| channel.slots).collect::<Vec<_>>(), [128, 0, 0, 0]);
    ping(PINGS)?;
    let by_hash = counted()?;
    if subject.kind() == PortKind::VethXdp {
        assert_eq!(by_hash, (0, 0));
        return Ok(());
    }
    assert!(by_hash.1 >= PINGS.into() && by_hash.0 >= by_hash.1 + u64::from(PINGS), "{by_hash:?}");
    client.ok(&["rss", "set", GROUP, "--steering", "output"])?;
    ping(1)?;
    let before = counted()?;
    ping(PINGS)?;
    let after = counted()?;
    assert!(after.0 >= before.0 + 2 * u64::from(PINGS), "{before:?} {after:?}");
    assert_eq!(after.1, before.1, "the worker of each output has its packets");
    assert!(scene.is_balanced()?);
    Ok(())
}

/// How many packets each of two workers has had of datagrams to this port of the host.
fn workers_of(client: &Client, from: &Host, to: &Host, port: u16) -> Result<[u64; 2]> {
    let send = || {
        let received = udp::transfer_to(from, to, port, DATAGRAMS)?;
        assert_eq!(received, DATAGRAMS as usize, "to port {port}");
        Ok::<_, LabError>(())
    };
    let received = || client.json::<WorkersShow>(&["stats", "--workers"]);
    // The first ones find out where the others go.
    send()?;
    let before = received()?;
    send()?;
    let since = received()?.since(&before);
    Ok([0, 1].map(|worker| since.workers[worker].packets))
}

/// Worker 0 serves the host, and has all that leaves there but what a rule leads to worker 1.
fn led() -> Outcome {
    ensure_program()?;
    let two_workers = ForebayOptions::with_config("[switch]\nworkers = 2\n");
    let scene = Scene::with(PortKind::VethTcx, 2, "strict", |_| Ok(two_workers))?;
    let client = scene.switches[0].client();
    client.ok(&["eswitch", "set", "offload", "off"])?;
    let shown: Vec<RssShow> = client.json(&["rss", "show", GROUP])?;
    let channel = shown[0].channels.iter().find(|channel| channel.worker == 1);
    let channel = channel.expect("each worker has channels").channel;
    let workers_of = |port| workers_of(client, &scene.far[0], &scene.near[0], port);
    let all_at = |worker: usize, port: u16, when: &str| -> Result<()> {
        let counts = workers_of(port)?;
        let all = counts[worker] >= DATAGRAMS.into() && counts[1 - worker] < FEW;
        assert!(all, "port {port}, {when}: {counts:?}");
        Ok(())
    };
    all_at(0, UNDER_THE_RULE, "without a rule")?;
    let (action, port) = (format!("channel:{channel}"), UNDER_THE_RULE.to_string());
    let rule = ["flow", "add", "--priority", "5", "--in-port", GROUP, "--ip-proto", "udp", "--dport", &port];
    client.ok(&[&rule[..], &["--action", &action]].concat())?;
    all_at(1, UNDER_THE_RULE, "with the rule")?;
    all_at(0, NOT_UNDER_IT, "with the rule")?;
    scene.ping_all()?;
    assert!(scene.is_balanced()?);

    let rule = || client.json::<FlowList>(&["flow", "list"]).map(|mut list| list.rules.remove(0));
    assert!(rule()?.packets >= DATAGRAMS.into());
    // It sleeps while nobody knows the channels, and wakes up with them.
    scene.unplug(0)?;
    scene.wait_for(PortState::Waiting)?;
    let is = |state| wait::until("the rule", RULE_LIMIT, || rule().is_ok_and(|rule| rule.state == state));
    is(RuleState::Asleep)?;
    plug_in(&scene.labs, 0)?;
    scene.wait_for(PortState::Up)?;
    is(RuleState::Active)?;
    client.ok(&["flow", "del", &rule()?.id.to_string()])?;
    scene.ping_all()?;
    all_at(0, UNDER_THE_RULE, "without the rule")?;
    Ok(())
}

fn refused() -> Outcome {
    ensure_program()?;
    let scene = Scene::new(PortKind::VethTcx, 2, "strict")?;
    let client = scene.switches[0].client();
    let refused = |words: &[&str], parts: &[&str]| {
        let said = client.call(&[&["flow", "add", "--priority", "5"], words].concat())?;
        assert!(!said.status.success(), "{words:?}: {}", said.stdout);
        for part in parts {
            assert!(said.stderr.contains(part), "{words:?}: {}", said.stderr);
        }
        Ok::<_, LabError>(())
    };
    let beyond = ["value: channel:4", "limit: channel:0 to channel:3", "forebay channels show uplink"];
    refused(&["--in-port", GROUP, "--action", "channel:4"], &beyond)?;
    refused(&["--in-port", scene.near[0].name(), "--action", "channel:0"], &["has one netdev", "--group"])?;
    refused(&["--action", "channel:0"], &["value: channel:0", "add --in-port"])?;
    refused(&["--in-port", GROUP, "--action", "channel:128"], &["`128` is not a number from 0 to 127"])?;
    client.ok(&["flow", "add", "--priority", "5", "--in-port", GROUP, "--action", "channel:3"])?;
    Ok(())
}
