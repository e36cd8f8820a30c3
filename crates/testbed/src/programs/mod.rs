//! Real programs, run in hosts. All are bounded in time and count.

pub mod dhcp;
pub mod guest_flood;
pub mod hints;
pub mod iperf;
pub mod load;
pub mod ping;
pub mod router;
pub mod testpmd;
pub mod udp;
pub mod watch;
pub mod web;
pub mod wrk;
