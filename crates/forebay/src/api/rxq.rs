//! `/v1/rxq`

use axum::Json;
use axum::extract::State;
use forebay_control::rxq::{RxqCollector, RxqCollectorSet, RxqPort, RxqSet, RxqShow};
use forebay_control::{ApiError, ErrorCode};

use super::extract::{Body, Segments};
use super::{Answer, Shared};

/// All receive queues
#[utoipa::path(get, operation_id = "rxq-show", path = "/v1/rxq", tag = "switch", responses(
    (status = 200, body = RxqShow, description = "Depths, bindings and fill rings"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn show(State(api): Shared) -> Answer<RxqShow> {
    Ok(Json(api.ask(|switch| switch.rxq()).await?))
}

/// Change a port's receive queues
#[utoipa::path(patch, operation_id = "rxq-set", path = "/v1/rxq/ports/{name}", tag = "switch",
    request_body = RxqSet, params(("name" = String, Path, description = "The port's name")), responses(
    (status = 200, body = RxqPort, description = "They as they are then"),
    (status = "default", body = ApiError, description = "Refused, nothing changed")))]
pub(super) async fn set(
    State(api): Shared,
    Segments(name): Segments<String>,
    Body(change): Body<RxqSet>,
) -> Answer<RxqPort> {
    if change == RxqSet::default() {
        return Err(nothing("depth, refill, low, binding").into());
    }
    Ok(Json(api.ask(move |switch| switch.rxq_set(&name, change)).await??))
}

/// Change the collectors' fill rings
#[utoipa::path(patch, operation_id = "rxq-set-collector", path = "/v1/rxq/collector", tag = "switch",
    request_body = RxqCollectorSet, responses(
    (status = 200, body = Vec<RxqCollector>, description = "Each collector's as they are then"),
    (status = "default", body = ApiError, description = "Refused, nothing changed")))]
pub(super) async fn set_collector(
    State(api): Shared,
    Body(change): Body<RxqCollectorSet>,
) -> Answer<Vec<RxqCollector>> {
    if change == RxqCollectorSet::default() {
        return Err(nothing("refill, low").into());
    }
    Ok(Json(api.ask(move |switch| switch.rxq_set_collector(change)).await??))
}

/// A change that changes nothing.
pub(super) fn nothing(fields: &str) -> ApiError {
    ApiError::new(ErrorCode::InvalidValue, "the request changes nothing")
        .with_limit(format!("at least one of {fields}"))
}
