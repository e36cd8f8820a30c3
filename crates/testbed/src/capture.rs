//! Capturing with tcpdump and reading what it wrote.

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use pcap_file::pcap::PcapReader;

use crate::checksum::{self, Verdict};
use crate::command::Background;
use crate::netns::Netns;
use crate::{Lab, LabError, Result};

/// Captures have files of their own, also those on the same netdev.
static NEXT: AtomicU32 = AtomicU32::new(0);

const START_LIMIT: Duration = Duration::from_secs(10);
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A running capture.
#[derive(Debug)]
pub struct Capture {
    tcpdump: Background,
    file: PathBuf,
}

/// What a capture's packets are worth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChecksumReport {
    /// Packets captured.
    pub packets: u64,
    /// Packets whose checksums were verified and right.
    pub good: u64,
    /// Packets with a wrong checksum or an unreadable IP header.
    pub bad: u64,
    /// Packets that fit the link and whose checksum was nevertheless left unfinished. Those that are longer are
    /// several segments in one, which the kernel passes between virtual netdevs unfinished and uncut.
    pub unfinished: u64,
    /// Packets of which nobody can tell whether their checksum is good or unfinished.
    pub either: u64,
}

/// The longest frame a link with the usual MTU carries, with one tag.
const LONGEST_FRAME_BYTES: usize = 1518;

impl Capture {
    /// Starts to capture what arrives on a netdev and matches `filter`; at most `limit` packets.
    ///
    /// # Errors
    /// When tcpdump does not start.
    pub fn start(lab: &Lab, netns: &Netns, ifname: &str, filter: &str, limit: u32) -> Result<Capture> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let stem = format!("{}-{ifname}-{number}", netns.name());
        let file = lab.path(&format!("{stem}.pcap"));
        let mut command = netns.command("tcpdump");
        // Whole packets, written at once, as root; -Q in: what the host itself sends is not yet checksummed.
        command.args([
            "-i",
            ifname,
            "-n",
            "-U",
            "--immediate-mode",
            "-s",
            "0",
            "-B",
            "65536",
            "-Z",
            "root",
            "-Q",
            "in",
        ]);
        command.args(["-c", &limit.to_string(), "-w"]).arg(&file).arg(filter);
        let mut tcpdump = Background::start(command, &lab.path(&format!("{stem}.tcpdump.log")))?;
        tcpdump.wait_for_output("listening on", START_LIMIT)?;
        Ok(Capture { tcpdump, file })
    }

    /// Waits until the capture has as many packets as its limit and returns them; fewer if they do not come.
    ///
    /// # Errors
    /// As [`Capture::finish`].
    pub fn filled(mut self) -> Result<Vec<Vec<u8>>> {
        // What did not come is missing from the result, where the caller sees it.
        let _ = self.tcpdump.wait(STOP_LIMIT);
        self.finish()
    }

    /// Ends the capture and returns its packets.
    ///
    /// # Errors
    /// When tcpdump does not end or its file can't be read.
    pub fn finish(mut self) -> Result<Vec<Vec<u8>>> {
        self.tcpdump.signal(Signal::SIGINT);
        self.tcpdump.wait(STOP_LIMIT)?;
        let file = File::open(&self.file).map_err(|error| LabError::system("opening the capture", error))?;
        let mut reader = PcapReader::new(file).map_err(|error| unreadable(&error))?;
        let mut packets = Vec::new();
        while let Some(packet) = reader.next_packet() {
            packets.push(packet.map_err(|error| unreadable(&error))?.data.into_owned());
        }
        Ok(packets)
    }

    /// Ends the capture and verifies every packet's checksums.
    ///
    /// # Errors
    /// As [`Capture::finish`].
    pub fn verify(self) -> Result<ChecksumReport> {
        Ok(report(&self.finish()?))
    }
}

/// Verifies captured packets.
pub fn report(packets: &[Vec<u8>]) -> ChecksumReport {
    let verdicts: Vec<Verdict> = packets.iter().map(|packet| checksum::verify(packet)).collect();
    let count = |matches: fn(Verdict) -> bool| verdicts.iter().filter(|v| matches(**v)).count() as u64;
    ChecksumReport {
        packets: packets.len() as u64,
        good: count(|verdict| verdict == Verdict::Good),
        either: count(|verdict| verdict == Verdict::GoodOrUnfinished),
        bad: count(Verdict::is_bad),
        unfinished: verdicts.iter().zip(packets).filter(|(v, p)| is_left_unfinished(**v, p)).count() as u64,
    }
}

fn is_left_unfinished(verdict: Verdict, packet: &[u8]) -> bool {
    verdict == Verdict::Unfinished && packet.len() <= LONGEST_FRAME_BYTES
}

fn unreadable(error: &pcap_file::PcapError) -> LabError {
    LabError::output("tcpdump's file", error.to_string())
}
