//! Programs of others on the netdevs of this namespace. They are named and left alone.

use std::io;

use forebay_control::doctor::{Answer, Check, Severity};

use super::finding::{list, setting, unreadable};
use super::programs;
use crate::netlink::Link;
use crate::netlink::link::{self, XdpMode};
use crate::program_name;

pub(super) fn checks() -> Vec<Check> {
    match link::list() {
        Ok(links) => vec![xdp(&links), tcx(&links)],
        Err(error) => vec![unreadable("XDP programs", Severity::Info, error.to_string())],
    }
}

/// A netdev has one XDP program at most: where there is one, the switch can only attach by tcx.
fn xdp(links: &[Link]) -> Check {
    let occupied = links.iter().filter_map(|link| Some((link, link.xdp?)));
    let found: Vec<_> = occupied
        .map(|(link, xdp)| format!("{} has {} ({})", link.name, program(xdp.prog_id), mode(xdp.mode)))
        .collect();
    let problem = (!found.is_empty()).then(|| {
        let remedy =
            "Use `--attach tcx` for these ports, or detach the program with the tool that attached it.";
        (list(&found), remedy.to_owned())
    });
    setting("XDP programs already attached", Severity::Info, examined(links), problem)
}

/// tcx programs run one after the other, so others' don't keep the switch out, but may take its packets.
fn tcx(links: &[Link]) -> Check {
    const NAME: &str = "tcx programs already attached";
    let mut found = Vec::new();
    for link in links {
        match programs::tcx_programs(link.ifindex) {
            Ok(ids) => found.extend(ids.iter().map(|id| format!("{} has {}", link.name, program(*id)))),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
            Err(error) => return cannot_query(NAME, &error),
        }
    }
    let problem = (!found.is_empty()).then(|| {
        let remedy = "Nothing, if they let packets pass; the switch sees what they leave.";
        (list(&found), remedy.to_owned())
    });
    setting(NAME, Severity::Info, examined(links), problem)
}

fn cannot_query(name: &str, error: &io::Error) -> Check {
    let remedy = Some("Run `forebay doctor` with CAP_NET_ADMIN on Linux 6.6 or later to know.".to_owned());
    let answer = Answer::Unknown { why: format!("{error}; looking needs CAP_NET_ADMIN") };
    Check { name: name.to_owned(), answer, severity: Severity::Info, detail: String::new(), remedy }
}

fn program(id: u32) -> String {
    match program_name(id).filter(|name| !name.is_empty()) {
        Some(name) => format!("program {name}, id {id}"),
        None => format!("program id {id}"),
    }
}

fn mode(mode: XdpMode) -> &'static str {
    match mode {
        XdpMode::Native => "native",
        XdpMode::Generic => "generic",
        XdpMode::Offloaded => "offloaded",
        XdpMode::Several => "in several modes",
    }
}

fn examined(links: &[Link]) -> String {
    format!("{} netdevs looked at", links.len())
}
