//! Captured packets as pcapng, with their hints as comments.

use std::borrow::Cow;
use std::io::Write;
use std::time::Duration;

use forebay_control::capture::Captured;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, PcapResult};

/// Times are in ns: ten to the minus ninth.
const RESOLUTION: u8 = 9;

/// Writes one port's packets.
pub(crate) struct Writer<W: Write>(PcapNgWriter<W>);

impl<W: Write> Writer<W> {
    /// Writes what comes before the first packet.
    pub(crate) fn new(out: W, port: &str, snaplen: u32) -> PcapResult<Self> {
        let mut writer = PcapNgWriter::new(out)?;
        let options = vec![
            InterfaceDescriptionOption::IfName(Cow::Owned(port.to_owned())),
            InterfaceDescriptionOption::IfTsResol(RESOLUTION),
        ];
        writer.write_pcapng_block(InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen,
            options,
        })?;
        Ok(Self(writer))
    }

    pub(crate) fn write(&mut self, packet: &Captured) -> PcapResult<()> {
        let mut options = Vec::new();
        if !packet.hints.is_empty() {
            options.push(EnhancedPacketOption::Comment(Cow::Owned(comment(&packet.hints))));
        }
        if packet.missed > 0 {
            options.push(EnhancedPacketOption::DropCount(packet.missed));
        }
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_nanos(packet.at_ns),
            original_len: packet.len_bytes,
            data: Cow::Borrowed(&packet.bytes),
            options,
        };
        self.0.write_pcapng_block(block).map(drop)
    }

    /// What was written to.
    pub(crate) fn out(&mut self) -> &mut W {
        self.0.get_mut()
    }
}

/// `rx_hash=0x12345678 rx_timestamp=1763000000000000000`: times in ns, all else in hexadecimal.
fn comment(hints: &[(&'static str, u64)]) -> String {
    let one = |(name, value): &(&str, u64)| match *name {
        "rx_timestamp" => format!("{name}={value}"),
        _ => format!("{name}={value:#x}"),
    };
    hints.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use pcap_file::pcapng::{Block, PcapNgReader};

    use super::*;

    #[test]
    fn a_packet_is_read_as_it_was_written() {
        let hints = vec![("rx_hash", 0xabcd), ("rx_timestamp", 1_000_000_007)];
        let packet = Captured {
            at_ns: 1_700_000_000_123_456_789,
            len_bytes: 100,
            missed: 3,
            bytes: vec![7; 61],
            hints,
        };
        let mut writer = Writer::new(Vec::new(), "h1", 61).unwrap();
        writer.write(&packet).unwrap();
        let written = writer.out().clone();
        let mut reader = PcapNgReader::new(&written[..]).unwrap();
        let mut blocks = Vec::new();
        while let Some(block) = reader.next_block() {
            blocks.push(block.unwrap().into_owned());
        }
        let [Block::InterfaceDescription(port), Block::EnhancedPacket(read)] = &blocks[..] else {
            panic!("{blocks:?}");
        };
        assert!(port.options.contains(&InterfaceDescriptionOption::IfName("h1".into())));
        assert_eq!((read.original_len, &read.data[..]), (100, &[7; 61][..]));
        assert_eq!(read.timestamp, Duration::from_nanos(packet.at_ns));
        let text = "rx_hash=0xabcd rx_timestamp=1000000007".into();
        assert_eq!(read.options, [EnhancedPacketOption::Comment(text), EnhancedPacketOption::DropCount(3)]);
    }
}
