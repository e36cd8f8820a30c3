//! ping: exact counts.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::command::{self, Background};
use crate::host::Host;
use crate::{LabError, Result};

/// How long ping waits for replies after the last request.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same where no reply is to come: a reply takes a millisecond.
const LITTLE_PATIENCE: Duration = Duration::from_millis(500);
/// What ping lets pass between two requests of those sent all at once, once the kernel had no room for one of them
/// (ENOBUFS).
const AFTER_NO_ROOM: Duration = Duration::from_secs(1);
/// How long an interrupted ping takes for its summary.
const END_LIMIT: Duration = Duration::from_secs(10);

/// How to ping.
#[derive(Debug, Clone)]
pub struct Ping {
    target: IpAddr,
    count: u32,
    payload_bytes: u32,
    forbid_fragments: bool,
    pause: Option<Duration>,
    deadline: Option<Duration>,
    patience: Duration,
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
            patience: PATIENCE,
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

    /// Sends a request each `pause`, and not all at once, and goes on as long as replies to as many are still to come: only
    /// the first ones count.
    #[must_use]
    pub fn every(mut self, pause: Duration) -> Ping {
        self.pause = Some(pause);
        self
    }

    /// Of requests with pauses: ends after this long, in whole seconds, whatever is still to be sent: where most replies
    /// are missing, ping slows down. What is then under way counts as lost.
    #[must_use]
    pub fn within(mut self, deadline: Duration) -> Ping {
        self.deadline = Some(deadline);
        self
    }

    /// Of requests without pauses: waits half a second for replies instead of two, because nobody is to answer.
    #[must_use]
    pub fn in_vain(mut self) -> Ping {
        self.patience = LITTLE_PATIENCE;
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
        self.run(host)
    }

    /// Pings from this host, with pauses, for as long as `act` takes; says besides how many requests in a row had no reply
    /// at most. The last request may count as lost, because nobody waits for its reply.
    ///
    /// # Errors
    /// As [`Ping::from`], and those of `act`.
    pub fn during<T>(
        &self,
        host: &Host,
        log: &Path,
        act: impl FnOnce() -> Result<T>,
    ) -> Result<(T, PingReport, u32)> {
        let pause = self.pause.unwrap_or(Duration::from_secs(1)).as_secs_f64().to_string();
        let mut command = host.netns().command("ping");
        command.args(["-n", "-i", &pause, "-s", &self.payload_bytes.to_string(), &self.target.to_string()]);
        let mut ping = Background::start(command, log)?;
        let acted = act()?;
        ping.signal(Signal::SIGINT);
        ping.wait(END_LIMIT)?;
        let output = ping.output();
        let report = parse(&output).ok_or_else(|| LabError::output("ping's summary", output.clone()))?;
        Ok((acted, report, longest_outage(&output, report.sent)))
    }

    fn run(&self, host: &Host) -> Result<PingReport> {
        let mut command = host.netns().command("ping");
        let count = self.count.to_string();
        command.args(["-n", "-c", &count, "-s", &self.payload_bytes.to_string()]);
        let limit = match self.pause {
            Some(pause) => {
                // A busy machine makes pauses longer.
                let limit = self.deadline.unwrap_or(Duration::from_secs(10) + 2 * pause * self.count);
                // Without a deadline ping waits for the last reply no longer than twice the longest time before or the
                // pause, and gives up on a busy machine. With one it goes on until it has as many replies as wanted.
                let deadline = limit.as_secs().max(1).to_string();
                command.args(["-i", &pause.as_secs_f64().to_string(), "-w", &deadline]);
                limit
            }
            // All at once, as long as the kernel has room for them, and then it waits as long as it is told.
            None => {
                let patience = self.patience.as_secs_f64().to_string();
                let interval = AFTER_NO_ROOM.as_secs().to_string();
                command.args(["-i", &interval, "-l", &count, "-W", &patience]);
                self.patience + AFTER_NO_ROOM * self.count
            }
        };
        if self.forbid_fragments {
            command.args(["-M", "do"]);
        }
        command.arg(self.target.to_string());
        let finished = command::run(command, 2 * limit + Duration::from_secs(20))?;
        let report = parse_first(&finished.stdout, self.count);
        report.ok_or_else(|| {
            LabError::output("ping's summary", format!("{}{}", finished.stdout, finished.stderr))
        })
    }
}

/// The most requests in a row that had no reply, of `sent` ones; ping's lines name those that had.
fn longest_outage(output: &str, sent: u32) -> u32 {
    let mut replied = replied(output);
    replied.extend([0, sent + 1]);
    replied.sort_unstable();
    replied.windows(2).map(|pair| pair[1].saturating_sub(pair[0] + 1)).max().unwrap_or(0)
}

/// Sequence numbers of the replies that ping wrote a line about, in the order of the lines.
fn replied(output: &str) -> Vec<u32> {
    let number = |line: &str| line.split_once("icmp_seq=")?.1.split(' ').next()?.parse::<u32>().ok();
    let numbers = output.lines().filter(|line| line.contains("bytes from")).filter_map(number);
    // The number has 16 bits on the wire.
    let unwrapped = numbers.scan(0_u32, |last, number| {
        let ahead = (number as u16).wrapping_sub(*last as u16).cast_signed();
        *last = last.saturating_add_signed(ahead.into());
        Some(*last)
    });
    unwrapped.collect()
}

/// What ping counted of its first `count` requests: those that it sent while it waited for the last replies do not count.
fn parse_first(output: &str, count: u32) -> Option<PingReport> {
    let all = parse(output)?;
    let replied: HashSet<u32> = replied(output).into_iter().filter(|number| *number <= count).collect();
    Some(PingReport { sent: all.sent.min(count), received: replied.len() as u32, ..all })
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
        let wrapped: Vec<u32> = (1..=65_535).chain(0..10).collect();
        assert_eq!(longest_outage(&output(&wrapped), 65_545), 0, "numbers begin anew");
    }

    #[test]
    fn requests_sent_while_waiting_for_the_last_replies_do_not_count() {
        let line = |n: u32| format!("64 bytes from 10.66.0.2: icmp_seq={n} ttl=64 time=0.1 ms\n");
        let output =
            |numbers: &[u32], summary: &str| numbers.iter().map(|n| line(*n)).collect::<String>() + summary;
        let late = output(&[1, 2, 3], "4 packets transmitted, 3 received, 25% packet loss, time 9ms\n");
        assert!(parse_first(&late, 3).unwrap().is_complete());
        let lost = output(&[1, 3, 4], "4 packets transmitted, 3 received, 25% packet loss, time 9ms\n");
        assert_eq!(parse_first(&lost, 3).unwrap(), PingReport { sent: 3, received: 2, duplicates: 0 });
        let twice = output(
            &[1, 1, 2],
            "2 packets transmitted, 2 received, +1 duplicates, 0% packet loss, time 9ms\n",
        );
        assert_eq!(parse_first(&twice, 2).unwrap(), PingReport { sent: 2, received: 2, duplicates: 1 });
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
