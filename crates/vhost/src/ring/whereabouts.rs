//! Where a packed ring goes on, by what lies in it.
//!
//! A front end whose back end has gone without giving its ring back may say an old position: QEMU 7.2 does so for NICs. But
//! in each lap the guest writes every descriptor, so the bit `AVAIL` changes at its own position, and what waits for the
//! device lies before that.

use std::sync::atomic::Ordering;

use super::chain::NEXT;
use super::position::{AVAIL, FLAGS, Position, USED};
use crate::memory::Area;

/// So often it is looked again, because the guest may write meanwhile.
const LOOKS: usize = 3;

/// Where to go on: where the front end says, unless what lies in the ring contradicts it.
pub(super) fn position(ring: &Area, size: u16, said: Position) -> Position {
    let look = || Waiting::look(ring, size);
    (0..LOOKS).find_map(|_| look()).map_or(said, |waiting| waiting.start_or(said))
}

/// The descriptors that wait, where all others are used.
struct Waiting {
    flags: Vec<u16>,
    start: Position,
    count: u16,
}

impl Waiting {
    /// `None`: the ring is new, or has buffers of several descriptors. Of those only the first is marked as used.
    fn look(ring: &Area, size: u16) -> Option<Waiting> {
        let offset = |index: u16| usize::from(index) * 16 + FLAGS;
        let flags: Vec<u16> =
            (0..size).map(|index| ring.load_u16(offset(index), Ordering::Acquire)).collect();
        let lap = flags[0] & AVAIL != 0;
        let changes = flags.iter().position(|flags| (flags & AVAIL != 0) != lap);
        let guest = changes.map_or(Position::new(0, !lap), |index| Position::new(index as u16, lap));
        let waits =
            |index: u16| (flags[usize::from(index)] & AVAIL != 0) != (flags[usize::from(index)] & USED != 0);
        let count = (1..=size).take_while(|back| waits(guest.before(*back, size).index())).count() as u16;
        let is_new = flags.iter().all(|flags| flags & (AVAIL | USED) == 0);
        let is_one_lap =
            flags[usize::from(guest.index())..].iter().all(|flags| (flags & AVAIL != 0) != guest.wrap());
        let others_are_used = (count + 1..=size).all(|back| !waits(guest.before(back, size).index()));
        let start = guest.before(count, size);
        (!is_new && is_one_lap && others_are_used).then_some(Waiting { flags, start, count })
    }

    /// What the front end says may be true if the descriptors before that can be the rest of a buffer that was used.
    fn start_or(&self, said: Position) -> Position {
        let size = self.flags.len() as u16;
        let before = (1..=self.count).find(|count| self.start.after(*count, size) == said);
        let has_next =
            |count: u16| self.flags[usize::from(self.start.after(count, size).index())] & NEXT != 0;
        let may_be_rest = |count: u16| !has_next(count - 1) && (0..count - 1).all(has_next);
        match before {
            Some(count) if may_be_rest(count) => said,
            _ => self.start,
        }
    }
}
