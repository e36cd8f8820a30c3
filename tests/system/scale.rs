//! Hundreds of ports and a thousand: added, served, and left.

use std::time::Duration;

use forebay_control::port::{Attach, PortSpec, PortState};
use forebay_testbed::bpffs::BpfFs;
use forebay_testbed::dut::{Forebay, ForebayOptions};
use forebay_testbed::frame::{Frame, mark_of};
use forebay_testbed::packet_io::FrameSocket;
use forebay_testbed::systemd::Systemd;
use forebay_testbed::{Lab, PortKind, Result, wait};

use crate::bed::Bed;
use crate::harness::{Outcome, Subject, Suite, ensure_program};

const PORTS: usize = 1000;
/// Ports whose programs take seconds to detach where grace periods cannot be shortened, as in the unit.
const HUNDREDS: usize = 300;
const LIMIT: Duration = Duration::from_secs(60);

pub fn register(suite: &mut Suite) {
    suite.heavy_once("a_thousand_ports_are_added_by_one_request_and_forward", thousand_ports);
    suite.heavy_once("a_service_with_hundreds_of_ports_stops_with_success_and_leaves_nothing", service_stops);
    suite.heavy_once("a_service_stopped_while_ports_are_added_leaves_nothing", service_stops_early);
    suite.heavy_once("a_stop_that_is_killed_has_left_nothing_to_the_next_daemon", killed_stop);
    suite.once("pins_without_what_was_saved_beside_them_are_removed", pins_alone);
}

fn thousand_ports() -> Outcome {
    let mut bed = Bed::new(Subject::Forebay(PortKind::VethTcx))?;
    let peers = bed.lab.bulk_veths(PORTS)?;
    let netdevs: Vec<String> = (1..=PORTS).map(|n| format!("p{n}")).collect();
    let netdevs: Vec<&str> = netdevs.iter().map(String::as_str).collect();
    let client = bed.client();
    client.add(&PortSpec { attach: Attach::Tcx, ..PortSpec::new("any") }, &netdevs)?;
    let ports = client.ports()?;
    assert_eq!(ports.len(), PORTS);
    assert!(
        ports.iter().all(|port| port.state == PortState::Up),
        "{:?}",
        ports.iter().find(|p| p.state != PortState::Up)
    );
    let (mut first, mut last) =
        (FrameSocket::open_on(&peers, "q1")?, FrameSocket::open_on(&peers, &format!("q{PORTS}"))?);
    let (stations, count) = ([[2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 2]], 50);
    // The last one speaks first, so that nothing is flooded afterwards.
    last.send(&Frame::marked(stations[1], stations[0], 1).build())?;
    assert_eq!(first.collect(1, Duration::from_secs(5), |frame| mark_of(frame) == Some(1))?.len(), 1);
    let (arrived, counted) = bed.watch(|_| {
        for mark in 0..count {
            first.send(&Frame::marked(stations[0], stations[1], 100 + mark).build())?;
        }
        last.collect(50, Duration::from_secs(5), |frame| mark_of(frame).is_some_and(|mark| mark >= 100))
    })?;
    assert_eq!(arrived.len() as u32, count);
    let last_port = format!("p{PORTS}");
    let both = [("p1", "rx_packets", 50), ("p1", "forwarded_packets", 50), (&*last_port, "tx_packets", 50)];
    counted.exactly(&both);
    client.ok(&[&["port", "del"], &netdevs[..]].concat())?;
    assert_eq!(client.ports()?.len(), 0);
    let pool = client.pool()?;
    assert_eq!(pool.frames_free + pool.frames_posted + pool.frames_held, pool.frames_total, "{pool:?}");
    Ok(())
}

/// A configuration with the first `count` of `Lab::bulk_veths` as tcx ports.
fn config_of(count: usize) -> String {
    (1..=count).map(|number| format!("[[port]]\nnetdev = \"p{number}\"\nattach = \"tcx\"\n")).collect()
}

/// Ports' netdevs that carry a program, and netdevs that are not the test's.
fn traces(lab: &Lab) -> Result<Vec<String>> {
    let links = lab.switch().ip(&["-br", "link"])?.stdout;
    let mut left = Vec::new();
    for line in links.lines().filter(|line| !line.starts_with("lo")) {
        let name = line.split(['@', ' ']).next().unwrap_or_default();
        if !name.starts_with('p') || lab.switch().tcx_programs(name)? > 0 {
            left.push(name.to_owned());
        }
    }
    Ok(left)
}

