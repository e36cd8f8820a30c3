//! Packets handed to the worker that owns their output.
//!
//! A netdev takes packets from any worker; a queue with one producer takes them from its owner only. So each worker has a
//! bounded ring to each other worker. It copies the packet into frames of the pool and rings the owner's bell, once a turn;
//! the owner queues the frames as they are. Nobody waits: a packet that finds no room is dropped at its output.
//!
//! All ports of a worker share its rings, whoever owns the outputs. So each ring is shared as the pool is: a port may have as
//! many frames under way there as are free (Dynamic Threshold, α = 1). One that floods leaves half of the ring to others.
//! What a virtual machine's packets take counts in its port's account besides, and must have room there.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use forebay_control::PortId;
use forebay_policy::{Admission, Occupancy, Th, Threshold};
use forebay_pool::{Arena, Magazine, Pool};
use rtrb::{Consumer, Producer, RingBuffer};

use super::parcel::{self, Leaving, Parcel, Pieces, Undeliverable};
use super::underway::UnderwayAccount;
use crate::SwitchError;
use crate::attention::Attention;

/// Frames under way between two workers, in each direction.
pub(crate) const EXCHANGE_FRAMES: usize = 512;
/// What one port may have of them.
const SHARE: Admission =
    Admission { threshold: Threshold::Dynamic(Th::ONE), reserve: 0, depth: EXCHANGE_FRAMES as u32 };

/// One worker's ends of all rings.
pub(crate) struct Exchange {
    arena: Arc<Arena>,
    magazine: Magazine,
    /// By worker; to itself there is none.
    to: Vec<Option<Towards>>,
    from: Vec<Inbound>,
    /// Whose packet is taken next.
    turn: usize,
    /// Ports with an account that took frames for packets under way, and whether each port is one.
    owing: Vec<PortId>,
    owes: Box<[bool]>,
    bell: Arc<Attention>,
}

/// Frames that came out of one ring, by the port that their packets came in by; they may wrap. The owner writes them.
type Taken = Arc<[AtomicU32]>;

struct Inbound {
    parcels: Consumer<Parcel>,
    taken: Taken,
}

struct Towards {
    parcels: Producer<Parcel>,
    /// Frames that were put into the ring, as those that were taken.
    handed: Box<[u32]>,
    taken: Taken,
    bell: Arc<Attention>,
    /// Something was handed over since the bell was rung.
    is_owed: bool,
}

impl Exchange {
    /// Rings between each two of `workers`, for packets of up to `ports` ports in frames of `pool`.
    ///
    /// # Errors
    /// The kernel gives no more descriptors.
    pub(crate) fn connect(
        workers: usize,
        ports: usize,
        arena: &Arc<Arena>,
        pool: &Arc<Pool>,
    ) -> Result<Vec<Self>, SwitchError> {
        let mut ends = Vec::new();
        for _ in 0..workers {
            ends.push(Self {
                arena: Arc::clone(arena),
                magazine: Magazine::new(Arc::clone(pool)),
                to: Vec::new(),
                from: Vec::new(),
                turn: 0,
                owing: Vec::with_capacity(ports),
                owes: vec![false; ports].into_boxed_slice(),
                bell: Arc::new(Attention::new()?),
            });
        }
        for from in 0..workers {
            for to in 0..workers {
                let towards = (from != to).then(|| {
                    let (parcels, received) = RingBuffer::new(EXCHANGE_FRAMES);
                    let taken: Taken = (0..ports).map(|_| AtomicU32::new(0)).collect();
                    ends[to].from.push(Inbound { parcels: received, taken: Arc::clone(&taken) });
                    let handed = vec![0; ports].into_boxed_slice();
                    Towards { parcels, handed, taken, bell: Arc::clone(&ends[to].bell), is_owed: false }
                });
                ends[from].to.push(towards);
            }
        }
        Ok(ends)
    }

