//! Loop probes: the frames that the switch sends out of its ports to find loops, and those that came back.
//!
//! The rule it keeps: the kernel programs take only frames with this switch's id, which is random and another at each
//! start. Whether a probe is genuine is the caller's question: a station behind a port has seen what left there.
//!
//! ```text
//!   0            6        12       14    16        18       20         28     36
//!  ┌────────────┬────────┬────────┬─────┬─────────┬────────┬──────────┬──────┬─────────┬───
//!  │ CF:00:…:00 │ source │ 0x9000 │ 0   │ 1 reply │ 0      │ switch   │nonce │ port id │ 0 …
//!  └────────────┴────────┴────────┴─────┴─────────┴────────┴──────────┴──────┴─────────┴───
//!   Ethernet header                ECTP skip, function, receipt
//! ```

use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use crate::DatapathError;
use crate::mapped::Mapped;

/// Bytes of a probe: the shortest Ethernet frame, without its check sequence, and a VLAN tag.
pub const PROBE_BYTES: usize = 64;
/// The group of the Ethernet Configuration Testing Protocol. Bridges forward it, unlike 01:80:C2:00:00:0x.
pub const PROBE_GROUP: [u8; 6] = [0xcf, 0, 0, 0, 0, 0];
/// The EtherType of that protocol.
pub const PROBE_ETHERTYPE: u16 = 0x9000;
/// A reply, in the byte order of that protocol: stations answer none.
const REPLY: [u8; 2] = [1, 0];
const TPID: [u8; 2] = [0x81, 0];
/// `PROBE_TAGGED`, bpf/probe.h.
const TAGGED: u64 = 1 << 16;

/// Probes that lie unread at one port; those that come then replace older ones.
const UNREAD: usize = 4;
/// `struct loop_probes_seen`: the count, and two words for each probe.
const WORDS: usize = 1 + 2 * UNREAD;

/// A probe that came in at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenProbe {
    /// The port that it says to have left by.
    pub from: u16,
    /// Its VLAN tag, if it had one.
    pub tci: Option<u16>,
    /// What only those know who have seen it.
    pub nonce: u64,
}

/// The tables that the programs note probes in.
#[derive(Debug)]
pub struct LoopProbes {
    /// `struct loop_watch`.
    watch: Mapped<[AtomicU64; 2]>,
    seen: Mapped<[AtomicU64; WORDS]>,
    switch_id: u64,
}

impl LoopProbes {
    pub(crate) fn map(
        watch: BorrowedFd<'_>,
        seen: BorrowedFd<'_>,
        max_ports: u32,
        switch_id: u64,
    ) -> Result<Self, DatapathError> {
        let watch: Mapped<[AtomicU64; 2]> = Mapped::map(watch, 1, "map what loop probes look like")?;
        let seen = Mapped::map(seen, max_ports as usize, "map the loop probes that came in")?;
        watch.get(0)[0].store(switch_id, Release);
        Ok(Self { watch, seen, switch_id })
    }

    /// Tables that no kernel program writes, for a data plane without a kernel.
    ///
    /// # Errors
    /// There is no memory.
    pub fn detached(max_ports: u32, switch_id: u64) -> Result<Self, DatapathError> {
        Ok(Self { watch: Mapped::anonymous(1)?, seen: Mapped::anonymous(max_ports as usize)?, switch_id })
    }

    /// Number of probes that came in at any port. While it stays, nobody need look at the ports.
    pub fn total(&self) -> u64 {
        self.watch.get(0)[1].load(Acquire)
    }

    /// Number of probes that came in at `port`.
    pub fn count(&self, port: u16) -> u64 {
        self.seen.get(port.into())[0].load(Acquire)
    }

