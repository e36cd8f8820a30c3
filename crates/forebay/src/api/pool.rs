//! `/v1/pool`

use axum::Json;
use axum::extract::State;
use forebay_control::pool::{PoolPort, PoolPortSet, PoolShow};
use forebay_control::{ApiError, ErrorCode};

use super::extract::{Body, Segments};
use super::{Answer, Shared};

/// The pool of packet memory
#[utoipa::path(get, operation_id = "pool-show", path = "/v1/pool", tag = "switch", responses(
    (status = 200, body = PoolShow, description = "How much memory there is and who holds it"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn show(State(api): Shared) -> Answer<PoolShow> {
    Ok(Json(api.ask(|switch| switch.pool()).await?))
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
        let error = ApiError::new(ErrorCode::InvalidValue, "nothing to change");
        return Err(error.with_limit("at least one of threshold, reserve").into());
    }
    Ok(Json(api.ask(move |switch| switch.pool_port_set(&name, change)).await??))
}
