//! How many stations may be learned on one port: Dynamic Threshold (Choudhury and Hahne 1998), as for the pool.
//!
//! A fixed limit for each port does not keep ports that work together from filling the table, and then every new
//! station of anybody is flooded to for ever. A port may therefore hold no more stations than entries are free. Ports
//! that learn all they can leave as much free as each of them holds: eight of them a ninth of the table.

/// The limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StationLimits {
    /// Entries there may be in all.
    pub total: u32,
    /// Learned entries one port may have.
    pub per_port: u32,
}

/// Which limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StationLimit {
    /// The port has as many as a port may have.
    Port,
    /// The port has as many as are free, and others need some too.
    Share,
    /// There is no entry left.
    Total,
}

impl StationLimits {
    /// Whether a port that has `held` learned entries may have one more, where there are `entries` in all.
    ///
    /// # Errors
    /// The limit that says no.
    pub fn admit(&self, held: u32, entries: u32) -> Result<(), StationLimit> {
        let free = self.total.saturating_sub(entries);
        match () {
            () if held >= self.per_port => Err(StationLimit::Port),
            () if free == 0 => Err(StationLimit::Total),
            () if held >= free => Err(StationLimit::Share),
            () => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: StationLimits = StationLimits { total: 900, per_port: 400 };

    /// What `ports` hold that learn in turn all they can.
    fn filled(ports: usize) -> Vec<u32> {
        let mut held = vec![0u32; ports];
        loop {
            let before = held.clone();
            for port in 0..ports {
                let entries = held.iter().sum();
                held[port] += u32::from(LIMITS.admit(held[port], entries).is_ok());
            }
            if held == before {
                return held;
            }
        }
    }

    #[test]
    fn ports_that_learn_all_they_can_leave_as_much_as_each_holds() {
        assert_eq!(filled(1), [400], "its own limit comes first");
        assert_eq!(filled(8), [100; 8]);
        for ports in [2, 8, 89, 300] {
            let held = filled(ports);
            let (entries, most) = (held.iter().sum::<u32>(), *held.iter().max().unwrap());
            assert_eq!(LIMITS.admit(0, entries), Ok(()), "{ports} ports leave room for a new one");
            // The last to learn took what was free for the others.
            assert!(LIMITS.total - entries + 1 >= most, "{ports} ports hold {most} at most");
        }
    }

    #[test]
    fn the_limit_that_says_no_is_named() {
        assert_eq!(LIMITS.admit(400, 400), Err(StationLimit::Port));
        assert_eq!(LIMITS.admit(100, 800), Err(StationLimit::Share));
        assert_eq!(LIMITS.admit(99, 800), Ok(()));
        assert_eq!(LIMITS.admit(0, 900), Err(StationLimit::Total));
        assert_eq!(LIMITS.admit(0, 1000), Err(StationLimit::Total), "static ones may go beyond");
    }
}
