//! `forebay rss`

use forebay_control::rss::{RssSet, RssShow};
use hyper::Method;

use super::Outcome;
use crate::cli::{RssCommand, RssSetArgs};
use crate::client::{Client, segment};
use crate::output::{print, print_as};
use crate::table;

pub(super) fn run(client: &Client, command: RssCommand) -> Outcome {
    match command {
        RssCommand::Show(args) => {
            let only = args.name.map(|name| format!("?port={}", segment(&name))).unwrap_or_default();
            let shown: Vec<RssShow> = client.get(&format!("/v1/rss{only}"))?;
            print_as(args.json.json, &shown, |shown| table::rss(shown));
            Ok(())
        }
        RssCommand::Set(args) => set(client, args),
    }
}

fn set(client: &Client, args: RssSetArgs) -> Outcome {
    let RssSetArgs { name, steering, equal, weights } = args;
    let path = format!("/v1/rss/ports/{}", segment(&name));
    let shown: RssShow = client.send(Method::PATCH, &path, &RssSet { steering, equal, weights })?;
    let slots: Vec<String> = shown.channels.iter().map(|channel| channel.slots.to_string()).collect();
    print(&format!("port {} changed: steering {}, slots {}", shown.name, shown.steering, slots.join(",")));
    Ok(())
}
