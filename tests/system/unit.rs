//! The systemd unit, as installed: what a stop, a restart and a crash leave, and to whom.

use std::time::Duration;

use forebay_testbed::programs::hints::PROGRAMS;
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::systemd::Systemd;
use forebay_testbed::{Host, Lab, PortKind, wait};

use crate::bed::take_frames;
use crate::faults::traces;
use crate::harness::{Outcome, Subject, Suite, ensure_program};

const LIMIT: Duration = Duration::from_secs(20);
const PINS: &str = "/sys/fs/bpf/forebay";

pub fn register(suite: &mut Suite) {
    suite.on_netdevs("a_service_that_is_restarted_goes_on_and_one_that_is_stopped_leaves_nothing", restart);
    suite.on_netdevs("a_service_that_crashed_is_started_again_and_goes_on", crash);
    suite.on_netdevs("every_verb_works_under_the_restrictions_of_the_unit", verbs);
    suite.once("what_the_unit_forbids_fails_under_it_and_works_without", forbidden);
    suite.once("members_of_the_reading_group_read_and_change_nothing", groups);
    suite.once("a_service_that_stands_still_is_started_again_and_goes_on", stands_still);
    suite.once("a_service_that_does_not_hear_the_stop_leaves_no_pins", deaf);
    suite.once("what_another_user_left_to_a_service_is_named_with_the_way_out", of_another_user);
}

/// The service at work between two hosts, whose packets the kernel carries.
struct Scene {
    // In this order: the service and the hosts before the lab they are in.
    systemd: Systemd,
    hosts: Vec<Host>,
    lab: Lab,
}

impl Scene {
    fn new(subject: Subject) -> Result<Scene, Box<dyn std::error::Error>> {
        ensure_program()?;
        let mut lab = Lab::new("unit")?;
        let hosts = lab.hosts(2, subject.kind())?;
        hosts.iter().try_for_each(take_frames)?;
        let ports = hosts.iter().map(|host| format!("[[port]]\nnetdev = \"{}\"\n", host.name()));
        let systemd = Systemd::boot(&lab, &ports.collect::<String>())?;
        systemd.systemctl(&["start", "forebay"])?;
        let scene = Scene { systemd, hosts, lab };
        wait::until("flows both ways", LIMIT, || {
            scene.ping().is_ok()
                && scene.carried().is_ok_and(|by_port| by_port.iter().all(|count| *count > 0))
        })?;
        Ok(scene)
    }

    fn ping(&self) -> Outcome {
        let report = Ping::new(self.hosts[1].v4()).from(&self.hosts[0])?;
        if report.is_complete() { Ok(()) } else { Err(format!("{report:?}").into()) }
    }

    /// Packets of each port that the kernel carried, over all daemons that handed over to each other.
    fn carried(&self) -> Result<Vec<u64>, Box<dyn std::error::Error>> {
        let ports = self.systemd.client()?.ports()?;
        Ok(ports.iter().map(|port| port.counters.offloaded_packets).collect())
    }

    fn daemon(&self) -> Result<String, Box<dyn std::error::Error>> {
        Ok(self.systemd.property("MainPID")?)
    }

    /// Adds these lines to the unit's section `[Service]`.
    fn change_unit(&self, lines: &str) -> Outcome {
        const FOLDER: &str = "etc/systemd/system/forebay.service.d";
        self.systemd.run("mkdir", &["-p", &format!("/{FOLDER}")])?;
        self.systemd.write(&format!("{FOLDER}/test.conf"), &format!("[Service]\n{lines}\n"))?;
        self.systemd.systemctl(&["daemon-reload"])?;
        Ok(())
    }

    /// Waits until the service has another daemon than `first`.
    fn wait_for_another(&self, first: &str) -> Outcome {
        wait::until("another daemon", LIMIT, || {
            self.systemd.property("ActiveState").is_ok_and(|state| state == "active")
                && self.daemon().is_ok_and(|now| now != first && now != "0")
        })?;
        Ok(())
    }

    /// Both ports are there, and what the kernel carried was counted on.
    fn assert_counted_on(&self, before: &[u64]) -> Outcome {
        let after = self.carried()?;
        let is_counted_on =
            after.len() == 2 && after.iter().zip(before).all(|(after, before)| after > before);
        assert!(is_counted_on, "{before:?} {after:?}\n{}", self.systemd.log());
        Ok(())
    }

