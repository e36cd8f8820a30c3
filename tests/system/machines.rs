//! Virtual machines as ports, by vhost-user: Debian's kernel with its own driver (user-mode Linux), and front ends that
//! break the rules.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use forebay_control::coalesce::{CoalesceQueue, CoalesceShow};
use forebay_control::port::{PortShow, PortState};
use forebay_testbed::bpffs::BpfFs;
use forebay_testbed::dut::{Client, Forebay, ForebayOptions};
use forebay_testbed::machine::{Machine, MachineOptions};
use forebay_testbed::measure::held::Held;
use forebay_testbed::programs::iperf::{Iperf, IperfServer};
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::relay::{Relay, RelayOptions};
use forebay_testbed::{Host, Lab, PortKind, wait};

use crate::bed::Bed;
use crate::harness::{Outcome, Subject, Suite, ensure_program};

const PORT: &str = "vm1";
const V4: Ipv4Addr = Ipv4Addr::new(10, 66, 200, 1);
const OTHER_V4: Ipv4Addr = Ipv4Addr::new(10, 66, 200, 2);
const LIMIT: Duration = Duration::from_secs(30);
const STREAM_BYTES: u64 = 32 << 20;
const PINGS: u32 = 10;
const KILLS: usize = 3;
const FLOOD_PACKETS: u64 = 1000;
const ECHO_PORT: u16 = 5002;
/// Pause between two pings beside a fault.
const PAUSE: Duration = Duration::from_millis(5);

pub fn register(suite: &mut Suite) {
    suite.heavy_on_forebay("a_virtual_machine_talks_with_a_host", |subject| talk(subject, 1, ""));
    suite.heavy_once("a_virtual_machine_with_split_rings_talks_with_a_host", || {
        talk(Subject::Forebay(PortKind::VethTcx), 1, "-packed")
    });
    suite.heavy_once("a_virtual_machine_like_those_of_2016_talks_with_a_host", || {
        talk(Subject::Forebay(PortKind::VethTcx), 1, "-packed,-in-order,-event-idx,-indirect,-mrg")
    });
    suite.heavy_once("a_virtual_machine_with_four_pairs_of_queues_talks_with_a_host", || {
        talk(Subject::Forebay(PortKind::VethTcx), 4, "")
    });
    suite.heavy_once("two_virtual_machines_of_two_workers_talk_with_each_other", two_workers);
    suite.heavy_once("a_virtual_machine_that_is_killed_under_traffic_comes_back", killed);
    suite.heavy_once("a_virtual_machine_goes_on_when_the_pool_changes_its_size", resized);
    suite.heavy_once("a_port_of_a_virtual_machine_is_there_again_after_its_daemon_was_killed", taken_over);
    suite.heavy_once("virtual_machines_go_on_after_each_kill_of_the_daemon", go_on);
    suite.heavy_once("limits_that_a_virtual_machine_asks_for_are_kept", asks_for_limits);
    suite.once("a_front_end_that_breaks_the_rules_breaks_its_own_port_alone", rubbish);
    suite.once("a_port_of_a_virtual_machine_takes_its_socket_away", socket_goes);
    suite.once("what_can_not_be_a_virtual_machine_is_refused_by_name", refused);
}

/// A switch with a host and a port for a machine.
struct Scene {
    client: Client,
    host: Host,
    bed: Bed,
}

impl Scene {
    fn new(subject: Subject, arguments: &[&str]) -> Result<Scene, Box<dyn std::error::Error>> {
        ensure_program()?;
        let mut bed = Bed::of(Lab::new("machines")?, ForebayOptions::default())?;
        let host = bed.lab.host("h1", subject.kind())?;
        bed.attach([&host])?;
        let scene = Scene { client: bed.client(), host, bed };
        scene.add(PORT, arguments)?;
        Ok(scene)
    }

    fn socket(&self, port: &str) -> PathBuf {
        self.bed.lab.path(&format!("{port}.sock"))
    }

