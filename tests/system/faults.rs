//! Bad input and faults: one clear error each, nothing lost, nothing left behind.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use forebay_control::port::PortState;
use forebay_testbed::command::{self, Finished};
use forebay_testbed::dut::{Dut, Forebay, ForebayOptions, forebay};
use forebay_testbed::measure::sink::Sink;
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::{Lab, PortKind, wait};

use crate::bed::Bed;
use crate::connectivity::ping_all;
use crate::harness::{Outcome, Subject, Suite, ensure_program};

const LIMIT: Duration = Duration::from_secs(10);
/// How long nothing is answered before the port is looked at again.
const SILENCE: Duration = Duration::from_secs(2);

pub fn register(suite: &mut Suite) {
    suite.once("a_port_that_can_not_be_is_refused_by_name", refused_ports);
    suite.on_netdevs("a_port_that_exists_is_not_added_again", added_twice);
    suite.once("a_foreign_xdp_program_is_named_and_left_alone", foreign_program);
    suite.once("a_second_daemon_on_the_same_socket_does_not_start", second_daemon);
    suite.once("a_bad_config_file_is_refused_with_line_and_column", bad_config);
    suite.once("without_root_the_missing_capabilities_are_named", no_root);
    suite.on_forebay("after_kill_9_nothing_is_left_and_the_next_start_is_clean", kill_and_restart);
    suite.on_forebay("sigterm_ends_the_daemon_and_detaches_what_it_attached", sigterm);
    suite.on_netdevs("a_port_whose_packets_are_all_lost_says_so_in_its_state", all_lost);
    suite.once("rubbish_on_the_api_is_answered_and_harms_nobody", api_rubbish);
    suite.once("a_config_file_makes_ports_and_sighup_applies_the_difference", config_ports);
}

/// A refused request: exit status 1 and a message with all of `words`.
fn assert_refused(finished: &Finished, words: &[&str]) {
    let text = format!("{}{}", finished.stdout, finished.stderr);
    assert_eq!(finished.status.code(), Some(1), "{}: {text}", finished.command);
    for word in words {
        assert!(text.to_lowercase().contains(&word.to_lowercase()), "`{word}` is not in: {text}");
    }
}

/// As if a driver lost all that a port's program hands over: the netdev that it is handed to is down.
fn all_lost(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 2)?;
    // Or the host would ask for the address, once a second, and send nothing.
    hosts[0].knows(&hosts[1])?;
    let client = bed.client();
    let collectors = client.eswitch()?.collectors;
    let switch = |way: &str| {
        collectors.iter().try_for_each(|name| bed.lab.switch().ip(&["link", "set", name, way]).map(drop))
    };
    let state = || client.port("h1").map(|port| (port.state, port.state_reason));
    assert_eq!(state()?.0, PortState::Up);
    switch("down")?;
    // Enough in each second; ping slows down where replies are missing.
    let many = Ping::new(hosts[1].v4()).count(150).every(Duration::from_millis(10)).within(SILENCE);
    wait::until("the port to say that it carries nothing", LIMIT, || {
        assert!(many.from(&hosts[0]).is_ok_and(|report| report.received == 0));
        state().is_ok_and(|(state, _)| state == PortState::NotCarrying)
    })?;
    let (_, reason) = state()?;
    assert!(reason.contains("h1") && reason.contains("lost"), "{reason}");
    switch("up")?;
    wait::until("the port to carry again", LIMIT, || {
        Ping::new(hosts[1].v4()).from(&hosts[0]).is_ok_and(|report| report.is_complete())
            && state().is_ok_and(|(state, _)| state == PortState::Up)
    })?;
    Ok(())
}

fn any() -> Subject {
    Subject::Forebay(PortKind::VethTcx)
}

