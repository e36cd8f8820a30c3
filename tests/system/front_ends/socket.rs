//! The socket where the switch listens: its owner, its mode, and its directory.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use forebay_control::port::PortState;
use forebay_testbed::bpffs::BpfFs;
use forebay_testbed::dut::{Forebay, ForebayOptions};
use forebay_testbed::{Lab, wait};

use super::{LIMIT, Scene, guest, join};
use crate::harness::{Outcome, Suite, ensure_program};

pub fn register(suite: &mut Suite) {
    suite.once("a_socket_of_a_port_has_the_owner_and_mode_that_were_asked_for", owned);
    suite.once("a_socket_of_a_port_that_cannot_be_made_safely_is_refused_by_name", refused);
}

/// Owner, group and mode of a file.
fn access(path: &Path) -> std::io::Result<(u32, u32, u32)> {
    let found = std::fs::metadata(path)?;
    Ok((found.uid(), found.gid(), found.mode() & 0o7777))
}

fn owned() -> Outcome {
    ensure_program()?;
    let lab = Lab::new("frontends")?;
    let pins = BpfFs::mount(&lab)?;
    let file = lab.path("file.sock");
    let config = format!(
        "[[port]]\nname = \"file\"\n\
         vhost_user = {{ path = \"{}\", owner = \"4711:4712\", mode = \"0606\" }}\n",
        file.display()
    );
    let options = ForebayOptions::with_config(config).handing_over(&pins);
    let mut scene = Scene::in_lab(lab, 0, options.clone())?;
    scene.add("plain", &[])?;
    scene.add("named", &["--socket-owner", ":4713", "--socket-mode", "600"])?;
    let check = |scene: &Scene| -> Outcome {
        scene.client().wait_port_state("file", PortState::Waiting)?;
        scene.client().wait_port_state("named", PortState::Waiting)?;
        assert_eq!(access(&file)?, (4711, 4712, 0o606));
        assert_eq!(access(&scene.socket("plain"))?, (0, 0, 0o660));
        assert_eq!(access(&scene.socket("named"))?, (0, 4713, 0o600));
        Ok(())
    };
    check(&scene)?;
    join(&mut guest()?, &scene, "named")?;
    // The next daemon makes them anew.
    scene.daemon.kill()?;
    scene.daemon = Forebay::start(&scene.lab, options)?;
    check(&scene)?;
    scene.daemon.stop()?;
    wait::until("the sockets to go", LIMIT, || !file.exists() && !scene.socket("named").exists())?;
    Ok(())
}

fn refused() -> Outcome {
    let scene = Scene::new(0, ForebayOptions::default())?;
    let open = scene.lab.path("open");
    std::fs::create_dir(&open)?;
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777))?;
    let (inside, good) = (open.join("a.sock").display().to_string(), scene.socket("a").display().to_string());
    let cases: [(&[&str], &[&str]); 6] = [
        (&[&inside], &["0777", "chmod o-w"]),
        (&["/nowhere/a.sock"], &["cannot listen in /nowhere", "No such file"]),
        (&[&good, "--socket-owner", "no-such-user"], &["no user `no-such-user`"]),
        (&[&good, "--socket-owner", "0:no-such-group"], &["no group `no-such-group`"]),
        (&[&good, "--socket-mode", "1777"], &["octal digits from 0000 to 0777"]),
        (&[&good, "--client", "--socket-mode", "0600"], &["cannot be used with"]),
    ];
    for (arguments, expected) in cases {
        let said = scene.client().call(&[&["port", "add", "a", "--vhost-user"], arguments].concat())?;
        assert!(!said.status.success(), "{arguments:?}: {said:?}");
        for words in expected {
            assert!(said.stderr.contains(words), "{words} is not in {said:?}");
        }
        assert!(!scene.socket("a").exists(), "{arguments:?} left a socket behind");
    }
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o1777))?;
    scene.client().ok(&["port", "add", "a", "--vhost-user", &inside])?;
    Ok(())
}
