//! What the control thread asks of a worker, between two turns.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, SyncSender, TrySendError};

use forebay_control::PortId;
use forebay_policy::Refill;
use forebay_pool::Arena;
use forebay_vhost::{Features, Virtqueue};

use crate::capture::Tap;

use super::clock::Moment;
use super::exchange::Exchange;
use super::moderation::{Choice, Moderation};
use super::outlet::Outlet;
use super::probes::ProbeToGuest;
use super::{Feed, Member, ServedSource, Slot, Source, SuppliedBy, Supply, Worker, XskSource};

/// Packets of a port that goes lie in front of so many others in the long queue at most.
const MOST_LONG: usize = 4096;

/// One request. Where there is an answer, it comes when the request is done.
pub(crate) enum Command {
    /// Count packets of this port from now on.
    AddMember(PortId, Box<Member>),
    /// Forget the port. Nothing may deliver packets of it any more.
    RemoveMember(PortId, Sender<()>),
    /// Copy the port's packets from now on.
    SetTap(PortId, Box<Tap>),
    /// Fill this output from now on.
    AddOutlet(PortId, Box<Outlet>),
    /// Pass on what other workers have handed over for this output, and give it back.
    TakeOutlet(PortId, Sender<Option<Box<Outlet>>>),
    /// Write only such packets into this guest's queues from now on: what was agreed on, less what it does not take.
    SetTakes(PortId, Features, Sender<()>),
    /// Send these loop probes to guests.
    ProbeGuests(Box<[ProbeToGuest]>),
    /// Serve this guest's queue no more, and give it back. What lies in it stays the guest's.
    TakeGuest(Slot, Sender<Option<Virtqueue>>),
    /// Take frames for packets of guests and of the long queue from the supply of this number, which lie in this arena.
    MoveGuests(u8, Arc<Arena>),
    /// Pass on what other workers have handed over for this output, and forget it. They know the port no more.
    RemoveOutlet(PortId, Sender<()>),
    /// Exchange packets with other workers from now on.
    SetExchange(Box<Exchange>),
    /// Post frames to a collector's queue from now on.
    AddSupply(u8, Box<Supply>),
    /// Stop that, once all rings there are retired. What lies in the fill ring stays there.
    RemoveSupply(u8, Sender<()>),
    /// Serve this ring from now on.
    AddSource(Slot, Box<ServedSource>),
    /// Serve what lies in the ring and forget it; its own supply comes back. Nothing may deliver to it any more. `true`:
    /// its account is another ring's by now.
    Retire(Slot, bool, Sender<Emptied>),
    /// Set the account of the ring right by what the ring holds.
    Audit(Slot),
    /// Set the accounts of ports right whose packets were handed to other workers.
    AuditUnderway,
    /// Fill a collector's fill ring by these watermarks.
    SetRefill(u8, Refill),
    /// Moderate calls with room for more queues.
    GrowModeration(Box<Moderation>),
    /// Choose limits for calls of the queue with this number so.
    Moderate(usize, Box<Choice>),
    /// Limits that were chosen for the queue with this number, or asked for by its guest, have changed.
    LimitsChanged(usize),
    /// The queue with this number comes no more.
    ForgetModerated(usize),
    /// End the thread.
    Stop,
}

/// A ring that its worker serves no more.
pub(crate) struct Emptied {
    pub(crate) worker: usize,
    pub(crate) slot: Slot,
    /// What supplied it, if nothing else.
    pub(crate) supply: Option<Box<Supply>>,
}

/// The control thread's end.
#[derive(Clone)]
pub(crate) struct Commander {
    sender: SyncSender<Command>,
    bell: Arc<OwnedFd>,
    command_waits: Arc<AtomicBool>,
}

impl Commander {
    pub(super) fn new(
        sender: SyncSender<Command>,
        bell: Arc<OwnedFd>,
        command_waits: Arc<AtomicBool>,
    ) -> Self {
        Self { sender, bell, command_waits }
    }

    /// Sends a request and wakes the worker; waits while the worker is too far behind. A worker that has ended takes
    /// none, which only happens while the switch stops.
    pub(crate) fn send(&self, command: Command) {
        let sent = self.sender.try_send(command);
        self.ring();
        if let Err(TrySendError::Full(command)) = sent {
            let _ = self.sender.send(command);
            self.ring();
        }
    }

    /// What wakes the worker, without a command.
    pub(crate) fn waker(&self) -> Waker {
        Waker { bell: Arc::clone(&self.bell), command_waits: Arc::clone(&self.command_waits) }
    }

    fn ring(&self) {
        ring(&self.bell, &self.command_waits);
    }
}

