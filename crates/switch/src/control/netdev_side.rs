//! One direction of one netdev under moderation: limits that are set and put back, and the policy that moves them.
//!
//! Its lock is held while the kernel is asked, for some ten microseconds. The control side's lock is never taken below it.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_control::coalesce::{
    CoalesceBy, CoalesceDirection, CoalesceNetdevSetting, CoalescePolicy, CoalesceSide, CoalesceValues,
};
use forebay_control::{ApiError, ErrorCode, IfIndex};
use forebay_kernel::netlink::link;
use forebay_kernel::queues;
use forebay_policy::Nanos;
use forebay_policy::moderation::{Adaptive, Device, Dim, Direction, Limits, Policy, Seen};

use super::host_settings::{HostSetting, HostSettings};
use super::netdev_taker::{Taker, Wanted};
use super::port_calls::profile_of;

/// Entries of a NIC's ring that the adaptive policy reckons with; a quarter of them may wait.
const RING_ENTRIES: u16 = 1024;
/// Packets of a static limit that has a time alone, for a NAPI instance: one poll.
const NAPI_PACKETS: u32 = 64;

/// The policies' word for it.
pub(super) fn direction_of(direction: CoalesceDirection) -> Direction {
    match direction {
        CoalesceDirection::Rx => Direction::Receive,
        CoalesceDirection::Tx => Direction::Transmit,
    }
}

/// One direction of one netdev. What was there before is put back when it is closed.
pub(super) struct NetdevSide {
    netdev: String,
    ifindex: IfIndex,
    direction: CoalesceDirection,
    settings: Arc<HostSettings>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    taker: Taker,
    /// Held for their drop.
    held: Vec<HostSetting>,
    /// What is to be in force.
    wanted: Option<Wanted>,
    /// What moves it.
    policy: Option<Policy>,
    device: Device,
    moves: u64,
    problem: String,
}

impl NetdevSide {
    /// Nothing is set yet.
    pub(super) fn new(
        settings: &Arc<HostSettings>,
        ifindex: IfIndex,
        netdev: &str,
        direction: CoalesceDirection,
    ) -> Self {
        let settings = Arc::clone(settings);
        Self { netdev: netdev.to_owned(), ifindex, direction, settings, state: Mutex::default() }
    }

