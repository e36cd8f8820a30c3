//! Interrupt moderation of ports on netdevs: of a tap, whose driver takes `rx-frames`, and of a veth with NAPI, for which
//! the kernel takes limits.

mod left;
mod stated;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_control::coalesce::{CoalesceBy, CoalesceNetdev, CoalescePolicy, CoalesceShow, CoalesceValues};
use forebay_control::port::{PortSpec, PortState};
use forebay_testbed::bpffs::BpfFs;
use forebay_testbed::dut::{self, Client, Dut as _, Forebay, ForebayOptions};
use forebay_testbed::frame::Frame;
use forebay_testbed::packet_io::FrameSocket;
use forebay_testbed::{Host, Lab, LabError, Netns, PortKind, Result, wait};

use crate::harness::{Outcome, Suite, ensure_program};

const TAP: &str = "tap0";
const VETH: &str = "veth0";
/// What an administrator had set.
const BEFORE: &str = "5";
const LIMIT: Duration = Duration::from_secs(20);

pub fn register(suite: &mut Suite) {
    stated::register(suite);
    left::register(suite);
    suite.once("limits_of_a_netdev_are_those_that_its_driver_takes", by_driver);
    suite.once("limits_of_a_netdev_without_coalescing_are_those_of_its_napi_instances", by_napi);
    suite.once("what_a_netdev_was_moderated_by_is_put_back_after_its_daemon_was_killed", killed);
    suite.once("how_a_netdev_is_moderated_is_there_again_with_handover", taken_over);
    suite.once("a_policy_moves_the_limits_of_a_netdev_from_outside", moved);
    suite.once("what_a_netdev_does_not_take_is_refused_by_name", refused);
}

/// A switch with a tap and a veth as ports.
struct Scene {
    // In this order: the daemon before the lab it is in.
    daemon: Forebay,
    lab: Lab,
    pins: BpfFs,
}

impl Scene {
    fn new(
        options: impl FnOnce(&BpfFs) -> ForebayOptions,
    ) -> std::result::Result<Scene, Box<dyn std::error::Error>> {
        let mut scene = Scene::without_ports(options)?;
        scene.daemon.add_ports(&[PortSpec::new(TAP), PortSpec::new(VETH)])?;
        scene.daemon.client().wait_port_state(VETH, PortState::Up)?;
        Ok(scene)
    }

    fn without_ports(
        options: impl FnOnce(&BpfFs) -> ForebayOptions,
    ) -> std::result::Result<Scene, Box<dyn std::error::Error>> {
        ensure_program()?;
        let lab = Lab::new("netdevs")?;
        let pins = BpfFs::mount(&lab)?;
        let switch = lab.switch();
        switch.ip(&["tuntap", "add", TAP, "mode", "tap"])?;
        switch.run("ethtool", &["-C", TAP, "rx-frames", BEFORE])?;
        make_veth(&lab)?;
        let daemon = Forebay::start(&lab, options(&pins))?;
        Ok(Scene { daemon, lab, pins })
    }

    /// What `ethtool` says of the tap.
    fn frames(&self) -> Result<String> {
        frames_in(self.lab.switch())
    }

    /// `gro-flush-timeout` and `defer-hard-irqs` of each NAPI instance of the veth, with its id.
    fn deferrals(&self) -> Result<Vec<(u32, u64, u32)>> {
        let napis = self.netdev(VETH)?.napis;
        let number = |napi: forebay_control::netdev_queue::NetdevNapi| {
            (napi.id, napi.gro_flush_timeout.unwrap_or_default(), napi.defer_hard_irqs.unwrap_or_default())
        };
        Ok(napis.into_iter().map(number).collect())
    }

    fn netdev(&self, port: &str) -> Result<CoalesceNetdev> {
        netdev(self.daemon.client(), port)
    }

    fn set(&self, words: &[&str]) -> Result<()> {
        self.daemon.client().ok(&[&["coalesce", "set"], words].concat()).map(drop)
    }

    /// Switches GRO of the veth, which makes its NAPI instances and ends them. `false`: this kernel has no napi-set.
    fn gro(&self, word: &str) -> Result<bool> {
        self.lab.switch().ethtool(VETH, &["gro", word])?;
        Ok(word == "off" || self.netdev(VETH)?.by == CoalesceBy::Napi)
    }

    fn wait_for_deferral(&self, usecs: u64, polls: u32) -> Result<()> {
        let is_set = |found: &[(u32, u64, u32)]| {
            !found.is_empty() && found.iter().all(|(_, ns, defer)| (*ns, *defer) == (1000 * usecs, polls))
        };
        wait::until("its NAPI instances to be set", LIMIT, || {
            self.deferrals().is_ok_and(|found| is_set(&found))
        })
    }

