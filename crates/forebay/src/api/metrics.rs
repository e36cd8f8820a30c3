//! `/metrics`: the counters as Prometheus reads them, encoded from one look at the switch for all who scrape.

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use forebay_control::coalesce::{CoalescePolicy, CoalesceQueue, CoalesceShow, CoalesceSide};
use forebay_control::eswitch::EswitchShow;
use forebay_control::flow::FlowTable;
use forebay_control::pool::PoolShow;
use forebay_control::stats::{StatsShow, WorkerStats};
use forebay_control::{ApiError, PortCounters, SwitchControl};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::{Refusal, Shared};

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Counters for Prometheus, at most a second old unless the switch is busy
#[utoipa::path(get, operation_id = "metrics", path = "/metrics", tag = "switch", responses(
    (status = 200, content_type = "application/openmetrics-text", body = String, description = "OpenMetrics text"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn get(State(api): Shared) -> Result<impl IntoResponse, Refusal> {
    let text = api.scrapes.text(&api).await?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text))
}

/// What is counted at one moment.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) stats: StatsShow,
    pub(super) flows: FlowTable,
    pub(super) pool: PoolShow,
    pub(super) eswitch: EswitchShow,
    pub(super) moderation: CoalesceShow,
}

pub(super) fn render(snapshot: Snapshot) -> String {
    let mut registry = Registry::with_prefix("forebay");
    registry.register_collector(Box::new(snapshot));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a String takes all that is written to it");
    text
}

type Encoded = Result<(), std::fmt::Error>;

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        self.ports(&mut encoder)?;
        self.drops(&mut encoder)?;
        self.workers(&mut encoder)?;
        self.flows(&mut encoder)?;
        self.pool(&mut encoder)?;
        self.moderated_queues(&mut encoder)?;
        self.moderated_netdevs(&mut encoder)?;
        self.switch(&mut encoder)
    }
}

impl Snapshot {
    /// Looks at the switch.
    pub(super) fn of(switch: &dyn SwitchControl) -> Snapshot {
        Snapshot {
            stats: switch.stats(),
            flows: switch.flow_table(),
            pool: switch.pool(),
            eswitch: switch.eswitch(),
            // It fails for a port that is not there, and none is named.
            moderation: switch.coalesce(None).unwrap_or_default(),
        }
    }

    fn ports(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        type Field = fn(&PortCounters) -> u64;
        let fields: [(&str, &str, Field); 13] = [
            ("port_rx_packets", "Packets that entered at the port, dropped ones included", |c| c.rx_packets),
            ("port_rx_bytes", "Bytes that entered at the port", |c| c.rx_bytes),
            ("port_tx_packets", "Packets that left at the port", |c| c.tx_packets),
            ("port_tx_bytes", "Bytes that left at the port", |c| c.tx_bytes),
            ("port_forwarded_packets", "Packets given to exactly one port", |c| c.forwarded_packets),
            ("port_flooded_packets", "Packets given to every port of their VLAN", |c| c.flooded_packets),
            ("port_not_learned_packets", "Packets whose source was over a limit", |c| c.not_learned_packets),
            ("port_completed_checksums", "L4 checksums that were completed", |c| c.completed_checksums),
            ("port_offloaded_packets", "Packets the kernel carried or dropped by a flow", |c| {
                c.offloaded_packets
            }),
            ("port_moved_packets", "Packets whose station moved to the port", |c| c.moved_packets),
            ("port_move_limited_packets", "Packets whose station might not move to the port", |c| {
                c.move_limited_packets
            }),
            ("port_tx_loop_probes", "Loop probes that left at the port", |c| c.tx_loop_probes),
            ("port_rx_loop_probes", "Loop probes that entered at the port", |c| c.rx_loop_probes),
        ];
        for (name, help, value) in fields {
            let ports = self.stats.ports.iter();
            counters(
                encoder,
                name,
                help,
                ports.map(|port| ([("port", port.name.clone())], value(&port.counters))),
            )?;
        }
        Ok(())
    }

