//! The whole probe on the running kernel: as root it finds what this kernel has, without privileges it guesses nothing.

use caps::{CapSet, Capability};
use forebay_control::doctor::{Answer, Check};

use super::*;
use crate::netlink::{PrivateNetns, link};

/// A namespace to test in, or `None` after saying why not: only for lack of privilege.
fn netns() -> Option<PrivateNetns> {
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SYS_ADMIN).unwrap() {
        return Some(PrivateNetns::new("fb-probe-test").unwrap());
    }
    println!("SKIP: no CAP_SYS_ADMIN to make a network namespace");
    None
}

fn find<'a>(checks: &'a [Check], name: &str) -> &'a Check {
    checks
        .iter()
        .find(|check| check.name == name)
        .unwrap_or_else(|| panic!("no check `{name}` in {checks:#?}"))
}

/// Runs `work` on a thread that has no capability at all; capabilities are per thread.
fn without_privileges<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            caps::clear(None, CapSet::Effective).unwrap();
            caps::clear(None, CapSet::Permitted).unwrap();
            work()
        });
        thread.join().unwrap()
    })
}

fn running_kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap());
    (parts.next().unwrap(), parts.next().unwrap())
}

#[test]
fn as_root_every_feature_of_the_running_kernels_version_is_found_by_use() {
    let Some(netns) = netns() else { return };
    let checks = netns.run(kernel::checks);
    assert_eq!(checks.len(), 12);
    let here = running_kernel();
    let features = [
        ("veth netdevs", (6, 6)),
        ("netdev netlink family", (6, 6)),
        ("tcx links", (6, 6)),
        ("mappable BPF arrays", (6, 6)),
        ("BPF programs run on request", (6, 6)),
        ("device-bound XDP programs", (6, 6)),
        ("XDP metadata: hash", (6, 6)),
        ("XDP metadata: VLAN tag", (6, 8)),
        ("AF_XDP sockets", (6, 6)),
        ("AF_XDP multi-buffer", (6, 6)),
        ("AF_XDP transmit metadata", (6, 8)),
        ("AF_XDP transmit budget", (6, 17)),
    ];
    for (name, since) in features {
        let check = find(&checks, name);
        assert_eq!(check.answer == Answer::Available, here >= since, "on {here:?}: {check:#?}");
        assert!(!matches!(check.answer, Answer::Unknown { .. }), "{check:#?}");
    }
}

#[test]
fn without_privileges_nothing_is_guessed_and_the_missing_capabilities_are_named() {
    let report = without_privileges(|| run(&Options::default()));
    let missing = find(&report.checks, "capabilities");
    let Answer::NotSupported { why, .. } = &missing.answer else { panic!("{missing:#?}") };
    for capability in ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF", "CAP_SYS_ADMIN"] {
        assert!(why.contains(capability), "{why}");
    }
    assert!(!report.can_start());
    for name in
        ["veth netdevs", "tcx links", "XDP metadata: VLAN tag", "AF_XDP sockets", "AF_XDP multi-buffer"]
    {
        let check = find(&report.checks, name);
        assert!(matches!(&check.answer, Answer::Unknown { why } if !why.is_empty()), "{check:#?}");
    }
    // This one anybody may ask.
    assert_eq!(find(&report.checks, "netdev netlink family").answer, Answer::Available);
}

#[test]
fn a_probe_leaves_no_netdev_and_finds_the_same_again() {
    let Some(netns) = netns() else { return };
    let (before, first, second, after) = netns.run(|| {
        let options = Options::default();
        (link::list().unwrap(), run(&options), run(&options), link::list().unwrap())
    });
    assert_eq!(before, after);
    let answers =
        |report: &DoctorReport| report.checks.iter().map(|check| check.answer.clone()).collect::<Vec<_>>();
    assert_eq!(answers(&first), answers(&second));
}

#[test]
fn limits_are_held_against_the_switch_that_is_planned() {
    let huge = Options { ports: 1 << 40, workers: 64, pool_bytes: 1 << 50 };
    let none = Options { ports: 0, workers: 0, pool_bytes: 0 };
    let answers = |options: &Options| {
        let mut checks = privileges::checks(options);
        checks.extend(system::limit_checks(options));
        ["open files", "memory mappings"].map(|name| find(&checks, name).clone())
    };
    for check in answers(&huge) {
        assert!(matches!(check.answer, Answer::NotSupported { .. }) && check.remedy.is_some(), "{check:#?}");
    }
    for check in answers(&none) {
        assert_eq!(check.answer, Answer::Available, "{check:#?}");
    }
    let locked = |options: Options| {
        find(&without_privileges(|| privileges::checks(&options)), "locked memory").clone()
    };
    assert!(matches!(locked(huge).answer, Answer::NotSupported { .. }));
    assert_eq!(locked(none).answer, Answer::Available);
}

#[test]
fn foreign_programs_are_named_with_netdev_and_id_and_stay_where_they_are() {
    let Some(netns) = netns() else { return };
    netns.run(|| {
        link::create_veth("fb-a", "fb-b", None, 1, 1500).unwrap();
        let ifindex = link::by_name("fb-a").unwrap().ifindex;
        for name in ["XDP programs already attached", "tcx programs already attached"] {
            assert_eq!(find(&conflicts::checks(), name).answer, Answer::Available);
        }
        let foreign = programs::tests::attach_foreign(ifindex);
        let xdp = link::by_name("fb-a").unwrap().xdp.expect("the program that was just attached");
        assert_eq!(xdp.mode, link::XdpMode::Native);
        let checks = conflicts::checks();
        let expected = format!("fb-a has program fb_probe, id {} (native)", xdp.prog_id);
        let answer = &find(&checks, "XDP programs already attached").answer;
        assert!(matches!(answer, Answer::NotSupported { why, .. } if *why == expected), "{answer:?}");
        let answer = &find(&checks, "tcx programs already attached").answer;
        assert!(matches!(answer, Answer::NotSupported { why, .. } if why.contains("fb-a has program fb_probe, id ")));
        run(&Options::default());
        assert_eq!(link::by_name("fb-a").unwrap().xdp, Some(xdp));
        drop(foreign);
        assert_eq!(link::by_name("fb-a").unwrap().xdp, None);
    });
}
