//! Many machines that are busy: how many calls come too late.
//!
//! One machine more sends to all others in turn, so that each packet is the only one that waits in its queue, and a timer calls
//! for it. The worker counts calls that it was late for.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_control::coalesce::{CoalescePort, CoalesceSet, CoalesceShow};
use forebay_testbed::dut::{Client, Dut as _, Forebay, ForebayOptions};
use forebay_testbed::frame::Frame;
use forebay_testbed::lab::Lab;
use forebay_testbed::measure::cpu;
use forebay_testbed::{LabError, Result, wait};
use forebay_vhost::driver::FrontEnd;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::experiment::guests::{LIMIT, add, connect, guest, raise_file_limit, up};
use crate::experiment::{SENDER_CPU, WORKER_CPU};

/// Bytes of a packet, which is no short message.
const PACKET_BYTES: usize = 1000;
/// Between two looks at the rings of all machines.
const LOOK: Duration = Duration::from_millis(2);

/// Times that a timer is set by itself, for so long, and from when on it is late, as with calls.
const TIMES: u64 = 5000;
const HOLD: Duration = Duration::from_micros(200);
const LATE: Duration = Duration::from_micros(50);

/// What was seen.
pub(super) struct Found {
    pub(super) sent_a_second: f64,
    pub(super) calls_a_second: f64,
    /// Calls due by time, and those that were late.
    pub(super) timed: u64,
    pub(super) late: u64,
    /// Share of a processor that the daemon took.
    pub(super) switch: f64,
}

/// Sets a timer again and again while nothing else runs. Returns how often, and how often the timer was more than 50 µs late. This
/// says how well the machine keeps time.
pub(super) fn timer_alone() -> Result<[u64; 2]> {
    let refused = |errno| LabError::system("waiting for a timer", errno);
    let work = || {
        cpu::pin_to(WORKER_CPU)?;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::empty()).map_err(refused)?;
        let mut late = 0;
        for _ in 0..TIMES {
            let began = Instant::now();
            let expires = Expiration::OneShot(HOLD.into());
            timer.set(expires, TimerSetTimeFlags::empty()).and_then(|()| timer.wait()).map_err(refused)?;
            late += u64::from(began.elapsed() > HOLD + LATE);
        }
        Ok([TIMES, late])
    };
    std::thread::scope(|scope| scope.spawn(work).join().expect("a timer's thread does not panic"))
}

/// Sends `rate` packets a second to `guests` machines together, with each way in turn.
pub(super) fn measure(
    guests: u32,
    rate: u32,
    duration: Duration,
    ways: &[CoalesceSet],
) -> Result<Vec<Found>> {
    raise_file_limit(guests + 1)?;
    let lab = Lab::new("scale")?;
    let config = format!("[switch]\nmax_ports = {}\n[flood]\ncopies_per_second = 0\n", guests + 16);
    let forebay = Forebay::start(&lab, ForebayOptions::with_config(&config).pinned_to(WORKER_CPU))?;
    let client = forebay.client();
    let mut crowd = (0..=guests).map(|_| guest()).collect::<Result<Vec<_>>>()?;
    let socket = |number: u32| lab.path(&format!("{number}"));
    add(client, guests + 1, socket)?;
    for (number, guest) in (0..).zip(&mut crowd) {
        connect(guest, Path::new(&socket(number)))?;
    }
    wait::until("all ports to be up", LIMIT, || up(client) == crowd.len())?;
    let Some((sender, receivers)) = crowd.split_first_mut() else { return Ok(Vec::new()) };
    // The switch learns where they are.
    for (number, receiver) in (1..).zip(receivers.iter_mut()) {
        receiver.transmit(&Frame::marked(mac(number), mac(0), number).build());
    }
    wait::until("packets of all machines", LIMIT, || take_all(std::slice::from_mut(sender)) == 0)?;
    let mut found = Vec::new();
    for way in ways {
        for number in 1..=guests {
            let _: CoalescePort =
                client.api().send("PATCH", &format!("/v1/coalesce/ports/vm{number}"), way)?;
        }
        let before = counts(client)?;
        let (time, began) = (process_time(&forebay), Instant::now());
        let sent = send(sender, receivers, rate, duration)?;
        let seconds = began.elapsed().as_secs_f64();
        let [calls, timed, late] = difference(before, counts(client)?);
        found.push(Found {
            sent_a_second: sent as f64 / seconds,
            calls_a_second: calls as f64 / seconds,
            timed,
            late,
            switch: (process_time(&forebay) - time).as_secs_f64() / seconds,
        });
    }
    Ok(found)
}

fn mac(number: u32) -> [u8; 6] {
    [2, 0xfd, 0, 0, (number >> 8) as u8, number as u8]
}

fn process_time(forebay: &Forebay) -> Duration {
    forebay.pids().iter().map(|pid| cpu::process_time(*pid)).sum()
}

/// Calls, calls due by time and late calls of all machines so far.
fn counts(client: &Client) -> Result<[u64; 3]> {
    let shown: CoalesceShow = client.json(&["coalesce", "show"])?;
    let queues = shown.ports.iter().flat_map(|port| &port.queues);
    Ok(queues.fold([0; 3], |[calls, timed, late], queue| {
        [calls + queue.interrupts, timed + queue.timed, late + queue.late]
    }))
}

fn difference(before: [u64; 3], after: [u64; 3]) -> [u64; 3] {
    [0, 1, 2].map(|which| after[which].saturating_sub(before[which]))
}

/// Takes what has come at all of these; how many packets that was.
fn take_all(guests: &mut [FrontEnd]) -> usize {
    guests.iter_mut().map(|guest| std::iter::from_fn(|| guest.receive()).count()).sum()
}

/// Sends to each in turn while another thread takes what comes. How many packets that was.
fn send(sender: &mut FrontEnd, receivers: &mut [FrontEnd], rate: u32, duration: Duration) -> Result<u64> {
    let frames: Vec<_> = (1..=receivers.len() as u32)
        .map(|number| Frame::marked(mac(0), mac(number), number).payload_bytes(PACKET_BYTES).build())
        .collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let taking = scope.spawn(|| {
            cpu::pin_to(SENDER_CPU)?;
            while !is_over.load(Ordering::Relaxed) {
                take_all(receivers);
                std::thread::sleep(LOOK);
            }
            Ok::<_, LabError>(())
        });
        let sending = scope.spawn(|| {
            cpu::pin_to(SENDER_CPU)?;
            let (began, mut sent) = (Instant::now(), 0u64);
            while began.elapsed() < duration {
                let due = (began.elapsed().as_secs_f64() * f64::from(rate)) as u64;
                while sent < due {
                    sender.transmit(&frames[sent as usize % frames.len()]);
                    sent += 1;
                }
                std::thread::sleep(Duration::from_secs(1) / rate);
            }
            Ok::<_, LabError>(sent)
        });
        let sent = sending.join().expect("a sender does not panic");
        is_over.store(true, Ordering::Relaxed);
        taking.join().expect("a receiver does not panic")?;
        sent
    })
}