fn refused_ports() -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(any(), 2)?;
    let client = bed.client();
    assert_refused(&client.call(&["port", "add", "nowhere"])?, &["nowhere"]);
    assert_refused(&client.call(&["port", "add", "lo"])?, &["lo", "loopback"]);
    for collector in client.eswitch()?.collectors {
        assert_refused(&client.call(&["port", "add", &collector])?, &[&collector]);
    }
    assert_refused(&client.call(&["port", "del", "nowhere"])?, &["nowhere"]);
    assert_refused(&client.call(&["port", "show", "nowhere"])?, &["nowhere"]);
    assert_eq!(client.ports()?.len(), 2);
    Ok(ping_all(&hosts, false)?)
}

fn added_twice(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 2)?;
    let client = bed.client();
    assert_refused(&client.call(&["port", "add", "h1"])?, &["h1", "already"]);
    // A request with a good and a bad name: the good one is done, the bad one is named.
    let third = bed.lab.host("h3", subject.kind())?;
    assert_refused(&client.call(&["port", "add", "h3", "h2"])?, &["h2"]);
    assert!(client.ports()?.iter().any(|port| port.name == "h3"));
    assert!(Ping::new(third.v4()).from(&hosts[0])?.is_complete());
    Ok(())
}

fn foreign_program() -> Outcome {
    let mut bed = Bed::new(any())?;
    let hosts = bed.lab.hosts(2, PortKind::VethXdp)?;
    let foreign = Sink::attach(bed.lab.switch(), "h1")?;
    let client = bed.client();
    let refusal = client.call(&["port", "add", "h1", "--attach", "xdp"])?;
    assert_refused(&refusal, &["h1", Sink::PROGRAM_NAME]);
    let link = bed.lab.switch().ip(&["-d", "link", "show", "h1"])?.stdout;
    assert!(link.contains(Sink::PROGRAM_NAME), "the foreign program is gone: {link}");
    drop(foreign);
    client.ok(&["port", "add", "h1", "h2", "--attach", "xdp"])?;
    Ok(ping_all(&hosts, false)?)
}

fn second_daemon() -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(any(), 2)?;
    let mut second = Forebay::launch(&bed.lab, ForebayOptions::default())?;
    assert_eq!(second.daemon().wait(LIMIT)?.code(), Some(1));
    let log = second.log();
    assert!(log.contains("forebay.sock"), "{log}");
    assert_eq!(bed.client().ports()?.len(), 2, "the first goes on");
    Ok(ping_all(&hosts, false)?)
}

fn bad_config() -> Outcome {
    ensure_program()?;
    let lab = Lab::new("bad-config")?;
    for (text, place) in
        [("[pool]\nframs = 4096\n", "2:1"), ("[switch]\nworkers = 0\n", "2:"), ("[pool\n", "1:")]
    {
        let options = ForebayOptions { socket: Some("bad".to_owned()), ..ForebayOptions::with_config(text) };
        let mut daemon = Forebay::launch(&lab, options)?;
        assert_eq!(daemon.daemon().wait(LIMIT)?.code(), Some(1));
        assert!(daemon.log().contains(&format!("bad.toml:{place}")), "{text}: {}", daemon.log());
        std::fs::remove_file(lab.path("bad.log"))?;
    }
    Ok(())
}

fn no_root() -> Outcome {
    ensure_program()?;
    let lab = Lab::new("no-root")?;
    std::fs::set_permissions(lab.directory(), std::fs::Permissions::from_mode(0o777))?;
    // Where nobody may execute it.
    let program = lab.path("forebay-copy");
    std::fs::copy(forebay::binary()?, &program)?;
    let mut command = lab.switch().command("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set=-all"]);
    command.arg(&program).arg("run").arg("--socket").arg(lab.path("nobody.sock"));
    let finished = command::run(command, LIMIT)?;
    assert_refused(&finished, &["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF"]);
    Ok(())
}

/// Names of BPF programs attached in the switch's namespace, and of netdevs that are not the hosts'.
pub fn traces(lab: &Lab) -> Result<String, Box<dyn std::error::Error>> {
    let attached = lab.switch().run("bpftool", &["net", "show"])?.stdout;
    let lines = attached.lines().filter(|line| line.contains(" id ")).collect::<Vec<_>>().join("\n");
    let links = lab.switch().ip(&["-br", "link"])?.stdout;
    let own = links.lines().filter(|line| !line.starts_with('h') && !line.starts_with("lo"));
    Ok(lines + &own.collect::<Vec<_>>().join("\n"))
}

