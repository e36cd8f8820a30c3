//! Disturbances: ports and links come and go, settings change, one thing after the other. Steady hosts are spared.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use forebay_testbed::{PortKind, Result, wait};

use super::world::{STEADY, World};
use crate::interrupt::Interrupt;

/// Ports deleted or added by one request, at most.
const BATCH: usize = 8;
/// The longest pause within and between disturbances.
const PAUSE_MS: u64 = 120;
/// Spool modes, with the pool's size and policy in each.
const MODES: [(&str, &str, &str); 4] = [
    ("none", "8192", "dt"),
    ("basic", "16384", "headroom"),
    ("spp", "32768", "headroom"),
    ("basic", "16384", "dt"),
];
/// How long a mode stays.
const MODE_TIME: Duration = Duration::from_secs(1);
/// Within which a netdev that was deleted can be made anew.
const PLUG_LIMIT: Duration = Duration::from_secs(5);

/// One kind of disturbance.
type Act = fn(&mut Churn, &mut World, usize) -> Result<()>;

/// All kinds, by name; those that are listed twice happen twice as often.
const ACTS: [(&str, Act); 12] = [
    ("delete some ports", Churn::delete_some),
    ("add what is missing", Churn::add_some),
    ("add what is missing", Churn::add_some),
    ("delete and add a port", Churn::recreate),
    ("delete and add a port", Churn::recreate),
    ("switch a port's netdev off and on", Churn::flap_here),
    ("switch a host's netdev off and on", Churn::flap_there),
    ("delete a netdev and make it anew", Churn::replug),
    ("move a netdev away and back", Churn::travel),
    ("rename a netdev and back", Churn::rename),
    ("isolate a port and join it again", Churn::isolate),
    ("forget all stations and ask for everything", Churn::flush_and_ask),
];

/// What is disturbed next, and which ports are away at the moment.
#[derive(Debug)]
pub(super) struct Churn {
    random: fastrand::Rng,
    interrupt: Interrupt,
    absent: BTreeSet<usize>,
    done: u64,
    slowest: (Duration, &'static str),
    /// Where the next spool mode is in [`MODES`], and when it is due; `None`: the mode stays.
    next_mode: Option<(usize, Instant)>,
}

impl Churn {
    pub(super) fn new(random: fastrand::Rng, interrupt: Interrupt, with_modes: bool) -> Churn {
        let next_mode = with_modes.then(|| (0, Instant::now()));
        let slowest = (Duration::ZERO, "none");
        Churn { random, interrupt, absent: BTreeSet::new(), done: 0, slowest, next_mode }
    }

    /// Disturbs one thing. The switch must not mind: a refusal is a finding.
    pub(super) fn disturb(&mut self, world: &mut World) {
        self.change_mode(world);
        let (name, act) = ACTS[self.random.usize(..ACTS.len())];
        let host = self.random.usize(STEADY..world.hosts.len());
        let start = Instant::now();
        if let Err(error) = act(self, world, host) {
            world.ledger.note(format_args!("disturbance `{name}` at {}: {error}", world.name(host)));
        }
        self.done += 1;
        self.slowest = self.slowest.max((start.elapsed(), name));
        self.pause();
    }

    /// Changes the spool mode once a second, and each time round the pool's size and policy.
    fn change_mode(&mut self, world: &mut World) {
        let Some((next, due)) = self.next_mode else { return };
        if Instant::now() < due {
            return;
        }
        let (mode, frames, policy) = MODES[next];
        let client = world.client();
        let start = Instant::now();
        let changed = client
            .ok(&["eswitch", "set", "spool-mode", mode])
            .and_then(|_| client.ok(&["pool", "set", "--frames", frames, "--policy", policy]));
        self.slowest = self.slowest.max((start.elapsed(), "change the spool mode and the pool"));
        if world.is_running() {
            world.ledger.expect("changing the spool mode", changed.map(drop));
        }
        self.next_mode = Some(((next + 1) % MODES.len(), start + MODE_TIME));
    }

    /// As every daemon starts, so that checkpoints can be compared.
    fn leave_modes(&self, world: &mut World) {
        if self.next_mode.is_some() {
            let client = world.client();
            let left = client
                .ok(&["eswitch", "set", "spool-mode", "spp"])
                .and_then(|_| client.ok(&["pool", "set", "--frames", "16384", "--policy", "dt"]));
            world.ledger.expect("going back to spp for a checkpoint", left.map(drop));
        }
    }

