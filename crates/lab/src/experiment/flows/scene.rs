//! Four hosts, the daemon, and what is asked of it between measurements.

use std::time::Duration;

use forebay_control::eswitch::EswitchShow;
use forebay_control::flow::FlowTable;
use forebay_control::port::{Attach, PortAdd, PortAddReply, PortSpec};
use forebay_testbed::dut::{Api, Dut, Forebay, ForebayOptions};
use forebay_testbed::frame::{BROADCAST, Frame};
use forebay_testbed::lab::Lab;
use forebay_testbed::measure::sink::Sink;
use forebay_testbed::measure::source::{FIRST_RECEIVER, FIRST_SENDER, Source};
use forebay_testbed::netns::Netns;
use forebay_testbed::sys::packet_socket::PacketSocket;
use forebay_testbed::{LabError, Result, wait};
use nix::sys::signal::Signal;
use serde::Deserialize;

use super::super::{WORKER_CPU, listen, numbered};
use super::Options;

const HOSTS: usize = 4;
/// The processor of the source.
const SOURCE_CPU: usize = 0;
/// While nothing is to expire.
pub(super) const LONG_IDLE: u32 = 3600;
const LEARN_LIMIT: Duration = Duration::from_secs(10);

/// The lab.
pub(super) struct Scene {
    api: Api,
    /// One on each host.
    pub(super) sockets: Vec<PacketSocket>,
    entries: u64,
    // In this order: the switch before what it is attached to.
    pub(super) forebay: Forebay,
    pub(super) hosts: Netns,
    pub(super) lab: Lab,
}

/// The list of flows without the flows, which are many.
#[derive(Deserialize)]
struct TableOnly {
    table: FlowTable,
}

impl Scene {
    /// Everything is there, all receivers are known, and no flow was made.
    pub(super) fn set(options: &Options) -> Result<Scene> {
        let lab = Lab::new("flows")?;
        let hosts = lab.bulk_veths(HOSTS)?;
        listen::take_frames(&hosts, HOSTS)?;
        let sockets = listen::sockets(&hosts, HOSTS)?;
        let entries = options.all() * 5 / 2;
        let config = ForebayOptions::with_config(config(entries, LONG_IDLE));
        let forebay = Forebay::start(&lab, config.pinned_to(WORKER_CPU).offloaded())?;
        let api = forebay.client().api();
        let scene = Scene { api, sockets, entries, forebay, hosts, lab };
        scene.add_ports(1..=HOSTS)?;
        scene.teach(options.side())?;
        Ok(scene)
    }

    /// Makes the netdevs of these numbers ports.
    pub(super) fn add_ports(&self, numbers: impl IntoIterator<Item = usize>) -> Result<()> {
        let port = |n| PortSpec { attach: Attach::Xdp, ..PortSpec::new(format!("p{n}")) };
        let request = PortAdd { ports: numbers.into_iter().map(port).collect(), wait: false };
        let reply: PortAddReply = self.api.send("POST", "/v1/ports", &request)?;
        match reply.refused.first() {
            Some(refused) => Err(LabError::output("a port", refused.error.to_string())),
            None => Ok(()),
        }
    }

    /// The switch hears of every receiver at its host.
    pub(super) fn teach(&self, receivers: u16) -> Result<()> {
        let known =
            || self.api.get::<Vec<forebay_control::fdb::FdbEntry>>("/v1/fdb?port=p2").unwrap_or_default();
        wait::until("all receivers to be known", LEARN_LIMIT, || {
            for number in 0..receivers {
                let mac = numbered::mac_of(FIRST_RECEIVER + number);
                // What is lost is sent again at the next look.
                let _ = self.sockets[1].send(&Frame::marked(mac, BROADCAST, 1).build());
            }
            known().len() >= usize::from(receivers)
        })
    }

    pub(super) fn api(&self) -> &Api {
        &self.api
    }

    pub(super) fn pids(&self) -> Vec<u32> {
        self.forebay.pids()
    }

    /// Flows there are.
    pub(super) fn flows(&self) -> Result<u64> {
        Ok(self.api.get::<EswitchShow>("/v1/eswitch")?.flows)
    }

    /// The table's figures.
    pub(super) fn table(&self) -> Result<FlowTable> {
        Ok(self.api.get::<TableOnly>("/v1/flows")?.table)
    }

    /// Has idle flows go after so many seconds; the daemon reads its configuration within milliseconds.
    pub(super) fn set_idle(&mut self, seconds: u32) -> Result<()> {
        let text = config(self.entries, seconds);
        std::fs::write(self.lab.path("forebay.toml"), text)
            .map_err(|error| LabError::system("writing a config", error))?;
        self.forebay.daemon().signal(Signal::SIGHUP);
        Ok(())
    }

    /// Frames from so many senders to so many receivers, as many as the source's processor makes.
    pub(super) fn source(&self, side: u16) -> Result<Source> {
        let end = |number| (numbered::mac_of(number), [10, 68, 0, 1], 9);
        let mut frame = Frame::udp4(end(FIRST_SENDER), end(FIRST_RECEIVER), &[0; 18]).build();
        // As the source of other measurements has it: no UDP checksum.
        frame[40..42].copy_from_slice(&[0, 0]);
        Source::start_grid(&self.hosts, "q1", frame, (side, side), SOURCE_CPU)
    }

    /// Counts and drops what arrives at this host, until it is dropped itself.
    pub(super) fn sink(&self, host: usize) -> Result<Sink> {
        Sink::attach(&self.hosts, &format!("q{host}"))
    }
}

fn config(entries: u64, idle_seconds: u32) -> String {
    format!(
        "[fdb]\nageing_seconds = 100000\n[flood]\ncopies_per_second = 0\n[flows]\nmax_entries = {entries}\n\
         idle_seconds = {idle_seconds}\ninstalls_per_second = 1000000\n"
    )
}
