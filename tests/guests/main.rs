//! Guest scenarios: the built program on Debian's 6.12 kernel, with NICs that drivers of real and virtual hardware run.
//!
//! Each scenario is a boot of its own. In the guest this same program runs, with the scenario's name, and its output is
//! the guest's. In some scenarios the program runs outside, and the guest is a virtual machine at its port. `FOREBAY_BIN`
//! names the program to test; it is built with cargo otherwise.
#![allow(unreachable_pub, reason = "a test binary has no outside")]

mod dim;
mod faults;
mod groups;
mod moderation;
mod moving_machine;
mod representors;
mod uplink;
mod virtual_machine;

use std::num::NonZero;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use forebay_testbed::dut::forebay::{self, BINARY_VARIABLE};
use forebay_testbed::guest::{self, Guest, Nic};
use forebay_testbed::moving::Rings;
use forebay_testbed::{LabError, Result, clean};
use libtest_mimic::{Arguments, Failed, Trial};

/// Names the program with the system scenarios, for those of them that run in a guest.
const SYSTEM_VARIABLE: &str = "FOREBAY_SYSTEM_TESTS";
/// Words in the names of system scenarios that run in a guest too: traffic of all kinds, VLANs, hints, and handovers.
const SYSTEM: [&str; 9] = [
    "every_pair_pings",
    "tcp_carries",
    "udp_datagrams",
    "web_server",
    "trunk",
    "whatever_the_layout",
    "the_next_takes_over",
    "leaves_everything_to_the_next",
    "is_promiscuous",
];
/// What `forebay-lab` measures in a guest.
const BENCHMARK: &str = "--rounds 3 --seconds 2 --only uplink --contenders uplink,bridge-xdp,bridge";
/// They take that long on an emulated processor.
const SYSTEM_LIMIT: Duration = Duration::from_secs(3600);

/// What a scenario ends with.
pub type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