    /// Copies a packet for a port that `owner` has the output of, if the account of the port that it came in by has room,
    /// where that has one; packet path.
    ///
    /// # Errors
    /// [`Undeliverable`]
    pub(super) fn hand(
        &mut self,
        owner: usize,
        pieces: &Pieces<'_>,
        leaving: Leaving,
        account: Option<&UnderwayAccount>,
    ) -> Result<(), Undeliverable> {
        let towards = self.to.get_mut(owner).and_then(Option::as_mut).ok_or(Undeliverable::Full)?;
        let frames = pieces.frames(&self.arena);
        if frames > towards.parcels.slots() {
            return Err(Undeliverable::Full);
        }
        if !towards.has_room(leaving.input, frames) {
            return Err(Undeliverable::OverShare);
        }
        if let Some(account) = account {
            if !account.take(frames as u64) {
                return Err(Undeliverable::OverShare);
            }
            if !std::mem::replace(&mut self.owes[usize::from(leaving.input.0)], true) {
                self.owing.push(leaving.input);
            }
        }
        parcel::push(&mut towards.parcels, pieces, leaving, (&self.arena, &mut self.magazine))?;
        let handed = &mut towards.handed[usize::from(leaving.input.0)];
        *handed = handed.wrapping_add(frames as u32);
        towards.is_owed = true;
        Ok(())
    }

    /// Rings the bells of those that were handed something; packet path, once a turn.
    pub(super) fn ring_bells(&mut self) {
        for towards in self.to.iter_mut().flatten() {
            if std::mem::take(&mut towards.is_owed) {
                towards.bell.call();
            }
        }
    }

    /// Tells of each port whose account took frames how many of them are under way. Those that have none left come no more.
    pub(super) fn look_at_owing(&mut self, mut tell: impl FnMut(PortId, u64)) {
        let (to, owes) = (&self.to, &mut self.owes);
        self.owing.retain(|port| {
            let held = to.iter().flatten().map(|towards| u64::from(towards.held(*port))).sum();
            tell(*port, held);
            owes[usize::from(port.0)] = held > 0;
            held > 0
        });
    }

    /// Whether another worker has handed something over.
    #[inline]
    pub(super) fn has_handed(&self) -> bool {
        self.from.iter().any(|from| !from.parcels.is_empty())
    }

    /// The bell was heard, and the next one is to be.
    pub(super) fn hear(&self) {
        self.bell.hear();
        self.bell.listen();
    }

    /// The frames of the next packet that was handed over, into `packet`, which is empty. Whether there was one. Workers take
    /// turns, packet by packet.
    pub(super) fn take(&mut self, packet: &mut Vec<Parcel>) -> bool {
        let workers = self.from.len();
        for _ in 0..workers {
            let Inbound { parcels, taken } = &mut self.from[self.turn];
            self.turn = (self.turn + 1) % workers;
            while let Ok(parcel) = parcels.pop() {
                let taken = &taken[usize::from(parcel.leaving.input.0)];
                taken.store(taken.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
                let is_last = parcel.is_last;
                packet.push(parcel);
                if is_last {
                    return true;
                }
            }
        }
        false
    }

    /// Number of packets that all rings to this worker can hold. A worker that takes this number of packets has taken every
    /// packet that was in the rings before.
    pub(super) fn capacity(&self) -> usize {
        self.from.len() * EXCHANGE_FRAMES
    }

    /// Frames that were handed over and not yet taken.
    pub(super) fn waiting_frames(&self) -> u32 {
        self.from.iter().map(|from| from.parcels.slots() as u32).sum()
    }

    /// A view of how many free frames it keeps.
    pub(crate) fn level(&self) -> Arc<AtomicU32> {
        self.magazine.level()
    }

    /// Where packets lie that were handed over.
    pub(super) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Frees the frames of a packet that goes nowhere.
    pub(super) fn free(&mut self, packet: &mut Vec<Parcel>) {
        packet.drain(..).for_each(|parcel| self.magazine.put(parcel.segment.frame));
    }
}

impl Towards {
    /// Frames under way of packets that came in by `input`.
    fn held(&self, input: PortId) -> u32 {
        let input = usize::from(input.0);
        self.handed[input].wrapping_sub(self.taken[input].load(Ordering::Acquire))
    }

    /// Whether a packet of `frames` frames that came in by `input` may be put into the ring.
    fn has_room(&self, input: PortId, frames: usize) -> bool {
        let pool_used = (EXCHANGE_FRAMES - self.parcels.slots()) as u64;
        let seen = Occupancy {
            used: self.held(input).into(),
            pool_used,
            pool_size: EXCHANGE_FRAMES as u64,
            headroom: 0,
            first_burst: 0,
        };
        SHARE.admits(seen, frames as u64)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let magazine = &mut self.magazine;
        let left = self.from.iter_mut().flat_map(|from| std::iter::from_fn(|| from.parcels.pop().ok()));
        left.for_each(|parcel| magazine.put(parcel.segment.frame));
    }
}

impl AsFd for Exchange {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use forebay_pool::FrameSize;
    use forebay_wire::net_header::NetHeader;

