//! Packets of one burst on their way out, by whichever way each port has.

use forebay_control::{DropReason, PortId};
use forebay_policy::Nanos;
use forebay_pool::{Arena, Burst, PacketSegments};
use forebay_vhost::LentBytes;
use forebay_wire::ethernet::HEADER_LEN;
use forebay_wire::net_header::NetHeader;
use forebay_wire::vlan::TAG_LEN;
use forebay_xsk::{Destination, Outcome, TagEdit, TxBatch, TxError};

use super::classify::Headers;
use super::exchange::Exchange;
use super::finish::finish;
use super::join::{self, JointRun};
use super::moderation::Moderation;
use super::outlet::Outlet;
use super::parcel::{Leaving, Pieces, Sent, Undeliverable};
use super::source::{Member, underway_of};
use crate::counters::PortCell;
use crate::output::Output;
use crate::topology::{PortEntry, Topology};

/// One packet of the burst.
#[derive(Clone, Copy)]
pub(super) struct Packet<'a> {
    pub(super) segments: PacketSegments<'a>,
    /// What is behind them, in the memory of the guest that sent it.
    pub(super) lent: LentBytes<'a>,
    pub(super) undone: NetHeader,
}

/// Packets on their way out, and who counts them.
pub(super) struct Dispatch<'a> {
    pub(super) batch: Option<TxBatch<'a>>,
    pub(super) exchange: Option<&'a mut Exchange>,
    pub(super) members: &'a [Option<Box<Member>>],
    pub(super) outlets: &'a mut [Option<Box<Outlet>>],
    pub(super) owing: &'a mut Vec<PortId>,
    pub(super) moderation: &'a mut Moderation,
    pub(super) now: Nanos,
    /// As in `Loans`.
    pub(super) room: &'a mut Box<[u8]>,
    pub(super) arena: &'a Arena,
    pub(super) topology: &'a Topology,
    pub(super) worker: usize,
    pub(super) copies: u64,
    pub(super) departed: u64,
}

impl<'a> Dispatch<'a> {
    pub(super) fn flood(&mut self, packet: Packet<'a>, headers: Headers) {
        let topology = self.topology;
        let input = headers.input;
        let input_is_isolated = topology.port(input).is_some_and(|port| port.isolated);
        for port in topology.members(headers.vid).iter().filter_map(|id| topology.port(*id)) {
            if port.id != input && !(port.isolated && input_is_isolated) {
                self.send_by(self.way_out(port, &headers), port, packet, headers, true);
            }
        }
    }

    pub(super) fn send_to(&mut self, port: PortId, packet: Packet<'a>, headers: Headers) {
        if let Some(port) = self.topology.port(port) {
            self.send_by(self.way_out(port, &headers), port, packet, headers, false);
        }
    }

    /// Sends the packet with this index, and where this worker fills a guest's queues those like it that follow. Says how
    /// many packets that were.
    pub(super) fn send_alike(
        &mut self,
        port: PortId,
        headers: Headers,
        index: usize,
        packet: &impl Fn(usize) -> Packet<'a>,
        alike: impl FnOnce() -> usize,
    ) -> usize {
        let Some(port) = self.topology.port(port) else { return 1 };
        match self.way_out(port, &headers) {
            Some(Output::Guest { owner }) if owner == self.worker => {
                let packets = alike();
                self.send_here(port, (index..index + packets).map(packet), headers);
                packets
            }
            way => {
                self.send_by(way, port, packet(index), headers, false);
                1
            }
        }
    }

    fn way_out(&self, port: &PortEntry, headers: &Headers) -> Option<Output> {
        port.way_out(headers.src, headers.dst, self.topology.port(headers.input))
    }

