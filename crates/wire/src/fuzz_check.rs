//! The body of the `packet` fuzz target: what must hold for any bytes, however they are cut into fragments.
//!
//! A function rather than a target, so that plain tests replay the committed corpus without the fuzzer.

use crate::ethernet::HEADER_LEN;
use crate::{Completion, Verdict, behind_tags, chain, complete_checksum, frame, network, verify_l4};

/// Fragments a fuzzed packet is cut into at most, less one: as many cuts as its first bytes may name.
const MAX_CUTS: usize = 4;

/// Checks one input: a byte with the number of cuts, two bytes for each, then the packet.
///
/// # Panics
/// If a promise of this crate does not hold.
pub fn packet(input: &[u8]) {
    let Some((cuts, packet)) = split_input(input) else { return };
    let _ = frame(packet);
    look_deeper(packet);
    let mut whole = packet.to_vec();
    let done = complete_checksum(&mut [&mut whole]);
    check_done(packet, &whole, done);
    check_fragmented(packet, &cuts, &whole, done);
    let again = whole.clone();
    assert_ne!(
        std::mem::discriminant(&complete_checksum(&mut [&mut whole])),
        COMPLETED,
        "a second run completes"
    );
    assert_eq!(whole, again, "a second run changes bytes");
}

/// What rules would be asked with.
fn look_deeper(packet: &[u8]) {
    let Some((header, behind)) = packet.split_at_checked(HEADER_LEN) else { return };
    let outer = u16::from_be_bytes([header[HEADER_LEN - 2], header[HEADER_LEN - 1]]);
    if let Some(inner) = behind_tags(outer, behind) {
        assert!(inner.at <= behind.len(), "the tags end behind the packet");
        let _ = network(inner.ethertype, &behind[inner.at..]);
    }
}

const COMPLETED: std::mem::Discriminant<Completion> =
    std::mem::discriminant(&Completion::Completed(crate::l4::Transport::Tcp));

fn split_input(input: &[u8]) -> Option<(Vec<usize>, &[u8])> {
    let (count, rest) = input.split_first()?;
    let (cuts, packet) = rest.split_at_checked(usize::from(*count) % (MAX_CUTS + 1) * 2)?;
    let (pairs, _) = cuts.as_chunks::<2>();
    Some((pairs.iter().map(|pair| usize::from(u16::from_be_bytes(*pair))).collect(), packet))
}

fn check_done(before: &[u8], after: &[u8], done: Completion) {
    let changed = before.iter().zip(after).filter(|(b, a)| b != a).count();
    if let Completion::Completed(transport) = done {
        assert!(changed <= 4, "{changed} bytes changed to complete {transport:?}");
        assert_eq!(verify_l4(&[before]), Verdict::Unfinished);
        assert_eq!(verify_l4(&[after]), Verdict::Good);
    } else {
        assert_eq!(changed, 0, "{done:?} changed bytes");
        assert_ne!(verify_l4(&[before]), Verdict::Unfinished, "{done:?} left a checksum unfinished");
    }
}

fn check_fragmented(before: &[u8], cuts: &[usize], whole: &[u8], done: Completion) {
    assert_eq!(verify_l4(&cut(before, cuts)), verify_l4(&[before]), "cuts {cuts:?} change the verdict");
    assert_eq!(chain::len(&cut(before, cuts)), before.len());
    let mut pieces = before.to_vec();
    assert_eq!(complete_checksum(&mut cut_mut(&mut pieces, cuts)), done, "cuts {cuts:?} change the result");
    assert_eq!(pieces, whole, "cuts {cuts:?} change the bytes");
}

/// Cuts a packet at the given places, each taken modulo its length; cuts at the same place make empty fragments.
pub fn cut<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let (mut pieces, mut rest) = (Vec::new(), bytes);
    for len in piece_lens(bytes.len(), cuts) {
        let (piece, later) = rest.split_at(len);
        pieces.push(piece);
        rest = later;
    }
    pieces.push(rest);
    pieces
}

/// [`cut`] for writing.
pub fn cut_mut<'a>(bytes: &'a mut [u8], cuts: &[usize]) -> Vec<&'a mut [u8]> {
    let (mut pieces, mut rest) = (Vec::new(), &mut bytes[..]);
    for len in piece_lens(rest.len(), cuts) {
        let (piece, later) = rest.split_at_mut(len);
        pieces.push(piece);
        rest = later;
    }
    pieces.push(rest);
    pieces
}

fn piece_lens(len: usize, cuts: &[usize]) -> Vec<usize> {
    let mut places: Vec<usize> = cuts.iter().map(|c| c % (len + 1)).collect();
    places.sort_unstable();
    let starts = [0].into_iter().chain(places.iter().copied());
    starts.zip(&places).map(|(start, place)| place - start).collect()
}

#[cfg(test)]
mod tests;
