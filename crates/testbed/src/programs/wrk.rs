//! wrk as load: requests over connections that are kept, many at a time.

use std::time::Duration;

use super::web::field;
use crate::command;
use crate::host::Host;
use crate::{LabError, Result};

/// Time wrk may take beyond the seconds it was asked to.
const GRACE: Duration = Duration::from_secs(30);

/// How to ask.
#[derive(Debug, Clone, Copy)]
pub struct WrkLoad {
    /// Connections at a time, all from one thread.
    pub connections: u32,
    /// For how long.
    pub seconds: u32,
}

/// What wrk counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WrkReport {
    /// Requests answered a second.
    pub requests_per_second: f64,
    /// Whether connections failed, or requests were answered with something else than the page.
    pub has_failures: bool,
    /// The longest that a request took.
    pub longest: Duration,
}

impl WrkLoad {
    /// Fetches `/page` from a [`super::web::WebServer`].
    ///
    /// # Errors
    /// When wrk can't connect, is stuck, or its words are not understood.
    pub fn run(&self, client: &Host, server: &Host) -> Result<WrkReport> {
        let mut command = client.netns().command("wrk");
        command.args(["-t", "1", "-c", &self.connections.to_string(), "-d", &format!("{}s", self.seconds)]);
        command.arg(format!("http://{}/page", server.v4()));
        let limit = Duration::from_secs(self.seconds.into()) + GRACE;
        let finished = command::run(command, limit)?.success()?;
        parse(&finished.stdout).ok_or_else(|| LabError::output("wrk's report", finished.stdout))
    }
}

fn parse(output: &str) -> Option<WrkReport> {
    // These two lines are there only when there is something to say.
    let failures = ["Socket errors", "Non-2xx or 3xx responses"];
    let has_failures = output.lines().any(|line| failures.iter().any(|name| line.trim().starts_with(name)));
    let requests_per_second = field(output, "Requests/sec")?.parse().ok()?;
    Some(WrkReport { requests_per_second, has_failures, longest: longest(output)? })
}

/// The third number of the line `Latency   1.02ms  2.04ms  51.34ms  92.30%`.
fn longest(output: &str) -> Option<Duration> {
    let line = output.lines().find_map(|line| line.trim().strip_prefix("Latency "))?;
    let text = line.split_whitespace().nth(2)?;
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        _ => return None,
    };
    Some(Duration::from_secs_f64(digits.parse::<f64>().ok()? * unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_read_from_lines_that_are_there_only_then() {
        let text = "    Latency     1.02ms    2.04ms  51.50ms   92.30%\n  30064 requests in 1.00s, 37.93MB read\nRequests/sec:  29912.18\nTransfer/sec:     37.74MB\n";
        let longest = Duration::from_micros(51_500);
        let report = WrkReport { requests_per_second: 29912.18, has_failures: false, longest };
        assert_eq!(parse(text), Some(report));
        let failed = format!("  Socket errors: connect 0, read 3, write 0, timeout 0\n{text}");
        assert!(parse(&failed).unwrap().has_failures);
        assert_eq!(parse("unable to connect to 10.66.0.2:80 Connection refused"), None);
    }
}
