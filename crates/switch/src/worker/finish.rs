//! Packets that their sender left undone, for receivers that take none: the checksum is finished, or the packet is cut
//! into those that it stands for. Netdevs take them as they are; the kernel does what a device cannot.

use arrayvec::ArrayVec;
use forebay_wire::cut::{self, Cut};
use forebay_wire::net_header::NetHeader;

use super::parcel::{MAX_PIECES, Pieces, Undeliverable};

/// A packet in pieces, some of them made here.
type Parts<'a> = ArrayVec<&'a [u8], { MAX_PIECES + 3 }>;

/// Gives `put` the packets that a receiver gets. One that is not put ends it.
///
/// # Errors
/// What `put` says.
pub(super) fn finish(
    pieces: &Pieces<'_>,
    undone: &NetHeader,
    put: impl FnMut(&[&[u8]]) -> Result<(), Undeliverable>,
) -> Result<(), Undeliverable> {
    let whole: Parts<'_> = pieces.in_order().collect();
    if undone.is_long() { cut(&whole, undone, put) } else { complete(&whole, undone, put) }
}

fn complete(
    whole: &[&[u8]],
    undone: &NetHeader,
    mut put: impl FnMut(&[&[u8]]) -> Result<(), Undeliverable>,
) -> Result<(), Undeliverable> {
    // Where it lies was checked when the packet came in.
    let Some((at, checksum)) = cut::finished(undone, whole) else { return put(whole) };
    let mut parts = Parts::new();
    parts.extend(between(whole, 0, at));
    parts.push(&checksum);
    parts.extend(between(whole, at + checksum.len(), usize::MAX));
    put(&parts)
}

fn cut(
    whole: &[&[u8]],
    undone: &NetHeader,
    mut put: impl FnMut(&[&[u8]]) -> Result<(), Undeliverable>,
) -> Result<(), Undeliverable> {
    // Headers are read in one piece, and a new tag lies in one of its own.
    let mut head = [0; cut::MAX_HEADER_BYTES];
    let mut head_bytes = 0;
    for piece in between(whole, 0, head.len()) {
        head[head_bytes..][..piece.len()].copy_from_slice(piece);
        head_bytes += piece.len();
    }
    let head = &head[..head_bytes];
    let mut fragments = Parts::new();
    fragments.push(head);
    fragments.extend(between(whole, head_bytes, usize::MAX));
    // It was looked at when it came in, and tags change nothing.
    let Ok(cut) = Cut::new(undone, &fragments) else { return Err(Undeliverable::TooLong) };
    for part in 0..cut.parts() {
        let payload = cut.payload(part);
        let mut header = [0; cut::MAX_HEADER_BYTES];
        let payload = between(&fragments, payload.start, payload.end);
        let header_bytes = cut.write_header(part, head, payload.clone(), &mut header);
        let mut parts = Parts::new();
        parts.push(&header[..header_bytes]);
        parts.extend(payload);
        put(&parts)?;
    }
    Ok(())
}

/// The bytes from `from` up to `to`, as far as there are any.
fn between<'a>(
    pieces: &'a [&'a [u8]],
    from: usize,
    to: usize,
) -> impl Iterator<Item = &'a [u8]> + Clone + 'a {
    let mut at = 0;
    pieces.iter().filter_map(move |piece| {
        let start = at;
        at += piece.len();
        let (first, last) = (from.max(start), to.min(at));
        (first < last).then(|| &piece[first - start..last - start])
    })
}
