//! Tables of moderation.

use std::time::Duration;

use forebay_control::coalesce::{
    CoalesceDirection, CoalesceNetdev, CoalescePolicy, CoalesceQueue, CoalesceShow, CoalesceSide,
};

use super::{Grid, netdev_napis};

/// A line for each queue of virtual machines, then one for each direction of netdevs.
pub(crate) fn coalesce(shown: &CoalesceShow) -> String {
    both(of_queues(shown), of_netdevs(shown))
}

/// What each queue and netdev did a second since `before`; what did nothing is left out.
pub(crate) fn coalesce_rates(before: &CoalesceShow, now: &CoalesceShow, time: Duration) -> String {
    both(rates_of_queues(before, now, time), rates_of_netdevs(before, now, time))
}

/// Tables of queues and of netdevs, if there are any netdevs.
fn both(queues: Option<String>, netdevs: Option<String>) -> String {
    match (queues, netdevs) {
        (Some(queues), Some(netdevs)) => format!("{queues}\n{netdevs}"),
        (queues, netdevs) => queues.or(netdevs).unwrap_or_default(),
    }
}

fn of_queues(shown: &CoalesceShow) -> Option<String> {
    if queues(shown).next().is_none() && sides(shown).next().is_some() {
        return None;
    }
    let mut grid = Grid::new(&[
        "port",
        ">queue",
        "direction",
        "policy",
        "where",
        "guest",
        ">usecs",
        ">frames",
        "asked",
        ">moves",
        ">packets",
        ">turns",
        ">interrupts",
        ">suppressed",
        ">saved",
        ">late",
    ]);
    for (name, queue) in queues(shown) {
        grid.row([
            name.to_owned(),
            queue.queue.to_string(),
            queue.direction.to_string(),
            queue.setting.policy.to_string(),
            queue.setting.place.to_string(),
            queue.setting.guest.to_string(),
            queue.usecs_now.to_string(),
            queue.frames_now.to_string(),
            asked(queue),
            queue.moves.to_string(),
            queue.packets.to_string(),
            queue.turns.to_string(),
            queue.interrupts.to_string(),
            queue.suppressed.to_string(),
            queue.saved.to_string(),
            queue.late.to_string(),
        ]);
    }
    let mut text = grid.finish();
    for (name, queue) in queues(shown).filter(|(_, queue)| queue.setting.policy == CoalescePolicy::Dim) {
        if !queue.setting.profile.is_empty() {
            text += &format!("{name} {} {}: table {}\n", queue.queue, queue.direction, queue.setting.profile);
        }
    }
    Some(text)
}

/// A line for each direction, then NAPI instances, and why something is not in force.
fn of_netdevs(shown: &CoalesceShow) -> Option<String> {
    let mut grid = Grid::new(&[
        "port",
        "netdev",
        "direction",
        "by",
        "policy",
        ">usecs",
        ">frames",
        "adaptive",
        ">moves",
        ">packets",
        ">interrupts",
    ]);
    let mut problems = String::new();
    for (name, netdev, direction, side) in sides(shown) {
        let CoalesceSide { setting, now, moves, packets, interrupts, problem, .. } = side;
        grid.row([
            name.to_owned(),
            netdev.netdev.clone(),
            direction.to_string(),
            netdev.by.to_string(),
            setting.policy.to_string(),
            told(now.usecs),
            told(now.frames),
            told(now.adaptive.map(|on| if on { "on" } else { "off" })),
            moves.to_string(),
            packets.to_string(),
            told(*interrupts),
        ]);
        if !problem.is_empty() {
            problems += &format!("{name} {} {direction}: {problem}\n", netdev.netdev);
        }
    }
    sides(shown).next()?;
    let netdevs = shown.ports.iter().flat_map(|port| &port.netdevs);
    let napis: Vec<_> = netdevs.flat_map(|netdev| netdev.napis.clone()).collect();
    let napis = if napis.is_empty() { String::new() } else { format!("\n{}", netdev_napis(&napis)) };
    Some(grid.finish() + &napis + &problems)
}

