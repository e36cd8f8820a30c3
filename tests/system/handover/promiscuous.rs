//! A netdev that may filter addresses receives everything while it is a port, and not a moment longer.

use std::time::Duration;

use forebay_control::port::{PortSpec, PortState, Promiscuity};
use forebay_testbed::bpffs::BpfFs;
use forebay_testbed::dut::{Dut as _, Forebay, ForebayOptions};
use forebay_testbed::{Lab, Result, wait};

use crate::harness::{Outcome, Suite, ensure_program};

/// Neither a veth nor a tap, so the switch takes it for a NIC.
const NETDEV: &str = "nic";

/// The daemon tells once a second.
const TOLD_LIMIT: Duration = Duration::from_secs(10);

pub fn register(suite: &mut Suite) {
    suite.once("a_netdev_that_filters_addresses_is_promiscuous_while_it_is_a_port", while_a_port);
    suite.once("a_killed_daemon_leaves_its_netdevs_promiscuous_only_with_handover", killed);
    suite.once("a_netdev_that_is_not_to_be_promiscuous_is_told_stations_while_it_is_a_port", told_stations);
    suite.once("what_the_next_daemon_does_not_want_is_promiscuous_no_more", not_wanted);
}

struct Scene {
    // In this order: the daemon before what it has pinned.
    daemon: Forebay,
    lab: Lab,
    pins: BpfFs,
}

impl Scene {
    fn new(
        options: impl FnOnce(&BpfFs) -> ForebayOptions,
    ) -> std::result::Result<Scene, Box<dyn std::error::Error>> {
        ensure_program()?;
        let lab = Lab::new("promiscuous")?;
        let pins = BpfFs::mount(&lab)?;
        lab.switch().ip(&["link", "add", NETDEV, "up", "type", "ifb"])?;
        let mut daemon = Forebay::start(&lab, options(&pins))?;
        daemon.add_ports(&[PortSpec::new(NETDEV)])?;
        daemon.client().wait_port_state(NETDEV, PortState::Up)?;
        Ok(Scene { daemon, lab, pins })
    }

    /// How many want the netdev to receive everything, and whether its own flag says so.
    fn promiscuity(&self) -> Result<(u64, bool)> {
        let said = self.lab.switch().ip(&["-j", "-d", "link", "show", NETDEV])?.stdout;
        let links: serde_json::Value = serde_json::from_str(&said).expect("ip writes JSON");
        let flags = links[0]["flags"].as_array().expect("a link has flags");
        let count = links[0]["promiscuity"].as_u64().expect("a link has a promiscuity");
        Ok((count, flags.iter().any(|flag| flag == "PROMISC")))
    }

    /// Addresses that the netdev receives besides its own.
    fn addresses(&self) -> Result<String> {
        Ok(self.lab.switch().run("bridge", &["fdb", "show", "dev", NETDEV])?.stdout)
    }

    fn restart(&mut self, options: ForebayOptions) -> Result<()> {
        self.daemon = Forebay::start(&self.lab, options)?;
        Ok(())
    }
}

/// A station that the daemon was told is behind another port; the netdev's own addresses are others.
fn told_stations() -> Outcome {
    const BESIDE: &str = "beside";
    const STATION: &str = "02:fb:00:00:00:77";
    let mut scene = Scene::new(|_| ForebayOptions::default())?;
    scene.lab.switch().ip(&["link", "add", BESIDE, "up", "type", "ifb"])?;
    scene.daemon.delete_port(NETDEV)?;
    let filtering = PortSpec { promiscuous: Promiscuity::Off, ..PortSpec::new(NETDEV) };
    scene.daemon.add_ports(&[filtering.clone(), PortSpec::new(BESIDE)])?;
    let client = scene.daemon.client().clone();
    let add_station = |port: &str| client.ok(&["fdb", "add", STATION, "--port", port]).map(drop);
    let is_told = |yes: bool| {
        wait::until("the netdev to have been told", TOLD_LIMIT, || {
            scene.addresses().is_ok_and(|found| found.contains(STATION) == yes)
        })
    };
    assert_eq!(client.port(NETDEV)?.unicast_filter, Some(0));
    add_station(BESIDE)?;
    is_told(true)?;
    let shown = client.port(NETDEV)?;
    assert_eq!((shown.promiscuous, shown.unicast_filter), (false, Some(1)));
    // The station moves behind the netdev itself, and back.
    add_station(NETDEV)?;
    is_told(false)?;
    add_station(BESIDE)?;
    is_told(true)?;
    scene.daemon.delete_port(NETDEV)?;
    assert!(!scene.addresses()?.contains(STATION));
    scene.daemon.add_ports(&[filtering])?;
    let told = wait::until("the netdev to have been told again", TOLD_LIMIT, || {
        scene.addresses().is_ok_and(|found| found.contains(STATION))
    });
    told?;
    scene.daemon.kill()?;
    assert!(!scene.addresses()?.contains(STATION), "nothing outlives the process");
    Ok(())
}

fn handing_over(pins: &BpfFs) -> ForebayOptions {
    ForebayOptions::default().handing_over(pins)
}

fn while_a_port() -> Outcome {
    for options in [|_: &BpfFs| ForebayOptions::default(), handing_over] {
        let mut scene = Scene::new(options)?;
        assert!(scene.promiscuity()?.0 > 0 && scene.daemon.client().port(NETDEV)?.promiscuous);
        scene.daemon.delete_port(NETDEV)?;
        assert_eq!(scene.promiscuity()?, (0, false));
        // Somebody else's wish stays, however the switch ends.
        scene.lab.switch().ip(&["link", "set", NETDEV, "promisc", "on"])?;
        scene.daemon.add_ports(&[PortSpec::new(NETDEV)])?;
        scene.daemon.stop()?;
        assert_eq!(scene.promiscuity()?, (1, true));
    }
    Ok(())
}

fn killed() -> Outcome {
    let mut scene = Scene::new(|_| ForebayOptions::default())?;
    scene.daemon.kill()?;
    assert_eq!(scene.promiscuity()?, (0, false));
    let mut scene = Scene::new(handing_over)?;
    for _ in 0..2 {
        scene.daemon.kill()?;
        assert_eq!(scene.promiscuity()?, (1, true), "the kernel still forwards");
        scene.restart(handing_over(&scene.pins))?;
        assert!(scene.promiscuity()?.0 > 0);
    }
    scene.daemon.stop()?;
    assert_eq!(scene.promiscuity()?, (0, false), "a stop is a full stop");
    assert!(scene.pins.pinned().is_empty(), "{:?}", scene.pins.pinned());
    Ok(())
}

fn not_wanted() -> Outcome {
    let with_another_file = |pins: &BpfFs| ForebayOptions {
        config: Some("[[port]]\nnetdev = \"elsewhere\"\n".to_owned()),
        ..handing_over(pins)
    };
    let clean = |pins: &BpfFs| {
        let mut options = handing_over(pins);
        options.arguments.push("--clean".to_owned());
        options
    };
    let mut scene = Scene::new(handing_over)?;
    scene.daemon.kill()?;
    scene.restart(clean(&scene.pins))?;
    assert_eq!(scene.promiscuity()?, (0, false));
    let mut scene = Scene::new(handing_over)?;
    // Made by request, so a file without it does not take it away; deleted by its name, it goes.
    scene.daemon.kill()?;
    scene.restart(with_another_file(&scene.pins))?;
    scene.daemon.delete_port(NETDEV)?;
    assert_eq!(scene.promiscuity()?, (0, false));
    Ok(())
}
