//! The one transaction by which a change reaches workers and kernel programs.
//!
//! Whoever decides about a packet notes the generations of what it relied upon; whoever changes something counts up
//! afterwards. So the order here is the promise: the snapshot is replaced, then the generations grow, and a decision made
//! before is void when [`Publication::publish`] returns. Rules have a second step in front: while the kernel gets other
//! classes it looks no flow up at all.

use std::cell::Cell;
use std::sync::Arc;

use forebay_control::PortId;
use forebay_kernel::Generations;

use crate::rules::RuleSet;
use crate::shared::Shared;
use crate::topology::{PortEntry, Topology};

/// What workers and kernel programs are shown besides the ports.
pub(crate) struct Publication {
    shared: Arc<Shared>,
    /// The switch's generation; odd while the kernel looks flows up.
    switch_generation: u64,
    /// The kernel follows the flows that it can.
    carries_flows: bool,
    rules: Arc<RuleSet>,
    /// Flow ids up to this one were given under other rules.
    last_flow_id_before: u32,
    /// What an earlier process left is taken up: nothing has changed.
    is_adopting: bool,
    /// Something was set since the last publication.
    is_changed: Cell<bool>,
}

impl Publication {
    /// Goes on from the generations that are there.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let generation = shared.generations.of_switch();
        Self {
            shared,
            switch_generation: generation.max(2),
            carries_flows: generation & 1 == 1,
            rules: Arc::default(),
            last_flow_id_before: 0,
            is_adopting: false,
            is_changed: Cell::new(false),
        }
    }

    /// Shows workers these ports, and all that was set before. Flows that relied on what has changed are void when this
    /// returns. `last_flow_id` says which flow id was given last.
    pub(crate) fn publish(
        &self,
        ports: impl IntoIterator<Item = PortEntry>,
        last_flow_id: impl FnOnce() -> u32,
    ) {
        let generations: &Generations = &self.shared.generations;
        let mut topology = Topology::new(ports);
        let mut changed = topology.succeed(&self.shared.topology.load(), generations);
        let others: Vec<PortId> = changed.iter().map(|(id, _)| *id).collect();
        if self.is_adopting {
            topology.keep(generations);
            changed.clear();
        }
        topology.set_rules(Arc::clone(&self.rules), self.switch_generation);
        topology.set_flows(self.carries_flows, self.last_flow_id_before);
        let topology = Arc::new(topology);
        self.shared.topology.store(Arc::clone(&topology));
        tracing::trace!("workers have a new snapshot");
        changed.into_iter().for_each(|(id, generation)| generations.set_port(id.0, generation));
        generations.set_switch(self.switch_generation);
        if !others.is_empty() {
            // Of flows that were decided before, none is followed any more; so no later id stands for their packets.
            let last = last_flow_id();
            others
                .iter()
                .filter_map(|id| topology.port(*id))
                .for_each(|port| port.knows_flow_ids_after(last));
        }
        self.is_changed.set(false);
    }

    /// Whether something was set that workers have not been shown.
    pub(crate) fn is_changed(&self) -> bool {
        self.is_changed.get()
    }

    /// The rules in force.
    pub(crate) fn rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }

    /// Begins a change of rules: from here on the kernel looks no flow up, until [`Publication::set_rules`] and the next
    /// publication.
    pub(crate) fn suspend_flows(&mut self) {
        self.is_changed.set(true);
        self.switch_generation += 2 - (self.switch_generation & 1);
        self.shared.generations.set_switch(self.switch_generation);
    }

    /// Ends a change of rules; with the next publication. `last_flow_id` is the one that was given last under the rules
    /// before. With `looks_up`, the kernel has the classes of these rules and looks flows up again.
    pub(crate) fn set_rules(&mut self, rules: Arc<RuleSet>, last_flow_id: u32, looks_up: bool) {
        self.is_changed.set(true);
        self.rules = rules;
        self.last_flow_id_before = last_flow_id;
        self.switch_generation += u64::from(looks_up && !self.looks_up_flows());
    }

    /// Whether the kernel follows the flows that it can; with the next publication.
    pub(crate) fn set_carries_flows(&mut self, carries: bool) {
        self.is_changed.set(true);
        self.carries_flows = carries;
    }

    /// Whether the kernel follows the flows that it can.
    pub(crate) fn carries_flows(&self) -> bool {
        self.carries_flows
    }

    /// Whether the kernel looks flows up: to follow them, or to tell user space of them.
    pub(crate) fn looks_up_flows(&self) -> bool {
        self.switch_generation & 1 == 1
    }

    /// All flows are void with the next publication, after which the kernel looks flows up or does not.
    pub(crate) fn void_flows(&mut self, looks_up: bool) {
        self.is_changed.set(true);
        self.switch_generation += if self.looks_up_flows() == looks_up { 2 } else { 1 };
    }

    /// While an earlier process's ports are taken up, publications change no generation of a port.
    pub(crate) fn set_adopting(&mut self, is_adopting: bool) {
        self.is_adopting = is_adopting;
    }
}
