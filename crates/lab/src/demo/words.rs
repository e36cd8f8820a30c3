//! What the demo says. Calm, short, and only what was seen.

use std::fmt::Display;

use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use forebay_testbed::dut::forebay::BINARY_VARIABLE;

use super::stage::{GUEST_V4, Stage};

pub(super) fn opening() {
    println!(
        "Forebay: four hosts, a virtual machine, one switch, real programs. It takes less than a minute."
    );
}

/// A heading with what is about to be seen.
pub(super) fn step(title: &str, explanation: &str) {
    println!("\n── {title}");
    note(explanation);
}

/// Plain lines.
pub(super) fn note(text: &str) {
    text.lines().for_each(|line| println!("   {line}"));
}

/// A command as it is typed, and what it printed.
pub(super) fn shell(command: &str, output: &str) {
    println!("\n   $ {command}");
    for line in output.trim_end().lines() {
        println!("   {line}");
    }
}

/// One line of result, with whether it is what it should be.
pub(super) fn result(is_good: bool, line: impl Display) {
    println!("   {} {line}", if is_good { "ok  " } else { "FAIL" });
}

/// A table with these headings.
pub(super) fn table<Cell: Display>(headings: &[&str], rows: &[Vec<Cell>]) {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_header(headings);
    for row in rows {
        table.add_row(row.iter().map(ToString::to_string));
    }
    println!();
    for line in table.to_string().lines() {
        println!("   {line}");
    }
}

pub(super) fn hosts(stage: &Stage) {
    step(
        "Four hosts",
        "Each is a network namespace with one netdev, eth0, as the kernel made it: nobody\n\
         touched its offloads. The other end of eth0 is a port of the switch.",
    );
    let rows: Vec<Vec<String>> = stage
        .hosts
        .iter()
        .map(|host| {
            let role = stage.role(host).to_owned();
            vec![host.name().to_owned(), role, host.v4().to_string(), host.v6().to_string()]
        })
        .collect();
    table(&["host", "stands for", "IPv4", "IPv6"], &rows);
}

/// How to play, while everything is up.
pub(super) fn what_to_try(stage: &Stage) {
    step(
        "Yours to play with, until Ctrl-C",
        "In another terminal, as root (in the hosts, iperf3 and nginx are listening on web):",
    );
    let forebay = stage.client().binary().display();
    let socket = stage.client().socket().display();
    println!("\n   export FOREBAY_SOCKET={socket}");
    for verb in ["port list", "fdb list", "stats", "pool show", "port show app"] {
        println!("   {forebay} {verb}");
    }
    let (web, vm, app) = (stage.host("web"), stage.host("vm"), stage.host("app"));
    println!("   ip netns exec {} ping {}", vm.netns().name(), app.v4());
    println!("   ip netns exec {} iperf3 -c {}", app.netns().name(), web.v6());
    println!("   ip netns exec {} ab -n 10000 -c 8 http://{}/page", vm.netns().name(), web.v4());
    if stage.has_guest() {
        println!("   ip netns exec {} iperf3 -c {GUEST_V4}", app.netns().name());
    }
    println!("   ip netns exec {} tcpdump -ni eth0", web.netns().name());
}

pub(super) fn verdict(is_good: bool) {
    println!();
    println!("{}", if is_good { "All of it worked." } else { "Not all of it worked: see above." });
}

pub(super) fn how_to_keep() {
    println!("Everything is torn down now; nothing stays behind.");
    println!("To keep it running and play with the command line: make demo DEMO=--keep");
    println!("(To show another build of the switch: {BINARY_VARIABLE}=/path/to/forebay)");
}
