//! Spool modes and receive queues: every kind of binding carries everything, and they change under traffic.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_control::eswitch::EswitchSetReply;
use forebay_control::port::{Attach, PortSpec};
use forebay_control::rxq::{RxqBinding, RxqCollector, RxqShow};
use forebay_testbed::dut::Client;
use forebay_testbed::frame::{BROADCAST, Frame};
use forebay_testbed::programs::iperf::{Iperf, IperfServer};
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::{Host, LabError, PortKind, Result, dut, wait};

use crate::bed::{Bed, CONGESTION, while_stopped};
use crate::connectivity::ping_all;
use crate::harness::{Outcome, Subject, Suite};
use crate::wire::Wire;

const MODES: [&str; 3] = ["none", "basic", "spp"];
const STREAM_BYTES: u64 = 32 << 20;
/// Within which posted frames are back after a burst.
const RECLAIM_LIMIT: Duration = Duration::from_secs(5);
/// Hosts may say something meanwhile, and ports hold it for a moment.
const QUIET_LIMIT: Duration = Duration::from_secs(5);

pub fn register(suite: &mut Suite) {
    suite.heavy_on_forebay("every_spool_mode_carries_everything", every_mode);
    suite.on_forebay("a_spool_mode_from_the_configuration_is_there_from_the_start", configured_mode);
    suite.heavy_on_forebay("spool_modes_change_under_traffic", changes);
    suite.on_netdevs("in_one_ring_for_all_each_port_counts_its_own_losses", basic_losses);
    suite.on_netdevs("a_shared_ring_tells_ports_apart_whatever_their_order", interleaved);
    suite.on_netdevs("a_ring_changes_its_depth_under_traffic", depths);
    suite.once("in_mode_none_a_veth_is_bound_directly_and_holds_its_depth", direct_memory);
    suite.once("a_netdev_with_more_queues_than_workers_stays_on_the_collector", many_queues);
    suite.once("one_port_is_bound_directly_and_its_frames_come_back", direct_in_spp);
    suite.once("adaptive_refill_posts_the_low_watermark_at_rest", adaptive);
    suite.on_netdevs("a_receive_queue_that_can_not_be_is_refused_and_changes_nothing", refused);
}

/// A port as `attach = auto` makes it: in mode `none` the switch chooses XDP where it can.
fn auto(host: &Host) -> PortSpec {
    PortSpec { attach: Attach::Auto, ..dut::port_of(host) }
}

fn set_mode(client: &Client, mode: &str) -> Result<EswitchSetReply> {
    let reply = client.json(&["eswitch", "set", "spool-mode", mode])?;
    assert_eq!(client.eswitch()?.spool_mode.name(), mode);
    Ok(reply)
}

fn rxq(client: &Client) -> Result<RxqShow> {
    client.json(&["rxq", "show"])
}

/// No port holds a frame, and all frames are where they should be, once what hosts say by themselves (IPv6) is over.
fn assert_quiet(client: &Client) -> Result<()> {
    wait::until("all frames to be given back", QUIET_LIMIT, || {
        client.pool().is_ok_and(|pool| pool.frames_held == 0 && pool.ports.iter().all(|port| port.used == 0))
    })
}

fn carry_everything(bed: &mut Bed, hosts: &[Host]) -> Outcome {
    let ((), counted) = bed.watch(|_| {
        ping_all(hosts, false)?;
        ping_all(hosts, true)
    })?;
    counted.no_drops();
    for reverse in [false, true] {
        let (report, counted) = bed.watch(|lab| {
            let _server = IperfServer::start(lab, &hosts[1])?;
            Iperf::bytes(STREAM_BYTES).reverse(reverse).run(&hosts[0], &hosts[1])
        })?;
        assert!(report.is_complete(STREAM_BYTES), "{report:?}");
        counted.no_drops_but(&CONGESTION);
    }
    assert_quiet(&bed.client())?;
    Ok(())
}

fn every_mode(subject: Subject) -> Outcome {
    let mut bed = Bed::new(subject)?;
    let hosts = bed.lab.hosts(3, subject.kind())?;
    let ports: Vec<_> = hosts.iter().map(auto).collect();
    bed.dut().add_ports(&ports)?;
    for mode in MODES {
        let reply = set_mode(&bed.client(), mode)?;
        assert_eq!(reply.not_moved, [], "{mode}");
        carry_everything(&mut bed, &hosts)?;
    }
    Ok(())
}

