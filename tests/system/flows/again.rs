//! Scenarios of others, once more with the fast path.

use crate::bed::{with_hints, with_offload};
use crate::harness::{Outcome, Subject, Suite};
use crate::{connectivity, fdb, hostile, modes, mtu, netdev, vlan};

pub fn register(suite: &mut Suite) {
    macro_rules! again {
        ($add:ident, $name:literal, $scenario:expr) => {
            suite.$add(concat!("with_the_fast_path_", $name), |subject| {
                with_offload(|| -> Outcome { $scenario(subject) })
            })
        };
    }
    again!(on_netdevs, "tagged_hosts_talk", vlan::tagged_hosts);
    again!(on_netdevs, "a_trunk_tags_its_vlans", vlan::trunk);
    again!(on_netdevs, "vlans_stay_apart", apart);
    again!(on_netdevs, "isolated_ports_stay_apart", vlan::isolated);
    again!(on_netdevs, "hints_change_nothing", hinted);
    again!(on_netdevs, "an_address_is_learned", fdb::learning);
    again!(on_netdevs, "a_station_moves", fdb::moving);
    again!(on_netdevs, "an_entry_ages", fdb::ageing);
    again!(on_netdevs, "a_static_entry_stays", fdb::static_entries);
    again!(on_netdevs, "a_mac_flood_costs_the_flooder_only", fdb::mac_flood);
    again!(on_netdevs, "link_local_groups_and_own_ports_get_nothing", fdb_drops);
    again!(on_netdevs, "a_packet_as_long_as_the_mtu_passes", mtu::mtus);
    again!(on_netdevs, "fragments_pass", mtu::fragments);
    again!(on_netdevs, "two_workers_carry_everything", two_workers);
    again!(heavy_on_netdevs, "spool_modes_change_under_traffic", modes::changes);
    again!(on_netdevs, "random_frames_harm_nobody", hostile::random_frames);
    again!(on_netdevs, "stacks_of_tags_pass", hostile::vlan_stacks);
    again!(on_netdevs, "lying_lengths_pass", hostile::lying_lengths);
    again!(on_netdevs, "a_netdev_goes_down_and_comes_back", netdev::down_and_up);
    again!(on_netdevs, "a_netdev_is_renamed", netdev::rename);
    again!(on_netdevs, "a_netdev_is_made_again", netdev::deleted_and_made_again);
    again!(on_netdevs, "ports_come_and_go", netdev::ports_come_and_go);
}

fn two_workers(subject: Subject) -> Outcome {
    let workers = connectivity::carried_by_two_workers(subject)?;
    assert!(workers.len() == 2 && workers.iter().any(|worker| worker.packets > 0), "{workers:?}");
    Ok(())
}

fn apart(subject: Subject) -> Outcome {
    vlan::access_ports(subject)?;
    vlan::not_allowed(subject)?;
    vlan::same_mac_two_vlans(subject)
}

fn hinted(subject: Subject) -> Outcome {
    with_hints(|| {
        vlan::tagged_hosts(subject)?;
        vlan::trunk(subject)?;
        apart(subject)
    })
}

fn fdb_drops(subject: Subject) -> Outcome {
    fdb::reserved_addresses(subject)?;
    fdb::same_port(subject)
}
