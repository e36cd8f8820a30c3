use super::*;
use crate::coalesce::{CoalesceGuest, CoalescePolicy, CoalesceSet};
use crate::fdb::FdbDel;
use crate::port::{Attach, PortSet};
use crate::vlan::VlanMode;

fn refused(text: &str) -> String {
    Config::parse(text).expect_err(text).to_string()
}

#[test]
fn an_empty_file_is_the_default_configuration() {
    assert_eq!(Config::parse("").unwrap(), Config::default());
}

#[test]
fn every_key_is_taken_over() {
    let text = include_str!("tests/full.toml");
    let config = Config::parse(text).unwrap();
    assert_eq!((&config.switch.cpus[..], config.switch.linger_us), (&[2, 3][..], 20));
    assert_eq!((config.api.mode_bits(), config.api.read_only_mode_bits()), (0o600, 0o666));
    assert_eq!((config.api.group.as_str(), config.api.read_only_group.as_str()), ("netops", "1000"));
    assert!(config.api.allow_programs);
    assert_eq!((config.pool.frames, config.pool.frame_size, config.pool.rx_ring_depth), (32768, 4096, 1024));
    assert_eq!(config.settings().ageing_seconds, 60);
    assert_eq!(config.settings().flood_copies_per_second, 0);
    assert_eq!((config.flows.max_entries, config.settings().offload), (4096, Offload::Off));
    assert_eq!(config.settings().flow_idle_seconds, 10);
    assert_eq!(config.settings().flow_installs_per_second, 500);
    assert_eq!(config.metrics.listen.unwrap().port(), 9100);
    assert_eq!(config.log.level, LogLevel::Debug);
    assert_eq!(config.ports[0].port_name(), "web");
    assert_eq!(config.ports[0].attach, Attach::Xdp);
    assert_eq!(config.ports[1].vlan.to_string(), "trunk:10,20,native:1");
    assert_eq!(config.fdb.static_entries[0].port, "web");
    assert_eq!(config.flows.rules[0].to_string(), "in_port=web ip_proto=tcp dst=192.0.2.1/32 dport=80");
    assert_eq!(config.flows.rules[1].to_string(), "ethertype=0x0806");
    assert_eq!(config.coalesce.guests[0].guest, Some(CoalesceGuest::Decides));
    assert_eq!(config.coalesce.netdevs[1].usecs, Some(64));
    assert_eq!(config.ports[1].coalesce[0].frames, Some(32));
    let written = toml::to_string(&config).unwrap();
    assert_eq!(Config::parse(&written).unwrap(), config, "writing and reading changes nothing");
}

#[test]
fn the_documented_defaults_are_the_defaults() {
    let page = include_str!("../../../../docs/config.md");
    let blocks: Vec<&str> =
        page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(Config::parse(blocks[0]).unwrap(), Config::default());
    for key in toml::to_string(&Config::default()).unwrap().lines().filter_map(|line| line.split_once(" = "))
    {
        assert!(
            key.0 == "port" || key.0 == "static" || key.0 == "rules" || blocks[0].contains(key.0),
            "{} is not documented",
            key.0
        );
    }
    assert_eq!(Config::parse(&blocks.concat()).unwrap().ports[0].port_name(), "web");
    let page = include_str!("../../../../docs/moderation.md");
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert_eq!(Config::parse(example).unwrap().ports[0].coalesce.len(), 2);
}

#[test]
fn an_unknown_key_is_refused_with_its_line_and_column() {
    assert!(refused("[switch]\nworkers = 1\n  worker = 2\n").starts_with("3:3: unknown field `worker`"));
    assert!(refused("[swich]\n").starts_with("1:2: unknown field `swich`"));
    assert!(
        refused("[[port]]\nnetdev = \"a\"\n\n[[port]]\nnetdev = \"b\"\ncolour = 1\n")
            .starts_with("6:1: unknown")
    );
}

