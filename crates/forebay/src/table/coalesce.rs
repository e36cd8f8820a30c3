//! Tables of moderation.

use std::time::Duration;

use forebay_control::coalesce::{CoalescePolicy, CoalesceQueue, CoalesceShow};

use super::Grid;

/// A line for each queue.
pub(crate) fn coalesce(shown: &CoalesceShow) -> String {
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
    text
}

/// What each queue did a second since `before`; queues that did nothing are left out.
pub(crate) fn coalesce_rates(before: &CoalesceShow, now: &CoalesceShow, time: Duration) -> String {
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
        let rate = |now: u64, before: u64| {
            format!("{:.0}", now.saturating_sub(before) as f64 / time.as_secs_f64().max(f64::EPSILON))
        };
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
    grid.finish()
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
