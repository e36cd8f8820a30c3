//! `forebay channels`

use super::{Failure, Outcome};
use crate::cli::{ChannelsCommand, ChannelsPlanArgs};
use crate::output::print_as;
use crate::{table, wiring};

pub(super) fn run(command: &ChannelsCommand) -> Outcome {
    match command {
        ChannelsCommand::Plan(args) => plan(args),
    }
}

fn plan(args: &ChannelsPlanArgs) -> Outcome {
    let planned = wiring::plan_channels(&args.sysfs, &args.members, args.channels);
    let planned = planned.map_err(|error| Failure::Refused(error.to_string()))?;
    print_as(args.json.json, &planned, |planned| table::channel_plan(planned));
    Ok(())
}