    fn add(&self, port: &str, arguments: &[&str]) -> Outcome {
        let socket = self.socket(port).display().to_string();
        let words = [&["port", "add", port, "--vhost-user", &socket], arguments].concat();
        self.client.ok(&words)?;
        Ok(())
    }

    fn boot(&self, port: &str, v4: Ipv4Addr, pairs: u16, script: &str) -> forebay_testbed::Result<Machine> {
        let socket = self.socket(port);
        Machine::boot(
            &self.bed.lab,
            &MachineOptions { pairs, ..MachineOptions::new(port, &socket, v4, script) },
        )
    }

    fn port(&self) -> forebay_testbed::Result<PortShow> {
        self.client.port(PORT)
    }

    fn ping(&self) -> Outcome {
        let report = Ping::new(V4).count(PINGS).from(&self.host)?;
        assert!(report.is_complete(), "{report:?}");
        Ok(())
    }

    fn is_balanced(&self) -> forebay_testbed::Result<bool> {
        self.client.stats_check().map(|check| check.balanced)
    }
}

fn talk(subject: Subject, pairs: u16, mask: &str) -> Outcome {
    let scene = Scene::new(subject, &["--queues", &pairs.to_string(), &format!("--features={mask}")])?;
    assert_eq!(scene.port()?.state, PortState::Waiting);
    let server = IperfServer::start(&scene.bed.lab, &scene.host)?;
    let host = scene.host.v4();
    let send = format!("iperf3 -c {host} -n {STREAM_BYTES} | grep -E 'sender|receiver'");
    let script = format!("ping -c 3 -i 0.2 {host} | grep received; {send}; echo sent; iperf3 -s -1");
    let mut machine = scene.boot(PORT, V4, pairs, &script)?;
    machine.wait_for_output("sent")?;
    let said = machine.output();
    assert!(said.contains("3 received") && said.contains("receiver"), "{said}");
    machine.wait_for_output("Server listening")?;
    scene.ping()?;
    let shown = scene.port()?;
    assert_eq!((shown.state, shown.state_reason.as_str()), (PortState::Up, ""));
    let guest = shown.vhost_user.ok_or("it is a machine's port")?;
    assert_eq!(guest.running, (0..2 * u32::from(pairs)).collect::<Vec<_>>());
    let has = |word: &str| guest.features.iter().any(|feature| feature == word);
    assert!(mask.split(',').filter_map(|word| word.strip_prefix('-')).all(|word| !has(word)), "{guest:?}");
    let report = Iperf::bytes(STREAM_BYTES).to(&scene.host, V4.into())?;
    assert!(report.is_complete(STREAM_BYTES), "{report:?}");
    machine.wait()?;
    scene.client.wait_port_state(PORT, PortState::Waiting)?;
    drop(server);
    assert!(scene.is_balanced()?);
    Ok(())
}

fn two_workers() -> Outcome {
    ensure_program()?;
    let options = ForebayOptions::with_config("[switch]\nworkers = 2\n");
    let mut bed = Bed::of(Lab::new("machines")?, options)?;
    let host = bed.lab.host("h1", PortKind::VethTcx)?;
    bed.attach([&host])?;
    let scene = Scene { client: bed.client(), host, bed };
    for port in [PORT, "vm2"] {
        scene.add(port, &[])?;
    }
    let workers: Vec<_> =
        [PORT, "vm2"].iter().map(|port| scene.client.port(port).map(|port| port.worker)).collect();
    assert_ne!(workers[0].as_ref().ok(), workers[1].as_ref().ok(), "each has a worker of its own");
    let mut server = scene.boot(PORT, V4, 1, "iperf3 -s -1")?;
    server.wait_for_output("Server listening")?;
    let script =
        format!("ping -c 3 -i 0.2 {V4} | grep received; iperf3 -c {V4} -n {STREAM_BYTES}; echo sent");
    let said = scene.boot("vm2", OTHER_V4, 1, &script)?.wait()?;
    assert!(said.contains("3 received") && said.contains("receiver"), "{said}");
    server.wait()?;
    assert!(scene.is_balanced()?);
    Ok(())
}

