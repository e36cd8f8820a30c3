//! ping: exact counts.

use std::net::IpAddr;
use std::time::Duration;

use crate::host::Host;
use crate::{LabError, Result, command};

/// How to ping.
#[derive(Debug, Clone)]
pub struct Ping {
    target: IpAddr,
    count: u32,
    payload_bytes: u32,
    forbid_fragments: bool,
    pause: Option<Duration>,
    deadline: Option<Duration>,
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

    /// Requests without a reply, of a hundred.
    pub fn lost_percent(&self) -> f64 {
        100.0 * f64::from(self.sent.saturating_sub(self.received)) / f64::from(self.sent.max(1))
    }
}

impl Ping {
    /// Three requests of 56 bytes, one right after the other.
    pub fn new(target: impl Into<IpAddr>) -> Ping {
        Ping {
            target: target.into(),
            count: 3,
            payload_bytes: 56,
            forbid_fragments: false,
            pause: None,
            deadline: None,
        }
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

    /// Sends a request each `pause`, and not all at once.
    #[must_use]
    pub fn every(mut self, pause: Duration) -> Ping {
        self.pause = Some(pause);
        self
    }

    /// Ends after this long, whatever is still to be sent: where most replies are missing, ping slows down. What is then
    /// under way counts as lost.
    #[must_use]
    pub fn within(mut self, deadline: Duration) -> Ping {
        self.deadline = Some(deadline);
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
        self.run(host, &["-q"]).map(|(report, _)| report)
    }

    /// Pings from this host, and says how many requests in a row had no reply at most.
    ///
    /// # Errors
    /// As [`Ping::from`].
    pub fn outage_from(&self, host: &Host) -> Result<(PingReport, u32)> {
        let (report, output) = self.run(host, &[])?;
        Ok((report, longest_outage(&output, report.sent)))
    }

    fn run(&self, host: &Host, args: &[&str]) -> Result<(PingReport, String)> {
        let mut command = match self.deadline {
            // Interrupted, ping sums up; its own deadline (-w) would have it go on until all replies are there.
            Some(deadline) => {
                let mut command = host.netns().command("timeout");
                command.args(["--signal=INT", &deadline.as_secs().to_string(), "ping"]);
                command
            }
            None => host.netns().command("ping"),
        };
        let count = self.count.to_string();
        // All at once, because ping waits for the last replies no longer than twice the longest time before or the
        // interval: with a short one it gives up on a busy machine.
        command.args(["-n", "-W", "2", "-c", &count]).args(args);
        match self.pause {
            Some(pause) => command.args(["-i", &pause.as_secs_f64().to_string()]),
            None => command.args(["-i", "1", "-l", &count]),
        };
        command.args(["-s", &self.payload_bytes.to_string()]);
        if self.forbid_fragments {
            command.args(["-M", "do"]);
        }
        command.arg(self.target.to_string());
        let sending = self.pause.unwrap_or_default() * self.count;
        // A busy machine makes pauses longer.
        let finished = command::run(command, Duration::from_secs(20) + 4 * sending)?;
        let report = parse(&finished.stdout).ok_or_else(|| {
            LabError::output("ping's summary", format!("{}{}", finished.stdout, finished.stderr))
        })?;
        Ok((report, finished.stdout))
    }
}

/// The most requests in a row that had no reply, of `sent` ones; ping's lines name those that had.
fn longest_outage(output: &str, sent: u32) -> u32 {
    let number = |line: &str| line.split_once("icmp_seq=")?.1.split(' ').next()?.parse::<u32>().ok();
    let mut replied: Vec<u32> =
        output.lines().filter(|line| line.contains("bytes from")).filter_map(number).collect();
    replied.extend([0, sent + 1]);
    replied.sort_unstable();
    replied.windows(2).map(|pair| pair[1].saturating_sub(pair[0] + 1)).max().unwrap_or(0)
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
    fn an_outage_is_as_long_as_the_most_replies_missing_in_a_row() {
        let line = |n: u32| format!("64 bytes from 10.66.0.2: icmp_seq={n} ttl=64 time=0.1 ms\n");
        let output = |numbers: &[u32]| numbers.iter().map(|n| line(*n)).collect::<String>();
        assert_eq!(longest_outage(&output(&[1, 2, 3]), 3), 0);
        assert_eq!(longest_outage(&output(&[1, 4, 6]), 6), 2);
        assert_eq!(longest_outage(&output(&[3, 3, 4]), 4), 2, "a duplicate is no gap");
        assert_eq!(longest_outage(&output(&[1]), 9), 8);
        assert_eq!(longest_outage("", 5), 5);
    }

    #[test]
    fn losses_and_duplicates_are_read_from_the_summary() {
        let line = "5 packets transmitted, 4 received, +2 duplicates, 20% packet loss, time 804ms\n";
        let report = parse(line).unwrap();
        assert_eq!(report, PingReport { sent: 5, received: 4, duplicates: 2 });
        assert!(!report.is_complete());
        assert_eq!(report.lost_percent(), 20.0);
        assert!(parse("3 packets transmitted, 3 received, 0% packet loss, time 20ms").unwrap().is_complete());
        assert!(parse("ping: connect: Network is unreachable").is_none());
    }
}
