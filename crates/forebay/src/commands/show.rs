//! What only reads: `forebay stats`, `eswitch show`, `doctor`.

use std::time::Duration;

use forebay_control::eswitch::{EswitchSet, EswitchSetReply, EswitchShow};
use forebay_control::port::PortShow;
use forebay_control::stats::{LatencyShow, StatsShow, WorkersShow};
use hyper::Method;

use super::{Failure, Outcome};
use crate::cli::{EswitchCommand, EswitchSetCommand, Json, StatsArgs};
use crate::client::{Client, ClientError, segment};
use crate::output::print_as;
use crate::{table, wiring};

/// How often `stats --check` asks again when packets under way keep the counters apart, and how long it waits.
const CHECK_ATTEMPTS: u32 = 5;
const CHECK_PAUSE: Duration = Duration::from_millis(100);

pub(super) fn stats(client: &Client, args: &StatsArgs) -> Outcome {
    match &args.port {
        Some(name) => port_stats(client, name, args.json),
        None if args.check => check(client, args.json),
        None if args.workers => workers(client, args),
        None if args.latency => {
            let latency: LatencyShow = client.get("/v1/stats/latency")?;
            print_as(args.json.json, &latency, table::latency);
            Ok(())
        }
        None => {
            let stats: StatsShow = client.get("/v1/stats")?;
            print_as(args.json.json, &stats, table::stats);
            Ok(())
        }
    }
}

fn port_stats(client: &Client, name: &str, json: Json) -> Outcome {
    let port: PortShow = client.get(&format!("/v1/ports/{}", segment(name)))?;
    print_as(json.json, &port.counters, table::counters);
    Ok(())
}

fn workers(client: &Client, args: &StatsArgs) -> Outcome {
    let look = || client.get::<WorkersShow>("/v1/stats/workers");
    let shown = match args.interval {
        Some(seconds) => {
            let before = look()?;
            std::thread::sleep(Duration::from_secs(seconds));
            look()?.since(&before)
        }
        None if args.clear => client.send(Method::POST, "/v1/stats/workers/clear", &())?,
        None => look()?,
    };
    print_as(args.json.json, &shown, table::workers_show);
    Ok(())
}

fn check(client: &Client, json: Json) -> Outcome {
    let stats = settled_stats(client)?;
    print_as(json.json, &stats.check, table::check);
    if stats.check.balanced { Ok(()) } else { Err(Failure::Said) }
}

fn settled_stats(client: &Client) -> Result<StatsShow, ClientError> {
    let mut stats: StatsShow = client.get("/v1/stats")?;
    for _ in 1..CHECK_ATTEMPTS {
        if stats.check.balanced {
            break;
        }
        std::thread::sleep(CHECK_PAUSE);
        stats = client.get("/v1/stats")?;
    }
    Ok(stats)
}

pub(super) fn eswitch(client: &Client, command: &EswitchCommand) -> Outcome {
    match command {
        EswitchCommand::Show(json) => {
            let eswitch: EswitchShow = client.get("/v1/eswitch")?;
            print_as(json.json, &eswitch, table::eswitch);
        }
        EswitchCommand::Set(EswitchSetCommand::SpoolMode { mode, json }) => {
            let change = EswitchSet { spool_mode: Some(*mode), ..EswitchSet::default() };
            let reply: EswitchSetReply = client.send(Method::PATCH, "/v1/eswitch", &change)?;
            print_as(json.json, &reply, table::eswitch_changed);
        }
        EswitchCommand::Set(EswitchSetCommand::Offload { offload, json }) => {
            let change = EswitchSet { offload: Some(*offload), ..EswitchSet::default() };
            let reply: EswitchSetReply = client.send(Method::PATCH, "/v1/eswitch", &change)?;
            print_as(json.json, &reply, table::offload_changed);
        }
    }
    Ok(())
}

pub(super) fn doctor(json: Json) -> Outcome {
    let report = wiring::probe();
    print_as(json.json, &report, table::doctor);
    if report.can_start() { Ok(()) } else { Err(Failure::Said) }
}