    /// Takes the unread probes that came in at `port`.
    pub fn take(&self, port: u16) -> impl Iterator<Item = SeenProbe> + '_ {
        let (_, probes) = self.seen.get(port.into()).split_first().expect("there is a count");
        let (probes, _) = probes.as_chunks::<2>();
        probes.iter().filter_map(|[from, nonce]| {
            let nonce = Some(nonce.swap(0, AcqRel)).filter(|nonce| *nonce != 0)?;
            let from = from.load(Acquire);
            let tag = (from >> 32) as u32;
            let tci = (tag >> 16 & 1 == 1).then_some(tag as u16);
            Some(SeenProbe { from: from as u16, tci, nonce })
        })
    }

    /// Notes a probe of this switch that came in at `port` where no kernel program sees it. Says whether it was one; packet
    /// path. As with programs, two that note a probe at one port at once may spoil it.
    #[inline]
    pub fn note(&self, port: u16, frame: &[u8]) -> bool {
        frame.starts_with(&PROBE_GROUP) && self.note_any(port, frame)
    }

    #[cold]
    fn note_any(&self, port: u16, frame: &[u8]) -> bool {
        let tci = frame.get(14..16).filter(|_| frame.get(12..14) == Some(&TPID));
        let tag = tci.map_or(0, |tci| TAGGED | u64::from(u16::from_be_bytes([tci[0], tci[1]])));
        let at = if tag == 0 { 12 } else { 16 };
        let Some((ethertype, rest)) = frame.get(at..).and_then(<[u8]>::split_first_chunk) else {
            return false;
        };
        let body = rest.get(6..).and_then(two_words);
        let Some(([switch_id, nonce], [low, high, ..])) = body else { return false };
        if u16::from_be_bytes(*ethertype) != PROBE_ETHERTYPE || switch_id != self.switch_id {
            return false;
        }
        let (count, probes) = self.seen.get(port.into()).split_first().expect("there is a count");
        let (probes, _) = probes.as_chunks::<2>();
        let [from, unread] = &probes[count.fetch_add(1, AcqRel) as usize % UNREAD];
        from.store(u64::from(u16::from_ne_bytes([*low, *high])) | tag << 32, Release);
        unread.store(nonce, Release);
        self.watch.get(0)[1].fetch_add(1, AcqRel);
        true
    }

    /// A probe that is to leave by `port`, tagged if there is a tag. The nonce is not 0 and must be a secret.
    pub fn frame(&self, port: u16, tag: Option<[u8; 4]>, nonce: u64) -> [u8; PROBE_BYTES] {
        debug_assert!(tag.is_none_or(|tag| tag[..2] == TPID));
        // A locally administered address, of this switch and port: no bridge sees it on two of its ports without a loop.
        let [.., a, b, c] = self.switch_id.to_be_bytes();
        let [high, low] = port.to_be_bytes();
        let parts: [&[u8]; 10] = [
            &PROBE_GROUP,
            &[0x02, a, b, c, high, low],
            tag.as_ref().map_or(&[], |tag| tag),
            &PROBE_ETHERTYPE.to_be_bytes(),
            &[0, 0],
            &REPLY,
            &[0, 0],
            &self.switch_id.to_ne_bytes(),
            &nonce.to_ne_bytes(),
            &port.to_ne_bytes(),
        ];
        let mut frame = [0; PROBE_BYTES];
        let bytes = parts.into_iter().flatten();
        frame.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
        frame
    }
}

/// The two numbers that `bytes` begins with, and what is behind them.
fn two_words(bytes: &[u8]) -> Option<([u64; 2], &[u8])> {
    let (first, bytes) = bytes.split_first_chunk()?;
    let (second, bytes) = bytes.split_first_chunk()?;
    Some(([first, second].map(|word| u64::from_ne_bytes(*word)), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probes() -> LoopProbes {
        LoopProbes::detached(3, 0x1122_3344_5566_7788).expect("memory can be mapped")
    }

    #[test]
    fn a_probe_is_read_as_it_was_written_and_nothing_else_is_one() {
        let probes = probes();
        for (tag, tci) in [(None, None), (Some([0x81, 0, 0x20, 7]), Some(0x2007))] {
            let frame = probes.frame(0x0102, tag, 99);
            assert!(probes.note(2, &frame));
            let seen: Vec<SeenProbe> = probes.take(2).collect();
            assert_eq!(seen, [SeenProbe { from: 0x0102, tci, nonce: 99 }]);
            let behind = tag.map_or(0, |tag| tag.len());
            for at in [0, 5, 12 + behind, 20 + behind, 27 + behind] {
                let mut other = frame;
                other[at] ^= 1;
                assert!(!probes.note(2, &other), "byte {at}, {tag:x?}");
            }
            let needed = 38 + behind;
            assert!(
                (0..needed).all(|len| !probes.note(2, &frame[..len])) && probes.note(2, &frame[..needed])
            );
            assert_eq!(probes.take(2).count(), 1);
        }
        assert_eq!((probes.total(), probes.count(2), probes.take(1).count()), (4, 4, 0));
    }
}
