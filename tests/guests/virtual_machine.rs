//! A virtual machine in QEMU at a vhost-user port: Debian's 6.12 kernel, emulated, and a front end that connects again.

use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use forebay_control::port::PortState;
use forebay_testbed::bpffs::BpfFs;
use forebay_testbed::dut::{self, Dut as _, Forebay, ForebayOptions};
use forebay_testbed::guest::Guest;
use forebay_testbed::programs::iperf::Iperf;
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::{Host, Lab, LabError, PortKind, Result, wait};

use crate::{LIMIT, Outcome};

pub const NAME: &str = "a_virtual_machine_in_qemu_goes_on_after_each_kill_of_the_daemon";

const PORT: &str = "vm1";
const V4: Ipv4Addr = Ipv4Addr::new(10, 66, 200, 1);
const IPERF_PORT: u16 = 5201;
/// The virtual machine waits for a connection to this port, and ends.
const END_PORT: u16 = 9;
const KILLS: usize = 3;
const PINGS: u32 = 10;
/// An emulated processor carries some hundred Mbit/s.
const STREAM_BYTES: u64 = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(5);
const MEMORY_MIB: u32 = 512;

/// Pings and a stream pass, and pings again after each kill of the daemon. The machine is booted once.
pub fn go_on() -> Outcome {
    let mut lab = Lab::new("qemu")?;
    let pins = BpfFs::mount(&lab)?;
    let host = lab.host("h1", PortKind::VethTcx)?;
    let options = ForebayOptions::default().handing_over(&pins);
    let mut forebay = Forebay::start(&lab, options.clone())?;
    let socket = lab.path("vm1.sock");
    forebay.add_ports(&dut::ports_of([&host]))?;
    forebay.add_guest(PORT, &socket)?;
    // The machine sets its address after its server listens. So a host that can ping it can also connect.
    let script = format!(
        "iperf3 -s -1 >/dev/null & server=$!\n\
         until grep -q :{IPERF_PORT:04X} /proc/net/tcp /proc/net/tcp6; do :; done\n\
         ip link set eth0 up; ip addr add {V4}/16 dev eth0; wait $server\n\
         busybox nc -l -p {END_PORT} </dev/null\n\
         cd /sys/class/net/eth0; basename $(readlink device/driver)\n\
         sed -n \"/$(basename $(readlink device))/s/^/nic: /p\" /proc/interrupts"
    );
    let said = std::thread::scope(|scope| {
        let guest = Guest::default().with_memory(MEMORY_MIB).with_switch(&socket);
        let guest = scope.spawn(move || guest.run(&script, LIMIT));
        let talked = talk(&lab, &host, &mut forebay, &options);
        // Ends the machine in any case: nobody else does before its limit.
        let ended =
            host.netns().enter(|| TcpStream::connect_timeout(&(V4, END_PORT).into(), PATIENCE).map(drop));
        let said = guest.join().expect("running a guest does not panic");
        talked.and(ended?.map_err(|error| LabError::system("ending the machine", error))).and(said)
    })?;
    assert!(said.contains("virtio_net"), "{said}");
    // One line that all queues share.
    let interrupts: Vec<&str> = said.lines().filter(|line| line.starts_with("nic: ")).collect();
    assert!(interrupts.len() == 1 && !interrupts[0].contains("MSI"), "{said}");
    forebay.client().wait_port_state(PORT, PortState::Waiting)?;
    assert!(forebay.client().stats_check()?.balanced);
    Ok(())
}

fn talk(lab: &Lab, host: &Host, forebay: &mut Forebay, options: &ForebayOptions) -> Result<()> {
    let answers = || Ping::new(V4).from(host).is_ok_and(|report| report.is_complete());
    wait::until("the virtual machine to answer", LIMIT, answers)?;
    let report = Iperf::bytes(STREAM_BYTES).to(host, V4.into())?;
    assert!(report.is_complete(STREAM_BYTES), "{report:?}");
    for _ in 0..KILLS {
        forebay.kill()?;
        *forebay = Forebay::start(lab, options.clone())?;
        wait::until("the virtual machine to answer again", LIMIT, answers)?;
        let report = Ping::new(V4).count(PINGS).from(host)?;
        assert!(report.is_complete(), "{report:?}");
    }
    Ok(())
}
