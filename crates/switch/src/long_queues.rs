//! Gives each worker a long queue.

use std::sync::Arc;

use forebay_kernel::{Datapath, LongQueue};
use forebay_policy::{Lane, Turn};

use crate::SwitchError;
use crate::control::WorkerHandle;
use crate::counters::RingGauge;
use crate::pool_instance::PoolInstance;
use crate::worker::{Feed, LongSource, QUANTUM_BYTES, ServedSource, Source};

/// Packets that may wait in one; what ports hold of it is bounded by their accounts, in frames.
const PACKETS: u32 = 4096;

/// Makes the queues in the calling thread's network namespace, if they are `wanted`, and has programs use them. Without one
/// the kernel cuts long packets on their way to a worker.
///
/// # Errors
/// The kernel's table cannot be written.
pub(crate) fn start(
    wanted: bool,
    workers: &mut [WorkerHandle],
    instance: &PoolInstance,
    datapath: &Arc<Datapath>,
) -> Result<(), SwitchError> {
    let number = instance.intake(Lane::default()).number;
    for (queue, worker) in (0..).zip(workers) {
        let long = wanted.then(|| LongQueue::new(PACKETS)).transpose().unwrap_or_else(|error| {
            tracing::warn!(%error, worker = queue, "long packets are cut on their way to the worker");
            None
        });
        // An earlier daemon's stands in an adopted table.
        datapath.connect_long_queue(queue, long.as_ref().map(LongQueue::ifindex))?;
        let Some(long) = long else { continue };
        let supply = (number, Arc::clone(&instance.stock.arena));
        let source = LongSource::new(long, queue, datapath, supply);
        worker.serve(ServedSource {
            feed: Feed::Shared,
            source: Source::Long(Box::new(source)),
            gauge: Arc::new(RingGauge::default()),
            account: None,
            turn: Turn::new(QUANTUM_BYTES),
            is_calm: false,
        });
    }
    Ok(())
}
