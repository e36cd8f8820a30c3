//! When a netdev interrupts: what its driver takes by ethtool, and what the kernel takes for a NAPI instance (netlink
//! family `netdev`, 6.13 and later).

use forebay_control::IfIndex;
use forebay_control::coalesce::{CoalesceDirection, CoalesceValues};
use netlink_bindings::ethtool::{self, IterableCoalesce};
use netlink_bindings::netdev;
use netlink_bindings::utils::{Pusher as _, push_header};

use super::error::NetlinkError;
use super::socket::{self, ExchangeError};

/// Commands of the `ethtool` family (include/uapi/linux/ethtool_netlink_generated.h, 6.18). The generated bindings number
/// everything after LINKINFO_SET differently.
const ETHTOOL_MSG_COALESCE_GET: u8 = 19;
const ETHTOOL_MSG_COALESCE_SET: u8 = 20;
/// `NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT`, include/uapi/linux/netdev.h. The generated bindings write four bytes.
const GRO_FLUSH_TIMEOUT: u16 = 6;

/// What a driver has of interrupt coalescing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Coalescing {
    /// For packets that come in.
    pub rx: CoalesceValues,
    /// For packets that leave.
    pub tx: CoalesceValues,
}

impl Coalescing {
    /// That of one direction.
    pub fn of(&self, direction: CoalesceDirection) -> CoalesceValues {
        match direction {
            CoalesceDirection::Rx => self.rx,
            CoalesceDirection::Tx => self.tx,
        }
    }
}

/// When the kernel lets the interrupts of a NAPI instance come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Deferral {
    /// Nanoseconds until it polls again while interrupts are off.
    pub gro_flush_timeout: u64,
    /// How often it polls for nothing before interrupts are on again.
    pub defer_hard_irqs: u32,
}

/// What the driver of this netdev has. A driver without coalescing has nothing.
pub fn coalescing(ifindex: IfIndex) -> Result<Coalescing, NetlinkError> {
    let mut request = ethtool::Request::new().op_coalesce_get_do();
    request.header_mut().cmd = ETHTOOL_MSG_COALESCE_GET;
    drop(request.encode().nested_header().push_dev_index(ifindex.0));
    let mut found = Coalescing::default();
    match socket::exchange(&request, |reply| found = decode(&reply)) {
        Err(ExchangeError::Refused { source, .. }) if source.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            Ok(found)
        }
        outcome => outcome.map(|()| found).map_err(|error| error.of("read interrupt coalescing of", ifindex)),
    }
}

fn decode(reply: &IterableCoalesce<'_>) -> Coalescing {
    let on = |value: u8| value != 0;
    Coalescing {
        rx: CoalesceValues {
            usecs: reply.get_rx_usecs().ok(),
            frames: reply.get_rx_max_frames().ok(),
            adaptive: reply.get_use_adaptive_rx().ok().map(on),
        },
        tx: CoalesceValues {
            usecs: reply.get_tx_usecs().ok(),
            frames: reply.get_tx_max_frames().ok(),
            adaptive: reply.get_use_adaptive_tx().ok().map(on),
        },
    }
}

/// Has the driver take `values` of one direction; what is `None` stays. All of them are taken or none. `EINVAL`: the driver
/// does not have one of them.
pub fn set_coalescing(
    ifindex: IfIndex,
    direction: CoalesceDirection,
    values: &CoalesceValues,
) -> Result<(), NetlinkError> {
    let mut request = ethtool::Request::new().op_coalesce_set_do();
    request.header_mut().cmd = ETHTOOL_MSG_COALESCE_SET;
    let mut message = request.encode().nested_header().push_dev_index(ifindex.0).end_nested();
    let is_rx = direction == CoalesceDirection::Rx;
    if let Some(usecs) = values.usecs {
        message = if is_rx { message.push_rx_usecs(usecs) } else { message.push_tx_usecs(usecs) };
    }
    if let Some(frames) = values.frames {
        message = if is_rx { message.push_rx_max_frames(frames) } else { message.push_tx_max_frames(frames) };
    }
    if let Some(on) = values.adaptive.map(u8::from) {
        message = if is_rx { message.push_use_adaptive_rx(on) } else { message.push_use_adaptive_tx(on) };
    }
    drop(message);
    socket::command(&request).map_err(|error| error.of("set interrupt coalescing of", ifindex))
}

/// Sets a NAPI instance by its id. `ENOENT`: there is none any more. `EOPNOTSUPP`: the kernel is older than 6.13.
pub fn set_deferral(napi: u32, deferral: Deferral) -> Result<(), NetlinkError> {
    let mut request = netdev::Request::new().op_napi_set_do();
    let mut message = request.encode().push_id(napi).push_defer_hard_irqs(deferral.defer_hard_irqs);
    let bytes = deferral.gro_flush_timeout.to_ne_bytes();
    push_header(message.as_vec_mut(), GRO_FLUSH_TIMEOUT, bytes.len() as u16);
    message.as_vec_mut().extend(bytes);
    drop(message);
    socket::command(&request).map_err(|error| error.of("set a NAPI instance of", format!("(NAPI {napi})")))
}