    fn send_by(
        &mut self,
        way: Option<Output>,
        port: &PortEntry,
        packet: Packet<'a>,
        headers: Headers,
        is_flooded: bool,
    ) {
        let edit = headers.egress(&port.vlans);
        match way {
            Some(Output::Netdev(ifindex)) => {
                self.count_copies(port, 1);
                let token = token(port, 1);
                if let Some(batch) = self.batch_with_room(port, 1) {
                    let to = Destination { ifindex: ifindex.0, mark: headers.mark, token };
                    match packet.lent.is_empty() {
                        true => batch.push(packet.segments, edit, packet.undone, to),
                        false => {
                            let lent = packet.lent.in_order();
                            batch.push_lent(packet.segments, lent, edit, (packet.undone, to));
                        }
                    }
                }
            }
            Some(output @ (Output::Memory { owner, .. } | Output::Guest { owner })) => {
                let pieces = Pieces::edited(self.arena, packet.segments, edit);
                let undone = packet.undone.moved_by(edit.growth());
                let (input, mark) = (headers.input, headers.mark);
                let leaving = Leaving { port: port.id, input, mark, is_flooded, packets: 1, undone };
                let is_guest = matches!(output, Output::Guest { .. });
                if !packet.lent.is_empty() {
                    self.send_lent(port, (owner, is_guest), pieces, packet.lent, leaving);
                } else if is_guest && !undone.is_long() && pieces.len() > longest(port, &headers, edit) {
                    self.count_copies(port, 1);
                    self.lose(port, DropReason::TxTooBig, 1);
                } else if is_guest || undone.is_plain() {
                    self.send_owned(port, owner, &pieces, leaving);
                } else {
                    self.send_finished(port, owner, &pieces, leaving);
                }
            }
            None => {
                self.count_copies(port, 1);
                self.lose(port, DropReason::TxPortDown, 1);
            }
        }
    }

    /// Runs are made for those that take them ([`PortEntry::takes_joints`]).
    pub(super) fn send_joint(&mut self, port: PortId, burst: &'a Burst, joint: &JointRun, headers: Headers) {
        let Some(port) = self.topology.port(port) else { return };
        let packets = joint.run.segments();
        let (arena, edit) = (self.arena, headers.egress(&port.vlans));
        match self.way_out(port, &headers) {
            Some(Output::Netdev(ifindex)) => {
                self.count_copies(port, packets);
                let to = Destination { ifindex: ifindex.0, mark: headers.mark, token: token(port, packets) };
                if let Some(batch) = self.batch_with_room(port, packets) {
                    let mut room = join::Room::default();
                    let described = joint.describe(arena, burst, edit, &mut room);
                    batch.push_joint(described, joint.packets(burst), to);
                }
            }
            Some(Output::Guest { owner }) => {
                let mut room = join::Room::default();
                let described = joint.describe(arena, burst, edit, &mut room);
                let pieces = joint.pieces(arena, burst, &described);
                let pieces = Pieces::listed(&pieces);
                let (input, mark, undone) = (headers.input, headers.mark, described.undone());
                let leaving = Leaving { port: port.id, input, mark, is_flooded: false, packets, undone };
                self.send_owned(port, owner, &pieces, leaving);
            }
            Some(Output::Memory { .. }) | None => {
                self.count_copies(port, packets);
                self.lose(port, DropReason::TxPortDown, packets);
            }
        }
    }

    /// To a queue with one producer: this worker, or another that is handed the packet and counts it.
    fn send_owned(&mut self, port: &PortEntry, owner: usize, pieces: &Pieces<'_>, leaving: Leaving) {
        let cell = port.cells.of(self.worker);
        if owner == self.worker {
            let sent = self.put(leaving, |outlet| outlet.send(pieces, leaving));
            self.count_copies(port, sent.copies());
            return count_sent(cell, sent);
        }
        self.count_copies(port, leaving.packets);
        let handed = match &mut self.exchange {
            Some(exchange) => exchange.hand(owner, pieces, leaving, underway_of(self.members, leaving.input)),
            None => Err(Undeliverable::Down),
        };
        if handed.is_err() {
            count_sent(cell, Sent::whole(handed, leaving.packets, 0));
        }
    }

