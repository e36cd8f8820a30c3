//! What becomes of limits when a port ends: values that somebody else has set meanwhile, and netdevs that are elsewhere.

use super::*;

/// Nine frames as the log has them.
const NINE: &str = "frames\\\":9";

pub fn register(suite: &mut Suite) {
    suite.once("what_an_administrator_has_set_meanwhile_stays_when_the_port_ends", set_by_hand);
    suite.once("a_netdev_that_was_moved_has_its_limits_put_back_when_it_is_here_again", moved_away);
}

impl Scene {
    fn set_by_hand(&self, frames: &str) -> Result<()> {
        self.lab.switch().run("ethtool", &["-C", TAP, "rx-frames", frames]).map(drop)
    }

    fn log_says(&self, words: &[&str]) -> bool {
        let log = self.daemon.log();
        log.lines().any(|line| words.iter().all(|word| line.contains(word)))
    }
}

fn set_by_hand() -> Outcome {
    let mut scene = Scene::new(|_| ForebayOptions::default())?;
    scene.set(&[TAP, "--policy", "static", "--frames", "32"])?;
    scene.set_by_hand("9")?;
    scene.set(&[TAP, "--policy", "off"])?;
    assert_eq!(scene.frames()?, "9");
    assert!(scene.log_says(&["somebody else has set it", NINE]), "{}", scene.daemon.log());

    scene.set(&[TAP, "--policy", "static", "--frames", "32"])?;
    scene.set_by_hand("10")?;
    scene.daemon.delete_port(TAP)?;
    assert_eq!(scene.frames()?, "10");
    scene.daemon.add_ports(&[PortSpec::new(TAP)])?;
    scene.set(&[TAP, "--policy", "static", "--frames", "32"])?;
    scene.set_by_hand("11")?;
    scene.daemon.stop()?;
    assert_eq!(scene.frames()?, "11");
    Ok(())
}

fn moved_away() -> Outcome {
    let mut scene = Scene::new(|_| ForebayOptions::default())?;
    let elsewhere = scene.lab.extra_netns("elsewhere")?;
    let home = scene.lab.switch().name().to_owned();
    let move_away = |scene: &Scene| {
        scene.set(&[TAP, "--policy", "static", "--frames", "32"])?;
        scene.lab.switch().ip(&["link", "set", TAP, "netns", elsewhere.name()])?;
        scene.daemon.client().wait_port_state(TAP, PortState::NetdevMoved)?;
        assert_eq!(frames_in(&elsewhere)?, "32", "no request reaches it there");
        Ok::<_, Box<dyn std::error::Error>>(())
    };
    let come_back = || elsewhere.ip(&["link", "set", TAP, "netns", &home]).map(drop);

    // It is a port again, obeys again, and what was there before is still known.
    move_away(&scene)?;
    assert!(scene.log_says(&["keeps its moderation until it is here again", TAP]));
    come_back()?;
    wait::until("the netdev to be moderated again", LIMIT, || {
        scene.netdev(TAP).is_ok_and(|shown| shown.rx.now.frames == Some(32) && shown.rx.problem.is_empty())
    })?;
    scene.set(&[TAP, "--policy", "off"])?;
    assert_eq!(scene.frames()?, BEFORE);

    // It is no port any more when it comes back.
    move_away(&scene)?;
    scene.daemon.delete_port(TAP)?;
    come_back()?;
    wait::until("its limits to be put back", LIMIT, || scene.frames().is_ok_and(|frames| frames == BEFORE))?;

    // What somebody has set there stays.
    scene.daemon.add_ports(&[PortSpec::new(TAP)])?;
    move_away(&scene)?;
    elsewhere.run("ethtool", &["-C", TAP, "rx-frames", "9"])?;
    scene.daemon.delete_port(TAP)?;
    come_back()?;
    wait::until("the log to tell", LIMIT, || scene.log_says(&["somebody else has set it", NINE]))?;
    assert_eq!(scene.frames()?, "9");
    Ok(())
}
