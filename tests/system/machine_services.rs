//! Services of and for virtual machines (Linux in user mode): addresses by DHCP, pages of a web server. No receiver finds
//! a damaged packet.

use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use forebay_testbed::machine::Machine;
use forebay_testbed::programs::{dhcp, ping::Ping, web};
use forebay_testbed::{PortKind, wait};

use crate::harness::{Outcome, Subject, Suite, ensure_program};
use crate::machine_offloads::{OTHER_V4, SNMP, Scene, V4, damaged, is_host_content};

const LEASE: Ipv4Addr = Ipv4Addr::new(10, 66, 100, 1);
const OTHER_LEASE: Ipv4Addr = Ipv4Addr::new(10, 66, 100, 2);
const PAGE_BYTES: u32 = 8 << 20;
/// A machine waits for a connection to this port, and ends.
const END_PORT: u16 = 9;
const END_LIMIT: Duration = Duration::from_secs(20);

pub fn register(suite: &mut Suite) {
    suite.heavy_on_forebay("a_virtual_machine_gets_its_address_by_dhcp_and_gives_one", addresses);
    suite.heavy_on_forebay("a_page_passes_between_a_virtual_machine_and_a_host_byte_for_byte", pages);
    suite.heavy_once("two_virtual_machines_lease_an_address_and_fetch_a_page", between_two);
}

/// Bytes that are not alike anywhere, so that a part in a wrong place is seen.
fn page() -> Vec<u8> {
    (0..PAGE_BYTES).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8 ^ (at >> 12) as u8).collect()
}

/// Has a machine that waits for it end. What it wrote; it found no packet damaged.
fn end(scene: &Scene, machine: Machine, v4: Ipv4Addr) -> Result<String, Box<dyn std::error::Error>> {
    // It listens when its script has come that far.
    let connect = || scene.host.netns().enter(|| TcpStream::connect((v4, END_PORT))).ok()?.ok();
    wait::until_some("the machine to hear that it is to end", END_LIMIT, connect)?;
    let said = machine.wait()?;
    assert_eq!(damaged(&said), [0, 0], "{said}");
    Ok(said)
}

fn until_the_end(script: &str) -> String {
    format!("{script}\nbusybox nc -l -p {END_PORT} </dev/null >/dev/null\n{SNMP}")
}

/// Words with which a machine without address gets one.
fn lease_words(scene: &Scene) -> forebay_testbed::Result<String> {
    let (client, leased) = (dhcp::client_words(&scene.bed.lab)?, dhcp::LEASED);
    Ok(format!(
        "ip addr flush dev eth0\n{client} >/run/said; cat /run/said\n\
         ip addr add $(sed -n s/^{leased}//p /run/said)/16 dev eth0\n"
    ))
}

fn addresses(subject: Subject) -> Outcome {
    ensure_program()?;
    let scene = Scene::new(subject, &[("vm1", "")])?;
    let server = dhcp::DhcpServer::start(&scene.bed.lab, &scene.host, LEASE)?;
    let script = format!(
        "{}ping -c 3 -i 0.2 {} | grep received\n{} &",
        lease_words(&scene)?,
        scene.host.v4(),
        dhcp::server_words(OTHER_LEASE)
    );
    let mut machine = scene.boot("vm1", V4, &until_the_end(&script))?;
    machine.wait_for_output("received")?;
    let said = machine.output();
    assert!(said.contains(&format!("{}{LEASE}", dhcp::LEASED)) && said.contains("3 received"), "{said}");
    let report = Ping::new(LEASE).from(&scene.host)?;
    assert!(report.is_complete(), "{report:?}");
    drop(server);
    machine.wait_for_output(dhcp::SERVING)?;
    assert_eq!(dhcp::request(&scene.bed.lab, &scene.host)?, OTHER_LEASE);
    end(&scene, machine, LEASE)?;
    assert!(is_host_content(&scene.host)?);
    assert!(scene.client.stats_check()?.balanced);
    Ok(())
}

fn pages(subject: Subject) -> Outcome {
    ensure_program()?;
    let scene = Scene::new(subject, &[("vm1", "")])?;
    let page = page();
    let _server = web::WebServer::of_page(&scene.bed.lab, &scene.host, &page)?;
    let (serve, file) = web::server_words(&scene.bed.lab, "vm1", &page)?;
    let fetch = web::fetch_words(scene.host.v4(), &file, "fetched");
    let script = until_the_end(&format!("{serve} &\n{fetch}\n{}", serving()));
    let mut machine = scene.boot("vm1", V4, &script)?;
    machine.wait_for_output("serving")?;
    assert!(machine.output().contains("fetched"), "{}", machine.output());
    assert!(web::fetch_page(&scene.bed.lab, &scene.host, V4)? == page, "the page has changed on its way");
    end(&scene, machine, V4)?;
    assert!(is_host_content(&scene.host)?);
    assert!(scene.client.stats_check()?.balanced);
    Ok(())
}

/// Words that say so once the machine's web server listens.
fn serving() -> &'static str {
    "until busybox wget -q -O /dev/null http://127.0.0.1/page; do sleep 0.05; done; echo serving"
}

fn between_two() -> Outcome {
    ensure_program()?;
    let scene = Scene::new(Subject::Forebay(PortKind::VethTcx), &[("vm1", ""), ("vm2", "")])?;
    let (serve, file) = web::server_words(&scene.bed.lab, "vm1", &page())?;
    let script = format!("{serve} &\n{} &\n{}", dhcp::server_words(LEASE), serving());
    let mut server = scene.boot("vm1", V4, &until_the_end(&script))?;
    server.wait_for_output("serving")?;
    server.wait_for_output(dhcp::SERVING)?;
    let script = format!("{}{}\n{SNMP}", lease_words(&scene)?, web::fetch_words(V4, &file, "fetched"));
    let said = scene.boot("vm2", OTHER_V4, &script)?.wait()?;
    assert!(said.contains(&format!("{}{LEASE}", dhcp::LEASED)) && said.contains("fetched"), "{said}");
    assert_eq!(damaged(&said), [0, 0], "{said}");
    end(&scene, server, V4)?;
    assert!(scene.client.stats_check()?.balanced);
    Ok(())
}
