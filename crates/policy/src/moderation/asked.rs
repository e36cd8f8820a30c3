//! Limits that a guest asked for over its control queue (`ethtool -C`), as virtio 1.3 has it (5.1.6.5.9).
//!
//! The rule it keeps: the last command wins, whether it was for one queue or for all of a direction. A queue that is
//! stopped goes back to the last command for its direction, and a device that is reset to none.

use super::limits::{Direction, Limits};

/// Limits of one device's queues. Receive queue n has index 2n, transmit queue n has 2n + 1.
#[derive(Clone, Debug)]
pub struct Asked {
    all: [Limits; 2],
    queues: Box<[Limits]>,
}

impl Asked {
    /// A device with `pairs` pairs of queues, whose guest has asked for nothing.
    pub fn new(pairs: u16) -> Self {
        Self { all: [Limits::OFF; 2], queues: vec![Limits::OFF; 2 * usize::from(pairs)].into() }
    }

    /// Limits of a queue; none of a queue that is not there.
    pub fn of(&self, queue: usize) -> Limits {
        self.queues.get(queue).copied().unwrap_or_default()
    }

    /// `RX_SET` or `TX_SET`: for all queues of a direction, and those that start later.
    pub fn set_all(&mut self, direction: Direction, limits: Limits) {
        let index = direction as usize;
        self.all[index] = limits.bounded();
        self.queues.iter_mut().skip(index).step_by(2).for_each(|queue| *queue = limits.bounded());
    }

    /// `VQ_SET`. Says whether there is such a queue; if not, the answer is `VIRTIO_NET_ERR`.
    pub fn set(&mut self, queue: usize, limits: Limits) -> bool {
        let found = self.queues.get_mut(queue);
        found.map(|queue| *queue = limits.bounded()).is_some()
    }

    /// The queue was stopped.
    pub fn stop(&mut self, queue: usize) {
        if let Some(limits) = self.queues.get_mut(queue) {
            *limits = self.all[queue % 2];
        }
    }

    /// The device was reset.
    pub fn reset(&mut self) {
        self.all = [Limits::OFF; 2];
        self.queues.fill(Limits::OFF);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn limits(usecs: u32) -> Limits {
        Limits { usecs, packets: 8 }
    }

    fn usecs(asked: &Asked) -> Vec<u32> {
        (0..5).map(|queue| asked.of(queue).usecs).collect()
    }

    #[test]
    fn the_last_command_wins_and_a_stopped_queue_goes_back_to_its_directions() {
        let mut asked = Asked::new(2);
        assert!(asked.set(2, limits(5)) && asked.set(3, limits(6)));
        asked.set_all(Direction::Receive, limits(7));
        assert_eq!(usecs(&asked), [7, 0, 7, 6, 0]);
        assert!(asked.set(0, limits(9)) && !asked.set(4, limits(9)), "there is no queue 4");
        assert_eq!(usecs(&asked), [9, 0, 7, 6, 0]);
        [0, 3, 4].into_iter().for_each(|queue| asked.stop(queue));
        assert_eq!(usecs(&asked), [7, 0, 7, 0, 0]);
        asked.set_all(Direction::Transmit, limits(u32::MAX));
        assert_eq!(usecs(&asked), [7, 65_535, 7, 65_535, 0]);
        asked.reset();
        asked.stop(1);
        assert_eq!(usecs(&asked), [0; 5]);
    }
}
