//! The lab: a namespace for the switch, hosts around it, a directory for logs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use crate::guest_pump::GuestPumps;
use crate::host::{Host, PortKind, Surroundings};
use crate::netns::Netns;
use crate::{LabError, Result, clean};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A switch's surroundings. Dropping it ends what runs in the switch's namespace and deletes that; hosts are values
/// of their own and do the same for theirs.
#[derive(Debug)]
pub struct Lab {
    prefix: String,
    switch: Netns,
    directory: TempDir,
    pumps: Arc<GuestPumps>,
    next_host: u16,
}

impl Lab {
    /// An empty lab; `name` is for people who look at its directory. Also removes what dead labs left.
    ///
    /// # Errors
    /// Without root, mostly.
    pub fn new(name: &str) -> Result<Lab> {
        clean::dead_labs();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("{}{}-{number}", clean::PREFIX, std::process::id());
        let directory = tempfile::Builder::new().prefix(&format!("{prefix}-{name}-")).tempdir();
        let directory = directory.map_err(|error| LabError::system("making the lab's directory", error))?;
        let switch = Netns::create(&format!("{prefix}-sw"))?;
        // The switch's own netdevs must be silent: a router solicitation would count as somebody's traffic.
        switch.set("ipv6/conf/all/disable_ipv6", "1")?;
        switch.set("ipv6/conf/default/disable_ipv6", "1")?;
        Ok(Lab { prefix, switch, directory, pumps: Arc::default(), next_host: 0 })
    }

    /// What the names of all it makes begin with.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The namespace the switch runs in.
    pub fn switch(&self) -> &Netns {
        &self.switch
    }

    /// Where logs, sockets and captures go; deleted with the lab.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A path in the lab's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A host of this kind. Its addresses follow from its number; `name` is its port's name.
    ///
    /// # Errors
    /// When a netdev can't be made.
    pub fn host(&mut self, name: &str, kind: PortKind) -> Result<Host> {
        self.next_host += 1;
        let netns = Netns::create(&format!("{}-{name}", self.prefix))?;
        let (switch, directory, pumps) = (&self.switch, self.directory.path(), &self.pumps);
        Host::create(Surroundings { switch, directory, pumps }, netns, name, kind, self.next_host)
    }

    /// `count` hosts of this kind, named `h1`, `h2`, ….
    ///
    /// # Errors
    /// When a netdev can't be made.
    pub fn hosts(&mut self, count: usize, kind: PortKind) -> Result<Vec<Host>> {
        (1..=count).map(|number| self.host(&format!("h{number}"), kind)).collect()
    }

    /// Waits until guests have given the switch all packets that their hosts sent, and the switch has taken them.
    pub fn settle(&self) {
        self.pumps.settle();
    }

    /// A host at the far end of a cable between two NICs: the near one becomes its port's netdev.
    ///
    /// # Errors
    /// When one of the NICs is not there.
    pub fn host_beyond(&mut self, name: &str, ends: [&str; 2]) -> Result<Host> {
        self.next_host += 1;
        let netns = Netns::create(&format!("{}-{name}", self.prefix))?;
        Host::beyond(&self.switch, netns, name, ends, self.next_host)
    }

    /// A namespace of this lab for anything else.
    ///
    /// # Errors
    /// When it can't be made.
    pub fn extra_netns(&self, name: &str) -> Result<Netns> {
        Netns::create(&format!("{}-{name}", self.prefix))
    }

    /// Many veths at once, for scale: `p1` to `p<count>` in the switch's namespace, their peers `q1`, `q2`, … in a
    /// namespace of their own, all up and without addresses.
    ///
    /// # Errors
    /// When one can't be made.
    pub fn bulk_veths(&self, count: usize) -> Result<Netns> {
        self.bulk_veths_of_queues(count, 1)
    }

    /// As [`Lab::bulk_veths`], with so many queues each way.
    ///
    /// # Errors
    /// When one can't be made.
    pub fn bulk_veths_of_queues(&self, count: usize, queues: u32) -> Result<Netns> {
        let peers = self.extra_netns("bulk")?;
        for part in ["all", "default"] {
            peers.set(&format!("ipv6/conf/{part}/disable_ipv6"), "1")?;
            // Answers come from whom no route leads to.
            peers.set(&format!("ipv4/conf/{part}/rp_filter"), "0")?;
        }
        let queues = format!("numtxqueues {queues} numrxqueues {queues}");
        let name = peers.name();
        let add = |n| format!("link add p{n} up {queues} type veth peer name q{n} {queues} netns {name}");
        self.switch.ip_batch(&(1..=count).map(add).collect::<Vec<_>>())?;
        peers.ip_batch(&(1..=count).map(|n| format!("link set q{n} up")).collect::<Vec<_>>())?;
        Ok(peers)
    }
}
