//! A host: a namespace with one netdev `eth0`, whose other end is a port netdev of the switch.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::Result;
use crate::command;
use crate::guest_pump::{GuestPump, GuestPumps};
use crate::netns::Netns;
use crate::pump::TapPump;

/// How a host is connected, and so how its port is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PortKind {
    /// A veth whose switch end carries a tcx program.
    VethTcx,
    /// A veth whose switch end carries an XDP program.
    VethXdp,
    /// A tap, as a virtual machine has one; a pump plays the virtual machine monitor.
    Tap,
    /// A vhost-user socket, as a virtual machine has one; a pump plays the guest's kernel.
    Guest,
    /// A NIC with a cable to another NIC, which the host has.
    Nic,
}

impl PortKind {
    /// Every kind on a netdev that this machine can make.
    pub const ALL: [PortKind; 3] = [PortKind::VethTcx, PortKind::VethXdp, PortKind::Tap];

    /// The kind's name in tests and tables.
    pub const fn name(self) -> &'static str {
        match self {
            PortKind::VethTcx => "veth-tcx",
            PortKind::VethXdp => "veth-xdp",
            PortKind::Tap => "tap",
            PortKind::Guest => "vhost-user",
            PortKind::Nic => "nic",
        }
    }

    /// Whether a port of this kind is on a netdev in the switch's namespace. What belongs to a netdev others do not have:
    /// an index, a name that changes, a qdisc, a kernel program with its flows and hints, a ring of the switch's.
    pub const fn has_netdev(self) -> bool {
        !matches!(self, PortKind::Guest)
    }
}

/// One host. Addresses are 10.66.x.y/16 and fd00:66::n/64, MAC 02:fb:00:00:x:y, with n its number.
#[derive(Debug)]
pub struct Host {
    netns: Netns,
    name: String,
    kind: PortKind,
    number: u16,
    // What stands between the host's tap and its port; the tap vanishes with it.
    pump: Option<Pump>,
    /// Where a guest meets the switch.
    socket: PathBuf,
    pumps: Arc<GuestPumps>,
}

/// What a lab has for its hosts.
pub(crate) struct Surroundings<'a> {
    pub(crate) switch: &'a Netns,
    /// Where sockets are.
    pub(crate) directory: &'a Path,
    pub(crate) pumps: &'a Arc<GuestPumps>,
}

#[derive(Debug)]
enum Pump {
    Tap(#[expect(dead_code, reason = "held for its drop")] TapPump),
    Guest(GuestPump),
}

impl Host {
    pub(crate) fn create(
        Surroundings { switch, directory, pumps }: Surroundings<'_>,
        netns: Netns,
        name: &str,
        kind: PortKind,
        number: u16,
    ) -> Result<Host> {
        quiet(&netns)?;
        let socket = directory.join(format!("{name}.sock"));
        let (name, pumps) = (name.to_owned(), Arc::clone(pumps));
        let mut host = Host { netns, name, kind, number, pump: None, socket, pumps };
        host.plug_in(switch)?;
        Ok(host)
    }

    /// A host at the far end of a cable between two NICs that are there.
    pub(crate) fn beyond(
        switch: &Netns,
        netns: Netns,
        name: &str,
        ends: [&str; 2],
        number: u16,
    ) -> Result<Host> {
        quiet(&netns)?;
        command::run_ok(ip(&["link", "set", ends[0], "netns", switch.name(), "name", name]))?;
        command::run_ok(ip(&["link", "set", ends[1], "netns", netns.name(), "name", "eth0"]))?;
        let (name, kind, socket) = (name.to_owned(), PortKind::Nic, PathBuf::new());
        let mut host = Host { netns, name, kind, number, pump: None, socket, pumps: Arc::default() };
        host.plug_in(switch)?;
        Ok(host)
    }

    /// Makes the host's netdevs, at first or after [`Host::pull_out`]; always with the same names and addresses.
    ///
    /// # Errors
    /// When they are there already.
    pub fn plug_in(&mut self, switch: &Netns) -> Result<()> {
        match self.kind {
            PortKind::Tap => {
                self.pump = Some(Pump::Tap(TapPump::start(switch, &self.name, &self.netns, "eth0")?));
            }
            // Rings of both forms, in turns.
            PortKind::Guest => {
                let is_packed = self.number.is_multiple_of(2);
                let pump = GuestPump::start(&self.netns, &self.socket, is_packed)?;
                self.pumps.add(&pump);
                self.pump = Some(Pump::Guest(pump));
            }
            PortKind::VethTcx | PortKind::VethXdp => self.make_veth(switch)?,
            PortKind::Nic => {}
        }
        self.netns.ip_batch(&[
            format!("link set eth0 address {}", self.mac_text()),
            format!("addr add {}/16 dev eth0", self.v4()),
            format!("addr add {}/64 dev eth0 nodad", self.v6()),
        ])?;
        if self.kind.has_netdev() {
            switch.ip(&["link", "set", &self.name, "up"])?;
        }
        self.netns.ip(&["link", "set", "eth0", "up"])?;
        Ok(())
    }

