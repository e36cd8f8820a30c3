//! `forebay eswitch`

use clap::Subcommand;
use forebay_control::eswitch::{Offload, SpoolMode};

use super::Json;
use super::words::word;

/// `forebay eswitch`
#[derive(Debug, Subcommand)]
pub enum EswitchCommand {
    /// Show the settings of the switch, its workers, and its limits
    Show(Json),
    /// Change a setting of the whole switch while it carries packets
    #[command(subcommand)]
    Set(EswitchSetCommand),
}

/// `forebay eswitch set`
#[derive(Debug, Subcommand)]
pub enum EswitchSetCommand {
    /// Change how ports share packet memory: none, basic or spp
    ///
    /// none: every port has its own memory. basic: all ports share one RX ring. spp: every port has its own RX ring,
    /// and all rings share one pool.
    SpoolMode {
        /// none, basic or spp
        #[arg(value_parser = word::<SpoolMode>)]
        mode: SpoolMode,
        /// How to print the reply
        #[command(flatten)]
        json: Json,
    },
    /// Let the kernel repeat decisions about flows, or not: on or off
    ///
    /// on: the kernel forwards the packets of a known flow without the daemon. off: every packet goes through the
    /// daemon.
    Offload {
        /// on or off
        #[arg(value_parser = word::<Offload>)]
        offload: Offload,
        /// How to print the reply
        #[command(flatten)]
        json: Json,
    },
}