    /// The service has stopped, and nothing is attached any more.
    fn assert_detached(&self) -> Outcome {
        let is_clean = || traces(&self.lab).is_ok_and(|left| left.is_empty());
        Ok(wait::until("everything to be detached", LIMIT, is_clean)?)
    }

    /// Pings all the while that something is done to the service; none may get lost.
    fn undisturbed_by(&self, change: impl FnOnce() -> Outcome) -> Outcome {
        let (report, changed) = std::thread::scope(|scope| {
            let ping = Ping::new(self.hosts[1].v4()).count(300).every(Duration::from_millis(10));
            let pinging = scope.spawn(move || ping.from(&self.hosts[0]));
            let changed = change();
            (pinging.join().expect("pinging does not panic"), changed)
        });
        changed?;
        let report = report?;
        assert!(report.is_complete(), "{report:?}\n{}", self.systemd.log());
        Ok(())
    }
}

fn restart(subject: Subject) -> Outcome {
    let scene = Scene::new(subject)?;
    let (first, before) = (scene.daemon()?, scene.carried()?);
    scene.undisturbed_by(|| {
        scene.systemd.systemctl(&["restart", "forebay"])?;
        Ok(())
    })?;
    let second = scene.daemon()?;
    assert_ne!(first, second);
    scene.assert_counted_on(&before)?;

    let user = scene.systemd.run("ps", &["-o", "user=", "-p", &second])?.stdout;
    assert_eq!(user.trim(), "forebay");

    scene.systemd.systemctl(&["stop", "forebay"])?;
    assert_eq!(scene.systemd.property("Result")?, "success");
    let left = scene.systemd.run("ls", &["-A", PINS, "/run"])?.stdout;
    assert!(!left.contains("run-forebay") && !left.contains("\nforebay\n"), "{left}");
    scene.assert_detached()
}

fn crash(subject: Subject) -> Outcome {
    let scene = Scene::new(subject)?;
    let (first, before) = (scene.daemon()?, scene.carried()?);
    scene.undisturbed_by(|| {
        scene.systemd.systemctl(&["kill", "--signal=KILL", "forebay"])?;
        scene.wait_for_another(&first)
    })?;
    scene.assert_counted_on(&before)
}

