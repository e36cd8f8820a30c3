//! The loaded kernel side of the switch: its maps, and what attaches a port to it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, Object};

use crate::accounts::{Accounts, RingAccount};
use crate::counters::CounterTable;
use crate::layout::PortConfig;
use crate::link::{self, NetdevLink, Relocated};
use crate::object::{self, DatapathOptions};
use crate::{DatapathError, KernelCounters};

/// All programs and maps of one switch. Everything goes away when it is dropped or the process ends.
pub struct Datapath {
    ports: MapHandle,
    sockets: MapHandle,
    counters: CounterTable,
    accounts: Arc<Accounts>,
    departures: MapHandle,
    departure: OwnedFd,
    tcx_port: OwnedFd,
    xdp_port: OwnedFd,
    xdp_port_bound: Relocated,
    queues: u32,
    max_ports: u32,
    _collector: NetdevLink,
    /// The relocated instructions name its maps by descriptor.
    _object: ObjectHolder,
}

/// libbpf's object is not tied to a thread, but holds raw pointers.
struct ObjectHolder {
    _object: Object,
}

// SAFETY: libbpf objects have no thread affinity; after loading, nobody calls into this one until it is dropped.
unsafe impl Send for ObjectHolder {}
// SAFETY: as above; no method takes `&ObjectHolder`.
unsafe impl Sync for ObjectHolder {}

impl Datapath {
    /// Loads the programs and attaches the collector's. Runs in the namespace of the collector's receiving end;
    /// [`Datapath::connect_collector`] follows in the ports' namespace.
    ///
    /// # Errors
    /// [`DatapathError`] with libbpf's reason.
    pub fn load(options: &DatapathOptions) -> Result<Self, DatapathError> {
        let object = object::load(options)?;
        let collector = object::program(&object, "collector")?;
        let bound = object
            .progs()
            .find(|program| program.name() == "xdp_port_bound")
            .ok_or(DatapathError::Object { what: "xdp_port_bound" })?;
        let xdp_port_bound = Relocated::new(bound.insns());
        Ok(Self {
            ports: object::map(&object, "ports")?,
            sockets: object::map(&object, "sockets")?,
            counters: CounterTable::map(object::map(&object, "counters")?, options.max_ports)?,
            accounts: Arc::new(Accounts::map(
                object::map(&object, "ring_accounts")?.as_fd(),
                object::map(&object, "pool_account")?.as_fd(),
                options.max_ports * options.queues,
            )?),
            departures: object::map(&object, "departures")?,
            departure: object::program(&object, "departure")?,
            tcx_port: object::program(&object, "tcx_port")?,
            xdp_port: object::program(&object, "xdp_port")?,
            xdp_port_bound,
            queues: options.queues,
            max_ports: options.max_ports,
            _collector: link::attach_xdp(collector.as_fd(), options.collector_rx)?,
            _object: ObjectHolder { _object: object },
        })
    }

    /// Tells XDP ports where the collector is. Runs in the ports' namespace, where `collector_tx` is looked up.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn connect_collector(&self, collector_tx: u32) -> Result<(), DatapathError> {
        let map = object::map(&self._object._object, "collector_tx")?;
        map.update(&0u32.to_ne_bytes(), &collector_tx.to_ne_bytes(), MapFlags::ANY)
            .map_err(DatapathError::bpf("set the collector's transmit end"))
    }

    /// The program that sends packets on request.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn departure_program(&self) -> Result<OwnedFd, DatapathError> {
        let what = "duplicate a program's descriptor";
        self.departure.try_clone().map_err(|source| DatapathError::System { what, source })
    }

    /// What it sends: `DEPARTURES_A_WORKER` entries of `struct departure` a worker.
    pub fn departure_memory(&self) -> BorrowedFd<'_> {
        self.departures.as_fd()
    }

    /// Most ports; ids are below it.
    pub fn max_ports(&self) -> u32 {
        self.max_ports
    }

    /// Attaches the tcx program to `ifindex`.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn attach_tcx(&self, ifindex: u32) -> Result<NetdevLink, DatapathError> {
        link::attach_tcx(self.tcx_port.as_fd(), ifindex)
    }

    /// Attaches the XDP program to `ifindex`; `tag_hint` where its driver can tell a VLAN tag that it took off.
    ///
    /// # Errors
    /// What the kernel said; `EBUSY` when another XDP program sits there.
    pub fn attach_xdp(&self, ifindex: u32, tag_hint: bool) -> Result<NetdevLink, DatapathError> {
        if !tag_hint {
            return link::attach_xdp(self.xdp_port.as_fd(), ifindex);
        }
        let program = self.xdp_port_bound.load_bound(c"xdp_port_bound", ifindex)?;
        link::attach_xdp(program.as_fd(), ifindex)
    }

    /// Makes packets that come in on `ifindex` those of a port. Until then the attached programs let them pass.
    ///
    /// # Errors
    /// The map is full, which `max_ports` prevents.
    pub fn set_port(&self, ifindex: u32, config: PortConfig) -> Result<(), DatapathError> {
        self.ports
            .update(&ifindex.to_ne_bytes(), &config.to_bytes(), MapFlags::ANY)
            .map_err(DatapathError::bpf("enter a port into the kernel's table"))
    }

    /// Forgets `ifindex`; what comes in passes to the host's own stack. Nothing happens if it is not known.
    pub fn clear_port(&self, ifindex: u32) {
        let _ = self.ports.delete(&ifindex.to_ne_bytes());
    }

    /// Sends the packets of `port_id` that arrive on collector queue `queue` to `socket`.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn set_socket(&self, port_id: u16, queue: u32, socket: BorrowedFd<'_>) -> Result<(), DatapathError> {
        let fd = socket.as_raw_fd() as u32;
        self.sockets
            .update(&self.socket_key(port_id, queue), &fd.to_ne_bytes(), MapFlags::ANY)
            .map_err(DatapathError::bpf("enter a socket into the kernel's table"))
    }

    /// Packets of `port_id` on `queue` are from now on counted as unclaimed. After [`grace_period`](crate::grace_period) none is under way.
    pub fn clear_socket(&self, port_id: u16, queue: u32) {
        let _ = self.sockets.delete(&self.socket_key(port_id, queue));
    }

    /// What the kernel counted for `port_id` since the datapath was loaded.
    pub fn counters(&self, port_id: u16) -> KernelCounters {
        self.counters.read(port_id)
    }

    /// What all rings hold of the pool.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// The account of the ring of `port_id` on `queue`.
    pub fn ring_account(&self, port_id: u16, queue: u32) -> RingAccount {
        let index = u32::from(port_id) * self.queues + queue;
        RingAccount::new(Arc::clone(&self.accounts), index as usize)
    }

    fn socket_key(&self, port_id: u16, queue: u32) -> [u8; 4] {
        (u32::from(port_id) * self.queues + queue).to_ne_bytes()
    }
}
