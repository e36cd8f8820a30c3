//! The pool's size, changed under traffic: a new pool instance beside the old one, which is drained and goes.

use std::num::NonZeroU32;
use std::sync::{Arc, mpsc};

use forebay_control::eswitch::SpoolMode;
use forebay_control::memory::{self, LANES};
use forebay_control::port::PortState;
use forebay_control::{ApiError, ErrorCode, PortId};
use forebay_kernel::Bank;

use super::attach::Fitting;
use super::port::{Binding, Port};
use super::{Change, Control, workers};
use crate::SwitchError;
use crate::collector;
use crate::pool_instance::{PoolInstance, Stock};
use crate::worker::Command;

/// Frames that a pool may have.
const FRAMES: std::ops::RangeInclusive<u32> = 1024..=1_048_576;
/// Bytes that the kernel keeps for each frame and queue (net/xdp/xsk_buff_pool.c, Linux 6.12).
const KERNEL_BYTES: u64 = 128;

impl Change<'_> {
    /// Gives the pool `frames` frames. Nothing has changed if this is refused.
    pub(super) fn resize(&mut self, frames: u32) -> Result<(), ApiError> {
        self.check_size(frames)?;
        let next = self.next_instance(frames).map_err(|error| {
            ApiError::new(ErrorCode::KernelRefused, format!("the new pool could not be had: {error}"))
                .with_field("frames")
                .with_value(frames)
                .with_remedy("the old one goes on; see `forebay doctor` for locked memory")
        })?;
        self.pool.replace(next);
        self.apply_policy();
        let moved = self.move_to_new_instance();
        self.move_guests();
        self.remove_supplies();
        let old = self.pool.take_leaving();
        self.without_lock(|| drop(old));
        tracing::info!(frames, "the pool has another size");
        moved
    }

    fn next_instance(&mut self, frames: u32) -> Result<PoolInstance, SwitchError> {
        let old = self.pool.current().expect("the caller has checked that the switch runs");
        let queues = self.workers.len() as u32;
        let frames = NonZeroU32::new(frames).expect("the least size is not zero");
        let (parity, frame_size) = (old.next_parity(), old.stock.arena.frame_size());
        let (netns, datapath) = (Arc::clone(&self.netns), Arc::clone(&self.datapath));
        let settings = self.pool.collector_refill();
        let (instance, supplied) = self.without_lock(|| {
            let stock = Stock::new(frames, frame_size)?;
            let pairs = collector::make_pairs(&netns, queues)?;
            PoolInstance::new(parity, stock, pairs, &datapath, queues, |high| settings.refill(high))
        })?;
        workers::hand_out(&self.workers, supplied);
        Ok(instance)
    }

    /// Rings on the new collector for all that had some on the old one. Ports which are bound directly to the old pool
    /// step over to the collector until it is gone.
    fn move_to_new_instance(&mut self) -> Result<(), ApiError> {
        if self.pool.mode() == SpoolMode::Basic {
            let new = self.open_shared_rings()?;
            self.pool.shared_rings_mut().replace(new);
        }
        let draws = |port: &Port| port.stock.is_none();
        let ids: Vec<PortId> = self.ports.values().filter(|port| draws(port)).map(|port| port.id).collect();
        let mut moved = Ok(());
        for id in &ids {
            let (fitting, binding) = (Fitting::of(&self.ports[id]), self.ports[id].binding);
            let on_the_way = if binding == Binding::Direct { Binding::Collector } else { binding };
            if let Err(error) = self.rebind(*id, fitting, on_the_way) {
                self.strand(*id, &error);
                moved = moved.and(Err(error));
            }
        }
        self.publish();
        self.retire_replaced();
        for id in ids {
            if self.ports[&id].rxq.direct {
                moved = moved.and(self.fit_to_mode(id));
            }
        }
        self.retire_replaced();
        moved
    }

    /// Waits until no worker has frames of the pool instance that leaves.
    fn remove_supplies(&mut self) {
        let (done, all_done) = mpsc::channel();
        for number in self.pool.leaving_collectors() {
            for worker in &self.workers {
                worker.send(Command::RemoveSupply(number, done.clone()));
            }
        }
        drop(done);
        self.without_lock(|| while all_done.recv().is_ok() {});
    }
}

impl Control {
    /// A port that could not be moved has no rings rather than rings on what goes away.
    fn strand(&mut self, id: PortId, error: &ApiError) {
        let intakes = self.pool.current().into_iter().flat_map(PoolInstance::intakes);
        let banks: Vec<Bank> = intakes.map(|intake| Bank::Collector(intake.number)).collect();
        let port = self.port_mut(id);
        port.rings.keep(|ring| banks.contains(&ring.bank));
        (port.state, port.reason) = (PortState::AttachFailed, error.to_string());
    }

    /// Whether there can be a pool of `frames` frames: for rings, reserves and in memory.
    fn check_size(&self, frames: u32) -> Result<(), ApiError> {
        let refuse = |message: String, limit: String, remedy: &str| {
            let error = ApiError::new(ErrorCode::InvalidValue, message);
            Err(error.with_field("frames").with_value(frames).with_limit(limit).with_remedy(remedy))
        };
        if !FRAMES.contains(&frames) {
            let limit = format!("{} to {}", FRAMES.start(), FRAMES.end());
            return refuse(
                "a pool cannot have this size".into(),
                limit,
                "`forebay pool show` shows its size now",
            );
        }
        let deepest =
            self.ports.values().map(|port| port.rxq.depth).max().unwrap_or(0).max(self.pool.rxq().depth);
        if frames < 2 * deepest {
            let limit = format!("at least twice the deepest ring, {}", 2 * deepest);
            return refuse(
                "the pool would be too small for its rings".into(),
                limit,
                "make the rings less deep first: forebay rxq set PORT --depth D",
            );
        }
        let queues = self.workers.len() as u32;
        if frames < memory::least_frames(queues) {
            let limit = format!("at least {} frames for {queues} workers", memory::least_frames(queues));
            let message = "the fill rings would take the whole pool".to_owned();
            return refuse(message, limit, "give more frames");
        }
        let shared = memory::shared_frames(frames, queues);
        let promised = self.promised_frames();
        if u64::from(shared) < promised {
            let kept = frames - shared;
            let limit = format!("at least {} frames", promised + u64::from(kept));
            let message = format!(
                "the ports' reserves and direct rings need {promised} frames, and the workers' fill rings {kept}"
            );
            return refuse(message, limit, "give more frames, lower reserves, or bind fewer ports directly");
        }
        let bytes = u64::from(frames)
            * (u64::from(self.frame_bytes()) + KERNEL_BYTES * LANES as u64 * u64::from(queues));
        match available_bytes() {
            Some(available) if bytes > available => refuse(
                format!("the new pool needs {bytes} bytes beside the old one"),
                format!("{available} bytes, which are available"),
                "give fewer frames, or free memory",
            ),
            _ => Ok(()),
        }
    }
}

/// What the kernel thinks can be had without swapping (proc_meminfo(5)). `None`: it does not say.
fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}
