//! `forebay pool`

use forebay_control::pool::{PoolPort, PoolPortSet, PoolShow, PoolThreshold};
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
        PoolCommand::Set(args) => set(client, args),
        PoolCommand::Occupancy(command) => observe::occupancy(client, command),
        PoolCommand::Estimate(args) => observe::estimate(args),
    }
}

fn set(client: &Client, args: &PoolSetArgs) -> Outcome {
    let dynamic = args.th.map(|th| PoolThreshold::Dynamic { th });
    let threshold = dynamic.or(args.static_bytes.map(|bytes| PoolThreshold::Static { bytes }));
    let change = PoolPortSet { threshold, reserve: args.reserve };
    let path = format!("/v1/pool/ports/{}", segment(&args.name));
    let port: PoolPort = client.send(Method::PATCH, &path, &change)?;
    print(&format!("port {} changed: threshold {}, reserve {}", port.name, port.threshold, port.reserve));
    Ok(())
}
