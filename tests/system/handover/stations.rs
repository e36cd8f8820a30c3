//! Where stations are after a daemon was killed, however little time it had.

use forebay_control::fdb::FdbEntry;
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::wait;

use super::{LIMIT, Scene, is_balanced};
use crate::bed::take_frames;
use crate::harness::{Outcome, Subject, Suite};

pub fn register(suite: &mut Suite) {
    suite.on_netdevs("a_station_that_moved_just_before_a_kill_is_where_it_moved_to", moved);
    suite.on_netdevs("a_static_entry_outlives_a_killed_daemon", fixed);
}

fn entries(scene: &mut Scene) -> Result<Vec<FdbEntry>, Box<dyn std::error::Error>> {
    Ok(scene.bed.client().fdb()?)
}

fn port_of(scene: &mut Scene, mac: &str) -> Result<Option<String>, Box<dyn std::error::Error>> {
    Ok(entries(scene)?.into_iter().find(|entry| entry.mac.to_string() == mac).map(|entry| entry.port))
}

/// The second host's addresses move to the third host and back; after each move the daemon is killed at once.
fn moved(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject)?;
    let third = scene.bed.lab.host("h3", subject.kind())?;
    scene.bed.attach([&third])?;
    scene.hosts.push(third);
    scene.hosts.iter().try_for_each(take_frames)?;
    let (mac, address) = (scene.hosts[1].mac_text(), format!("{}/24", scene.hosts[1].v4()));
    let spare = "02:00:00:00:0e:0e";
    let first = scene.hosts[0].v4();
    for (from, to, name) in [(1, 2, "h3"), (2, 1, "h2"), (1, 2, "h3")] {
        let [from, to] = [from, to].map(|host: usize| scene.hosts[host].netns());
        from.ip(&["addr", "flush", "dev", "eth0"])?;
        from.ip(&["link", "set", "eth0", "address", spare])?;
        to.ip(&["link", "set", "eth0", "address", &mac])?;
        to.ip(&["addr", "replace", &address, "dev", "eth0"])?;
        let ping = Ping::new(first).count(1);
        let host = usize::from(name == "h3") + 1;
        wait::until("an answer at the new place", LIMIT, || {
            ping.from(&scene.hosts[host]).is_ok_and(|report| report.is_complete())
        })?;
        scene.bed.forebay().kill()?;
        scene.restart()?;
        assert_eq!(port_of(&mut scene, &mac)?.as_deref(), Some(name));
    }
    is_balanced(&scene.bed.client())
}

fn fixed(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject)?;
    let mac = "02:00:00:00:0e:0e";
    scene.bed.client().ok(&["fdb", "add", mac, "--port", "h2"])?;
    for _ in 0..2 {
        scene.bed.forebay().kill()?;
        scene.restart()?;
        let found = entries(&mut scene)?.into_iter().find(|entry| entry.mac.to_string() == mac);
        let found = found.ok_or("the static entry is there")?;
        assert_eq!((found.port.as_str(), found.kind.name()), ("h2", "static"));
    }
    Ok(())
}
