//! Channels of ports: queues with their interrupts, processors and nodes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::group::PciAddress;

/// One channel, as it is planned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChannelPlan {
    /// Its number.
    pub channel: u32,
    /// Number of its member; the leader is 0.
    pub member: u32,
    /// The member as it was named.
    pub name: String,
    /// The member's PCI function.
    pub pci: Option<PciAddress>,
    /// The function's NUMA node.
    pub node: Option<u32>,
    /// The member's queue.
    pub queue: u32,
    /// The processor that is to take its interrupt.
    pub processor: Option<u32>,
    /// The node of that processor.
    pub processor_node: Option<u32>,
    /// Processors that are to send by it.
    pub senders: Vec<u32>,
    /// The same as `xps_cpus` in sysfs has it: a mask in hexadecimal.
    pub xps_cpus: String,
}

/// Whose channels a request asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChannelSelect {
    /// Only this port.
    #[serde(default)]
    pub port: Option<String>,
}

/// One channel of a port, as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChannelShow {
    /// The port's name.
    pub port: String,
    /// Its number.
    pub channel: u32,
    /// Number of its member, or of its PCI function where one netdev has several; the leader of all is 0.
    pub member: u32,
    /// The member's netdev; none while the member is missing.
    pub netdev: Option<String>,
    /// The netdev's number.
    pub ifindex: Option<crate::IfIndex>,
    /// The PCI function of the member. Where one netdev has several functions, the function that has the queue's interrupt.
    pub pci: Option<PciAddress>,
    /// The function's NUMA node.
    pub node: Option<u32>,
    /// The member's queue.
    pub queue: u32,
    /// Packets that came in by it, as the driver counts them; of a group, those since its netdev is a member. None where
    /// the driver does not count.
    pub received_packets: Option<u64>,
    /// The NAPI instance that polls the queue, as `ynl --family netdev --dump napi-get` numbers it.
    pub napi: Option<u32>,
    /// The queue's interrupt.
    pub irq: Option<u32>,
    /// Processors that take the interrupt, as `smp_affinity_list` has them.
    pub processors: Option<String>,
    /// Processors that send by the queue, as `xps_cpus` has them.
    pub xps_cpus: Option<String>,
    /// Workers that serve the port.
    pub workers: Vec<u32>,
    /// What the switch would have set, and could not.
    pub problems: Vec<String>,
}

/// Processors as sysfs writes a mask of `possible` bits: digits in hexadecimal, with a comma every eight.
pub fn mask(processors: &[u32], possible: usize) -> String {
    let has = |digit: usize, bit: usize| processors.contains(&((digit * 4 + bit) as u32));
    let value = |digit: usize| (0..4).filter(|bit| has(digit, *bit)).map(|bit| 1u32 << bit).sum::<u32>();
    let digits = possible.div_ceil(4).max(1);
    let mut text = String::new();
    for digit in (0..digits).rev() {
        text.extend(char::from_digit(value(digit), 16));
        if digit % 8 == 0 && digit > 0 {
            text.push(',');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_a_digit_for_four_processors_and_a_comma_every_eight_digits() {
        assert_eq!(mask(&[23], 24), "800000");
        assert_eq!(mask(&[0, 12], 24), "001001");
        assert_eq!(mask(&[], 2), "0");
        assert_eq!(mask(&[0, 33], 40), "02,00000001");
        assert_eq!(mask(&[63], 64), "80000000,00000000");
    }
}
