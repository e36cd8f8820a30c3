//! Whether what enters a port gets to its worker: `up` is a promise.
//!
//! A driver may accept a program and then lose every frame that the program hands over. So each second it is looked at what
//! became of the packets for the slow path. Packets that were lost because a tenant sends too many do not count: its port
//! carries. Nor do lost packets that were handed over before another one arrived: their loss may be noticed later.
//!
//! Flows may carry all packets of a port. Then no packet takes the slow path, and none can show that the port carries. So the
//! port is taken to carry again when flows carry its packets and none is lost.

use forebay_kernel::KernelCounters;

/// So few packets in a second say nothing.
const FEW: u64 = 8;

/// What one port's packets came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Carrying {
    collected: u64,
    refused: u64,
    lost: u64,
    /// Packets that had been handed over at the last look that found one had arrived.
    handed_over: u64,
    /// Packets that flows had carried at the last look.
    followed: u64,
    reason: Option<&'static str>,
}

impl Carrying {
    /// Looks at what has been counted; `lost` packets were handed over and never seen again. `followed` counts the packets
    /// that flows carried; it is asked only of a port that carries nothing. Says whether the reason is another.
    pub(super) fn observe(
        &mut self,
        counters: &KernelCounters,
        lost: u64,
        followed: impl FnOnce() -> u64,
    ) -> bool {
        let before = *self;
        self.collected = counters.collected_packets;
        self.refused = counters.refused_packets;
        self.lost = lost;
        let refused = self.refused.wrapping_sub(before.refused);
        // What was taken for lost may turn up.
        let lost = lost.saturating_sub(before.lost);
        let handed_over = counters.handed_over();
        let in_vain = handed_over.wrapping_sub(self.handed_over);
        if self.collected != before.collected {
            self.handed_over = handed_over;
            self.reason = None;
        } else if refused >= FEW {
            self.reason = Some("its driver's frames cannot be handed to the slow path");
        } else if lost >= FEW && in_vain >= FEW {
            self.reason = Some("what is handed to the slow path does not arrive there");
        }
        if self.reason.is_some() {
            self.followed = followed();
            let is_followed = self.followed != before.followed && before.reason.is_some();
            if refused == 0 && lost == 0 && is_followed {
                self.reason = None;
            }
        }
        self.reason != before.reason
    }

    /// The port has another netdev, or its own again.
    pub(super) fn begin_anew(&mut self) {
        self.reason = None;
    }

    /// Why nothing is carried, if nothing is.
    pub(super) fn reason(&self) -> Option<&'static str> {
        self.reason
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(collected: u64, refused: u64) -> KernelCounters {
        KernelCounters {
            slow_path_packets: collected + refused,
            collected_packets: collected,
            refused_packets: refused,
            ..KernelCounters::default()
        }
    }

    fn handed_over(collected: u64, handed_over: u64) -> KernelCounters {
        let counters = KernelCounters { slow_path_packets: handed_over, ..counters(collected, 0) };
        assert_eq!(counters.handed_over(), handed_over);
        counters
    }

    fn none() -> u64 {
        0
    }

    #[test]
    fn a_port_whose_packets_are_all_lost_says_so_until_one_arrives() {
        let mut carrying = Carrying::default();
        assert!(!carrying.observe(&counters(5, 0), 0, none) && carrying.reason().is_none());
        assert!(carrying.observe(&counters(5, FEW), 0, none));
        assert!(carrying.reason().is_some_and(|reason| reason.contains("driver")), "{carrying:?}");
        // Nothing comes, and nothing is known.
        assert!(!carrying.observe(&counters(5, FEW), 0, none) && carrying.reason().is_some());
        assert!(carrying.observe(&counters(6, 2 * FEW), 0, none) && carrying.reason().is_none());
        let mut unseen = counters(6, 2 * FEW);
        unseen.slow_path_packets += FEW;
        assert!(carrying.observe(&unseen, FEW, none));
        assert!(carrying.reason().is_some_and(|reason| reason.contains("does not arrive")), "{carrying:?}");
    }

    #[test]
    fn a_loss_that_is_noticed_when_no_more_packets_come_says_nothing() {
        let mut carrying = Carrying::default();
        assert!(!carrying.observe(&handed_over(1000, 1000 + 2 * FEW), 0, none));
        assert!(!carrying.observe(&handed_over(1000, 1000 + 2 * FEW), 2 * FEW, none));
        assert!(!carrying.observe(&handed_over(1000, 999 + 3 * FEW), 3 * FEW, none), "few since one arrived");
        assert!(carrying.observe(&handed_over(1000, 1000 + 3 * FEW), 4 * FEW, none));
    }

    #[test]
    fn a_few_lost_packets_or_some_beside_others_say_nothing() {
        let mut carrying = Carrying::default();
        for second in 1..10 {
            assert!(!carrying.observe(&counters(second, 1000 * second), 1000 * second, none), "{second}");
        }
        assert!(!carrying.observe(&counters(9, 9000 + FEW - 1), 9000, none), "few");
    }

    #[test]
    fn a_port_whose_flows_carry_all_that_comes_is_not_accused_for_ever() {
        let mut carrying = Carrying::default();
        let lost = counters(0, FEW);
        assert!(carrying.observe(&lost, 0, || 100) && carrying.reason().is_some());
        assert!(!carrying.observe(&lost, 0, || 100) && carrying.reason().is_some(), "nothing comes");
        assert!(!carrying.observe(&counters(0, FEW + 1), 0, || 200), "one is lost beside");
        assert!(carrying.observe(&counters(0, FEW + 1), 0, || 201) && carrying.reason().is_none());
    }
}
