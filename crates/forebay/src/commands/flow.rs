//! `forebay flow`

use forebay_control::flow::{FlowFlushReply, FlowList};
use forebay_control::rule::RuleShow;
use hyper::Method;

use super::{Failure, Outcome};
use crate::cli::{FlowAddArgs, FlowCommand};
use crate::client::{Client, ClientError};
use crate::output::{complain, print, print_as};
use crate::table;

pub(super) fn run(client: &Client, command: &FlowCommand) -> Outcome {
    match command {
        FlowCommand::List(json) => {
            let flows: FlowList = client.get("/v1/flows")?;
            print_as(json.json, &flows, table::flows);
            Ok(())
        }
        FlowCommand::Add(args) => add(client, args),
        FlowCommand::Del { ids } => del(client, ids),
        FlowCommand::Flush => {
            let reply: FlowFlushReply = client.send(Method::POST, "/v1/flows/flush", &())?;
            print(&format!("{} flows deleted", reply.flushed));
            Ok(())
        }
    }
}

/// The number alone goes to standard output, so that a script can keep it.
fn add(client: &Client, args: &FlowAddArgs) -> Outcome {
    let rule: RuleShow = client.send(Method::POST, "/v1/rules", &args.rule())?;
    print_as(args.json.json, &rule, |rule| rule.id.to_string());
    if let Some(reason) = &rule.reason {
        complain(format!("rule {} is {}: {reason}", rule.id, rule.state));
    }
    Ok(())
}

/// Each is answered for itself: one that is refused does not hold back the others.
fn del(client: &Client, ids: &[u64]) -> Outcome {
    let mut refused = false;
    for id in ids {
        match client.delete::<RuleShow>(&format!("/v1/rules/{id}")) {
            Ok(rule) => print(&format!("rule {} deleted", rule.id)),
            Err(ClientError::Refused(error)) => {
                complain(format!("rule {id}: {error}"));
                refused = true;
            }
            Err(error) => return Err(error.into()),
        }
    }
    if refused { Err(Failure::Said) } else { Ok(()) }
}
