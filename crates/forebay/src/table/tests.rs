use clap::Parser as _;
use forebay_control::channels::ChannelShow;
use forebay_control::coalesce::{CoalescePort, CoalesceShow};
use forebay_control::fdb::FdbKind;
use forebay_control::flow::{FlowEntry, FlowList, FlowRuns, FlowTable, FlowsRefused, TagAction};
use forebay_control::pool::{PoolPort, PoolThreshold};
use forebay_control::port::{PortAdd, PortSpec, PortState};
use forebay_control::rss::{RssChannel, RssShow};
use forebay_control::rule::RuleAdd;
use forebay_control::stats::{Balance, Lookups, WorkerStats, WorkersShow};
use forebay_control::{DropReason, IfIndex, MacAddr, SwitchControl, Vid};

use super::*;
use crate::testing::MemorySwitch;

/// Two ports, one of which has seen traffic.
fn switch() -> MemorySwitch {
    let switch = MemorySwitch::default();
    let mut trunk = PortSpec::new("veth-with-a-lon");
    trunk.vlan = "trunk:10,20,native:1".parse().unwrap();
    trunk.isolated = true;
    let reply = switch.port_add(PortAdd { ports: vec![PortSpec::new("a"), trunk], wait: false });
    assert_eq!(reply.refused, []);
    let mut counters = PortCounters {
        rx_packets: 1234,
        rx_bytes: 98765,
        tx_packets: 10,
        tx_bytes: 600,
        forwarded_packets: 1200,
        flooded_packets: 30,
        offloaded_packets: 1100,
        ..PortCounters::default()
    };
    counters.drops[DropReason::FloodLimited] = 4;
    switch.count("a", counters);
    switch
}

#[test]
fn ports_are_one_line_each() {
    insta::assert_snapshot!(ports(&switch().port_list()));
}

#[test]
fn a_port_tells_why_it_is_not_up() {
    let mut shown = switch().port_show("a").unwrap();
    (shown.state, shown.ifindex) = (PortState::NetdevMissing, None);
    shown.state_reason = "no netdev `a`; waiting for it".to_owned();
    insta::assert_snapshot!(port(&shown));
}

#[test]
fn statistics_end_with_the_total() {
    insta::assert_snapshot!(stats(&switch().stats()));
}

#[test]
fn the_check_says_whether_packets_went_astray() {
    insta::assert_snapshot!(check(&StatsCheck::new(vec![
        Balance::new("rx", 10, 10),
        Balance::new("tx", 10, 12)
    ])));
    let later = StatsCheck::new(vec![Balance::new("rx", 20, 20), Balance::new("tx", 15, 12)]);
    let earlier = StatsCheck::new(vec![Balance::new("rx", 10, 10), Balance::new("tx", 10, 12)]);
    insta::assert_snapshot!("a_check_under_traffic", check(&later.after(&earlier)));
}

#[test]
fn entries_are_one_line_each() {
    let entry = |number, kind, age_seconds| FdbEntry {
        vlan: Vid::new(number).unwrap(),
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        port: "a".to_owned(),
        kind,
        age_seconds,
    };
    insta::assert_snapshot!(fdb(&[entry(0, FdbKind::Static, 0), entry(4094, FdbKind::Learned, 299)]));
}

fn rule(priority: u16, fields: &str, action: &str) -> RuleAdd {
    let line = format!("forebay flow add --priority {priority} --action {action} {fields}");
    let cli = crate::cli::Cli::try_parse_from(line.split_whitespace()).unwrap();
    let crate::cli::Command::Flow(crate::cli::FlowCommand::Add(args)) = cli.command else {
        panic!("not a rule")
    };
    args.rule()
}

