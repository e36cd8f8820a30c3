//! Checksums that senders leave to the device: the kernel passes such packets on as they are, with a note that the checksum
//! is to be finished yet, from XDP ports too.

use forebay_control::flow::FlowEntry;
use forebay_testbed::capture::{Capture, report};
use forebay_testbed::dut::Client;
use forebay_testbed::programs::{ping::Ping, udp};
use forebay_testbed::{Host, Result, wait};

use super::{INSTALL_LIMIT, flow_list};
use crate::bed::{Bed, CONGESTION, with_offload};
use crate::connectivity::{CAPTURE_LIMIT, stream};
use crate::harness::{Outcome, Subject, Suite};

const DATAGRAMS: u32 = 100;
/// Less than half of this is carried by user space, until flows are there or where the kernel leaves it alone.
const MOST_OF_A_STREAM: u64 = 1000;

pub fn register(suite: &mut Suite) {
    suite.on_netdevs("with_the_fast_path_datagrams_arrive_with_right_checksums", datagrams);
    suite.heavy_on_netdevs("with_the_fast_path_tcp_arrives_with_right_checksums", tcp);
}

/// Whether the senders finish checksums by themselves.
const SENDERS: [(&str, bool); 2] = [("on", false), ("off", true)];

/// Two hosts that know each other's addresses, as the switch does.
fn acquainted(subject: Subject) -> std::result::Result<(Bed, Vec<Host>), Box<dyn std::error::Error>> {
    let (mut bed, hosts) = with_offload(|| Bed::with_hosts(subject, 2))?;
    hosts[0].knows(&hosts[1])?;
    hosts[1].knows(&hosts[0])?;
    let client = bed.client();
    wait::until("flows between the hosts", INSTALL_LIMIT, || {
        Ping::new(hosts[1].v4()).count(1).from(&hosts[0]).is_ok() && are_connected(&client, &hosts)
    })?;
    Ok((bed, hosts))
}

/// Whether the kernel carries packets between the first two, both ways.
pub(super) fn are_connected(client: &Client, hosts: &[Host]) -> bool {
    let Ok(list) = flow_list(client) else { return false };
    [[0, 1], [1, 0]].map(|pair| pair.map(|host: usize| hosts[host].mac())).iter().all(|[src, dst]| {
        let is_it = |flow: &&FlowEntry| flow.src_mac.0 == *src && flow.dst_mac.0 == *dst;
        list.flows.iter().filter(is_it).any(|flow| flow.runs.is_kernel())
    })
}

fn datagrams(subject: Subject) -> Outcome {
    let (mut bed, hosts) = acquainted(subject)?;
    for (setting, are_finished) in SENDERS {
        set_transmit_checksums(&hosts, setting)?;
        for (v6, bytes) in [4, 18, 1400].into_iter().flat_map(|bytes| [(false, bytes), (true, bytes)]) {
            let capture = Capture::start(&bed.lab, hosts[1].netns(), "eth0", "udp port 5000", DATAGRAMS)?;
            let (arrived, counted) =
                bed.watch(|_| udp::transfer(&hosts[0], &hosts[1], v6, DATAGRAMS, bytes))?;
            let what = format!("{bytes} bytes, IPv6: {v6}, finished by their senders: {are_finished}");
            assert_eq!(arrived, DATAGRAMS as usize, "{what}");
            let checksums = report(&capture.filled()?);
            let expected = if are_finished { checksums.good } else { checksums.unfinished };
            assert_eq!(expected + checksums.either, u64::from(DATAGRAMS), "{what}: {checksums:?}");
            counted.no_drops();
            let carried = counted.moved("h1", "offloaded_packets").unwrap_or(0);
            // A change of a netdev's offloads voids its flows, and a packet may be under way just then.
            assert!(carried > u64::from(DATAGRAMS) / 2, "{what}\n{counted}");
        }
    }
    Ok(())
}

fn set_transmit_checksums(hosts: &[Host], setting: &str) -> Result<()> {
    hosts.iter().try_for_each(|host| host.netns().ethtool("eth0", &["tx", setting]).map(drop))
}

fn tcp(subject: Subject) -> Outcome {
    let (mut bed, hosts) = acquainted(subject)?;
    for (setting, are_finished) in SENDERS {
        set_transmit_checksums(&hosts, setting)?;
        for (v6, reverse) in [(false, false), (false, true), (true, false), (true, true)] {
            let (from, receiver) = if reverse { ("h2", &hosts[0]) } else { ("h1", &hosts[1]) };
            let (checksums, counted) =
                bed.watch(|lab| stream(lab, &hosts[0], &hosts[1], receiver, v6, reverse))?;
            let what = format!("IPv6: {v6}, reverse: {reverse}, finished by their senders: {are_finished}");
            assert!(
                checksums.bad == 0 && (!are_finished || checksums.unfinished == 0),
                "{what}: {checksums:?}"
            );
            assert!(
                checksums.packets > 100 && checksums.packets <= CAPTURE_LIMIT.into(),
                "{what}: {checksums:?}"
            );
            counted.no_drops_but(&CONGESTION);
            let [sent, carried] =
                ["rx_packets", "offloaded_packets"].map(|name| counted.moved(from, name).unwrap_or(0));
            assert!(carried + MOST_OF_A_STREAM / 2 > sent && sent > MOST_OF_A_STREAM, "{what}\n{counted}");
        }
    }
    Ok(())
}
