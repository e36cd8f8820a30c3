//! `forebay run`: the daemon in the foreground.
//!
//! One control thread serves the API and waits for signals; whatever may block is asked for on threads made for that.
//! The order of the start is the order in which it is cheap to fail: configuration, machine, socket, switch. Requests
//! that arrive meanwhile wait in the socket's backlog.

mod apply;
mod handover;
mod notice;
mod settings;
mod watchdog;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_control::config::read_only_socket;
use forebay_control::{Config, SwitchControl};
use sd_notify::NotifyState;
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::api::server::{Limits, serve};
use crate::api::{Api, metrics_router, read_only_router, router};
use crate::cli::RunArgs;
use crate::log::{self, LogHandle};
use crate::output::print;
use crate::socket::{Access, OwnedSocket, SocketError};
use crate::{preflight, wiring};

use handover::Leaving;
use notice::notify;
use settings::{Source, SourceError};

/// Blocking calls at once; the rest waits its turn. Scrapes take one at most, so eight are left for requests.
const BLOCKING_THREADS: usize = 9;
/// How long the switch may take to stop. To detach a tcx program takes 14 ms at 250 Hz where grace periods cannot be
/// shortened, as in the unit: 4.3 s for 300 ports, about a minute for 4096, and as much before that where a request has
/// just begun to add them. A process that just ends would not be faster, because the kernel detaches them then.
const STOP_TIMEOUT: Duration = Duration::from_secs(150);

/// Why the daemon ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DaemonError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("this machine can't run the switch:\n  {}\n`forebay doctor` shows all checks", .0.join("\n  "))]
    Machine(Vec<String>),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(
        "can't serve metrics on {address}: {error}; change metrics.listen in the configuration file, or --metrics-listen"
    )]
    Metrics { address: SocketAddr, error: io::Error },
    #[error("can't start the switch: {0}")]
    Start(#[from] wiring::StartError),
    #[error("can't start the control thread: {0}")]
    Control(#[from] io::Error),
    #[error(
        "can't take over from the last daemon: {0}; if something that it left is the reason, --clean removes it"
    )]
    Handover(#[from] forebay_kernel::DatapathError),
    #[error("the switch did not stop within {} s; the process ends all the same, and the kernel frees what it held", STOP_TIMEOUT.as_secs())]
    Stop,
    #[error("asked to end a second time before the switch had stopped; the kernel takes back what it held")]
    Hurried,
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(socket: Option<PathBuf>, args: RunArgs) -> Result<(), DaemonError> {
    let check_only = args.check;
    let args_given = args.clone();
    let source = Source::new(socket, args);
    let config = source.load()?;
    let leaving = Leaving::new(&args_given, config.switch.socket.as_ref());
    if check_only {
        print("the configuration is valid");
        return Ok(());
    }
    let log = log::start(config.log.level);
    check_machine()?;
    let runtime = runtime()?;
    let ended = start_and_serve(&runtime, source, config, log, leaving);
    runtime.shutdown_background();
    ended
}

fn check_machine() -> Result<(), DaemonError> {
    let missing = preflight::missing(&wiring::probe());
    if missing.is_empty() { Ok(()) } else { Err(DaemonError::Machine(missing)) }
}

/// The control thread, with a bounded number of threads for what may block.
pub(crate) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("fb-control")
        .build()
}

fn start_and_serve(
    runtime: &Runtime,
    source: Source,
    config: Config,
    log: LogHandle,
    mut leaving: Leaving,
) -> Result<(), DaemonError> {
    let _inside = runtime.enter();
    let mut signals = Signals::new()?;
    leaving.ask_for(config.switch.socket.as_ref());
    let socket: &Path = config.switch.socket.as_ref();
    let access = Access { group: &config.api.group, mode: config.api.mode_bits() };
    let (owned, listener) = OwnedSocket::bind(socket, access)?;
    let access = Access { group: &config.api.read_only_group, mode: config.api.read_only_mode_bits() };
    let (owned_reading, reading) = OwnedSocket::bind(&read_only_socket(socket), access)?;
    let (listener, reading) = (UnixListener::from_std(listener)?, UnixListener::from_std(reading)?);
    let metrics = bind_metrics(config.metrics.listen)?;
    let handover = leaving.prepare()?;
    let switch = wiring::start_switch(&config, handover)?;
    let applied = apply::at_start(switch.as_ref(), leaving.applied().as_ref(), &config);
    leaving.note_applied(&applied);
    let state = Running { switch: Arc::clone(&switch), source, applied, log, leaving };
    runtime.block_on(async {
        let api = Api::new(Arc::clone(&switch), wiring::probe);
        tokio::spawn(serve(listener, router(api.clone()), Limits::UNIX));
        let reader = read_only_router(api.clone(), config.switch.socket.clone());
        tokio::spawn(serve(reading, reader, Limits::UNIX));
        if let Some(metrics) = metrics {
            tokio::spawn(serve(TcpListener::from_std(metrics)?, metrics_router(api), Limits::TCP));
        }
        tokio::spawn(watchdog::feed(Arc::clone(&switch)));
        match state.wait_for_signals(&mut signals).await {
            End::Stop => stop(switch, &mut signals).await,
            End::Leave => {
                switch.leave();
                // The next daemon begins when the first socket is free; it takes both.
                drop(owned_reading);
                drop(owned);
                tracing::info!("ports, flows and counters are left to the next daemon");
                // Nothing is dropped: what is attached stays.
                std::process::exit(0)
            }
        }
    })
}

