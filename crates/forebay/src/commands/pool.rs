//! `forebay pool`

use forebay_control::pool::{PoolPort, PoolPortSet, PoolSet, PoolShow, PoolThreshold};
use hyper::Method;

use super::{Outcome, observe};
use crate::cli::{PoolCommand, PoolSetArgs};
use crate::client::{Client, segment};
use crate::output::{print, print_as};
use crate::table;

pub(super) fn run(client: &Client, command: &PoolCommand) -> Outcome {
    match command {
        PoolCommand::Show(json) => {
            let pool: PoolShow = client.get("/v1/pool")?;
            print_as(json.json, &pool, table::pool);
            Ok(())
        }
        PoolCommand::Set(args) => match &args.name {
            Some(name) => set_port(client, name, args),
            None => set(client, args),
        },
        PoolCommand::Occupancy(command) => observe::occupancy(client, command),
        PoolCommand::Estimate(args) => observe::estimate(args),
    }
}

fn set(client: &Client, args: &PoolSetArgs) -> Outcome {
    let pool: PoolShow =
        client.send(Method::PATCH, "/v1/pool", &PoolSet { policy: args.policy, frames: args.frames })?;
    print(&format!(
        "pool changed: policy {}, {} frames, {} for ports, {} of them headroom",
        pool.policy, pool.frames_total, pool.frames_shared, pool.frames_headroom
    ));
    Ok(())
}

fn set_port(client: &Client, name: &str, args: &PoolSetArgs) -> Outcome {
    let dynamic = args.th.map(|th| PoolThreshold::Dynamic { th });
    let threshold = dynamic.or(args.static_bytes.map(|bytes| PoolThreshold::Static { bytes }));
    let change = PoolPortSet { threshold, reserve: args.reserve };
    let path = format!("/v1/pool/ports/{}", segment(name));
    let port: PoolPort = client.send(Method::PATCH, &path, &change)?;
    print(&format!("port {} changed: threshold {}, reserve {}", port.name, port.threshold, port.reserve));
    Ok(())
}
