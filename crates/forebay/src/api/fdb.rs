//! `/v1/fdb`

use axum::Json;
use axum::extract::State;
use forebay_control::fdb::{FdbAdd, FdbDel, FdbEntry, FdbFlush, FdbFlushReply};
use forebay_control::{ApiError, MacAddr, Vid};

use super::extract::{Body, Filter, Segments};
use super::{Answer, Shared};

/// Forwarding entries
#[utoipa::path(get, operation_id = "fdb-list", path = "/v1/fdb", tag = "fdb",
    params(("port" = Option<String>, Query, description = "Only those behind this port"),
           ("vlan" = Option<Vid>, Query, description = "Only those of this VLAN")), responses(
    (status = 200, body = Vec<FdbEntry>, description = "The entries"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn list(State(api): Shared, Filter(filter): Filter<FdbFlush>) -> Answer<Vec<FdbEntry>> {
    let mut entries = api.ask(|switch| switch.fdb_list()).await?;
    entries.retain(|entry| {
        filter.port.as_ref().is_none_or(|port| *port == entry.port)
            && filter.vlan.is_none_or(|vlan| vlan == entry.vlan)
    });
    Ok(Json(entries))
}

/// Add a static entry
#[utoipa::path(post, operation_id = "fdb-add", path = "/v1/fdb", tag = "fdb", request_body = FdbAdd, responses(
    (status = 200, body = FdbEntry, description = "The entry"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn add(State(api): Shared, Body(request): Body<FdbAdd>) -> Answer<FdbEntry> {
    request.validate()?;
    Ok(Json(api.ask(move |switch| switch.fdb_add(request)).await??))
}

/// Delete one entry, static or learned
#[utoipa::path(delete, operation_id = "fdb-del", path = "/v1/fdb/{vlan}/{mac}", tag = "fdb",
    params(("vlan" = Vid, Path, description = "The station's VLAN"),
           ("mac" = MacAddr, Path, description = "The station's address")), responses(
    (status = 200, body = FdbEntry, description = "The entry that is gone"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn delete(
    State(api): Shared,
    Segments((vlan, mac)): Segments<(String, String)>,
) -> Answer<FdbEntry> {
    let vlan = vlan.parse().map_err(|_| ApiError::invalid("vlan", &vlan, format!("0 to {}", Vid::MAX)))?;
    let mac =
        mac.parse().map_err(|_| ApiError::invalid("mac", &mac, "six bytes, as in 02:00:00:00:00:01"))?;
    Ok(Json(api.ask(move |switch| switch.fdb_del(FdbDel { vlan, mac })).await??))
}

/// Forget learned entries
///
/// All of them, or those of one port, one VLAN, or both. Static entries stay.
#[utoipa::path(post, operation_id = "fdb-flush", path = "/v1/fdb/flush", tag = "fdb", request_body = FdbFlush, responses(
    (status = 200, body = FdbFlushReply, description = "How many were forgotten"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn flush(State(api): Shared, Body(request): Body<FdbFlush>) -> Answer<FdbFlushReply> {
    Ok(Json(api.ask(move |switch| switch.fdb_flush(request)).await??))
}