    /// The same for a packet whose last bytes lie in a guest's memory. A queue in memory takes only finished packets.
    fn send_lent(
        &mut self,
        port: &PortEntry,
        (owner, is_guest): (usize, bool),
        pieces: Pieces<'_>,
        lent: LentBytes<'_>,
        leaving: Leaving,
    ) {
        let mut room = std::mem::take(self.room);
        if is_guest && owner == self.worker {
            let sent = self.put(leaving, |outlet| outlet.send_lent(pieces, lent, &mut room, leaving));
            self.count_copies(port, sent.copies());
            count_sent(port.cells.of(self.worker), sent);
        } else {
            let rest = [lent.copy_to(&mut room)];
            let pieces = pieces.followed_by(&rest);
            match is_guest {
                true => self.send_owned(port, owner, &pieces, leaving),
                false => self.send_finished(port, owner, &pieces, leaving),
            }
        }
        *self.room = room;
    }

    /// Packets with the same headers to a queue that this worker owns.
    fn send_here(&mut self, port: &PortEntry, packets: impl Iterator<Item = Packet<'a>>, headers: Headers) {
        let edit = headers.egress(&port.vlans);
        let (input, mark) = (headers.input, headers.mark);
        let undone = NetHeader::default();
        let leaving = Leaving { port: port.id, input, mark, is_flooded: false, packets: 1, undone };
        let longest = longest(port, &headers, edit);
        let cell = port.cells.of(self.worker);
        let mut outlet = self.outlets[usize::from(port.id.0)].as_mut();
        let was_owed = outlet.as_ref().is_some_and(|outlet| outlet.is_owed());
        let (mut all, mut sent, mut bytes) = (0, 0, 0);
        for packet in packets {
            let one = match &mut outlet {
                Some(outlet) => send_one(outlet, (self.arena, self.room), packet, (edit, longest), leaving),
                None => Sent::whole(Err(Undeliverable::Down), 1, 0),
            };
            all += one.copies();
            (sent, bytes) = (sent + u64::from(one.packets), bytes + one.bytes);
            if let Some((packets, why)) = one.lost {
                cell.drop(reason(why), packets.into());
            }
        }
        cell.tx_packets.add(sent);
        cell.tx_bytes.add(bytes);
        let owes = !was_owed && outlet.is_some_and(|outlet| outlet.is_owed());
        self.count_copies(port, all);
        if owes {
            self.owing.push(port.id);
        }
    }

    /// To a queue of this worker's.
    fn put(&mut self, leaving: Leaving, send: impl FnOnce(&mut Outlet) -> Sent) -> Sent {
        let Some(outlet) = self.outlets[usize::from(leaving.port.0)].as_mut() else {
            return Sent::whole(Err(Undeliverable::Down), leaving.packets, 0);
        };
        let was_owed = outlet.is_owed();
        let sent = send(outlet);
        if !was_owed && outlet.is_owed() {
            self.owing.push(leaving.port);
        }
        sent
    }

    /// To a queue that takes only finished packets.
    fn send_finished(&mut self, port: &PortEntry, owner: usize, pieces: &Pieces<'_>, leaving: Leaving) {
        let finished = Leaving { undone: NetHeader::default(), ..leaving };
        // Each part is counted as it is sent.
        finish(pieces, &leaving.undone, |parts| {
            self.send_owned(port, owner, &Pieces::listed(parts), finished);
            Ok(())
        });
    }

    /// Counts copies that are to leave at `port`; each is then sent or lost.
    fn count_copies(&mut self, port: &PortEntry, packets: u32) {
        port.cells.of(self.worker).tx_copies.add(u64::from(packets));
        self.copies += u64::from(packets);
    }

    fn lose(&self, port: &PortEntry, reason: DropReason, packets: u32) {
        port.cells.of(self.worker).drop(reason, u64::from(packets));
    }

    /// The batch, with room for one more message. A worker in memory has none.
    fn batch_with_room(&mut self, port: &PortEntry, packets: u32) -> Option<&mut TxBatch<'a>> {
        if self.batch.as_ref().is_some_and(TxBatch::is_full) {
            self.flush_batch();
        }
        if self.batch.is_none() {
            self.lose(port, DropReason::TxError, packets);
        }
        self.batch.as_mut()
    }

    pub(super) fn flush(&mut self) {
        self.flush_batch();
        show_owed(self.outlets, self.owing, (self.moderation, self.now));
        if let Some(exchange) = &mut self.exchange {
            exchange.ring_bells();
        }
    }

    fn flush_batch(&mut self) {
        let (topology, worker) = (self.topology, self.worker);
        let Some(batch) = &mut self.batch else { return };
        let departed = batch.flush(|outcome| {
            let (port, packets) = (outcome.token as u16, outcome.token >> 16);
            if let Some(port) = topology.port(PortId(port)) {
                count(port.cells.of(worker), outcome, u64::from(packets));
            }
        });
        self.departed += u64::from(departed);
    }
}

