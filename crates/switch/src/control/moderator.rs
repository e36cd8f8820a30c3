//! The thread that chooses limits for calls from outside of the workers, as a hypervisor does: every 10 ms it reads what all
//! queues have done that are moderated `onload`, and tells workers what changed. It does the same for netdevs, and tells the
//! kernel. Without such a queue or netdev it sleeps.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_control::IfIndex;
use forebay_control::coalesce::CoalesceDirection;
use forebay_policy::Nanos;
use forebay_policy::moderation::{Looks, Policy};

use super::netdev_side::NetdevSide;
use crate::SwitchError;
use crate::calls::CallCells;
use crate::shared::Shared;
use crate::supervise;
use crate::worker::{Command, Commander};

/// Between two looks, as in the published design.
const PERIOD: Duration = Duration::from_millis(10);

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
pub(crate) struct ModeratorOrders(Sender<Order>);

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
        let _ = self.0.send(order);
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
        let (orders, received) = channel();
        let work = move || {
            Thread { shared, workers, orders: received, queues: BTreeMap::new(), netdevs: BTreeMap::new() }
                .run()
        };
        let thread = supervise::spawn("moderator".to_owned(), work)?;
        Ok(Self { orders: ModeratorOrders(orders), thread: Mutex::new(Some(thread)) })
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
}

struct Thread {
    shared: Arc<Shared>,
    workers: Vec<Commander>,
    orders: Receiver<Order>,
    queues: BTreeMap<QueueName, Queue>,
    netdevs: BTreeMap<(IfIndex, CoalesceDirection), Arc<NetdevSide>>,
}

impl Thread {
    fn run(mut self) {
        let mut next = Instant::now() + PERIOD;
        loop {
            let order = match self.queues.is_empty() && self.netdevs.is_empty() {
                true => self.orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => self.orders.recv_timeout(next.saturating_duration_since(Instant::now())),
            };
            self.shared.turns.moderator.add(1);
            match order {
                Ok(Order::Moderate(name, cells, policy)) => {
                    self.queues.insert(name, Queue { cells, policy, looks: Looks::default() });
                }
                Ok(Order::Leave(name)) => drop(self.queues.remove(&name)),
                Ok(Order::ModerateNetdev(side)) => drop(self.netdevs.insert(side.name(), side)),
                Ok(Order::Wake) => {}
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = Instant::now();
            if now >= next {
                self.look();
                // A look that comes late is not made up for.
                next = now + PERIOD;
            }
        }
    }

    fn look(&mut self) {
        let now = Nanos(self.shared.started.elapsed().as_nanos() as u64);
        for ((worker, number), Queue { cells, policy, looks }) in &mut self.queues {
            let settings = looks.look(policy, &cells.counts(), now);
            if settings != cells.wanted() && cells.want(settings) {
                self.workers[*worker].send(Command::LimitsChanged(*number));
            }
        }
        self.netdevs.retain(|_, side| side.look(now));
    }
}