#[test]
fn broken_toml_and_wrong_types_are_refused_with_their_place() {
    assert!(refused("[switch\n").starts_with("1:8: "));
    assert!(refused("[switch]\nworkers = \"two\"\n").starts_with("2:11: switch.workers: invalid type"));
    assert!(refused("[switch]\nworkers = -1\n").starts_with("2:11: switch.workers: "));
    assert!(refused("[switch]\ncpus = [1, \"b\"]\n").starts_with("2:12: switch.cpus: invalid type"));
    assert!(
        refused("[[port]]\n")
            .contains("port.netdev is not valid (value: ; limit: a netdev's name, or a group")
    );
    let group = "[[port]]\nname = \"up\"\ngroup = [\"a\", \"b\"]\n";
    assert_eq!(Config::parse(group).unwrap().ports[0].asked_for(), "up");
    assert!(
        refused(&group.replace("\"b\"", "\"a\""))
            .starts_with("3:9: port.group is not valid (value: a; limit: each")
    );
    let twice = refused(&format!("{group}[[port]]\nnetdev = \"b\"\n"));
    assert!(twice.contains("`b` is used by ports 1 and 2"), "{twice}");
}

#[test]
fn ports_of_guests_are_many_and_a_socket_is_one_ports() {
    let port = |name: &str, more: &str| {
        format!("[[port]]\nname = \"{name}\"\nvhost_user = {{ path = \"/run/{name}.sock\"{more} }}\n")
    };
    let two =
        format!("{}{}", port("vm1", ", client = true"), port("vm2", ", owner = \"vm\", mode = \"0600\""));
    let config = Config::parse(&two).unwrap();
    assert_eq!(config.ports.len(), 2);
    assert_eq!(Config::parse(&toml::to_string(&config).unwrap()).unwrap(), config);
    let twice = refused(&two.replace("/run/vm2", "/run/vm1"));
    assert!(twice.contains("`/run/vm1.sock` is used by ports 1 and 2"), "{twice}");
    let mode = refused(&port("vm1", ", mode = \"rw\""));
    assert!(mode.starts_with("3:14: port.mode is not valid (value: rw; limit: octal digits"), "{mode}");
}

