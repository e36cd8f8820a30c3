//! Running scenarios: one test per scenario and subject, heavy ones one at a time; skips are counted at the end, and the
//! slowest scenarios named.

use std::num::NonZero;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use forebay_testbed::dut::forebay::BINARY_VARIABLE;
use forebay_testbed::{PortKind, clean};
use libtest_mimic::{Arguments, Failed, Trial};

/// Scenarios at a time for each processor: they wait for the kernel and for timers most of the time.
const AT_ONCE: usize = 2;
/// Threads: those whose scenario has no place yet sleep.
const THREADS: usize = 32;
/// Scenarios whose times are printed.
const SLOWEST: usize = 20;

/// What a scenario ends with.
pub type Outcome = Checked<()>;

/// What a part of a scenario found, if it went well.
pub type Checked<T> = Result<T, Box<dyn std::error::Error>>;

/// What a scenario is run against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The kernel's bridge, with veths.
    Bridge,
    /// Forebay, with ports of this kind.
    Forebay(PortKind),
}

impl Subject {
    fn name(self) -> &'static str {
        match self {
            Subject::Bridge => "bridge",
            Subject::Forebay(kind) => kind.name(),
        }
    }

    /// How hosts are connected.
    pub fn kind(self) -> PortKind {
        match self {
            Subject::Bridge => PortKind::VethTcx,
            Subject::Forebay(kind) => kind,
        }
    }
}

/// The scenarios, and what they share.
#[derive(Default)]
pub struct Suite {
    trials: Vec<Trial>,
    skips: Arc<Mutex<Vec<String>>>,
    times: Arc<Mutex<Vec<(Duration, String)>>>,
    places: Arc<Places>,
}

/// Places for scenarios that run at the same time: one of them is for heavy ones, the others are not.
#[derive(Default)]
struct Places {
    taken: Mutex<[usize; 2]>,
    freed: Condvar,
    /// How many there are, once that is known.
    limits: OnceLock<[usize; 2]>,
}

/// A place that a scenario has until this is dropped.
struct Place<'a> {
    places: &'a Places,
    is_heavy: bool,
}

impl Places {
    /// Waits for a place.
    fn take(&self, is_heavy: bool) -> Place<'_> {
        let (kind, limits) = (usize::from(is_heavy), self.limits.get().copied().unwrap_or([1; 2]));
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |taken: &mut [usize; 2]| taken[kind] >= limits[kind];
        let taken = self.freed.wait_while(taken, is_full);
        taken.unwrap_or_else(PoisonError::into_inner)[kind] += 1;
        Place { places: self, is_heavy }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken[usize::from(self.is_heavy)] -= 1;
        self.places.freed.notify_all();
    }
}

impl Suite {
    /// A scenario about traffic alone: on Forebay with every port kind, and on the bridge.
    pub fn everywhere(&mut self, name: &str, scenario: fn(Subject) -> Outcome) {
        self.on(name, Subject::Bridge, false, move || scenario(Subject::Bridge));
        self.on_forebay(name, scenario);
    }

    /// A scenario about Forebay, with every port kind.
    pub fn on_forebay(&mut self, name: &str, scenario: fn(Subject) -> Outcome) {
        self.on_netdevs(name, scenario);
        self.on_guests(name, false, scenario);
    }

    /// As [`Suite::on_forebay`], one at a time.
    pub fn heavy_on_forebay(&mut self, name: &str, scenario: fn(Subject) -> Outcome) {
        self.heavy_on_netdevs(name, scenario);
        self.on_guests(name, true, scenario);
    }

    /// A scenario about what a virtual machine's port has not ([`PortKind::has_netdev`]), with every other port kind.
    pub fn on_netdevs(&mut self, name: &str, scenario: fn(Subject) -> Outcome) {
        for subject in PortKind::ALL.map(Subject::Forebay) {
            self.on(name, subject, false, move || scenario(subject));
        }
    }

    /// As [`Suite::on_netdevs`], one at a time.
    pub fn heavy_on_netdevs(&mut self, name: &str, scenario: fn(Subject) -> Outcome) {
        for subject in PortKind::ALL.map(Subject::Forebay) {
            self.on(name, subject, true, move || scenario(subject));
        }
    }

    fn on_guests(&mut self, name: &str, is_heavy: bool, scenario: fn(Subject) -> Outcome) {
        let subject = Subject::Forebay(PortKind::Guest);
        self.on(name, subject, is_heavy, move || scenario(subject));
    }

