//! Joins two vhost-user ports: what one guest sends, the other receives. One thread, which polls.
//!
//! ```sh
//! cargo run --release -p forebay-vhost --example bridge -- /tmp/a.sock /tmp/b.sock [SECONDS [FEATURES]]
//! ```
//! FEATURES changes what is offered, `-packed,-mrg` for example. Prints packets per second each way.

use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_vhost::{
    Backend, DeviceOptions, Event, Features, NetConfig, Owner, Progress, Put, RingError, Virtqueue,
};

/// Packets of one port in one turn.
const TURN: usize = 64;
/// Turns between two looks at the sockets.
const TURNS: usize = 1000;
/// Bytes of the longest packet.
const LONGEST: usize = forebay_vhost::MAX_PACKET_BYTES as usize;

/// Where what happens is told.
pub(crate) type Log = Arc<Mutex<dyn Write + Send>>;

fn tell(log: &Log, what: std::fmt::Arguments<'_>) {
    let mut log = log.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let _ = writeln!(log, "{what}");
}

struct Queues {
    receive: Option<Virtqueue>,
    transmit: Option<Virtqueue>,
    sent: u64,
    lost: u64,
    log: Log,
}

impl Owner for Queues {
    fn queue_started(&mut self, mut queue: Virtqueue) {
        tell(
            &self.log,
            format_args!(
                "queue {} started: {} entries, base {:#x}",
                queue.index(),
                queue.size(),
                queue.base()
            ),
        );
        queue.suppress_kicks();
        match queue.index() {
            0 => self.receive = Some(queue),
            1 => self.transmit = Some(queue),
            _ => tell(&self.log, format_args!("one pair is served")),
        }
    }

    fn queue_stopped(&mut self, index: usize) -> Option<Virtqueue> {
        tell(&self.log, format_args!("queue {index} stopped"));
        match index {
            0 => self.receive.take(),
            1 => self.transmit.take(),
            _ => None,
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Features(features) => {
                tell(&self.log, format_args!("features {:#x}: {:?}", features.0, features.words()))
            }
            event => tell(&self.log, format_args!("{event:?}")),
        }
    }
}

struct Port {
    listener: UnixListener,
    backend: Option<Backend>,
    queues: Queues,
    options: DeviceOptions,
}

impl Port {
    fn new(path: &Path, number: u8, features: Features, log: &Log) -> std::io::Result<Self> {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        let config = NetConfig {
            mac: [2, 0, 0, 0, 1, number],
            is_up: true,
            is_to_announce: false,
            pairs: 1,
            mtu: 1500,
        };
        Ok(Self {
            listener,
            backend: None,
            queues: Queues { receive: None, transmit: None, sent: 0, lost: 0, log: Arc::clone(log) },
            options: DeviceOptions { features, config },
        })
    }

    /// Accepts a front end, or follows what it says.
    fn look(&mut self) {
        let Some(backend) = &mut self.backend else {
            let accepted = self.listener.accept().ok();
            self.backend = accepted.map(|(stream, _): (UnixStream, _)| Backend::new(stream, self.options));
            return;
        };
        let result = backend.handle(&mut self.queues);
        match result {
            Ok(Progress::Waiting | Progress::More) => return,
            Ok(Progress::Closed) => tell(&self.queues.log, format_args!("the front end has gone")),
            Err(error) => tell(&self.queues.log, format_args!("the front end: {error}")),
        }
        self.backend = None;
    }

    fn fail(&mut self, error: RingError) {
        tell(&self.queues.log, format_args!("the guest: {error}"));
        self.queues.transmit = None;
        self.queues.receive = None;
    }
}

/// Moves a turn of packets from one port to another.
fn carry(from: &mut Queues, to: &mut Queues, buffer: &mut [u8]) -> Result<(), RingError> {
    let Some(transmit) = &mut from.transmit else { return Ok(()) };
    let mut moved = 0;
    while moved < TURN {
        if transmit.offered()?.is_none() {
            break;
        }
        moved += 1;
        let Some(receive) = &mut to.receive else {
            transmit.discard();
            from.lost += 1;
            continue;
        };
        let len = transmit.take([&mut buffer[..]]);
        match receive.put(transmit.header(), [&buffer[..len as usize]], len)? {
            Put::Done => from.sent += 1,
            Put::Full | Put::TooLong => from.lost += 1,
        }
    }
    if moved > 0 && transmit.publish() {
        let _ = transmit.call();
    }
    if let Some(receive) = &mut to.receive
        && receive.publish()
    {
        let _ = receive.call();
    }
    Ok(())
}

/// Joins the ports of two sockets until it is over.
///
/// # Errors
/// A socket cannot be made.
pub(crate) fn run(
    sockets: [&Path; 2],
    features: Features,
    log: &Log,
    is_over: impl Fn() -> bool,
) -> std::io::Result<()> {
    let [first, second] = sockets;
    let mut ports = [Port::new(first, 0, features, log)?, Port::new(second, 1, features, log)?];
    let mut buffer = vec![0; LONGEST];
    let mut next = Instant::now() + Duration::from_secs(1);
    let mut before = [0, 0];
    while !is_over() {
        let [a, b] = &mut ports;
        a.look();
        b.look();
        for _ in 0..TURNS {
            if let Err(error) = carry(&mut a.queues, &mut b.queues, &mut buffer) {
                a.fail(error);
            }
            if let Err(error) = carry(&mut b.queues, &mut a.queues, &mut buffer) {
                b.fail(error);
            }
        }
        if Instant::now() >= next {
            next += Duration::from_secs(1);
            let sent = [a.queues.sent, b.queues.sent];
            let lost = [a.queues.lost, b.queues.lost];
            let [there, back] = [sent[0] - before[0], sent[1] - before[1]];
            tell(log, format_args!("{there:9} -> {back:9} <- packets/s, lost {lost:?}"));
            before = sent;
        }
    }
    for port in &mut ports {
        if let Some(backend) = &mut port.backend {
            backend.stop(&mut port.queues);
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [first, second, rest @ ..] = &arguments[..] else {
        return Err("usage: bridge SOCKET SOCKET [SECONDS [FEATURES]]".into());
    };
    let seconds: u64 = rest.first().map_or(Ok(u64::MAX >> 1), |seconds| seconds.parse())?;
    let features = Features::ALL.masked(rest.get(1).map_or("-ctrl", |words| words))?;
    let start = Instant::now();
    let log: Log = Arc::new(Mutex::new(std::io::stdout()));
    run([first.as_ref(), second.as_ref()], features, &log, || {
        start.elapsed() >= Duration::from_secs(seconds)
    })?;
    Ok(())
}