#[test]
fn a_value_out_of_bounds_is_refused_with_key_value_limit_and_way_out() {
    for (text, expected) in [
        ("[switch]\nworkers = 0\n", "2:11: switch.workers is not valid (value: 0; limit: 1 to 64); choose"),
        (
            "[api]\nread_only_mode = \"0888\"\n",
            "2:18: api.read_only_mode is not valid (value: 0888; limit: octal digits from 0000 to 0777)",
        ),
        (
            "[switch]\nlinger_us = 1001\n",
            "2:13: switch.linger_us is not valid (value: 1001; limit: 0 to 1000)",
        ),
        (
            "[switch]\nmax_ports = 5000\n",
            "2:13: switch.max_ports is not valid (value: 5000; limit: 1 to 4096)",
        ),
        ("[pool]\nrefill_low = 0\n", "2:14: pool.refill_low is not valid (value: 0; limit: 1 to 4096)"),
        (
            "[switch]\ncpus = [1, 2]\n",
            "2:8: switch.cpus is not valid (value: 2 CPUs; limit: one CPU for each of the 1",
        ),
        (
            "[switch]\nworkers = 2\ncpus = [1, 1]\n",
            "3:8: switch.cpus is not valid (value: 1; limit: each CPU once)",
        ),
        (
            "[switch]\nsocket = \"\"\n",
            "2:10: switch.socket is not valid (value: ; limit: a path of 1 to 95 bytes)",
        ),
        (
            "[pool]\nframe_size = 1500\n",
            "2:14: pool.frame_size is not valid (value: 1500; limit: 2048 or 4096)",
        ),
        (
            "[pool]\nrx_ring_depth = 100\n",
            "2:17: pool.rx_ring_depth is not valid (value: 100; limit: a power of two",
        ),
        (
            "[pool]\nframes = 1024\nrx_ring_depth = 1024",
            "2:10: pool.frames is not valid (value: 1024; limit: at least",
        ),
        (
            "[fdb]\nageing_seconds = 0\n",
            "2:18: fdb.ageing_seconds is not valid (value: 0; limit: 1 to 1000000)",
        ),
        (
            "[fdb]\nmax_entries = 10\n",
            "1:1: fdb.max_entries_per_port is not valid (value: 8192; limit: 1 to fdb",
        ),
        (
            "[flood]\nburst_copies = 0\n",
            "2:16: flood.burst_copies is not valid (value: 0; limit: at least 1); with 0 no",
        ),
        (
            "[flows]\nmax_entries = 1023\n",
            "2:15: flows.max_entries is not valid (value: 1023; limit: 1024 to 1048576); choose",
        ),
        ("[flows]\nidle_seconds = 0\n", "2:16: flows.idle_seconds is not valid (value: 0; limit: 1 to 3600)"),
        (
            "[flows]\ninstalls_per_second = 1000001\n",
            "2:23: flows.installs_per_second is not valid (value: 1000001; limit: 1 to 1000000)",
        ),
        (
            "[flows]\noffload = \"maybe\"\n",
            "2:11: flows.offload: unknown variant `maybe`, expected `on` or `off`",
        ),
        (
            "[log]\nlevel = \"loud\"\n",
            "2:9: log.level: unknown variant `loud`, expected one of `off`, `error`",
        ),
        (
            "[metrics]\nlisten = \"nowhere\"\n",
            "2:10: metrics.listen: `nowhere` is not an IP address and a TCP port, as in 127.0.0.1:9100",
        ),
    ] {
        let message = refused(text);
        assert!(message.starts_with(expected), "{message}\nexpected {expected}");
    }
}

#[test]
fn a_bad_port_is_refused_at_its_own_key() {
    for (text, expected) in [
        ("[[port]]\nnetdev = \"a/b\"\n", "2:10: port.netdev is not valid (value: a/b; limit: 1 to 15 bytes"),
        (
            "[[port]]\nnetdev = \"a\"\nname = \"x y\"\n",
            "3:8: port.name is not valid (value: x y; limit: 1 to 64",
        ),
        (
            "[[port]]\nnetdev = \"a\"\nvlan = \"access:9999\"\n",
            "3:8: port.vlan: vlan `access:9999`: `9999` is not a VLAN from 1",
        ),
        (
            "[[port]]\nnetdev = \"a\"\n[[port]]\nnetdev = \"a\"\n",
            "4:10: port.netdev: `a` is used by ports 1 and 2",
        ),
        (
            "[[port]]\nnetdev = \"a\"\n[[port]]\nnetdev = \"b\"\nname = \"a\"",
            "5:8: port.name: `a` is used by ports 1",
        ),
        (
            "[switch]\nmax_ports = 1\n[[port]]\nnetdev = \"a\"\n[[port]]\nnetdev = \"b\"\n",
            "5:1: [[port]]: 2 ports",
        ),
    ] {
        let message = refused(text);
        assert!(message.starts_with(expected), "{message}\nexpected {expected}");
    }
}