/// Of the command line in the guest; the scenario's name comes next.
const INSIDE: &str = "--inside";
/// A boot takes seconds; on a machine that is busy, and without KVM, so do streams.
const LIMIT: Duration = Duration::from_secs(300);
type Scenario = (&'static str, fn() -> Outcome);

const JUMBO: &str = "jumbo_frames_pass_a_nic";
const JUMBO_AFTER_XDP: &str = "jumbo_frames_pass_a_nic_whose_mtu_grew";

/// Each with one cable, between a NIC of each kind at the switch and a virtio NIC at the host.
const SCENARIOS: [Scenario; 6] = [
    ("a_container_and_a_host_beyond_a_nic_talk", uplink::talk),
    ("they_talk_over_xdp_too_where_the_driver_has_it", uplink::talk_over_xdp),
    ("they_talk_while_the_nic_receives_for_known_stations_alone", uplink::talk_unpromiscuously),
    ("tags_pass_a_nic_that_is_a_trunk", uplink::trunk),
    (JUMBO, uplink::jumbo),
    ("a_nic_is_promiscuous_while_it_is_a_port", uplink::promiscuous),
];

/// For a NIC with several queues.
const SPREAD: Scenario = ("packets_of_a_nic_come_in_by_all_of_its_queues", uplink::spread);

/// With two cables between virtio NICs.
const BONDS: [Scenario; 2] = [
    ("a_container_and_a_host_beyond_a_bond_talk", uplink::talk_over_a_bond),
    ("a_bond_changes_its_members_under_traffic", faults::bond),
];

/// With two NUMA nodes, a NIC on each, and a cable for each to the host.
const GROUPS: [Scenario; 5] = [
    ("a_port_of_nics_on_two_nodes_has_its_channels_on_their_nodes", groups::talk_over_two),
    ("a_port_of_nics_on_two_nodes_puts_back_what_it_set", groups::put_back),
    ("packets_of_nics_on_two_nodes_stay_on_the_node_of_their_container", groups::on_one_node),
    ("a_strict_port_of_nics_waits_while_one_is_unplugged", groups::unplug_strict),
    ("a_port_of_any_nics_goes_on_while_one_is_unplugged", groups::unplug_any),
];

/// With as many cables again.
const OF_FOUR: Scenario = ("a_port_of_four_nics_has_its_channels_on_their_nodes", groups::talk_over_four);

/// Take minutes, so only `make guests` asks for them.
const FAULTS: [Scenario; 6] = [
    (JUMBO_AFTER_XDP, uplink::jumbo_after_xdp),
    ("a_nic_is_unplugged_and_plugged_again_under_traffic", faults::unplug),
    ("a_nic_goes_down_and_up_under_traffic", faults::flap),
    ("a_nic_changes_its_mtu_under_traffic", faults::mtu),
    ("a_nic_changes_its_rings_and_queues_under_traffic", faults::rings),
    ("a_nic_changes_its_offloads_under_traffic", faults::offloads),
];

/// Each with the module netdevsim, which must be compiled; so only `make guests` asks for them.
const REPRESENTORS: [Scenario; 4] = [
    ("a_driver_that_takes_all_limits_is_moderated_and_has_back_what_it_had", moderation::all_limits),
    ("representors_are_ports_and_carry_packets_in_mode_none", representors::none),
    ("representors_are_ports_and_carry_packets_in_mode_basic", representors::basic),
    ("representors_are_ports_and_carry_packets_in_mode_spp", representors::spp),
];

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some(INSIDE) {
        return inside(&words.next().unwrap_or_default());
    }
    let mut arguments = Arguments::from_args();
    // An emulator is one thread.
    arguments.test_threads.get_or_insert(std::thread::available_parallelism().map_or(1, NonZero::get));
    clean::on_signals().expect("nobody else installs a handler");
    let of_scenario = |(name, _)| {
        Nic::ALL.map(|nic| Trial::test(format!("{name}::{}", nic.name()), move || boot(name, nic)))
    };
    let mut trials: Vec<Trial> = SCENARIOS.into_iter().flat_map(of_scenario).collect();
    let of_form = |(name, _): Scenario, nic: Nic| {
        Trial::test(format!("{name}::{}", nic.name()), move || boot(name, nic)).with_ignored_flag(true)
    };
    // What does not fit into one buffer this driver never receives, with a switch or without.
    let fits = |(name, _): &Scenario| ![JUMBO, JUMBO_AFTER_XDP].contains(name);
    let unmerged = SCENARIOS.into_iter().chain(FAULTS).filter(fits);
    trials.extend(unmerged.map(|scenario| of_form(scenario, Nic::VirtioNetUnmerged)));
    let with_queues = SCENARIOS.into_iter().chain(FAULTS).chain([SPREAD]);
    trials.extend(with_queues.map(|scenario| of_form(scenario, Nic::VirtioNetQueues)));
    trials.extend(FAULTS.into_iter().flat_map(of_scenario).map(|trial| trial.with_ignored_flag(true)));
    let bonds = BONDS.map(|(name, _)| Trial::test(name, move || boot_with_bond(name)));
    trials.extend(bonds.map(|trial| trial.with_ignored_flag(true)));
    trials
        .push(Trial::test(virtual_machine::NAME, || outside(virtual_machine::NAME, virtual_machine::go_on)));
    trials.extend([("split", Rings::Split), ("packed", Rings::Packed)].map(|(rings, how)| {
        let name = format!("a_virtual_machine_goes_on_at_another_port::{rings}");
        Trial::test(name.clone(), move || outside(&name, || moving_machine::go_on(how)))
    }));
    let groups = GROUPS.into_iter().map(|scenario| (scenario, 2)).chain([(OF_FOUR, 4)]);
    let groups = groups.map(|((name, _), cables)| Trial::test(name, move || boot_with_nodes(name, cables)));
    trials.extend(groups.map(|trial| trial.with_ignored_flag(true)));
    let representors = REPRESENTORS.map(|(name, _)| Trial::test(name, move || boot_with_representors(name)));
    trials.extend(representors.map(|trial| trial.with_ignored_flag(true)));
    trials.push(Trial::test(dim::NAME, || boot_with_vduse(dim::NAME)).with_ignored_flag(true));
    trials.extend(SYSTEM.map(|word| {
        Trial::test(format!("system_scenarios::{word}"), move || boot_system(word)).with_ignored_flag(true)
    }));
    trials.push(
        Trial::test("the_benchmark_of_an_uplink_prints_its_ratios", boot_benchmark).with_ignored_flag(true),
    );
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn inside(scenario: &str) -> ExitCode {
    let mut all = SCENARIOS.into_iter().chain(FAULTS).chain(REPRESENTORS).chain(BONDS).chain(GROUPS).chain([
        OF_FOUR,
        SPREAD,
        (dim::NAME, dim::same_windows),
    ]);
    let Some((_, run)) = all.find(|(name, _)| *name == scenario) else {
        eprintln!("there is no scenario `{scenario}`");
        return ExitCode::FAILURE;
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn boot(scenario: &str, nic: Nic) -> std::result::Result<(), Failed> {
    let of_trial = format!("{scenario}::{}", nic.name());
    boot_guest(scenario, &of_trial, || Ok(Guest::default().with_cable([nic, Nic::VirtioNet])))
}

fn boot_with_bond(scenario: &str) -> std::result::Result<(), Failed> {
    let cable = [Nic::VirtioNet; 2];
    boot_guest(scenario, scenario, || Ok(Guest::default().with_cable(cable).with_cable(cable)))
}

fn boot_with_nodes(scenario: &str, cables: usize) -> std::result::Result<(), Failed> {
    let cable = [Nic::VirtioNetQueues, Nic::VirtioNet];
    let with_cables = || (0..cables).fold(Guest::default().with_nodes(), |guest, _| guest.with_cable(cable));
    boot_guest(scenario, scenario, || Ok(with_cables()))
}

fn boot_with_representors(scenario: &str) -> std::result::Result<(), Failed> {
    let with_netdevsim = || guest::netdevsim().map(|module| Guest::default().with_module(&module));
    boot_guest(scenario, scenario, with_netdevsim)
}

fn boot_with_vduse(scenario: &str) -> std::result::Result<(), Failed> {
    let with_vduse = || guest::vduse().map(|module| Guest::default().with_module(&module));
    boot_guest(scenario, scenario, with_vduse)
}

/// Runs a scenario in a guest. Skips it, with the reason, where guests do not boot or this one can't be made.
fn boot_guest(
    scenario: &str,
    of_trial: &str,
    guest: impl FnOnce() -> Result<Guest>,
) -> std::result::Result<(), Failed> {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIP: root ({of_trial})");
        return Ok(());
    }
    if let Err(why) = guests_boot() {
        println!("SKIP: guests: {why} ({of_trial})");
        return Ok(());
    }
    let guest = match guest() {
        Ok(guest) => guest,
        Err(why) => {
            println!("SKIP: {why} ({of_trial})");
            return Ok(());
        }
    };
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let script = script(&format!("'{}' {INSIDE} {scenario}", own.display()));
    let script = script.map_err(|error| Failed::from(error.to_string()))?;
    let said = guest.run(&script, LIMIT);
    said.map(|said| print!("{said}")).map_err(|error| Failed::from(error.to_string()))
}

/// Runs a scenario whose switch is not in a guest. Skips it, with the reason, where guests do not boot.
fn outside(name: &str, scenario: impl FnOnce() -> Outcome) -> std::result::Result<(), Failed> {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIP: root ({name})");
        return Ok(());
    }
    if let Err(why) = guests_boot() {
        println!("SKIP: guests: {why} ({name})");
        return Ok(());
    }
    scenario().map_err(|error| Failed::from(error.to_string()))
}

/// Whether guests boot on this machine: Debian's kernel can be had, and the emulator runs it. Tried once.
fn guests_boot() -> &'static std::result::Result<(), String> {
    static BOOTED: OnceLock<std::result::Result<(), String>> = OnceLock::new();
    BOOTED.get_or_init(|| {
        let booted = Guest::default().run("true", LIMIT);
        booted.map(drop).map_err(|error| error.to_string().lines().next().unwrap_or_default().to_owned())
    })
}