#[test]
fn rules_come_first_then_flows_by_port_the_busiest_first_and_their_table() {
    let flow = |in_port: &str, packets| FlowEntry {
        in_port: in_port.to_owned(),
        stacked: false,
        vlan: None,
        src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        deeper: None,
        action: "output:b".to_owned(),
        tag: TagAction::Keep,
        runs: FlowRuns::Tcx,
        reason: None,
        rule: None,
        packets,
        bytes: packets * 60,
        age_seconds: 90,
        idle_seconds: 1,
    };
    let dropped = FlowEntry {
        vlan: Vid::new(10),
        deeper: Some("ip_proto=6 src=10.0.0.0/8 dport=80-90".to_owned()),
        action: "drop".to_owned(),
        reason: Some("isolated".to_owned()),
        rule: Some(7),
        ..flow("a", 1000)
    };
    let refused = FlowsRefused { over_share: 1, over_rate: 2, table_full: 3, no_slot: 4 };
    let in_user_space = FlowEntry {
        runs: FlowRuns::User,
        tag: TagAction::Set(Vid::new(20).unwrap()),
        reason: Some("the table is full".to_owned()),
        ..flow("b", 5)
    };
    let table = FlowTable {
        entries: 3,
        max_entries: 65536,
        bytes: 6 << 20,
        installed_flows: 40,
        refused,
        invalidated_flows: 30,
        idle_flows: 7,
        ..FlowTable::default()
    };
    let flows = vec![in_user_space, flow("a", 5), dropped];
    let switch = switch();
    for (priority, fields, action) in [
        (1, "", "normal"),
        (100, "", "mirror:gone"),
        (65535, "--in-port a --ip-proto tcp --src 10.0.0.0/8 --dport 80-90", "output:a,veth-with-a-lon"),
    ] {
        switch.flow_add(rule(priority, fields, action)).unwrap();
    }
    let rules = switch.rule_list();
    insta::assert_snapshot!(super::flows(&FlowList { table, flows: flows.clone(), rules }));
    let without = super::flows(&FlowList { table, flows, rules: vec![] });
    assert!(without.starts_with("in-port"), "{without}");
}

#[test]
fn the_pool_counts_its_own_memory_and_the_kernels() {
    let mut shown = switch().pool();
    (shown.bytes_total, shown.kernel_bytes) = (32 << 20, (2 << 20) + 250_000);
    shown.ports = vec![PoolPort {
        name: "a".to_owned(),
        used: 3,
        max: 64,
        threshold: PoolThreshold::Static { bytes: 409_600 },
        reserve: 32,
        limit: 200,
        drops_over_threshold: 7,
        drops_no_frame: 5,
        drops_rx_ring_full: 6,
    }];
    insta::assert_snapshot!(pool(&shown));
}

#[test]
fn the_switch_is_a_list_of_facts() {
    insta::assert_snapshot!(eswitch(&switch().eswitch()));
}

#[test]
fn the_doctor_ends_with_what_to_do() {
    let check = |name: &str, answer, severity, remedy: &str| Check {
        name: name.to_owned(),
        answer,
        severity,
        detail: "seen".to_owned(),
        remedy: Some(remedy.to_owned()).filter(|remedy| !remedy.is_empty()),
    };
    let missing = |since: Option<&str>| Answer::NotSupported {
        since: since.map(str::to_owned),
        why: "refused".to_owned(),
    };
    let unknown = Answer::Unknown { why: "may not look".to_owned() };
    insta::assert_snapshot!(doctor(&DoctorReport::new(vec![
        check("AF_XDP sockets", Answer::Available, Severity::Required, ""),
        check("tcx links", missing(Some("6.6")), Severity::Required, "Boot a newer kernel."),
        check("open files", missing(None), Severity::Degraded, "Raise LimitNOFILE."),
        check("huge pages", missing(None), Severity::Info, "Not worth the trouble."),
        check("veth netdevs", unknown, Severity::Required, "Run as root."),
    ])));
}

#[test]
fn occupancy_is_current_and_max() {
    insta::assert_snapshot!(occupancy(&switch().occupancy_snapshot()));
}

#[test]
fn rings_are_one_line_each() {
    insta::assert_snapshot!(page_pools(&switch().page_pools()));
}

#[test]
fn queues_and_napi_instances_are_a_line_each() {
    let switch = switch();
    insta::assert_snapshot!(netdev_queues(&switch.queue_list(None).expect("they are there")));
    insta::assert_snapshot!(netdev_napis(&switch.napi_list(None).expect("they are there")));
}

#[test]
fn an_estimate_is_its_sums_and_what_they_consist_of() {
    let words = ["forebay", "pool", "estimate", "--ports", "1000", "--cpus", "2"];
    let cli = crate::cli::Cli::try_parse_from(words).unwrap();
    let crate::cli::Command::Pool(crate::cli::PoolCommand::Estimate(args)) = cli.command else {
        panic!("not an estimate")
    };
    insta::assert_snapshot!(estimate(&args.wish().estimate().unwrap()));
}

