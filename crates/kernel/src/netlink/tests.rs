//! The real kernel in a namespace of the test's own. Each test has its own namespaces, so they run side by side
//! and leave nothing: the namespaces end with the test's values, also when it fails.

use std::collections::{BTreeSet, HashSet};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use forebay_control::IfIndex;
use forebay_control::coalesce::{CoalesceDirection, CoalesceValues};
use netlink_bindings::rt_link::{self, Ifinfomsg};

use super::coalesce::{Coalescing, Deferral, coalescing, set_coalescing, set_deferral};
use super::link::{self, create_veth};
use super::netdev_genl::{napis, xdp_features};
use super::offload::{features, set_merges, set_tx_offloads};
use super::*;

/// Much longer than anything here takes; reached only when the awaited thing never happens.
const DEADLINE: Duration = Duration::from_secs(20);

/// A namespace to test in, or `None` after saying why not: only for lack of privilege.
fn netns() -> Option<PrivateNetns> {
    match PrivateNetns::new("fb-test") {
        Ok(netns) => Some(netns),
        Err(error) if error.errno() == Some(libc::EPERM) && !is_root() => {
            println!("SKIP: no CAP_SYS_ADMIN to make a network namespace");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn is_root() -> bool {
    caps::has_cap(None, caps::CapSet::Effective, caps::Capability::CAP_SYS_ADMIN).unwrap()
}

/// Runs `test` inside a namespace of its own.
fn inside(test: impl FnOnce() + Send + 'static) {
    if let Some(netns) = netns() {
        netns.run(test);
    }
}

fn veth(name: &str, peer: &str) -> (Link, Link) {
    create_veth(name, peer, None, 1, 1500).unwrap();
    (link::by_name(name).unwrap(), link::by_name(peer).unwrap())
}

/// Takes events until `want` says yes to one, and returns those that came before it as well.
fn events_until(monitor: &mut LinkMonitor, want: impl Fn(&LinkEvent) -> bool) -> Vec<LinkEvent> {
    let deadline = Instant::now() + DEADLINE;
    let mut seen = Vec::new();
    while Instant::now() < deadline {
        match monitor.next_event().unwrap() {
            Some(event) => {
                seen.push(event);
                if want(seen.last().unwrap()) {
                    return seen;
                }
            }
            None => sys::wait_readable(monitor.as_fd()),
        }
    }
    panic!("the awaited event never came; seen: {seen:#?}");
}

fn is_new(event: &LinkEvent, ifindex: IfIndex, is_as_wanted: impl Fn(&Link) -> bool) -> bool {
    matches!(event, LinkEvent::New(link) if link.ifindex == ifindex && is_as_wanted(link))
}

fn is_gone(event: &LinkEvent, gone: IfIndex, was_moved: bool) -> bool {
    matches!(event, LinkEvent::Del { ifindex, moved, .. } if *ifindex == gone && *moved == was_moved)
}

#[test]
fn a_new_veth_pair_is_described_as_it_was_asked_for() {
    inside(|| {
        create_veth("fb-a", "fb-b", None, 3, 1400).unwrap();
        let (a, b) = (link::by_name("fb-a").unwrap(), link::by_name("fb-b").unwrap());
        for end in [&a, &b] {
            assert_eq!(end.kind.as_deref(), Some("veth"));
            assert_eq!((end.mtu, end.num_rx_queues, end.num_tx_queues), (1400, 3, 3));
            assert!(!end.admin_up && !end.running && !end.is_loopback && !end.has_parent_device());
            assert_eq!((end.xdp, end.master, end.peer_netnsid), (None, None, None));
            assert!(end.mac.is_some_and(|mac| mac != [0; 6]));
        }
        assert_eq!((a.peer_ifindex, b.peer_ifindex), (Some(b.ifindex), Some(a.ifindex)));
        assert_eq!(link::by_index(a.ifindex).unwrap(), a);
        assert!(link::by_name("lo").unwrap().is_loopback);
    });
}

#[test]
fn a_veth_generates_no_ipv6_address_even_where_ipv6_is_on() {
    inside(|| {
        let conf = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
        if !std::fs::exists(conf).unwrap() {
            println!("SKIP: IPv6");
            return;
        }
        std::fs::write(conf, "0").unwrap();
        let (a, b) = veth("fb-a", "fb-b");
        link::set_up(a.ifindex, true).unwrap();
        link::set_up(b.ifindex, true).unwrap();
        let addresses = std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap();
        assert_eq!(addresses, "", "an address of the kernel's own making");
        assert_eq!(
            std::fs::read_to_string("/proc/sys/net/ipv6/conf/fb-a/addr_gen_mode").unwrap().trim(),
            "1"
        );
    });
}

#[test]
fn a_peer_is_made_in_the_other_namespace_and_known_to_be_there() {
    let (Some(here), Some(there)) = (netns(), netns()) else { return };
    let fd = there.fd().try_clone_to_owned().unwrap();
    let a = here.run(move || {
        create_veth("fb-a", "fb-b", Some(fd.as_fd()), 2, 9000).unwrap();
        assert!(matches!(link::by_name("fb-b"), Err(NetlinkError::NoSuchNetdev { .. })));
        link::by_name("fb-a").unwrap()
    });
    let b = there.run(|| link::by_name("fb-b").unwrap());
    assert_eq!((a.mtu, b.mtu, b.num_rx_queues), (9000, 9000, 2));
    assert_eq!((a.peer_ifindex, b.peer_ifindex), (Some(b.ifindex), Some(a.ifindex)));
    assert!(a.peer_netnsid.is_some() && b.peer_netnsid.is_some());
}

#[test]
fn whatever_happens_to_a_netdev_is_heard_of() {
    let (Some(here), Some(there)) = (netns(), netns()) else { return };
    let away = there.fd().try_clone_to_owned().unwrap();
    here.run(move || {
        let mut monitor = LinkMonitor::open().unwrap();
        assert_eq!(monitor.next_event().unwrap(), None);
        let (a, b) = veth("fb-a", "fb-b");
        events_until(&mut monitor, |event| is_new(event, a.ifindex, |link| link.name == "fb-a"));

        link::set_up(a.ifindex, true).unwrap();
        link::set_up(b.ifindex, true).unwrap();
        events_until(&mut monitor, |event| {
            is_new(event, a.ifindex, |link| link.admin_up && link.running && link.carrier)
        });

        link::set_mtu(a.ifindex, 1300).unwrap();
        events_until(&mut monitor, |event| is_new(event, a.ifindex, |link| link.mtu == 1300));

        link::set_up(a.ifindex, false).unwrap();
        events_until(&mut monitor, |event| is_new(event, a.ifindex, |link| !link.admin_up));

        link::rename(a.ifindex, "fb-renamed").unwrap();
        events_until(&mut monitor, |event| is_new(event, a.ifindex, |link| link.name == "fb-renamed"));

        link::move_to_netns(b.ifindex, away.as_fd()).unwrap();
        let seen = events_until(&mut monitor, |event| is_gone(event, b.ifindex, true));
        assert!(!seen.contains(&LinkEvent::Overrun));

        link::delete(a.ifindex).unwrap();
        let seen = events_until(&mut monitor, |event| is_gone(event, a.ifindex, false));
        assert!(matches!(seen.last(), Some(LinkEvent::Del { name, .. }) if name == "fb-renamed"));
    });
    assert!(there.run(|| link::by_name("fb-b")).is_err(), "a veth's ends go together");
}

#[test]
fn a_bridge_port_that_leaves_its_bridge_is_not_taken_for_deleted() {
    inside(|| {
        let (a, _) = veth("fb-a", "fb-b");
        let bridge = add_bridge("fb-br");
        set_master(&a, bridge.ifindex);
        assert_eq!(link::by_index(a.ifindex).unwrap().master, Some(bridge.ifindex));
        let mut monitor = LinkMonitor::open().unwrap();
        set_master(&a, IfIndex(0));
        link::rename(a.ifindex, "fb-last").unwrap();
        let seen =
            events_until(&mut monitor, |event| is_new(event, a.ifindex, |link| link.name == "fb-last"));
        assert!(!seen.iter().any(|event| matches!(event, LinkEvent::Del { .. })), "{seen:#?}");
    });
}

fn add_bridge(name: &str) -> Link {
    let mut request = rt_link::Request::new().set_create().set_excl().op_newlink_do(&Ifinfomsg::new());
    drop(request.encode().push_ifname_bytes(name.as_bytes()).nested_linkinfo().push_kind(c"bridge"));
    socket::command(&request).unwrap();
    link::by_name(name).unwrap()
}

fn set_master(port: &Link, master: IfIndex) {
    let header = Ifinfomsg { ifi_index: port.ifindex.0 as i32, ..Ifinfomsg::new() };
    let mut request = rt_link::Request::new().op_setlink_do(&header);
    drop(request.encode().push_master(master.0));
    socket::command(&request).unwrap();
}

#[test]
fn a_monitor_that_was_not_read_in_time_says_so_and_goes_on() {
    inside(|| {
        let (a, _) = veth("fb-a", "fb-b");
        let mut monitor = LinkMonitor::open_with_buffer(4096).unwrap();
        for round in 0..200 {
            link::set_mtu(a.ifindex, 1000 + round).unwrap();
        }
        events_until(&mut monitor, |event| *event == LinkEvent::Overrun);
        while monitor.next_event().unwrap().is_some() {}
        link::rename(a.ifindex, "fb-after").unwrap();
        events_until(&mut monitor, |event| is_new(event, a.ifindex, |link| link.name == "fb-after"));
    });
}

#[test]
fn a_veth_tells_programs_hash_and_vlan_tag() {
    inside(|| {
        let (a, _) = veth("fb-a", "fb-b");
        let features = xdp_features(a.ifindex).unwrap();
        assert!(features.basic && features.redirect && features.rx_sg, "{features:?}");
        assert!(features.rx_metadata.hash && features.rx_metadata.vlan_tag, "{features:?}");
        assert!(!features.xsk_zerocopy && !features.hw_offload, "{features:?}");
        assert!(matches!(xdp_features(IfIndex(0x7fff_fff0)), Err(NetlinkError::NoSuchNetdev { .. })));
    });
}

#[test]
fn offloads_that_were_switched_off_are_off_and_vlan_insertion_stays_on() {
    inside(|| {
        veth("fb-a", "fb-b");
        let before = features("fb-a").unwrap();
        for name in
            ["tx-tcp-segmentation", "tx-checksum-ip-generic", "tx-scatter-gather", "tx-vlan-hw-insert"]
        {
            assert!(before.active.contains(name), "a new veth lacks {name}: {before:?}");
        }
        set_tx_offloads("fb-a", false).unwrap();
        let off = features("fb-a").unwrap();
        assert_eq!(off.active_tx_offloads().count(), 0, "{off:?}");
        assert!(
            off.active.contains("tx-vlan-hw-insert") && off.active.contains("tx-vlan-stag-hw-insert"),
            "{off:?}"
        );
        assert!(
            before.active.iter().filter(|name| name.starts_with("rx-")).all(|name| off.active.contains(name))
        );
        assert_eq!(features("fb-b").unwrap().active, before.active, "the peer was touched");
        set_tx_offloads("fb-a", true).unwrap();
        assert!(features("fb-a").unwrap().active.is_superset(&before.active));
        assert!(matches!(features("fb-none"), Err(NetlinkError::NoSuchNetdev { .. })));
    });
}

#[test]
fn a_thousand_netdevs_are_listed_by_one_dump() {
    inside(|| {
        for pair in 0..500 {
            create_veth(&format!("fb-a{pair}"), &format!("fb-b{pair}"), None, 1, 1500).unwrap();
        }
        let links = link::list().unwrap();
        let names: HashSet<_> = links.iter().map(|link| link.name.as_str()).collect();
        assert_eq!((links.len(), names.len()), (1001, 1001));
        assert!((0..500).all(|pair| names.contains(format!("fb-b{pair}").as_str())));
        assert_eq!(links.iter().filter(|link| link.kind.as_deref() == Some("veth")).count(), 1000);
    });
}

#[test]
fn a_refused_change_says_which_netdev_and_why() {
    inside(|| {
        let (a, _) = veth("fb-a", "fb-b");
        let taken = create_veth("fb-a", "fb-c", None, 1, 1500).unwrap_err();
        assert_eq!(taken.errno(), Some(libc::EEXIST));
        assert!(taken.to_string().contains("fb-a"), "{taken}");
        assert!(link::by_name("fb-c").is_err(), "half a pair was left");
        let small = link::set_mtu(a.ifindex, 67).unwrap_err();
        assert!(matches!(&small, NetlinkError::Refused { hint, .. } if hint.contains("mtu")), "{small}");
        assert!(matches!(link::set_up(IfIndex(0x7fff_fff0), true), Err(NetlinkError::NoSuchNetdev { .. })));
    });
}

#[test]
fn a_private_namespace_ends_with_its_owner_and_survives_a_panicking_job() {
    let Some(netns) = netns() else { return };
    let inode = |netns: &PrivateNetns| netns.run(|| std::fs::read_link("/proc/thread-self/ns/net").unwrap());
    let mine = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    assert_ne!(inode(&netns), mine);
    let job = || netns.run(|| panic!("on purpose"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err());
    assert_ne!(inode(&netns), mine);

    let Some(outside) = self::netns() else { return };
    let fd = netns.fd().try_clone_to_owned().unwrap();
    outside.run(move || create_veth("fb-a", "fb-b", Some(fd.as_fd()), 1, 1500).unwrap());
    drop(netns);
    let deadline = Instant::now() + DEADLINE;
    // The kernel takes a namespace apart in the background, and with it the other end of the pair.
    while outside.run(|| link::by_name("fb-a").is_ok()) {
        assert!(Instant::now() < deadline, "the netdevs of a dropped namespace stayed");
        std::thread::yield_now();
    }
}

#[test]
fn a_veth_whose_other_end_takes_frames_is_heard_of() {
    inside(|| {
        create_veth("v0", "v1", None, 1, 1500).unwrap();
        for name in ["v0", "v1"] {
            std::process::Command::new("ip").args(["link", "set", name, "up"]).status().unwrap();
        }
        let v0 = link::by_name("v0").unwrap().ifindex;
        let mut monitor = XdpMonitor::open().unwrap();
        assert_eq!(monitor.changed(), Some(BTreeSet::new()));
        assert!(!xdp_features(v0).unwrap().ndo_xmit);
        std::process::Command::new("ethtool").args(["-K", "v1", "gro", "on"]).status().unwrap();
        assert!(monitor.changed().unwrap().contains(&v0), "the kernel tells before ethtool is done");
        assert!(xdp_features(v0).unwrap().ndo_xmit);
    });
}

/// Events about the queueing of this netdev, as far as they are there.
fn hears_of_queueing(monitor: &mut LinkMonitor, ifindex: IfIndex) -> bool {
    std::iter::from_fn(|| monitor.next_event().unwrap()).any(|event| event == LinkEvent::Queueing { ifindex })
}

#[test]
fn what_has_a_say_about_a_netdevs_packets_is_seen_and_heard_of() {
    inside(|| {
        let (v0, _) = veth("v0", "v1");
        link::set_up(v0.ifindex, true).unwrap();
        let mut monitor = LinkMonitor::open().unwrap();
        let tc = |args: &[&str]| {
            assert!(std::process::Command::new("tc").args(args).status().unwrap().success(), "{args:?}");
        };
        let has = || {
            let qdisc = link::by_index(v0.ifindex).unwrap().has_qdisc;
            (qdisc, link::has_egress_classifiers(v0.ifindex).unwrap())
        };
        let mut step = |what: &str, seen| {
            tc(&what.split(' ').collect::<Vec<_>>());
            assert!(hears_of_queueing(&mut monitor, v0.ifindex), "{what}");
            assert_eq!(has(), seen, "{what}");
        };
        step("qdisc add dev v0 root pfifo", (true, false));
        step("qdisc del dev v0 root", (false, false));
        step("qdisc add dev v0 clsact", (false, false));
        let filter = "u32 match u32 0 0 action mirred egress redirect dev v1";
        step(&format!("filter add dev v0 ingress protocol all {filter}"), (false, false));
        step(&format!("filter add dev v0 egress protocol all {filter}"), (false, true));
        step("filter del dev v0 egress", (false, false));
    });
}

#[test]
fn a_netdev_in_another_namespace_is_looked_up_from_this_one() {
    let (Some(here), Some(there)) = (netns(), netns()) else { return };
    let fd = there.fd().try_clone_to_owned().unwrap();
    let end = here.run(move || {
        create_veth("v0", "v1", Some(fd.as_fd()), 1, 1500).unwrap();
        let v0 = link::by_name("v0").unwrap();
        link::in_netns(v0.peer_netnsid.unwrap(), v0.peer_ifindex.unwrap()).unwrap()
    });
    assert_eq!(
        (end.name.clone(), end.mac),
        there.run(|| ("v1".to_owned(), link::by_name("v1").unwrap().mac))
    );
}

/// A tap: its driver (tun, Linux 6.18) takes `rx-frames` up to 64, and nothing else.
fn tap(name: &str) -> IfIndex {
    let made = std::process::Command::new("ip").args(["tuntap", "add", name, "mode", "tap"]).status();
    assert!(made.unwrap().success());
    link::by_name(name).unwrap().ifindex
}

#[test]
fn a_driver_takes_the_limits_that_it_has_and_refuses_others() {
    inside(|| {
        let tap = tap("fb-tap");
        let frames = |frames| CoalesceValues { frames: Some(frames), ..CoalesceValues::default() };
        assert_eq!(coalescing(tap).unwrap(), Coalescing { rx: frames(0), tx: CoalesceValues::default() });
        set_coalescing(tap, CoalesceDirection::Rx, &frames(32)).unwrap();
        assert_eq!(coalescing(tap).unwrap().rx, frames(32));
        let usecs = CoalesceValues { usecs: Some(8), ..frames(16) };
        for (direction, values) in [
            (CoalesceDirection::Rx, usecs),
            (CoalesceDirection::Tx, frames(16)),
            (CoalesceDirection::Rx, CoalesceValues { adaptive: Some(true), ..frames(16) }),
        ] {
            let error = set_coalescing(tap, direction, &values).unwrap_err();
            assert!(error.to_string().contains("unsupported parameter"), "{error}");
        }
        assert_eq!(coalescing(tap).unwrap().rx, frames(32), "all or nothing");
        let (a, _) = veth("fb-a", "fb-b");
        assert_eq!(coalescing(a.ifindex).unwrap(), Coalescing::default());
        assert!(matches!(coalescing(IfIndex(9_999)), Err(NetlinkError::NoSuchNetdev { .. })));
    });
}

#[test]
fn a_napi_instance_takes_its_own_deferral() {
    inside(|| {
        let (a, b) = veth("fb-a", "fb-b");
        [a.ifindex, b.ifindex].iter().for_each(|end| link::set_up(*end, true).unwrap());
        assert_eq!(napis(a.ifindex).unwrap(), [], "a veth has none without GRO and XDP");
        set_merges(a.ifindex, true).unwrap();
        let id = napis(a.ifindex).unwrap()[0].id;
        // More nanoseconds than four bytes hold.
        let deferral = Deferral { gro_flush_timeout: 5_000_000_000, defer_hard_irqs: 2 };
        match set_deferral(id, deferral) {
            Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => {
                println!("SKIP: napi-set (Linux 6.13)");
                return;
            }
            outcome => outcome.unwrap(),
        }
        let napi = napis(a.ifindex).unwrap().remove(0);
        assert_eq!((napi.gro_flush_timeout, napi.defer_hard_irqs), (Some(5_000_000_000), Some(2)));
        set_merges(a.ifindex, false).unwrap();
        assert_eq!(set_deferral(id, deferral).unwrap_err().errno(), Some(libc::ENOENT));
    });
}

#[test]
fn what_a_netdev_sends_is_counted() {
    inside(|| {
        let lo = link::by_name("lo").unwrap().ifindex;
        link::set_up(lo, true).unwrap();
        let before = link::traffic(lo).unwrap();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(&[0; 100], socket.local_addr().unwrap()).unwrap();
        let after = link::traffic(lo).unwrap();
        assert_eq!((after.rx_packets, after.tx_packets), (before.rx_packets + 1, before.tx_packets + 1));
        // With the headers of IP and UDP.
        assert_eq!((after.rx_bytes, after.tx_bytes), (before.rx_bytes + 128, before.tx_bytes + 128));
    });
}