/// Has a worker make a turn, also one that sleeps.
pub(crate) struct Waker {
    bell: Arc<OwnedFd>,
    command_waits: Arc<AtomicBool>,
}

impl Waker {
    pub(crate) fn wake(&self) {
        ring(&self.bell, &self.command_waits);
    }
}

fn ring(bell: &OwnedFd, command_waits: &AtomicBool) {
    command_waits.store(true, Ordering::Release);
    let _ = rustix::io::write(bell.as_fd(), &1u64.to_ne_bytes());
}

impl Worker {
    /// Carries out what was asked. `false`: stop.
    pub(crate) fn obey(&mut self, moment: Moment) -> bool {
        if !self.doorbell.is_asked() {
            return true;
        }
        self.doorbell.silence();
        while let Ok(command) = self.doorbell.commands.try_recv() {
            match command {
                Command::AddMember(port, member) => self.members[usize::from(port.0)] = Some(member),
                Command::RemoveMember(port, answer) => {
                    self.remove_member(port, moment);
                    let _ = answer.send(());
                }
                Command::SetTap(port, tap) => {
                    if let Some(member) = &mut self.members[usize::from(port.0)] {
                        member.tap = Some(tap);
                    }
                }
                Command::AddOutlet(port, outlet) => self.add_outlet(port, outlet, moment),
                Command::TakeOutlet(port, answer) => {
                    let outlet = self.take_outlet(port, moment);
                    let _ = answer.send(outlet);
                }
                Command::SetTakes(port, takes, answer) => {
                    if let Some(Outlet::Guest(guest)) = self.outlets[usize::from(port.0)].as_deref_mut() {
                        guest.set_takes(takes);
                    }
                    let _ = answer.send(());
                }
                Command::ProbeGuests(probes) => self.probe_guests(&probes, moment.now),
                Command::TakeGuest(slot, answer) => {
                    let queue = self.take_guest(slot);
                    let _ = answer.send(queue);
                }
                Command::MoveGuests(supply, arena) => self.move_guests(supply, &arena),
                Command::RemoveOutlet(port, answer) => {
                    self.remove_outlet(port, moment);
                    let _ = answer.send(());
                }
                Command::SetExchange(exchange) => self.set_exchange(*exchange),
                Command::AddSupply(number, supply) => self.add_supply(number, supply),
                Command::RemoveSupply(number, answer) => {
                    self.remove_supply(number);
                    let _ = answer.send(());
                }
                Command::AddSource(slot, served) => self.add(slot, served, moment),
                Command::Retire(slot, replaced, answer) => {
                    let supply = self.retire(slot, replaced, moment);
                    let _ = answer.send(Emptied { worker: self.index, slot, supply });
                }
                Command::Audit(slot) => self.audit(slot),
                Command::AuditUnderway => self.settle_underway(),
                Command::SetRefill(number, refill) => self.set_refill(number, refill),
                Command::GrowModeration(moderation) => self.grow_moderation(moderation),
                Command::Moderate(number, choice) => self.moderate(number, *choice, moment.now),
                Command::LimitsChanged(number) => self.limits_changed(number, moment.now),
                Command::ForgetModerated(number) => self.moderation.forget(number),
                Command::Stop => return false,
            }
        }
        true
    }

    /// What was handed over for the port must not wait for another one with its id.
    fn remove_outlet(&mut self, port: PortId, moment: Moment) {
        drop(self.take_outlet(port, moment));
    }

    fn add_outlet(&mut self, port: PortId, mut outlet: Box<Outlet>, moment: Moment) {
        self.start_output(port, &mut outlet, moment.now);
        self.outlets[usize::from(port.0)] = Some(outlet);
    }

    fn take_outlet(&mut self, port: PortId, moment: Moment) -> Option<Box<Outlet>> {
        // What was handed over until now. Other workers may hand over more without end.
        let most = self.exchange.as_ref().map_or(0, Exchange::capacity);
        self.deliver_handed(moment.now, most);
        let mut outlet = self.outlets[usize::from(port.0)].take()?;
        if let Outlet::Guest(guest) = &mut *outlet {
            self.stop_output(guest);
        }
        Some(outlet)
    }

    fn take_guest(&mut self, slot: Slot) -> Option<Virtqueue> {
        let mut served = self.sources[slot.index()].take()?;
        if let Some(kick) = served.source.socket() {
            self.doorbell.ignore(kick);
        }
        self.stop_source(&mut served);
        match served.source {
            Source::Guest(guest) => Some(guest.into_queue()),
            Source::Xsk(_) | Source::Memory(_) | Source::Long(_) => None,
        }
    }

