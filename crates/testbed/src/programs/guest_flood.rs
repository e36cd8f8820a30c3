//! DPDK's testpmd as a guest that sends as fast as it can, and hears nothing.

use std::io::Write as _;
use std::path::Path;
use std::process::ChildStdin;
use std::time::{Duration, Instant};

use crate::command::Background;
use crate::lab::Lab;
use crate::{LabError, Result};

const PROGRAM: &str = "dpdk-testpmd";
/// Name of its output's file in the lab.
const LOG: &str = "flood.log";
const START_LIMIT: Duration = Duration::from_secs(40);
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// The program ends by itself after this time, also when its starter was killed.
const LIFE_SECONDS: &str = "120";
const PROMPT: &str = "testpmd>";
const STOPPED: &str = "Done.";
/// Word before the number of packets that the ring took.
const SENT: &str = "TX-packets:";

/// A flood to be.
#[derive(Debug, Clone, Copy)]
pub struct GuestFloodOptions<'a> {
    /// Socket of the port, where the switch listens.
    pub socket: &'a Path,
    /// Processor that the flood uses alone; any, if none is named.
    pub processor: Option<usize>,
    /// MAC address that its packets come from.
    pub source: [u8; 6],
    /// MAC address that its packets go to.
    pub destination: [u8; 6],
    /// Bytes of its packets, without checksum.
    pub packet_bytes: u32,
}

/// A guest that floods; killed when dropped.
#[derive(Debug)]
pub struct GuestFlood {
    program: Background,
    input: ChildStdin,
    started: Instant,
}

/// What a guest sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sent {
    /// Packets that the ring took.
    pub packets: u64,
    /// How long it sent.
    pub duration: Duration,
}

impl Sent {
    /// Millions of packets a second.
    pub fn mpps(&self) -> f64 {
        self.packets as f64 / self.duration.as_secs_f64() / 1e6
    }
}

impl GuestFlood {
    /// Whether the package is there.
    pub fn is_installed() -> bool {
        Path::new("/usr/bin").join(PROGRAM).exists()
    }

    /// Starts a flood, and returns when the guest is connected and sends.
    ///
    /// # Errors
    /// When the program is not installed, or does not start.
    pub fn start(lab: &Lab, options: &GuestFloodOptions<'_>) -> Result<GuestFlood> {
        let cores = match options.processor {
            Some(processor) => format!("0@{processor},1@{processor}"),
            None => "0@0-1,1@0-1".to_owned(),
        };
        let device = format!(
            "--vdev=net_virtio_user0,path={},queues=1,mac={}",
            options.socket.display(),
            text_of(options.source)
        );
        // Written to a file, its output would come in blocks.
        let mut command = lab.switch().command("timeout");
        command.args(["-k", "2", LIFE_SECONDS, "stdbuf", "-oL", PROGRAM]);
        command.args(["--no-huge", "-m", "256", "--no-pci", "--no-telemetry"]);
        command.arg("--file-prefix").arg(format!("forebay{}", std::process::id()));
        command.args(["--lcores", &cores, &device]);
        command.args(["--", "--total-num-mbufs=8192", "--no-lsc-interrupt", "--disable-link-check"]);
        command.arg("--forward-mode=txonly").arg(format!("--eth-peer=0,{}", text_of(options.destination)));
        command.arg(format!("--txpkts={}", options.packet_bytes)).arg("-i");
        // DPDK leaves a folder behind, which goes with the lab's.
        command.env("RUNTIME_DIRECTORY", lab.directory());
        let (mut program, input) = Background::start_asking(command, &lab.path(LOG))?;
        program.wait_for_output(PROMPT, START_LIMIT)?;
        let mut flood = GuestFlood { program, input, started: Instant::now() };
        flood.say("start")?;
        flood.started = Instant::now();
        Ok(flood)
    }

    /// Stops the flood, and counts.
    ///
    /// # Errors
    /// When the program does not answer.
    pub fn finish(mut self) -> Result<Sent> {
        let duration = self.started.elapsed();
        self.say("stop")?;
        self.program.wait_for_output(STOPPED, STOP_LIMIT)?;
        let output = self.program.output();
        let packets =
            sent_of(&output).ok_or_else(|| LabError::output("testpmd's statistics", output.clone()))?;
        Ok(Sent { packets, duration })
    }

    fn say(&mut self, words: &str) -> Result<()> {
        let said = writeln!(self.input, "{words}").and_then(|()| self.input.flush());
        said.map_err(|error| LabError::system("telling testpmd what to do", error))
    }
}

impl Drop for GuestFlood {
    fn drop(&mut self) {
        // It takes its files away when it ends by itself.
        let _ = self.say("stop").and_then(|()| self.say("quit"));
        let _ = self.program.wait(STOP_LIMIT);
    }
}

fn text_of(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// The number of packets that it sent, in its last words.
fn sent_of(output: &str) -> Option<u64> {
    output.rsplit_once(SENT)?.1.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_read_from_the_last_statistics() {
        let output = "TX-packets: 7   TX-dropped: 1\n+++ all\n  TX-packets: 1940       TX-dropped: 99\nDone.";
        assert_eq!(sent_of(output), Some(1940));
        assert_eq!(text_of([2, 0xfd, 0, 0, 0, 10]), "02:fd:00:00:00:0a");
    }
}
