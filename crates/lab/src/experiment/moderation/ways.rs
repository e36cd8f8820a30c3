//! The policies that are compared.

use forebay_testbed::Result;
use forebay_testbed::dut::Client;

/// A policy with its limits, and where it decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// No moderation; all others are compared with it
    Off,
    /// The same once more: its difference is noise
    OffAgain,
    /// 8 µs or 64 packets
    Static8,
    /// 64 µs or 64 packets
    Static64,
    /// 1 ms or 32 packets, as VPP has it
    Vpp,
    /// Linux's DIM, with its table for event queues
    DimEqe,
    /// Linux's DIM, with its table for completion queues
    DimCqe,
    /// Ours
    Adaptive,
    /// DIM in one thread for all queues
    DimOnload,
    /// Ours, there
    AdaptiveOnload,
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Off => "off",
            Way::OffAgain => "off, again",
            Way::Static8 => "static 8 µs / 64",
            Way::Static64 => "static 64 µs / 64",
            Way::Vpp => "VPP: static 1 ms / 32",
            Way::DimEqe => "dim, EQE",
            Way::DimCqe => "dim, CQE",
            Way::Adaptive => "adaptive",
            Way::DimOnload => "dim, EQE, onload",
            Way::AdaptiveOnload => "adaptive, onload",
        }
    }

    /// What is said to `forebay coalesce set PORT`.
    fn words(self) -> &'static [&'static str] {
        match self {
            Way::Off | Way::OffAgain => &["--policy", "off", "--where", "offload"],
            Way::Static8 => &["--policy", "static", "--usecs", "8", "--frames", "64", "--where", "offload"],
            Way::Static64 => &["--policy", "static", "--usecs", "64", "--frames", "64", "--where", "offload"],
            Way::Vpp => &["--policy", "static", "--usecs", "1000", "--frames", "32", "--where", "offload"],
            Way::DimEqe => &["--policy", "dim", "--profile", "eqe", "--where", "offload"],
            Way::DimCqe => &["--policy", "dim", "--profile", "cqe", "--where", "offload"],
            Way::Adaptive => &["--policy", "adaptive", "--where", "offload"],
            Way::DimOnload => &["--policy", "dim", "--profile", "eqe", "--where", "onload"],
            Way::AdaptiveOnload => &["--policy", "adaptive", "--where", "onload"],
        }
    }

    /// Has the port moderated in this way.
    pub(super) fn set(self, client: &Client, port: &str) -> Result<()> {
        client.ok(&[&["coalesce", "set", port], self.words()].concat()).map(drop)
    }
}

/// `Off` and these, in this order.
pub(super) fn beside_off(others: &[Way]) -> Vec<Way> {
    let others = others.iter().copied().filter(|way| *way != Way::Off);
    std::iter::once(Way::Off).chain(others).collect()
}