fn configured_mode(subject: Subject) -> Outcome {
    for mode in MODES {
        let mut bed = Bed::with_config(subject, &format!("[switch]\nspool_mode = \"{mode}\"\n"))?;
        let hosts = bed.lab.hosts(3, subject.kind())?;
        bed.attach(&hosts)?;
        assert_eq!(bed.client().eswitch()?.spool_mode.name(), mode);
        let ((), counted) = bed.watch(|_| ping_all(&hosts, false))?;
        counted.no_drops();
        assert_quiet(&bed.client())?;
    }
    Ok(())
}

/// TCP goes on and hardly a ping is lost while the mode changes again and again.
pub fn changes(subject: Subject) -> Outcome {
    const ROUNDS: usize = 4;
    const PINGS: u32 = 4000;
    let mut bed = Bed::new(subject)?;
    let hosts = bed.lab.hosts(4, subject.kind())?;
    let ports: Vec<_> = hosts.iter().map(auto).collect();
    bed.dut().add_ports(&ports)?;
    ping_all(&hosts, false)?;
    let client = bed.client();
    let done = AtomicBool::new(false);
    let ((ping, stream), counted) = bed.watch(|lab| {
        let _server = IperfServer::start(lab, &hosts[1])?;
        std::thread::scope(|scope| {
            let modes = scope.spawn(|| {
                let mut changed = 0;
                while changed < ROUNDS * MODES.len() || !done.load(Ordering::Relaxed) {
                    set_mode(&client, MODES[changed % MODES.len()])?;
                    changed += 1;
                }
                Ok::<_, LabError>(())
            });
            let pings = scope.spawn(|| {
                Ping::new(hosts[3].v4()).count(PINGS).every(Duration::from_millis(1)).from(&hosts[2])
            });
            let stream = Iperf::bytes(STREAM_BYTES).run(&hosts[0], &hosts[1]);
            let ping = pings.join().expect("pinging does not panic");
            done.store(true, Ordering::Relaxed);
            modes.join().expect("changing modes does not panic")?;
            Ok((ping?, stream?))
        })
    })?;
    assert!(stream.is_complete(STREAM_BYTES), "{stream:?}\n{counted}");
    assert!(ping.received * 100 >= PINGS * 95, "{ping:?}\n{counted}");
    set_mode(&client, "spp")?;
    assert_quiet(&client)?;
    Ok(())
}

/// The finding that spp answers: in one ring a flood takes the place of the others. But each loss is its own port's.
fn basic_losses(subject: Subject) -> Outcome {
    const FLOOD: u64 = 6000;
    const QUIET: u64 = 50;
    let mut bed = Bed::with_config(subject, "[switch]\nspool_mode = \"basic\"\n")?;
    let hosts = bed.lab.hosts(3, subject.kind())?;
    bed.attach(&hosts)?;
    let mut wire = Wire::new(&hosts)?;
    let receiver = [2, 0, 0, 0, 7, 0xff];
    let _ = wire.deliver(&mut bed, 2, |mark| Frame::marked(receiver, BROADCAST, mark), &[0, 1])?;
    let pid = bed.forebay().daemon().pid();
    let frame = |sender: u8| Frame::marked([2, 0, 0, 0, 7, sender], receiver, 1).build();
    let ((), counted) = bed.watch(|lab| {
        while_stopped(pid, || {
            for (sender, frames) in [(0, FLOOD), (1, QUIET)] {
                crate::pool::send_through(
                    lab,
                    &mut wire,
                    &[(&hosts[sender], sender, frame(sender as u8))],
                    frames,
                )?;
            }
            Ok(())
        })
    })?;
    let of = |port, counter| counted.moved(port, counter).unwrap_or(0);
    assert_eq!(of("h1", "rx_packets"), FLOOD, "{counted}");
    assert_eq!(of("h1", "forwarded_packets") + of("h1", "rx_ring_full"), FLOOD, "{counted}");
    assert!(of("h1", "rx_ring_full") > 0, "{counted}");
    assert_eq!(of("h2", "rx_ring_full"), QUIET, "a ring that is full is full for all\n{counted}");
    assert_quiet(&bed.client())?;
    Ok(())
}