/// Shows receivers what was queued for them.
pub(super) fn show_owed(
    outlets: &mut [Option<Box<Outlet>>],
    owing: &mut Vec<PortId>,
    (moderation, now): (&mut Moderation, Nanos),
) {
    for port in owing.drain(..) {
        if let Some(outlet) = &mut outlets[usize::from(port.0)] {
            outlet.show(moderation, now);
        }
    }
}

/// Puts one packet into an output of this worker's.
#[inline]
fn send_one(
    outlet: &mut Outlet,
    (arena, room): (&Arena, &mut [u8]),
    packet: Packet<'_>,
    (edit, longest): (TagEdit, usize),
    leaving: Leaving,
) -> Sent {
    // Most packets.
    if let ([only], Outlet::Guest(guest), TagEdit::Keep) = (packet.segments, &mut *outlet, edit)
        && packet.undone.is_plain()
    {
        let bytes = arena.bytes(&only.frame, only.offset, only.len);
        let sent = match bytes.len() > longest {
            true => Err(Undeliverable::TooLong),
            false => guest.send_bytes(bytes, leaving.sender()),
        };
        return Sent::whole(sent, 1, bytes.len());
    }
    let pieces = Pieces::edited(arena, packet.segments, edit);
    let undone = packet.undone.moved_by(edit.growth());
    if !packet.lent.is_empty() {
        return outlet.send_lent(pieces, packet.lent, room, Leaving { undone, ..leaving });
    }
    if !undone.is_long() && pieces.len() > longest {
        return Sent::whole(Err(Undeliverable::TooLong), 1, 0);
    }
    outlet.send(&pieces, Leaving { undone, ..leaving })
}

/// Bytes of the longest packet with these headers that leaves for a guest. As for netdevs, a tag does not count, and long
/// packets are as long as they are: their parts are their sender's choice.
fn longest(port: &PortEntry, headers: &Headers, edit: TagEdit) -> usize {
    let is_tagged = match edit {
        TagEdit::Push(_) | TagEdit::Replace(_) => true,
        TagEdit::Keep => (headers.tag.is_some() && !headers.tag_is_out) || headers.is_stacked(),
        TagEdit::Pop => headers.is_stacked(),
    };
    port.mtu as usize + HEADER_LEN + if is_tagged { TAG_LEN } else { 0 }
}

fn reason(why: Undeliverable) -> DropReason {
    match why {
        Undeliverable::Full => DropReason::TxFull,
        Undeliverable::OverShare => DropReason::TxOverShare,
        Undeliverable::TooLong => DropReason::TxTooBig,
        Undeliverable::Down => DropReason::TxPortDown,
    }
}

/// Counts what became of a packet, without the copies that it made.
pub(super) fn count_sent(cell: &PortCell, sent: Sent) {
    cell.tx_packets.add(sent.packets.into());
    cell.tx_bytes.add(sent.bytes);
    if let Some((packets, why)) = sent.lost {
        cell.drop(reason(why), packets.into());
    }
}

/// Output port and number of packets of one message.
fn token(port: &PortEntry, packets: u32) -> u32 {
    packets << 16 | u32::from(port.id.0)
}

fn count(cell: &PortCell, outcome: Outcome, packets: u64) {
    match outcome.result {
        Ok(()) => {
            cell.tx_packets.add(packets);
            cell.tx_bytes.add(u64::from(outcome.len_bytes));
        }
        Err(TxError::Full) => cell.drop(DropReason::TxFull, packets),
        Err(TxError::TooBig) => cell.drop(DropReason::TxTooBig, packets),
        Err(TxError::PortDown) => cell.drop(DropReason::TxPortDown, packets),
        Err(TxError::Other) => cell.drop(DropReason::TxError, packets),
    }
}
