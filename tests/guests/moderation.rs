//! Interrupt moderation of netdevs whose drivers take all limits (netdevsim), or show limits and refuse them (virtio_net
//! without a device that has coalescing).

use std::time::Duration;

use forebay_control::coalesce::{CoalesceBy, CoalesceNetdev, CoalesceShow, CoalesceValues};
use forebay_control::port::PortSpec;
use forebay_testbed::dut::{Dut as _, Forebay, ForebayOptions};
use forebay_testbed::{Lab, LabError, Result, wait};

use crate::Outcome;

const NETDEV: &str = "sim";
const LIMIT: Duration = Duration::from_secs(20);

/// Of netdevsim: a driver that keeps what it is given.
struct Scene {
    // In this order: the switch before the lab it is in.
    switch: Forebay,
    lab: Lab,
}

impl Scene {
    fn new() -> Result<Scene> {
        let lab = Lab::new("moderation")?;
        let netdevs = || -> Result<Vec<String>> {
            let said = lab.switch().ip(&["-j", "link", "show"])?.stdout;
            let links: Vec<serde_json::Value> = serde_json::from_str(&said).expect("ip writes JSON");
            Ok(links.iter().filter_map(|link| Some(link["ifname"].as_str()?.to_owned())).collect())
        };
        let before = netdevs()?;
        // A device and its netdevs belong to the namespace of the thread that asks for it.
        lab.switch()
            .enter(|| std::fs::write("/sys/bus/netdevsim/new_device", "1 1 2"))?
            .map_err(|error| LabError::system("making a netdevsim", error))?;
        let made = netdevs()?.into_iter().find(|name| !before.contains(name));
        let made = made.ok_or_else(|| LabError::output("netdevsim", "no netdev"))?;
        lab.switch().ip(&["link", "set", &made, "name", NETDEV, "up"])?;
        lab.switch()
            .run("ethtool", &["-C", NETDEV, "rx-usecs", "3", "rx-frames", "4", "adaptive-rx", "on"])?;
        lab.switch().run("ethtool", &["-C", NETDEV, "tx-usecs", "5", "tx-frames", "6"])?;
        let mut switch = Forebay::start(&lab, ForebayOptions::default())?;
        switch.add_ports(&[PortSpec::new(NETDEV)])?;
        Ok(Scene { switch, lab })
    }

    fn netdev(&self) -> Result<CoalesceNetdev> {
        netdev(&self.switch, NETDEV)
    }

    fn set(&self, words: &[&str]) -> Result<()> {
        self.switch.client().ok(&[&["coalesce", "set", NETDEV], words].concat()).map(drop)
    }

    /// What `ethtool` says of the netdev.
    fn value(&self, word: &str) -> Result<String> {
        let said = self.lab.switch().run("ethtool", &["-c", NETDEV])?.stdout;
        let value = said.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(':'));
        Ok(value.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// `rx-usecs`, `rx-frames`, `tx-usecs`, `tx-frames` and who adapts.
    fn values(&self) -> Result<[String; 5]> {
        let words = ["rx-usecs", "rx-frames", "tx-usecs", "tx-frames"].map(|word| self.value(word));
        let [rx_usecs, rx_frames, tx_usecs, tx_frames] = words;
        let said = self.lab.switch().run("ethtool", &["-c", NETDEV])?.stdout;
        let adaptive = said.lines().find_map(|line| line.strip_prefix("Adaptive "));
        let adaptive = adaptive.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
        Ok([rx_usecs?, rx_frames?, tx_usecs?, tx_frames?, adaptive])
    }
}

const BEFORE: [&str; 5] = ["3", "4", "5", "6", "RX: on TX: off"];

fn netdev(switch: &Forebay, port: &str) -> Result<CoalesceNetdev> {
    let shown: CoalesceShow = switch.client().json(&["coalesce", "show", port])?;
    let first = shown.ports.into_iter().flat_map(|port| port.netdevs).next();
    first.ok_or_else(|| LabError::output("coalesce show", "no netdev"))
}

/// All limits of netdevsim are shown, set, moved by a policy, and put back.
pub fn all_limits() -> Outcome {
    let mut scene = Scene::new()?;
    let shown = scene.netdev()?;
    let values = |usecs, frames, adaptive| CoalesceValues {
        usecs: Some(usecs),
        frames: Some(frames),
        adaptive: Some(adaptive),
    };
    assert_eq!((shown.by, shown.rx.now), (CoalesceBy::Ethtool, values(3, 4, true)));
    assert_eq!(shown.tx.now, values(5, 6, false));
    scene.set(&["--policy", "static", "--usecs", "64", "--frames", "32"])?;
    assert_eq!(scene.values()?, ["64", "32", "64", "32", "RX: off TX: off"]);
    scene.set(&["--rx", "--policy", "driver"])?;
    assert_eq!(scene.values()?, ["3", "4", "64", "32", "RX: on TX: off"], "as it was, and adaptive");
    scene.set(&["--rx", "--policy", "dim", "--profile", "9,8,n_9,8,n_9,8,n_9,8,n_9,8,n"])?;
    assert_eq!(scene.values()?, ["9", "8", "64", "32", "RX: off TX: off"]);
    scene.switch.delete_port(NETDEV)?;
    assert_eq!(scene.values()?, BEFORE);

    // As killed, with a policy that moves the limits by then.
    scene.switch.add_ports(&[PortSpec::new(NETDEV)])?;
    scene.set(&["--policy", "adaptive"])?;
    wait::until("the policy to begin", LIMIT, || {
        scene.values().is_ok_and(|values| values == ["0", "1", "0", "1", "RX: off TX: off"])
    })?;
    scene.switch.kill()?;
    scene.switch = Forebay::start(&scene.lab, ForebayOptions::default())?;
    assert_eq!(scene.values()?, BEFORE);
    for line in scene.switch.log().lines().filter(|line| line.contains("put back")) {
        println!("{line}");
    }
    Ok(())
}
