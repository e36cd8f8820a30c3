//! Hints: what is known about packets when they come in, in every layout; and captures, which show them.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use forebay_control::hints::{HintsShow, HintsState};
use forebay_control::port::PortState;
use forebay_control::stats::{LatencyShow, WorkersShow};
use forebay_testbed::dut::{Client, ForebayOptions};
use forebay_testbed::frame::{Frame, TPID_C};
use forebay_testbed::measure::flood::small_frame;
use forebay_testbed::measure::source::Source;
use forebay_testbed::packet_io::FrameSocket;
use forebay_testbed::programs::hints::{HintsProgram, PROGRAMS};
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::programs::watch::{self, Seen, Watch};
use forebay_testbed::tagged::Tagged;
use forebay_testbed::{Host, Lab, PortKind, wait};

use crate::bed::{Bed, with_hints};
use crate::harness::{Outcome, Subject, Suite, ensure_program};
use crate::{connectivity, fdb, hostile, netdev, vlan};

const XDP: Subject = Subject::Forebay(PortKind::VethXdp);
const PACKETS: u16 = 500;
/// Of the programs that come with the switch.
const OWN_LAYOUTS: usize = 2;
const CAPTURE_LIMIT: Duration = Duration::from_secs(30);

pub fn register(suite: &mut Suite) {
    suite.on_netdevs("with_hints_tagged_hosts_talk", |subject| with_hints(|| vlan::tagged_hosts(subject)));
    suite.on_netdevs("with_hints_a_trunk_tags_its_vlans", |subject| with_hints(|| vlan::trunk(subject)));
    suite.on_netdevs("with_hints_vlans_stay_apart", |subject| {
        with_hints(|| {
            vlan::access_ports(subject)?;
            vlan::not_allowed(subject)?;
            vlan::same_mac_two_vlans(subject)
        })
    });
    suite.on_netdevs("with_hints_a_tagged_host_reaches_an_access_port", |subject| {
        with_hints(|| trunk_and_access(subject))
    });
    // XDP ports tell the flow of each packet then, and the worker does as with the one before.
    macro_rules! again {
        ($name:literal, $scenario:expr) => {
            suite.on_netdevs(concat!("with_hints_", $name), |subject| {
                with_hints(|| -> Outcome { $scenario(subject) })
            })
        };
    }
    again!("an_address_is_learned", fdb::learning);
    again!("a_station_moves", fdb::moving);
    again!("an_entry_ages", fdb::ageing);
    again!("a_static_entry_stays", fdb::static_entries);
    again!("isolated_ports_stay_apart", vlan::isolated);
    again!("two_workers_carry_everything", connectivity::two_workers);
    again!("random_frames_harm_nobody", hostile::random_frames);
    again!("a_netdev_goes_down_and_comes_back", netdev::down_and_up);
    again!("a_netdev_is_made_again", netdev::deleted_and_made_again);
    again!("ports_come_and_go", netdev::ports_come_and_go);
    suite.once("packets_whose_flow_is_told_are_decided_as_the_one_before_until_something_changes", told);
    suite.on_netdevs("a_port_with_hints_tells_flows_and_arrival", built_in);
    suite.once("frames_that_an_xdp_program_redirected_come_with_what_is_known_of_them", redirected);
    suite.once("hints_are_those_of_the_packet_whatever_the_layout", layouts);
    suite.once("hints_are_those_of_the_packet_while_the_layout_changes", changing);
    suite.once("a_port_whose_netdev_is_made_again_has_its_program_again", made_again);
    suite.once("in_every_spool_mode_hints_are_those_of_the_packet", modes);
    suite.once("a_program_that_breaks_the_contract_is_refused_and_the_old_one_stays", refused);
    suite.once("a_daemon_that_allows_no_programs_refuses_one_and_names_the_setting", forbidden);
    suite.once("a_capture_ends_at_its_limits", limits);
}

fn hints(client: &Client) -> Result<HintsShow, Box<dyn std::error::Error>> {
    Ok(client.json(&["hints", "show"])?)
}

/// Packets of many flows, to the discard port.
fn send_flows(from: &Host, to: &Host) -> Outcome {
    let socket = FrameSocket::open(from)?;
    for flow in 0..PACKETS {
        let end = |host: &Host, port| (host.mac(), host.v4().octets(), port);
        socket.send(&Frame::udp4(end(from, 1024 + flow), end(to, 9), &[0; 18]).build())?;
    }
    Ok(())
}