    /// The veth takes no limits, and says why.
    fn wait_for_problem(&self) -> Result<()> {
        let has_problem = |netdev: CoalesceNetdev| !netdev.rx.problem.is_empty();
        wait::until("the netdev to say why", LIMIT, || self.netdev(VETH).is_ok_and(has_problem))
    }
}

/// What `ethtool` says of the tap in this namespace.
fn frames_in(netns: &Netns) -> Result<String> {
    let said = netns.run("ethtool", &["-c", TAP])?.stdout;
    let frames = said.lines().find_map(|line| line.strip_prefix("rx-frames:"));
    Ok(frames.unwrap_or_default().trim().to_owned())
}

fn make_veth(lab: &Lab) -> Result<()> {
    lab.switch().ip(&["link", "add", VETH, "up", "type", "veth", "peer", "name", "other"])?;
    lab.switch().ip(&["link", "set", "other", "up"]).map(drop)
}

/// The first netdev of a port.
fn netdev(client: &Client, port: &str) -> Result<CoalesceNetdev> {
    let shown: CoalesceShow = client.json(&["coalesce", "show", port])?;
    let first = shown.ports.into_iter().flat_map(|port| port.netdevs).next();
    first.ok_or_else(|| LabError::output("coalesce show", "no netdev"))
}

fn without_napi_set() -> Outcome {
    println!("SKIP: napi-set (Linux 6.13)");
    Ok(())
}

fn by_driver() -> Outcome {
    let mut scene = Scene::new(|_| ForebayOptions::default())?;
    let shown = scene.netdev(TAP)?;
    let frames = CoalesceValues { frames: Some(5), ..CoalesceValues::default() };
    assert_eq!(
        (shown.by, shown.rx.now, shown.tx.now),
        (CoalesceBy::Ethtool, frames, CoalesceValues::default())
    );
    let all: CoalesceShow = scene.daemon.client().json(&["coalesce", "show"])?;
    assert_eq!(all.ports, [], "nothing is moderated, and no device is there");

    scene.set(&[TAP, "--policy", "static", "--frames", "32"])?;
    assert_eq!(scene.frames()?, "32");
    scene.set(&[TAP, "--frames", "16"])?;
    assert_eq!(scene.frames()?, "16");
    let shown = scene.netdev(TAP)?;
    assert_eq!(
        (shown.rx.setting.policy, shown.tx.setting.policy),
        (CoalescePolicy::Static, CoalescePolicy::Off)
    );
    scene.set(&[TAP, "--policy", "off"])?;
    assert_eq!(scene.frames()?, BEFORE);

    scene.set(&[TAP, "--policy", "static", "--frames", "32"])?;
    scene.daemon.delete_port(TAP)?;
    assert_eq!(scene.frames()?, BEFORE, "the port is gone");
    scene.daemon.add_ports(&[PortSpec::new(TAP)])?;
    assert_eq!(scene.netdev(TAP)?.rx.setting.policy, CoalescePolicy::Off);
    scene.set(&[TAP, "--policy", "static", "--frames", "32"])?;
    scene.daemon.stop()?;
    assert_eq!(scene.frames()?, BEFORE, "the daemon has ended");
    Ok(())
}

fn by_napi() -> Outcome {
    let mut scene = Scene::new(|_| ForebayOptions::default())?;
    assert_eq!(scene.netdev(VETH)?.by, CoalesceBy::None, "a veth has no NAPI without GRO and XDP");
    if !scene.gro("on")? {
        return without_napi_set();
    }
    scene.set(&[VETH, "--policy", "static", "--usecs", "20", "--frames", "128"])?;
    let set = scene.deferrals()?;
    assert!(set.iter().all(|(_, ns, polls)| (*ns, *polls) == (20_000, 2)), "{set:?}");
    assert_eq!(scene.netdev(VETH)?.rx.now.usecs, Some(20));

    // Other instances come, which know nothing of it.
    scene.gro("off")?;
    scene.wait_for_problem()?;
    scene.gro("on")?;
    scene.wait_for_deferral(20, 2)?;
    let again = scene.deferrals()?;
    assert_ne!(again[0].0, set[0].0);
    assert_eq!(scene.netdev(VETH)?.rx.problem, "");

    // Another netdev of this name, which takes nothing at first.
    let switch = scene.lab.switch();
    switch.ip(&["link", "del", VETH])?;
    scene.daemon.client().wait_port_state(VETH, PortState::NetdevMissing)?;
    make_veth(&scene.lab)?;
    scene.daemon.client().wait_port_state(VETH, PortState::Up)?;
    scene.wait_for_problem()?;
    scene.gro("on")?;
    scene.wait_for_deferral(20, 2)?;
    let again = scene.deferrals()?;

    scene.daemon.delete_port(VETH)?;
    scene.daemon.add_ports(&[PortSpec::new(VETH)])?;
    let after: Vec<_> = again.into_iter().map(|(id, ..)| (id, 0, 0)).collect();
    assert_eq!(scene.deferrals()?, after, "the same instances, as they were");
    Ok(())
}