#[test]
fn moderation_is_stated_as_one_table_or_several_and_refused_at_the_key_that_is_wrong() {
    let guest = "[[port]]\nname = \"vm\"\nvhost_user = { path = \"/vm\", queues = 2 }\n";
    let two = format!(
        "{guest}coalesce = [{{ policy = \"dim\", profile = \"cqe\" }}, {{ queue = 1, where = \"onload\" }}]\n"
    );
    let config = Config::parse(&two).unwrap();
    assert_eq!(config.ports[0].coalesce.len(), 2);
    assert_eq!(Config::parse(&toml::to_string(&config).unwrap()).unwrap(), config);
    for (text, expected) in [
        (
            format!("{guest}coalesce = {{ policy = \"static\", usecs = 65536 }}\n"),
            "4:41: port.coalesce: `usecs` is too large (value: 65536; limit: 65535); give a smaller one",
        ),
        (
            format!("{guest}coalesce = [{{ policy = \"dim\" }},\n  {{ queue = 2, policy = \"off\" }}]\n"),
            "5:13: port.coalesce: the port has no pair of queues with this number (value: 2; limit: 0 to 1); leave",
        ),
        (
            format!("{guest}[port.coalesce]\npolicy = \"dim\"\nusecs = 8\n"),
            "6:9: port.coalesce: policy dim chooses limits without usecs (value: dim; limit: static); set policy static",
        ),
        (
            format!("{guest}coalesce = {{ policy = \"driver\" }}\n"),
            "4:23: port.coalesce: a virtual machine's device is the switch, and has no driver here (value: driver; \
             limit: off, static, dim, adaptive); give policy adaptive",
        ),
        (
            "[[port]]\nnetdev = \"a\"\ncoalesce = { policy = \"dim\", guest = \"ignored\" }\n".to_owned(),
            "3:38: port.coalesce: a netdev has no guest that asks for limits (value: ignored; limit: virtual \
             machines); leave guest out",
        ),
        (
            "[[port]]\nnetdev = \"a\"\ncoalesce = { policy = \"fast\" }\n".to_owned(),
            "3:23: port.coalesce.policy: unknown variant `fast`, expected one of `off`, `static`",
        ),
        (
            "[[port]]\nnetdev = \"a\"\ncoalesce = { polcy = \"dim\" }\n".to_owned(),
            "3:14: unknown field `polcy`",
        ),
        (
            "[[port]]\nnetdev = \"a\"\ncoalesce = \"dim\"\n".to_owned(),
            "3:12: port.coalesce: invalid type: string \"dim\", expected a table as in { policy",
        ),
        (
            "[coalesce.guests]\npolicy = \"dim\"\nqueue = 0\n".to_owned(),
            "3:9: coalesce.guests: queue is not valid (value: a number; limit: none, because",
        ),
        (
            "[coalesce]\nnetdevs = { policy = \"static\" }\n".to_owned(),
            "2:11: coalesce.netdevs: policy static sets nothing (value: -; limit: 0 to 65535); give usecs, frames or",
        ),
        (
            "[coalesce]\nguests = {}\n".to_owned(),
            "2:10: coalesce.guests: policy is not valid (value: nothing; limit: policy, where, guest",
        ),
        (
            "[coalesce]\npolicy = \"off\"\n".to_owned(),
            "2:1: unknown field `policy`, expected `guests` or `netdevs`",
        ),
    ] {
        let message = refused(&text);
        assert!(message.starts_with(expected), "{message}\nexpected {expected}");
    }
}

#[test]
fn a_static_entry_needs_a_station_and_a_port_that_carries_its_vlan() {
    let port = "[[port]]\nnetdev = \"a\"\nvlan = \"access:10\"\n";
    let entry = |rest: &str| format!("{port}[[fdb.static]]\nmac = {rest}\n");
    for (text, expected) in [
        (
            entry("\"ff:ff:ff:ff:ff:ff\"\nport = \"a\"\nvlan = 10"),
            "5:7: fdb.static.mac is not valid (value: ff:ff",
        ),
        (
            entry("\"02:00:00:00:00:01\"\nport = \"b\"\nvlan = 10"),
            "6:8: fdb.static.port: no [[port]] is named `b`",
        ),
        (
            entry("\"02:00:00:00:00:01\"\nport = \"a\"\nvlan = 11"),
            "7:8: fdb.static.vlan: port `a` is `access:10`",
        ),
        (entry("\"02:00\"\nport = \"a\""), "5:7: fdb.static.mac: `02:00` is not an Ethernet address"),
    ] {
        let message = refused(&text);
        assert!(message.starts_with(expected), "{message}\nexpected {expected}");
    }
    let twice =
        format!("{0}{1}{1}", port, "[[fdb.static]]\nmac = \"02:00:00:00:00:01\"\nport = \"a\"\nvlan = 10\n");
    assert!(refused(&twice).starts_with("9:7: fdb.static.mac: 02:00:00:00:00:01 is given twice in VLAN 10"));
}