fn verbs(subject: Subject) -> Outcome {
    ensure_program()?;
    let mut lab = Lab::new("unit")?;
    let hosts = lab.hosts(3, subject.kind())?;
    let config = "[api]\nallow_programs = true\n[switch]\nworkers = 2\ncpus = [0, 1]\n[metrics]\nlisten = \"127.0.0.1:9478\"\n";
    let systemd = Systemd::boot(&lab, config)?;
    systemd.systemctl(&["start", "forebay"])?;
    let client = systemd.client()?;
    let attach = if subject.kind() == PortKind::VethXdp { "xdp" } else { "auto" };
    let file = lab.path("capture.pcapng").display().to_string();
    let object = PROGRAMS[0].compile(&lab)?.display().to_string();
    let with_program = ["hints", "set", "h1", "--program", &object];
    let mac = "02:00:00:00:00:77";
    let said: [&[&str]; 44] = [
        &["port", "add", "--attach", attach, "h1", "h2", "h3"],
        &["port", "set", "h3", "--vlan", "access:10", "--isolated", "on"],
        &["port", "list"],
        &["port", "show", "h3"],
        &["fdb", "add", mac, "--port", "h1"],
        &["fdb", "list"],
        &["fdb", "del", mac],
        &["fdb", "flush"],
        &["flow", "add", "--priority", "9", "--ip-proto", "tcp", "--dport", "23", "--action", "drop"],
        &["flow", "list"],
        &["flow", "del", "1"],
        &["flow", "flush"],
        &["stats"],
        &["stats", "--workers"],
        &["stats", "--workers", "--clear"],
        &["stats", "--latency"],
        &["pool", "show"],
        &["pool", "set", "h1", "--th", "8"],
        &["pool", "set", "h1", "--static", "65536", "--reserve", "8"],
        &["pool", "set", "--policy", "headroom"],
        &["pool", "set", "--frames", "8192"],
        &["pool", "occupancy", "snapshot"],
        &["pool", "occupancy", "show"],
        &["pool", "occupancy", "clearmax"],
        &["pool", "estimate", "--ports", "10"],
        &["page-pool-get"],
        &["queue-get"],
        &["napi-get", "h1"],
        &["eswitch", "set", "spool-mode", "basic"],
        &["eswitch", "set", "spool-mode", "none"],
        &["eswitch", "set", "spool-mode", "spp"],
        &["eswitch", "set", "offload", "off"],
        &["eswitch", "set", "offload", "on"],
        &["eswitch", "show"],
        &["rxq", "show"],
        &["rxq", "set", "h1", "--depth", "256", "--refill", "adaptive", "--low", "64"],
        &["rxq", "set", "--collector", "--refill", "adaptive"],
        &["hints", "set", "h1", "on"],
        if attach == "xdp" { &with_program } else { &["hints", "show"] },
        &["hints", "show"],
        &["hints", "set", "h1", "off"],
        &["capture", "h1", "--seconds", "1", "-w", &file],
        &["doctor"],
        &["port", "del", "h3"],
    ];
    for verb in said {
        client.ok(verb).map_err(|error| format!("{error}\n{}", systemd.log()))?;
    }
    // A worker that fills a ring while it is asked moves frames between two of the numbers.
    wait::until("the counters to balance", LIMIT, || client.ok(&["stats", "--check"]).is_ok())?;
    systemd.write(
        "etc/forebay/forebay.toml",
        &format!("{config}[[port]]\nnetdev = \"h3\"\nattach = \"{attach}\"\n"),
    )?;
    systemd.systemctl(&["reload", "forebay"])?;
    wait::until("the port of the new file", LIMIT, || client.ports().is_ok_and(|ports| ports.len() == 3))?;
    systemd.run("bash", &["-c", "exec 3<>/dev/tcp/127.0.0.1/9478 && echo hello >&3"])?;
    for pair in [[0, 1], [1, 2], [2, 0]] {
        let report = Ping::new(hosts[pair[1]].v4()).from(&hosts[pair[0]])?;
        assert!(report.is_complete(), "{report:?}\n{}", systemd.log());
    }
    systemd.systemctl(&["restart", "forebay"])?;
    assert_eq!(client.ports()?.len(), 3);
    systemd.systemctl(&["stop", "forebay"])?;
    assert_eq!(systemd.property("Result")?, "success");
    let refused = ["Operation not permitted", "os error 1)", "Permission denied"];
    let log = systemd.log();
    assert!(!refused.iter().any(|said| log.contains(said)), "{log}");
    Ok(())
}

/// A service that tries what is forbidden, as the daemon under whatever the unit says.
fn forbidden() -> Outcome {
    const TRIES: [(&str, &str); 6] = [
        ("priority", "renice -n 5 -p $$"),
        ("user-namespace", "unshare --user true"),
        ("others", "test -e /proc/1/status"),
        ("core", "test $(ulimit -c) != 0"),
        ("umask", "test $(umask) != 0077"),
        ("system", "touch /usr/local/x /var/x"),
    ];
    let tries = TRIES.map(|(name, try_it)| format!("({try_it}) >/dev/null 2>&1 && echo {name}\n"));
    let script = format!("#!/bin/bash\n{}true\n", tries.concat());
    ensure_program()?;
    let lab = Lab::new("unit")?;
    let systemd = Systemd::boot(&lab, "")?;
    systemd.write("usr/local/bin/try.sh", &script)?;
    systemd.run("chmod", &["755", "/usr/local/bin/try.sh"])?;
    let unit = systemd.read("usr/local/lib/systemd/system/forebay.service");
    let (_, rest) = unit.split_once("[Service]").ok_or("no [Service]")?;
    let (service, _) = rest.split_once("[Install]").ok_or("no [Install]")?;
    let is_kept = |line: &&str| {
        !["Type=", "Exec", "Restart", "RuntimeDirectory", "BindPaths="]
            .iter()
            .any(|key| line.starts_with(key))
    };
    let restrictions: Vec<_> = service.lines().filter(is_kept).collect();
    let head = "Type=oneshot\nExecStart=/usr/local/bin/try.sh\nStandardOutput=append:/run/try";
    // The same user and capabilities, so that nothing else can be why it fails.
    let is_power = |line: &&&str| {
        ["User=", "Group=", "Supplementary", "Capability", "Ambient"].iter().any(|key| line.starts_with(key))
    };
    let free: Vec<_> = restrictions.iter().filter(is_power).copied().collect();
    for (name, lines) in [("restricted", restrictions.join("\n")), ("free", free.join("\n"))] {
        systemd.write(
            &format!("etc/systemd/system/{name}.service"),
            &format!("[Service]\n{head}-{name}\n{lines}\n"),
        )?;
    }
    systemd.systemctl(&["daemon-reload"])?;
    systemd.systemctl(&["start", "restricted", "free"])?;
    assert_eq!(systemd.read("run/try-restricted"), "", "worked under the unit");
    let worked = systemd.read("run/try-free");
    for name in ["priority", "user-namespace", "others", "umask"] {
        assert!(worked.lines().any(|line| line == name), "{name} did not work without the unit: {worked}");
    }
    Ok(())
}

