//! The forwarding table as users see and change it.

use std::collections::HashMap;

use forebay_control::fdb::{FdbAdd, FdbDel, FdbEntry, FdbFlush, FdbFlushReply, FdbKind};
use forebay_control::{ApiError, ErrorCode, MacAddr, PortId, Vid};
use forebay_wire::mac;

use super::Control;
use crate::fdb::{Entry, FdbError, Flush};
use crate::shared::Shared;

/// All entries by VLAN and address, of the ports that have a name here. Workers and requests go on meanwhile.
pub(crate) fn list_stations(shared: &Shared, names: &HashMap<PortId, String>) -> Vec<FdbEntry> {
    let now_s = shared.now_s();
    let name_of = |entry: &Entry| names.get(&PortId(entry.port)).cloned();
    let mut entries: Vec<_> =
        shared.fdb.entries().filter_map(|entry| show_entry(&entry, name_of(&entry)?, now_s)).collect();
    entries.sort_unstable_by_key(|entry| (entry.vlan, entry.mac));
    entries
}

fn show_entry(entry: &Entry, port: String, now_s: u32) -> Option<FdbEntry> {
    Some(FdbEntry {
        vlan: Vid::new(entry.vid)?,
        mac: MacAddr(mac::to_bytes(entry.mac)),
        port,
        kind: if entry.is_static { FdbKind::Static } else { FdbKind::Learned },
        age_seconds: if entry.is_static { 0 } else { u64::from(now_s.saturating_sub(entry.seen_s)) },
    })
}

impl Control {
    pub(crate) fn fdb_add(&mut self, request: &FdbAdd) -> Result<FdbEntry, ApiError> {
        self.instance()?;
        request.validate()?;
        let port = self.port_of(&request.port)?;
        if !port.spec.vlan.carries(request.vlan) {
            let message = format!("port `{}` does not carry VLAN {}", request.port, request.vlan);
            return Err(ApiError::new(ErrorCode::InvalidValue, message)
                .with_field("vlan")
                .with_value(request.vlan)
                .with_limit(&port.spec.vlan)
                .with_remedy(format!(
                    "give a VLAN that it carries, or change the port: forebay port set {} --vlan MODE",
                    request.port
                )));
        }
        let address = mac::from_bytes(request.mac.0);
        self.shared
            .fdb
            .add_static(request.vlan.get(), address, port.id.0, self.shared.now_s())
            .map_err(|error| not_added(&error))?;
        Ok(FdbEntry {
            vlan: request.vlan,
            mac: request.mac,
            port: request.port.clone(),
            kind: FdbKind::Static,
            age_seconds: 0,
        })
    }

    pub(crate) fn fdb_del(&mut self, request: &FdbDel) -> Result<FdbEntry, ApiError> {
        let now_s = self.shared.now_s();
        self.shared
            .fdb
            .remove(request.vlan.get(), mac::from_bytes(request.mac.0))
            .and_then(|entry| {
                let port = self.ports.get(&PortId(entry.port))?.spec.port_name().to_owned();
                show_entry(&entry, port, now_s)
            })
            .ok_or_else(|| {
                let message = format!("there is no entry for {} in VLAN {}", request.mac, request.vlan);
                ApiError::new(ErrorCode::NoSuchEntry, message).with_remedy("see `forebay fdb list`")
            })
    }

    pub(crate) fn fdb_flush(&mut self, request: &FdbFlush) -> Result<FdbFlushReply, ApiError> {
        let port = request.port.as_deref().map(|name| self.id_of(name)).transpose()?;
        let which = Flush { port: port.map(|id| id.0), vid: request.vlan.map(Vid::get), with_static: false };
        Ok(FdbFlushReply { flushed: self.shared.fdb.flush(which) as u64 })
    }
}

fn not_added(error: &FdbError) -> ApiError {
    let code = match error {
        FdbError::Multicast { .. } => ErrorCode::InvalidValue,
        _ => ErrorCode::FdbFull,
    };
    ApiError::new(code, error.to_string()).with_remedy("raise fdb.max_entries, or delete entries")
}
