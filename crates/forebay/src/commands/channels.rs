//! `forebay channels`

use forebay_control::channels::ChannelShow;

use super::{Failure, Outcome};
use crate::cli::{ChannelsCommand, ChannelsPlanArgs, ChannelsShowArgs};
use crate::client::{Client, segment};
use crate::output::print_as;
use crate::{table, wiring};

pub(super) fn run(client: &Client, command: &ChannelsCommand) -> Outcome {
    match command {
        ChannelsCommand::Show(args) => show(client, args),
        ChannelsCommand::Plan(args) => plan(args),
    }
}

fn show(client: &Client, args: &ChannelsShowArgs) -> Outcome {
    // One segment of a path is encoded as a value of a query is.
    let query = args.name.as_ref().map(|name| format!("?port={}", segment(name)));
    let shown: Vec<ChannelShow> = client.get(&format!("/v1/channels{}", query.unwrap_or_default()))?;
    let show = if args.dot { table::channels_dot } else { table::channels };
    print_as(args.json.json, &shown, |shown| show(shown));
    Ok(())
}

fn plan(args: &ChannelsPlanArgs) -> Outcome {
    let planned = wiring::plan_channels(&args.sysfs, &args.members, args.channels);
    let planned = planned.map_err(|error| Failure::Refused(error.to_string()))?;
    print_as(args.json.json, &planned, |planned| table::channel_plan(planned));
    Ok(())
}