fn groups() -> Outcome {
    ensure_program()?;
    let lab = Lab::new("unit")?;
    let systemd = Systemd::boot(&lab, "[api]\nread_only_group = \"forebay-ro\"\n")?;
    systemd.systemctl(&["start", "forebay"])?;
    let as_member = |groups: &str, args: &[&str]| {
        let user = ["--reuid", "65534", "--regid", "65534", groups, "/usr/local/bin/forebay"];
        systemd.run("setpriv", &[&user, args].concat()).map_err(|error| error.to_string())
    };
    let refused = |groups: &str, args: &[&str], said: &[&str]| {
        let error = as_member(groups, args).expect_err("a refusal");
        assert!(said.iter().all(|said| error.contains(said)), "{groups} {args:?}: {error}");
    };
    let (nobody, reader, changer) = ("--clear-groups", "--groups=forebay-ro", "--groups=forebay");
    let reading_socket = ["--socket", "/run/forebay/forebay-ro.sock"];
    for verb in
        [&["port", "list"][..], &["stats"], &["pool", "show"], &["flow", "list"], &["eswitch", "show"]]
    {
        as_member(reader, verb)?;
        as_member(reader, &[&reading_socket, verb].concat())?;
        as_member(changer, verb)?;
        refused(nobody, verb, &["no permission for /run/forebay/forebay.sock", "forebay-ro.sock"]);
    }
    for verb in
        [&["fdb", "flush"][..], &["pool", "occupancy", "snapshot"], &["stats", "--workers", "--clear"]]
    {
        refused(reader, verb, &["no permission for /run/forebay/forebay.sock"]);
        let said = ["this socket is read-only", "use the socket /run/forebay/forebay.sock"];
        refused(reader, &[&reading_socket, verb].concat(), &said);
        as_member(changer, verb)?;
    }
    refused(reader, &["capture", "a"], &["this socket is read-only"]);
    Ok(())
}

fn stands_still() -> Outcome {
    let scene = Scene::new(Subject::Forebay(PortKind::VethTcx))?;
    // The watchdog does not wait for a minute.
    scene.change_unit("WatchdogSec=6")?;
    scene.systemd.systemctl(&["restart", "forebay"])?;
    let (first, before) = (scene.daemon()?, scene.carried()?);
    scene.systemd.systemctl(&["kill", "--signal=STOP", "forebay"])?;
    scene.wait_for_another(&first)?;
    scene.ping()?;
    scene.assert_counted_on(&before)
}

fn deaf() -> Outcome {
    let scene = Scene::new(Subject::Forebay(PortKind::VethTcx))?;
    // A daemon that hangs when it is told to stop: the signal that it is sent instead says nothing to it.
    scene.change_unit("KillSignal=SIGCONT\nTimeoutStopSec=1")?;
    scene.systemd.systemctl(&["stop", "forebay"])?;
    assert_eq!(scene.systemd.property("Result")?, "timeout");
    assert_eq!(scene.systemd.run("find", &[PINS, "-mindepth", "1"])?.stdout, "");
    scene.assert_detached()
}

fn of_another_user() -> Outcome {
    ensure_program()?;
    let lab = Lab::new("unit")?;
    let systemd = Systemd::boot(&lab, "")?;
    systemd.run("mkdir", &["-p", &format!("{PINS}/run-forebay-forebay-sock")])?;
    let refusal = systemd.systemctl(&["start", "forebay"]).expect_err("the pins are root's").to_string();
    assert!(refusal.contains("run-forebay-forebay-sock belongs to the user with id 0: run as"), "{refusal}");
    Ok(())
}
