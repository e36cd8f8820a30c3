//! Tables about memory.

use forebay_control::memory::Estimate;
use forebay_control::netdev_queue::{NetdevNapi, NetdevQueue};
use forebay_control::occupancy::PoolOccupancy;
use forebay_control::page_pool::PagePool;

use super::{Grid, facts, mebibytes};

/// As devlink prints it, current/max, and the frames beside.
pub(crate) fn occupancy(shown: &PoolOccupancy) -> String {
    let mut grid = Grid::new(&["port", ">bytes current/max", ">frames current/max"]);
    for (name, port) in &shown.occupancy {
        let held = port.of_pool();
        let bytes = format!("{}/{}", held.current, held.max);
        let frames = format!("{}/{}", held.current_frames, held.max_frames);
        grid.row([name.clone(), bytes, frames]);
    }
    grid.finish()
}

pub(crate) fn page_pools(rings: &[PagePool]) -> String {
    let mut grid = Grid::new(&[">id", ">ifindex", ">napi-id", ">inflight", ">inflight-mem"]);
    for ring in rings {
        let ifindex = ring.ifindex.map_or_else(|| "none".to_owned(), |ifindex| ifindex.to_string());
        let numbers = [ring.inflight, ring.inflight_mem].map(|number| number.to_string());
        let [inflight, inflight_mem] = numbers;
        grid.row([ring.id.to_string(), ifindex, ring.napi_id.to_string(), inflight, inflight_mem]);
    }
    grid.finish()
}

pub(crate) fn netdev_queues(queues: &[NetdevQueue]) -> String {
    let mut grid = Grid::new(&[">ifindex", "type", ">id", ">napi-id"]);
    for queue in queues {
        let kind = queue.kind.name().to_owned();
        grid.row([queue.ifindex.to_string(), kind, queue.id.to_string(), told(queue.napi_id)]);
    }
    grid.finish()
}

pub(crate) fn netdev_napis(napis: &[NetdevNapi]) -> String {
    let names =
        [">ifindex", ">id", ">irq", ">pid", ">defer-hard-irqs", ">gro-flush-timeout", ">irq-suspend-timeout"];
    let mut grid = Grid::new(&names);
    for napi in napis {
        grid.row([
            napi.ifindex.to_string(),
            napi.id.to_string(),
            told(napi.irq),
            told(napi.pid),
            told(napi.defer_hard_irqs),
            told(napi.gro_flush_timeout),
            told(napi.irq_suspend_timeout),
        ]);
    }
    grid.finish()
}

fn told(number: Option<impl ToString>) -> String {
    number.map_or_else(|| "unknown".to_owned(), |number| number.to_string())
}

/// The sums first, then what they consist of.
pub(crate) fn estimate(estimate: &Estimate) -> String {
    let rings = format!("{} of {} packets", estimate.rings, estimate.depth);
    let sums = facts(&[
        ("spool-mode", estimate.spool_mode.to_string()),
        ("ports", estimate.ports.to_string()),
        ("RX rings", rings),
        ("workers", estimate.workers.to_string()),
        ("pool", format!("{} frames of {} bytes", estimate.frames, estimate.frame_size)),
        ("user memory", mebibytes(estimate.user_bytes)),
        ("kernel memory", mebibytes(estimate.kernel_bytes)),
        ("together", mebibytes(estimate.total_bytes)),
        ("each port", format!("{} bytes", estimate.bytes_a_port)),
    ]);
    let mut grid = Grid::new(&["owner", "part", ">count", ">bytes each", ">bytes", "source"]);
    for part in &estimate.parts {
        let [count, each, bytes] = [part.count, part.bytes_each, part.bytes].map(|number| number.to_string());
        grid.row([
            part.owner.to_string(),
            part.name.to_string(),
            count,
            each,
            bytes,
            part.source.to_string(),
        ]);
    }
    format!("{sums}\n{}", grid.finish())
}
