//! Traffic by real programs: iperf3 and ping. Each run is bounded in time.

use std::process::Command;
use std::time::Duration;

use forebay_testbed::Result;
use forebay_testbed::command::{self, Background};
use serde_json::Value;

use super::{Source, count};

const STREAM_SECONDS: &str = "2";
/// A stream that stalls, because a port went away, ends here.
const STREAM_LIMIT: Duration = Duration::from_secs(8);
const LISTEN_LIMIT: Duration = Duration::from_secs(10);
const PING_LIMIT: Duration = Duration::from_secs(8);

/// A TCP stream between hosts that nobody disturbs.
pub(super) fn steady_stream(source: &mut Source) {
    let (from, to) = source.steady_pair();
    let bytes = stream(source, from, to, 5201).unwrap_or(0);
    count(&source.tally.steady_streams, 1);
    count(&source.tally.steady_failures, u64::from(bytes == 0));
    count(&source.tally.steady_bytes, bytes);
}

/// A TCP stream between any hosts.
pub(super) fn any_stream(source: &mut Source) {
    let (from, to) = source.any_pair();
    let bytes = stream(source, from, to, 5202).unwrap_or(0);
    count(&source.tally.other_bytes, bytes);
}

/// The bytes that the receiver got. The server serves once: a stream that is cut off would leave it waiting.
fn stream(source: &mut Source, from: usize, to: usize, port: u16) -> Result<u64> {
    let (v6, reverse) = (source.random.bool(), source.random.bool());
    let address = source.hosts.get(to).address(v6).to_string();
    let port = port.to_string();
    let mut server = program(source, to, "iperf3");
    server.args(["-s", "-1", "--forceflush", "-p", &port]);
    let mut server = Background::start(server, &source.log)?;
    server.wait_for_output("Server listening", LISTEN_LIMIT)?;
    let mut client = program(source, from, "iperf3");
    client.args(["-J", "--connect-timeout", "3000", "-t", STREAM_SECONDS, "-p", &port, "-c", &address]);
    if reverse {
        client.arg("-R");
    }
    let finished = command::run(client, STREAM_LIMIT)?;
    Ok(received_bytes(&finished.stdout).unwrap_or(0))
}

fn received_bytes(report: &str) -> Option<u64> {
    let report: Value = serde_json::from_str(report).ok()?;
    report["end"]["sum_received"]["bytes"].as_u64()
}

/// Echo requests of any size, fragmented ones among them.
pub(super) fn ping(source: &mut Source) {
    let (from, to) = source.any_pair();
    let (v6, size) = (source.random.bool(), source.random.u32(0..4000));
    let address = source.hosts.get(to).address(v6).to_string();
    let mut ping = program(source, from, "ping");
    ping.args(["-q", "-n", "-c", "50", "-i", "0.01", "-w", "3", "-s", &size.to_string(), &address]);
    let Ok(finished) = command::run(ping, PING_LIMIT) else { return };
    if let Some((sent, answered)) = ping_counts(&finished.stdout) {
        count(&source.tally.pings_sent, sent);
        count(&source.tally.pings_answered, answered);
    }
    source.pause(20);
}

fn ping_counts(output: &str) -> Option<(u64, u64)> {
    let line = output.lines().find(|line| line.contains("packets transmitted"))?;
    let mut words = line.split_whitespace();
    let sent = words.next()?.parse().ok()?;
    Some((sent, words.nth(2)?.parse().ok()?))
}

fn program(source: &Source, host: usize, name: &str) -> Command {
    source.hosts.get(host).netns().command(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ping_and_iperf3_counted_is_read() {
        let line = "50 packets transmitted, 48 received, 4% packet loss, time 520ms";
        assert_eq!(ping_counts(line), Some((50, 48)));
        let report = r#"{"end":{"sum_received":{"bytes":77}}}"#;
        assert_eq!(received_bytes(report), Some(77));
        assert_eq!(received_bytes(r#"{"error":"no route"}"#), None);
    }
}
