//! iperf3: streams of TCP, or UDP at a rate.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;

use crate::command::{self, Background, Finished};
use crate::host::Host;
use crate::{Lab, LabError, Result};

const START_LIMIT: Duration = Duration::from_secs(10);
/// Time iperf3 may take beyond the seconds it was asked to send.
const GRACE: Duration = Duration::from_secs(15);

/// What two sockets hold at most by the kernel's defaults (`tcp_wmem`, `tcp_rmem`). iperf3 stops to count when the
/// sender has written all, so that this much of a transfer may be missing in its report.
const UNREAD_BYTES: u64 = (4 + 32) << 20;

/// Congestion control that Linux has by default. A machine's own default may be another one, and BBR sends at the rate that it
/// measures: a stream that something has made slow for a moment stays slow.
const CUBIC: &str = "cubic";

/// A server in a host; ends when dropped.
#[derive(Debug)]
pub struct IperfServer {
    _program: Background,
}

/// What was transferred.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IperfReport {
    /// Bytes the receiver got.
    pub received_bytes: u64,
    /// The receiver's bits a second.
    pub received_bits_per_second: f64,
    /// Segments sent again (TCP).
    pub retransmits: u64,
    /// Datagrams lost (UDP).
    pub lost_packets: u64,
    /// Datagrams sent (UDP).
    pub packets: u64,
    /// Fifths of a second in which nothing was sent.
    pub silent_intervals: usize,
}

/// How to send.
#[derive(Debug, Clone, Default)]
pub struct Iperf {
    seconds: u32,
    bytes: Option<u64>,
    reverse: bool,
    v6: bool,
    udp: Option<(u64, u32)>,
    streams: Option<u32>,
    processors: Option<[usize; 2]>,
    congestion: Option<&'static str>,
}

impl IperfServer {
    /// Starts a server in the host.
    ///
    /// # Errors
    /// When it does not begin to listen.
    pub fn start(lab: &Lab, host: &Host) -> Result<IperfServer> {
        let mut command = host.netns().command("iperf3");
        command.args(["-s", "--forceflush"]);
        let mut program = Background::start(command, &lab.path(&format!("iperf3-{}.log", host.name())))?;
        program.wait_for_output("Server listening", START_LIMIT)?;
        Ok(IperfServer { _program: program })
    }
}

impl IperfReport {
    /// What iperf3 wrote with `-J`; nothing when that is no report.
    pub fn from_json(text: &str) -> Option<IperfReport> {
        read(&serde_json::from_str(text).ok()?)
    }

    /// Whether a transfer of so many bytes arrived, as far as iperf3 can tell.
    #[must_use]
    pub fn is_complete(&self, bytes: u64) -> bool {
        self.received_bytes + UNREAD_BYTES >= bytes
    }
}

impl Iperf {
    /// One TCP stream over IPv4 for this long.
    pub fn seconds(seconds: u32) -> Iperf {
        Iperf { seconds, ..Iperf::default() }
    }

    /// One TCP stream over IPv4, which sends `bytes` and then ends. It has two minutes: 64 MB took more than 35 s on a slow
    /// emulated processor.
    pub fn bytes(bytes: u64) -> Iperf {
        Iperf { seconds: 120, bytes: Some(bytes), ..Iperf::default() }
    }

    /// So many streams at a time instead of one; the report is of all.
    #[must_use]
    pub fn streams(mut self, streams: u32) -> Iperf {
        self.streams = Some(streams);
        self
    }

    /// The server sends, the client receives.
    #[must_use]
    pub fn reverse(mut self, reverse: bool) -> Iperf {
        self.reverse = reverse;
        self
    }

    /// Over IPv6.
    #[must_use]
    pub fn v6(mut self, v6: bool) -> Iperf {
        self.v6 = v6;
        self
    }

    /// UDP at this rate with datagrams of this size.
    #[must_use]
    pub fn udp(mut self, bits_per_second: u64, datagram_bytes: u32) -> Iperf {
        self.udp = Some((bits_per_second, datagram_bytes));
        self
    }

    /// With the client and the server each on a processor of its own. Where the scheduler puts them decides otherwise how
    /// fast many streams are: twice as fast apart as on one processor.
    #[must_use]
    pub fn on_processors(mut self, client: usize, server: usize) -> Iperf {
        self.processors = Some([client, server]);
        self
    }

    /// With this congestion control of the sender, instead of [`CUBIC`].
    #[must_use]
    pub fn congestion(mut self, name: &'static str) -> Iperf {
        self.congestion = Some(name);
        self
    }

    /// Runs the client in one host against the server in another.
    ///
    /// # Errors
    /// When it can't connect, stalls or says something that is not understood.
    pub fn run(&self, client: &Host, server: &Host) -> Result<IperfReport> {
        self.to(client, server.address(self.v6))
    }

    /// As [`Iperf::run`], against a server at this address.
    ///
    /// # Errors
    /// As [`Iperf::run`].
    pub fn to(&self, client: &Host, server: IpAddr) -> Result<IperfReport> {
        let mut command = client.netns().command("iperf3");
        command.args(["-J", "-i", "0.2", "--connect-timeout", "3000", "-c", &server.to_string()]);
        match self.bytes {
            Some(bytes) => command.args(["-n", &bytes.to_string()]),
            None => command.args(["-t", &self.seconds.to_string()]),
        };
        if self.reverse {
            command.arg("-R");
        }
        if let Some(streams) = self.streams {
            command.args(["-P", &streams.to_string()]);
        }
        if let Some([client, server]) = self.processors {
            command.args(["-A", &format!("{client},{server}")]);
        }
        match self.udp {
            Some((rate, size)) => command.args(["-u", "-b", &rate.to_string(), "-l", &size.to_string()]),
            None => command.args(["-C", self.congestion.unwrap_or(CUBIC)]),
        };
        parse(&command::run(command, Duration::from_secs(self.seconds.into()) + GRACE)?)
    }
}

fn parse(finished: &Finished) -> Result<IperfReport> {
    let unknown = || LabError::output("iperf3's report", format!("{}{}", finished.stdout, finished.stderr));
    IperfReport::from_json(&finished.stdout).ok_or_else(unknown)
}

fn read(json: &Value) -> Option<IperfReport> {
    let end = &json["end"];
    // TCP has one sum for each side, UDP one for both.
    let received = if end["sum_received"].is_object() { &end["sum_received"] } else { &end["sum"] };
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let bits_per_second = received["bits_per_second"].as_f64()?;
    Some(IperfReport {
        received_bytes: number(&received["bytes"]),
        received_bits_per_second: bits_per_second,
        retransmits: number(&end["sum_sent"]["retransmits"]),
        lost_packets: number(&end["sum"]["lost_packets"]),
        packets: number(&end["sum"]["packets"]),
        silent_intervals: json["intervals"].as_array().map_or(0, |intervals| {
            intervals.iter().filter(|interval| number(&interval["sum"]["bytes"]) == 0).count()
        }),
    })
}
