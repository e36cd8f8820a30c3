//! What the switch says of its memory: occupancy, rings, and what it costs.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use forebay_control::netdev_queue::{NetdevNapi, NetdevQueue};
use forebay_control::occupancy::Occupancy;
use forebay_control::page_pool::PagePool;
use forebay_control::stats::{WorkerStats, WorkersShow};
use forebay_testbed::dut::Client;
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::{PortKind, wait};

use crate::bed::Bed;
use crate::harness::{Outcome, Subject, Suite};
use crate::pool::{crowd, saturate};

/// Time until what a host says by itself is over.
const LIMIT: Duration = Duration::from_secs(20);

const FRAME: u64 = 2048;
const WORKERS: u32 = 2;

pub fn register(suite: &mut Suite) {
    suite.on_netdevs("a_snapshot_has_what_ports_held_at_most_until_it_is_cleared", occupancy);
    suite.once("occupancy_of_what_is_not_there_is_refused", occupancy_refused);
    suite.on_netdevs("every_ring_is_listed_once_with_the_frames_it_holds", page_pools);
    suite.on_netdevs("queues_of_ports_are_those_that_sysfs_has_and_their_napi_instances_are_listed", queues);
    suite.on_forebay("workers_tell_what_they_did_since_they_were_asked_to_count_anew", workers);
    suite.on_forebay("a_worker_waits_awake_where_packets_come_soon_and_only_if_it_may", lingers);
    suite.on_netdevs("the_daemon_counts_its_kernel_memory_as_it_was_estimated", kernel_bytes);
    suite.once("silent_clients_and_a_thousand_scrapes_keep_no_request_from_its_answer", scrapes);
}

/// Frames a port holds and held at most, in a snapshot taken now.
fn held(client: &Client, port: &str) -> Result<Occupancy, Box<dyn std::error::Error>> {
    let snapshot = client.occupancy()?;
    let found = snapshot.occupancy.get(port).ok_or_else(|| format!("no {port} in {snapshot:?}"))?;
    Ok(found.of_pool())
}

fn occupancy(subject: Subject) -> Outcome {
    let mut crowd = crowd(subject, 3)?;
    let client = crowd.bed.client();
    client.ok(&["pool", "occupancy", "clearmax"])?;
    let nothing = Occupancy::default();
    assert_eq!(held(&client, "h1")?, nothing, "after a quiet moment");

    let _ = saturate(&mut crowd, &[0], 100)?;
    let at_most = |frames: u64| Occupancy { max: frames * FRAME, max_frames: frames, ..nothing };
    assert_eq!(held(&client, "h1")?, at_most(100));
    let _ = saturate(&mut crowd, &[0], 30)?;
    let _ = saturate(&mut crowd, &[1], 50)?;
    assert_eq!(held(&client, "h1")?, at_most(100), "a smaller burst leaves the watermark");
    assert_eq!(held(&client, "h2")?, at_most(50));

    client.ok(&["pool", "occupancy", "clearmax", "h1"])?;
    let kept: serde_json::Value = client.json(&["pool", "occupancy", "show", "h1"])?;
    assert_eq!(kept["occupancy"]["h1"]["pool"]["0"]["max"], 100 * FRAME, "a snapshot stays what it was");
    assert_eq!(held(&client, "h1")?, nothing);
    assert_eq!(held(&client, "h2")?, at_most(50), "it was not asked to be cleared");
    let _ = saturate(&mut crowd, &[0], 20)?;
    assert_eq!(held(&client, "h1")?, at_most(20), "the watermark begins anew");
    Ok(())
}

fn workers(subject: Subject) -> Outcome {
    const PACKETS: u64 = 100;
    let mut crowd = crowd(subject, 3)?;
    let client = crowd.bed.client();
    let look = |more: &[&str]| client.json::<WorkersShow>(&[&["stats", "--workers"], more].concat());
    let sum = |shown: &WorkersShow, of: fn(&WorkerStats) -> u64| shown.workers.iter().map(of).sum::<u64>();
    assert!(sum(&look(&["--clear"])?, |worker| worker.packets) > 0, "the station was introduced");
    assert_eq!(sum(&look(&[])?, |worker| worker.packets + worker.batches + worker.lookups.known), 0);

    let _ = saturate(&mut crowd, &[0], PACKETS)?;
    let shown = look(&["--clear"])?;
    assert_eq!(sum(&shown, |worker| worker.packets), PACKETS, "{shown:?}");
    let found = |worker: &WorkerStats| worker.lookups.known + worker.lookups.repeated;
    assert_eq!(sum(&shown, found), PACKETS, "the station was found for each, or for one like it: {shown:?}");
    assert_eq!(sum(&shown, |worker| worker.lookups.unknown + worker.lookups.group), 0, "{shown:?}");
    assert_eq!(sum(&shown, |worker| worker.batch_sizes.iter().sum()), sum(&shown, |worker| worker.batches));
    let (batches, iterations) =
        (sum(&shown, |worker| worker.batches), sum(&shown, |worker| worker.busy_iterations));
    assert!((2..=PACKETS).contains(&batches) && (1..=batches).contains(&iterations), "{shown:?}");
    assert!(sum(&shown, |worker| worker.busy_cycles) > 0, "{shown:?}");
    let quiet = look(&["--interval", "1"])?;
    assert!(quiet.elapsed_ns >= 1_000_000_000 && sum(&quiet, |worker| worker.packets) == 0, "{quiet:?}");
    Ok(())
}