/// Captures what `send` makes of `port`'s packets, until as many were received as it sends.
fn seen(
    client: &Client,
    port: &str,
    seeds: &[u32],
    send: impl FnOnce() -> Outcome,
) -> Result<Seen, Box<dyn std::error::Error>> {
    let watch = Watch::start(client, port, 2, seeds.to_vec())?;
    wait::until("the capture to begin", Duration::from_secs(5), || watch.has_begun())?;
    send()?;
    Ok(watch.finish()?)
}

fn built_in(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 2)?;
    let client = bed.client();
    client.ok(&["hints", "set", "h1", "on"])?;
    let shown = hints(&client)?;
    let (h1, h2) = (&shown.ports[0], &shown.ports[1]);
    assert_eq!((h1.state, h1.program.as_str(), h2.state), (HintsState::On, "built-in", HintsState::Off));
    let (report, counted) = bed.watch(|_| Ping::new(hosts[1].v4()).count(10).from(&hosts[0]))?;
    assert!(report.is_complete(), "{report:?}");
    counted.no_drops();
    let layout = shown.layouts.iter().find(|layout| Some(layout.id) == h1.layout).ok_or("h1's layout")?;
    assert!(layout.text.contains("rx_hash") && layout.text.contains("rx_timestamp"), "{}", layout.text);
    let packets = |shown: &HintsShow| {
        shown.layouts.iter().filter(|shown| shown.id == layout.id).map(|layout| layout.packets).sum::<u64>()
    };
    let after = hints(&client)?;
    assert!(packets(&after) - packets(&shown) >= 10, "{after:?}");
    assert_eq!((after.unknown_packets, after.stale_packets), (0, 0));
    let latency: LatencyShow = client.json(&["stats", "--latency"])?;
    let [port] = &latency.ports[..] else { panic!("{latency:?}") };
    assert!(port.name == "h1" && port.packets >= 10 && port.from_the_future == 0, "{port:?}");
    assert!(port.p50_ns > 0 && port.p50_ns <= port.p99_ns && port.p99_ns <= port.max_ns, "{port:?}");

    client.ok(&["hints", "set", "h1", "off"])?;
    let before = packets(&hints(&client)?);
    let (report, counted) = bed.watch(|_| Ping::new(hosts[1].v4()).count(10).from(&hosts[0]))?;
    assert!(report.is_complete(), "{report:?}");
    counted.no_drops();
    assert_eq!(packets(&hints(&client)?), before, "nobody writes them any more");
    Ok(())
}

/// No stack has seen them: a veth has no hash for an XDP port's program then; for a tcx port the kernel makes packets of
/// them, and so has one.
fn redirected() -> Outcome {
    for (kind, has_hash) in [(PortKind::VethXdp, false), (PortKind::VethTcx, true)] {
        let (mut bed, hosts) = Bed::with_hosts(Subject::Forebay(kind), 2)?;
        let client = bed.client();
        client.ok(&["hints", "set", "h1", "on"])?;
        // Without it a netdev that has no XDP program drops them.
        bed.lab.switch().ethtool("h1", &["gro", "on"])?;
        let seen = seen(&client, "h1", &[], || {
            let source = Source::start(hosts[0].netns(), "eth0", small_frame(&hosts[0], &hosts[1]), 64, 0)?;
            wait::until("frames in the port's layout", CAPTURE_LIMIT, || {
                hints(&client).is_ok_and(|shown| {
                    let id = shown.ports[0].layout;
                    let layout = shown.layouts.iter().find(|layout| Some(layout.id) == id);
                    layout.is_some_and(|layout| layout.packets >= u64::from(PACKETS))
                })
            })?;
            source.finish()?;
            Ok(())
        })?;
        let (with, without) = if has_hash { (seen.compared, seen.bare) } else { (seen.bare, seen.compared) };
        assert!(with > 0 && without == 0, "{kind:?}: {seen:?}");
        let shown = hints(&client)?;
        assert_eq!((shown.unknown_packets, shown.stale_packets), (0, 0), "{kind:?}: {shown:?}");
    }
    Ok(())
}

/// Packets that were decided about as the one before.
fn repeated(client: &Client) -> Result<u64, Box<dyn std::error::Error>> {
    let shown: WorkersShow = client.json(&["stats", "--workers"])?;
    Ok(shown.workers.iter().map(|worker| worker.lookups.repeated).sum())
}

