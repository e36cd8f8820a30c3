//! Snapshots of the pool's occupancy, and its watermarks; devlink-sb's verbs.

use forebay_control::occupancy::{ClearmaxReply, Occupancy, PoolOccupancy, PortOccupancy};
use forebay_control::{ApiError, ErrorCode};

use super::Control;
use super::port::Port;

impl Control {
    /// Notes what every port holds now and the most it held.
    pub(crate) fn occupancy_snapshot(&mut self) -> PoolOccupancy {
        let frame_size = self.frame_bytes();
        let ports = self.ports.values();
        let occupancy =
            ports.map(|port| (port.spec.port_name().to_owned(), look(port, frame_size))).collect();
        let snapshot = PoolOccupancy { occupancy };
        self.pool.set_occupancy(snapshot.clone());
        snapshot
    }

    pub(crate) fn occupancy_show(&self, port: Option<&str>) -> Result<PoolOccupancy, ApiError> {
        let remedy = "take one: forebay pool occupancy snapshot";
        let none = || ApiError::new(ErrorCode::NoSnapshot, "there is no snapshot yet").with_remedy(remedy);
        let snapshot = self.pool.occupancy().ok_or_else(none)?;
        let Some(name) = port else { return Ok(snapshot.clone()) };
        let Some(part) = snapshot.occupancy.get(name) else {
            self.id_of(name)?;
            let message = format!("port `{name}` is newer than the last snapshot");
            let error = ApiError::new(ErrorCode::NoSnapshot, message).with_field("port").with_value(name);
            return Err(error.with_remedy(remedy));
        };
        Ok(PoolOccupancy { occupancy: [(name.to_owned(), part.clone())].into() })
    }

    pub(crate) fn occupancy_clearmax(&self, port: Option<&str>) -> Result<ClearmaxReply, ApiError> {
        let ports: Vec<&Port> = match port {
            Some(name) => vec![self.port_of(name)?],
            None => self.ports.values().collect(),
        };
        ports.iter().flat_map(|port| port.accounts()).for_each(|(_, gauge)| gauge.clear_max());
        Ok(ClearmaxReply { cleared: ports.iter().map(|port| port.spec.port_name().to_owned()).collect() })
    }
}

/// What a port's accounts say counts into its watermarks, so that no later snapshot shows less.
fn look(port: &Port, frame_size: u32) -> PortOccupancy {
    let mut used = 0;
    for (account, gauge) in port.accounts() {
        let frames = account.used();
        gauge.look(frames);
        used += frames;
    }
    PortOccupancy::new(Occupancy::of_frames(used, port.max(), frame_size))
}