fn bind_metrics(address: Option<SocketAddr>) -> Result<Option<std::net::TcpListener>, DaemonError> {
    let Some(address) = address else { return Ok(None) };
    let failed = |error| DaemonError::Metrics { address, error };
    let listener = std::net::TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(Some(listener))
}

async fn stop(switch: Arc<dyn SwitchControl>, signals: &mut Signals) -> Result<(), DaemonError> {
    notify(&[NotifyState::Stopping]);
    tracing::info!("the daemon is stopping");
    let stopping = tokio::task::spawn_blocking(move || switch.shutdown());
    let failed = tokio::select! {
        stopped = tokio::time::timeout(STOP_TIMEOUT, stopping) => match stopped {
            Ok(Ok(())) => return Ok(()),
            _ => DaemonError::Stop,
        },
        _ = signals.terminate.recv() => DaemonError::Hurried,
        _ = signals.interrupt.recv() => DaemonError::Hurried,
    };
    wiring::abandon_switch();
    Err(failed)
}

struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
    leave: Signal,
}

/// How a daemon ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Stop,
    Leave,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            leave: signal(SignalKind::user_defined1())?,
        })
    }
}

/// The daemon at work.
struct Running {
    switch: Arc<dyn SwitchControl>,
    source: Source,
    applied: Config,
    log: LogHandle,
    leaving: Leaving,
}

impl Running {
    /// Until one tells to end. A service manager may send several at once, of which the one to leave counts.
    async fn wait_for_signals(mut self, signals: &mut Signals) -> End {
        notify(&[NotifyState::Ready]);
        tracing::info!(socket = self.applied.switch.socket, "the daemon is ready");
        loop {
            tokio::select! {
                biased;
                _ = signals.leave.recv() => return self.leave(),
                _ = signals.terminate.recv() => return self.stop(),
                _ = signals.interrupt.recv() => return self.stop(),
                _ = signals.hangup.recv() => self.reload().await,
            }
        }
    }

    /// Without --handover there is nobody to leave anything to.
    fn leave(&self) -> End {
        if self.leaving.is_wanted() { End::Leave } else { self.stop() }
    }

    fn stop(&self) -> End {
        self.leaving.forget();
        End::Stop
    }

    async fn reload(&mut self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => notify(&[NotifyState::Reloading, now]),
            Err(_) => notify(&[NotifyState::Reloading]),
        }
        match self.source.load() {
            Ok(new) => self.apply(new).await,
            Err(error) => {
                tracing::error!("the configuration file is not applied, and nothing has changed: {error}")
            }
        }
        notify(&[NotifyState::Ready]);
    }

    async fn apply(&mut self, new: Config) {
        let (switch, old) = (Arc::clone(&self.switch), self.applied.clone());
        self.log.set_level(new.log.level);
        match tokio::task::spawn_blocking(move || apply::difference(switch.as_ref(), &old, &new)).await {
            Ok(applied) => {
                self.leaving.note_applied(&applied);
                self.applied = applied;
            }
            Err(error) => {
                tracing::error!(%error, "the daemon failed while it applied the configuration file")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_metrics_address_is_named_with_the_key_to_change() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let message = bind_metrics(Some(address)).unwrap_err().to_string();
        assert!(message.contains(&address.to_string()) && message.contains("metrics.listen"), "{message}");
    }
}