fn killed() -> Outcome {
    let mut scene = Scene::new(|_| ForebayOptions::default())?;
    scene.set(&[TAP, "--policy", "static", "--frames", "32"])?;
    let has_napi = scene.gro("on")?;
    if has_napi {
        // A value that a policy moves is put back whatever it is by now.
        scene.set(&[VETH, "--policy", "dim", "--profile", "9,1,n_9,1,n_9,1,n_9,1,n_9,1,n"])?;
        scene.wait_for_deferral(9, 1)?;
    }
    scene.daemon.kill()?;
    assert_eq!(scene.frames()?, "32");
    scene.daemon = Forebay::start(&scene.lab, ForebayOptions::default())?;
    assert_eq!(scene.frames()?, BEFORE);
    scene.daemon.add_ports(&[PortSpec::new(TAP), PortSpec::new(VETH)])?;
    if has_napi {
        scene.wait_for_deferral(0, 0)?;
    }
    // What somebody else has set since is theirs.
    scene.set(&[TAP, "--policy", "static", "--frames", "32"])?;
    scene.daemon.kill()?;
    scene.lab.switch().run("ethtool", &["-C", TAP, "rx-frames", "7"])?;
    scene.daemon = Forebay::start(&scene.lab, ForebayOptions::default())?;
    assert_eq!(scene.frames()?, "7");
    if !has_napi {
        return without_napi_set();
    }
    Ok(())
}

fn taken_over() -> Outcome {
    let handing_over = |pins: &BpfFs| ForebayOptions::default().handing_over(pins);
    let mut scene = Scene::new(handing_over)?;
    scene.set(&[TAP, "--policy", "static", "--frames", "32"])?;
    let before = scene.netdev(TAP)?;
    scene.daemon.kill()?;
    scene.daemon = Forebay::start(&scene.lab, handing_over(&scene.pins))?;
    assert_eq!(scene.frames()?, "32");
    assert_eq!(scene.netdev(TAP)?, before);
    scene.daemon.stop()?;
    assert_eq!(scene.frames()?, BEFORE, "it is still known");
    Ok(())
}

/// Sends frames from a host until this is dropped.
fn while_sending<T>(host: &Host, inside: impl FnOnce() -> T) -> Result<T> {
    let socket = FrameSocket::open(host)?;
    let frame = Frame::marked(host.mac(), [0xff; 6], 7).payload_bytes(1000).build();
    let is_done = AtomicBool::new(false);
    Ok(std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                // A full queue is no reason to stop.
                let _ = socket.send(&frame);
            }
        });
        let outcome = inside();
        is_done.store(true, Ordering::Relaxed);
        outcome
    }))
}

fn moved() -> Outcome {
    ensure_program()?;
    let mut lab = Lab::new("netdevs")?;
    let hosts = ["h1", "h2"].map(|name| lab.host(name, PortKind::VethTcx));
    let [first, second] = hosts;
    let hosts = [first?, second?];
    let mut daemon = Forebay::start(&lab, ForebayOptions::default())?;
    daemon.add_ports(&dut::ports_of(&hosts))?;
    let (client, port) = (daemon.client().clone(), hosts[0].name());
    lab.switch().ethtool(port, &["gro", "on"])?;
    if netdev(&client, port)?.by != CoalesceBy::Napi {
        return without_napi_set();
    }
    for policy in ["adaptive", "dim"] {
        client.ok(&["coalesce", "set", port, "--policy", policy])?;
        let is_held = || netdev(&client, port).is_ok_and(|at| at.rx.moves > 0 && at.rx.now.usecs > Some(0));
        while_sending(&hosts[0], || wait::until("a longer hold", LIMIT, is_held))??;
        let shown = netdev(&client, port)?.rx;
        assert!(shown.packets > 0 && shown.bytes > 1000 * shown.packets, "{shown:?}");
        assert_eq!((shown.interrupts, shown.problem.as_str()), (None, ""), "a veth has none to count");
    }
    assert!(client.stats_check()?.balanced);
    let timeouts = || {
        let napis = netdev(&client, port)?.napis.into_iter();
        Ok::<_, LabError>(napis.map(|napi| napi.gro_flush_timeout).collect::<Vec<_>>())
    };
    client.ok(&["coalesce", "set", port, "--policy", "off"])?;
    assert_eq!(timeouts()?, [Some(0)]);
    // Killed with limits that nobody has noted, because the policy moved them.
    client.ok(&["coalesce", "set", port, "--policy", "adaptive"])?;
    let is_held = || netdev(&client, port).is_ok_and(|at| at.rx.now.usecs > Some(0));
    while_sending(&hosts[0], || {
        wait::until("a hold", LIMIT, is_held)?;
        daemon.kill()
    })??;
    daemon = Forebay::start(&lab, ForebayOptions::default())?;
    daemon.add_ports(&dut::ports_of(&hosts))?;
    assert_eq!(timeouts()?, [Some(0)], "it is put back whatever it was");
    Ok(())
}