fn told() -> Outcome {
    const LIMIT: Duration = Duration::from_secs(20);
    const COUNT: u32 = 20;
    let (mut bed, hosts) = with_hints(|| Bed::with_hosts(XDP, 2))?;
    let client = bed.client();
    let ping = Ping::new(hosts[1].v4()).count(COUNT);
    // Each way's first packets are decided about, and then one in a tenth of a second.
    let carries = || -> Result<bool, Box<dyn std::error::Error>> {
        let before = repeated(&client)?;
        assert!(ping.from(&hosts[0])?.is_complete());
        Ok(repeated(&client)? - before >= u64::from(COUNT))
    };
    wait::until("decisions to be repeated", LIMIT, || carries().is_ok_and(|does| does))?;
    let (report, counted) = bed.watch(|_| ping.from(&hosts[0]))?;
    assert!(report.is_complete(), "{report:?}");
    counted.no_drops();
    for port in ["h1", "h2"] {
        assert!(counted.moved(port, "forwarded_packets") >= Some(COUNT.into()), "{counted}");
    }
    assert_eq!(counted.total("offloaded_packets"), Some(0), "{counted}");
    let flows = client.ok(&["flow", "list"])?.stdout;
    assert!(flows.contains("the fast path is off") && flows.contains("output:h2"), "{flows}");

    let rule =
        ["flow", "add", "--priority", "1", "--ip-proto", "icmp", "--in-port", "h1", "--action", "drop"];
    client.ok(&rule)?;
    let drops = || -> Result<bool, Box<dyn std::error::Error>> {
        let before = repeated(&client)?;
        assert_eq!(
            ping.clone().in_vain().from(&hosts[0])?.received,
            0,
            "the rule is in force from the first packet on"
        );
        Ok(repeated(&client)? > before)
    };
    wait::until("drops to be repeated", LIMIT, || drops().is_ok_and(|does| does))?;
    client.ok(&["flow", "del", "1"])?;
    assert!(ping.from(&hosts[0])?.is_complete(), "the rule is gone");
    client.ok(&["stats", "--check"])?;
    Ok(())
}

/// A host that sends tags beside its packets, behind a trunk, and one that knows of no tags.
fn trunk_and_access(subject: Subject) -> Outcome {
    const VID: u16 = 5;
    let mut bed = Bed::new(subject)?;
    let hosts = bed.lab.hosts(2, subject.kind())?;
    bed.attach_vlan(&hosts[0], "trunk:5,6")?;
    bed.attach_vlan(&hosts[1], "access:5")?;
    let _tags = Tagged::start(&hosts[0], TPID_C, VID)?;
    let file = bed.lab.path("tagged.pcapng");
    let client = bed.client();
    let (captured, counted) = bed.watch(|_| {
        std::thread::scope(|scope| {
            let capture = scope.spawn(|| {
                client.ok(&["capture", "h1", "-c", "3", "--seconds", "60", "-w", &file.to_string_lossy()])
            });
            wait::until("three packets", CAPTURE_LIMIT, || {
                let ping = Ping::new(hosts[1].v4()).count(3).from(&hosts[0]);
                assert!(ping.is_ok_and(|report| report.is_complete()), "through trunk and access port");
                capture.is_finished()
            })?;
            capture.join().expect("it does not panic")
        })
    })?;
    assert!(captured.status.success());
    counted.no_drops();
    let bytes = std::fs::read(&file)?;
    let told = format!("rx_vlan_tci={VID:#x} rx_vlan_proto=0x8100");
    assert!(bytes.windows(told.len()).any(|window| window == told.as_bytes()), "the tag was a hint");
    Ok(())
}

fn set(client: &Client, port: &str, object: &Path) -> Outcome {
    client.ok(&["hints", "set", port, "--program", &object.to_string_lossy()])?;
    Ok(())
}

fn layouts() -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(XDP, 2)?;
    let client = bed.client();
    let mut ids = BTreeSet::new();
    for program in &PROGRAMS {
        set(&client, "h1", &program.compile(&bed.lab)?)?;
        let seen = seen(&client, "h1", &[program.seed], || send_flows(&hosts[0], &hosts[1]))?;
        let expected = Seen { compared: PACKETS.into(), by_seed: seen.by_seed, ..Seen::default() };
        assert_eq!(seen, expected, "{}", program.name);
        let shown = hints(&client)?;
        let port = &shown.ports[0];
        assert_eq!(port.program, format!("{}.bpf.o", program.name));
        assert!(ids.insert(port.layout), "an id is given out once");
        let layout =
            shown.layouts.iter().find(|layout| Some(layout.id) == port.layout).ok_or("the layout")?;
        assert!(layout.text.contains(program.name) && layout.packets >= u64::from(PACKETS), "{layout:?}");
    }
    Ok(())
}

