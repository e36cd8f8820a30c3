//! Daemons are killed below machines, which go on.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use forebay_testbed::bpffs::BpfFs;
use forebay_testbed::dut::{self, Dut, Forebay, ForebayOptions};
use forebay_testbed::host::PortKind;
use forebay_testbed::machine::{Machine, MachineOptions};
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::relay::{Relay, RelayOptions};
use forebay_testbed::{Host, Lab, LabError, Result, wait};

use super::pings::{lost_none, ping_cells};
use super::{Report, Table};

/// Port, address, and the features that it is not offered.
const MACHINES: [(&str, Ipv4Addr, &str); 2] =
    [("split", Ipv4Addr::new(10, 66, 200, 1), "-packed"), ("packed", Ipv4Addr::new(10, 66, 200, 2), "")];
const ECHO_PORT: u16 = 5002;
const SERVING: &str = "serving";
const PAUSE: Duration = Duration::from_millis(5);
const LIMIT: Duration = Duration::from_secs(30);

/// A machine, its front end, and a connection into it.
struct Guest {
    // In this order: the machine goes before its relay.
    machine: Machine,
    _relay: Relay,
    connection: TcpStream,
    longest: Duration,
}

pub(super) fn measure(kills: u32, report: &mut Report) -> Result<()> {
    let mut lab = Lab::new("switch-kills")?;
    let pins = BpfFs::mount(&lab)?;
    let options = ForebayOptions::default().offloaded().handing_over(&pins);
    let hosts = lab.hosts(2, PortKind::VethTcx)?;
    let mut forebay = Forebay::start(&lab, options.clone())?;
    forebay.add_ports(&dut::ports_of(&hosts))?;
    let mut guests = Vec::new();
    for machine in MACHINES {
        guests.push(Guest::boot(&lab, &forebay, &hosts[0], machine)?);
    }
    dut::wait_until_it_carries(&hosts[0], &hosts[1])?;
    let ping = Ping::new(hosts[1].v4()).every(PAUSE);
    let (away, pings, outage) = ping.during(&hosts[0], &lab.path("ping.log"), || {
        let mut longest = Duration::ZERO;
        for number in 1..=kills {
            eprintln!("daemon {number} of {kills}");
            let killed = Instant::now();
            forebay.kill()?;
            forebay = Forebay::start(&lab, options.clone())?;
            longest = longest.max(killed.elapsed());
            guests.iter_mut().try_for_each(|guest| guest.goes_on(number, killed))?;
        }
        Ok(longest)
    })?;

    let mut table = Table::new(
        format!("{kills} daemons killed below machines"),
        ["who", "longest without a daemon, ms", "longest until its connection carries again, ms", "goes on"],
    );
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    for ((name, ..), guest) in MACHINES.iter().zip(&mut guests) {
        let goes_on = guest.machine.is_running();
        let rings = format!("machine with {name} rings");
        let word = if goes_on { "yes" } else { "NO" };
        table.row([rings.as_str().into(), millis(away).into(), millis(guest.longest).into(), word.into()]);
        if !goes_on {
            report.broken(format!("the {rings} has ended"));
        }
    }
    report.table(table);
    let mut table = Table::new("Pings beside", ["from, to", "sent", "lost", "in a row"]);
    let [sent, lost, row] = ping_cells(&pings, outage);
    table.row(["container, container".into(), sent, lost, row]);
    report.table(table);
    if !lost_none(&pings) {
        report.broken(format!("container, container: {pings:?}"));
    }
    let is_balanced = || forebay.client().stats_check().is_ok_and(|check| check.balanced);
    if wait::until("the counters to balance", LIMIT, is_balanced).is_err() {
        report.broken("the counters do not balance");
    }
    Ok(())
}

impl Guest {
    fn boot(lab: &Lab, forebay: &Forebay, host: &Host, machine: (&str, Ipv4Addr, &str)) -> Result<Guest> {
        let (name, v4, mask) = machine;
        let (switch, socket) = (lab.path(name), lab.path(&format!("{name}.relay")));
        let features = format!("--features={mask}");
        let arguments = ["port", "add", name, "--vhost-user", &switch.to_string_lossy(), &features];
        forebay.client().ok(&arguments)?;
        let keeps_notes = mask.is_empty();
        let options = RelayOptions { keeps_notes, ..RelayOptions::default() };
        let relay = Relay::start(&socket, &switch, &options)?;
        let script = format!("echo {SERVING}; busybox nc -ll -p {ECHO_PORT} -e cat");
        let options = MachineOptions::new(name, &socket, v4, &script);
        let mut machine = Machine::boot(lab, &options)?;
        machine.wait_for_output(SERVING)?;
        let connect = || TcpStream::connect((v4, ECHO_PORT)).ok();
        let connection =
            wait::until_some("a connection into the machine", LIMIT, || host.netns().enter(connect).ok()?)?;
        connection.set_read_timeout(Some(LIMIT)).map_err(failed)?;
        Ok(Guest { machine, _relay: relay, connection, longest: Duration::ZERO })
    }

    /// Says something over the connection that was there before the daemon was killed, and waits for the echo.
    fn goes_on(&mut self, number: u32, killed: Instant) -> Result<()> {
        let (said, mut heard) = (number.to_be_bytes(), [0; 4]);
        self.connection.write_all(&said).map_err(failed)?;
        self.connection.read_exact(&mut heard).map_err(failed)?;
        self.longest = self.longest.max(killed.elapsed());
        if heard != said {
            return Err(LabError::output("the machine's echo", format!("{heard:?} for {said:?}")));
        }
        Ok(())
    }
}

fn failed(error: std::io::Error) -> LabError {
    LabError::system("talking with the machine over the connection from before the kill", error)
}