#[test]
fn a_rule_needs_ports_that_are_there_and_packets_that_can_be() {
    let rule = |rest: &str| format!("[[port]]\nnetdev = \"a\"\n[[flows.rules]]\npriority = 1\n{rest}\n");
    for (rest, expected) in [
        (
            "action = \"drop\"\nin_port = \"b\"",
            "6:11: flows.rules.in_port: no [[port]] is named `b`; add it, or",
        ),
        ("action = \"output:a,c\"", "5:10: flows.rules.action: no [[port]] is named `c`"),
        ("action = \"mirror:d\"", "5:10: flows.rules.action: no [[port]] is named `d`"),
        (
            "action = \"flood\"",
            "5:10: flows.rules.action: action `flood`: not a known form; write drop, output",
        ),
        (
            "action = \"drop\"\ndport = 80",
            "6:9: flows.rules.dport is not valid (value: 80; limit: only with ip_proto",
        ),
        (
            "action = \"drop\"\nsrc = \"10.0.0.1/8\"",
            "6:7: flows.rules.src: `10.0.0.1/8` sets bits behind its prefix",
        ),
        ("action = \"drop\"\ncolour = 1", "6:1: unknown field `colour`"),
    ] {
        let message = refused(&rule(rest));
        assert!(message.starts_with(expected), "{message}\nexpected {expected}");
    }
    let twice = rule("action = \"drop\"\n[[flows.rules]]\npriority = 1\naction = \"normal\"");
    let expected = "7:12: flows.rules.priority: rules 1 and 2 of the file ask for the same (any) at priority 1, limit once";
    assert!(refused(&twice).starts_with(expected), "{}", refused(&twice));
    let one = "[[flows.rules]]\npriority = 1\naction = \"drop\"\n";
    let message = refused(&one.repeat(crate::rule::MAX_RULES + 1));
    assert!(message.ends_with("flows.rules: 4097 rules, limit 4096; remove some"), "{message}");
}

#[test]
fn a_column_is_counted_in_characters() {
    assert!(refused("port = [{ netdev = \"ää\", nam = 1 }]\n").starts_with("1:26: unknown field `nam`"));
}

fn base() -> Config {
    Config::parse(include_str!("tests/full.toml")).unwrap()
}

#[test]
fn the_same_file_again_asks_for_nothing() {
    assert!(base().diff(&base()).is_empty());
}

#[test]
fn a_port_that_only_changes_its_vlan_keeps_carrying_traffic() {
    let mut new = base();
    new.ports[1].vlan = VlanMode::All;
    let diff = base().diff(&new);
    let set = PortSet { vlan: Some(VlanMode::All), ..PortSet::default() };
    assert_eq!(diff.ports_set, [PortChange { name: "up".to_owned(), set }]);
    assert_eq!(ConfigDiff { ports_set: Vec::new(), ..diff }, ConfigDiff::default());
}