fn changing() -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(XDP, 2)?;
    let client = bed.client();
    let objects = [PROGRAMS[2].compile(&bed.lab)?, PROGRAMS[3].compile(&bed.lab)?];
    set(&client, "h1", &objects[0])?;
    let seen = seen(&client, "h1", &[PROGRAMS[2].seed, PROGRAMS[3].seed], || {
        for round in 1..=6 {
            send_flows(&hosts[0], &hosts[1])?;
            set(&client, "h1", &objects[round % 2])?;
        }
        Ok(())
    })?;
    let expected = Seen { compared: 6 * u64::from(PACKETS), by_seed: seen.by_seed, ..Seen::default() };
    assert_eq!(seen, expected);
    assert!(seen.by_seed[3] > 0 && seen.by_seed[4] > 0, "{seen:?}");
    let shown = hints(&client)?;
    assert_eq!((shown.unknown_packets, shown.stale_packets), (0, 0), "{shown:?}");
    assert_eq!(shown.layouts.len(), OWN_LAYOUTS + objects.len(), "had before is had again: {shown:?}");
    Ok(())
}

/// Both the one that it has, and the one that it had before and that is still known.
fn made_again() -> Outcome {
    let (mut bed, mut hosts) = Bed::with_hosts(XDP, 2)?;
    let client = bed.client();
    let [one, other] = [PROGRAMS[0].compile(&bed.lab)?, PROGRAMS[1].compile(&bed.lab)?];
    set(&client, "h1", &one)?;
    set(&client, "h1", &other)?;
    hosts[0].pull_out()?;
    client.wait_port_state("h1", PortState::NetdevMissing)?;
    hosts[0].plug_in(bed.lab.switch())?;
    client.wait_port_state("h1", PortState::Up)?;
    for (object, program) in [(None, PROGRAMS[1]), (Some(&one), PROGRAMS[0]), (Some(&other), PROGRAMS[1])] {
        object.map(|object| set(&client, "h1", object)).transpose()?;
        let seen = seen(&client, "h1", &[program.seed], || send_flows(&hosts[0], &hosts[1]))?;
        let expected = Seen { compared: PACKETS.into(), by_seed: seen.by_seed, ..Seen::default() };
        assert_eq!(seen, expected, "{}", program.name);
    }
    assert_eq!(hints(&client)?.layouts.len(), OWN_LAYOUTS + 2);
    client.ok(&["port", "del", "h1"])?;
    assert_eq!(hints(&client)?.layouts.len(), OWN_LAYOUTS + 2, "packets may be under way");
    Ok(())
}

fn modes() -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(XDP, 2)?;
    let client = bed.client();
    set(&client, "h1", &PROGRAMS[1].compile(&bed.lab)?)?;
    for mode in ["basic", "none", "spp"] {
        client.ok(&["eswitch", "set", "spool-mode", mode])?;
        let (seen, counted) = {
            let client = client.clone();
            let (seen, counted) = bed.watch(|_| {
                seen(&client, "h1", &[PROGRAMS[1].seed], || send_flows(&hosts[0], &hosts[1]))
                    .map_err(|error| forebay_testbed::LabError::output("a capture", error.to_string()))
            })?;
            (seen, counted)
        };
        counted.no_drops();
        let expected = Seen { compared: PACKETS.into(), by_seed: seen.by_seed, ..Seen::default() };
        assert_eq!(seen, expected, "{mode}");
    }
    Ok(())
}

