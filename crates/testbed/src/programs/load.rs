//! ab as load: a new connection for every request, many at a time.

use std::time::Duration;

use super::web::field;
use crate::command;
use crate::host::Host;
use crate::{LabError, Result};

/// Slower than this, ab is taken to be stuck.
const SLOWEST_REQUESTS_PER_SECOND: u64 = 500;
/// Time that ab may take beyond that.
const GRACE: Duration = Duration::from_secs(120);

/// What to ask for.
#[derive(Debug, Clone, Copy)]
pub struct WebLoad {
    /// Requests, each on a connection of its own.
    pub requests: u64,
    /// Connections at a time.
    pub concurrency: u32,
}

/// What ab counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadReport {
    /// Requests answered.
    pub complete: u64,
    /// Requests that failed or were answered with another length.
    pub failed: u64,
    /// How long all of them took.
    pub seconds: f64,
    /// Requests answered a second.
    pub requests_per_second: f64,
    /// From the beginning of a connection to its end, the mean in whole milliseconds, as ab has it.
    pub connect_ms: f64,
    /// Its standard deviation, in milliseconds.
    pub connect_sd_ms: f64,
    /// The longest, in milliseconds.
    pub connect_max_ms: f64,
}

impl WebLoad {
    /// Fetches `/page` from a [`super::web::WebServer`].
    ///
    /// # Errors
    /// When ab can't connect, is stuck, or its words are not understood.
    pub fn run(&self, client: &Host, server: &Host) -> Result<LoadReport> {
        let (requests, concurrency) = (self.requests.to_string(), self.concurrency.to_string());
        let mut command = client.netns().command("ab");
        command.args([
            "-q",
            "-r",
            "-n",
            &requests,
            "-c",
            &concurrency,
            &format!("http://{}/page", server.v4()),
        ]);
        let limit = Duration::from_secs(self.requests / SLOWEST_REQUESTS_PER_SECOND) + GRACE;
        let finished = command::run(command, limit)?.success()?;
        parse(&finished.stdout).ok_or_else(|| LabError::output("ab's report", finished.stdout))
    }
}

fn parse(output: &str) -> Option<LoadReport> {
    // Behind "Connection Times (ms)": least, mean, standard deviation, median, most.
    let total = output.lines().find_map(|line| line.strip_prefix("Total:"))?;
    let times: Vec<f64> = total.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [_, connect_ms, connect_sd_ms, _, connect_max_ms] = times[..] else { return None };
    Some(LoadReport {
        complete: field(output, "Complete requests")?.parse().ok()?,
        failed: field(output, "Failed requests")?.parse().ok()?,
        seconds: field(output, "Time taken for tests")?.parse().ok()?,
        requests_per_second: field(output, "Requests per second")?.parse().ok()?,
        connect_ms,
        connect_sd_ms,
        connect_max_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_from_the_line_of_their_sum() {
        let text = "Time taken for tests:   24.060 seconds\nComplete requests:      1000\nFailed requests:        0\n\
                    Requests per second:    41562.76 [#/sec] (mean)\n\n\
                    Connection Times (ms)\n              min  mean[+/-sd] median   max\n\
                    Connect:        0    1   1.1      1      12\nTotal:          1    2   2.2      2    1031\n";
        let report = parse(text).unwrap();
        assert_eq!((report.connect_ms, report.connect_sd_ms, report.connect_max_ms), (2.0, 2.2, 1031.0));
        assert_eq!((report.seconds, report.complete, report.failed), (24.06, 1000, 0));
        assert_eq!(parse("apr_pollset_poll: The timeout specified has expired (70007)"), None);
    }
}
