//! `forebay rxq`

use forebay_control::rxq::{RxqCollector, RxqCollectorSet, RxqPort, RxqSet, RxqShow};
use hyper::Method;

use super::Outcome;
use crate::cli::{RxqCommand, RxqSetArgs};
use crate::client::{Client, segment};
use crate::output::{print, print_as};
use crate::table;

pub(super) fn run(client: &Client, command: &RxqCommand) -> Outcome {
    match command {
        RxqCommand::Show(json) => {
            let rxq: RxqShow = client.get("/v1/rxq")?;
            print_as(json.json, &rxq, table::rxq);
            Ok(())
        }
        RxqCommand::Set(args) => match &args.name {
            Some(name) => set(client, name, args),
            None => set_collector(client, args),
        },
    }
}

fn set(client: &Client, name: &str, args: &RxqSetArgs) -> Outcome {
    let change = RxqSet { depth: args.depth, refill: args.refill, low: args.low, binding: args.binding };
    let path = format!("/v1/rxq/ports/{}", segment(name));
    let port: RxqPort = client.send(Method::PATCH, &path, &change)?;
    print(&format!(
        "port {} changed: binding {}, depth {}, refill {}, low {}",
        port.name, port.binding, port.depth, port.refill, port.low
    ));
    Ok(())
}

fn set_collector(client: &Client, args: &RxqSetArgs) -> Outcome {
    let change = RxqCollectorSet { refill: args.refill, low: args.low };
    let now: Vec<RxqCollector> = client.send(Method::PATCH, "/v1/rxq/collector", &change)?;
    for RxqCollector { lane, depth, refill, low, .. } in now {
        print(&format!("{lane} collector changed: depth {depth}, refill {refill}, low {low}"));
    }
    Ok(())
}