    fn drops(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let series = self.stats.ports.iter().flat_map(|port| {
            port.counters.drops.iter().map(|(reason, count)| {
                ([("port", port.name.clone()), ("reason", reason.name().to_owned())], count)
            })
        });
        counters(encoder, "port_drops", "Packets dropped at the port, by reason", series)?;
        let causes = self.stats.ports.iter().flat_map(|port| {
            port.counters
                .bad_frames
                .iter()
                .map(|(cause, count)| ([("port", port.name.clone()), ("cause", cause.to_owned())], count))
        });
        counters(encoder, "port_bad_frames", "Packets dropped as bad_frame, by what is wrong", causes)
    }

    fn workers(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        type Field = fn(&WorkerStats) -> u64;
        let fields: [(&str, &str, Field); 9] = [
            ("worker_packets", "Packets the worker received", |w| w.packets),
            ("worker_copies", "Copies the worker handed to output ports", |w| w.copies),
            ("worker_departed", "Copies that left by the departure program", |w| w.departed),
            ("worker_batches", "Bursts with at least one packet", |w| w.batches),
            ("worker_bad_descriptors", "Descriptors that pointed outside the pool", |w| w.bad_descriptors),
            ("worker_sleeps", "Times the worker went to sleep", |w| w.sleeps),
            ("worker_lingers", "Times the worker waited awake, and something came", |w| w.lingers),
            ("worker_linger_nanoseconds", "Nanoseconds the worker waited awake", |w| w.linger_ns),
            ("worker_busy_nanoseconds", "Nanoseconds the worker did not wait", |w| w.busy_ns),
        ];
        for (name, help, value) in fields {
            let workers = self.stats.workers.iter();
            counters(encoder, name, help, workers.map(|w| ([("worker", w.worker.to_string())], value(w))))?;
        }
        Ok(())
    }

    fn flows(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let flows = &self.flows;
        gauge(encoder, "flows", "Flows there are", flows.entries)?;
        counter(encoder, "flows_installed", "Flows that were installed", flows.installed_flows)?;
        let limits = flows.refused.iter().map(|(limit, flows)| ([("reason", limit)], flows));
        counters(
            encoder,
            "flows_refused",
            "Flows that were not installed, by the limit that was reached",
            limits,
        )
    }

    fn pool(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let pool = &self.pool;
        let states = [("free", pool.frames_free), ("posted", pool.frames_posted), ("held", pool.frames_held)];
        let states = states.map(|(state, frames)| ([("state", state.to_owned())], frames));
        gauges(encoder, "pool_frames", "Frames of the pool by who has them", states.into_iter())?;
        let ports = pool.ports.iter().map(|port| ([("port", port.name.clone())], port.used));
        gauges(encoder, "pool_port_frames", "Frames the port holds", ports)?;
        let owners = [("pool", pool.bytes_total), ("kernel", pool.kernel_bytes)];
        let owners = owners.map(|(owner, bytes)| ([("owner", owner.to_owned())], bytes));
        gauges(
            encoder,
            "memory_bytes",
            "Packet memory: the pool, and what the kernel allocates besides",
            owners.into_iter(),
        )
    }

    /// Queues of virtual machines that had packets, or are moderated.
    fn moderated_queues(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        type Field = fn(&CoalesceQueue) -> u64;
        let counts: [(&str, &str, Field); 5] = [
            ("queue_turns", "Turns in which the queue had packets", |q| q.turns),
            ("queue_interrupts", "Calls of the virtual machine", |q| q.interrupts),
            ("queue_suppressed_interrupts", "Calls that were due and not wanted", |q| q.suppressed),
            ("queue_saved_interrupts", "Turns that a later call served too", |q| q.saved),
            ("queue_moderation_moves", "Times that the queue's limits changed", |q| q.moves),
        ];
        let limits: [(&str, &str, Field); 2] = [
            ("queue_coalesce_usecs", "Microseconds that a packet waits for a call", |q| q.usecs_now.into()),
            ("queue_coalesce_frames", "Packets that wait for a call", |q| q.frames_now.into()),
        ];
        for (name, help, value) in counts {
            counters(encoder, name, help, self.queues().map(|(labels, queue)| (labels, value(queue))))?;
        }
        for (name, help, value) in limits {
            gauges(encoder, name, help, self.queues().map(|(labels, queue)| (labels, value(queue))))?;
        }
        Ok(())
    }

