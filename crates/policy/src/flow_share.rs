//! Flow share: how many flows of the kernel's table one port may have, and how many new ones a second.
//!
//! A port may have as many flows as are left for others (Dynamic Threshold with α = 1, see [`crate::Threshold`]), so one
//! port alone has at most half of the table. A bucket limits new flows, because each costs the keeper time that other
//! ports' flows wait for.

use crate::{Nanos, TokenBucket};

/// Why a port may not have another flow now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowRefusal {
    /// The table is full.
    TableFull,
    /// The port has as many flows as are left for others.
    OverShare,
    /// The port has had its new flows of this second.
    OverRate,
}

/// One port's part of the table.
#[derive(Clone, Debug)]
pub struct FlowShare {
    flows: u64,
    installs: TokenBucket,
}

impl FlowShare {
    /// No flows yet, and at most `per_second` new ones each second; 0: without such a limit.
    pub fn new(per_second: u64) -> Self {
        Self { flows: 0, installs: TokenBucket::new(per_second, per_second) }
    }

    /// Changes the limit on new flows.
    pub fn set_rate(&mut self, per_second: u64) {
        self.installs = TokenBucket::new(per_second, per_second);
    }

    /// Asks for a flow where `free` places of the table are left. The caller says with [`FlowShare::entered`] that it has
    /// come to be.
    ///
    /// # Errors
    /// [`FlowRefusal`]
    pub fn ask(&mut self, free: u64, now: Nanos) -> Result<(), FlowRefusal> {
        if free == 0 {
            Err(FlowRefusal::TableFull)
        } else if self.flows >= free {
            Err(FlowRefusal::OverShare)
        } else if !self.installs.take(now, 1) {
            Err(FlowRefusal::OverRate)
        } else {
            Ok(())
        }
    }

    /// A flow of the port is in the table.
    pub fn entered(&mut self) {
        self.flows += 1;
    }

    /// A flow of the port has left the table.
    pub fn left(&mut self) {
        self.flows = self.flows.saturating_sub(1);
    }

    /// Flows of the port.
    pub fn flows(&self) -> u64 {
        self.flows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: u64 = 1000;

    /// Ports ask in turn until nobody is given a flow; how many each has then.
    fn fill(ports: usize) -> Vec<u64> {
        let mut shares = vec![FlowShare::new(0); ports];
        loop {
            let before: Vec<u64> = shares.iter().map(FlowShare::flows).collect();
            for port in 0..ports {
                let used: u64 = shares.iter().map(FlowShare::flows).sum();
                if shares[port].ask(PLACES - used, Nanos(0)).is_ok() {
                    shares[port].entered();
                }
            }
            let after: Vec<u64> = shares.iter().map(FlowShare::flows).collect();
            if after == before {
                return after;
            }
        }
    }

    #[test]
    fn a_port_alone_has_half_of_the_table_and_many_have_equal_shares() {
        assert_eq!(fill(1), [500]);
        assert_eq!(fill(3), [250; 3]);
        assert_eq!(fill(9), [100; 9]);
    }

    #[test]
    fn a_port_has_no_more_new_flows_a_second_than_it_may() {
        let mut share = FlowShare::new(10);
        let granted =
            |share: &mut FlowShare, now| (0..100).filter(|_| share.ask(PLACES, now).is_ok()).count();
        assert_eq!(granted(&mut share, Nanos(0)), 10);
        assert_eq!(share.ask(PLACES, Nanos(0)), Err(FlowRefusal::OverRate));
        assert_eq!(granted(&mut share, Nanos::from_secs(1)), 10);
        share.set_rate(0);
        assert_eq!(granted(&mut share, Nanos::from_secs(1)), 100, "no limit is no limit");
    }

    #[test]
    fn a_full_table_is_full_for_a_port_without_flows() {
        let mut share = FlowShare::new(0);
        assert_eq!(share.ask(0, Nanos(0)), Err(FlowRefusal::TableFull));
        share.entered();
        assert_eq!(share.ask(1, Nanos(0)), Err(FlowRefusal::OverShare));
        share.left();
        assert_eq!(share.ask(1, Nanos(0)), Ok(()));
    }
}