    /// Deletes the host's netdevs, its port netdev included.
    ///
    /// # Errors
    /// When they are gone already, or are NICs.
    pub fn pull_out(&mut self) -> Result<()> {
        match self.pump.take() {
            Some(pump) => drop(pump),
            None => drop(self.netns.ip(&["link", "del", "eth0"])?),
        }
        Ok(())
    }

    fn make_veth(&self, switch: &Netns) -> Result<()> {
        let peer = ["peer", "name", "eth0", "netns", self.netns.name()];
        switch.ip(&[&["link", "add", &self.name, "type", "veth"][..], &peer].concat())?;
        Ok(())
    }

    /// The host's namespace.
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// The name of the host and of its port netdev in the switch's namespace.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where a guest meets the switch; of no meaning for other kinds.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Of a guest, packets that its kernel has put into its transmit queue.
    pub fn carried(&self) -> Option<u64> {
        match &self.pump {
            Some(Pump::Guest(guest)) => Some(guest.carried()),
            Some(Pump::Tap(_)) | None => None,
        }
    }

    /// How it is connected.
    pub fn kind(&self) -> PortKind {
        self.kind
    }

    /// Its IPv4 address.
    pub fn v4(&self) -> Ipv4Addr {
        let [high, low] = self.number.to_be_bytes();
        Ipv4Addr::new(10, 66, high, low)
    }

    /// Its IPv6 address.
    pub fn v6(&self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, 0x66, 0, 0, 0, 0, 0, self.number)
    }

    /// Its address of either family.
    pub fn address(&self, v6: bool) -> IpAddr {
        if v6 { self.v6().into() } else { self.v4().into() }
    }

    /// Its Ethernet address.
    pub fn mac(&self) -> [u8; 6] {
        let [high, low] = self.number.to_be_bytes();
        [2, 0xfb, 0, 0, high, low]
    }

    /// Its Ethernet address as text.
    pub fn mac_text(&self) -> String {
        self.mac().map(|byte| format!("{byte:02x}")).join(":")
    }

    /// Sets the MTU on both ends of the host's link. A guest's front end tells the switch.
    ///
    /// # Errors
    /// When the netdev refuses.
    pub fn set_mtu(&self, switch: &Netns, mtu: u32) -> Result<()> {
        match &self.pump {
            Some(Pump::Guest(guest)) => guest.set_mtu(u16::try_from(mtu).expect("an MTU has 16 bits")),
            Some(Pump::Tap(_)) | None => {
                switch.ip(&["link", "set", &self.name, "mtu", &mtu.to_string()])?;
            }
        }
        self.netns.ip(&["link", "set", "eth0", "mtu", &mtu.to_string()])?;
        Ok(())
    }

    /// Stops everything that the host sends by itself: no addresses, no ARP, no IPv6.
    ///
    /// # Errors
    /// When a setting is refused.
    pub fn silence(&self) -> Result<()> {
        self.netns.set("ipv6/conf/eth0/disable_ipv6", "1")?;
        self.netns.ip(&["addr", "flush", "dev", "eth0"])?;
        self.netns.ip(&["link", "set", "eth0", "arp", "off"])?;
        Ok(())
    }

    /// Enters the other host's addresses by hand, so that neither ARP nor neighbour discovery is needed.
    ///
    /// # Errors
    /// When `ip neigh` refuses.
    pub fn knows(&self, other: &Host) -> Result<()> {
        for address in [other.v4().to_string(), other.v6().to_string()] {
            let mac = other.mac_text();
            let entry = ["neigh", "replace", &address, "lladdr", &mac, "dev", "eth0", "nud", "permanent"];
            self.netns.ip(&entry)?;
        }
        Ok(())
    }
}

fn ip(args: &[&str]) -> Command {
    let mut command = Command::new("ip");
    command.args(args);
    command
}

/// No duplicate detection and no router solicitations: tests count packets.
fn quiet(netns: &Netns) -> Result<()> {
    for part in ["all", "default"] {
        netns.set(&format!("ipv6/conf/{part}/accept_dad"), "0")?;
        netns.set(&format!("ipv6/conf/{part}/router_solicitations"), "0")?;
        netns.set(&format!("ipv6/conf/{part}/accept_ra"), "0")?;
    }
    Ok(())
}