    fn queues(&self) -> impl Iterator<Item = ([(&str, String); 3], &CoalesceQueue)> {
        let all =
            self.moderation.ports.iter().flat_map(|port| port.queues.iter().map(move |queue| (port, queue)));
        let is_used =
            |queue: &CoalesceQueue| queue.packets > 0 || queue.setting.policy != CoalescePolicy::Off;
        all.filter(move |(_, queue)| is_used(queue)).map(|(port, queue)| {
            let direction = queue.direction.to_string();
            let labels =
                [("port", port.name.clone()), ("queue", queue.queue.to_string()), ("direction", direction)];
            (labels, queue)
        })
    }

    /// Netdevs by direction, as far as limits are taken.
    fn moderated_netdevs(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let moves = self.sides().map(|(labels, side)| (labels, side.moves));
        counters(
            encoder,
            "netdev_moderation_moves",
            "Times that a policy changed the netdev's limits",
            moves,
        )?;
        let usecs = self.sides().filter_map(|(labels, side)| Some((labels, side.now.usecs?.into())));
        gauges(encoder, "netdev_coalesce_usecs", "Microseconds that an interrupt waits", usecs)?;
        let frames = self.sides().filter_map(|(labels, side)| Some((labels, side.now.frames?.into())));
        gauges(encoder, "netdev_coalesce_frames", "Packets that an interrupt waits for", frames)
    }

    fn sides(&self) -> impl Iterator<Item = ([(&str, String); 3], &CoalesceSide)> {
        let netdevs =
            self.moderation.ports.iter().flat_map(|port| port.netdevs.iter().map(move |at| (port, at)));
        let sides = netdevs.flat_map(|(port, at)| {
            [("rx", &at.rx), ("tx", &at.tx)].map(|(word, side)| (port, at, word, side))
        });
        sides.filter(|(.., side)| !side.now.is_empty()).map(|(port, at, word, side)| {
            (
                [("port", port.name.clone()), ("netdev", at.netdev.clone()), ("direction", word.to_owned())],
                side,
            )
        })
    }

    fn switch(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let eswitch = &self.eswitch;
        let balanced = u64::from(self.stats.check.balanced);
        gauge(encoder, "ports", "Ports there are", eswitch.ports.into())?;
        gauge(encoder, "counters_balanced", "1 if every packet was counted exactly once", balanced)?;
        gauge(encoder, "uptime_seconds", "Seconds since start", eswitch.uptime_seconds)?;
        let about = [("version", eswitch.version.clone()), ("spool_mode", eswitch.spool_mode.to_string())];
        gauges(encoder, "build", "1, with version and mode as labels", [(about, 1)].into_iter())
    }
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> Encoded {
    let metric = ConstGauge::new(signed(value));
    metric.encode(encoder.encode_descriptor(name, help, None, ConstGauge::<i64>::TYPE)?)
}

fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> Encoded {
    let metric = ConstCounter::new(value);
    metric.encode(encoder.encode_descriptor(name, help, None, ConstCounter::<u64>::TYPE)?)
}

/// OpenMetrics has no unsigned gauge.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn counters<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl Iterator<Item = (L, u64)>,
) -> Encoded {
    family(encoder, name, help, series.map(|(labels, value)| (labels, ConstCounter::new(value))))
}

fn gauges<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl Iterator<Item = (L, u64)>,
) -> Encoded {
    family(encoder, name, help, series.map(|(labels, value)| (labels, ConstGauge::new(signed(value)))))
}

fn family<L: EncodeLabelSet, M: EncodeMetric + TypedMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl Iterator<Item = (L, M)>,
) -> Encoded {
    let mut metric = encoder.encode_descriptor(name, help, None, M::TYPE)?;
    for (labels, value) in series {
        value.encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}
