//! DPDK's testpmd as two guests in one process: it sends what comes in at one virtio port out of the other.

use std::io::Write as _;
use std::path::Path;
use std::process::ChildStdin;
use std::time::Duration;

use crate::command::Background;
use crate::lab::Lab;
use crate::{LabError, Result};

const PROGRAM: &str = "dpdk-testpmd";
const START_LIMIT: Duration = Duration::from_secs(40);
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// Packets that it takes from a port, or puts into one, at once.
const BURST: u32 = 32;
/// What it writes when it has started, and what it writes of each port.
const PROMPT: &str = "testpmd>";
const RATE: &str = "Rx-pps:";
const STOPPED: &str = "Done.";
/// What it writes when ports have stopped or started.
const DONE: &str = "Done\n";
/// Ports, each a guest of the switch.
const PORTS: usize = 2;
/// Packets pass before they are counted.
const WARM_UP: Duration = Duration::from_millis(500);

/// What it is started with.
#[derive(Debug, Clone, Copy)]
pub struct TestpmdOptions<'a> {
    /// The ports' sockets.
    pub sockets: [&'a Path; PORTS],
    /// It makes the sockets, and the switch connects to them. Otherwise the switch made them.
    pub listens: bool,
    /// Processor that it uses alone.
    pub processor: usize,
    /// Segments of its packets, in bytes and without checksum: `64`, or `64,128`.
    pub packets: &'a str,
    /// Options of its virtio devices, as in `,packed_vq=1`.
    pub device: &'a str,
    /// Options of testpmd itself.
    pub arguments: &'a [&'a str],
}

/// A testpmd that runs; killed when dropped.
#[derive(Debug)]
pub struct Testpmd {
    program: Background,
    input: ChildStdin,
}

impl Testpmd {
    /// Whether the package is there.
    pub fn is_installed() -> bool {
        Path::new("/usr/bin").join(PROGRAM).exists()
    }

    /// Starts it and waits until both ports are there.
    ///
    /// # Errors
    /// When it is not installed, or does not start.
    pub fn start(lab: &Lab, options: &TestpmdOptions<'_>) -> Result<Testpmd> {
        // Written to a file, its output would come in blocks.
        let mut command = lab.switch().command("stdbuf");
        command.args(["-oL", PROGRAM, "--no-huge", "-m", "256", "--no-pci", "--no-telemetry"]);
        command.arg("--file-prefix").arg(format!("forebay{}", std::process::id()));
        command.arg("--lcores").arg(format!("0@{0},1@{0}", options.processor));
        for (index, socket) in options.sockets.iter().enumerate() {
            let socket = socket.display();
            let server = if options.listens { ",server=1" } else { "" };
            let (mac, device) = (index + 1, options.device);
            command.arg(format!(
                "--vdev=net_virtio_user{index},path={socket},mac=02:00:00:00:00:0{mac}{server}{device}"
            ));
        }
        command.args(["--", "--total-num-mbufs=8192", "--no-lsc-interrupt", "--disable-link-check"]);
        // A switch that learns must find each address at one port.
        command.args([
            "--forward-mode=io",
            "--eth-peer=0,02:00:00:00:00:02",
            "--eth-peer=1,02:00:00:00:00:01",
        ]);
        command.arg(format!("--txpkts={}", options.packets)).args(options.arguments).arg("-i");
        let (mut program, input) = Background::start_asking(command, &lab.path("testpmd.log"))?;
        program.wait_for_output(PROMPT, START_LIMIT)?;
        Ok(Testpmd { program, input })
    }

    /// Puts packets under way, `in_flight` from each port, and counts those that come back for so long. Returns packets a
    /// second of both ports together.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn measure(&mut self, in_flight: u32, duration: Duration) -> Result<f64> {
        let burst = BURST.min(in_flight);
        self.say(&format!("set burst {burst}"))?;
        self.say(&format!("start tx_first {}", in_flight / burst))?;
        std::thread::sleep(WARM_UP);
        self.rates()?;
        std::thread::sleep(duration);
        let rates = self.rates()?;
        let stopped = self.count(STOPPED);
        self.say("stop")?;
        self.program.wait_until("its end of forwarding", ANSWER_LIMIT, |output| {
            output.matches(STOPPED).count() > stopped
        })?;
        Ok(rates.iter().sum())
    }

    /// Stops both ports and starts them again, as a driver does that is loaded anew.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn restart_ports(&mut self) -> Result<()> {
        for what in ["stop", "start"] {
            let done = self.count(DONE);
            self.say(&format!("port {what} all"))?;
            self.program
                .wait_until("its ports", ANSWER_LIMIT, |output| output.matches(DONE).count() > done)?;
        }
        Ok(())
    }

    /// Packets a second that each port received since this was last asked.
    fn rates(&mut self) -> Result<[f64; PORTS]> {
        let shown = self.count(RATE) + PORTS;
        self.say("show port stats all")?;
        self.program
            .wait_until("the ports' counters", ANSWER_LIMIT, |output| rates_of(output).len() >= shown)?;
        let rates = rates_of(&self.program.output());
        Ok(std::array::from_fn(|index| rates[shown - PORTS + index]))
    }

    fn count(&self, text: &str) -> usize {
        self.program.output().matches(text).count()
    }

    fn say(&mut self, words: &str) -> Result<()> {
        let said = writeln!(self.input, "{words}").and_then(|()| self.input.flush());
        said.map_err(|error| LabError::system("telling testpmd what to do", error))
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        // It takes its files away when it ends by itself.
        let _ = self.say("quit");
        let _ = self.program.wait(STOP_LIMIT);
    }
}

/// All rates in whole lines of its output.
fn rates_of(output: &str) -> Vec<f64> {
    let whole = output.rfind('\n').map_or("", |end| &output[..end]);
    let rates = whole.lines().filter_map(|line| line.trim().strip_prefix(RATE));
    rates.filter_map(|rest| rest.split_whitespace().next()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_from_whole_lines() {
        let output = "  Throughput (since last show)\n  Rx-pps:      1940  Rx-bps: 99\n  Rx-pps: 7 Rx";
        assert_eq!(rates_of(output), [1940.0]);
    }
}