#[test]
fn ports_are_moderated_anew_where_what_the_file_states_for_them_differs() {
    let moderated = |text: &str| {
        let ports = "[[port]]\nnetdev = \"a\"\n[[port]]\nname = \"vm\"\nvhost_user = { path = \"/vm\" }\n";
        Config::parse(&format!("{text}{ports}")).unwrap()
    };
    let change = |name: &str, coalesce: &[CoalesceSet]| PortChange {
        name: name.to_owned(),
        set: PortSet { coalesce: Some(coalesce.to_vec()), ..PortSet::default() },
    };
    let (off, dim) = (moderated(""), moderated("coalesce.guests = { policy = \"dim\" }\n"));
    let diff = off.diff(&dim);
    assert_eq!((diff.coalesce, diff.ports_set), (Some(dim.coalesce.clone()), vec![change("vm", &[])]));
    let mut own = dim.clone();
    own.ports[1].coalesce = dim.coalesce.guests.clone();
    assert!(dim.diff(&own).is_empty(), "it states what all have");
    own.ports[1].coalesce[0].policy = Some(CoalescePolicy::Adaptive);
    assert_eq!(dim.diff(&own).ports_set, [change("vm", &own.ports[1].coalesce)]);
    let mut other = own.clone();
    other.coalesce = CoalesceConfig::default();
    assert_eq!(own.diff(&other).ports_set, [], "it states its own");
}

#[test]
fn a_port_with_another_netdev_is_added_again_with_its_static_entries() {
    let mut new = base();
    new.ports[0].netdev = "eth9".to_owned();
    let diff = base().diff(&new);
    assert_eq!(diff.ports_del, ["web"]);
    assert_eq!(diff.ports_add, [new.ports[0].clone()]);
    assert_eq!(diff.fdb_add, new.fdb.static_entries);
    assert!(diff.fdb_del.is_empty() && diff.ports_set.is_empty());
}

#[test]
fn a_port_with_another_socket_is_added_again() {
    let with = |queues: u32| {
        let socket = format!("{{ path = \"/vm\", queues = {queues} }}");
        Config::parse(&format!("[[port]]\nname = \"vm\"\nvhost_user = {socket}\n")).unwrap()
    };
    let diff = with(1).diff(&with(2));
    assert_eq!((&diff.ports_del[..], &diff.ports_add), (&["vm".to_owned()][..], &with(2).ports));
    assert!(diff.ports_set.is_empty());
}

#[test]
fn a_static_entry_that_is_gone_from_the_file_is_deleted() {
    let mut new = base();
    let entry = new.fdb.static_entries.remove(0);
    let diff = base().diff(&new);
    assert_eq!(diff.fdb_del, [FdbDel { vlan: entry.vlan, mac: entry.mac }]);
}

#[test]
fn a_rule_that_differs_in_anything_is_another_one() {
    let mut new = base();
    new.flows.rules[0].action = crate::rule::RuleAction::Drop;
    let diff = base().diff(&new);
    assert_eq!(
        (diff.rules_del, diff.rules_add),
        (vec![base().flows.rules[0].clone()], vec![new.flows.rules[0].clone()])
    );
    assert_eq!((diff.settings, diff.needs_restart), (None, vec![]));
    assert_eq!(base().diff(&Config::default()).rules_del, base().flows.rules);
}

#[test]
fn a_setting_that_needs_a_restart_is_named_and_the_others_are_applied() {
    let mut new = base();
    new.switch.workers = 3;
    new.switch.cpus = vec![];
    new.pool.frames = 65536;
    new.pool.policy = PoolPolicy::Headroom;
    new.pool.refill = RefillKind::Adaptive;
    new.pool.refill_low = 64;
    new.loops.never_block = vec!["uplink".to_owned()];
    new.flows.max_entries = 1024;
    new.flows.idle_seconds = 5;
    new.fdb.ageing_seconds = 10;
    new.log.level = LogLevel::Warn;
    let diff = base().diff(&new);
    assert_eq!(
        diff.needs_restart,
        [
            "switch.workers",
            "switch.cpus",
            "pool.frames",
            "pool.policy",
            "pool.refill",
            "pool.refill_low",
            "loop.never_block",
            "flows.max_entries"
        ]
    );
    assert_eq!(diff.settings, Some(new.settings()));
    assert_eq!(diff.log_level, Some(LogLevel::Warn));
}
