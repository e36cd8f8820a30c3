//! Hosts in network namespaces with real traffic: tests, demo, benchmarks.
//!
//! A lab is one namespace for the switch and one for every host; hosts run unmodified programs (ping, iperf3,
//! nginx, tcpdump, …) or send and receive raw frames. What stands between them is a [`dut::Dut`], a device under
//! test: Forebay, the kernel's bridge or Open vSwitch, so that a scenario or a measurement is written once.
//!
//! The rule it keeps: everything a lab makes is named `fb-<pid>-…` after the process that owns it, and goes away
//! with the value that stands for it, on panic and on SIGINT too. [`clean`] removes what a killed owner left.
//!
//! ```text
//!   netns fb-1-0-h1          netns fb-1-0-sw            netns fb-1-0-h2
//!   ┌──────────────┐        ┌────────────────┐         ┌──────────────┐
//!   │ iperf3  eth0 ├──veth──┤ h1   DUT    h2 ├─tap─pump┤ eth0   nginx │
//!   └──────────────┘        └────────────────┘         └──────────────┘
//! ```
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod bpf;
pub mod bpffs;
pub mod capture;
mod cgroup;
pub mod checksum;
pub mod clean;
pub mod command;
pub mod dut;
pub mod error;
pub mod frame;
pub mod gso;
pub mod guest;
pub mod guest_load;
pub mod guest_pump;
pub mod host;
pub mod lab;
pub mod machine;
pub mod measure;
pub mod moving;
pub mod net_dim;
pub mod netns;
pub mod packet_io;
pub mod programs;
pub mod pump;
pub mod relay;
pub mod standstill;
pub mod sys;
pub mod systemd;
pub mod tagged;
pub mod vduse;
pub mod wait;

pub use error::{LabError, Result};
pub use host::{Host, PortKind};
pub use lab::Lab;
pub use netns::Netns;