fn rates_of_netdevs(before: &CoalesceShow, now: &CoalesceShow, time: Duration) -> Option<String> {
    let mut grid = Grid::new(&[
        "port",
        "netdev",
        "direction",
        ">usecs",
        ">frames",
        ">moves",
        ">packets/s",
        ">interrupts/s",
    ]);
    for (name, netdev, direction, side) in sides(now) {
        let is_same = |(other, of, at, _): &(&str, &CoalesceNetdev, CoalesceDirection, &CoalesceSide)| {
            (*other, of.ifindex, *at) == (name, netdev.ifindex, direction)
        };
        let Some((.., before)) = sides(before).find(is_same) else { continue };
        if side.packets == before.packets {
            continue;
        }
        let interrupts = side.interrupts.zip(before.interrupts);
        grid.row([
            name.to_owned(),
            netdev.netdev.clone(),
            direction.to_string(),
            told(side.now.usecs),
            told(side.now.frames),
            side.moves.saturating_sub(before.moves).to_string(),
            a_second(side.packets, before.packets, time),
            told(interrupts.map(|(now, before)| a_second(now, before, time))),
        ]);
    }
    sides(now).next().map(|_| grid.finish())
}

/// Each direction of each netdev for which limits are taken or something is set; of a netdev without one, the first.
fn sides(
    shown: &CoalesceShow,
) -> impl Iterator<Item = (&str, &CoalesceNetdev, CoalesceDirection, &CoalesceSide)> {
    let netdevs =
        shown.ports.iter().flat_map(|port| port.netdevs.iter().map(move |at| (port.name.as_str(), at)));
    netdevs.flat_map(|(name, netdev)| {
        let is_used =
            |side: &CoalesceSide| !side.now.is_empty() || side.setting.policy != CoalescePolicy::Off;
        let tx = is_used(&netdev.tx).then_some((CoalesceDirection::Tx, &netdev.tx));
        let rx = (is_used(&netdev.rx) || tx.is_none()).then_some((CoalesceDirection::Rx, &netdev.rx));
        rx.into_iter().chain(tx).map(move |(direction, side)| (name, netdev, direction, side))
    })
}

fn told(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn a_second(now: u64, before: u64, time: Duration) -> String {
    format!("{:.0}", now.saturating_sub(before) as f64 / time.as_secs_f64().max(f64::EPSILON))
}

fn rates_of_queues(before: &CoalesceShow, now: &CoalesceShow, time: Duration) -> Option<String> {
    if queues(now).next().is_none() && sides(now).next().is_some() {
        return None;
    }
    let mut grid = Grid::new(&[
        "port",
        ">queue",
        "direction",
        ">usecs",
        ">frames",
        ">moves",
        ">packets/s",
        ">turns/s",
        ">interrupts/s",
        ">suppressed/s",
        ">saved/s",
    ]);
    for (name, queue) in queues(now) {
        let is_same = |(other, before): &(&str, &CoalesceQueue)| {
            (*other, before.queue, before.direction) == (name, queue.queue, queue.direction)
        };
        let Some((_, before)) = queues(before).find(is_same) else { continue };
        if queue.packets == before.packets {
            continue;
        }
        let rate = |now: u64, before: u64| a_second(now, before, time);
        grid.row([
            name.to_owned(),
            queue.queue.to_string(),
            queue.direction.to_string(),
            queue.usecs_now.to_string(),
            queue.frames_now.to_string(),
            queue.moves.saturating_sub(before.moves).to_string(),
            rate(queue.packets, before.packets),
            rate(queue.turns, before.turns),
            rate(queue.interrupts, before.interrupts),
            rate(queue.suppressed, before.suppressed),
            rate(queue.saved, before.saved),
        ]);
    }
    Some(grid.finish())
}

fn queues(shown: &CoalesceShow) -> impl Iterator<Item = (&str, &CoalesceQueue)> {
    shown.ports.iter().flat_map(|port| port.queues.iter().map(move |queue| (port.name.as_str(), queue)))
}

/// What the guest asked for.
fn asked(queue: &CoalesceQueue) -> String {
    match (queue.usecs_asked, queue.frames_asked) {
        (Some(usecs), Some(frames)) => format!("{usecs}/{frames}"),
        _ => "-".to_owned(),
    }
}