fn kill_and_restart(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 2)?;
    ping_all(&hosts, false)?;
    bed.forebay().kill()?;
    wait::until("the kernel to take down its side", LIMIT, || {
        traces(&bed.lab).is_ok_and(|left| left.is_empty())
    })
    .map_err(|error| format!("{error}: {:?}", traces(&bed.lab)))?;
    *bed.forebay() = Forebay::start(&bed.lab, ForebayOptions::default())?;
    bed.attach(&hosts)?;
    let ((), counted) = bed.watch(|_| ping_all(&hosts, true))?;
    counted.no_drops();
    Ok(())
}

fn sigterm(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 2)?;
    ping_all(&hosts, false)?;
    let status = bed.forebay().stop()?;
    assert!(status.success(), "{status}: {}", bed.forebay().log());
    assert!(!bed.client().socket().exists(), "the socket is left");
    wait::until("everything to be detached", LIMIT, || traces(&bed.lab).is_ok_and(|left| left.is_empty()))
        .map_err(|error| format!("{error}: {:?}", traces(&bed.lab)))?;
    Ok(())
}

fn api_rubbish() -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(any(), 2)?;
    let client = bed.client();
    let post = |body: &str, length: usize| {
        format!(
            "POST /v1/ports HTTP/1.1\r\nHost: f\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    };
    let unknown = r#"{"ports":[{"netdev":"h9","colour":"red"}]}"#;
    let cases = [
        ("\x00\x01\x02 rubbish\r\n\r\n".to_owned(), "400"),
        (post("not json", 8), "400"),
        (post(unknown, unknown.len()), "422"),
        (post("{", 1 << 30), "413"),
        ("GET /nowhere HTTP/1.1\r\nHost: f\r\n\r\n".to_owned(), "404"),
        ("DELETE /v1/stats HTTP/1.1\r\nHost: f\r\n\r\n".to_owned(), "405"),
    ];
    for (request, status) in cases {
        let answer = ask(client.socket(), request.as_bytes())?;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request:?}: {answer:?}");
    }
    // One that never finishes its request keeps nobody waiting.
    let mut slow = UnixStream::connect(client.socket())?;
    slow.write_all(b"POST /v1/ports HTTP/1.1\r\nContent-Le")?;
    assert_eq!(client.ports()?.len(), 2);
    drop(slow);
    Ok(ping_all(&hosts, false)?)
}

fn ask(socket: &std::path::Path, request: &[u8]) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(request)?;
    let mut answer = [0; 256];
    let length = stream.read(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
}

fn config_ports() -> Outcome {
    let lab_config = |ports: &[&str]| -> String {
        ports.iter().map(|port| format!("[[port]]\nnetdev = \"{port}\"\nattach = \"tcx\"\n")).collect()
    };
    ensure_program()?;
    let mut lab = Lab::new("config")?;
    let hosts = lab.hosts(3, PortKind::VethTcx)?;
    let mut daemon = Forebay::start(&lab, ForebayOptions::with_config(lab_config(&["h1", "h2"])))?;
    ping_all(&hosts[..2], false)?;
    std::fs::write(lab.path("forebay.toml"), lab_config(&["h2", "h3"]))?;
    let mut reload = Command::new("kill");
    reload.args(["-HUP", &daemon.pids()[0].to_string()]);
    command::run_ok(reload)?;
    let client = daemon.client().clone();
    let names = || client.ports().map(|ports| ports.into_iter().map(|port| port.name).collect::<Vec<_>>());
    wait::until("the new configuration", LIMIT, || names().is_ok_and(|names| names == ["h2", "h3"]))
        .map_err(|error| format!("{error}: {:?}; log: {}", names(), daemon.log()))?;
    ping_all(&hosts[1..], false)?;
    daemon.stop()?;
    Ok(())
}