#[test]
fn workers_tell_what_their_cycles_went_into() {
    let worker = WorkerStats {
        worker: 1,
        cpu: Some(3),
        iterations: 1000,
        busy_iterations: 250,
        busy_cycles: 3_000_000,
        idle_cycles: 1_000_000,
        batches: 400,
        batch_sizes: [100, 0, 0, 200, 0, 0, 100, 0],
        packets: 10_000,
        lookups: Lookups {
            known: 9_000,
            unknown: 600,
            group: 400,
            repeated: 0,
            cached: 7_500,
            classified: 500,
        },
        copies: 10_800,
        departed: 5_400,
        strays: 0,
        bad_descriptors: 0,
        sleeps: 150,
        lingers: 350,
        linger_ns: 250_000_000,
        busy_ns: 500_000_000,
    };
    insta::assert_snapshot!(workers_show(&WorkersShow { elapsed_ns: 2_000_000_000, workers: vec![worker] }));
    let idle = WorkersShow { elapsed_ns: 0, workers: vec![WorkerStats::default()] };
    assert!(!workers_show(&idle).contains("NaN"), "{}", workers_show(&idle));
}

/// A channel of a group. The group has two members, and the second one is missing.
fn channel(number: u32) -> ChannelShow {
    let is_there = number.is_multiple_of(2);
    ChannelShow {
        port: "up\"link".to_owned(),
        channel: number,
        member: number % 2,
        netdev: is_there.then(|| "eth0".to_owned()),
        ifindex: is_there.then_some(IfIndex(7)),
        pci: is_there.then(|| "0000:3b:00.0".parse().expect("it is an address")),
        node: is_there.then_some(0),
        queue: number / 2,
        received_packets: is_there.then_some(1 << 40),
        napi: is_there.then_some(8193),
        irq: is_there.then_some(40 + number),
        processors: is_there.then(|| number.to_string()),
        xps_cpus: is_there.then(|| "3".to_owned()),
        workers: vec![0],
        problems: if is_there { vec!["/proc/irq/40: Input/output error".to_owned()] } else { Vec::new() },
    }
}

#[test]
fn a_channel_is_a_line_and_what_could_not_be_set_comes_last() {
    insta::assert_snapshot!(channels(&[channel(0), channel(1), channel(2)]));
}

#[test]
fn rss_is_a_line_for_each_channel_and_what_went_wrong_comes_last() {
    let channel = |channel, slots| RssChannel { channel, worker: channel % 2, slots };
    let port = RssShow {
        name: "uplink".to_owned(),
        channels: vec![channel(0, 96), channel(1, 32)],
        steered_packets: 1000,
        away_packets: 20,
        across_packets: 5,
        slow_path_packets: 1200,
        far_packets: 600,
        ..RssShow::default()
    };
    insta::assert_snapshot!(rss(&[port, RssShow { name: "waits".to_owned(), ..RssShow::default() }]));
}

#[test]
fn a_picture_of_channels_has_members_by_node() {
    insta::assert_snapshot!(channels_dot(&[channel(0), channel(1)]));
}

#[test]
fn moderation_is_a_line_for_each_queue_and_so_is_what_it_did_meanwhile() {
    let queue = crate::testing::coalesce_queue();
    let shown = |queue| CoalesceShow {
        ports: vec![CoalescePort { name: "vm1".to_owned(), queues: vec![queue], ..Default::default() }],
    };
    let mut later = queue.clone();
    (later.packets, later.turns, later.interrupts, later.moves) = (2010, 404, 101, 3);
    let (before, later) = (shown(queue), shown(later));
    let rates = coalesce_rates(&before, &later, std::time::Duration::from_secs(2));
    insta::assert_snapshot!(format!("{}\n{rates}", coalesce(&before)));
}

#[test]
fn a_moderated_netdev_is_a_line_for_each_direction_that_takes_limits() {
    let shown = |netdev| {
        let port = CoalescePort { name: "uplink".to_owned(), netdevs: vec![netdev], ..Default::default() };
        CoalesceShow { ports: vec![port] }
    };
    let before = crate::testing::coalesce_netdev();
    let mut later = before.clone();
    (later.rx.packets, later.rx.interrupts, later.rx.moves) = (2010, Some(101), 3);
    let (before, later) = (shown(before), shown(later));
    let rates = coalesce_rates(&before, &later, std::time::Duration::from_secs(2));
    let nothing =
        shown(forebay_control::coalesce::CoalesceNetdev { netdev: "veth0".to_owned(), ..Default::default() });
    insta::assert_snapshot!(format!("{}\n{rates}\n{}", coalesce(&before), coalesce(&nothing)));
}
