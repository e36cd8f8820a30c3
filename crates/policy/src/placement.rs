//! Placement: which worker serves a port's ring.
//!
//! The worker with the fewest ports gets the next one. A port stays where it is until it goes, because to move it would
//! let packets overtake each other. So deleting ports may leave workers with unequal numbers, and the next ports even that
//! out.

/// How many ports each worker has.
#[derive(Clone, Debug)]
pub struct Placement {
    ports: Vec<u32>,
}

impl Placement {
    /// No ports at `workers` workers, at least one.
    pub fn new(workers: usize) -> Self {
        Self { ports: vec![0; workers.max(1)] }
    }

    /// A worker for another port: of those with the fewest ports the first.
    pub fn place(&mut self) -> usize {
        let fewest = self.ports.iter().zip(0..).min().map_or(0, |(_, worker)| worker);
        self.ports[fewest] += 1;
        fewest
    }

    /// A port of this worker is gone.
    pub fn leave(&mut self, worker: usize) {
        if let Some(ports) = self.ports.get_mut(worker) {
            *ports = ports.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ports_that_come_one_after_the_other_go_round() {
        let mut placement = Placement::new(3);
        let places: Vec<usize> = (0..7).map(|_| placement.place()).collect();
        assert_eq!(places, [0, 1, 2, 0, 1, 2, 0]);
        placement.leave(1);
        placement.leave(1);
        assert_eq!([placement.place(), placement.place()], [1, 1], "it has fewest");
    }

    proptest! {
        #[test]
        fn without_departures_no_worker_has_two_more_than_another(workers in 1..16usize, ports in 0..300usize) {
            let mut placement = Placement::new(workers);
            (0..ports).for_each(|_| { placement.place(); });
            let (most, least) = (placement.ports.iter().max(), placement.ports.iter().min());
            prop_assert!(most.unwrap() - least.unwrap() <= 1);
        }
    }
}
