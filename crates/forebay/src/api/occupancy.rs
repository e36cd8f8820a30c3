//! `/v1/pool/occupancy`, `/v1/page-pools`

use axum::Json;
use axum::extract::State;
use forebay_control::ApiError;
use forebay_control::occupancy::{ClearmaxReply, OccupancySelect, PoolOccupancy};
use forebay_control::page_pool::PagePool;

use super::extract::{Body, Filter};
use super::{Answer, Shared};

/// The last snapshot of what ports hold and held at most
#[utoipa::path(get, operation_id = "pool-occupancy-show", path = "/v1/pool/occupancy", tag = "switch",
    params(("port" = Option<String>, Query, description = "Only this port")), responses(
    (status = 200, body = PoolOccupancy, description = "As `devlink -j sb occupancy show` prints it"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn show(
    State(api): Shared,
    Filter(select): Filter<OccupancySelect>,
) -> Answer<PoolOccupancy> {
    Ok(Json(api.ask(move |switch| switch.occupancy_show(select.port.as_deref())).await??))
}

/// Take a snapshot, which replaces the one before
#[utoipa::path(post, operation_id = "pool-occupancy-snapshot", path = "/v1/pool/occupancy/snapshot", tag = "switch",
    responses(
    (status = 200, body = PoolOccupancy, description = "The snapshot"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn snapshot(State(api): Shared) -> Answer<PoolOccupancy> {
    Ok(Json(api.ask(|switch| switch.occupancy_snapshot()).await?))
}

/// Begin watermarks anew: those of all ports, or of one
#[utoipa::path(post, operation_id = "pool-occupancy-clearmax", path = "/v1/pool/occupancy/clearmax", tag = "switch",
    request_body = OccupancySelect, responses(
    (status = 200, body = ClearmaxReply, description = "Whose"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn clearmax(
    State(api): Shared,
    Body(select): Body<OccupancySelect>,
) -> Answer<ClearmaxReply> {
    Ok(Json(api.ask(move |switch| switch.occupancy_clearmax(select.port.as_deref())).await??))
}

/// Every ring that holds frames
#[utoipa::path(get, operation_id = "page-pool-get", path = "/v1/page-pools", tag = "switch", responses(
    (status = 200, body = Vec<PagePool>, description = "RX rings of ports, then fill rings, in the netdev family's terms"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn page_pools(State(api): Shared) -> Answer<Vec<PagePool>> {
    Ok(Json(api.ask(|switch| switch.page_pools()).await?))
}