/// Packets of four ports lie in one ring in turns, and each comes out as its port's.
fn interleaved(subject: Subject) -> Outcome {
    const EACH: u64 = 100;
    let mut bed = Bed::with_config(subject, "[switch]\nspool_mode = \"basic\"\n")?;
    let hosts = bed.lab.hosts(5, subject.kind())?;
    bed.attach(&hosts)?;
    let mut wire = Wire::new(&hosts)?;
    let receiver = [2, 0, 0, 0, 7, 0xff];
    let _ = wire.deliver(&mut bed, 4, |mark| Frame::marked(receiver, BROADCAST, mark), &[0, 1, 2, 3])?;
    let pid = bed.forebay().daemon().pid();
    let senders: Vec<_> = (0..4)
        .map(|sender| {
            (&hosts[sender], sender, Frame::marked([2, 0, 0, 0, 7, sender as u8], receiver, 1).build())
        })
        .collect();
    let ((), counted) =
        bed.watch(|lab| while_stopped(pid, || crate::pool::send_through(lab, &mut wire, &senders, EACH)))?;
    let ports = ["h1", "h2", "h3", "h4"];
    let expected: Vec<_> = ports
        .into_iter()
        .flat_map(|port| [(port, "rx_packets", EACH), (port, "forwarded_packets", EACH)])
        .chain([("h5", "tx_packets", 4 * EACH)])
        .collect();
    counted.exactly(&expected);
    Ok(())
}

fn depths(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 2)?;
    assert!(Ping::new(hosts[1].v4()).from(&hosts[0])?.is_complete());
    let client = bed.client();
    let (report, counted) = bed.watch(|_| {
        std::thread::scope(|scope| {
            let pings = scope.spawn(|| {
                Ping::new(hosts[1].v4()).count(1000).every(Duration::from_millis(1)).from(&hosts[0])
            });
            for depth in ["64", "4096", "256", "1024"] {
                client.ok(&["rxq", "set", "h1", "--depth", depth])?;
            }
            pings.join().expect("pinging does not panic")
        })
    })?;
    assert!(report.is_complete(), "{report:?}\n{counted}");
    counted.no_drops();
    assert_eq!(rxq(&client)?.ports[0].depth, 1024);
    // What a ring holds is what it was made for.
    client.ok(&["rxq", "set", "h1", "--depth", "64"])?;
    let mut wire = Wire::new(&hosts)?;
    let pid = bed.forebay().daemon().pid();
    let frame = Frame::marked([2, 0, 0, 0, 7, 1], hosts[1].mac(), wire.mark()).build();
    let ((), counted) = bed.watch(|lab| {
        while_stopped(pid, || {
            crate::pool::send_through(lab, &mut wire, &[(&hosts[0], 0, frame.clone())], 200)
        })
    })?;
    assert_eq!(counted.moved("h1", "rx_ring_full"), Some(200 - 64), "{counted}");
    assert_eq!(counted.moved("h1", "forwarded_packets"), Some(64), "{counted}");
    Ok(())
}

fn direct_memory() -> Outcome {
    const DEPTH: u64 = 512;
    let config = format!("[switch]\nspool_mode = \"none\"\n[pool]\nrx_ring_depth = {DEPTH}\n");
    let mut bed = Bed::with_config(Subject::Forebay(PortKind::VethTcx), &config)?;
    let client = bed.client();
    let before = client.pool()?.frames_total;
    let hosts = bed.lab.hosts(3, PortKind::VethTcx)?;
    let ports: Vec<_> = hosts.iter().map(auto).collect();
    bed.dut().add_ports(&ports)?;
    assert!(
        rxq(&client)?.ports.iter().all(|port| port.binding == RxqBinding::Direct && port.posted == DEPTH)
    );
    assert_eq!(client.pool()?.frames_total - before, 3 * DEPTH);
    carry_everything(&mut bed, &hosts)?;
    client.ok(&["port", "del", "h2"])?;
    assert_eq!(client.pool()?.frames_total - before, 2 * DEPTH);
    Ok(())
}

fn many_queues() -> Outcome {
    let mut bed = Bed::new(Subject::Forebay(PortKind::VethTcx))?;
    let hosts = bed.lab.hosts(2, PortKind::VethTcx)?;
    // A veth has as many queues to receive from as its peer has to send to, and this one may have two.
    bed.lab.switch().run("ethtool", &["-L", hosts[0].name(), "rx", "2"])?;
    let ports: Vec<_> = hosts.iter().map(auto).collect();
    bed.dut().add_ports(&ports)?;
    let client = bed.client();
    let reply = set_mode(&client, "none")?;
    assert_eq!(reply.not_moved.iter().map(|port| &*port.name).collect::<Vec<_>>(), ["h1"]);
    let bindings = rxq(&client)?.ports.iter().map(|port| port.binding).collect::<Vec<_>>();
    assert_eq!(bindings, [RxqBinding::Collector, RxqBinding::Direct]);
    let ((), counted) = bed.watch(|_| ping_all(&hosts, false))?;
    counted.no_drops();
    Ok(())
}

