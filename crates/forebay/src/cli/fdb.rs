//! `forebay fdb`

use clap::{Args, Subcommand};
use forebay_control::{MacAddr, Vid};

use super::Json;

/// `forebay fdb`
#[derive(Debug, Subcommand)]
pub enum FdbCommand {
    /// Show the entries
    List {
        /// Which entries.
        #[command(flatten)]
        filter: FdbFilter,
        /// How to print.
        #[command(flatten)]
        json: Json,
    },
    /// Add a static entry, which is neither learned nor forgotten
    Add {
        /// Ethernet address, as in 02:00:00:00:00:01
        mac: MacAddr,
        /// Name of the port that the address is behind
        #[arg(long)]
        port: String,
        /// VLAN of the address, 0 to 4094; 0: untagged packets of ports with --vlan all
        #[arg(long, value_name = "VID", default_value = "0")]
        vlan: Vid,
    },
    /// Delete one entry, static or learned
    #[command(alias = "delete")]
    Del {
        /// Ethernet address, as in 02:00:00:00:00:01
        mac: MacAddr,
        /// VLAN of the address, 0 to 4094; 0: untagged packets of ports with --vlan all
        #[arg(long, value_name = "VID", default_value = "0")]
        vlan: Vid,
    },
    /// Delete learned entries: all of them, or those of one port or VLAN
    Flush(FdbFilter),
}

/// Which entries.
#[derive(Debug, Clone, Args)]
pub struct FdbFilter {
    /// Only entries behind this port
    #[arg(long)]
    pub port: Option<String>,
    /// Only entries of this VLAN, 0 to 4094
    #[arg(long, value_name = "VID")]
    pub vlan: Option<Vid>,
}