fn lingers(subject: Subject) -> Outcome {
    const LONGEST_NS: u64 = 1_000_000;
    // On a machine that is busy with other work it takes a while until the processor is there when a packet is.
    let waited = |config: &str, rounds: u32| -> Result<[u64; 2], Box<dyn std::error::Error>> {
        let mut bed = Bed::with_config(subject, config)?;
        let hosts = bed.lab.hosts(2, subject.kind())?;
        bed.attach(&hosts)?;
        let client = bed.client();
        let look = |more: &[&str]| -> Result<WorkerStats, Box<dyn std::error::Error>> {
            let shown: WorkersShow = client.json(&[&["stats", "--workers"], more].concat())?;
            Ok(shown.workers[0])
        };
        look(&["--clear"])?;
        for _ in 0..rounds {
            Ping::new(hosts[1].v4()).count(200).every(Duration::from_micros(200)).from(&hosts[0])?;
            if look(&[])?.lingers > 0 {
                break;
            }
        }
        let busy = look(&["--clear"])?;
        assert!(busy.sleeps > 0, "{busy:?}");
        let quiet = look(&["--interval", "1"])?;
        assert!(quiet.linger_ns < 20 * LONGEST_NS, "nothing comes: {quiet:?}");
        Ok([busy.lingers, busy.linger_ns])
    };
    let [times, nanos] = waited("[switch]\nlinger_us = 1000\n", 400)?;
    assert!(times > 0 && nanos > 0, "{times} times, {nanos} ns");
    assert_eq!(waited("[switch]\nlinger_us = 0\n", 10)?, [0, 0]);
    Ok(())
}

fn scrapes() -> Outcome {
    const LISTEN: &str = "127.0.0.1:9477";
    const SCRAPERS: usize = 8;
    const EACH: usize = 125;
    const REQUESTS: usize = 25;
    let subject = Subject::Forebay(PortKind::VethTcx);
    let mut bed = Bed::with_config(subject, &format!("[metrics]\nlisten = \"{LISTEN}\"\n"))?;
    let hosts = bed.lab.hosts(2, subject.kind())?;
    bed.attach(&hosts)?;
    let client = bed.client();
    let answers = || (0..REQUESTS).filter(|_| client.ports().is_ok_and(|ports| ports.len() == 2)).count();

    let netns = bed.lab.switch();
    let silent = netns.enter(|| {
        let connect = |_| {
            let mut stream = TcpStream::connect(LISTEN)?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHo")?;
            Ok(stream)
        };
        (0..SCRAPERS).map(connect).collect::<std::io::Result<Vec<_>>>()
    })??;
    assert_eq!(answers(), REQUESTS, "while clients of the metrics listener say nothing");
    drop(silent);

    let scrape = || {
        let mut stream = TcpStream::connect(LISTEN)?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok::<bool, std::io::Error>(answer.starts_with("HTTP/1.1 200") && answer.ends_with("# EOF\n"))
    };
    let some_scrapes =
        || netns.enter(|| (0..EACH).filter(|_| scrape().is_ok_and(|is_whole| is_whole)).count());
    let (scraped, answered) = std::thread::scope(|scope| {
        let scrapers: Vec<_> = (0..SCRAPERS).map(|_| scope.spawn(some_scrapes)).collect();
        let answered = answers();
        let scraped = scrapers.into_iter().map(|scraper| scraper.join().expect("a scraper does not panic"));
        (scraped.sum::<forebay_testbed::Result<usize>>(), answered)
    });
    assert_eq!(answered, REQUESTS, "while others scrape");
    assert_eq!(scraped?, SCRAPERS * EACH);
    Ok(())
}

fn occupancy_refused() -> Outcome {
    let (mut bed, _hosts) = Bed::with_hosts(Subject::Forebay(PortKind::VethTcx), 2)?;
    let client = bed.client();
    let refused = |args: &[&str], said: &str| -> Outcome {
        let finished = client.call(&[&["pool", "occupancy"], args].concat())?;
        assert!(!finished.status.success() && finished.stderr.contains(said), "{args:?}: {finished:?}");
        Ok(())
    };
    refused(&["show"], "no snapshot yet")?;
    client.ok(&["pool", "occupancy", "snapshot"])?;
    refused(&["show", "h9"], "no port `h9`")?;
    refused(&["clearmax", "h9"], "no port `h9`")?;
    client.ok(&["pool", "occupancy", "show", "h2"])?;
    Ok(())
}

