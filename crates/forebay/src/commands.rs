//! What each command does: ask, print, and say how it ended.

mod capture;
mod channels;
mod coalesce;
mod fdb;
mod flow;
mod generate;
mod hints;
mod observe;
mod pool;
mod port;
mod rss;
mod rxq;
mod show;

use std::process::ExitCode;

use crate::cli::{Cli, Command};
use crate::client::{Client, ClientError};
use crate::output::complain;

/// How a command ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Exit status 1.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Exit status 1, with what there is to say.
    #[error("{0}")]
    Refused(String),
    /// Exit status 1; everything was said already.
    #[error("refused")]
    Said,
    /// Exit status 2.
    #[error("{0}")]
    Usage(String),
}

type Outcome = Result<(), Failure>;

/// Runs the command and returns the exit status.
pub(crate) fn run(cli: Cli) -> ExitCode {
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Said) => ExitCode::from(1),
        Err(failure) => {
            complain(&failure);
            ExitCode::from(if matches!(failure, Failure::Usage(_)) { 2 } else { 1 })
        }
    }
}

fn dispatch(cli: Cli) -> Outcome {
    let client = Client::new(cli.socket());
    match cli.command {
        Command::Run(args) => {
            crate::daemon::run(cli.socket, args).map_err(|error| Failure::Refused(error.to_string()))
        }
        Command::Port(command) => port::run(&client, command),
        Command::Fdb(command) => fdb::run(&client, command),
        Command::Flow(command) => flow::run(&client, &command),
        Command::Stats(args) => show::stats(&client, &args),
        Command::Pool(command) => pool::run(&client, &command),
        Command::PagePoolGet(json) => observe::page_pools(&client, json),
        Command::QueueGet(args) => observe::queues(&client, &args),
        Command::NapiGet(args) => observe::napis(&client, &args),
        Command::Eswitch(command) => show::eswitch(&client, &command),
        Command::Capture(args) => capture::run(&client, &args),
        Command::Hints(command) => hints::run(&client, &command),
        Command::Coalesce(command) => coalesce::run(&client, command),
        Command::Rss(command) => rss::run(&client, command),
        Command::Rxq(command) => rxq::run(&client, &command),
        Command::Channels(command) => channels::run(&client, &command),
        Command::Doctor(json) => show::doctor(json),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { out } => generate::man(&out),
        Command::Openapi => generate::openapi(),
    }
}
