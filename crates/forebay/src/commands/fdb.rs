//! `forebay fdb`

use forebay_control::fdb::{FdbAdd, FdbEntry, FdbFlush, FdbFlushReply};
use hyper::Method;

use super::Outcome;
use crate::cli::{FdbCommand, FdbFilter};
use crate::client::{Client, segment};
use crate::output::{print, print_as};
use crate::table;

pub(super) fn run(client: &Client, command: FdbCommand) -> Outcome {
    match command {
        FdbCommand::List { filter, json } => {
            let entries: Vec<FdbEntry> = client.get(&list_path(&filter))?;
            print_as(json.json, &entries, |entries| table::fdb(entries));
        }
        FdbCommand::Add { mac, port, vlan } => {
            let entry: FdbEntry = client.send(Method::POST, "/v1/fdb", &FdbAdd { vlan, mac, port })?;
            print(&format!("{} in VLAN {} is behind {}", entry.mac, entry.vlan, entry.port));
        }
        FdbCommand::Del { mac, vlan } => {
            let entry: FdbEntry = client.delete(&format!("/v1/fdb/{vlan}/{mac}"))?;
            print(&format!("{} in VLAN {} deleted", entry.mac, entry.vlan));
        }
        FdbCommand::Flush(FdbFilter { port, vlan }) => {
            let reply: FdbFlushReply =
                client.send(Method::POST, "/v1/fdb/flush", &FdbFlush { port, vlan })?;
            print(&format!("{} learned entries deleted", reply.flushed));
        }
    }
    Ok(())
}

fn list_path(filter: &FdbFilter) -> String {
    let port = filter.port.as_ref().map(|port| format!("port={}", segment(port)));
    let vlan = filter.vlan.map(|vlan| format!("vlan={vlan}"));
    let query: Vec<String> = port.into_iter().chain(vlan).collect();
    format!("/v1/fdb{}{}", if query.is_empty() { "" } else { "?" }, query.join("&"))
}
