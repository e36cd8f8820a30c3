//! DHCP: dnsmasq in one host, udhcpc in another that has no address yet. Either may be a virtual machine.

use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::command::{self, Background};
use crate::host::Host;
use crate::{Lab, LabError, Result};

const START_LIMIT: Duration = Duration::from_secs(10);
const LEASE_LIMIT: Duration = Duration::from_secs(15);

/// What the server writes when it is ready.
pub const SERVING: &str = "DHCP, ";
/// What the client writes in front of its address.
pub const LEASED: &str = "lease=";
#[rustfmt::skip]
const SERVER: [&str; 10] = [
    "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--log-facility=-", "--port=0",
    "--user=root", "--interface=eth0", "--no-ping", "--leasefile-ro", "--pid-file",
];
const CLIENT: [&str; 11] = ["udhcpc", "-i", "eth0", "-f", "-n", "-q", "-t", "3", "-T", "2", "-s"];

/// A DHCP server; ends when dropped.
#[derive(Debug)]
pub struct DhcpServer {
    _program: Background,
}

impl DhcpServer {
    /// Serves the one address `lease` from the host.
    ///
    /// # Errors
    /// When dnsmasq does not start.
    pub fn start(lab: &Lab, host: &Host, lease: Ipv4Addr) -> Result<DhcpServer> {
        let mut command = host.netns().command(SERVER[0]);
        command.args(&SERVER[1..]).arg(range(lease));
        let mut program = Background::start(command, &lab.path(&format!("dnsmasq-{}.log", host.name())))?;
        program.wait_for_output(SERVING, START_LIMIT)?;
        Ok(DhcpServer { _program: program })
    }
}

/// Words that serve the one address `lease` from a virtual machine.
pub fn server_words(lease: Ipv4Addr) -> String {
    format!("{} {}", SERVER.join(" "), range(lease))
}

fn range(lease: Ipv4Addr) -> String {
    format!("--dhcp-range={lease},{lease},255.255.0.0,10m")
}

/// Words that have a virtual machine ask for an address and print it behind `lease=`; nothing is configured with it.
///
/// # Errors
/// The lab's directory takes no script.
pub fn client_words(lab: &Lab) -> Result<String> {
    Ok(format!("{} {}", CLIENT.join(" "), client_script(lab)?.display()))
}

/// Asks for an address from the host and returns the one that was given; nothing is configured with it.
///
/// # Errors
/// When no lease is obtained within three tries.
pub fn request(lab: &Lab, host: &Host) -> Result<Ipv4Addr> {
    let mut command = host.netns().command(CLIENT[0]);
    command.args(&CLIENT[1..]).arg(client_script(lab)?);
    let finished = command::run(command, LEASE_LIMIT)?.success()?;
    let lease = finished.stdout.lines().find_map(|line| line.strip_prefix(LEASED));
    lease
        .and_then(|address| address.parse().ok())
        .ok_or_else(|| LabError::output("udhcpc's lease", format!("{}{}", finished.stdout, finished.stderr)))
}

fn client_script(lab: &Lab) -> Result<PathBuf> {
    let script = lab.path("udhcpc.sh");
    write_script(&script).map_err(|error| LabError::system("writing udhcpc's script", error))?;
    Ok(script)
}

fn write_script(path: &Path) -> std::io::Result<()> {
    std::fs::write(path, "#!/bin/sh\n[ \"$1\" = bound ] && echo \"lease=$ip\"\nexit 0\n")?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}