fn refused() -> Outcome {
    let scene = Scene::new(|_| ForebayOptions::default())?;
    let has_napi = scene.gro("on")?;
    scene.set(&[TAP, "--policy", "static", "--frames", "32"])?;
    let cases: [(&[&str], &str); 13] = [
        (
            &[TAP, "--policy", "static", "--usecs", "8"],
            "`tap0` takes no rx-usecs (value: 8; limit: rx-frames)",
        ),
        (&[TAP, "--policy", "static", "--usecs", "8", "--frames", "8"], "rx-usecs"),
        (&[TAP, "--policy", "dim"], "rx-usecs"),
        (&[TAP, "--policy", "adaptive"], "give --policy static"),
        (&[TAP, "--policy", "driver"], "adaptive-rx"),
        (&[TAP, "--tx", "--policy", "static", "--frames", "8"], "give --rx"),
        (&[TAP, "--frames", "65536"], "limit: 65535"),
        (&[TAP, "--where", "offload", "--policy", "dim"], "give --where onload"),
        (&[TAP, "--queue", "0", "--policy", "dim"], "leave --queue out"),
        (&[TAP, "--guest", "ignored", "--policy", "dim"], "leave --guest out"),
        (
            &[VETH, "--policy", "static", "--frames", "8"],
            if has_napi { "give --usecs too" } else { "nobody" },
        ),
        (&[VETH, "--policy", "dim", "--profile", "1,2,n"], "5 lines"),
        (&[VETH, "--tx", "--policy", "dim"], if has_napi { "give --rx" } else { "nobody" }),
    ];
    for (words, expected) in cases {
        let said = scene.daemon.client().call(&[&["coalesce", "set"], words].concat())?;
        assert!(!said.status.success() && said.stderr.contains(expected), "{words:?}: {said:?}");
    }
    assert_eq!(scene.frames()?, "32", "nothing has changed");
    let settings =
        [TAP, VETH].map(|port| scene.netdev(port).map(|at| (at.rx.setting.policy, at.tx.setting.policy)));
    let [tap, veth] = settings;
    assert_eq!(tap?, (CoalescePolicy::Static, CoalescePolicy::Off));
    assert_eq!(veth?, (CoalescePolicy::Off, CoalescePolicy::Off));
    if has_napi {
        refused_by_one_member(&scene)?;
    }
    scene.gro("off")?;
    let said = scene.daemon.client().call(&["coalesce", "set", VETH, "--policy", "dim"])?;
    assert!(said.stderr.contains("ethtool -K veth0 gro on"), "{said:?}");
    Ok(())
}

/// A group of which one member takes limits: it keeps none of them.
fn refused_by_one_member(scene: &Scene) -> Outcome {
    let (switch, client) = (scene.lab.switch(), scene.daemon.client());
    for member in ["m0", "m1"] {
        let peer = format!("{member}p");
        switch.ip(&["link", "add", member, "up", "type", "veth", "peer", "name", &peer])?;
        switch.ip(&["link", "set", &peer, "up"])?;
    }
    switch.ethtool("m0", &["gro", "on"])?;
    client.ok(&["port", "add", "group", "--group", "m0,m1"])?;
    client.wait_port_state("group", PortState::Up)?;
    let set = ["coalesce", "set", "group", "--policy", "static", "--usecs", "20"];
    let said = client.call(&set)?;
    assert!(said.stderr.contains("ethtool -K m1 gro on"), "{said:?}");
    let timeouts = || -> Result<Vec<_>> {
        let shown: CoalesceShow = client.json(&["coalesce", "show", "group"])?;
        let napis = shown.ports.into_iter().flat_map(|port| port.netdevs).flat_map(|netdev| netdev.napis);
        Ok(napis.map(|napi| napi.gro_flush_timeout).collect())
    };
    assert_eq!(timeouts()?, [Some(0)], "nothing is left at the other member");
    switch.ethtool("m1", &["gro", "on"])?;
    client.ok(&set)?;
    assert_eq!(timeouts()?, [Some(20_000); 2]);
    switch.ethtool("m1", &["gro", "off"])?;
    let said = client.call(&["coalesce", "set", "group", "--usecs", "30"])?;
    assert!(said.stderr.contains("ethtool -K m1 gro on"), "{said:?}");
    assert_eq!(timeouts()?, [Some(20_000)], "the other member has what it had");
    Ok(())
}
