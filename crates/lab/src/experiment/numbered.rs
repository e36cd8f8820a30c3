//! Frames that say what they are: a number, who sent them from where, and for whom.
//!
//! They are whole UDP datagrams, so that rules which look at ports see them, and their checksums are right, so that an
//! XDP port need not ask whether somebody left them unfinished.

use forebay_testbed::frame::Frame;

/// Where [`Stamp::frame`] puts what it says: behind the headers of Ethernet, IPv4 and UDP.
const STAMP_AT: usize = 14 + 20 + 8;
const STAMP_BYTES: usize = 22;
const MAGIC: u16 = 0xfb7e;
const SOURCE_PORT: u16 = 1024;
/// The UDP port that all of them are sent to.
pub(super) const PORT: u16 = 9;

/// What a frame says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    /// No two frames of an experiment have the same.
    pub(super) number: u64,
    /// Changes that were complete when it was sent.
    pub(super) changes_done: u32,
    /// The VLAN it was sent in, as its sender knew.
    pub(super) vlan: u16,
    /// The port it was sent from.
    pub(super) port: u16,
    /// Who sent it.
    pub(super) from: u16,
    /// Whom it is for; [`EVERYBODY`].
    pub(super) to: u16,
}

/// The receiver of what is broadcast.
pub(super) const EVERYBODY: u16 = u16::MAX;

/// The address of a station.
pub(super) const fn mac_of(station: u16) -> [u8; 6] {
    let [high, low] = station.to_be_bytes();
    if station == EVERYBODY { [0xff; 6] } else { [2, 0xfd, 0, 0, high, low] }
}

impl Stamp {
    /// The frame, untagged.
    pub(super) fn frame(&self) -> Vec<u8> {
        let ip = |station: u16| {
            let [high, low] = station.to_be_bytes();
            [10, 67, high, low]
        };
        let mut says = Vec::with_capacity(STAMP_BYTES);
        says.extend(self.number.to_be_bytes());
        says.extend(self.changes_done.to_be_bytes());
        for word in [MAGIC, self.vlan, self.port, self.from, self.to] {
            says.extend(word.to_be_bytes());
        }
        let from = (mac_of(self.from), ip(self.from), SOURCE_PORT);
        Frame::udp4(from, (mac_of(self.to), ip(self.to), PORT), &says).build()
    }

    /// What a frame says, behind its tag if it has one; `None` of other frames.
    pub(super) fn read(frame: &[u8]) -> Option<Stamp> {
        let tag_bytes = if frame.get(12..14)? == [0x81, 0] { 4 } else { 0 };
        let says = frame.get(STAMP_AT + tag_bytes..STAMP_AT + tag_bytes + STAMP_BYTES)?;
        let word = |at: usize| u16::from_be_bytes([says[at], says[at + 1]]);
        let (number, rest) = says.split_first_chunk::<8>()?;
        let stamp = Stamp {
            number: u64::from_be_bytes(*number),
            changes_done: u32::from_be_bytes(*rest.first_chunk()?),
            vlan: word(14),
            port: word(16),
            from: word(18),
            to: word(20),
        };
        let is_ours =
            word(12) == MAGIC && frame[..6] == mac_of(stamp.to) && frame[6..12] == mac_of(stamp.from);
        is_ours.then_some(stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_frame_says_is_read_behind_a_tag_too() {
        let stamp = Stamp { number: 1 << 40, changes_done: 7, vlan: 20, port: 3, from: 300, to: EVERYBODY };
        let frame = stamp.frame();
        assert_eq!(Stamp::read(&frame), Some(stamp));
        let tagged = [&frame[..12], &[0x81, 0, 0, 20], &frame[12..]].concat();
        assert_eq!(Stamp::read(&tagged), Some(stamp));
    }

    #[test]
    fn other_frames_say_nothing_and_neither_do_those_with_others_addresses() {
        let mut frame = Stamp { number: 1, changes_done: 0, vlan: 1, port: 1, from: 1, to: 2 }.frame();
        assert_eq!(Stamp::read(&frame[..50]), None);
        frame[5] ^= 1;
        assert_eq!(Stamp::read(&frame), None);
    }
}