    pub(super) fn name(&self) -> (IfIndex, CoalesceDirection) {
        (self.ifindex, self.direction)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Obeys a setting from now on. Asks the kernel, so the control side's lock must be free.
    ///
    /// # Errors
    /// The netdev does not take it. Then nothing is set.
    pub(super) fn apply(&self, setting: &CoalesceNetdevSetting) -> Result<(), ApiError> {
        let taker = Taker::of(self.ifindex);
        let policy = self.policy(setting);
        let wanted = self.wanted(setting, policy.as_ref(), &taker);
        let mut state = self.state();
        let wanted = wanted.inspect_err(|error| {
            if state.wanted.is_none() {
                state.problem = error.to_string();
            }
        })?;
        *state = State { taker, wanted, held: std::mem::take(&mut state.held), policy, ..State::default() };
        let Some(wanted) = wanted else {
            state.held.clear();
            return Ok(());
        };
        let moves = state.policy.is_some();
        let set = self.set(&mut state, wanted, moves);
        set.map_err(|error| {
            *state = State { problem: error.to_string(), ..State::default() };
            self.refused(&error)
        })
    }

    /// Whether something is to be in force.
    pub(super) fn is_set(&self) -> bool {
        self.state().wanted.is_some()
    }

    /// Why what is set is not in force, or else nothing.
    pub(super) fn problem(&self) -> String {
        self.state().problem.clone()
    }

    /// The netdev has changed: what it forgot is set again.
    pub(super) fn renew(&self) {
        let mut state = self.state();
        let Some(wanted) = state.wanted else { return };
        state.taker = Taker::of(self.ifindex);
        let is_there = |setting: &HostSetting| setting.tunable().read().is_some();
        let is_forgotten = !state.held.iter().all(is_there)
            || state.taker.texts(self.ifindex, self.direction, wanted).len() != state.held.len();
        let problem = if is_forgotten || state.policy.is_none() {
            let moves = state.policy.is_some();
            self.set(&mut state, wanted, moves).err().map(|error| error.to_string())
        } else {
            None
        };
        state.problem = problem.unwrap_or_default();
    }

    /// Lets the policy look at the netdev. Says whether there is a policy.
    pub(super) fn look(&self, now: Nanos) -> bool {
        let mut state = self.state();
        let Some(mut policy) = state.policy.take() else { return false };
        if let Some(seen) = self.seen(&state.taker) {
            let has_packets = state.taker.values(self.direction).frames.is_some();
            let limits = state.device.look(&mut policy, seen, has_packets, now).limits;
            if state.wanted != Some(Wanted::Limits(limits)) {
                self.move_to(&mut state, limits);
            }
        }
        state.policy = Some(policy);
        true
    }

    fn move_to(&self, state: &mut State, limits: Limits) {
        let texts = state.taker.texts(self.ifindex, self.direction, Wanted::Limits(limits));
        state.wanted = Some(Wanted::Limits(limits));
        state.moves += 1;
        let moved =
            state.held.iter_mut().zip(&texts).try_for_each(|(setting, (_, text))| setting.move_to(text));
        let problem = moved.err().map(|error| error.to_string()).unwrap_or_default();
        if problem != state.problem && !problem.is_empty() {
            let (netdev, direction) = (self.netdev.as_str(), self.direction);
            tracing::warn!(netdev, %direction, problem, "its interrupts stay as they are");
        }
        state.problem = problem;
    }

    /// The netdev has gone to another network namespace, where it keeps what is set.
    pub(super) fn leave_away(&self) {
        let mut state = self.state();
        let Self { netdev, direction, .. } = self;
        if state.held.iter().any(|setting| setting.tunable().at(self.ifindex).is_some()) {
            let reason = "no request reaches it there";
            tracing::warn!(netdev, %direction, reason, "it keeps its moderation until it is here again");
        }
        state.held.iter_mut().for_each(HostSetting::leave_away);
    }

    /// Puts back what was there before the first setting. A second call does nothing.
    pub(super) fn close(&self) {
        *self.state() = State::default();
    }

    /// `setting` is in force, and `taker` what the netdev has now.
    pub(super) fn show(&self, setting: CoalesceNetdevSetting, taker: &Taker) -> CoalesceSide {
        let state = self.state();
        let counts = state.device.counts();
        CoalesceSide {
            setting,
            now: taker.values(self.direction),
            moves: state.moves,
            packets: counts.packets,
            bytes: counts.bytes,
            interrupts: state.device.interrupts(),
            problem: state.problem.clone(),
        }
    }

    /// What moves the limits, if anything does. The setting was checked.
    fn policy(&self, setting: &CoalesceNetdevSetting) -> Option<Policy> {
        match setting.policy {
            CoalescePolicy::Off | CoalescePolicy::Static | CoalescePolicy::Driver => None,
            CoalescePolicy::Dim => {
                let profile = profile_of(&setting.profile, direction_of(self.direction)).unwrap_or_default();
                Some(Policy::Dim(Dim::new(profile)))
            }
            CoalescePolicy::Adaptive => {
                let adaptive = Adaptive::new(direction_of(self.direction), RING_ENTRIES);
                Some(Policy::Adaptive(Box::new(adaptive)))
            }
        }
    }

    /// What is to be set, if anything is.
    fn wanted(
        &self,
        setting: &CoalesceNetdevSetting,
        policy: Option<&Policy>,
        taker: &Taker,
    ) -> Result<Option<Wanted>, ApiError> {
        let CoalesceNetdevSetting { usecs, frames, .. } = *setting;
        let asked = match setting.policy {
            CoalescePolicy::Off => return Ok(None),
            CoalescePolicy::Static => CoalesceValues { usecs, frames, adaptive: None },
            CoalescePolicy::Driver => CoalesceValues { adaptive: Some(true), ..CoalesceValues::default() },
            CoalescePolicy::Dim | CoalescePolicy::Adaptive => {
                CoalesceValues { usecs: Some(0), ..CoalesceValues::default() }
            }
        };
        taker.check((&self.netdev, self.direction), setting.policy, &asked)?;
        Ok(Some(match (policy, taker.by) {
            (Some(policy), _) => Wanted::Limits(policy.settings().limits),
            (None, CoalesceBy::Napi) => Wanted::Limits(Limits {
                usecs: usecs.unwrap_or_default(),
                packets: frames.unwrap_or(NAPI_PACKETS),
            }),
            (None, _) => Wanted::Values(asked),
        }))
    }

    fn refused(&self, error: &io::Error) -> ApiError {
        let Self { netdev, direction, .. } = self;
        let message = format!("`{netdev}` does not take it for {direction}: {error}");
        let remedy = "give another value; a driver may show what its device does not have, and then --policy off is left";
        ApiError::new(ErrorCode::KernelRefused, message)
            .with_field("policy")
            .with_value(netdev)
            .with_remedy(remedy)
    }

    /// Has `wanted` in force, and knows what was there at first.
    fn set(&self, state: &mut State, wanted: Wanted, moves: bool) -> io::Result<()> {
        let texts = state.taker.texts(self.ifindex, self.direction, wanted);
        let is_same =
            state.held.iter().map(HostSetting::tunable).eq(texts.iter().map(|(tunable, _)| tunable));
        if !is_same {
            state.held.clear();
        }
        if texts.is_empty() {
            return Err(io::Error::other("it takes no limits now"));
        }
        for (at, (tunable, text)) in texts.into_iter().enumerate() {
            match state.held.get_mut(at) {
                Some(setting) if moves => {
                    setting.begin_to_move();
                    setting.move_to(&text)?;
                }
                Some(setting) => setting.change(&text)?,
                None => state.held.push(HostSetting::set(&self.settings, tunable, &text, moves)?),
            }
        }
        Ok(())
    }

    fn seen(&self, taker: &Taker) -> Option<Seen> {
        // A netdev that is gone will be heard of.
        let traffic = link::traffic(self.ifindex).ok()?;
        Some(match self.direction {
            CoalesceDirection::Rx => {
                let irqs = taker.napis.iter().map(|napi| napi.irq);
                let interrupts = irqs.map(|irq| queues::interrupts(irq?)).sum::<Option<u64>>();
                let interrupts = interrupts.filter(|_| !taker.napis.is_empty());
                Seen { packets: traffic.rx_packets, bytes: traffic.rx_bytes, interrupts }
            }
            // Interrupts are those of both directions.
            CoalesceDirection::Tx => {
                Seen { packets: traffic.tx_packets, bytes: traffic.tx_bytes, interrupts: None }
            }
        })
    }
}
