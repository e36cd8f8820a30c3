//! What a well-formed configuration must keep to besides.

mod rules;

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::ops::RangeInclusive;

use super::api::mode_bits;
use super::location::{Problem, Step};
use super::{ApiConfig, Config, FdbConfig, FloodConfig, FlowsConfig, LoopConfig, PoolConfig, SwitchConfig};
use crate::coalesce::CoalesceConfig;
use crate::coalesce::stated::StatedError;
use crate::error::ApiError;
use crate::fdb::FdbAdd;
use crate::id::{MacAddr, Vid};
use crate::memory;
use crate::port::{PortSpec, check_port_name};

/// The kernel takes 107 bytes (`sun_path` less the terminating zero, unix(7)). A path without `.sock` becomes 8 bytes
/// longer for the read-only socket, and the daemon binds under a name that is 4 bytes longer still.
const SOCKET_PATH_MAX_BYTES: usize = 95;

type Checked = Result<(), Problem>;

pub(super) fn check(config: &Config) -> Checked {
    switch(&config.switch)?;
    api(&config.api)?;
    pool(&config.pool, config.switch.workers)?;
    fdb(&config.fdb)?;
    flood(&config.flood)?;
    loops(&config.loops)?;
    flows(&config.flows)?;
    coalesce(&config.coalesce)?;
    ports(&config.ports, config.switch.max_ports)?;
    static_entries(config)?;
    rules::check(config)
}

fn switch(switch: &SwitchConfig) -> Checked {
    range("switch", "workers", switch.workers.into(), 1..=64)?;
    range("switch", "linger_us", switch.linger_us.into(), 0..=1000)?;
    range("switch", "max_ports", switch.max_ports.into(), 1..=4096)?;
    if !(1..=SOCKET_PATH_MAX_BYTES).contains(&switch.socket.len()) {
        let limit = format!("a path of 1 to {SOCKET_PATH_MAX_BYTES} bytes");
        return refuse("switch", "socket", &switch.socket, &limit, "choose a shorter path");
    }
    cpus(switch)
}

fn api(api: &ApiConfig) -> Checked {
    for (key, mode) in [("mode", &api.mode), ("read_only_mode", &api.read_only_mode)] {
        if mode_bits(mode).is_none() {
            return refuse("api", key, mode, "octal digits from 0000 to 0777", "write it as in \"0660\"");
        }
    }
    Ok(())
}

fn cpus(switch: &SwitchConfig) -> Checked {
    let (count, workers) = (switch.cpus.len(), switch.workers as usize);
    if count != 0 && count != workers {
        let limit = format!("one CPU for each of the {workers} workers, or none");
        return refuse(
            "switch",
            "cpus",
            format!("{count} CPUs"),
            &limit,
            "change switch.cpus or switch.workers",
        );
    }
    match first_repeated(&switch.cpus) {
        Some(cpu) => refuse("switch", "cpus", cpu, "each CPU once", "name another CPU"),
        None => Ok(()),
    }
}

fn first_repeated(cpus: &[u32]) -> Option<u32> {
    (1..cpus.len()).find(|end| cpus[..*end].contains(&cpus[*end])).map(|position| cpus[position])
}

fn pool(pool: &PoolConfig, workers: u32) -> Checked {
    range("pool", "frames", pool.frames.into(), 1024..=1_048_576)?;
    if ![2048, 4096].contains(&pool.frame_size) {
        return refuse(
            "pool",
            "frame_size",
            pool.frame_size,
            "2048 or 4096",
            "choose 2048 to save memory, or 4096 so that longer packets fit into one frame",
        );
    }
    if !pool.rx_ring_depth.is_power_of_two() || !(64..=4096).contains(&pool.rx_ring_depth) {
        let remedy = "choose 64, 128, 256, 512, 1024, 2048 or 4096";
        return refuse("pool", "rx_ring_depth", pool.rx_ring_depth, "a power of two from 64 to 4096", remedy);
    }
    range("pool", "refill_low", pool.refill_low.into(), 1..=4096)?;
    let least = memory::least_frames(workers);
    if pool.frames < least {
        let limit = format!("at least {least} for switch.workers = {workers}");
        return refuse("pool", "frames", pool.frames, &limit, "give more frames, or have fewer workers");
    }
    if pool.frames / 2 < pool.rx_ring_depth {
        let limit = format!("at least twice pool.rx_ring_depth, {}", u64::from(pool.rx_ring_depth) * 2);
        return refuse("pool", "frames", pool.frames, &limit, "give more frames or shorter rings");
    }
    Ok(())
}