fn direct_in_spp() -> Outcome {
    let subject = Subject::Forebay(PortKind::VethXdp);
    let (mut bed, hosts) = Bed::with_hosts(subject, 3)?;
    let client = bed.client();
    let free = || client.pool().map(|pool| pool.frames_free);
    let before = free()?;
    client.ok(&["rxq", "set", "h1", "--binding", "direct", "--depth", "256"])?;
    let port = |name: &str| -> Result<_> {
        Ok(rxq(&client)?.ports.into_iter().find(|port| port.name == name).expect("a port"))
    };
    assert_eq!((port("h1")?.binding, port("h1")?.posted), (RxqBinding::Direct, 256));
    assert_eq!(free()?, before - 256, "it draws on the pool");
    carry_everything(&mut bed, &hosts)?;
    client.ok(&["rxq", "set", "h1", "--depth", "1024"])?;
    carry_everything(&mut bed, &hosts)?;
    client.ok(&["rxq", "set", "h1", "--binding", "collector"])?;
    carry_everything(&mut bed, &hosts)?;
    assert_eq!(free()?, before, "every frame is back");
    client.ok(&["rxq", "set", "h1", "--binding", "direct"])?;
    client.ok(&["port", "del", "h1"])?;
    assert_eq!(free()?, before, "every frame of a deleted port is back");
    Ok(())
}

fn adaptive() -> Outcome {
    // The low watermark of each of two collectors.
    const LOW: u64 = 2 * 128;
    let subject = Subject::Forebay(PortKind::VethTcx);
    let mut bed = Bed::with_config(subject, "[pool]\nrefill = \"adaptive\"\n")?;
    let hosts = bed.lab.hosts(2, PortKind::VethTcx)?;
    bed.attach(&hosts)?;
    let client = bed.client();
    let sum =
        |of: fn(&RxqCollector) -> u64| rxq(&client).map(|rxq| rxq.collectors.iter().map(of).sum::<u64>());
    let posted = || sum(|collector| collector.posted);
    assert_eq!(posted()?, LOW);
    let (report, counted) = bed.watch(|lab| {
        let _server = IperfServer::start(lab, &hosts[1])?;
        Iperf::bytes(STREAM_BYTES).run(&hosts[0], &hosts[1])
    })?;
    assert!(report.is_complete(STREAM_BYTES), "{report:?}");
    counted.no_drops_but(&CONGESTION);
    // What is left over from the burst comes back by itself.
    wait::until("the fill ring to be at its low watermark", RECLAIM_LIMIT, || {
        posted().is_ok_and(|now| now <= LOW)
    })?;
    assert_quiet(&client)?;
    // Bursts while frames are taken back from the one before.
    for _ in 0..20 {
        let burst = Ping::new(hosts[1].v4()).count(100).from(&hosts[0])?;
        assert!(burst.received > 0, "{burst:?}");
    }
    wait::until("the fill ring to be at its low watermark", RECLAIM_LIMIT, || {
        posted().is_ok_and(|now| now <= LOW)
    })?;
    assert!(Ping::new(hosts[1].v4()).from(&hosts[0])?.is_complete());
    client.ok(&["rxq", "set", "--collector", "--refill", "static"])?;
    assert!(Ping::new(hosts[1].v4()).from(&hosts[0])?.is_complete());
    assert_eq!(posted()?, sum(|collector| collector.depth.into())?);
    assert_quiet(&client)?;
    Ok(())
}

fn refused(subject: Subject) -> Outcome {
    let (mut bed, _hosts) = Bed::with_hosts(subject, 1)?;
    let client = bed.client();
    let before = rxq(&client)?;
    let direct = (vec!["h1", "--binding", "direct"], "--attach xdp");
    let direct = (subject.kind() != PortKind::VethXdp).then_some(direct);
    let always = [
        (vec!["h1", "--depth", "1000"], "1024"),
        (vec!["h1", "--depth", "32"], "64"),
        (vec!["h1", "--depth", "8192"], "4096"),
        (vec!["h1", "--low", "0"], "1 to"),
        (vec!["h1", "--binding", "shared"], "basic"),
        (vec!["h9", "--depth", "64"], "h9"),
        (vec!["--collector", "--low", "99999"], "4096"),
    ];
    for (args, said) in always.into_iter().chain(direct) {
        let args = [vec!["rxq", "set"], args].concat();
        let finished = client.call(&args)?;
        assert!(!finished.status.success() && finished.stderr.contains(said), "{args:?}: {finished:?}");
    }
    assert_eq!(rxq(&client)?, before);
    Ok(())
}
