//! A virtual machine (Linux in user mode) and a container: by vhost-user, or by a tap with the kernel's own driver.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use forebay_control::port::PortSpec;
use forebay_testbed::Result;
use forebay_testbed::dut;
use forebay_testbed::host::PortKind;
use forebay_testbed::lab::Lab;
use forebay_testbed::machine::{Machine, MachineOptions};
use forebay_testbed::measure::latency;
use forebay_testbed::programs::iperf::Iperf;

use super::{Contender, Value, asked};

const NAME: &str = "vm1";
const V4: Ipv4Addr = Ipv4Addr::new(10, 66, 200, 1);
const ECHO_PORT: u16 = 5002;
const SERVING: &str = "Server listening";

pub(super) fn measure(contender: Contender, duration: Duration) -> Result<Vec<Value>> {
    let mut lab = Lab::new("bench-machine")?;
    let host = lab.host("h1", PortKind::VethTcx)?;
    let mut dut = contender.start(&lab)?;
    dut.add_ports(&dut::ports_of([&host]))?;
    let socket = lab.path("vm1.sock");
    let script = format!("busybox nc -ll -p {ECHO_PORT} -e cat & iperf3 -s --forceflush");
    let options = MachineOptions { name: NAME, socket: &socket, v4: V4, pairs: 1, script: &script };
    let mut machine = if contender == Contender::Guests {
        dut.add_guest(NAME, &socket)?;
        Machine::boot(&lab, &options)?
    } else {
        lab.switch().ip(&["tuntap", "add", "dev", NAME, "mode", "tap", "vnet_hdr"])?;
        lab.switch().ip(&["link", "set", NAME, "up"])?;
        dut.add_ports(&[PortSpec::new(NAME)])?;
        Machine::boot_on_tap(&lab, NAME, &options)?
    };
    machine.wait_for_output(SERVING)?;
    let seconds = Iperf::seconds(duration.as_secs() as u32);
    let into = seconds.to(&host, V4.into())?;
    let out = seconds.clone().reverse(true).to(&host, V4.into())?;
    let exchanged = latency::tcp_to(&host, SocketAddr::new(V4.into(), ECHO_PORT), duration)?;
    machine.kill();
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    Ok(vec![
        Value::new(asked::OUT_OF_GUEST, out.received_bits_per_second / 1e9),
        Value::new(asked::INTO_GUEST, into.received_bits_per_second / 1e9),
        Value::new(asked::GUEST_P50, micros(exchanged.p50)),
        Value::new(asked::GUEST_P99, micros(exchanged.p99)),
    ])
}
