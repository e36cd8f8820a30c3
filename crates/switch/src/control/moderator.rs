//! The thread that chooses limits for calls from outside of the workers, as a hypervisor does: every 10 ms it reads what queues
//! have done that are moderated `onload`, and tells workers what changed. It does the same for netdevs, and tells the kernel.
//! A queue that rests is not read until its worker notes that it has done something ([`news`](crate::news)). While all rest
//! and no netdev has a policy, the thread sleeps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use forebay_control::IfIndex;
use forebay_control::coalesce::CoalesceDirection;
use forebay_policy::Nanos;
use forebay_policy::moderation::{Looks, Policy};

use super::netdev_side::NetdevSide;
use crate::SwitchError;
use crate::calls::CallCells;
use crate::news::{News, Reader};
use crate::shared::Shared;
use crate::supervise;
use crate::worker::{Command, Commander};

/// Between two looks, as in the published design.
const PERIOD: Duration = Duration::from_millis(10);
/// Looks at a queue after its worker's last note: its policy is to see that nothing comes any more, and ends holds.
const LAST_LOOKS: u32 = 10;

/// Names a queue of a guest: its worker, and its number there.
pub(crate) type QueueName = (usize, usize);

enum Order {
    Moderate(QueueName, Arc<CallCells>, Box<Policy>),
    Leave(QueueName),
    /// For as long as there is a policy.
    ModerateNetdev(Arc<NetdevSide>),
    /// Make a turn.
    Wake,
    Stop,
}

/// How the control side says which queues the thread moderates.
#[derive(Clone)]
pub(crate) struct ModeratorOrders {
    sender: Sender<Order>,
    reader: Arc<Reader>,
}

impl ModeratorOrders {
    /// A queue is moderated by this policy from now on.
    pub(super) fn moderate(&self, name: QueueName, cells: Arc<CallCells>, policy: Policy) {
        self.send(Order::Moderate(name, cells, Box::new(policy)));
    }

    /// It is moderated no more.
    pub(super) fn leave(&self, name: QueueName) {
        self.send(Order::Leave(name));
    }

    /// A netdev is moderated, if it has a policy.
    pub(super) fn moderate_netdev(&self, side: Arc<NetdevSide>) {
        self.send(Order::ModerateNetdev(side));
    }

    fn send(&self, order: Order) {
        // Fails only while the switch stops.
        let _ = self.sender.send(order);
        self.reader.wake();
    }
}

/// Stops its thread when dropped.
pub(crate) struct Moderator {
    orders: ModeratorOrders,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Moderator {
    /// Starts the thread, which talks to these workers.
    pub(crate) fn start(shared: Arc<Shared>, workers: Vec<Commander>) -> Result<Self, SwitchError> {
        let (sender, orders) = channel();
        let reader = Arc::clone(shared.news[0].reader());
        let work = || Thread {
            shared,
            workers,
            orders,
            queues: BTreeMap::new(),
            awake: BTreeSet::new(),
            netdevs: BTreeMap::new(),
        };
        let thread = supervise::spawn("moderator".to_owned(), || work().run())?;
        reader.runs_on(thread.thread().clone());
        let orders = ModeratorOrders { sender, reader };
        Ok(Self { orders, thread: Mutex::new(Some(thread)) })
    }

    pub(crate) fn orders(&self) -> ModeratorOrders {
        self.orders.clone()
    }

    /// Has the thread make a turn.
    pub(crate) fn wake(&self) {
        self.orders.send(Order::Wake);
    }

    pub(crate) fn stop(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            self.orders.send(Order::Stop);
            // A panic would have ended the process.
            let _ = thread.join();
        }
    }
}

impl Drop for Moderator {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A guest's queue as it is seen from outside.
struct Queue {
    cells: Arc<CallCells>,
    policy: Box<Policy>,
    looks: Looks,
    /// Looks since its worker's last note.
    quiet: u32,
}

struct Thread {
    shared: Arc<Shared>,
    workers: Vec<Commander>,
    orders: Receiver<Order>,
    queues: BTreeMap<QueueName, Queue>,
    /// Queues that are looked at; the others rest.
    awake: BTreeSet<QueueName>,
    netdevs: BTreeMap<(IfIndex, CoalesceDirection), Arc<NetdevSide>>,
}

impl Thread {
    fn run(mut self) {
        let mut next = Instant::now() + PERIOD;
        loop {
            let order = self.wait(next);
            self.shared.turns.moderator.add(1);
            match order {
                Ok(Order::Moderate(name, cells, policy)) => {
                    self.queues.insert(name, Queue { cells, policy, looks: Looks::default(), quiet: 0 });
                    self.awake.insert(name);
                }
                Ok(Order::Leave(name)) => {
                    self.queues.remove(&name);
                    self.awake.remove(&name);
                }
                Ok(Order::ModerateNetdev(side)) => drop(self.netdevs.insert(side.name(), side)),
                Ok(Order::Wake) | Err(TryRecvError::Empty) => {}
                Ok(Order::Stop) | Err(TryRecvError::Disconnected) => return,
            }
            let now = Instant::now();
            if now >= next {
                self.look();
                // A look that comes late is not made up for.
                next = now + PERIOD;
            }
        }
    }

    /// Waits for an order until `next`; while all queues rest, until one of them has done something.
    fn wait(&self, next: Instant) -> Result<Order, TryRecvError> {
        loop {
            match self.orders.try_recv() {
                Err(TryRecvError::Empty) => {}
                order => return order,
            }
            if self.awake.is_empty() && self.netdevs.is_empty() && News::sleep(&self.shared.news) {
                continue;
            }
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(TryRecvError::Empty);
            }
            thread::park_timeout(left);
        }
    }

    fn look(&mut self) {
        let now = Nanos(self.shared.started.elapsed().as_nanos() as u64);
        let Self { shared, workers, queues, awake, netdevs, .. } = self;
        for (worker, news) in shared.news.iter().enumerate() {
            news.take(|number| {
                if let Some(queue) = queues.get_mut(&(worker, number)) {
                    queue.quiet = 0;
                    awake.insert((worker, number));
                }
            });
        }
        awake.retain(|name| {
            let (worker, number) = *name;
            queues.get_mut(name).is_some_and(|queue| {
                let Queue { cells, policy, looks, quiet } = queue;
                let settings = looks.look(policy, &cells.counts(), now);
                if settings != cells.wanted() && cells.want(settings) {
                    workers[worker].send(Command::LimitsChanged(number));
                }
                *quiet += 1;
                *quiet <= LAST_LOOKS
            })
        });
        netdevs.retain(|_, side| side.look(now));
    }
}
