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

/// Makes the queues in the calling thread's network namespace, and has programs use them.
///
/// # Errors
/// There is no tap to be had, or the kernel's table cannot be written. Queues made before are used.
pub(crate) fn start(
    workers: &mut [WorkerHandle],
    instance: &PoolInstance,
    datapath: &Datapath,
) -> Result<(), SwitchError> {
    let number = instance.intake(Lane::default()).number;
    for (queue, worker) in (0..).zip(workers) {
        let long = LongQueue::new(PACKETS)?;
        let ifindex = long.ifindex();
        let supply = (number, Arc::clone(&instance.stock.arena));
        let source = LongSource::new(long, datapath.queue_accounts(queue), supply);
        worker.serve(ServedSource {
            feed: Feed::Shared,
            source: Source::Long(Box::new(source)),
            gauge: Arc::new(RingGauge::default()),
            account: None,
            turn: Turn::new(QUANTUM_BYTES),
            is_calm: false,
        });
        datapath.connect_long_queue(queue, ifindex)?;
    }
    Ok(())
}