    fn move_guests(&mut self, supply: u8, arena: &Arc<Arena>) {
        for served in self.sources.iter_mut().flatten() {
            match &mut served.source {
                Source::Guest(guest) => guest.move_to(supply, Arc::clone(arena)),
                Source::Long(long) => long.move_to(supply, Arc::clone(arena)),
                Source::Xsk(_) | Source::Memory(_) => {}
            }
        }
    }

    fn set_exchange(&mut self, exchange: Exchange) {
        // Without it, what others hand over waits for this worker's next turn.
        let _ = self.doorbell.watch_exchange(exchange.as_fd());
        // What was under way in the last one is gone.
        (0..self.members.len()).for_each(|port| self.forget_underway(PortId(port as u16)));
        self.exchange = Some(exchange);
    }

    fn add_supply(&mut self, number: u8, supply: Box<Supply>) {
        if let Some(drain) = &supply.drain {
            // Without it, frames that were used up late come home with the next packet of any port.
            let _ = self.doorbell.watch_drain(drain.queue.as_fd());
        }
        self.supplies[usize::from(number)] = Some(supply);
    }

    fn remove_supply(&mut self, number: u8) {
        if let Some(drain) = self.supplies[usize::from(number)].take().and_then(|supply| supply.drain) {
            self.doorbell.ignore(drain.queue.as_fd());
        }
    }

    fn add(&mut self, slot: Slot, mut served: Box<ServedSource>, moment: Moment) {
        if let Some(supply) = served.source.own_supply() {
            supply.prime();
        }
        // The only failures are a bad descriptor and want of kernel memory; then the ring stays silent and fills,
        // which its counters show.
        if let Some(socket) = served.source.socket() {
            let _ = self.doorbell.watch(slot, socket);
        }
        if matches!(served.source, Source::Long(_)) {
            self.long = Some(slot);
        } else if served.feed == Feed::Shared {
            self.shared_rings.push(slot);
        }
        self.start_source(slot, &mut served, moment.now);
        self.sources[slot.index()] = Some(served);
        self.run_list.wake(slot.0);
    }

    /// Packets in it go where they were going, or count as dropped if their port is gone.
    fn retire(&mut self, slot: Slot, replaced: bool, moment: Moment) -> Option<Box<Supply>> {
        if let (true, Some(served)) = (replaced, &mut self.sources[slot.index()]) {
            served.account = None;
        }
        while self.occupancy(slot) > 0 {
            self.run_once(slot, moment);
        }
        let served = self.sources[slot.index()].take()?;
        if let Some(socket) = served.source.socket() {
            self.doorbell.ignore(socket);
        }
        served.gauge.set(0);
        served.settle();
        self.shared_rings.retain(|shared| *shared != slot);
        match served.source {
            Source::Xsk(XskSource { supply: SuppliedBy::Own(supply), .. }) => Some(supply),
            Source::Xsk(_) | Source::Memory(_) | Source::Guest(_) | Source::Long(_) => None,
        }
    }

    fn occupancy(&self, slot: Slot) -> u32 {
        self.sources[slot.index()].as_ref().map_or(0, |served| served.source.occupancy())
    }

    /// Packets of the port may still lie in rings that ports share: those that are there now are served first.
    fn remove_member(&mut self, port: PortId, moment: Moment) {
        for index in 0..self.shared_rings.len() {
            let slot = self.shared_rings[index];
            let mut left = self.occupancy(slot) as usize;
            while left > 0 && self.occupancy(slot) > 0 {
                left = left.saturating_sub(self.run_once(slot, moment));
            }
        }
        self.empty_long(moment);
        self.forget_underway(port);
        self.members[usize::from(port.0)] = None;
    }

    /// Serves what lies in the long queue now.
    fn empty_long(&mut self, moment: Moment) {
        let Some(slot) = self.long else { return };
        let mut served = 0;
        while served < MOST_LONG {
            served += self.run_once(slot, moment).max(1);
            if self.has_empty_long() {
                break;
            }
        }
    }

    /// Whether the last look at the long queue found it empty.
    fn has_empty_long(&self) -> bool {
        let served = self.long.and_then(|slot| self.sources[slot.index()].as_ref());
        served.is_none_or(|served| !served.source.has_more())
    }

    fn set_refill(&mut self, number: u8, refill: Refill) {
        if let Some(supply) = &mut self.supplies[usize::from(number)] {
            supply.refill = refill;
            supply.prime();
        }
    }

    /// For a ring whose account says more than it may hold: packets that were lost on the way wake nobody.
    fn audit(&self, slot: Slot) {
        if let Some(served) = &self.sources[slot.index()] {
            if let (true, Some(account)) = (self.has_empty_long(), &served.account) {
                account.forget_long();
            }
            served.settle();
        }
    }
}
