//! Moderation that the configuration file states: at the start, after it has changed, and for ports that state none.

use forebay_testbed::dut::ForebayOptions;
use nix::sys::signal::Signal;

use super::*;

pub fn register(suite: &mut Suite) {
    suite.once("the_configuration_file_states_how_netdevs_are_moderated", netdevs);
    suite.once("a_netdev_that_does_not_take_what_the_file_states_is_a_port_and_says_why", not_taken);
}

/// A file with a port on the tap, one on the veth, and what all are moderated by that state nothing.
fn file(tap: &str, netdevs: &str) -> String {
    let coalesce = if tap.is_empty() { String::new() } else { format!("coalesce = {{ {tap} }}\n") };
    format!(
        "[coalesce]\nnetdevs = {{ {netdevs} }}\n[[port]]\nnetdev = \"{TAP}\"\n{coalesce}[[port]]\nnetdev = \"{VETH}\"\n"
    )
}

impl Scene {
    /// With ports that are in the file.
    fn stated(text: String) -> std::result::Result<Scene, Box<dyn std::error::Error>> {
        let config = |pins: &BpfFs| ForebayOptions::with_config(text).handing_over(pins);
        let scene = Scene::without_ports(config)?;
        scene.daemon.client().wait_port_state(VETH, PortState::Up)?;
        Ok(scene)
    }

    fn write(&self, text: &str) -> Outcome {
        Ok(std::fs::write(self.lab.path("forebay.toml"), text)?)
    }

    fn reload(&mut self, text: &str) -> Outcome {
        self.write(text)?;
        self.daemon.daemon().signal(Signal::SIGHUP);
        Ok(())
    }

    fn wait_for_frames(&self, frames: &str) -> Outcome {
        let is_set = || self.frames().is_ok_and(|found| found == frames);
        Ok(wait::until("rx-frames of the tap", LIMIT, is_set)?)
    }
}

const STATIC: &str = "policy = \"static\"";

fn netdevs() -> Outcome {
    let text = |frames: &str, usecs: &str| {
        file(&format!("{STATIC}, frames = {frames}"), &format!("{STATIC}, usecs = {usecs}"))
    };
    let mut scene = Scene::stated(text("32", "20"))?;
    assert_eq!(scene.frames()?, "32");
    if !scene.gro("on")? {
        return without_napi_set();
    }
    // It obeys as soon as it can.
    scene.wait_for_deferral(20, 1)?;

    // A request counts until the file states something else for the port.
    scene.set(&[TAP, "--frames", "7"])?;
    scene.reload(&text("32", "30"))?;
    scene.wait_for_deferral(30, 1)?;
    assert_eq!(scene.frames()?, "7");
    scene.daemon.kill()?;
    let options = ForebayOptions::with_config(text("32", "30")).handing_over(&scene.pins);
    scene.daemon = Forebay::start(&scene.lab, options)?;
    assert_eq!(scene.frames()?, "7", "for the next daemon, too");
    scene.wait_for_deferral(30, 1)?;
    scene.set(&[VETH, "--policy", "off"])?;
    scene.daemon.kill()?;
    // What the file of the next daemon states otherwise counts.
    let options = ForebayOptions::with_config(text("16", "30")).handing_over(&scene.pins);
    scene.daemon = Forebay::start(&scene.lab, options)?;
    scene.wait_for_frames("16")?;
    scene.wait_for_deferral(0, 0)?;

    // A port that is added by request begins as all do.
    scene.daemon.delete_port(VETH)?;
    scene.daemon.add_ports(&[PortSpec::new(VETH)])?;
    scene.wait_for_deferral(30, 1)?;

    // Nothing is stated any more.
    scene.reload(&file("", "policy = \"off\""))?;
    scene.wait_for_frames(BEFORE)?;
    scene.wait_for_deferral(0, 0)?;
    Ok(())
}

fn not_taken() -> Outcome {
    let tap = format!("{STATIC}, usecs = 8");
    let mut scene = Scene::stated(file(&tap, "policy = \"dim\""))?;
    let shown = scene.netdev(TAP)?;
    assert_eq!(shown.rx.setting.usecs, Some(8));
    assert!(shown.rx.problem.contains("`tap0` takes no rx-usecs"), "{shown:?}");
    let veth = scene.netdev(VETH)?;
    assert!(veth.rx.problem.contains("nobody takes limits"), "{veth:?}");
    assert_eq!(scene.frames()?, BEFORE);
    let log = scene.daemon.log();
    let told = |netdev: &str| {
        log.lines().any(|line| line.contains("its interrupts are not moderated") && line.contains(netdev))
    };
    assert!(told(TAP), "{log}");
    assert!(!told(VETH), "what is meant for all that take it is no warning: {log}");

    // A file with a value that cannot be changes nothing.
    scene.reload(&file(&format!("{STATIC}, frames = 65536"), "policy = \"off\""))?;
    let is_refused = || scene.daemon.log().contains("`frames` is too large (value: 65536; limit: 65535)");
    wait::until("the file to be refused", LIMIT, is_refused)?;
    assert_eq!(scene.netdev(TAP)?.rx.setting.usecs, Some(8));
    scene.reload(&file(&format!("{STATIC}, frames = 9"), "policy = \"off\""))?;
    scene.wait_for_frames("9")?;
    assert_eq!(scene.netdev(TAP)?.rx.problem, "");
    Ok(())
}
