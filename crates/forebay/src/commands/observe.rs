//! `forebay pool occupancy`, `pool estimate`, `page-pool-get`, `queue-get`, `napi-get`

use forebay_control::netdev_queue::{NetdevNapi, NetdevQueue};
use forebay_control::occupancy::{ClearmaxReply, OccupancySelect, PoolOccupancy};
use forebay_control::page_pool::PagePool;
use hyper::Method;

use super::{Failure, Outcome};
use crate::cli::{EstimateArgs, Json, NetdevArgs, OccupancyCommand};
use crate::client::{Client, segment};
use crate::output::{print, print_as};
use crate::table;

pub(super) fn occupancy(client: &Client, command: &OccupancyCommand) -> Outcome {
    match command {
        OccupancyCommand::Snapshot => {
            let path = "/v1/pool/occupancy/snapshot";
            let taken: PoolOccupancy = client.send(Method::POST, path, &OccupancySelect::default())?;
            print(&format!("snapshot of {} ports taken", taken.occupancy.len()));
        }
        OccupancyCommand::Show { port, json } => {
            // One segment of a path is encoded as a value of a query is.
            let query = port.as_ref().map(|port| format!("?port={}", segment(port)));
            let path = format!("/v1/pool/occupancy{}", query.unwrap_or_default());
            let shown: PoolOccupancy = client.get(&path)?;
            print_as(json.json, &shown, table::occupancy);
        }
        OccupancyCommand::Clearmax { port } => {
            let select = OccupancySelect { port: port.clone() };
            let reply: ClearmaxReply = client.send(Method::POST, "/v1/pool/occupancy/clearmax", &select)?;
            print(&format!("watermarks of {} ports cleared", reply.cleared.len()));
        }
    }
    Ok(())
}

pub(super) fn page_pools(client: &Client, json: Json) -> Outcome {
    let rings: Vec<PagePool> = client.get("/v1/page-pools")?;
    print_as(json.json, &rings, |rings| table::page_pools(rings));
    Ok(())
}

pub(super) fn queues(client: &Client, args: &NetdevArgs) -> Outcome {
    let queues: Vec<NetdevQueue> = client.get(&of_port("/v1/queues", args))?;
    print_as(args.json.json, &queues, |queues| table::netdev_queues(queues));
    Ok(())
}

pub(super) fn napis(client: &Client, args: &NetdevArgs) -> Outcome {
    let napis: Vec<NetdevNapi> = client.get(&of_port("/v1/napis", args))?;
    print_as(args.json.json, &napis, |napis| table::netdev_napis(napis));
    Ok(())
}

/// One segment of a path is encoded as a value of a query is.
fn of_port(path: &str, args: &NetdevArgs) -> String {
    let query = args.port.as_ref().map(|port| format!("?port={}", segment(port)));
    format!("{path}{}", query.unwrap_or_default())
}

/// Needs no daemon.
pub(super) fn estimate(args: &EstimateArgs) -> Outcome {
    let estimate = args.wish().estimate().map_err(Failure::Usage)?;
    print_as(args.json.json, &estimate, table::estimate);
    Ok(())
}