    /// Adds the ports that are away.
    pub(super) fn restore(&mut self, world: &mut World) {
        if world.is_running() {
            self.leave_modes(world);
        }
        let absent: Vec<usize> = std::mem::take(&mut self.absent).into_iter().collect();
        if absent.is_empty() || !world.is_running() {
            return;
        }
        let added = world.add(&absent);
        world.ledger.expect("adding the missing ports for a checkpoint", added);
    }

    /// A new daemon has been given all ports.
    pub(super) fn forget_absent(&mut self) {
        self.absent.clear();
    }

    /// Says how much was disturbed since the last summary, and what took longest.
    pub(super) fn summary(&mut self) -> String {
        let (done, (took, name)) = (std::mem::take(&mut self.done), std::mem::take(&mut self.slowest));
        format!("{done}; the slowest took {:.1} s: {name}", took.as_secs_f64())
    }

    fn pause(&mut self) {
        self.interrupt.wait(Duration::from_millis(self.random.u64(..PAUSE_MS)));
    }

    fn delete_some(&mut self, world: &mut World, _: usize) -> Result<()> {
        let count = self.random.usize(1..=BATCH);
        let present: Vec<usize> =
            (STEADY..world.hosts.len()).filter(|index| !self.absent.contains(index)).collect();
        let chosen = self.random.choose_multiple(present, count);
        if chosen.is_empty() {
            return Ok(());
        }
        self.absent.extend(&chosen);
        world.delete(&chosen)
    }

    fn add_some(&mut self, world: &mut World, _: usize) -> Result<()> {
        let count = self.random.usize(1..=BATCH);
        let chosen = self.random.choose_multiple(self.absent.iter().copied(), count);
        self.absent.retain(|index| !chosen.contains(index));
        if chosen.is_empty() { Ok(()) } else { world.add(&chosen) }
    }

    fn recreate(&mut self, world: &mut World, host: usize) -> Result<()> {
        if !self.absent.contains(&host) {
            world.delete(&[host])?;
        }
        self.absent.remove(&host);
        world.add(&[host])
    }

    fn flap_here(&mut self, world: &mut World, host: usize) -> Result<()> {
        let name = world.name(host);
        world.lab.switch().ip(&["link", "set", &name, "down"])?;
        self.pause();
        world.lab.switch().ip(&["link", "set", &name, "up"]).map(drop)
    }

    fn flap_there(&mut self, world: &mut World, host: usize) -> Result<()> {
        let set = |state| world.hosts.get(host).netns().ip(&["link", "set", "eth0", state]).map(drop);
        set("down")?;
        self.pause();
        set("up")
    }

    fn replug(&mut self, world: &mut World, host: usize) -> Result<()> {
        world.hosts.get(host).pull_out()?;
        self.pause();
        // A program that is just being started holds a copy of every descriptor until it is executed, the tap's too.
        let plug_in = || world.hosts.get(host).plug_in(world.lab.switch());
        wait::until("the netdev to be made", PLUG_LIMIT, || plug_in().is_ok())
    }

    /// Taps stay: theirs is a descriptor of this process.
    fn travel(&mut self, world: &mut World, host: usize) -> Result<()> {
        if world.hosts.get(host).kind() == PortKind::Tap {
            return Ok(());
        }
        let (name, switch) = (world.name(host), world.lab.switch());
        let away = world.lab.extra_netns("away")?;
        switch.ip(&["link", "set", &name, "netns", away.name()])?;
        self.pause();
        away.ip(&["link", "set", &name, "netns", switch.name()])?;
        switch.ip(&["link", "set", &name, "up"]).map(drop)
    }

    fn rename(&mut self, world: &mut World, host: usize) -> Result<()> {
        let (name, switch) = (world.name(host), world.lab.switch());
        switch.ip(&["link", "set", &name, "name", "elsewhat"])?;
        self.pause();
        switch.ip(&["link", "set", "elsewhat", "name", &name]).map(drop)
    }

    fn isolate(&mut self, world: &mut World, host: usize) -> Result<()> {
        if self.absent.contains(&host) {
            return Ok(());
        }
        let name = world.name(host);
        world.client().ok(&["port", "set", &name, "--isolated", "on"])?;
        self.pause();
        world.client().ok(&["port", "set", &name, "--isolated", "off"]).map(drop)
    }

    fn flush_and_ask(&mut self, world: &mut World, _: usize) -> Result<()> {
        let client = world.client();
        client.ok(&["fdb", "flush"])?;
        client.stats()?;
        client.ports()?;
        client.pool()?;
        client.fdb().map(drop)
    }
}
