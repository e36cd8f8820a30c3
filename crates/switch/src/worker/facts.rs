//! What is known of packets besides their bytes. A ring's packets have it below them: their origin, and hints.
//!
//! ```text
//!   frame │ headroom … │ origin: port id, LAYOUT_ORIGIN │ packet
//!         │ headroom … │ origin: port id, LAYOUT_ORIGIN │ hints …, layout id │ packet
//! ```

use std::sync::Arc;

use forebay_control::PortId;
use forebay_hints::{BELOW_BYTES, Found, Hint, Values, id_of};
use forebay_kernel::{LAYOUT_ORIGIN, ORIGIN_BYTES, source_port};
use forebay_pool::{Arena, Segment};
use forebay_wire::Tag;

use super::Worker;
use crate::counters::WorkerCell;
use crate::layouts::KnownLayout;

/// One packet's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    /// Where all ports share the ring. `None`: a broken program wrote no origin where the layout says.
    pub(super) port: Option<PortId>,
    /// There are hints: see `Worker::hints_of`.
    pub(super) has_hints: bool,
    /// Its sender left something undone: it lies in `Worker::undone`.
    pub(super) is_undone: bool,
    /// Only its beginning is in a frame: the rest lies in `Worker::loans`.
    pub(super) is_lent: bool,
    /// A VLAN tag that the packet has and that is not in it.
    pub(super) tag: Option<Tag>,
    /// Of the flow that the port's program found, or 0.
    pub(super) flow_id: u32,
}

impl Worker {
    /// Reads what lies below the burst's packets. Runs of equal ids are looked up once.
    pub(super) fn look_below(&mut self, arena: &Arena, asks_port: bool) {
        let Self { layouts, records, hints, burst, shared, index: worker, .. } = self;
        let (layouts, cell) = (&**layouts.load(), shared.worker_cell(*worker));
        let (mut id, mut found, mut run) = (LAYOUT_ORIGIN, Found::Unknown, 0u64);
        for (index, record) in records[..burst.len()].iter_mut().enumerate() {
            let bytes = bytes_below(arena, &burst.packet(index)[0]);
            let next = id_of(bytes);
            if next != id {
                count(id, found, run, cell, *worker);
                (id, found, run) = (next, layouts.find(next), 0);
            }
            run += 1;
            let (looked, end) = match found {
                Found::Known(layout) => {
                    (Facts::hinted(bytes, layout, &mut hints[index]), BELOW_BYTES - layout.plan.bytes())
                }
                Found::Stale | Found::Unknown => (Facts::default(), BELOW_BYTES),
            };
            let port = if asks_port { origin_at(bytes, end) } else { None };
            record.facts = Facts { port, ..looked };
        }
        count(id, found, run, cell, *worker);
    }

    /// What the device told of a packet of the burst.
    #[inline]
    pub(super) fn hints_of(&self, index: usize) -> &Values {
        if self.records[index].facts.has_hints { &self.hints[index] } else { &NO_HINTS }
    }
}

/// Of packets whose device tells nothing.
const NO_HINTS: Values = Values {
    present: 0,
    rx_hash: 0,
    rx_hash_type: 0,
    rx_vlan_tci: 0,
    rx_vlan_proto: 0,
    rx_timestamp: 0,
    flow_id: 0,
    rx_port: 0,
};

impl Facts {
    /// Puts the hints into `told`.
    #[inline]
    fn hinted(bytes: &[u8; BELOW_BYTES], layout: &KnownLayout, told: &mut Values) -> Self {
        let hints = layout.plan.read(bytes);
        if let Some(flow_id) = hints.flow_id().filter(|_| layout.is_ours) {
            // Of the others only the time is of use then; a tag it has not.
            *told = Values {
                present: Hint::RxTimestamp.bit(),
                rx_timestamp: hints.rx_timestamp().unwrap_or_default(),
                ..Values::default()
            };
            return Self { has_hints: true, flow_id, ..Self::default() };
        }
        *told = hints.values();
        let is_out = layout.is_ours && told.has(Hint::RxVlanTci);
        let tag = is_out.then(|| Tag::from_tci(told.rx_vlan_tci));
        Self { has_hints: true, tag, ..Self::default() }
    }
}

fn count(id: u32, found: Found<&Arc<KnownLayout>>, packets: u64, cell: &WorkerCell, worker: usize) {
    match found {
        _ if id == LAYOUT_ORIGIN => {}
        Found::Known(layout) => layout.packets[worker].add(packets),
        Found::Stale => cell.stale_layouts.add(packets),
        Found::Unknown => cell.unknown_layouts.add(packets),
    }
}

/// The kernel leaves so many bytes free in each frame; from one that it left fewer in, nothing is read.
#[inline]
fn bytes_below<'a>(arena: &'a Arena, first: &'a Segment) -> &'a [u8; BELOW_BYTES] {
    const NOTHING: [u8; BELOW_BYTES] = [0; BELOW_BYTES];
    let Some(offset) = first.offset.checked_sub(BELOW_BYTES as u16) else { return &NOTHING };
    arena.bytes(&first.frame, offset, BELOW_BYTES as u16).try_into().expect("so many bytes were asked for")
}

/// The port in the origin that ends at byte `end`.
fn origin_at(bytes: &[u8; BELOW_BYTES], end: usize) -> Option<PortId> {
    let origin = bytes[..end].last_chunk::<ORIGIN_BYTES>()?;
    source_port(origin).map(PortId)
}
