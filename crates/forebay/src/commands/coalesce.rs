//! `forebay coalesce`

use std::time::{Duration, Instant};

use forebay_control::coalesce::{CoalesceDirection, CoalescePort, CoalesceSet, CoalesceShow};
use hyper::Method;

use super::Outcome;
use crate::cli::{CoalesceCommand, CoalesceSetArgs, CoalesceShowArgs};
use crate::client::{Client, segment};
use crate::output::{print, print_as};
use crate::table;

/// Between two looks of `--follow`.
const PERIOD: Duration = Duration::from_secs(1);

pub(super) fn run(client: &Client, command: CoalesceCommand) -> Outcome {
    match command {
        CoalesceCommand::Show(args) => show(client, args),
        CoalesceCommand::Set(args) => set(client, args),
    }
}

fn show(client: &Client, args: CoalesceShowArgs) -> Outcome {
    let only = args.name.map(|name| format!("?port={}", segment(&name))).unwrap_or_default();
    let path = format!("/v1/coalesce{only}");
    let shown: CoalesceShow = client.get(&path)?;
    if !args.follow {
        print_as(args.json.json, &shown, table::coalesce);
        return Ok(());
    }
    let (mut before, mut since) = (shown, Instant::now());
    loop {
        std::thread::sleep(PERIOD);
        let (now, shown) = (Instant::now(), client.get::<CoalesceShow>(&path)?);
        print(&table::coalesce_rates(&before, &shown, now.duration_since(since)));
        (before, since) = (shown, now);
    }
}

fn set(client: &Client, args: CoalesceSetArgs) -> Outcome {
    let CoalesceSetArgs { name, queue, rx, tx, policy, place, guest, usecs, frames, profile } = args;
    let direction = match (rx, tx) {
        (true, _) => Some(CoalesceDirection::Rx),
        (_, true) => Some(CoalesceDirection::Tx),
        (false, false) => None,
    };
    let change = CoalesceSet { queue, direction, policy, place, guest, usecs, frames, profile };
    let path = format!("/v1/coalesce/ports/{}", segment(&name));
    let port: CoalescePort = client.send(Method::PATCH, &path, &change)?;
    print(&table::coalesce(&CoalesceShow { ports: vec![port] }));
    Ok(())
}
