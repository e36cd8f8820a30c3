//! The kernel's features, each used once on a veth pair in a network namespace that ends with the probe.

use std::io;

use forebay_control::IfIndex;
use forebay_control::doctor::{Check, Severity};

use super::finding::Feature;
use super::{af_xdp, programs};
use crate::netlink::{NetlinkError, PrivateNetns, link, netdev_genl};

/// The netdev that every namespace has.
const LOOPBACK_IFINDEX: IfIndex = IfIndex(1);

const VETH: Feature = Feature {
    name: "veth netdevs",
    severity: Severity::Required,
    since: "",
    needs: "CAP_NET_ADMIN and CAP_SYS_ADMIN",
    purpose: "the collector is a pair of them",
};
const NETDEV_FAMILY: Feature = Feature {
    name: "netdev netlink family",
    severity: Severity::Required,
    since: "6.3",
    needs: "nothing",
    purpose: "tells which netdevs run XDP in their driver",
};
const TCX: Feature = Feature {
    name: "tcx links",
    severity: Severity::Required,
    since: "6.6",
    needs: "CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN",
    purpose: "attach the switch to veths and taps beside other programs",
};
const MAPPABLE_ARRAYS: Feature = Feature {
    name: "mappable BPF arrays",
    severity: Severity::Required,
    since: "5.5",
    needs: "CAP_BPF",
    purpose: "counters that kernel and user space share",
};
const RUN_ON_REQUEST: Feature = Feature {
    name: "BPF programs run on request",
    severity: Severity::Degraded,
    since: "5.2",
    needs: "CAP_BPF and CAP_NET_ADMIN",
    purpose: "batches leave at half the cost of a packet socket",
};
const DEV_BOUND: Feature = Feature {
    name: "device-bound XDP programs",
    severity: Severity::Required,
    since: "6.3",
    needs: "CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN",
    purpose: "only they may ask a driver about a packet",
};
const HASH: Feature = Feature {
    name: "XDP metadata: hash",
    severity: Severity::Required,
    since: "6.3",
    needs: "CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN",
    purpose: "hands the packet's hash to user space, so that it isn't computed again",
};
const VLAN_TAG: Feature = Feature {
    name: "XDP metadata: VLAN tag",
    severity: Severity::Required,
    since: "6.8",
    needs: "CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN",
    purpose: "brings the source port's id to the collector",
};
const SOCKETS: Feature = Feature {
    name: "AF_XDP sockets",
    severity: Severity::Required,
    since: "4.18",
    needs: "CAP_NET_RAW",
    purpose: "bring packets to user space",
};
const MULTI_BUFFER: Feature = Feature {
    name: "AF_XDP multi-buffer",
    severity: Severity::Required,
    since: "6.6",
    needs: "CAP_NET_RAW, CAP_NET_ADMIN and CAP_SYS_ADMIN",
    purpose: "packets longer than a frame",
};
const TX_METADATA: Feature = Feature {
    name: "AF_XDP transmit metadata",
    severity: Severity::Info,
    since: "6.8",
    needs: "CAP_NET_RAW",
    purpose: "lets a driver fill in checksums",
};
const TX_BUDGET: Feature = Feature {
    name: "AF_XDP transmit budget",
    severity: Severity::Info,
    since: "6.17",
    needs: "CAP_NET_RAW",
    purpose: "lets one call send more than 32 packets",
};

/// Uses a feature on the netdev of this number, once.
type Attempt = fn(IfIndex) -> io::Result<()>;

/// Features that show on a netdev, each with what tries it there.
const ON_A_NETDEV: [(Feature, Attempt); 5] = [
    (TCX, programs::attach_tcx),
    (DEV_BOUND, programs::load_bound),
    (HASH, |ifindex| programs::load_metadata_call("bpf_xdp_metadata_rx_hash", ifindex)),
    (VLAN_TAG, |ifindex| programs::load_metadata_call("bpf_xdp_metadata_rx_vlan_tag", ifindex)),
    (MULTI_BUFFER, af_xdp::bind_multi_buffer),
];

pub(super) fn checks() -> Vec<Check> {
    let mut checks = vec![
        NETDEV_FAMILY.tried(as_io(netdev_genl::xdp_features(LOOPBACK_IFINDEX).map(drop))),
        MAPPABLE_ARRAYS.tried(programs::make_mappable_array()),
        RUN_ON_REQUEST.tried(programs::run_on_request()),
        SOCKETS.tried(af_xdp::open().map(drop)),
        TX_METADATA.tried(af_xdp::register_tx_metadata()),
        TX_BUDGET.tried(af_xdp::set_tx_budget()),
    ];
    checks.extend(match PrivateNetns::new("fb-probe") {
        Ok(netns) => netns.run(checks_on_a_veth),
        Err(error) => cannot_try(&error),
    });
    checks
}

/// Runs inside the scratch namespace, which takes the pair with it when it ends.
fn checks_on_a_veth() -> Vec<Check> {
    let made =
        link::create_veth("fb-probe0", "fb-probe1", None, 1, 1500).and_then(|()| link::by_name("fb-probe0"));
    let ifindex = match made {
        Ok(link) => link.ifindex,
        Err(error) => {
            let mut checks = vec![VETH.tried(as_io(Err(error)))];
            checks.extend(
                ON_A_NETDEV
                    .map(|(feature, _)| feature.unknown("there is no veth pair to try it on".to_owned())),
            );
            return checks;
        }
    };
    let mut checks = vec![VETH.tried(Ok(()))];
    checks.extend(ON_A_NETDEV.map(|(feature, attempt)| feature.tried(attempt(ifindex))));
    checks
}

fn cannot_try(error: &NetlinkError) -> Vec<Check> {
    let features = std::iter::once(VETH).chain(ON_A_NETDEV.map(|(feature, _)| feature));
    features.map(|feature| feature.unknown(error.to_string())).collect()
}

/// The errno of a netlink error. Errors without one say nothing about the kernel's features.
fn as_io(outcome: Result<(), NetlinkError>) -> io::Result<()> {
    outcome.map_err(|error| match error.errno() {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => io::Error::other(error.to_string()),
    })
}
