//! What the drivers of this namespace's netdevs tell XDP programs about packets.

use forebay_control::doctor::{Check, Severity};

use super::finding::{list, setting, unreadable};
use crate::netlink::netdev_genl::{RxMetadata, XdpFeatures, xdp_features};
use crate::netlink::{NetlinkError, link};

const NAME: &str = "hints from drivers";

pub(super) fn checks() -> Vec<Check> {
    let check = match native() {
        Ok(netdevs) => of(netdevs.into_iter()),
        Err(error) => unreadable(NAME, Severity::Info, error.to_string()),
    };
    vec![check]
}

/// The netdevs with XDP in the driver, but for those that are gone when they are looked at.
fn native() -> Result<Vec<(String, XdpFeatures)>, NetlinkError> {
    let mut native = Vec::new();
    for link in link::list()? {
        match xdp_features(link.ifindex) {
            Ok(features) if features.basic => native.push((link.name, features)),
            Ok(_) => {}
            Err(error) if error.errno() == Some(libc::ENODEV) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(native)
}

fn of(netdevs: impl Iterator<Item = (String, XdpFeatures)>) -> Check {
    let (silent, telling): (Vec<_>, Vec<_>) =
        netdevs.partition(|(_, features)| features.rx_metadata == RxMetadata::default());
    let silent: Vec<_> = silent.into_iter().map(|(name, _)| name).collect();
    let telling: Vec<_> =
        telling.iter().map(|(name, features)| format!("{name}: {}", told(features.rx_metadata))).collect();
    let problem = (!silent.is_empty()).then(|| {
        let why = format!("the drivers of these netdevs give XDP programs no hints: {}", list(&silent));
        let remedy = "Nothing, if these ports need no hints. Else use `--attach tcx` for them, or a program of your \
                      own that writes hints: docs/hints.md.";
        (why, remedy.to_owned())
    });
    let detail = if telling.is_empty() { "no netdev with hints".to_owned() } else { list(&telling) };
    setting(NAME, Severity::Info, detail, problem)
}

fn told(metadata: RxMetadata) -> String {
    let facts = [("timestamp", metadata.timestamp), ("hash", metadata.hash), ("VLAN tag", metadata.vlan_tag)];
    let told: Vec<_> = facts.iter().filter(|(_, is_told)| *is_told).map(|(fact, _)| *fact).collect();
    told.join(", ")
}

#[cfg(test)]
mod tests {
    use forebay_control::doctor::Answer;

    use super::*;

    fn netdev(name: &str, rx_metadata: RxMetadata) -> (String, XdpFeatures) {
        (name.to_owned(), XdpFeatures { basic: true, rx_metadata, ..XdpFeatures::default() })
    }

    #[test]
    fn netdevs_are_named_with_what_their_drivers_tell_and_those_that_tell_nothing() {
        let some = RxMetadata { hash: true, vlan_tag: true, timestamp: false };
        let check = of([netdev("eth0", some), netdev("tap0", RxMetadata::default())].into_iter());
        assert_eq!(check.detail, "eth0: hash, VLAN tag");
        assert!(
            matches!(&check.answer, Answer::NotSupported { why, .. } if why.ends_with(": tap0")),
            "{check:?}"
        );
        assert_eq!(of([netdev("eth0", some)].into_iter()).answer, Answer::Available);
        assert_eq!(of(std::iter::empty()).answer, Answer::Available);
    }
}