fn service_stops() -> Outcome {
    ensure_program()?;
    let lab = Lab::new("scale")?;
    let _peers = lab.bulk_veths(HUNDREDS)?;
    let systemd = Systemd::boot(&lab, &config_of(HUNDREDS))?;
    systemd.systemctl(&["start", "forebay"])?;
    let up = systemd.client()?.ports()?.iter().filter(|port| port.state == PortState::Up).count();
    assert_eq!(up, HUNDREDS, "{}", systemd.log());
    stops_and_leaves_nothing(&systemd, &lab)
}

fn stops_and_leaves_nothing(systemd: &Systemd, lab: &Lab) -> Outcome {
    systemd.systemctl(&["stop", "forebay"])?;
    let ended = ["Result", "ExecMainStatus"].map(|name| systemd.property(name).unwrap_or_default());
    assert_eq!(ended, ["success", "0"], "{}", systemd.log());
    assert_eq!((pinned(systemd)?.as_str(), traces(lab)?), ("", Vec::new()), "{}", systemd.log());
    Ok(())
}

/// What is pinned, one name a line.
fn pinned(systemd: &Systemd) -> Result<String> {
    let found = systemd.run("find", &["/sys/fs/bpf/forebay", "-type", "f", "-printf", "%f\\n"])?;
    Ok(found.stdout)
}

/// A service without ports, and what happens while one request adds hundreds of them, which takes seconds.
fn while_ports_are_added(event: impl FnOnce(&Systemd, &Lab) -> Outcome) -> Outcome {
    ensure_program()?;
    let lab = Lab::new("scale")?;
    let _peers = lab.bulk_veths(HUNDREDS)?;
    let systemd = Systemd::boot(&lab, "")?;
    systemd.systemctl(&["start", "forebay"])?;
    let client = systemd.client()?;
    std::thread::scope(|scope| {
        let netdevs: Vec<String> = (1..=HUNDREDS).map(|number| format!("p{number}")).collect();
        // The daemon may go before it can answer.
        let adding = scope.spawn(move || {
            let names: Vec<&str> = netdevs.iter().map(String::as_str).collect();
            client.call(&[&["port", "add"], &names[..]].concat())
        });
        wait::until("some ports to be there", LIMIT, || {
            pinned(&systemd).is_ok_and(|names| names.matches("tcx_").count() > 10)
        })?;
        let ended = event(&systemd, &lab);
        let _ = adding.join();
        ended
    })
}

fn service_stops_early() -> Outcome {
    while_ports_are_added(stops_and_leaves_nothing)
}

fn killed_stop() -> Outcome {
    while_ports_are_added(|systemd, lab| {
        systemd.systemctl(&["stop", "--no-block", "forebay"])?;
        wait::until("the stop to begin", LIMIT, || systemd.log().contains("stopping"))?;
        systemd.systemctl(&["kill", "--signal=KILL", "forebay"])?;
        wait::until("the service to be gone", LIMIT, || {
            systemd.property("ActiveState").is_ok_and(|state| state == "failed")
        })?;
        assert_eq!(pinned(systemd)?, "", "{}", systemd.log());
        wait::until("the kernel to detach everything", LIMIT, || {
            traces(lab).is_ok_and(|left| left.is_empty())
        })?;
        systemd.systemctl(&["start", "forebay"])?;
        assert_eq!(systemd.client()?.ports()?.len(), 0);
        Ok(())
    })
}

fn pins_alone() -> Outcome {
    ensure_program()?;
    for clean in [false, true] {
        let lab = Lab::new("scale")?;
        let _peers = lab.bulk_veths(2)?;
        let pins = BpfFs::mount(&lab)?;
        let mut options = ForebayOptions::with_config(config_of(2)).handing_over(&pins);
        let mut daemon = Forebay::start(&lab, options.clone())?;
        daemon.kill()?;
        let carrying = ["p1", "p2"].map(|name| lab.switch().tcx_programs(name).unwrap_or(0));
        assert_eq!(carrying, [1, 1], "programs outlive the daemon");
        // As when somebody removed what is in /run.
        std::fs::remove_file(lab.path("forebay.sock.saved"))?;
        options.config = None;
        match clean {
            true => options.arguments.push("--clean".to_owned()),
            false => options.arguments.retain(|argument| argument != "--handover"),
        }
        let next = Forebay::start(&lab, options)?;
        assert_eq!(next.client().ports()?.len(), 0);
        assert!(!pins.pinned().iter().any(|name| name.starts_with("tcx_")), "{:?}", pins.pinned());
        wait::until("the kernel to detach them", LIMIT, || {
            ["p1", "p2"].iter().all(|name| lab.switch().tcx_programs(name).is_ok_and(|count| count == 0))
        })?;
    }
    Ok(())
}