/// Runs system scenarios in a guest without NICs. It takes minutes, so only `make guests` asks for it.
fn boot_system(word: &str) -> std::result::Result<(), Failed> {
    let scenarios =
        std::env::var(SYSTEM_VARIABLE).map_err(|_| format!("{SYSTEM_VARIABLE} names no program"))?;
    let script = script(&format!("'{scenarios}' --test-threads 2 {word}"));
    let script = script.map_err(|error| Failed::from(error.to_string()))?;
    let said = Guest::default().with_memory(3072).run(&script, SYSTEM_LIMIT);
    said.map(|said| print!("{said}")).map_err(|error| Failed::from(error.to_string()))
}

/// Prints how an uplink compares with the bridge on this kernel. An emulated processor says nothing of absolute rates.
fn boot_benchmark() -> std::result::Result<(), Failed> {
    let switch = forebay::binary().map_err(|error| error.to_string())?;
    let lab = switch.with_file_name("forebay-lab");
    let command = format!("'{}' bench {BENCHMARK} --json /run/bench.json", lab.display());
    let script = script(&command).map_err(|error| Failed::from(error.to_string()))?;
    let said = Guest::default().with_memory(2048).run(&script, SYSTEM_LIMIT);
    said.map(|said| print!("{said}")).map_err(|error| Failed::from(error.to_string()))
}

fn script(command: &str) -> Result<String> {
    let switch = std::path::absolute(forebay::binary()?);
    let switch = switch.map_err(|error| LabError::system("finding the program to test", error))?;
    let windows = std::env::var_os(dim::WINDOWS_VARIABLE).map_or("", |_| dim::WINDOWS_SETTING);
    let variables = format!("{BINARY_VARIABLE}='{}' RUST_BACKTRACE=0 {windows}", switch.display());
    Ok(format!("export {variables}\nexec {command}\n"))
}
