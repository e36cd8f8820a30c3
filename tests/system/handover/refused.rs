//! What was saved and does not fit the next daemon is told in its log, and costs only itself.

use std::os::unix::fs::PermissionsExt as _;

use super::{Scene, is_balanced};
use crate::harness::{Outcome, Subject, Suite};

pub fn register(suite: &mut Suite) {
    suite.on_netdevs("a_smaller_max_ports_leaves_out_the_ports_beyond_it", fewer_ports);
    suite.on_netdevs("a_saved_file_that_is_cut_is_taken_over_up_to_there", cut);
    suite.on_netdevs("a_saved_file_that_cannot_be_read_is_told_and_replaced", unreadable);
    suite.on_netdevs("what_was_answered_is_there_after_a_kill", answered);
    suite.on_netdevs("what_is_saved_is_for_the_owner_alone", private);
}

/// Three ports with the ids 0 to 2, and then room for two.
fn fewer_ports(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject)?;
    let client = scene.bed.client();
    let third = scene.bed.lab.host("h3", subject.kind())?;
    scene.bed.attach([&third])?;
    client.ok(&["port", "del", "h1"])?;
    // It has the id 3 now.
    scene.bed.attach([&scene.hosts[0]])?;
    scene.bed.forebay().kill()?;
    scene.options.config = Some("[switch]\nmax_ports = 2\n".to_owned());
    scene.restart()?;
    let mut ports: Vec<(String, u16)> =
        client.ports()?.into_iter().map(|port| (port.name, port.id.0)).collect();
    ports.sort_unstable();
    assert_eq!(ports, [("h2".to_owned(), 1), ("h3".to_owned(), 0)]);
    let log = scene.bed.forebay().log();
    assert!(log.contains("h1") && log.contains("max_ports"), "{log}");
    is_balanced(&client)
}

const SAVED: &str = "forebay.sock.saved";

fn cut(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject)?;
    let client = scene.bed.client();
    scene.bed.forebay().kill()?;
    let path = scene.bed.lab.path(SAVED);
    let mut bytes = std::fs::read(&path)?;
    bytes.extend(b"{\"gone_ports\":[0,1]");
    std::fs::write(&path, bytes)?;
    scene.restart()?;
    assert_eq!(client.ports()?.len(), 2);
    scene.ping()?;
    is_balanced(&client)
}

fn unreadable(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject)?;
    let client = scene.bed.client();
    for (text, said) in [
        ("{\"format\":1,\"ports\":[]}", "no end"),
        ("{\"forebay\":\"saved\",\"format\":999}\n", "its format is 999"),
        ("\u{0}\u{0}\n", "does not say"),
    ] {
        scene.bed.forebay().kill()?;
        std::fs::write(scene.bed.lab.path(SAVED), text)?;
        scene.restart()?;
        assert_eq!(client.ports()?.len(), 0);
        let log = scene.bed.forebay().log();
        assert!(log.contains(said), "{log}");
        scene.bed.attach(&scene.hosts)?;
        scene.talk()?;
    }
    is_balanced(&client)
}

/// The daemon is killed as soon as it has answered, with requests of others under way.
fn answered(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject)?;
    let client = scene.bed.client();
    for round in 0..5 {
        let dport = (1000 + round).to_string();
        let rule = ["--ip-proto", "tcp", "--dport", &dport, "--action", "drop"];
        let others = std::thread::spawn({
            let client = client.clone();
            move || {
                (0..50).take_while(|_| client.ok(&["port", "set", "h2", "--isolated", "off"]).is_ok()).count()
            }
        });
        client.ok(&[&["flow", "add", "--priority", "7"], &rule[..]].concat())?;
        scene.bed.forebay().kill()?;
        others.join().map_err(|_| "the other requests panicked")?;
        scene.restart()?;
        let rules = client.ok(&["flow", "list"])?.stdout;
        assert_eq!(rules.matches("dport=10").count(), round + 1, "{rules}");
    }
    let log = scene.bed.forebay().log();
    assert!(!log.contains("in the saved state"), "{log}");
    is_balanced(&client)
}

/// Nobody else can have written what is taken over.
fn private(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject)?;
    let client = scene.bed.client();
    for name in [SAVED, "forebay.sock.applied"] {
        let mode = std::fs::metadata(scene.bed.lab.path(name))?.permissions().mode();
        assert_eq!(mode & 0o7777, 0o600, "{name}");
    }
    scene.bed.forebay().kill()?;
    std::fs::set_permissions(scene.bed.lab.path(SAVED), std::fs::Permissions::from_mode(0o666))?;
    scene.restart()?;
    assert_eq!(client.ports()?.len(), 0);
    let log = scene.bed.forebay().log();
    assert!(log.contains("0666"), "{log}");
    Ok(())
}
