//! NICs of this namespace that may not do what a port asks of them.

use forebay_control::doctor::{Answer, Check, Severity};

use super::finding::{list, unreadable};
use crate::netlink::Link;
use crate::netlink::link::{self, Device};

const NAME: &str = "NICs that receive everything";

pub(super) fn checks() -> Vec<Check> {
    match link::list() {
        Ok(links) => vec![receiving(&links, Device::is_virtual_function)],
        Err(error) => vec![unreadable(NAME, Severity::Info, error.to_string())],
    }
}

/// A VF that its PF does not trust receives only what is addressed to it, and says nothing.
fn receiving(links: &[Link], is_virtual_function: impl Fn(&Device) -> bool) -> Check {
    let is_meant = |link: &&Link| link.parent.as_ref().is_some_and(&is_virtual_function);
    let found: Vec<String> = links.iter().filter(is_meant).map(|link| link.name.clone()).collect();
    if found.is_empty() {
        let detail = format!("no VF among {} netdevs", links.len());
        let (name, answer) = (NAME.to_owned(), Answer::Available);
        return Check { name, answer, severity: Severity::Info, detail, remedy: None };
    }
    let why = format!("VFs: {}; only the PF's driver knows whether it trusts them", list(&found));
    let remedy = "On the PF's host: `ip link set PF vf NUMBER trust on`. A port on a VF also tells it the known stations \
                  behind other ports; `forebay port show` says how many.";
    Check { remedy: Some(remedy.to_owned()), ..unreadable(NAME, Severity::Info, why) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vf_is_named_and_the_rest_is_not() {
        let nic = |name: &str| Link {
            name: name.to_owned(),
            parent: Some(Device { bus: "pci".to_owned(), name: format!("of {name}") }),
            ..Link::default()
        };
        let links = [nic("eth0"), nic("eth1"), Link { name: "veth0".to_owned(), ..Link::default() }];
        let check = receiving(&links, |device| device.name == "of eth1");
        let Answer::Unknown { why } = check.answer else { panic!("{check:?}") };
        assert!(why.contains("eth1") && !why.contains("eth0"), "{why}");
        assert_eq!(receiving(&links, |_| false).answer, Answer::Available);
    }
}
