//! Moderation that is stated for a port as a whole: by the configuration file, by the request that made the port, or by an
//! earlier daemon.
//!
//! The rule it keeps: a port is moderated as stated and not otherwise. A netdev that does not take it now is no obstacle:
//! it obeys when it has changed so that it can.

use forebay_control::ApiError;
use forebay_control::PortId;
use forebay_control::coalesce::stated::{self, StatedError};
use forebay_control::coalesce::{CoalesceConfig, CoalesceSet};
use forebay_control::port::{PortSet, PortShow, PortSpec};

use super::port::Port;
use super::port_coalesce::NetdevSettings;
use super::{Change, Control};

impl Control {
    /// What moderates a port that was asked for like this.
    fn stated_for<'a>(&'a self, spec: &'a PortSpec) -> &'a [CoalesceSet] {
        match &spec.coalesce[..] {
            [] if spec.is_guest() => &self.coalesce_defaults.guests,
            [] => &self.coalesce_defaults.netdevs,
            own => own,
        }
    }

    /// Nothing of a new port runs yet. What is stated for it was checked.
    pub(super) fn begin_to_moderate(&self, port: &mut Port) {
        let stated = self.stated_for(&port.spec);
        let Some(guest) = &mut port.guest else {
            port.coalescing = NetdevSettings(stated::of_netdevs(stated).0);
            return;
        };
        let (settings, _) = stated::of_guest(stated, guest.pairs());
        guest.calls.iter_mut().zip(settings).for_each(|(calls, setting)| calls.setting = setting);
    }

    /// Whether a port's netdevs are moderated because all are that state nothing themselves.
    pub(super) fn is_moderated_by_default(&self, port: &Port) -> bool {
        let defaults = || NetdevSettings(stated::of_netdevs(&self.coalesce_defaults.netdevs).0);
        port.spec.coalesce.is_empty() && port.coalescing == defaults()
    }
}

impl Change<'_> {
    /// Ports that are added from now on are moderated like this, unless they state it themselves.
    ///
    /// # Errors
    /// The switch is stopping.
    pub(crate) fn set_coalesce_defaults(&mut self, defaults: CoalesceConfig) -> Result<(), ApiError> {
        self.instance()?;
        self.coalesce_defaults = defaults;
        Ok(())
    }

    /// Changes a port, and moderates it as `stated`, or as all are that state nothing.
    ///
    /// # Errors
    /// There is no such port, or it cannot have what is stated. Nothing has changed.
    pub(crate) fn port_set_moderated(
        &mut self,
        name: &str,
        change: PortSet,
        stated: Vec<CoalesceSet>,
    ) -> Result<PortShow, ApiError> {
        let id = self.id_of(name)?;
        self.ports[&id].spec.check_coalesce(&stated).map_err(|wrong| wrong.error)?;
        self.port_set(name, change)?;
        self.port_mut(id).spec.coalesce = stated;
        let stated = self.stated_for(&self.ports[&id].spec).to_vec();
        self.moderate_as(id, &stated);
        self.port_show(name)
    }

    /// Moderates a port as stated and not otherwise. What cannot be is left out and told.
    pub(super) fn moderate_as(&mut self, id: PortId, stated: &[CoalesceSet]) -> Vec<StatedError> {
        let Some(port) = self.ports.beside(id) else { return Vec::new() };
        let Some(guest) = &port.guest else {
            let (next, errors) = stated::of_netdevs(stated);
            let before = std::mem::replace(&mut port.coalescing, NetdevSettings(next));
            self.obey_coalescing(id, &before);
            return errors;
        };
        let (settings, errors) = stated::of_guest(stated, guest.pairs());
        for (index, setting) in settings.into_iter().enumerate() {
            let Some(guest) = self.ports.beside(id).and_then(|port| port.guest.as_mut()) else { continue };
            if guest.calls[index].setting != setting {
                guest.calls[index].setting = setting;
                self.moderate_queue(id, index);
            }
        }
        errors
    }
}