    /// As [`Suite::heavy_on_forebay`], with veths only.
    pub fn heavy_on_veths(&mut self, name: &str, scenario: fn(Subject) -> Outcome) {
        for subject in [PortKind::VethTcx, PortKind::VethXdp].map(Subject::Forebay) {
            self.on(name, subject, true, move || scenario(subject));
        }
    }

    /// As [`Suite::everywhere`], for one that moves so much that two at once would disturb each other.
    pub fn heavy_everywhere(&mut self, name: &str, scenario: fn(Subject) -> Outcome) {
        self.on(name, Subject::Bridge, true, move || scenario(Subject::Bridge));
        self.heavy_on_forebay(name, scenario);
    }

    /// A scenario that has nothing to do with the port kind.
    pub fn once(&mut self, name: &str, scenario: fn() -> Outcome) {
        self.add(name.to_owned(), false, scenario);
    }

    /// As [`Suite::once`], one at a time.
    pub fn heavy_once(&mut self, name: &str, scenario: fn() -> Outcome) {
        self.add(name.to_owned(), true, scenario);
    }

    fn on(&mut self, name: &str, subject: Subject, is_heavy: bool, scenario: impl Scenario) {
        self.add(format!("{name}::{}", subject.name()), is_heavy, scenario);
    }

    fn add(&mut self, name: String, is_heavy: bool, scenario: impl Scenario) {
        let (skips, places, title) = (Arc::clone(&self.skips), Arc::clone(&self.places), name.clone());
        let times = Arc::clone(&self.times);
        self.trials.push(Trial::test(name, move || {
            let _place = places.take(is_heavy);
            let started = Instant::now();
            let outcome = run_or_skip(&title, &skips, scenario);
            times.lock().expect("no test panics while it holds this").push((started.elapsed(), title));
            outcome
        }));
    }

    /// Runs what the command line selects, then exits.
    pub fn run(self) -> ! {
        let mut arguments = Arguments::from_args();
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        // Who says how many threads there are gets as many scenarios at a time at most.
        let light = arguments.test_threads.unwrap_or(AT_ONCE * processors - 1);
        let _ = self.places.limits.set([light, 1]);
        arguments.test_threads.get_or_insert(THREADS);
        clean::on_signals().expect("nobody else installs a handler");
        let conclusion = libtest_mimic::run(&arguments, self.trials);
        let skips = self.skips.lock().map(|skips| skips.clone()).unwrap_or_default();
        println!("skipped: {}", skips.len());
        skips.iter().for_each(|skip| println!("  {skip}"));
        self.times.lock().map(|times| print_slowest(&times)).unwrap_or_default();
        conclusion.exit()
    }
}

trait Scenario: FnOnce() -> Outcome + Send + 'static {}
impl<F: FnOnce() -> Outcome + Send + 'static> Scenario for F {}

/// Whoever shortens the suite begins with these. A scenario's time is without its wait for a place.
fn print_slowest(times: &[(Duration, String)]) {
    let mut times = times.to_vec();
    times.sort_unstable_by(|one, other| other.cmp(one));
    let total: Duration = times.iter().map(|(time, _)| *time).sum();
    println!("scenarios: {} in {:.0} s of threads; the slowest:", times.len(), total.as_secs_f64());
    for (time, name) in times.iter().take(SLOWEST) {
        println!("  {:6.1} s  {name}", time.as_secs_f64());
    }
}

fn run_or_skip(title: &str, skips: &Mutex<Vec<String>>, scenario: impl Scenario) -> Result<(), Failed> {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIP: root ({title})");
        skips.lock().expect("no test panics while it holds this").push(format!("{title}: needs root"));
        return Ok(());
    }
    scenario().map_err(|error| Failed::from(error.to_string()))
}

/// Builds the program once, unless the environment names one.
pub fn ensure_program() -> Outcome {
    static BUILT: OnceLock<Result<(), String>> = OnceLock::new();
    if std::env::var_os(BINARY_VARIABLE).is_some() {
        return Ok(());
    }
    BUILT.get_or_init(build_program).clone().map_err(Into::into)
}

fn build_program() -> Result<(), String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "-p", "forebay", "--bin", "forebay"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    match cargo.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("building forebay failed:\n{}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(format!("cargo could not be started: {error}")),
    }
}