fn refused() -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(XDP, 2)?;
    let client = bed.client();
    let good = PROGRAMS[0];
    set(&client, "h1", &good.compile(&bed.lab)?)?;
    let refuse = |object: &Path, said: &[&str]| -> Outcome {
        let finished = client.call(&["hints", "set", "h1", "--program", &object.to_string_lossy()])?;
        let is_told = said.iter().all(|said| finished.stderr.contains(said));
        assert!(!finished.status.success() && is_told, "{said:?}: {finished:?}");
        let shown = hints(&client)?;
        assert_eq!((shown.ports[0].state, &*shown.ports[0].program), (HintsState::On, "plain.bpf.o"));
        Ok(())
    };
    let beyond = HintsProgram { name: "beyond", more: "packet[4096] = 1;", ..good };
    refuse(&beyond.compile(&bed.lab)?, &["load the program", "invalid access to packet"])?;
    let narrow = HintsProgram {
        name: "narrow",
        members: "__u16 rx_hash; __u16 pad; __u32 rx_hash_type; FOREBAY_HINTS_END;",
        ..good
    };
    refuse(&narrow.compile(&bed.lab)?, &["`rx_hash` is an unsigned integer of 2 bytes", "4 bytes"])?;
    // Ends the struct, and declares something behind it.
    let taken = "FOREBAY_RX_HASH; FOREBAY_HINTS_END; }; int settings = 5; struct unused { int it;";
    let taken = HintsProgram { name: "taken", members: taken, ..good };
    refuse(&taken.compile(&bed.lab)?, &["defines `settings`", "static"])?;
    let text = bed.lab.path("no.o");
    std::fs::write(&text, "#!/bin/sh")?;
    refuse(&text, &["no object file"])?;
    let seen = seen(&client, "h1", &[good.seed], || send_flows(&hosts[0], &hosts[1]))?;
    assert_eq!((seen.compared, seen.wrong, seen.bare), (PACKETS.into(), 0, 0), "the old one writes on");

    let own = "FOREBAY_RX_HASH; FOREBAY_HINTS_END; }; static const volatile int settings = 5; struct unused { int it;";
    let own = HintsProgram { name: "own", members: own, more: "hints->rx_hash += settings - 5;", ..good };
    set(&client, "h1", &own.compile(&bed.lab)?)?;
    let seen = self::seen(&client, "h1", &[own.seed], || send_flows(&hosts[0], &hosts[1]))?;
    assert_eq!((seen.compared, seen.wrong, seen.bare), (PACKETS.into(), 0, 0), "its settings are its own");

    let (mut bed, _hosts) = Bed::with_hosts(Subject::Forebay(PortKind::VethTcx), 1)?;
    let object = good.compile(&bed.lab)?;
    let finished = bed.client().call(&["hints", "set", "h1", "--program", &object.to_string_lossy()])?;
    assert!(!finished.status.success() && finished.stderr.contains("--attach xdp"), "{finished:?}");
    Ok(())
}

fn forbidden() -> Outcome {
    ensure_program()?;
    let mut lab = Lab::new("system")?;
    let hosts = lab.hosts(2, PortKind::VethXdp)?;
    let mut bed = Bed::of(lab, ForebayOptions::default())?;
    bed.attach(&hosts)?;
    let client = bed.client();
    let object = PROGRAMS[0].compile(&bed.lab)?;
    let finished = client.call(&["hints", "set", "h1", "--program", &object.to_string_lossy()])?;
    let said = ["can read kernel memory", "allow_programs = true", "[api]", "--allow-programs"];
    let is_told = said.iter().all(|said| finished.stderr.contains(said));
    assert!(!finished.status.success() && is_told, "{finished:?}");
    assert_eq!(hints(&client)?.ports[0].state, HintsState::Off, "nothing has changed");
    client.ok(&["hints", "set", "h1", "on"])?;
    Ok(())
}

fn limits() -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(XDP, 2)?;
    let client = bed.client();
    let finished = client.call(&["capture", "h9", "--seconds", "1"])?;
    assert!(!finished.status.success() && finished.stderr.contains("no port `h9`"), "{finished:?}");
    let watch = Watch::start(&client, "h1", 2, Vec::new())?;
    wait::until("the capture to begin", CAPTURE_LIMIT, || watch.has_begun())?;
    let second = client.call(&["capture", "h1", "--seconds", "1"])?;
    assert!(!second.status.success() && second.stderr.contains("somebody captures `h1`"), "{second:?}");
    let _ = watch.finish()?;

    let file = bed.lab.path("limits.pcapng");
    let sending = std::thread::scope(|scope| -> Outcome {
        let capture = scope.spawn(|| {
            client.ok(&["capture", "h1", "--seconds", "60", "-c", "3", "-w", &file.to_string_lossy()])
        });
        while !capture.is_finished() {
            send_flows(&hosts[0], &hosts[1])?;
        }
        capture.join().expect("it does not panic")?;
        Ok(())
    });
    sending?;
    let bytes = std::fs::read(&file)?;
    let packets = watch::count_packets(&bytes[..])?;
    assert_eq!(packets, 3);
    Ok(())
}
