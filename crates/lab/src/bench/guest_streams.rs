//! A virtual machine (Linux in user mode) with a container, and with another one: by vhost-user, or by taps with the kernel's
//! own driver.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use forebay_control::port::PortSpec;
use forebay_testbed::dut::{self, Dut};
use forebay_testbed::host::PortKind;
use forebay_testbed::lab::Lab;
use forebay_testbed::machine::{Machine, MachineOptions};
use forebay_testbed::measure::{cpu, latency};
use forebay_testbed::programs::iperf::{Iperf, IperfReport};
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::relay::{Relay, RelayOptions};
use forebay_testbed::{LabError, Result, wait};
use forebay_vhost::Features;

use super::{Contender, Value, WORKER_CPU, asked};

const NAMES: [&str; 2] = ["vm1", "vm2"];
const V4: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 66, 200, 1), Ipv4Addr::new(10, 66, 200, 2)];
const ECHO_PORT: u16 = 5002;
const LIMIT: Duration = Duration::from_secs(20);
const SERVING: &str = "Server listening";
/// Features of DPDK's back end that an unmodified Linux in user mode is not told of. It offers a control queue and serves
/// none, so that Linux waits for ever. And it takes Linux's first position of a packed ring for one with the other wrap
/// counter, so that no packet passes.
const UNSERVED: [Features; 8] = [
    Features::RING_PACKED,
    Features::CTRL_VQ,
    Features::CTRL_RX,
    Features::CTRL_VLAN,
    Features::CTRL_MAC_ADDR,
    Features::CTRL_GUEST_OFFLOADS,
    Features::GUEST_ANNOUNCE,
    Features::MQ,
];

pub(super) fn measure(contender: Contender, duration: Duration) -> Result<Vec<Value>> {
    let mut lab = Lab::new("bench-machine")?;
    let host = lab.host("h1", PortKind::VethTcx)?;
    let mut dut = contender.start(&lab)?;
    dut.add_ports(&dut::ports_of([&host]))?;
    dut::set_up_hosts(&*dut, std::slice::from_ref(&host))?;
    let seconds = duration.as_secs();
    let server = format!("busybox nc -ll -p {ECHO_PORT} -e cat & iperf3 -s --forceflush");
    // Its kernel and its programs are processes that would else be on two processors, or beside the worker, by chance.
    let mut machine = cpu::away_from(WORKER_CPU, || Guest::boot(contender, &lab, &mut *dut, 0, &server))?;
    machine.program.wait_for_output(SERVING)?;
    // Open vSwitch takes a while to begin.
    let answers = || Ping::new(V4[0]).from(&host).is_ok_and(|report| report.is_complete());
    wait::until("the machine to answer", LIMIT, answers)?;
    let stream = Iperf::seconds(seconds as u32);
    let into = stream.to(&host, V4[0].into())?;
    let out = stream.clone().reverse(true).to(&host, V4[0].into())?;
    let exchanged = latency::tcp_to(&host, SocketAddr::new(V4[0].into(), ECHO_PORT), duration)?;
    // The other one comes last, so that it takes no processor from what is measured before. It may run anywhere: two machines
    // beside the worker have no more than two processors.
    let client = format!("iperf3 -J -t {seconds} -c {}", V4[0]);
    let said = Guest::boot(contender, &lab, &mut *dut, 1, &client)?.program.wait()?;
    let between = said.find('{').and_then(|at| IperfReport::from_json(said[at..].split("machine:").next()?));
    let between = between.ok_or_else(|| LabError::output("a machine's iperf3", said))?;
    machine.program.kill();
    let gigabits = |report: IperfReport| report.received_bits_per_second / 1e9;
    Ok(vec![
        Value::new(asked::OUT_OF_GUEST, gigabits(out)),
        Value::new(asked::INTO_GUEST, gigabits(into)),
        Value::new(asked::BETWEEN_GUESTS, gigabits(between)),
        Value::in_micros(asked::GUEST_P50, exchanged.p50),
        Value::in_micros(asked::GUEST_P99, exchanged.p99),
    ])
}

/// A machine with its port.
struct Guest {
    // In this order: the machine goes before its relay.
    program: Machine,
    _relay: Option<Relay>,
}

impl Guest {
    fn boot(contender: Contender, lab: &Lab, dut: &mut dyn Dut, index: usize, script: &str) -> Result<Guest> {
        let (name, v4) = (NAMES[index], V4[index]);
        let (socket, behind) = (lab.path(&format!("{name}.sock")), lab.path(&format!("{name}.relay")));
        let options = MachineOptions::new(name, &socket, v4, script);
        if !contender.has_guests() {
            lab.switch().ip(&["tuntap", "add", "dev", name, "mode", "tap", "vnet_hdr"])?;
            lab.switch().ip(&["link", "set", name, "up"])?;
            dut.add_ports(&[PortSpec::new(name)])?;
            return Ok(Guest { program: Machine::boot_on_tap(lab, name, &options)?, _relay: None });
        }
        if !dut.connects_to_guests() {
            dut.add_guest(name, &socket)?;
            return Ok(Guest { program: Machine::boot(lab, &options)?, _relay: None });
        }
        let withheld = UNSERVED.iter().fold(0, |bits, feature| bits | feature.0);
        let relayed = RelayOptions { switch_connects: true, withheld, ..RelayOptions::default() };
        let relay = Relay::start(&socket, &behind, &relayed)?;
        dut.add_guest(name, &behind)?;
        Ok(Guest { program: Machine::boot(lab, &options)?, _relay: Some(relay) })
    }
}
