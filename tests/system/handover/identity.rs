//! Which netdev a saved port belongs to, and which pins stay.

use forebay_control::port::PortState;
use forebay_testbed::{PortKind, wait};

use serde_json::Value;

use super::{LIMIT, Scene, is_balanced, remove_second};
use crate::harness::{Outcome, Subject, Suite};

pub fn register(suite: &mut Suite) {
    suite.on_netdevs("a_netdev_renamed_while_no_daemon_runs_keeps_its_port", renamed);
    suite.on_netdevs(
        "a_renamed_netdev_that_the_file_names_anew_is_a_port_of_the_next_daemon",
        renamed_in_file,
    );
    suite.on_netdevs("two_netdevs_that_swapped_their_names_keep_their_ports", swapped);
    suite.on_netdevs("a_netdev_that_left_the_namespace_while_no_daemon_runs_is_let_go", moved_away);
    suite.on_netdevs("the_place_of_a_netdev_that_went_while_no_daemon_runs_is_free_again", near_place);
    suite.on_netdevs("pins_without_a_saved_file_are_removed", without_saved_file);
}

/// The pinned links, by name.
fn links(scene: &Scene) -> Vec<String> {
    let mut links = scene.pins.pinned();
    links.retain(|name| name.starts_with("tcx_") || name.starts_with("xdp_"));
    links.sort_unstable();
    links
}

fn kinds(scene: &Scene) -> &'static [&'static str] {
    if scene.hosts[0].kind() == PortKind::VethXdp { &["tcx", "xdp"] } else { &["tcx"] }
}

/// The pins that the ports of the running daemon have.
fn owned(scene: &mut Scene) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let ports = scene.bed.client().ports()?;
    let attached = ports.iter().filter(|port| port.ifindex.is_some());
    let of_kind =
        |kind: &&str| attached.clone().map(|port| format!("{kind}_{}", port.id)).collect::<Vec<_>>();
    let mut owned: Vec<String> = kinds(scene).iter().flat_map(of_kind).collect();
    owned.sort_unstable();
    Ok(owned)
}

fn each_pin_has_its_port(scene: &mut Scene) -> Outcome {
    assert_eq!(links(scene), owned(scene)?);
    Ok(())
}

fn rename(scene: &Scene, from: &str, to: &str) -> Outcome {
    scene.bed.lab.switch().ip(&["link", "set", from, "name", to])?;
    Ok(())
}

fn renamed(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject)?;
    let client = scene.bed.client();
    scene.bed.forebay().kill()?;
    rename(&scene, "h2", "g2")?;
    scene.restart()?;
    client.wait_port_state("h2", PortState::NetdevRenamed)?;
    each_pin_has_its_port(&mut scene)?;
    scene.ping()?;
    scene.talk()?;
    is_balanced(&client)
}

fn renamed_in_file(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject)?;
    let client = scene.bed.client();
    let attach = kinds(&scene).last().expect("one at least");
    let port = |netdev: &str| format!("[[port]]\nnetdev = \"{netdev}\"\nattach = \"{attach}\"\n");
    let config = |second: &str| port("h1") + &port(second);
    scene.options.config = Some(config("h2"));
    scene.bed.forebay().kill()?;
    scene.restart()?;
    scene.talk()?;
    rename(&scene, "h2", "g2")?;
    scene.options.config = Some(config("g2"));
    let next = forebay_testbed::dut::Forebay::start(&scene.bed.lab, scene.options.clone())?;
    let mut last = std::mem::replace(scene.bed.forebay(), next);
    assert!(last.daemon().wait(LIMIT)?.success(), "{}", last.log());
    let mut names: Vec<String> = client.ports()?.into_iter().map(|port| port.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["g2", "h1"]);
    each_pin_has_its_port(&mut scene)?;
    scene.ping()?;
    is_balanced(&client)
}

fn swapped(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject)?;
    let client = scene.bed.client();
    scene.bed.forebay().kill()?;
    rename(&scene, "h1", "other")?;
    rename(&scene, "h2", "h1")?;
    rename(&scene, "other", "h2")?;
    scene.restart()?;
    let netdev_of = |name: &str| -> Result<String, Box<dyn std::error::Error>> {
        let ports = client.ports()?;
        let port = ports.into_iter().find(|port| port.name == name).ok_or("no such port")?;
        Ok(port.netdev)
    };
    assert_eq!((netdev_of("h1")?.as_str(), netdev_of("h2")?.as_str()), ("h2", "h1"));
    each_pin_has_its_port(&mut scene)?;
    scene.talk()?;
    is_balanced(&client)
}

fn moved_away(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject)?;
    let client = scene.bed.client();
    scene.bed.forebay().kill()?;
    let elsewhere = scene.bed.lab.extra_netns("elsewhere")?;
    scene.bed.lab.switch().ip(&["link", "set", "h2", "netns", elsewhere.name()])?;
    scene.restart()?;
    client.wait_port_state("h2", PortState::NetdevMissing)?;
    each_pin_has_its_port(&mut scene)?;
    elsewhere.ip(&["link", "set", "h2", "netns", scene.bed.lab.switch().name()])?;
    scene.bed.lab.switch().ip(&["link", "set", "h2", "up"])?;
    client.wait_port_state("h2", PortState::Up)?;
    scene.talk()?;
    each_pin_has_its_port(&mut scene)?;
    is_balanced(&client)
}

/// Places of the table of near ports that are taken.
fn near_places(scene: &Scene) -> Result<usize, Box<dyn std::error::Error>> {
    let mut dump = std::process::Command::new("bpftool");
    let path = scene.pins.find("near_ports").ok_or("the table of near ports is pinned")?;
    dump.args(["-j", "map", "lookup", "pinned"]).arg(path).args(["key", "0", "0", "0", "0"]);
    let shown: Value = serde_json::from_str(&forebay_testbed::command::run_ok(dump)?.stdout)?;
    let bytes = shown["value"].as_array().ok_or("bpftool shows the value")?;
    Ok(bytes.chunks(8).filter(|near| near.iter().any(|byte| byte != "0x00")).count())
}

fn near_place(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject)?;
    assert_eq!(near_places(&scene)?, 2);
    scene.bed.forebay().kill()?;
    remove_second(&mut scene)?;
    assert_eq!(near_places(&scene)?, 2);
    scene.restart()?;
    assert_eq!(near_places(&scene)?, 1);
    Ok(())
}

fn without_saved_file(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject)?;
    scene.bed.forebay().kill()?;
    std::fs::remove_file(scene.bed.lab.path("forebay.sock.saved"))?;
    let options = scene.options.clone();
    scene.options.arguments.retain(|argument| argument != "--handover");
    scene.restart()?;
    wait::until("no pin to be left", LIMIT, || scene.pins.pinned().is_empty())?;
    scene.bed.attach(&scene.hosts)?;
    scene.bed.forebay().stop()?;
    scene.options = options;
    Ok(())
}
