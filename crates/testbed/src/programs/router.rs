//! IPv6 router advertisements: radvd in one host, the kernel's own autoconfiguration in another.

use std::net::Ipv6Addr;
use std::time::Duration;

use crate::command::Background;
use crate::host::Host;
use crate::{Lab, LabError, Result, wait};

const ADDRESS_LIMIT: Duration = Duration::from_secs(15);

/// A router that advertises one prefix; ends when dropped.
#[derive(Debug)]
pub struct Router {
    _program: Background,
}

impl Router {
    /// Advertises `prefix`/64 from the host every few seconds and on solicitation.
    ///
    /// # Errors
    /// When radvd does not start.
    pub fn start(lab: &Lab, host: &Host, prefix: Ipv6Addr) -> Result<Router> {
        let file = lab.path(&format!("radvd-{}.conf", host.name()));
        let text = format!(
            "interface eth0 {{ AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4;\n\
             \x20 prefix {prefix}/64 {{ AdvOnLink on; AdvAutonomous on; }}; }};\n"
        );
        std::fs::write(&file, text).map_err(|error| LabError::system("writing radvd's file", error))?;
        host.netns().set("ipv6/conf/all/forwarding", "1")?;
        let mut command = host.netns().command("radvd");
        command.args(["--nodaemon", "--logmethod", "stderr", "--config"]).arg(&file);
        command.arg("--pidfile").arg(lab.path(&format!("radvd-{}.pid", host.name())));
        let log = lab.path(&format!("radvd-{}.log", host.name()));
        Ok(Router { _program: Background::start(command, &log)? })
    }
}

/// Lets the host configure itself from advertisements and returns its address with this prefix.
///
/// # Errors
/// When it has none in time.
pub fn autoconfigure(host: &Host, prefix: Ipv6Addr) -> Result<Ipv6Addr> {
    for (setting, value) in [("router_solicitations", "3"), ("accept_ra", "2")] {
        host.netns().set(&format!("ipv6/conf/eth0/{setting}"), value)?;
    }
    // Solicitations are sent when the netdev comes up.
    host.netns().ip(&["link", "set", "eth0", "down"])?;
    host.netns().ip(&["link", "set", "eth0", "up"])?;
    let what = format!("an address with the prefix {prefix}/64");
    wait::until_some(&what, ADDRESS_LIMIT, || address_with(host, prefix))
}

fn address_with(host: &Host, prefix: Ipv6Addr) -> Option<Ipv6Addr> {
    let listed = host.netns().ip(&["-6", "-o", "addr", "show", "dev", "eth0", "scope", "global"]).ok()?;
    let addresses = listed.stdout.split_whitespace().filter_map(|word| word.split('/').next()?.parse().ok());
    addresses.into_iter().find(|address: &Ipv6Addr| address.segments()[..4] == prefix.segments()[..4])
}