fn fdb(fdb: &FdbConfig) -> Checked {
    range("fdb", "ageing_seconds", fdb.ageing_seconds.into(), 1..=1_000_000)?;
    range("fdb", "max_entries", fdb.max_entries.into(), 1..=1_048_576)?;
    if !(1..=fdb.max_entries).contains(&fdb.max_entries_per_port) {
        let limit = format!("1 to fdb.max_entries, {}", fdb.max_entries);
        return refuse(
            "fdb",
            "max_entries_per_port",
            fdb.max_entries_per_port,
            &limit,
            "change one of the two",
        );
    }
    if fdb.moves_per_second > 0 && fdb.burst_moves == 0 {
        let remedy = "no station could ever move; set fdb.moves_per_second = 0 for no limit";
        return refuse("fdb", "burst_moves", 0, "at least 1", remedy);
    }
    Ok(())
}

fn flood(flood: &FloodConfig) -> Checked {
    if flood.copies_per_second > 0 && flood.burst_copies == 0 {
        let remedy = "with 0 no packet would be flooded; set flood.copies_per_second = 0 for no limit";
        return refuse("flood", "burst_copies", 0, "at least 1", remedy);
    }
    Ok(())
}

fn loops(loops: &LoopConfig) -> Checked {
    range("loop", "interval_ms", loops.interval_ms.into(), 200..=60_000)?;
    match loops.never_block.iter().find_map(|name| check_port_name(name).err()) {
        Some(error) => {
            let path = vec![Step::Key("loop"), Step::Key("never_block")];
            Err(Problem { path, message: format!("loop.never_block: {error}") })
        }
        None => Ok(()),
    }
}

fn flows(flows: &FlowsConfig) -> Checked {
    range("flows", "max_entries", flows.max_entries.into(), 1024..=1_048_576)?;
    range("flows", "idle_seconds", flows.idle_seconds.into(), 1..=3600)?;
    range("flows", "installs_per_second", flows.installs_per_second.into(), 1..=1_000_000)
}

fn coalesce(coalesce: &CoalesceConfig) -> Checked {
    coalesce.check().map_err(|(key, wrong)| {
        let path = vec![Step::Key("coalesce"), Step::Key(key)];
        stated_problem(path, &wrong, &format!("coalesce.{key}"))
    })
}

/// At the key of a stated moderation that is wrong.
fn stated_problem(mut path: Vec<Step>, wrong: &StatedError, name: &str) -> Problem {
    const KEYS: [&str; 8] = ["queue", "direction", "policy", "where", "guest", "usecs", "frames", "profile"];
    path.push(Step::Item(wrong.index));
    path.extend(KEYS.iter().find(|key| wrong.error.field.as_deref() == Some(key)).map(|key| Step::Key(key)));
    Problem { path, message: format!("{name}: {}", wrong.error) }
}

fn ports(ports: &[PortSpec], max_ports: u32) -> Checked {
    if ports.len() > max_ports as usize {
        let message =
            format!("[[port]]: {} ports, limit switch.max_ports = {max_ports}; raise it", ports.len());
        return Err(Problem { path: vec![Step::Key("port"), Step::Item(max_ports as usize)], message });
    }
    let (mut names, mut netdevs) = (HashMap::new(), HashMap::new());
    for (index, port) in ports.iter().enumerate() {
        port.validate().map_err(|error| port_problem(index, port, &error))?;
        let name_key = if port.name.is_some() { "name" } else { "netdev" };
        if let Some(socket) = &port.vhost_user {
            once(&mut netdevs, &socket.path, index, "vhost_user")?;
        } else if port.is_group() {
            port.group.iter().try_for_each(|member| once(&mut netdevs, member, index, "group"))?;
        } else {
            once(&mut netdevs, &port.netdev, index, "netdev")?;
        }
        once(&mut names, port.port_name(), index, name_key)?;
    }
    Ok(())
}

