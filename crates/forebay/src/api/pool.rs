//! `/v1/pool`

use axum::Json;
use axum::extract::State;
use forebay_control::ApiError;
use forebay_control::pool::{PoolPort, PoolPortSet, PoolSet, PoolShow};

use super::extract::{Body, Segments};
use super::rxq::nothing;
use super::{Answer, Shared};

/// The pool of packet memory
#[utoipa::path(get, operation_id = "pool-show", path = "/v1/pool", tag = "switch", responses(
    (status = 200, body = PoolShow, description = "How much memory there is and who holds it"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn show(State(api): Shared) -> Answer<PoolShow> {
    Ok(Json(api.ask(|switch| switch.pool()).await?))
}

/// Change how the pool is shared
#[utoipa::path(patch, operation_id = "pool-set", path = "/v1/pool", tag = "switch", request_body = PoolSet, responses(
    (status = 200, body = PoolShow, description = "The pool as it is then"),
    (status = "default", body = ApiError, description = "Refused, nothing changed")))]
pub(super) async fn set(State(api): Shared, Body(change): Body<PoolSet>) -> Answer<PoolShow> {
    if change == PoolSet::default() {
        return Err(nothing("policy, frames").into());
    }
    Ok(Json(api.ask(move |switch| switch.pool_set(change)).await??))
}

/// Change a port's part in the pool
#[utoipa::path(patch, operation_id = "pool-port-set", path = "/v1/pool/ports/{name}", tag = "switch",
    request_body = PoolPortSet, params(("name" = String, Path, description = "The port's name")), responses(
    (status = 200, body = PoolPort, description = "Its part as it is then"),
    (status = "default", body = ApiError, description = "Refused, nothing changed")))]
pub(super) async fn set_port(
    State(api): Shared,
    Segments(name): Segments<String>,
    Body(change): Body<PoolPortSet>,
) -> Answer<PoolPort> {
    if change.is_empty() {
        return Err(nothing("threshold, reserve").into());
    }
    Ok(Json(api.ask(move |switch| switch.pool_port_set(&name, change)).await??))
}