    use super::*;

    const FLOODS: PortId = PortId(1);
    const QUIET: PortId = PortId(2);
    const OUTPUT: PortId = PortId(3);
    const FRAMES: u32 = 4096;

    fn exchanges<const WORKERS: usize>() -> (Arc<Pool>, [Exchange; WORKERS]) {
        let frames = NonZeroU32::new(FRAMES).expect("not zero");
        let (arena, frames) = Arena::new(frames, FrameSize::B2048).expect("some memory");
        let pool = Arc::new(Pool::new(frames));
        let ends = Exchange::connect(WORKERS, 4, &Arc::new(arena), &pool).expect("an eventfd for each");
        (pool, ends.try_into().unwrap_or_else(|_| unreachable!("each worker has an end")))
    }

    fn exchange() -> (Arc<Pool>, Exchange, Exchange) {
        let (pool, [one, other]) = exchanges();
        (pool, one, other)
    }

    fn hand(exchange: &mut Exchange, input: PortId, bytes: usize) -> Result<(), Undeliverable> {
        let undone = NetHeader::default();
        let leaving = Leaving { port: OUTPUT, input, mark: 0, is_flooded: false, packets: 1, undone };
        exchange.hand(1, &Pieces::whole(&vec![0; bytes]), leaving, None)
    }

    fn take_all(exchange: &mut Exchange) -> usize {
        let (mut packet, mut packets) = (Vec::new(), 0);
        while exchange.take(&mut packet) {
            exchange.free(&mut packet);
            packets += 1;
        }
        packets
    }

    #[test]
    fn a_port_that_floods_leaves_room_to_others_on_their_way_to_the_same_worker() {
        let (_pool, mut one, mut other) = exchange();
        for _ in 0..3 {
            let flooded = (0..2 * EXCHANGE_FRAMES).filter(|_| hand(&mut one, FLOODS, 100).is_ok()).count();
            assert_eq!(flooded, EXCHANGE_FRAMES / 2);
            assert_eq!(hand(&mut one, FLOODS, 100), Err(Undeliverable::OverShare));
            let quiet = (0..EXCHANGE_FRAMES).filter(|_| hand(&mut one, QUIET, 100).is_ok()).count();
            assert_eq!(quiet, EXCHANGE_FRAMES / 4, "as much as is free then");
            assert_eq!(take_all(&mut other), flooded + quiet);
        }
    }

    #[test]
    fn a_worker_that_floods_lets_other_workers_packets_pass() {
        let (_pool, [mut floods, mut last, mut quiet]) = exchanges();
        (0..100).for_each(|_| hand(&mut floods, FLOODS, 100).expect("there is room"));
        hand(&mut quiet, QUIET, 100).expect("there is room");
        let mut packet = Vec::new();
        let mut inputs = [0, 1].map(|_| {
            assert!(last.take(&mut packet));
            let input = packet[0].leaving.input;
            last.free(&mut packet);
            input
        });
        inputs.sort();
        assert_eq!(inputs, [FLOODS, QUIET]);
    }

    #[test]
    fn a_long_packet_counts_by_its_frames_and_one_always_passes() {
        const LONG: usize = 64_000;
        let (_pool, mut one, mut other) = exchange();
        let frames = LONG.div_ceil(FrameSize::B2048.payload() as usize);
        let passed = (0..EXCHANGE_FRAMES).filter(|_| hand(&mut one, FLOODS, LONG).is_ok()).count();
        assert_eq!(passed, EXCHANGE_FRAMES / 2 / frames);
        assert_eq!(hand(&mut one, QUIET, LONG), Ok(()));
        assert_eq!(take_all(&mut other), passed + 1);
    }

    #[test]
    fn what_was_handed_over_is_free_again_when_the_ends_are_gone() {
        let (pool, mut one, other) = exchange();
        (0..10).for_each(|_| _ = hand(&mut one, FLOODS, 5000));
        drop((one, other));
        assert_eq!(pool.free(), FRAMES);
    }
}
