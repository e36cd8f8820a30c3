//! How well channels cover the processors of a machine that does not exist, by the plan of `forebay channels plan` and by
//! the rule that the kernel's mlx5 driver has for NICs with several PCI functions.
//!
//! A processor is covered if it sends by one channel, and local if that channel's function is on its own node.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Args;
use forebay_control::channels::ChannelPlan;
use forebay_testbed::dut::forebay;
use forebay_testbed::{LabError, Result, command};

const LIMIT: Duration = Duration::from_secs(20);

/// Arguments of `channels`.
#[derive(Debug, Args)]
pub(crate) struct ChannelsArgs {
    /// Number of NUMA nodes, each with a PCI function
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    nodes: u32,
    /// Number of processors of each node
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=128))]
    processors: u32,
    /// Largest number of channels; all from 1 on are tried
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=256))]
    channels: u32,
}

/// Which processors send by each channel, and the channel's node.
type Senders = Vec<(u32, Vec<u32>)>;

/// Prints the table; the status says whether every processor was covered by the plan, by a channel of its own node wherever
/// there is one.
///
/// # Errors
/// When the program does not answer.
pub(crate) fn run(args: &ChannelsArgs) -> Result<ExitCode> {
    let sysfs = tempfile::tempdir().map_err(|error| LabError::system("making a directory", error))?;
    write_machine(sysfs.path(), args).map_err(|error| LabError::system("writing a sysfs", error))?;
    println!(
        "{} nodes with a function and {} processors each; processors in percent",
        args.nodes, args.processors
    );
    println!("channels   mlx5: covered  local   forebay: covered  local");
    let mut is_good = true;
    for channels in 1..=args.channels {
        let kernel = cover(args, &kernel_rule(args, channels));
        let own = cover(args, &planned(sysfs.path(), args, channels)?);
        println!("{channels:8} {:15.0} {:6.0} {:18.0} {:6.0}", kernel.0, kernel.1, own.0, own.1);
        is_good &= own.0 == 100.0 && (own.1 == 100.0 || channels < args.nodes);
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn function(node: u32) -> String {
    format!("0000:{:02x}:00.0", 0x10 + node)
}

fn write_machine(root: &Path, args: &ChannelsArgs) -> std::io::Result<()> {
    let write = |name: String, text: String| {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap_or(root))?;
        fs::write(path, text)
    };
    let all = args.nodes * args.processors;
    for list in ["online", "possible"] {
        write(format!("devices/system/cpu/{list}"), format!("0-{}", all - 1))?;
    }
    for node in 0..args.nodes {
        let first = node * args.processors;
        let distance = |other| if other == node { "10 " } else { "21 " };
        let directory = format!("devices/system/node/node{node}");
        write(format!("{directory}/cpulist"), format!("{first}-{}", first + args.processors - 1))?;
        write(format!("{directory}/distance"), (0..args.nodes).map(distance).collect())?;
        write(format!("bus/pci/devices/{}/numa_node", function(node)), node.to_string())?;
    }
    Ok(())
}

fn planned(sysfs: &Path, args: &ChannelsArgs, channels: u32) -> Result<Senders> {
    let mut command = Command::new(forebay::binary()?);
    command.args(["channels", "plan", "--json", "--channels", &channels.to_string(), "--sysfs"]).arg(sysfs);
    command.args((0..args.nodes).map(function));
    let said = command::run(command, LIMIT)?.success()?;
    let planned: Vec<ChannelPlan> = serde_json::from_str(&said.stdout).map_err(|error| {
        LabError::output(format!("`forebay channels plan` ({error})"), said.stdout.clone())
    })?;
    Ok(planned.into_iter().map(|line| (line.node.unwrap_or(u32::MAX), line.senders)).collect())
}

/// mlx5 (en_main.c and lib/cpumask.c, Linux 6.12): a function has an interrupt for each processor. Interrupt v
/// goes to the v-th nearest processor. Channel c sends for the processors of interrupt c div P and of every n-th interrupt after it, with n channels.
fn kernel_rule(args: &ChannelsArgs, channels: u32) -> Senders {
    let all = args.nodes * args.processors;
    let nearest = |node: u32, nth: u32| (node * args.processors + nth) % all;
    let by_distance = |node: u32, nth: u32| {
        // Equally far nodes come in the order of their processors.
        if nth < args.processors {
            return nearest(node, nth);
        }
        let others = (0..all).filter(|processor| processor / args.processors != node);
        others.into_iter().nth((nth - args.processors) as usize).unwrap_or_default()
    };
    let of_channel = |channel: u32| {
        let (node, first) = (channel % args.nodes, channel / args.nodes);
        let interrupts = (first..all).step_by(channels as usize);
        (node, interrupts.map(|interrupt| by_distance(node, interrupt)).collect())
    };
    (0..channels).map(of_channel).collect()
}

/// Percent of the processors that are covered, and that are local.
fn cover(args: &ChannelsArgs, senders: &Senders) -> (f64, f64) {
    let all = args.nodes * args.processors;
    let channels_of = |processor: u32| {
        senders.iter().filter(move |(_, senders)| senders.contains(&processor)).map(|(node, _)| *node)
    };
    let percent = |count: usize| 100.0 * count as f64 / f64::from(all);
    let covered = (0..all).filter(|processor| channels_of(*processor).count() == 1).count();
    let is_local = |processor: &u32| {
        let mut nodes = channels_of(*processor).peekable();
        nodes.peek().is_some() && nodes.all(|node| node == *processor / args.processors)
    };
    (percent(covered), percent((0..all).filter(is_local).count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_rule_leaves_processors_out() {
        let args = ChannelsArgs { nodes: 2, processors: 12, channels: 64 };
        let even: Vec<u32> = (0..24).step_by(2).collect();
        let sorted = |channels: u32| {
            let mut senders = kernel_rule(&args, channels);
            senders.iter_mut().for_each(|(_, senders)| senders.sort_unstable());
            senders
        };
        assert_eq!(sorted(2), [(0, even.clone()), (1, even)]);
        assert_eq!(sorted(24)[3], (1, vec![13]));
        assert_eq!(cover(&args, &sorted(24)), (100.0, 100.0));
        assert_eq!(sorted(4)[2], (0, vec![1, 5, 9, 13, 17, 21]));
    }
}
