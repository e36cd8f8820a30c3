//! Which workers take a group's packets.

use forebay_control::rss::{MAX_CHANNELS, RSS_SLOTS, RssChannel, RssSet, RssShow};
use forebay_control::{ApiError, ErrorCode, PortId};
use forebay_kernel::KernelCounters;

use super::kernel_error::refused;
use super::port::Port;
use super::{Change, Control};

impl Change<'_> {
    /// Changes how a group's packets are spread over workers.
    pub(crate) fn rss_set(&mut self, name: &str, change: &RssSet) -> Result<RssShow, ApiError> {
        self.instance()?;
        let id = self.group(name)?;
        let port = self.port_mut(id);
        // While no member is there, nobody knows how many there will be.
        let channels = port.group.tuning.workers.len() as u32;
        change.check(if channels == 0 { MAX_CHANNELS } else { channels })?;
        let wanted = port.group.rss.changed(change);
        let before = std::mem::replace(&mut port.group.rss, wanted);
        if let Err(error) = self.lay_rss(id) {
            self.port_mut(id).group.rss = before;
            return Err(error);
        }
        self.publish();
        Ok(self.rss_of(&self.ports[&id]))
    }
}

impl Control {
    /// How the packets of groups are spread: of one, or of all.
    pub(crate) fn rss_show(&self, name: Option<&str>) -> Result<Vec<RssShow>, ApiError> {
        let only = name.map(|name| self.group(name)).transpose()?;
        let is_meant = |port: &&Port| only.map_or(port.spec.is_group(), |id| port.id == id);
        Ok(self.ports.values().filter(is_meant).map(|port| self.rss_of(port)).collect())
    }

    /// Tells the kernel programs.
    pub(super) fn lay_rss(&mut self, id: PortId) -> Result<(), ApiError> {
        let port = &self.ports[&id];
        let workers = &port.group.tuning.workers;
        if workers.is_empty() {
            return Ok(());
        }
        let mut queues = [0; RSS_SLOTS];
        for (queue, channel) in queues.iter_mut().zip(port.group.rss.table(workers.len())) {
            *queue = workers[channel] as u32;
        }
        self.datapath.set_rss(id.0, &queues).map_err(|error| refused(&error))?;
        self.configure(id)
    }

    fn rss_of(&self, port: &Port) -> RssShow {
        rss_of(port, self.datapath.counters(port.id.0))
    }

    fn group(&self, name: &str) -> Result<PortId, ApiError> {
        let id = self.id_of(name)?;
        if self.ports[&id].spec.is_group() {
            return Ok(id);
        }
        self.id_with_rings(name)?;
        let message = format!(
            "`{name}` has one netdev, and its packets go to one worker, or to that of the processor \
                               they come in on"
        );
        let error = ApiError::new(ErrorCode::NotSupported, message).with_field("port").with_value(name);
        Err(error.with_limit("ports with several members").with_remedy("forebay port add NAME --group A,B"))
    }
}

fn rss_of(port: &Port, kernel: KernelCounters) -> RssShow {
    let workers = &port.group.tuning.workers;
    let table = if workers.is_empty() { Vec::new() } else { port.group.rss.table(workers.len()) };
    let channel = |(channel, worker): (usize, &usize)| RssChannel {
        channel: channel as u32,
        worker: *worker as u32,
        slots: table.iter().filter(|slot| **slot == channel).count() as u32,
    };
    let [steered_packets, away_packets, across_packets] = port.cells.steered();
    let kernel = kernel.since(&port.baseline);
    RssShow {
        name: port.spec.port_name().to_owned(),
        steering: port.group.rss.steering,
        channels: workers.iter().enumerate().map(channel).collect(),
        table: table.iter().map(|channel| *channel as u32).collect(),
        steered_packets,
        away_packets,
        across_packets,
        slow_path_packets: kernel.slow_path_packets,
        far_packets: kernel.far_packets,
    }
}
