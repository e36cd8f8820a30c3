//! How much of the pool each port may hold: what was asked for, checked, and told to the kernel programs.

use forebay_control::pool::{PoolPolicy, PoolPort, PoolPortSet, PoolSet, PoolShow, PoolThreshold};
use forebay_control::{ApiError, ErrorCode};
use forebay_kernel::RingRule;
use forebay_policy::{Admission, Th, Threshold};
use forebay_pool::Magazine;

use super::port::{Binding, Port};
use super::{Change, Control};
use crate::admission;
use crate::worker::EXCHANGE_FRAMES;

/// Frames up to which a ring may use the headroom: four NAPI budgets.
const FIRST_BURST: u32 = 256;
/// Headroom is room for two first bursts, and no more than this part of the pool.
const HEADROOM_PART: u32 = 8;

/// For the ring that ports share: as many as fit, with room for those under way to it.
pub(super) fn shared_ring_rule(depth: u32, under_way: u32) -> RingRule {
    let depth = if depth > 2 * under_way { depth - under_way } else { depth };
    RingRule { depth, reserve: depth, th: 0, limit: depth }
}

/// For a ring with memory of its own: as many as fit.
pub(super) fn own_memory_rule(depth: u32) -> RingRule {
    RingRule { depth, reserve: depth, th: 0, limit: depth }
}

/// Frames of the pool that fill rings of these ports' own keep.
pub(super) fn frames_for_direct_rings<'a>(ports: impl Iterator<Item = &'a Port>) -> u32 {
    let drawing = ports.filter(|port| port.binding == Binding::Direct && port.stock.is_none());
    drawing.flat_map(|port| port.rings.serving()).map(|ring| ring.depth + Magazine::FRAMES).sum()
}

/// Frames of a pool of `size` that thresholds leave alone, and how many of them one first burst may take.
pub(super) fn headroom(policy: PoolPolicy, size: u32) -> (u32, u32) {
    match policy {
        PoolPolicy::Dt => (0, 0),
        PoolPolicy::Headroom => {
            let headroom = (2 * FIRST_BURST).min(size / HEADROOM_PART);
            (headroom, FIRST_BURST.min(headroom))
        }
    }
}

/// Tells the kernel programs of a port's part in the pool.
pub(super) fn apply(port: &Port) {
    for ring in port.rings.serving() {
        let rule = match port.stock {
            Some(_) => own_memory_rule(ring.depth),
            None => port.share.rule(ring.depth),
        };
        ring.account.set_rule(rule);
    }
    if let Some(underway) = &port.underway {
        underway.account.set_rule(port.share.rule(EXCHANGE_FRAMES as u32));
    }
}

impl Change<'_> {
    /// Changes how the pool is shared, for all ports.
    pub(crate) fn pool_set(&mut self, change: PoolSet) -> Result<PoolShow, ApiError> {
        self.instance()?;
        if let Some(policy) = change.policy {
            self.pool.set_policy(policy);
            self.apply_policy();
        }
        if let Some(frames) = change.frames {
            self.resize(frames)?;
        }
        Ok(self.pool())
    }
}

impl Control {
    /// Tells the kernel programs how large the pool is, and what part of it each port has.
    pub(super) fn apply_policy(&self) {
        self.pool.apply(self.ports.values(), self.datapath.accounts());
    }

    pub(crate) fn pool_port_set(&mut self, name: &str, change: PoolPortSet) -> Result<PoolPort, ApiError> {
        self.instance()?;
        let id = self.id_of(name)?;
        let mut share = self.ports[&id].share;
        if let Some(threshold) = change.threshold {
            share.threshold = self.threshold(threshold)?;
        }
        if let Some(reserve) = change.reserve {
            self.check_reserve(name, reserve)?;
            share.reserve = reserve;
        }
        self.port_mut(id).share = share;
        apply(&self.ports[&id]);
        Ok(self.pool_port(&self.ports[&id]))
    }

    fn threshold(&self, asked: PoolThreshold) -> Result<Threshold, ApiError> {
        let frame_bytes = u64::from(self.frame_bytes());
        let refused = |field, value: u64, limit: String, remedy: &str| {
            ApiError::new(ErrorCode::InvalidValue, format!("{field} is out of range"))
                .with_field(field)
                .with_value(value)
                .with_limit(limit)
                .with_remedy(remedy)
        };
        match asked {
            PoolThreshold::Dynamic { th } => Th::new(th).map(Threshold::Dynamic).ok_or_else(|| {
                let limit = format!("{} to {}", Th::MIN.get(), Th::MAX.get());
                refused(
                    "th",
                    th.into(),
                    limit,
                    "with 10 a port may hold as much as is free; each step up doubles that",
                )
            }),
            PoolThreshold::Static { bytes } => {
                let most = self.datapath.accounts().pool_size() * frame_bytes;
                if !(frame_bytes..=most).contains(&bytes) {
                    let limit =
                        format!("{frame_bytes} to {most} bytes, from one frame to all frames for ports");
                    return Err(refused("bytes", bytes, limit, "see `forebay pool show`"));
                }
                Ok(Threshold::Static((bytes / frame_bytes) as u32))
            }
        }
    }

    /// Frames that ports were promised: reserves, and fill rings of their own.
    pub(super) fn promised_frames(&self) -> u64 {
        let reserve = |port: &Port| u64::from(port.share.reserve) * port.accounts().count() as u64;
        self.ports.values().map(reserve).sum::<u64>()
            + u64::from(frames_for_direct_rings(self.ports.values()))
    }

    /// Reserves together must fit into the pool. Others may still fill it: a reserve lies above a port's own threshold,
    /// not below everybody else's.
    fn check_reserve(&self, name: &str, reserve: u32) -> Result<(), ApiError> {
        let (own, others): (Vec<_>, Vec<_>) =
            self.ports.values().partition(|port| port.spec.port_name() == name);
        let rings = |port: &Port| port.accounts().count().max(1) as u64;
        let promised: u64 = others.iter().map(|port| u64::from(port.share.reserve) * rings(port)).sum();
        let left = self.datapath.accounts().pool_size().saturating_sub(promised);
        let own_rings = own.iter().map(|port| rings(port)).sum::<u64>().max(1);
        let depth = own.first().map_or(self.pool.rxq().depth, |port| port.depth());
        let most = (left / own_rings).min(depth.into());
        if u64::from(reserve) > most {
            return Err(ApiError::new(ErrorCode::InvalidValue, "the reserve is too large")
                .with_field("reserve")
                .with_value(reserve)
                .with_limit(format!(
                    "{most} frames for each RX ring; a ring holds {depth}, and all rings of the port together can reserve {left}"
                ))
                .with_remedy("lower it or other ports' reserves, or enlarge the pool: forebay pool set --frames N"));
        }
        Ok(())
    }

    pub(super) fn pool_port(&self, port: &Port) -> PoolPort {
        let sockets = port.rings.drops();
        let accounts = self.datapath.accounts();
        let share = port.share;
        let admission = Admission { threshold: share.threshold, reserve: share.reserve, depth: port.depth() };
        let used = port.used();
        let seen = admission::occupancy(accounts, used);
        let kernel = self.datapath.counters(port.id.0).since(&port.baseline);
        PoolPort {
            name: port.spec.port_name().to_owned(),
            used,
            max: port.max(),
            threshold: share.show(self.frame_bytes()),
            reserve: share.reserve,
            limit: admission.limit(seen),
            drops_over_threshold: kernel.over_threshold_packets,
            drops_no_frame: sockets.rx_dropped,
            drops_rx_ring_full: sockets.rx_ring_full + kernel.ring_full_packets,
        }
    }
}