fn port_problem(index: usize, port: &PortSpec, error: &ApiError) -> Problem {
    if error.field.as_deref() == Some("coalesce")
        && let Err(wrong) = port.check_coalesce(&port.coalesce)
    {
        return stated_problem(port_path(index, "coalesce"), &wrong, "port.coalesce");
    }
    let key = match error.field.as_deref() {
        Some("name") => "name",
        Some("group") => "group",
        Some("attach") => "attach",
        Some("vhost_user" | "owner" | "mode" | "queues" | "mtu" | "features") => "vhost_user",
        _ => "netdev",
    };
    Problem { path: port_path(index, key), message: format!("port.{error}") }
}

fn once<'a>(seen: &mut HashMap<&'a str, usize>, value: &'a str, index: usize, key: &'static str) -> Checked {
    match seen.insert(value, index) {
        None => Ok(()),
        Some(first) => {
            let message = format!(
                "port.{key}: `{value}` is used by ports {} and {} of the file, limit once; remove one of them",
                first + 1,
                index + 1
            );
            Err(Problem { path: port_path(index, key), message })
        }
    }
}

fn port_path(index: usize, key: &'static str) -> Vec<Step> {
    vec![Step::Key("port"), Step::Item(index), Step::Key(key)]
}

fn static_entries(config: &Config) -> Checked {
    let (entries, max) = (&config.fdb.static_entries, config.fdb.max_entries as usize);
    if entries.len() > max {
        let message =
            format!("fdb.static: {} entries, limit fdb.max_entries = {max}; raise it", entries.len());
        return Err(Problem { path: static_path(max, "mac"), message });
    }
    let ports = config.ports.iter().map(|port| (port.port_name(), port)).collect();
    let mut seen = HashSet::new();
    for (index, entry) in entries.iter().enumerate() {
        station(index, entry, &mut seen)?;
        static_port(index, entry, &ports)?;
    }
    Ok(())
}

fn station(index: usize, entry: &FdbAdd, seen: &mut HashSet<(Vid, MacAddr)>) -> Checked {
    let problem = |message| Problem { path: static_path(index, "mac"), message };
    entry.validate().map_err(|error| problem(format!("fdb.static.{error}")))?;
    if seen.insert((entry.vlan, entry.mac)) {
        return Ok(());
    }
    let (mac, vlan) = (entry.mac, entry.vlan);
    Err(problem(format!(
        "fdb.static.mac: {mac} is given twice in VLAN {vlan}, limit once; remove one of them"
    )))
}

fn static_port(index: usize, entry: &FdbAdd, ports: &HashMap<&str, &PortSpec>) -> Checked {
    let (name, vlan) = (&entry.port, entry.vlan);
    let Some(port) = ports.get(name.as_str()) else {
        let message = format!(
            "fdb.static.port: no [[port]] is named `{name}`; add it, or add the entry later with `forebay fdb add`"
        );
        return Err(Problem { path: static_path(index, "port"), message });
    };
    if port.vlan.carries(vlan) {
        return Ok(());
    }
    let message = format!(
        "fdb.static.vlan: port `{name}` is `{}` and does not carry VLAN {vlan}; change one of them",
        port.vlan
    );
    Err(Problem { path: static_path(index, "vlan"), message })
}

fn static_path(index: usize, key: &'static str) -> Vec<Step> {
    vec![Step::Key("fdb"), Step::Key("static"), Step::Item(index), Step::Key(key)]
}

fn range(table: &'static str, key: &'static str, value: u64, allowed: RangeInclusive<u64>) -> Checked {
    if allowed.contains(&value) {
        return Ok(());
    }
    let limit = format!("{} to {}", allowed.start(), allowed.end());
    refuse(table, key, value, &limit, "choose a value within the limit")
}

fn refuse(table: &'static str, key: &'static str, value: impl Display, limit: &str, remedy: &str) -> Checked {
    let message = format!("{table}.{key} is not valid (value: {value}; limit: {limit}); {remedy}");
    Err(Problem { path: vec![Step::Key(table), Step::Key(key)], message })
}
