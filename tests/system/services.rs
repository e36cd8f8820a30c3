//! What hosts on one network expect of it: addresses, routers, groups.

use std::net::{Ipv4Addr, Ipv6Addr};

use forebay_testbed::programs::{dhcp, router, udp};

use crate::bed::Bed;
use crate::harness::{Outcome, Subject, Suite};

pub fn register(suite: &mut Suite) {
    suite.everywhere("a_host_gets_its_address_by_dhcp", dhcp_lease);
    suite.everywhere("a_host_configures_itself_from_router_advertisements", router_advertisement);
    suite.everywhere("members_of_a_multicast_group_hear_everything_once", multicast);
}

fn dhcp_lease(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 3)?;
    let lease = Ipv4Addr::new(10, 66, 100, 1);
    let _server = dhcp::DhcpServer::start(&bed.lab, &hosts[0], lease)?;
    hosts[1].netns().ip(&["addr", "flush", "dev", "eth0"])?;
    let (given, counted) = bed.watch(|lab| dhcp::request(lab, &hosts[1]))?;
    assert_eq!(given, lease);
    counted.no_drops();
    Ok(())
}

fn router_advertisement(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 2)?;
    let prefix = Ipv6Addr::new(0xfd00, 0x77, 0, 0, 0, 0, 0, 0);
    let _router = router::Router::start(&bed.lab, &hosts[0], prefix)?;
    let (_, counted) = bed.watch(|_| router::autoconfigure(&hosts[1], prefix))?;
    // The host's netdev goes down and up, and its port with it. Until the port's carrier is told, a veth refuses what is
    // sent to its other end as if its queue were full (veth_xmit, Linux 6.12).
    counted.no_drops_but(&["port_down", "tx_port_down", "tx_full", "tx_over_share", "no_destination"]);
    Ok(())
}

fn multicast(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 3)?;
    let group = Ipv4Addr::new(239, 66, 0, 1);
    let ((), counted) = bed.watch(|_| {
        let heard = udp::multicast(&hosts[0], &[&hosts[1], &hosts[2]], group, 50)?;
        assert_eq!(heard, [50, 50]);
        Ok(())
    })?;
    counted.no_drops();
    assert!(counted.moved("h1", "flooded_packets").is_none_or(|flooded| flooded >= 50), "{counted}");
    Ok(())
}