fn killed() -> Outcome {
    let mut scene = Scene::new(Subject::Forebay(PortKind::VethTcx), &[])?;
    let others = [scene.bed.lab.host("h2", PortKind::VethTcx)?, scene.bed.lab.host("h3", PortKind::VethTcx)?];
    scene.bed.attach(&others)?;
    let pid = scene.bed.forebay().daemon().pid();
    let script = format!("ping -f -s 1000 -c 10000000 {} >/dev/null", scene.host.v4());
    let one_killed = || -> forebay_testbed::Result<()> {
        let machine = scene.boot(PORT, V4, 1, &script)?;
        let before = scene.port()?.counters.rx_packets;
        let floods = || scene.port().is_ok_and(|port| port.counters.rx_packets > before + FLOOD_PACKETS);
        wait::until("the machine's packets", LIMIT, floods)?;
        machine.kill();
        scene.client.wait_port_state(PORT, PortState::Waiting)
    };
    // The first leaves behind what is made once.
    one_killed()?;
    let before = Held::by(pid);
    let log = scene.bed.lab.path("ping.log");
    let kills = || (0..KILLS).try_for_each(|_| one_killed());
    let (_, report, _) = Ping::new(others[1].v4()).every(PAUSE).during(&others[0], &log, kills)?;
    // Nobody waits for the reply to the last request.
    assert!(report.received + 1 >= report.sent && report.duplicates == 0, "{report:?}");
    before.wait_until_again_by(pid, LIMIT)?;
    let mut machine = scene.boot(PORT, V4, 1, "iperf3 -s -1")?;
    machine.wait_for_output("Server listening")?;
    scene.ping()?;
    machine.kill();
    scene.client.wait_port_state(PORT, PortState::Waiting)?;
    assert!(scene.is_balanced()?);
    Ok(())
}

/// Each has split rings, or packed rings and a front end that keeps the daemon's notes.
fn go_on() -> Outcome {
    ensure_program()?;
    let mut lab = Lab::new("machines")?;
    let pins = BpfFs::mount(&lab)?;
    let host = lab.host("h1", PortKind::VethTcx)?;
    let mut daemon = Forebay::start(&lab, ForebayOptions::default().handing_over(&pins))?;
    daemon.client().ok(&["port", "add", "h1"])?;
    let script = format!("echo serving; busybox nc -ll -p {ECHO_PORT} -e cat");
    let mut guests = Vec::new();
    for (port, v4, mask) in [("split", V4, "-packed"), ("packed", OTHER_V4, "")] {
        let [switch, socket] = ["sock", "relay"].map(|end| lab.path(&format!("{port}.{end}")));
        let (path, features) = (switch.display().to_string(), format!("--features={mask}"));
        daemon.client().ok(&["port", "add", port, "--vhost-user", &path, &features])?;
        let options = RelayOptions { keeps_notes: mask.is_empty(), ..RelayOptions::default() };
        let relay = Relay::start(&socket, &switch, &options)?;
        let options = MachineOptions::new(port, &socket, v4, &script);
        let mut machine = Machine::boot(&lab, &options)?;
        machine.wait_for_output("serving")?;
        let connect = || host.netns().enter(|| TcpStream::connect((v4, ECHO_PORT)).ok()).ok()?;
        let connection = wait::until_some("the machine's server", LIMIT, connect)?;
        connection.set_read_timeout(Some(LIMIT))?;
        guests.push((machine, relay, connection));
    }
    for number in 0..KILLS as u8 {
        daemon.kill()?;
        daemon = Forebay::start(&lab, ForebayOptions::default().handing_over(&pins))?;
        for (_, _, connection) in &mut guests {
            // Over the connection that was there before the first kill.
            connection.write_all(&[number])?;
            let mut echo = [!number];
            connection.read_exact(&mut echo)?;
            assert_eq!(echo, [number]);
        }
    }
    assert!(guests.iter_mut().all(|(machine, ..)| machine.is_running()));
    assert!(daemon.client().stats_check()?.balanced);
    Ok(())
}

