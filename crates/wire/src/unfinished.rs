//! Transport checksums that a sender left unfinished, and finishing them.
//!
//! Linux does not compute the checksum of a packet whose netdev promises to do it: it leaves the folded,
//! uncomplemented sum of the pseudo-header in the checksum field (`CHECKSUM_PARTIAL`, include/linux/skbuff.h) and
//! notes the fact outside the packet. Whoever passes such a packet on as mere bytes, as XDP redirect does, hands out
//! packets that every receiver drops: "ping works, TCP does not". For SCTP the field is left 0.
//!
//! The rule: **a finished checksum is never damaged.** The field alone tells an unfinished packet, and one finished
//! packet in 65,536 looks the same by chance. That does no harm: with field = P and segment sum S + P, the value
//! computed is −(S + P), and where the field was right already that *is* P. What can be mistaken is a packet that
//! was damaged on its way into looking unfinished; it would leave with a checksum that is right.
//!
//! Left alone: IP fragments, whatever [`crate::locate`] does not cover, and segments inside tunnels (VXLAN, GRE,
//! IP in IP): an inner packet that was encapsulated unfinished stays so.

use crate::chain;
use crate::checksum::Sum;
use crate::l4::Transport;
use crate::locate::{self, NoSegment, Segment};

/// What [`complete_checksum`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Completion {
    /// The field was unfinished and now holds the checksum.
    Completed(Transport),
    /// The field is not unfinished: right, wrong or absent, it is as it was.
    NotNeeded,
    /// No segment that this crate looks at; unchanged.
    NotCovered,
    /// Headers cut off or contradictory; unchanged.
    Malformed,
}

/// What [`verify_l4`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The checksum is right.
    Good,
    /// It is wrong, and not because it is unfinished.
    Bad,
    /// It waits for [`complete_checksum`].
    Unfinished,
    /// UDP without a checksum.
    Absent,
    /// No segment that this crate looks at.
    NotCovered,
    /// Headers cut off or contradictory.
    Malformed,
}

/// Completes the transport checksum of a packet, given as its fragments in order, if its sender left it unfinished.
/// Reads the headers of every packet, and the payload only of an unfinished one. Never allocates, may be called on
/// the packet path. A second call does nothing.
#[inline]
pub fn complete_checksum(fragments: &mut [&mut [u8]]) -> Completion {
    let segment = match locate::segment(fragments) {
        Ok(segment) => segment,
        Err(NoSegment::NotCovered) => return Completion::NotCovered,
        Err(NoSegment::Malformed) => return Completion::Malformed,
    };
    match segment.transport {
        Transport::Sctp => complete_sctp(fragments, segment),
        Transport::Tcp | Transport::Udp => complete_inet(fragments, segment),
    }
}

#[inline]
fn complete_inet(fragments: &mut [&mut [u8]], segment: Segment) -> Completion {
    let field = inet_field(fragments, segment);
    if field != segment.pseudo.folded() {
        return Completion::NotNeeded;
    }
    // The field holds the pseudo-header's share already, so the sum over the segment as it stands is the whole sum.
    let checksum = written_form(sum_of(fragments, segment).checksum(), segment.transport);
    if is_same(checksum, field) {
        return Completion::NotNeeded;
    }
    chain::write(fragments, segment.checksum_at(), &checksum.to_be_bytes());
    Completion::Completed(segment.transport)
}

fn complete_sctp(fragments: &mut [&mut [u8]], segment: Segment) -> Completion {
    if sctp_field(fragments, segment) != 0 {
        return Completion::NotNeeded;
    }
    let crc = sctp_crc(fragments, segment);
    if crc == 0 {
        return Completion::NotNeeded;
    }
    chain::write(fragments, segment.checksum_at(), &crc.to_le_bytes());
    Completion::Completed(segment.transport)
}

/// Checks the transport checksum of a packet as a receiver would. Reads the whole packet: for tests and the lab.
pub fn verify_l4<F: AsRef<[u8]>>(fragments: &[F]) -> Verdict {
    let segment = match locate::segment(fragments) {
        Ok(segment) => segment,
        Err(NoSegment::NotCovered) => return Verdict::NotCovered,
        Err(NoSegment::Malformed) => return Verdict::Malformed,
    };
    match segment.transport {
        Transport::Sctp => verify_sctp(fragments, segment),
        Transport::Tcp | Transport::Udp => verify_inet(fragments, segment),
    }
}

fn verify_inet<F: AsRef<[u8]>>(fragments: &[F], segment: Segment) -> Verdict {
    let field = inet_field(fragments, segment);
    if segment.transport == Transport::Udp && field == 0 {
        return Verdict::Absent;
    }
    let mut sum = sum_of(fragments, segment);
    sum.add_word(segment.pseudo.folded());
    match sum.checksum() {
        0 => Verdict::Good,
        _ if field == segment.pseudo.folded() => Verdict::Unfinished,
        _ => Verdict::Bad,
    }
}

fn verify_sctp<F: AsRef<[u8]>>(fragments: &[F], segment: Segment) -> Verdict {
    let field = sctp_field(fragments, segment);
    match field {
        _ if field == sctp_crc(fragments, segment) => Verdict::Good,
        0 => Verdict::Unfinished,
        _ => Verdict::Bad,
    }
}

#[inline]
fn inet_field<F: AsRef<[u8]>>(fragments: &[F], segment: Segment) -> u16 {
    u16::from_be_bytes(chain::read(fragments, segment.checksum_at()).unwrap_or([0; 2]))
}

fn sctp_field<F: AsRef<[u8]>>(fragments: &[F], segment: Segment) -> u32 {
    u32::from_le_bytes(chain::read(fragments, segment.checksum_at()).unwrap_or([0; 4]))
}

fn sum_of<F: AsRef<[u8]>>(fragments: &[F], segment: Segment) -> Sum {
    let mut sum = Sum::new();
    chain::parts(fragments, segment.start, segment.len).for_each(|part| sum.add_bytes(part));
    sum
}

/// CRC32c over the segment with its checksum field taken as 0 (RFC 9260, 6.8 and appendix A).
fn sctp_crc<F: AsRef<[u8]>>(fragments: &[F], segment: Segment) -> u32 {
    let ports_and_tag = Transport::Sctp.checksum_offset();
    let chunks = Transport::Sctp.min_header_len();
    let crc = crc_of(fragments, 0, segment.start, ports_and_tag);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    crc_of(fragments, crc, segment.start + chunks, segment.len - chunks)
}

fn crc_of<F: AsRef<[u8]>>(fragments: &[F], crc: u32, offset: usize, len: usize) -> u32 {
    chain::parts(fragments, offset, len).fold(crc, crc32c::crc32c_append)
}

/// UDP writes a checksum of 0 as 0xffff, its ones-complement twin, because 0 says "none" (RFC 768).
#[inline]
fn written_form(checksum: u16, transport: Transport) -> u16 {
    if transport == Transport::Udp && checksum == 0 { 0xffff } else { checksum }
}

/// Equal as ones-complement numbers, where 0 and 0xffff are the same.
#[inline]
fn is_same(a: u16, b: u16) -> bool {
    a == b || (a == 0 && b == 0xffff) || (a == 0xffff && b == 0)
}

#[cfg(test)]
mod tests;
