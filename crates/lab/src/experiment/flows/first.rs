//! What the first packet of a flow costs: through user space, where the ones after it are carried by the kernel.

use std::time::{Duration, Instant};

use forebay_testbed::measure::cpu;
use forebay_testbed::measure::source::{FIRST_RECEIVER, FIRST_SENDER};
use forebay_testbed::sys::packet_socket::PacketSocket;
use forebay_testbed::{Result, wait};
use hdrhistogram::Histogram;

use super::super::SENDER_CPU;
use super::super::numbered::Stamp;
use super::Options;
use super::scene::Scene;
use super::woken::Woken;

/// Packets timed of each flow after its first.
const LATER: u64 = 5;
/// A packet that takes longer counts as lost.
const ARRIVAL_LIMIT: Duration = Duration::from_millis(500);
const INSTALL_LIMIT: Duration = Duration::from_secs(2);
/// The longest frame that arrives here.
const FRAME_BYTES: usize = 2048;

/// Nanoseconds from before a packet is sent until it was received, both by a thread that does nothing else.
pub(super) struct First {
    pub(super) first: Histogram<u64>,
    pub(super) later: Histogram<u64>,
    /// Of a thread on the worker's processor that is woken, and answers: once for each flow.
    pub(super) woken: Histogram<u64>,
    pub(super) lost: u64,
    /// Flows that were not in the kernel two seconds after their first packet.
    pub(super) not_installed: u64,
}

/// On the processor that the switch's worker is not on. A thread that only waits would keep the worker from running, for as
/// long as the kernel gives it: 2 ms.
pub(super) fn measure(scene: &mut Scene, options: &Options) -> Result<First> {
    eprintln!("timing the first packets of {} flows", options.firsts);
    let pinned = || cpu::pin_to(SENDER_CPU).and_then(|()| time_all(scene, options));
    let joined = std::thread::scope(|scope| scope.spawn(pinned).join());
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn time_all(scene: &mut Scene, options: &Options) -> Result<First> {
    let histogram = || Histogram::new_with_bounds(1, ARRIVAL_LIMIT.as_nanos() as u64 * 2, 3);
    let histogram = || histogram().expect("these bounds are valid");
    let mut first =
        First { first: histogram(), later: histogram(), woken: histogram(), lost: 0, not_installed: 0 };
    let (from, to, side) = (&scene.sockets[0], &scene.sockets[1], u32::from(options.side()));
    let (mut number, mut woken) = (0, Woken::start()?);
    // Each pair of a sender and a receiver is new once.
    for pair in 0..options.firsts.min(side * side) {
        let (sender, receiver) = (FIRST_SENDER + (pair % side) as u16, FIRST_RECEIVER + (pair / side) as u16);
        let before = scene.flows()?;
        let mut time = |times: &mut Histogram<u64>, lost: &mut u64| {
            number += 1;
            let stamp = Stamp { number, changes_done: 0, vlan: 0, port: 0, from: sender, to: receiver };
            match time_of(from, to, stamp) {
                Some(time) => times.saturating_record(time.as_nanos() as u64),
                None => *lost += 1,
            }
        };
        time(&mut first.first, &mut first.lost);
        let is_installed = || scene.flows().is_ok_and(|flows| flows > before);
        first.not_installed += u64::from(wait::until("the flow", INSTALL_LIMIT, is_installed).is_err());
        (0..LATER).for_each(|_| time(&mut first.later, &mut first.lost));
        first.woken.saturating_record(woken.time()?.as_nanos() as u64);
    }
    Ok(first)
}

/// `None` when it does not arrive.
fn time_of(from: &PacketSocket, to: &PacketSocket, stamp: Stamp) -> Option<Duration> {
    let (frame, mut room) = (stamp.frame(), [0; FRAME_BYTES]);
    let start = Instant::now();
    from.send(&frame).ok()?;
    while start.elapsed() < ARRIVAL_LIMIT {
        // Nothing there is as good as another's frame.
        if let Ok((length, _)) = to.receive(&mut room) {
            let took = start.elapsed();
            if Stamp::read(&room[..length]) == Some(stamp) {
                return Some(took);
            }
        }
    }
    None
}