fn resized() -> Outcome {
    let scene = Scene::new(Subject::Forebay(PortKind::VethTcx), &[])?;
    let mut machine = scene.boot(PORT, V4, 1, "iperf3 -s -1")?;
    machine.wait_for_output("Server listening")?;
    scene.ping()?;
    for frames in ["8192", "32768"] {
        scene.client.ok(&["pool", "set", "--frames", frames])?;
        scene.ping()?;
    }
    assert!(scene.is_balanced()?);
    Ok(())
}

/// Its own `ethtool -C`, over the control queue.
fn asks_for_limits() -> Outcome {
    let scene = Scene::new(Subject::Forebay(PortKind::VethTcx), &[])?;
    let script =
        "ethtool -C eth0 rx-usecs 32 rx-frames 16 tx-usecs 64 tx-frames 8 && echo asked; iperf3 -s -1";
    scene.client.ok(&["coalesce", "set", PORT, "--policy", "static", "--usecs", "256", "--frames", "12"])?;
    let mut machine = scene.boot(PORT, V4, 1, script)?;
    machine.wait_for_output("Server listening")?;
    assert!(machine.output().contains("asked"), "{}", machine.output());
    let queues = || -> Result<Vec<CoalesceQueue>, Box<dyn std::error::Error>> {
        let shown: CoalesceShow = scene.client.json(&["coalesce", "show", PORT])?;
        Ok(shown.ports.into_iter().flat_map(|port| port.queues).collect())
    };
    let in_force = |wanted: [(u32, u32); 2]| {
        wait::until("the limits in force", LIMIT, || {
            queues()
                .is_ok_and(|queues| queues.iter().map(|queue| (queue.usecs_now, queue.frames_now)).eq(wanted))
        })
    };
    let asked: Vec<_> = queues()?.iter().map(|queue| (queue.usecs_asked, queue.frames_asked)).collect();
    assert_eq!(asked, [(Some(32), Some(16)), (Some(64), Some(8))]);
    in_force([(32, 12), (64, 8)])?;
    scene.client.ok(&["coalesce", "set", PORT, "--guest", "decides"])?;
    in_force([(32, 16), (64, 8)])?;
    scene.client.ok(&["coalesce", "set", PORT, "--guest", "ignored"])?;
    in_force([(256, 12), (256, 12)])?;
    scene.ping()?;
    machine.kill();
    scene.client.wait_port_state(PORT, PortState::Waiting)?;
    assert!(queues()?.iter().all(|queue| queue.usecs_asked.is_none()), "the next guest asks for nothing");
    Ok(())
}

/// Linux in user mode does not connect twice, so another machine does.
fn taken_over() -> Outcome {
    ensure_program()?;
    let mut lab = Lab::new("machines")?;
    let pins = BpfFs::mount(&lab)?;
    let host = lab.host("h1", PortKind::VethTcx)?;
    let socket = lab.path(&format!("{PORT}.sock"));
    let mut daemon = Forebay::start(&lab, ForebayOptions::default().handing_over(&pins))?;
    daemon.client().ok(&["port", "add", "h1"])?;
    daemon.client().ok(&["port", "add", PORT, "--vhost-user", &socket.display().to_string()])?;
    for _ in 0..2 {
        let options = MachineOptions::new(PORT, &socket, V4, "iperf3 -s -1");
        let mut machine = Machine::boot(&lab, &options)?;
        machine.wait_for_output("Server listening")?;
        let report = Ping::new(V4).count(PINGS).from(&host)?;
        assert!(report.is_complete(), "{report:?}");
        daemon.kill()?;
        machine.kill();
        daemon = Forebay::start(&lab, ForebayOptions::default().handing_over(&pins))?;
        daemon.client().wait_port_state(PORT, PortState::Waiting)?;
    }
    Ok(())
}

