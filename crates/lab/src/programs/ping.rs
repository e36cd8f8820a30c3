//! ping: exact counts.

use std::net::IpAddr;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::command::Background;
use crate::host::Host;
use crate::{Lab, LabError, Result, command};

/// How to ping.
#[derive(Debug, Clone)]
pub struct Ping {
    target: IpAddr,
    count: u32,
    interval_ms: u32,
    payload_bytes: u32,
    forbid_fragments: bool,
}

/// What ping counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PingReport {
    /// Requests sent.
    pub sent: u32,
    /// Replies received.
    pub received: u32,
    /// Replies that came twice.
    pub duplicates: u32,
}

impl PingReport {
    /// Whether every request had its one reply.
    pub fn is_complete(&self) -> bool {
        self.sent == self.received && self.duplicates == 0
    }
}

impl Ping {
    /// Three requests of 56 bytes, 10 ms apart.
    pub fn new(target: impl Into<IpAddr>) -> Ping {
        Ping { target: target.into(), count: 3, interval_ms: 10, payload_bytes: 56, forbid_fragments: false }
    }

    /// Sends this many requests.
    #[must_use]
    pub fn count(mut self, count: u32) -> Ping {
        self.count = count;
        self
    }

    /// Carries this many bytes behind the ICMP header.
    #[must_use]
    pub fn payload_bytes(mut self, bytes: u32) -> Ping {
        self.payload_bytes = bytes;
        self
    }

    /// Forbids fragments, so that only a packet of this size passes.
    #[must_use]
    pub fn whole(mut self) -> Ping {
        self.forbid_fragments = true;
        self
    }

    /// Pings from this host.
    ///
    /// # Errors
    /// When ping's output is not understood, as when there is no route.
    pub fn from(&self, host: &Host) -> Result<PingReport> {
        let mut command = host.netns().command("ping");
        let interval = format!("{}.{:03}", self.interval_ms / 1000, self.interval_ms % 1000);
        command.args(["-n", "-q", "-W", "2", "-i", &interval, "-c", &self.count.to_string()]);
        command.args(["-s", &self.payload_bytes.to_string()]);
        if self.forbid_fragments {
            command.args(["-M", "do"]);
        }
        command.arg(self.target.to_string());
        let finished = command::run(command, Duration::from_secs(20))?;
        parse(&finished.stdout).ok_or_else(|| {
            LabError::output("ping's summary", format!("{}{}", finished.stdout, finished.stderr))
        })
    }
}

/// A ping that goes on in the background, to show that something else does not disturb it.
#[derive(Debug)]
pub struct PingStream {
    program: Background,
}

impl PingStream {
    /// Pings every five milliseconds, at most 8000 times.
    ///
    /// # Errors
    /// When the first reply does not come.
    pub fn start(lab: &Lab, from: &Host, target: impl Into<IpAddr>) -> Result<PingStream> {
        let target = target.into();
        let mut command = from.netns().command("ping");
        command.args(["-n", "-i", "0.005", "-c", "8000", &target.to_string()]);
        let log = lab.path(&format!("ping-{}-{target}.log", from.name()));
        let mut program = Background::start(command, &log)?;
        program.wait_for_output("icmp_seq=1 ", Duration::from_secs(5))?;
        Ok(PingStream { program })
    }

    /// Ends it and says what it counted. One reply may still have been under way.
    ///
    /// # Errors
    /// When ping's summary is not understood.
    pub fn finish(mut self) -> Result<PingReport> {
        self.program.signal(Signal::SIGINT);
        self.program.wait(Duration::from_secs(10))?;
        let output = self.program.output();
        parse(&output).ok_or_else(|| LabError::output("ping's summary", output))
    }
}

fn parse(output: &str) -> Option<PingReport> {
    let summary = output.lines().find(|line| line.contains("packets transmitted"))?;
    let number_before = |word: &str| {
        let part = summary.split(", ").find(|part| part.contains(word))?;
        part.trim_start_matches('+').split(' ').next()?.parse::<u32>().ok()
    };
    Some(PingReport {
        sent: number_before("transmitted")?,
        received: number_before("received")?,
        duplicates: number_before("duplicates").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_and_duplicates_are_read_from_the_summary() {
        let line = "5 packets transmitted, 4 received, +2 duplicates, 20% packet loss, time 804ms\n";
        let report = parse(line).unwrap();
        assert_eq!(report, PingReport { sent: 5, received: 4, duplicates: 2 });
        assert!(!report.is_complete());
        assert!(parse("3 packets transmitted, 3 received, 0% packet loss, time 20ms").unwrap().is_complete());
        assert!(parse("ping: connect: Network is unreachable").is_none());
    }
}
