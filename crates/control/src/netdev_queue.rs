//! Queues and NAPI instances of ports' netdevs, in the shapes that `ynl --family netdev --dump queue-get` and `napi-get`
//! print.
//!
//! These are the kernel's own (Documentation/netlink/specs/netdev.yaml, Linux 6.18): numbers, names and units are as it has
//! them, and what a driver or kernel does not tell is left out.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::IfIndex;

/// What a queue is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum QueueType {
    /// Receiving.
    Rx,
    /// Sending.
    Tx,
}

impl QueueType {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            QueueType::Rx => "rx",
            QueueType::Tx => "tx",
        }
    }
}

/// One queue of a netdev.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct NetdevQueue {
    /// Its number among the netdev's queues of this type.
    pub id: u32,
    /// The netdev.
    pub ifindex: IfIndex,
    /// Direction of its packets: receive or transmit.
    #[serde(rename = "type")]
    pub kind: QueueType,
    /// The NAPI instance that polls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub napi_id: Option<u32>,
}

/// One NAPI instance of a netdev.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct NetdevNapi {
    /// Its number, which no other instance in the kernel has.
    pub id: u32,
    /// The netdev.
    pub ifindex: IfIndex,
    /// Its interrupt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub irq: Option<u32>,
    /// The thread that polls it, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How often it polls for nothing before interrupts are on again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defer_hard_irqs: Option<u32>,
    /// Nanoseconds after which what GRO holds goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gro_flush_timeout: Option<u64>,
    /// Nanoseconds for which interrupts stay off while a program polls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub irq_suspend_timeout: Option<u64>,
}

/// Whose queues or NAPI instances a request asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QueueSelect {
    /// Only this port's.
    #[serde(default)]
    pub port: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_kernels_and_what_nobody_tells_is_left_out() {
        let queue = NetdevQueue { id: 1, ifindex: IfIndex(7), kind: QueueType::Tx, napi_id: None };
        assert_eq!(serde_json::to_string(&queue).unwrap(), r#"{"id":1,"ifindex":7,"type":"tx"}"#);
        let queue = NetdevQueue { kind: QueueType::Rx, napi_id: Some(8193), ..queue };
        assert_eq!(
            serde_json::to_string(&queue).unwrap(),
            r#"{"id":1,"ifindex":7,"type":"rx","napi-id":8193}"#
        );
        let napi = NetdevNapi {
            id: 8193,
            ifindex: IfIndex(7),
            irq: Some(40),
            pid: None,
            defer_hard_irqs: Some(0),
            gro_flush_timeout: Some(20_000),
            irq_suspend_timeout: None,
        };
        let json = r#"{"id":8193,"ifindex":7,"irq":40,"defer-hard-irqs":0,"gro-flush-timeout":20000}"#;
        assert_eq!(serde_json::to_string(&napi).unwrap(), json);
        assert_eq!(serde_json::from_str::<NetdevNapi>(json).unwrap(), napi);
    }
}