fn page_pools(subject: Subject) -> Outcome {
    let mut bed = Bed::with_config(subject, &format!("[switch]\nworkers = {WORKERS}\nmax_ports = 16\n"))?;
    let hosts = bed.lab.hosts(3, subject.kind())?;
    bed.attach(&hosts)?;
    let client = bed.client();
    let ports = client.ports()?;
    let posted = |pools: &[PagePool]| -> u64 {
        pools.iter().filter(|pool| pool.id > 16 * WORKERS).map(|pool| pool.inflight).sum()
    };
    // Hosts say something of their own now and then (IPv6), which may come between two questions.
    let quiet = || {
        let pools = client.page_pools().ok()?;
        let is_still = pools.iter().all(|pool| pool.id > 16 * WORKERS || pool.inflight == 0);
        (is_still && posted(&pools) == client.pool().ok()?.frames_posted).then_some(pools)
    };
    let pools =
        wait::until_some("quiet ports that hold nothing, and the frames that are posted", LIMIT, quiet)?;
    let ids: BTreeSet<u32> = pools.iter().map(|pool| pool.id).collect();
    assert_eq!(ids.len(), pools.len(), "{pools:?}");
    let (rx, fill): (Vec<_>, Vec<_>) = pools.iter().partition(|pool| pool.id <= 16 * WORKERS);
    for port in &ports {
        let of_port: Vec<u32> =
            rx.iter().filter(|pool| pool.ifindex == port.ifindex).map(|pool| pool.napi_id).collect();
        assert_eq!(of_port, port.worker, "rings of {}: {pools:?}", port.name);
    }
    assert_eq!(rx.len(), ports.iter().map(|port| port.worker.len()).sum::<usize>(), "{pools:?}");
    assert_eq!(fill.iter().map(|pool| pool.napi_id).collect::<Vec<_>>(), [0, 1, 0, 1], "two lanes");
    assert!(
        posted(&pools) > 0 && fill.iter().all(|pool| pool.inflight_mem == pool.inflight * FRAME),
        "{pools:?}"
    );
    Ok(())
}

fn queues(subject: Subject) -> Outcome {
    let mut bed = Bed::new(subject)?;
    let hosts = bed.lab.hosts(2, subject.kind())?;
    bed.attach(&hosts)?;
    let client = bed.client();
    let all: Vec<NetdevQueue> = client.json(&["queue-get"])?;
    let napis: Vec<NetdevNapi> = client.json(&["napi-get"])?;
    let mut listed = 0;
    for port in client.ports()? {
        let of_port: Vec<NetdevQueue> = client.json(&["queue-get", &port.name])?;
        let directory = format!("/sys/class/net/{}/queues", port.netdev);
        let sysfs = bed.lab.switch().run("ls", &[&directory])?.stdout;
        let mut names: Vec<String> =
            of_port.iter().map(|queue| format!("{}-{}", queue.kind.name(), queue.id)).collect();
        names.sort();
        assert_eq!(names, sysfs.split_whitespace().collect::<Vec<_>>(), "{of_port:?}");
        assert!(of_port.iter().all(|queue| Some(queue.ifindex) == port.ifindex), "{of_port:?}");
        for napi in of_port.iter().filter_map(|queue| queue.napi_id) {
            assert!(napis.iter().any(|listed| listed.id == napi && Some(listed.ifindex) == port.ifindex));
        }
        listed += of_port.len();
    }
    assert_eq!(listed, all.len(), "those of all ports: {all:?}");
    let refused = client.call(&["napi-get", "nothing"])?;
    assert!(refused.stderr.contains("`nothing`"), "{}", refused.stderr);
    Ok(())
}

fn kernel_bytes(subject: Subject) -> Outcome {
    const PORTS: usize = 3;
    let mut bed = Bed::with_config(subject, &format!("[switch]\nworkers = {WORKERS}\n"))?;
    let hosts = bed.lab.hosts(PORTS, subject.kind())?;
    bed.attach(&hosts)?;
    let client = bed.client();
    let attach = if subject.kind() == PortKind::VethXdp { "xdp" } else { "tcx" };
    let (ports, workers) = (PORTS.to_string(), WORKERS.to_string());
    let asked = ["--ports", &ports, "--workers", &workers, "--attach", attach];
    assert_eq!(client.pool()?.kernel_bytes, client.estimate(&asked)?.kernel_bytes);
    Ok(())
}
