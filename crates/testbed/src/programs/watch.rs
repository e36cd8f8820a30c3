//! Reads a port's packets with their hints, as `forebay capture` writes them, and holds each hash against the packet.

use std::io::{BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::{Block, PcapNgReader};

use crate::dut::Client;
use crate::programs::hints::hash_of;
use crate::{LabError, Result};

/// UDP to the discard port: the source's packets. Others, the hosts' own, are not counted.
const TO_DISCARD: [u8; 2] = [0, 9];
const SNAPLEN: &str = "60";

/// What was read of one port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Packets whose hash was held against the packet.
    pub compared: u64,
    /// Hashes that are not the packet's.
    pub wrong: u64,
    /// Hashes of a layout that this port never had.
    pub foreign: u64,
    /// Packets without hints.
    pub bare: u64,
    /// Packets that the capture missed.
    pub missed: u64,
    /// Compared packets by seed of the program.
    pub by_seed: [u64; 8],
}

/// A capture under way.
#[derive(Debug)]
pub struct Watch {
    capture: Child,
    reader: Option<JoinHandle<Result<Seen>>>,
    begun: Arc<AtomicBool>,
}

impl Watch {
    /// Captures for so many seconds; hashes may be those of programs with these seeds.
    ///
    /// # Errors
    /// When the program does not start.
    pub fn start(client: &Client, port: &str, seconds: u64, seeds: Vec<u32>) -> Result<Watch> {
        let mut command = Command::new(client.binary());
        command.arg("--socket").arg(client.socket()).args(["capture", port, "--snaplen", SNAPLEN]);
        command.args(["--seconds", &seconds.to_string()]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut capture =
            command.spawn().map_err(|error| LabError::system("starting forebay capture", error))?;
        let out = capture.stdout.take().expect("it was asked for");
        let begun = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&begun);
        let reader = std::thread::spawn(move || read(BufReader::new(out), &seeds, &seen));
        Ok(Watch { capture, reader: Some(reader), begun })
    }

    /// Whether it captures by now.
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// What it saw, when it has ended.
    ///
    /// # Errors
    /// When it wrote what is no pcapng.
    pub fn finish(mut self) -> Result<Seen> {
        let reader = self.reader.take().expect("only this takes it");
        reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.capture.kill();
        let _ = self.capture.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn read(out: impl Read, seeds: &[u32], begun: &AtomicBool) -> Result<Seen> {
    let mut seen = Seen::default();
    each_packet(out, || begun.store(true, Ordering::Release), |packet| seen.add(packet, seeds))?;
    Ok(seen)
}

/// Packets of a capture.
///
/// # Errors
/// When it is no pcapng.
pub fn count_packets(out: impl Read) -> Result<u64> {
    let mut packets = 0;
    each_packet(out, || (), |_| packets += 1)?;
    Ok(packets)
}

/// The packets of a capture, as far as they were captured.
///
/// # Errors
/// It is no pcapng.
pub fn packets(out: impl Read) -> Result<Vec<Vec<u8>>> {
    let mut packets = Vec::new();
    each_packet(out, || (), |packet| packets.push(packet.data.to_vec()))?;
    Ok(packets)
}

fn each_packet(
    out: impl Read,
    mut at_interface: impl FnMut(),
    mut at_packet: impl FnMut(&EnhancedPacketBlock<'_>),
) -> Result<()> {
    let unreadable = |error| LabError::system("reading a capture", std::io::Error::other(error));
    let mut reader = PcapNgReader::new(out).map_err(unreadable)?;
    while let Some(block) = reader.next_block() {
        match block.map_err(unreadable)? {
            Block::InterfaceDescription(_) => at_interface(),
            Block::EnhancedPacket(packet) => at_packet(&packet),
            _ => {}
        }
    }
    Ok(())
}

impl Seen {
    fn add(&mut self, packet: &EnhancedPacketBlock<'_>, seeds: &[u32]) {
        let mut hints = "";
        for option in &packet.options {
            match option {
                EnhancedPacketOption::Comment(text) => hints = text,
                EnhancedPacketOption::DropCount(missed) => self.missed += missed,
                _ => {}
            }
        }
        if packet.data.get(36..38) != Some(&TO_DISCARD[..]) {
            return;
        }
        let (Some(hash), Some(seed)) = (value(hints, "rx_hash"), value(hints, "rx_hash_type")) else {
            self.bare += 1;
            return;
        };
        self.compared += 1;
        self.wrong += u64::from(hash_of(&packet.data, seed) != Some(hash));
        self.foreign += u64::from(!seeds.contains(&seed));
        self.by_seed[seed as usize % self.by_seed.len()] += 1;
    }
}

fn value(hints: &str, name: &str) -> Option<u32> {
    let hex = hints.split(' ').find_map(|hint| hint.strip_prefix(name)?.strip_prefix("=0x"))?;
    u32::from_str_radix(hex, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::time::Duration;

    use super::*;

    fn packet(hint: Option<(u32, u32)>) -> EnhancedPacketBlock<'static> {
        let mut data = vec![1; 60];
        data[36..38].copy_from_slice(&TO_DISCARD);
        let comment = hint.map(|(hash, seed)| format!("rx_hash={hash:#x} rx_hash_type={seed:#x}"));
        let options = comment.map(|text| EnhancedPacketOption::Comment(text.into())).into_iter().collect();
        let timestamp = Duration::ZERO;
        EnhancedPacketBlock { interface_id: 0, timestamp, original_len: 60, data: Cow::Owned(data), options }
    }

    #[test]
    fn a_hash_that_is_not_the_packets_is_seen() {
        let right = hash_of(&packet(None).data, 3).unwrap();
        let mut seen = Seen::default();
        for hint in [None, Some((right, 3)), Some((right ^ 1, 3)), Some((right, 4))] {
            seen.add(&packet(hint), &[3]);
        }
        let expected = Seen { compared: 3, wrong: 2, foreign: 1, bare: 1, ..Seen::default() };
        assert_eq!(Seen { by_seed: [0; 8], ..seen }, expected);
    }
}