/// A message that says it has more bytes than any.
const TOO_LONG: [u8; 12] = [1, 0, 0, 0, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f];
/// A request that no back end knows.
const UNKNOWN: [u8; 12] = [0xe7, 3, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
/// The beginning of a message.
const HALF: [u8; 6] = [1, 0, 0, 0, 1, 0];

fn rubbish() -> Outcome {
    let mut scene = Scene::new(Subject::Forebay(PortKind::VethTcx), &[])?;
    let beside = scene.bed.lab.host("h2", PortKind::VethTcx)?;
    scene.bed.attach([&beside])?;
    for message in [&TOO_LONG[..], &UNKNOWN] {
        let mut stream = UnixStream::connect(scene.socket(PORT))?;
        stream.write_all(message)?;
        // The switch closes the connection.
        stream.set_read_timeout(Some(LIMIT))?;
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        scene.client.wait_port_state(PORT, PortState::Broken)?;
        assert!(!scene.port()?.state_reason.is_empty());
    }
    // One that sends half a message keeps nobody waiting.
    let mut silent = UnixStream::connect(scene.socket(PORT))?;
    silent.write_all(&HALF)?;
    scene.client.wait_port_state(PORT, PortState::Negotiating)?;
    let report = Ping::new(beside.v4()).count(PINGS).from(&scene.host)?;
    assert!(report.is_complete(), "{report:?}");
    scene.add("vm2", &[])?;
    drop(silent);
    scene.client.wait_port_state(PORT, PortState::Waiting)?;
    let mut machine = scene.boot(PORT, V4, 1, "iperf3 -s -1")?;
    machine.wait_for_output("Server listening")?;
    scene.ping()
}

fn socket_goes() -> Outcome {
    let mut scene = Scene::new(Subject::Forebay(PortKind::VethTcx), &[])?;
    let socket = scene.socket(PORT);
    assert!(socket.exists());
    let mut machine = scene.boot(PORT, V4, 1, "iperf3 -s -1")?;
    machine.wait_for_output("Server listening")?;
    scene.client.ok(&["port", "del", PORT])?;
    assert!(!socket.exists());
    assert!(scene.is_balanced()?);
    machine.kill();
    // The same name and path again, and a switch that ends.
    scene.add(PORT, &[])?;
    let mut machine = scene.boot(PORT, V4, 1, "iperf3 -s -1")?;
    machine.wait_for_output("Server listening")?;
    scene.ping()?;
    scene.bed.forebay().stop()?;
    wait::until("the socket to go", LIMIT, || !socket.exists())?;
    Ok(())
}

fn refused() -> Outcome {
    let scene = Scene::new(Subject::Forebay(PortKind::VethTcx), &[])?;
    let file = scene.bed.lab.path("file");
    std::fs::write(&file, "precious")?;
    let (file, used) = (file.display().to_string(), scene.socket(PORT).display().to_string());
    let cases: [(&[&str], &str); 6] = [
        (&["--vhost-user", "vm2.sock"], "an absolute path"),
        (&["--vhost-user", "/nowhere/vm2.sock"], "cannot listen in /nowhere"),
        (&["--vhost-user", &file], "no socket"),
        (&["--vhost-user", &used], "another program listens there"),
        (&["--vhost-user", "/tmp/vm2.sock", "--queues", "17"], "1 to 16"),
        (&["--vhost-user", "/tmp/vm2.sock", "--features=-tso"], "`tso` is no virtio feature"),
    ];
    for (arguments, expected) in cases {
        let said = scene.client.call(&[&["port", "add", "vm2"], arguments].concat())?;
        assert!(!said.status.success() && said.stderr.contains(expected), "{arguments:?}: {said:?}");
    }
    assert_eq!(std::fs::read_to_string(&file)?, "precious");
    Ok(())
}
