//! Ports that the configuration asks for before their netdevs are there, or can be used: they say so, and come up.

use std::time::Duration;

use forebay_control::port::PortState;
use forebay_testbed::bpffs::BpfFs;
use forebay_testbed::dut::{self, Client, Forebay, ForebayOptions};
use forebay_testbed::measure::sink::Sink;
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::{Host, Lab, wait};

use crate::bed::Bed;
use crate::connectivity::ping_all;
use crate::harness::{Outcome, Subject, Suite, ensure_program};

const LIMIT: Duration = Duration::from_secs(60);
/// Ports of a configuration whose netdevs are not there, and how many of these come.
const ABSENT: usize = 1000;
const COMING: usize = 20;

pub fn register(suite: &mut Suite) {
    suite.on_netdevs("a_configured_port_comes_up_when_its_netdev_comes", comes_later);
    suite.on_netdevs("a_configured_port_whose_netdev_is_anothers_comes_up_when_it_is_free", becomes_free);
    suite.on_netdevs("a_port_that_may_wait_is_added_by_request_and_keeps_its_netdev", by_request);
    suite.on_netdevs("a_port_taken_over_whose_netdev_is_anothers_by_now_is_not_lost", taken_over);
    suite.heavy_once("a_thousand_configured_ports_without_netdevs_delay_nothing", thousand_absent);
}

/// A configuration with a port on each of these hosts.
fn config_of<'a>(hosts: impl IntoIterator<Item = &'a Host>) -> String {
    let port = |host: &Host| {
        format!("[[port]]\nnetdev = \"{}\"\nattach = \"{}\"\n", host.name(), dut::port_of(host).attach)
    };
    hosts.into_iter().map(port).collect()
}

fn state(client: &Client, port: &str) -> Option<(PortState, String)> {
    client.port(port).ok().map(|port| (port.state, port.state_reason))
}

fn answers(from: &Host, to: &Host) -> Outcome {
    let answers = || Ping::new(to.v4()).count(1).from(from).is_ok_and(|report| report.is_complete());
    Ok(wait::until(&format!("{} to answer", to.name()), LIMIT, answers)?)
}

fn comes_later(subject: Subject) -> Outcome {
    ensure_program()?;
    let mut lab = Lab::new("waiting")?;
    let mut hosts = lab.hosts(3, subject.kind())?;
    let config = config_of(&hosts);
    hosts[2].pull_out()?;
    wait::until("the netdev to be gone", LIMIT, || lab.switch().ip(&["link", "show", "h3"]).is_err())?;
    let mut bed = Bed::of(lab, ForebayOptions::with_config(config))?;
    let client = bed.client();
    let waiting = state(&client, "h3");
    let expected = "there is no netdev `h3`; the port comes up when there is one".to_owned();
    assert_eq!(waiting, Some((PortState::NetdevMissing, expected)), "{}", bed.forebay().log());
    ping_all(&hosts[..2], false)?;
    hosts[2].plug_in(bed.lab.switch())?;
    client.wait_port_state("h3", PortState::Up)?;
    answers(&hosts[0], &hosts[2])?;
    let ((), counted) = bed.watch(|_| ping_all(&hosts, false))?;
    counted.no_drops();
    Ok(())
}

fn becomes_free(subject: Subject) -> Outcome {
    ensure_program()?;
    let mut lab = Lab::new("waiting")?;
    let hosts = lab.hosts(3, subject.kind())?;
    let foreign = Sink::attach(lab.switch(), "h3")?;
    let mut bed = Bed::of(lab, ForebayOptions::with_config(config_of(&hosts)))?;
    let client = bed.client();
    let (found, reason) = state(&client, "h3").ok_or_else(|| bed.forebay().log())?;
    assert_eq!(found, PortState::AttachFailed);
    assert!(reason.contains("carries another XDP program"), "{reason}");
    ping_all(&hosts[..2], false)?;
    // Its owner detaches it through a BPF link, of which the kernel tells nobody.
    drop(foreign);
    wait::until("the port to come up", LIMIT, || {
        state(&client, "h3").is_some_and(|(state, _)| state == PortState::Up)
    })?;
    answers(&hosts[0], &hosts[2])?;
    Ok(ping_all(&hosts, false)?)
}

fn by_request(subject: Subject) -> Outcome {
    let (mut bed, mut hosts) = Bed::with_hosts(subject, 2)?;
    let client = bed.client();
    let attach = dut::port_of(&hosts[0]).attach.to_string();
    let refused = client.call(&["port", "add", "h3", "--attach", &attach])?;
    assert!(refused.status.code() == Some(1) && refused.stderr.contains("no netdev `h3`"), "{refused:?}");
    let added = client.ok(&["port", "add", "h3", "--attach", &attach, "--wait"])?.stdout;
    assert!(added.contains("port h3 added") && added.contains("netdev-missing"), "{added}");
    let another = client.call(&["port", "add", "h3", "--name", "another", "--wait"])?;
    assert!(another.stderr.contains("`h3` is a port already"), "{another:?}");
    hosts.push(bed.lab.host("h3", subject.kind())?);
    client.wait_port_state("h3", PortState::Up)?;
    answers(&hosts[0], &hosts[2])?;
    Ok(ping_all(&hosts, false)?)
}

fn taken_over(subject: Subject) -> Outcome {
    ensure_program()?;
    let mut lab = Lab::new("waiting")?;
    let pins = BpfFs::mount(&lab)?;
    let mut hosts = lab.hosts(2, subject.kind())?;
    let options = ForebayOptions::with_config(config_of(&hosts)).handing_over(&pins);
    let mut bed = Bed::of(lab, options.clone())?;
    ping_all(&hosts, false)?;
    bed.forebay().kill()?;
    // Made again, with another's program on it, while nobody looks.
    hosts[1].pull_out()?;
    wait::until("the netdev to be gone", LIMIT, || bed.lab.switch().ip(&["link", "show", "h2"]).is_err())?;
    hosts[1].plug_in(bed.lab.switch())?;
    let foreign = Sink::attach(bed.lab.switch(), "h2")?;
    *bed.forebay() = Forebay::start(&bed.lab, options)?;
    let client = bed.client();
    assert!(state(&client, "h2").is_some(), "the port is lost: {}", bed.forebay().log());
    drop(foreign);
    wait::until("the port to come up", LIMIT, || {
        state(&client, "h2").is_some_and(|(state, _)| state == PortState::Up)
    })?;
    answers(&hosts[0], &hosts[1])
}

fn thousand_absent() -> Outcome {
    ensure_program()?;
    let lab = Lab::new("waiting")?;
    let port = |n| format!("[[port]]\nnetdev = \"p{n}\"\nattach = \"tcx\"\n");
    let config: String = (1..=ABSENT).map(port).collect();
    let mut bed = Bed::of(lab, ForebayOptions::with_config(config))?;
    let client = bed.client();
    let count = |wanted| -> forebay_testbed::Result<usize> {
        Ok(client.ports()?.iter().filter(|port| port.state == wanted).count())
    };
    assert_eq!(count(PortState::NetdevMissing)?, ABSENT);
    let _peers = bed.lab.bulk_veths(COMING)?;
    wait::until("the netdevs that came to be ports", LIMIT, || {
        count(PortState::Up).is_ok_and(|up| up == COMING)
    })?;
    assert_eq!(count(PortState::NetdevMissing)?, ABSENT - COMING);
    let said = bed.forebay().log().lines().filter(|line| line.contains("wait for netdevs")).count();
    assert_eq!(said, 1, "one line for all of them: {}", bed.forebay().log());
    assert!(bed.forebay().stop()?.success());
    Ok(())
}
